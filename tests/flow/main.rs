//! What workflows do while they run: steps, races, retries, timers, misuse.

mod asked_again;
mod basics;
mod concurrency;
mod crash_everywhere;
mod divergence;
mod durable;
mod engine;
mod identity;
mod inputs;
mod keys;
mod misuse;
mod parking;
mod patches;
mod payloads;
mod random_programs;
mod reading;
mod resumed;
mod retrying;
mod starting;
mod steps;
mod stopping;
mod timers;
mod tolerant;
mod unfit;
mod unpolled;
mod versions;
