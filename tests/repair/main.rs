//! What is left of a damaged store, as a new one: real files, real engines.
//!
//! `sound` makes the store that is damaged and says what is in it; `damaged` damages it everywhere; `going_on` lets engines
//! go on with what was salvaged; `older` is about what sled's file still has of earlier times; `around` about what lives beside journals;
//! `interrupted` cuts a repair short; `refused` is what a repair does not do.

mod around;
mod damaged;
mod going_on;
mod interrupted;
mod keyed;
mod older;
mod refused;
mod sound;
