//! How a host attaches a volume: the front ends know the block interface and nothing else.

pub mod fuse;
pub mod nbd;
pub mod ublk;
pub mod unaligned;
