//! What flash does beyond the plain commands, wears out of and gets wrong: nothing of it unless it is asked for.

/// Blocks wear out, each at a limit of its own, and spare blocks take their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endurance {
    /// The standard deviation of the blocks' limits, in thousandths of the rated one.
    pub spread: u32,
    /// Spare blocks of a die beyond its capacity, in thousandths of its blocks; at least one.
    pub spare: u32,
    /// Blocks that are bad when the drive is new, in thousandths: each takes a spare one.
    pub factory_bad: u32,
}

/// Reads find bits wrong: the more, the more often the block was erased.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BitErrors {
    /// The share of bits that are wrong in a new block.
    pub fresh: f64,
    /// The same in one that was erased as often as is rated; between the two, and beyond, it grows exponentially.
    pub worn: f64,
    /// Bits that are corrected in a codeword of 1 KiB.
    pub correctable: u32,
    /// How often a read is tried again before it is given up.
    pub retries: u32,
}

/// Programs and erasures stop for reads that somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspend {
    /// Programs do.
    pub program: bool,
    /// Erasures do.
    pub erase: bool,
    /// What stopping takes, and again what going on takes.
    pub each_ns: u64,
    /// How often one program or erasure is stopped, at most: then it goes through to its end.
    pub most: u32,
}

/// All of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// Wearing out.
    pub endurance: Option<Endurance>,
    /// Bits that are wrong.
    pub errors: Option<BitErrors>,
    /// Stopping for reads.
    pub suspend: Option<Suspend>,
    /// Cache commands: a page's data cross the channel while the cells are busy with the page before.
    pub cache_commands: bool,
    /// Planes do not work together, even where they could: a program unit is one page.
    pub single_plane: bool,
}

impl Options {
    /// Whether the dies' queues have more to do than one command after the other.
    pub(super) fn is_extended(&self) -> bool {
        self.errors.is_some() || self.suspend.is_some() || self.cache_commands
    }
}
