//! What is left of a damaged store, as a new one: real files, real engines.
//!
//! `sound` makes the store that is damaged and says what is in it; `damaged` damages it everywhere, `annexed` where journals lie; `going_on` lets engines
//! go on with what was salvaged; `around` is about what lives beside journals;
//! `interrupted` cuts a repair short; `refused` is what a repair does not do.

mod annexed;
mod around;
mod damaged;
mod going_on;
mod interrupted;
mod keyed;
mod refused;
mod sound;
