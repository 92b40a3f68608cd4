//! What workflows do while they run: steps, races, retries, timers, misuse.

mod asked_again;
mod basics;
mod resumed;
