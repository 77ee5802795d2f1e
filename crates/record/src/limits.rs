//! What recording may use.

use std::time::Duration;

/// The most bytes of blocks that wait to be described.
pub const QUEUE_BYTES: usize = 64 << 20;
/// With more bytes waiting than this, sizes are left out: finding them takes most of the time.
pub const QUEUE_BYTES_BUSY: usize = 16 << 20;
/// The most requests that wait.
pub const QUEUE_REQUESTS: usize = 1 << 16;
/// Blocks whose last version is kept, to find how much they change.
pub const VERSIONS: usize = 8192;
/// The most ranges of metadata that are distinguished.
pub const RANGES: usize = 1 << 18;
/// Recorded requests are in the file after this time. The free space is also checked this often.
pub const FLUSH_AFTER: Duration = Duration::from_secs(1);
/// A file system that changes is read again when it has not changed for this long ...
pub const LOOK_QUIET: Duration = Duration::from_millis(200);
/// ... and after this long at the latest.
pub const LOOK_LATEST: Duration = Duration::from_secs(2);
/// Recording ends when its file system has less free space than this: the volume may need it.
pub const ROOM_BYTES: u64 = 16 << 20;
/// Blocks per read when a file system is read.
pub const READ_BLOCKS: usize = 32;

const _: () = assert!(QUEUE_BYTES_BUSY < QUEUE_BYTES);
const _: () = assert!(VERSIONS.is_power_of_two());
