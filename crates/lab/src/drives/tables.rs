//! The tables of a drive's file.

use super::fields::{DriveError, Fields, Key};
use crate::flash::{
    Energy, HANDLES_MAX, Nand, PART_BLOCKS, PageMapping, Placement, QUEUES_MAX, Queues, SlcCache,
    TYPES_MAX, Weights, Zoned,
};
use vellum_core::addr::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;
const US: u64 = 1000;
const MS: u64 = 1_000_000;
const MB: u64 = 1_000_000;
const KIB: u64 = 1 << 10;
const DAY: u64 = 86_400_000 * MS;

/// A key for a speed in bytes.
const fn rate(name: &'static str, about: &'static str, default: Option<u64>) -> Key {
    Key {
        name,
        about,
        unit: MB,
        range: (MB / 10, 100_000 * MB),
        step: 1,
        default,
    }
}

/// A key for a count.
const fn count(name: &'static str, about: &'static str, most: u64) -> Key {
    Key {
        name,
        about,
        unit: 1,
        range: (1, most),
        step: 1,
        default: None,
    }
}

/// A key for a time.
const fn time(
    name: &'static str,
    about: &'static str,
    unit: u64,
    range: (u64, u64),
    default: Option<u64>,
) -> Key {
    Key {
        name,
        about,
        unit,
        range,
        step: 1,
        default,
    }
}

/// Visits the host's link.
///
/// # Errors
/// If the file has an invalid value.
pub fn link(
    of: &mut impl Fields,
    command_ns: &mut u64,
    bytes_per_s: &mut u64,
    (in_order, request_bytes): (&mut bool, &mut u64),
) -> Result<(), DriveError> {
    const COMMAND: Key = time(
        "command-us",
        "What a command and its completion cost",
        US,
        (0, 100 * MS),
        None,
    );
    const RATE: Key = rate(
        "mb-per-s",
        "How fast it is, in millions of bytes a second; left out, it takes no time",
        Some(u64::MAX),
    );
    const REQUEST: Key = Key {
        name: "request-kib",
        about: "What crosses it as one request, at most, in KiB: a longer one is cut. Of a page map; \
                all else takes no more than 1024",
        unit: KIB,
        range: (BLOCK, 16 << 20),
        step: BLOCK,
        default: Some(PART_BLOCKS as u64 * BLOCK),
    };
    of.number(&COMMAND, command_ns)?;
    of.number(&RATE, bytes_per_s)?;
    of.switch(
        "in-order",
        "Whether a command waits for the data on the link",
        in_order,
    )?;
    of.number(&REQUEST, request_bytes)
}

/// Visits the flash.
///
/// # Errors
/// If the file has an invalid value.
pub fn flash(of: &mut impl Fields, nand: &mut Nand) -> Result<(), DriveError> {
    const PAGE: Key = Key {
        name: "page-kib",
        about: "What a page holds, in KiB",
        unit: KIB,
        range: (BLOCK, 64 * KIB),
        step: BLOCK,
        default: None,
    };
    const SPARE: Key = Key {
        name: "over-provisioning-percent",
        about: "Space kept from the host, of what the host sees",
        unit: 10,
        range: (20, 10_000),
        step: 1,
        default: None,
    };
    const BUFFER: Key = Key {
        name: "buffer-kib",
        about: "RAM for writes that are not yet on flash, in KiB; 0: a page map answers a write when \
                it is programmed",
        unit: KIB,
        range: (0, 1 << 30),
        step: BLOCK,
        default: None,
    };
    of.short(&count("channels", "Channels", 64), &mut nand.channels)?;
    let dies = count("dies-per-channel", "Dies on each channel", 64);
    of.short(&dies, &mut nand.dies_per_channel)?;
    of.short(&count("planes", "Planes of a die", 16), &mut nand.planes)?;
    of.switch(
        "planes-together",
        "Whether the planes program and erase together; else they only add blocks",
        &mut nand.multi_plane,
    )?;
    let pages = count("pages-per-block", "Pages of an erase block", 16_384);
    of.short(&pages, &mut nand.pages_per_block)?;
    of.short(&PAGE, &mut nand.page_bytes)?;
    let second = (1, 1000 * MS);
    let about = "From the cells to the register";
    of.number(&time("read-us", about, US, second, None), &mut nand.read_ns)?;
    let about = "From the register to the cells";
    let program = time("program-us", about, US, second, None);
    of.number(&program, &mut nand.program_ns)?;
    let erase = time("erase-ms", "What erasing a block takes", MS, second, None);
    of.number(&erase, &mut nand.erase_ns)?;
    let about = "A channel's speed, in millions of bytes a second";
    let channel = rate("channel-mb-per-s", about, None);
    of.number(&channel, &mut nand.bus_bytes_per_s)?;
    let limit = count(
        "erase-limit",
        "Erasures that a block endures",
        u32::MAX as u64,
    );
    of.short(&limit, &mut nand.erase_limit)?;
    of.number(&BUFFER, &mut nand.buffer_bytes)?;
    of.short(&SPARE, &mut nand.over_provisioning)
}

/// Visits a page type.
///
/// # Errors
/// If the file has an invalid value.
pub fn page_type(
    of: &mut impl Fields,
    read: &mut u64,
    program: &mut u64,
) -> Result<(), DriveError> {
    let second = (1, 1000 * MS);
    let about = "From the cells to the register";
    of.number(&time("read-us", about, US, second, None), read)?;
    let about = "From the register to the cells";
    of.number(&time("program-us", about, US, second, None), program)
}

/// Visits the cache that a page map writes first.
///
/// # Errors
/// If the file has an invalid value.
pub fn slc_cache(of: &mut impl Fields, slc: &mut SlcCache) -> Result<(), DriveError> {
    let second = (1, 1000 * MS);
    let blocks = count(
        "erase-blocks",
        "Its erase blocks on each die, beside those that hold data",
        65_536,
    );
    of.short(&blocks, &mut slc.blocks)?;
    const BITS: Key = Key {
        name: "bits-per-cell",
        about: "Bits of the other blocks' cells: so many times as many pages as its blocks have these",
        unit: 1,
        range: (2, TYPES_MAX as u64),
        step: 1,
        default: None,
    };
    of.short(&BITS, &mut slc.bits)?;
    let about = "From its cells to the register";
    of.number(&time("read-us", about, US, second, None), &mut slc.read_ns)?;
    let about = "From the register to its cells";
    let program = time("program-us", about, US, second, None);
    of.number(&program, &mut slc.program_ns)?;
    let erase = time(
        "erase-ms",
        "What erasing one of its blocks takes",
        MS,
        second,
        None,
    );
    of.number(&erase, &mut slc.erase_ns)?;
    const NEVER: u64 = u64::MAX;
    let about =
        "How long nobody asks before it is folded; left out: it is folded only when it is full";
    let key = time("idle-ms", about, MS, (0, 3_600_000 * MS), Some(NEVER));
    let mut idle = slc.idle_ns.unwrap_or(NEVER);
    of.number(&key, &mut idle)?;
    slc.idle_ns = (idle != NEVER).then_some(idle);
    Ok(())
}

/// Visits the energy of the flash's operations.
///
/// # Errors
/// If the file has an invalid value.
pub fn energy(of: &mut impl Fields, energy: &mut Energy) -> Result<(), DriveError> {
    const fn microjoules(name: &'static str, about: &'static str) -> Key {
        Key {
            name,
            about,
            unit: 1000,
            range: (0, 1_000_000_000),
            step: 1,
            default: None,
        }
    }
    let key = microjoules("read-uj", "To read a page from its cells, in microjoules");
    of.number(&key, &mut energy.read_nj)?;
    of.number(
        &microjoules("program-uj", "To program one"),
        &mut energy.program_nj,
    )?;
    let key = microjoules("erase-uj", "To erase a block, of one plane");
    of.number(&key, &mut energy.erase_nj)
}

/// Visits the number of reads that an erase block stands.
///
/// # Errors
/// If the file has an invalid value.
pub fn read_disturb(of: &mut impl Fields, reads: &mut u32) -> Result<(), DriveError> {
    let about =
        "Reads of an erase block's pages after which it is refreshed, from its last erasure on";
    of.short(&count("reads", about, u32::MAX as u64), reads)
}

/// Visits how long an erase block keeps its data.
///
/// # Errors
/// If the file has an invalid value.
pub fn retention(of: &mut impl Fields, age_ns: &mut u64) -> Result<(), DriveError> {
    const DAYS: Key = Key {
        name: "days",
        about: "How long data lie in an erase block before it is refreshed, in days of virtual time",
        unit: DAY,
        range: (DAY / 100_000, 36_500 * DAY),
        step: DAY / 100_000,
        default: None,
    };
    of.number(&DAYS, age_ns)
}

/// Visits the properties of the drive's page map.
///
/// # Errors
/// If the file has an invalid value.
pub fn page_map(of: &mut impl Fields, map: &mut PageMapping) -> Result<(), DriveError> {
    const KEPT_FREE: Key = Key {
        name: "kept-free-percent",
        about: "What the collector keeps free of each die's erase blocks, and at least one of them",
        unit: 10,
        range: (0, 500),
        step: 1,
        default: Some(0),
    };
    of.switch(
        "striped",
        "Whether each block stays on the die that its number says; else each unit goes to the die \
         whose turn it is",
        &mut map.striped,
    )?;
    of.short(&KEPT_FREE, &mut map.kept_free)?;
    of.switch(
        "copy-back",
        "Whether the collector's moves do not cross the channel; a program unit is then 4 KiB",
        &mut map.copy_back,
    )?;
    of.switch(
        "summaries",
        "Whether the last page of each block is its summary, programmed when all others are",
        &mut map.summary,
    )
}

/// Visits the drive's placement handles.
///
/// # Errors
/// If the file has an invalid value.
pub fn placement(of: &mut impl Fields, placement: &mut Placement) -> Result<(), DriveError> {
    let about =
        "Handles: each fills an erase block of its own on each die, where a policy names them";
    let handles = count("handles", about, HANDLES_MAX as u64);
    of.short(&handles, &mut placement.handles)?;
    of.switch(
        "initially-isolated",
        "Whether what the collector moves shares blocks, whatever handle it was written to; else it \
         stays with what is written to its handle (persistently isolated)",
        &mut placement.initially,
    )
}

/// Visits the drive's zones.
///
/// # Errors
/// If the file has an invalid value.
pub fn zoned(of: &mut impl Fields, zoned: &mut Zoned) -> Result<(), DriveError> {
    const SIZE: Key = Key {
        name: "size-kib",
        about: "From the beginning of one zone to the next, in KiB; left out: the next power of two of what \
                a zone holds",
        unit: KIB,
        range: (BLOCK, 1 << 40),
        step: BLOCK,
        default: Some(0),
    };
    const CONVENTIONAL: Key = Key {
        name: "conventional",
        about: "Zones that may be overwritten; a small page map of the drive's own runs them",
        unit: 1,
        range: (0, 65_536),
        step: 1,
        default: Some(0),
    };
    of.short(
        &count("dies", "Dies that a zone spans: neighbours", 4096),
        &mut zoned.dies,
    )?;
    let deep = count(
        "erase-blocks",
        "Erase blocks of a zone on each of them: so much a zone holds",
        65_536,
    );
    of.short(&deep, &mut zoned.deep)?;
    of.number(&SIZE, &mut zoned.size_bytes)?;
    let open = count("open", "Zones that may be open at a time", 65_536);
    of.short(&open, &mut zoned.open)?;
    let about = "Zones that may be open or partly written at a time";
    of.short(&count("active", about, 65_536), &mut zoned.active)?;
    of.short(&CONVENTIONAL, &mut zoned.conventional)
}

/// Visits the drive's submission queues.
///
/// # Errors
/// If the file has an invalid value.
pub fn queues(
    of: &mut impl Fields,
    queues: &mut Queues,
    weights: &mut Weights,
) -> Result<(), DriveError> {
    const BURST: Key = Key {
        name: "burst",
        about: "The most commands, a power of two, that the controller takes from one queue in a row while \
                others have some",
        unit: 1,
        range: (1, 64),
        step: 1,
        default: Some(1),
    };
    const fn weight(name: &'static str, about: &'static str) -> Key {
        Key {
            name,
            about,
            unit: 1,
            range: (1, 256),
            step: 1,
            default: Some(0),
        }
    }
    let number = count("count", "How many there are", QUEUES_MAX as u64);
    of.short(&number, &mut queues.count)?;
    let about = "Commands of a queue that may be unanswered; more wait in the host";
    of.short(&count("depth", about, 65_535), &mut queues.depth)?;
    let about = "Commands that the controller works on at a time, of all queues together";
    of.short(&count("commands", about, 65_536), &mut queues.commands)?;
    of.short(&BURST, &mut queues.burst)?;
    let about = "Weight of the class high: its commands in a round of weighted round robin. Without the \
                 three weights all queues are alike";
    of.short(&weight("high", about), &mut weights.high)?;
    of.short(
        &weight("medium", "Weight of the class medium"),
        &mut weights.medium,
    )?;
    of.short(&weight("low", "Weight of the class low"), &mut weights.low)
}

/// Visits the figures of a device known only by its speed, other than those of its directions.
///
/// # Errors
/// If the file has an invalid value.
pub fn flush(of: &mut impl Fields, flush_ns: &mut u64) -> Result<(), DriveError> {
    let about = "What making durable takes that was written, beside waiting for it";
    of.number(
        &time("flush-us", about, US, (0, 10_000 * MS), None),
        flush_ns,
    )
}

/// Visits the figures of one direction of a device known only by its speed.
///
/// # Errors
/// If the file has an invalid value.
pub fn flat(of: &mut impl Fields, latency: &mut u64, rate: &mut u64) -> Result<(), DriveError> {
    const LATENCY: Key = time(
        "latency-us",
        "What a request takes beside its bytes",
        US,
        (0, 1000 * MS),
        None,
    );
    of.number(&LATENCY, latency)?;
    of.number(&self::rate("mb-per-s", "How fast the bytes go", None), rate)
}

/// Visits a measured size of requests. Without a bandwidth, requests are taken to follow each other one at a time.
///
/// # Errors
/// If the file has an invalid value.
pub fn point(
    of: &mut impl Fields,
    (bytes, latency, rate): (&mut u64, &mut u64, &mut u64),
) -> Result<(), DriveError> {
    const SIZE: Key = Key {
        name: "kib",
        about: "The size, in KiB",
        unit: KIB,
        range: (BLOCK, 1 << 20),
        step: BLOCK,
        default: None,
    };
    of.number(&SIZE, bytes)?;
    let latency_key = time("us", "What one takes by itself", US, (1, 1000 * MS), None);
    of.number(&latency_key, latency)?;
    let alone = (*bytes * 1000 * MS).div_ceil((*latency).max(1));
    let about = "How fast its bytes go when there are always some to do";
    let key = self::rate("mb-per-s", about, Some(alone));
    of.number(&key, rate)
}
