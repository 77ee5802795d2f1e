//! The most that is believed of a trace: how long a line, a request and a disk may be.

/// The most bytes of a line.
pub const LINE_BYTES_MAX: usize = 64 << 10;
/// The most bytes of a read or a write.
pub const REQUEST_BYTES_MAX: u64 = 256 << 20;
/// The most bytes of a disk; a discard may cover all of it.
pub const DISK_BYTES_MAX: u64 = 1 << 56;
