//! What a device is made of.

use super::speed::Speed;

/// A NAND drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nand {
    /// Channels.
    pub channels: u32,
    /// Dies on each.
    pub dies_per_channel: u32,
    /// Planes of a die.
    pub planes: u32,
    /// Whether the planes program and erase together; else they only add blocks.
    pub multi_plane: bool,
    /// Pages of a block.
    pub pages_per_block: u32,
    /// Bytes of a page: a multiple of 4096.
    pub page_bytes: u32,
    /// From the cells to the register.
    pub read_ns: u64,
    /// From the register to the cells.
    pub program_ns: u64,
    /// A block.
    pub erase_ns: u64,
    /// A channel's speed.
    pub bus_bytes_per_s: u64,
    /// Erasures that a block endures.
    pub erase_limit: u32,
    /// RAM for writes that are not yet on flash, bytes. 0: a page map answers a write when it is programmed, unless it
    /// orders its updates.
    pub buffer_bytes: u64,
    /// Space kept from the host, in thousandths of what it sees.
    pub over_provisioning: u32,
    /// How a page map goes about it.
    pub page_map: PageMapping,
}

/// What a page map does its own way on a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageMapping {
    /// Whether each block stays on the die that its number says; else each unit goes to the die whose turn it is.
    pub striped: bool,
    /// What the collector keeps free of each die, in thousandths of its erase blocks, and at least one of them.
    pub kept_free: u32,
    /// Whether the collector's moves do not cross the channel. A program unit is a block then.
    pub copy_back: bool,
    /// Whether the last page of each block is its summary: programmed when all others are, and no data are in it.
    pub summary: bool,
}

/// A page map in a drive of which nothing else is said.
pub const PLAIN: PageMapping = PageMapping {
    striped: false,
    kept_free: 0,
    copy_back: false,
    summary: false,
};

/// A device that is known by its speed alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Of reads.
    pub read: Speed,
    /// Of writes.
    pub write: Speed,
    /// What making durable takes that was written, beside waiting for it.
    pub flush_ns: u64,
}

/// What kind of device it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Flash whose every operation is simulated.
    Nand(Nand),
    /// Latency and bandwidth.
    Block(Block),
}

/// A device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// What the command and its completion cost on the host's link.
    pub command_ns: u64,
    /// The host's link.
    pub link_bytes_per_s: u64,
    /// Whether a command waits for the data on the link, and does not overtake the write that they are of.
    pub link_in_order: bool,
    /// What crosses the link as one request, at most; a longer one is cut.
    pub request_bytes: u64,
    /// Its inside.
    pub kind: Kind,
}
