//! A model-based simulation of crashes and faults, over the core and its seam alone.
//!
//! `rng` decides everything. `client` issues requests. `driver` carries out effects in any order on the `medium`, which forgets
//! and tears what was not synced. `model` knows what the volume may hold. `world` runs lives one after the other.
//! `docs/internals/simulation.md` says what else real drives and kernels do, and what of it is not simulated.

mod bare;
pub mod bench;
pub mod chosen;
pub mod client;
mod concerns;
pub mod counts;
mod cut;
pub mod damage;
pub mod damaged_tables;
pub mod driver;
mod full;
mod grow;
pub mod medium;
mod mend;
pub mod model;
pub mod open;
mod records;
mod rest;
pub mod rng;
pub mod seeds;
mod shorten;
mod shrink;
pub mod summary;
pub mod world;
