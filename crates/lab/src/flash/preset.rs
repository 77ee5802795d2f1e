//! The figures of a device.

use super::cells::{PageTypes, SlcCache};
use super::energy::Energy;
use super::placement::Placement;
use super::queues::Queues;
use super::speed::Speed;
use super::stress::Refresh;
use super::zoned::Zoned;

/// A NAND drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nand {
    /// Channels.
    pub channels: u32,
    /// Dies on each.
    pub dies_per_channel: u32,
    /// Planes of a die.
    pub planes: u32,
    /// True if the planes program and erase together; otherwise they only add blocks.
    pub multi_plane: bool,
    /// Pages of a block.
    pub pages_per_block: u32,
    /// Bytes of a page: a multiple of 4096.
    pub page_bytes: u32,
    /// Time from the cells to the register.
    pub read_ns: u64,
    /// Time from the register to the cells.
    pub program_ns: u64,
    /// Time to erase a block.
    pub erase_ns: u64,
    /// A channel's speed.
    pub bus_bytes_per_s: u64,
    /// Erasures that a block endures.
    pub erase_limit: u32,
    /// RAM for writes that are not yet on flash, in bytes. 0: a page map completes a write when it is programmed, unless it
    /// orders its updates.
    pub buffer_bytes: u64,
    /// Space hidden from the host, in thousandths of the host's space.
    pub over_provisioning: u32,
    /// Page types that take different times, if any.
    pub page_types: PageTypes,
    /// The cache that a page map writes first.
    pub slc: Option<SlcCache>,
    /// The energy of each operation, if known.
    pub energy: Option<Energy>,
    /// When a block's data must be refreshed.
    pub refresh: Refresh,
    /// How the drive's page map works.
    pub page_map: PageMapping,
    /// The handles by which a host says what belongs together, if the drive has any.
    pub placement: Option<Placement>,
    /// Its zones, if its interface is zones.
    pub zoned: Option<Zoned>,
}

/// Properties of a drive's page map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageMapping {
    /// True if each block stays on the die given by its number; otherwise units go to the dies in turn.
    pub striped: bool,
    /// What the collector keeps free on each die, in thousandths of its erase blocks; at least one block.
    pub kept_free: u32,
    /// True if the collector's moves do not cross the channel. A program unit is a block then.
    pub copy_back: bool,
    /// True if the last page of each block is its summary: it is programmed after all others, and holds no data.
    pub summary: bool,
}

/// The page map of a drive whose file gives no properties.
pub const PLAIN: PageMapping = PageMapping {
    striped: false,
    kept_free: 0,
    copy_back: false,
    summary: false,
};

/// A device known only by its speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Speed of reads.
    pub read: Speed,
    /// Speed of writes.
    pub write: Speed,
    /// Time a flush takes, in addition to waiting for the writes.
    pub flush_ns: u64,
}

/// The kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Flash, with every operation simulated.
    Nand(Nand),
    /// Latency and bandwidth.
    Block(Block),
}

/// The figures of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// Time of the command and its completion on the host's link.
    pub command_ns: u64,
    /// Speed of the host's link.
    pub link_bytes_per_s: u64,
    /// True if a command waits for the data on the link, and does not overtake the write whose data they are.
    pub link_in_order: bool,
    /// The most bytes that cross the link as one request; a longer request is split.
    pub request_bytes: u64,
    /// Its submission queues, if they are simulated; otherwise each request goes to the drive at once.
    pub queues: Option<Queues>,
    /// The inside of the device.
    pub kind: Kind,
}
