//! Runs the core on a medium and offers the block interface to front ends.

pub mod block;
pub mod frames;
