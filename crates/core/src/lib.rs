//! The flash translation layer as a deterministic state machine.
#![forbid(unsafe_code)]
#![no_std]
extern crate alloc;

pub mod addr;
pub mod bare;
mod by_pba;
pub mod check;
mod classes;
pub mod driver;
pub mod engine;
pub mod entry;
mod flat;
pub mod format;
mod front;
pub mod grow;
pub mod index;
pub mod layout;
pub mod limits;
mod log;
mod mirrors;
pub mod ordering;
mod pieces;
pub mod policy;
pub mod pool;
pub mod recovery;
pub mod reserve;
pub mod room;
pub mod seam;
pub mod service;
pub mod shorten;
pub mod shrink;
pub mod size;
pub mod snapshots;
pub mod state;
pub mod stats;
pub mod tables;
pub mod vacate;
