//! The flash translation layer as a deterministic state machine.
#![no_std]
extern crate alloc;

pub mod addr;
pub mod seam;
pub mod map;
pub mod refs;
pub mod stats;
