//! Flash behaviour beyond the plain commands, wear and errors. All of it is off by default.

/// Blocks wear out, each at its own limit, and spare blocks replace them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endurance {
    /// The standard deviation of the blocks' limits, in thousandths of the rated one.
    pub spread: u32,
    /// Spare blocks of a die beyond its capacity, in thousandths of its blocks; at least one.
    pub spare: u32,
    /// Blocks that are bad when the drive is new, in thousandths: each takes a spare one.
    pub factory_bad: u32,
}

/// Reads find wrong bits: the more often a block was erased, the more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BitErrors {
    /// The share of wrong bits in a new block.
    pub fresh: f64,
    /// The share in a block at its rated erasures; between the two, and beyond, it grows exponentially.
    pub worn: f64,
    /// Bits that are corrected in a codeword of 1 KiB.
    pub correctable: u32,
    /// The most retries before a read is given up.
    pub retries: u32,
}

/// Programs and erasures stop for reads that a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspend {
    /// Programs stop.
    pub program: bool,
    /// Erasures stop.
    pub erase: bool,
    /// The time stopping takes, and again the time resuming takes.
    pub each_ns: u64,
    /// The most stops of one program or erasure: then it runs to its end.
    pub most: u32,
}

/// All the options.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// Wear-out.
    pub endurance: Option<Endurance>,
    /// Bit errors.
    pub errors: Option<BitErrors>,
    /// Stopping for reads.
    pub suspend: Option<Suspend>,
    /// Cache commands: a page's data cross the channel while the cells are busy with the page before.
    pub cache_commands: bool,
    /// Planes do not work together, even if they could: a program unit is one page.
    pub single_plane: bool,
}

impl Options {
    /// True if the dies do more than run one command after the other.
    pub(super) fn is_extended(&self) -> bool {
        self.errors.is_some() || self.suspend.is_some() || self.cache_commands
    }
}
