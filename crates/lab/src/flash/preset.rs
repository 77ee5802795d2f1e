//! Devices that are known by name, each saying where its figures come from.

use super::speed::{Point, Speed, Table};

/// A NAND drive.
#[derive(Clone, Copy, Debug)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageMapping {
    /// Whether each block stays on the die that its number says; else each unit goes to the die whose turn it is.
    pub striped: bool,
    /// What the collector keeps free of each die, in thousandths of its erase blocks, and at least one of them.
    pub kept_free: u32,
    /// Whether the collector's moves do not cross the channel. A program unit is a block then.
    pub copy_back: bool,
}

/// A page map in a drive of which nothing else is said.
pub const PLAIN: PageMapping = PageMapping {
    striped: false,
    kept_free: 0,
    copy_back: false,
};

/// A device that is known by its speed alone.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// Of reads.
    pub read: Speed,
    /// Of writes.
    pub write: Speed,
    /// What making durable takes that was written, beside waiting for it.
    pub flush_ns: u64,
}

/// What kind of device it is.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Flash whose every operation is simulated.
    Nand(Nand),
    /// Latency and bandwidth.
    Block(Block),
}

/// A device.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Where the figures come from.
    pub source: &'static str,
    /// What the command and its completion cost on the host's link.
    pub command_ns: u64,
    /// The host's link.
    pub link_bytes_per_s: u64,
    /// Whether a command waits for the data on the link, and does not overtake the write that they are of.
    pub link_in_order: bool,
    /// Its inside.
    pub kind: Kind,
}

const US: u64 = 1000;
const MS: u64 = 1_000_000;
const MB: u64 = 1_000_000;
const MIB: u64 = 1 << 20;
/// A link that takes no time: what it takes is in the figures.
const NO_LINK: u64 = u64::MAX;

const CAFTL: Nand = Nand {
    channels: 10,
    dies_per_channel: 1,
    planes: 8,
    multi_plane: false,
    pages_per_block: 64,
    page_bytes: 4096,
    read_ns: 25 * US,
    program_ns: 200 * US,
    erase_ns: 1500 * US,
    // 100 us a page of 4 KiB.
    bus_bytes_per_s: 40 * MB,
    erase_limit: 100_000,
    buffer_bytes: 16 * MIB,
    over_provisioning: 150,
    page_map: PLAIN,
};

const OFTL: Nand = Nand {
    channels: 2,
    dies_per_channel: 4,
    planes: 1,
    multi_plane: false,
    pages_per_block: 128,
    page_bytes: 4096,
    read_ns: 50 * US,
    program_ns: 600 * US,
    erase_ns: 3 * MS,
    bus_bytes_per_s: 166 * MB,
    erase_limit: 5000,
    buffer_bytes: 16 * MIB,
    over_provisioning: 70,
    page_map: PLAIN,
};

const TLC: Nand = Nand {
    channels: 4,
    dies_per_channel: 2,
    planes: 4,
    multi_plane: true,
    pages_per_block: 512,
    page_bytes: 16 << 10,
    read_ns: 50 * US,
    program_ns: 700 * US,
    erase_ns: 5 * MS,
    bus_bytes_per_s: 1200 * MB,
    erase_limit: 3000,
    buffer_bytes: 64 * MIB,
    over_provisioning: 70,
    page_map: PLAIN,
};

const QLC: Nand = Nand {
    channels: 4,
    dies_per_channel: 2,
    planes: 4,
    multi_plane: true,
    pages_per_block: 1024,
    page_bytes: 16 << 10,
    read_ns: 100 * US,
    program_ns: 2000 * US,
    erase_ns: 10 * MS,
    bus_bytes_per_s: 1200 * MB,
    erase_limit: 1000,
    buffer_bytes: 64 * MIB,
    over_provisioning: 70,
    page_map: PLAIN,
};

const EMMC: Nand = Nand {
    channels: 1,
    dies_per_channel: 2,
    planes: 2,
    multi_plane: true,
    pages_per_block: 256,
    page_bytes: 16 << 10,
    read_ns: 60 * US,
    program_ns: 900 * US,
    erase_ns: 5 * MS,
    bus_bytes_per_s: 400 * MB,
    erase_limit: 3000,
    buffer_bytes: MIB,
    over_provisioning: 70,
    page_map: PLAIN,
};

const SD: Nand = Nand {
    channels: 1,
    dies_per_channel: 1,
    planes: 2,
    multi_plane: true,
    pages_per_block: 256,
    page_bytes: 16 << 10,
    read_ns: 80 * US,
    program_ns: 1500 * US,
    erase_ns: 8 * MS,
    bus_bytes_per_s: 100 * MB,
    erase_limit: 1000,
    buffer_bytes: MIB / 2,
    over_provisioning: 70,
    page_map: PLAIN,
};

/// DiskSim's SSD extension as it comes, 4 GiB a package, with as many as keep 60 GB.
const CSAFS: Nand = Nand {
    channels: 16,
    erase_limit: 10_000,
    buffer_bytes: 2 * MIB,
    ..CAFTL
};

/// DiskSim's SSD extension as it is validated with.
const DISKSIM: Nand = Nand {
    channels: 8,
    // 528 bytes a sector, 25 ns each: 105.6 us a page.
    bus_bytes_per_s: 4096 * 1_000_000_000 / 105_600,
    buffer_bytes: 0,
    // Of 2048 blocks a plane 307 are in reserve.
    over_provisioning: 176,
    page_map: PageMapping {
        striped: true,
        kept_free: 50,
        copy_back: true,
    },
    ..CAFTL
};

const fn flat(latency_ns: u64, bytes_per_s: u64) -> Speed {
    Speed::Flat {
        latency_ns,
        bytes_per_s,
    }
}

/// OrderMergeDedup's sizes.
const OMD_KIB: [u64; 6] = [4, 8, 16, 32, 64, 128];

/// What it says of them, in microseconds; without a bandwidth, one at a time.
const fn omd(latencies_us: [u64; 6], bytes_per_s: Option<u64>) -> Speed {
    let nothing = Point {
        bytes: 0,
        latency_ns: 0,
        bytes_per_s: 0,
    };
    let mut points = [nothing; 6];
    let mut index = 0;
    while index < points.len() {
        let (bytes, latency_ns) = (OMD_KIB[index] << 10, latencies_us[index] * US);
        // Rounded up: the bytes take no more than the whole.
        let alone = (bytes * 1_000_000_000).div_ceil(latency_ns);
        points[index] = Point {
            bytes,
            latency_ns,
            bytes_per_s: match bytes_per_s {
                Some(bytes_per_s) => bytes_per_s,
                None => alone,
            },
        };
        index += 1;
    }
    match Table::new(&points) {
        Ok(table) => Speed::Measured(table),
        Err(_) => unreachable!(),
    }
}

const OMD_TABLET: Block = Block {
    read: omd([270, 320, 400, 630, 890, 1450], None),
    // Measured: 2910 of 4 KiB, 2860 of 8.
    write: omd([2885, 2885, 4330, 4960, 7640, 11_600], None),
    flush_ns: 0,
};

const OMD_SERVER: Block = Block {
    read: omd([120, 130, 150, 180, 280, 450], Some(550 * MB)),
    write: omd([4700, 4960, 5450, 6130, 7180, 7350], Some(520 * MB)),
    flush_ns: 0,
};

const PRESETS: [Preset; 13] = [
    Preset {
        name: "caftl",
        about: "CAFTL's simulated SSD: 10 packages of 8 planes, 4 KiB pages, 64 pages a block",
        source: "CAFTL's evaluation setting: pages, blocks, planes, packages, 15% over-provisioning, 25 us, 200 us, \
                 1.5 ms, 16 MB buffer. Assumed: one channel a package, 100 us a page on it (the transfer time of the \
                 SSD extension of DiskSim that the paper used), 100,000 erasures (SLC)",
        command_ns: 20 * US,
        link_bytes_per_s: 300 * MB,
        link_in_order: false,
        kind: Kind::Nand(CAFTL),
    },
    Preset {
        name: "oftl",
        about: "OFTL's board: 2 channels of 4 banks, 4 KiB logical pages",
        source: "OFTL's setting: channels, banks, page size, page striping. Assumed: MLC of its time (50 us, 600 us, \
                 3 ms, 128 pages a block, 5000 erasures), 166 MB/s a channel, 7% over-provisioning, SATA 3 Gb/s",
        command_ns: 20 * US,
        link_bytes_per_s: 300 * MB,
        link_in_order: false,
        kind: Kind::Nand(OFTL),
    },
    Preset {
        name: "csafs",
        about: "CSA-FS's simulated SSD: 60 GB, 4 KiB pages, 64 pages a block",
        source: "CSA-FS's setting: 60 GB of MLC, the SSD extension of DiskSim with its own parameters (4 GiB packages of 8 planes, 4 KiB pages, 64 \
                 a block, 25 us, 200 us, 1.5 ms, 100 us a page on the channel, 15% over-provisioning). Assumed: 16 such packages, of which that leaves \
                 60 GB, one channel each, 2 MiB of RAM, 10,000 erasures (MLC); without --capacity a part of it is simulated",
        command_ns: 20 * US,
        link_bytes_per_s: 300 * MB,
        link_in_order: false,
        kind: Kind::Nand(CSAFS),
    },
    Preset {
        name: "disksim",
        about: "what DiskSim's SSD extension is validated with: 8 packages of 8 planes, 4 KiB pages, 64 a block",
        source: "the parameter files of its validation: 8 packages of 16,384 blocks (--capacity 32256M, for the last page of each block is its summary; \
                 without it a part is simulated), a channel each, 25 us, 200 us, 1.5 ms, 25 ns a byte on the channel for the 528 of a sector, 0.238 us a \
                 sector on the link, 15% of the blocks in reserve, cleaning from 5% free blocks on and by copy-back, no write cache. Assumed: 100,000 \
                 erasures (SLC)",
        command_ns: 0,
        link_bytes_per_s: 512 * 10_000_000_000 / 2384,
        link_in_order: true,
        kind: Kind::Nand(DISKSIM),
    },
    Preset {
        name: "tlc-nvme",
        about: "a client's NVMe drive of today: 3D TLC, 4 channels of 2 dies, 4 planes together",
        source: "all assumed, from the order of size of published 3D TLC parts and PCIe 3 x4: 16 KiB pages, 50 us, \
                 700 us a page (mean of the three), 5 ms, ONFI 4 at 1200 MB/s, 3000 erasures, 7% over-provisioning; \
                 no SLC cache",
        command_ns: 8 * US,
        link_bytes_per_s: 3200 * MB,
        link_in_order: false,
        kind: Kind::Nand(TLC),
    },
    Preset {
        name: "qlc-nvme",
        about: "a client's NVMe drive with 3D QLC: the same channels and dies, slower and sooner worn out",
        source: "all assumed, from the order of size of published 3D QLC parts: 16 KiB pages, 100 us, 2 ms a page (mean of \
                 the four), 10 ms, twice the TLC drive's pages a block, 1000 erasures, 7% over-provisioning; no SLC cache",
        command_ns: 8 * US,
        link_bytes_per_s: 3200 * MB,
        link_in_order: false,
        kind: Kind::Nand(QLC),
    },
    Preset {
        name: "emmc",
        about: "an eMMC 5.1 part: one channel, two dies",
        source: "assumed: HS400 (400 MB/s), TLC at 900 us, 1 MiB of RAM, 3000 erasures",
        command_ns: 60 * US,
        link_bytes_per_s: 300 * MB,
        link_in_order: false,
        kind: Kind::Nand(EMMC),
    },
    Preset {
        name: "sd",
        about: "an SD card, UHS-I: one die",
        source: "assumed: 104 MB/s, TLC at 1.5 ms, 512 KiB of RAM, 1000 erasures",
        command_ns: 200 * US,
        link_bytes_per_s: 95 * MB,
        link_in_order: false,
        kind: Kind::Nand(SD),
    },
    Preset {
        name: "fast-ssd",
        about: "WOJ's fast SSD, by its speed alone",
        source: "WOJ's evaluation setting: 900 MB/s sequential write. Assumed: reads as fast, 80 us, 20 us, flush 100 us",
        command_ns: 10 * US,
        link_bytes_per_s: 3200 * MB,
        link_in_order: false,
        kind: Kind::Block(Block {
            read: flat(80 * US, 900 * MB),
            write: flat(20 * US, 900 * MB),
            flush_ns: 100 * US,
        }),
    },
    Preset {
        name: "moderate-ssd",
        about: "WOJ's moderate SSD, by its speed alone",
        source: "WOJ's evaluation setting: 520 MB/s sequential write. Assumed: reads as fast, 100 us, 30 us, flush 1 ms",
        command_ns: 20 * US,
        link_bytes_per_s: 550 * MB,
        link_in_order: false,
        kind: Kind::Block(Block {
            read: flat(100 * US, 520 * MB),
            write: flat(30 * US, 520 * MB),
            flush_ns: MS,
        }),
    },
    Preset {
        name: "slow-ssd",
        about: "WOJ's slow SSD, by its speed alone",
        source: "WOJ's evaluation setting: 70 MB/s sequential write. Assumed: 250 MB/s reads, 150 us, 60 us, flush 5 ms",
        command_ns: 20 * US,
        link_bytes_per_s: 300 * MB,
        link_in_order: false,
        kind: Kind::Block(Block {
            read: flat(150 * US, 250 * MB),
            write: flat(60 * US, 70 * MB),
            flush_ns: 5 * MS,
        }),
    },
    Preset {
        name: "omd-tablet",
        about: "OrderMergeDedup's tablet (Asus T100, 64 GB of flash inside), by its latency a request size",
        source: "OrderMergeDedup's section 4.1: random reads and writes of 4 to 128 KiB; its writes of 4 and 8 KiB (2.91 and 2.86 ms) at their mean. \
                 Assumed: one request of a direction at a time (an eMMC of its time has no queue), so the bandwidth is the size over the latency; the \
                 latencies are the host's and have the link in them; a write is durable when it is answered (the paper does not say), so a flush waits for \
                 writes and takes nothing more",
        command_ns: 0,
        link_bytes_per_s: NO_LINK,
        link_in_order: false,
        kind: Kind::Block(OMD_TABLET),
    },
    Preset {
        name: "omd-server",
        about: "OrderMergeDedup's server (Samsung 850 Pro, 256 GB), by its latency a request size",
        source: "OrderMergeDedup's section 4.1: random reads and writes of 4 to 128 KiB. Assumed: 550 and 520 MB/s at every size (the maker's rating of sequential \
                 access); the latencies are the host's and have the link in them; a write is durable when it is answered (the paper does not say; this drive's \
                 cache would answer in a hundredth of it), so a flush waits for writes and takes nothing more",
        command_ns: 0,
        link_bytes_per_s: NO_LINK,
        link_in_order: false,
        kind: Kind::Block(OMD_SERVER),
    },
];

/// All of them.
#[must_use]
pub fn presets() -> &'static [Preset] {
    &PRESETS
}

/// The one of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}
