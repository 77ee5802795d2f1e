//! Every bound of the watch in one place.

use core::num::NonZeroUsize;
use core::time::Duration;
use vellum_core::addr::BLOCK_BYTES;

/// The most extents of journals watched on a volume: each written block is checked against them.
pub const JOURNAL_EXTENTS: usize = 64;
/// The largest gap between two extents of a journal that counts as the journal's own: two levels of indirect blocks.
pub const JOURNAL_GAP_BLOCKS: u64 = 2;
/// The most home addresses taken from the journal blocks of one batch of requests.
pub const PAIRS: usize = 16_384;

/// The most blocks in a transaction that is pledged to its homes. After a longer one, saving a flush hardly
/// matters next to what was written.
pub const COMMITTED_PAIRS: usize = 256;
/// How long a commit block waits after the last new block it may commit. jbd2 waits for those blocks too, so no client waits
/// longer than it would anyway. By then a connection that lost a packet, or a path that was switched, is back.
pub const COMMIT_PATIENCE: Duration = Duration::from_secs(10);
/// How long a commit block waits before it is answered all the same: longer than requests in flight with it
/// take, and too short to be noticed.
pub const COMMIT_SILENCE: Duration = Duration::from_millis(5);
/// How long a superblock of an unknown journal waits for the scout.
pub const SCOUT_PATIENCE: Duration = Duration::from_secs(5);
/// The most journals whose commit blocks wait, and the most extents in all of them: a few MiB of memory.
pub const COMMIT_JOURNALS: usize = 64;
/// See [`COMMIT_JOURNALS`].
pub const COMMIT_EXTENTS: usize = 65_536;
/// How long everything a scan depends on must have been unchanged before a new scan starts.
pub const SCAN_QUIET: Duration = Duration::from_millis(50);
/// How long after the first change a new scan starts in any case.
pub const SCAN_LATEST: Duration = Duration::from_secs(1);
/// The most ranges that are never deduplicated because they hold file systems' copies of vital structures. Without
/// `sparse_super`, that is one for each group in 8 TiB of blocks of 4096 bytes; with it, a file system has only a few. 1 MiB.
pub const CRITICAL_RANGES: usize = 65_536;
/// The most ranges of metadata known for a volume: each written block is looked up in them. 256 KiB.
pub const METADATA_RANGES: usize = 16_384;
/// The most blocks in a run of freed blocks dropped at once.
pub const FREED_RUN_BLOCKS: u64 = 1024;
/// The most writes remembered that end while a scan runs, so that none is missed. If there are more, the scan is repeated.
pub const SCAN_WRITES: usize = 4096;
/// The most copies in journals whose homes are known: more than a transaction has.
pub const COPIES_KNOWN: usize = 32 << 10;
/// Blocks that are kept in memory because others may be stored as deltas against them: 16 MiB.
pub const BASES: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4095);
/// Blocks of one of ext4's groups of 128 MiB: a bucket of the log of deltas (CSA-FS §3.3).
pub const GROUP_BLOCKS: u64 = 32 << 10;

const _: () = assert!(BASES.get() * BLOCK_BYTES <= 64 << 20);
const _: () = assert!(SCAN_QUIET.as_millis() <= SCAN_LATEST.as_millis());
