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
mod payloads;
mod queues;
mod random_programs;
mod reading;
mod resumed;
mod retention;
mod schedules;
mod starting;
mod steps;
mod stopping;
mod timers;
mod unfit;
mod unpolled;
