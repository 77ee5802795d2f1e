//! What can be chosen when a volume is opened.

use crate::addr::Buf;
use crate::limits;

/// The collector's own buffers: `count` of them from `first` on, never used by the runtime.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// The first.
    pub first: Buf,
    /// How many; at least one collector read's worth.
    pub count: u32,
}

/// How the collector chooses its victim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Victim {
    /// The segment with the fewest live blocks.
    #[default]
    Greedy,
    /// The best of benefit times age over cost (LFS): leaves hot segments alone until they have emptied.
    CostBenefit,
}

impl Victim {
    /// All of them, as users write them.
    pub const NAMES: &'static [&'static str] = &["greedy", "cost-benefit"];

    /// As users write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The one of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let all = [Self::Greedy, Self::CostBenefit];
        all.into_iter().find(|victim| victim.name() == name)
    }
}

/// What can be chosen when a volume is opened.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How the collector chooses.
    pub victim: Victim,
    /// Whether what is freed is discarded on the medium: segments of a log, runs of blocks of tables.
    pub discard: bool,
    /// Of a log: how many blocks are erased at once, at most, of segments that lie side by side and were found empty
    /// when the volume was opened. 0: each segment by itself, as flash has it.
    pub erase_blocks_max: u32,
    /// Of tables: how many blocks such a run has at least.
    pub discard_blocks_min: u32,
    /// Whether blocks of zeros are stored as a map entry alone.
    pub zero: bool,
    /// Segments whose checksums are kept in memory.
    pub cached_sums: usize,
    /// Pages whose summary does not name their owner that are remembered, at least; a quarter of a
    /// journal's if that is more.
    pub strays: usize,
    /// Buffers that clients' writes share: when few are free, in-line deduplication leaves off. 0: unknown,
    /// and it never does.
    pub write_buffers: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            victim: Victim::Greedy,
            discard: false,
            erase_blocks_max: 0,
            discard_blocks_min: 1,
            zero: true,
            cached_sums: limits::CACHED_SUMS,
            strays: limits::STRAYS,
            write_buffers: 0,
        }
    }
}
