//! What recording may take.

use std::time::Duration;

/// Bytes of blocks that wait to be looked at.
pub const QUEUE_BYTES: usize = 64 << 20;
/// With more than this waiting, sizes are not looked for: that takes most of the time.
pub const QUEUE_BYTES_BUSY: usize = 16 << 20;
/// Requests that wait.
pub const QUEUE_REQUESTS: usize = 1 << 16;
/// Blocks whose last version is remembered, to tell how much they change.
pub const VERSIONS: usize = 8192;
/// Ranges of metadata that are told apart.
pub const RANGES: usize = 1 << 18;
/// What is recorded is in the file after this time; so often it is looked whether there is room.
pub const FLUSH_AFTER: Duration = Duration::from_secs(1);
/// A file system that changes is looked at again when this long nothing of it changed ...
pub const LOOK_QUIET: Duration = Duration::from_millis(200);
/// ... and at the latest after this long.
pub const LOOK_LATEST: Duration = Duration::from_secs(2);
/// Recording ends when its file system has less room than this: the volume may need it.
pub const ROOM_BYTES: u64 = 16 << 20;
/// Blocks that are read at a time when a file system is looked at.
pub const READ_BLOCKS: usize = 32;

const _: () = assert!(QUEUE_BYTES_BUSY < QUEUE_BYTES);
const _: () = assert!(VERSIONS.is_power_of_two());
