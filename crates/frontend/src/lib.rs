//! How a host attaches a volume. The front ends know the block interface and nothing else.

pub mod changes;
mod extents;
pub mod finder;
pub mod fuse;
pub mod held;
pub mod nbd;
pub mod owned_socket;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod ublk;
pub mod unaligned;
