//! Recovery: from the newest map checkpoint, chunk after chunk in their one order, to the first hole.
//!
//! It pulls what it reads through [`Source`] and changes nothing on the medium, so it can be cut short
//! anywhere and begun again. What it trusts: nothing without its checksum; of chunks that no later header
//! knows to be durable, not the data either (promise 3: a chunk is there as a whole or not at all).

mod durable;
mod find;
mod hole;
mod open_segments;
mod replay;
pub mod rescue;

pub use find::find_superblock;

use crate::addr::{Generation, Leaf, Life, Pba, Segment, Seq};
use crate::format::areas::Layout;
use crate::format::names::Names;
use crate::format::root::{Cursor, LeafSlot, RootHeader};
use crate::format::summary::Tag;
use crate::format::{
    Crc, FormatError,
    superblock::{LogEnd, Superblock},
};
use crate::state::{Paging, State};
use alloc::vec::Vec;

/// Where recovery reads from.
pub trait Source {
    /// Fills `bytes` (whole blocks) from `at` on.
    ///
    /// # Errors
    /// When the medium cannot read them.
    fn read(&mut self, at: Pba, bytes: &mut [u8]) -> Result<(), Unreadable>;

    /// Makes every read from now on give what the medium has, and not what a cache above it has of it. After a sync
    /// that failed a cache may read as written what is nowhere else, and no later sync writes it: what was built on that
    /// would be lost with the power, although it was flushed. Recovery asks for this before it reads anything.
    ///
    /// # Errors
    /// When the medium cannot be synced, or the cache stays.
    fn drop_cache(&mut self) -> Result<(), Unreadable>;
}

/// Some blocks cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the medium cannot read {blocks} block(s) at physical block {at}")]
pub struct Unreadable {
    /// The first of them.
    pub at: Pba,
    /// How many.
    pub blocks: u64,
}

/// Why a volume cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoveryError {
    /// Neither mirror is a superblock.
    #[error(
        "not a vellum volume, or both superblocks are lost: {first} (block 0); {last} (last block)"
    )]
    NoSuperblock {
        /// What is wrong with the first.
        first: FormatError,
        /// What is wrong with the other.
        last: FormatError,
    },
    /// A superblock that is whole, and that this program cannot go by.
    #[error("{error} (physical block {at})")]
    Superblock {
        /// Where.
        at: Pba,
        /// Why not.
        error: FormatError,
    },
    /// Neither root is whole.
    #[error("both map checkpoints are damaged: {first}; {second}")]
    NoRoot {
        /// What is wrong with the first place.
        first: FormatError,
        /// What is wrong with the second.
        second: FormatError,
    },
    /// The newest root is damaged, and what was written after it proves that it was complete once.
    #[error("map checkpoint {lost} is damaged: it was durable once, and what came after needs it")]
    RootLost {
        /// Its number.
        lost: Generation,
    },
    /// A leaf is damaged.
    #[error("leaf {leaf} of the map, at physical block {at}, fails its checksum")]
    Leaf {
        /// Which.
        leaf: Leaf,
        /// Where.
        at: Pba,
    },
    /// The log has a hole before chunks that were durable.
    #[error(
        "chunk {seq} of the log is damaged or missing, but chunk {later} at physical block {at} proves that it was durable"
    )]
    Hole {
        /// The missing chunk.
        seq: Seq,
        /// A later one.
        later: Seq,
        /// Where that is.
        at: Pba,
    },
    /// A chunk that was durable is missing.
    #[error(
        "chunk {seq} of the log is damaged or missing, but all through chunk {durable} was durable"
    )]
    Missing {
        /// The missing chunk.
        seq: Seq,
        /// The newest chunk known to have been durable.
        durable: Seq,
    },
    /// A record or an entry that names something outside the volume, or where nothing is.
    #[error("{what} at physical block {at} names what the volume does not hold")]
    Outside {
        /// The structure.
        what: &'static str,
        /// Where it is.
        at: Pba,
    },
    /// A block of a table in place, or what names it.
    #[error("{error}, at physical block {at}")]
    Table {
        /// Where.
        at: Pba,
        /// What is wrong.
        error: FormatError,
    },
    /// A log was looked for.
    #[error("the volume's layout is {0}, not a log's: what was asked for is of logs alone")]
    NotALog(&'static str),
    /// A count that is lower than what leads to its block.
    #[error(
        "data block {at} has {links} owners and is counted {count} times: a write to the tables was lost, so which of what they say \
         is old is not known; `vellum check` names all such blocks"
    )]
    CountTooLow {
        /// The block.
        at: Pba,
        /// Its count.
        count: u16,
        /// What leads to it.
        links: u16,
    },
    /// More leads to a block than its count has room for, so it was not counted when it was linked.
    #[error(
        "more leads to data block {at} than a count has room for: no volume links a block so often"
    )]
    TooManyOwners {
        /// The block.
        at: Pba,
    },
    /// What is left of a damaged volume is read only.
    #[error("the volume is damaged: what is left of it can be read, and not be written to")]
    Damaged,
    /// The medium.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// What replay did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Replayed {
    /// Chunks applied.
    pub chunks: u64,
    /// Data blocks whose checksums were held against their header.
    pub verified: u64,
    /// Leaves of the map loaded.
    pub leaves: u64,
    /// Blocks of what leads to data that were damaged, and were told by a copy or a parity.
    pub from_copies: u64,
    /// Whether a superblock mirror was damaged (the next opening for writing repairs it).
    pub mirror_lost: bool,
}

impl Replayed {
    /// Whether a map checkpoint is due: what it includes is not replayed again, and what was told by a copy has one again.
    #[must_use]
    pub fn wants_checkpoint(&self) -> bool {
        self.chunks > 0 || self.from_copies > 0
    }
}

/// A volume as it was found.
pub struct Recovered {
    /// What it is.
    pub superblock: Superblock,
    /// What it holds, counted.
    pub state: State,
    /// Where the hot and the cold head go on.
    pub heads: [Cursor; 2],
    /// The newest chunk.
    pub last_seq: Seq,
    /// Its life.
    pub last_life: Life,
    /// What it said something of, if that is behind the map checkpoint.
    pub last_names: Names,
    /// The map checkpoint that replay began at.
    pub root: RootHeader,
    /// Where its leaves are.
    pub slots: Vec<LeafSlot>,
    /// The newest chunk in each segment, as far as replay has seen.
    pub newest: Vec<Seq>,
    /// Owners and checksums of the blocks of segments that have chunks newer than the map checkpoint, or
    /// are open: their summaries may not be there.
    pub tags: Vec<(Segment, Vec<Tag>)>,
    /// What could not be read that only who goes on needs: the first of it.
    pub unread: Option<Unreadable>,
    /// Whether it is what is left of a damaged volume: it is read, and does not go on.
    pub is_rest: bool,
    /// Whether no life begins: what lies behind the end of the log proves no block all the same. A chunk that is lost, or that a crash
    /// cut off, may have moved what was written over since.
    pub is_read_alone: bool,
    /// What replay did.
    pub replayed: Replayed,
}

impl Recovered {
    /// Its newest chunk.
    #[must_use]
    pub fn log_end(&self) -> LogEnd {
        LogEnd {
            seq: self.last_seq,
            life: self.last_life,
        }
    }

    /// Its superblock as whoever reads blocks goes by it: in a life of its own, whose log begins where this one ended.
    pub(crate) fn superblock_to_read(&self) -> Superblock {
        let mut superblock = self.superblock.clone();
        // Without a root nothing says where it ended.
        if self.is_read_alone && self.last_seq > Seq(0) {
            superblock.begin_life(self.log_end());
        }
        superblock
    }

    /// Whether pages have ever been shared: the leaves of a table that was used stay. Then a page may be another LBA's than the one that
    /// its segment's summary names.
    #[must_use]
    pub fn has_shared(&self) -> bool {
        let [first, end] = [self.superblock.map_leaves(), self.superblock.first_parity()];
        let tables = &self.slots[first as usize..end as usize];
        !self.state.shared().is_empty()
            || self.state.shared().packed() > 0
            || !self.state.strays().is_empty()
            || tables.iter().any(|slot| *slot != LeafSlot::Absent)
    }
}

/// Brings a volume to where its log ends.
///
/// # Errors
/// When something durable is damaged; nothing is lost silently.
pub fn recover(
    source: &mut dyn Source,
    medium_blocks: u64,
    crc: Crc,
) -> Result<Recovered, RecoveryError> {
    recover_within(source, medium_blocks, crc, None)
}

/// The same, with what says where blocks are kept within bounds from the start.
///
/// # Errors
/// As of [`recover`].
pub fn recover_within(
    source: &mut dyn Source,
    medium_blocks: u64,
    crc: Crc,
    paging: Option<Paging>,
) -> Result<Recovered, RecoveryError> {
    let (superblock, mirror_lost) = find_superblock(source, medium_blocks, crc)?;
    if superblock.layout() != Layout::Log {
        return Err(RecoveryError::NotALog(superblock.layout().name()));
    }
    let root = find::find_root(source, &superblock, crc)?;
    let mut replay = replay::Replay::new(source, superblock, crc, root.header, root.slots)?;
    replay.replayed.mirror_lost = mirror_lost;
    replay.replayed.from_copies = root.is_alone.into();
    replay.page(paging);
    replay.load_leaves()?;
    replay.walk_open_segments();
    replay.learn_what_was_durable();
    while replay.step()? {}
    replay.look_past_the_hole(root.newer_lost)?;
    replay.finish()
}
