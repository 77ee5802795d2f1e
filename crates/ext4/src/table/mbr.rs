//! MBR partitions, including the chain of logical ones.

use super::found::{Partitioning, Tables, sectors};
use crate::aside::{Part, StoodAside};
use crate::limits::LOGICAL_PARTITIONS;
use crate::source::Reader;
use crate::watch::{Watches, read_watched};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, KnownLayout};

pub(super) const BYTES: usize = 512;
const SECTOR: u64 = BYTES as u64;
const ENTRIES: usize = 446;
const SIGNATURE: [u8; 2] = [0x55, 0xAA];
const EMPTY: u8 = 0;
const PROTECTIVE: u8 = 0xEE;
const EXTENDED: [u8; 3] = [0x05, 0x0F, 0x85];
const ACTIVE: u8 = 0x80;

#[derive(Clone, Copy, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Entry {
    active: u8,
    _first_chs: [u8; 3],
    kind: u8,
    _last_chs: [u8; 3],
    first: U32,
    count: U32,
}

impl Entry {
    pub fn is_protective(&self) -> bool {
        self.kind == PROTECTIVE
    }

    fn is_extended(&self) -> bool {
        EXTENDED.contains(&self.kind)
    }

    fn is_used(&self) -> bool {
        self.kind != EMPTY && self.count.get() > 0
    }
}

/// The entries, if it is a partition table: a file system's boot sector has the same signature, but text or code
/// in place of the active flags.
pub(super) fn entries(sector: &[u8]) -> Option<[Entry; 4]> {
    if sector.get(BYTES - 2..BYTES)? != SIGNATURE {
        return None;
    }
    let (entries, _) = <[Entry; 4]>::read_from_prefix(sector.get(ENTRIES..)?).ok()?;
    entries
        .iter()
        .all(|entry| entry.active & !ACTIVE == 0)
        .then_some(entries)
}

/// Adds the partitions. Nothing in the table says how large its sectors are. So they are of 512 bytes: with any other size, bytes
/// inside one partition would pass for another one.
pub(super) fn find(
    primary: &[Entry; 4],
    reader: &mut Reader<'_>,
    watches: &mut Watches,
    tables: &mut Tables,
) {
    tables.partitioning = Partitioning::Mbr;
    for entry in primary.iter().filter(|entry| entry.is_used()) {
        let (first, count) = (entry.first.get().into(), entry.count.get().into());
        match sectors(first, count, SECTOR, reader.volume_bytes()) {
            None => tables.faults.push(StoodAside::Field {
                part: Part::Mbr,
                at: 0,
                field: "partition",
                found: first,
            }),
            Some(span) if !entry.is_extended() => tables.partitions.push(span),
            Some(_) => {
                let logical = logical(first, reader, watches, &mut tables.partitions);
                tables.faults.extend(logical.err());
            }
        }
    }
}

/// Follows the chain of an extended partition. Each link gives the place of one logical partition relative to itself, and of the
/// next link relative to the first.
fn logical(
    base: u64,
    reader: &mut Reader<'_>,
    watches: &mut Watches,
    partitions: &mut Vec<crate::span::Span>,
) -> Result<(), StoodAside> {
    let mut link = base;
    for _ in 0..LOGICAL_PARTITIONS {
        let Some(at) = link.checked_mul(SECTOR) else {
            break;
        };
        let fault = |field, found| StoodAside::Field {
            part: Part::Mbr,
            at,
            field,
            found,
        };
        let bytes = read_watched(reader, watches, at, BYTES)?;
        let Some(entries) = entries(&bytes) else {
            return Err(fault("signature", 0));
        };
        let mut next = None;
        for entry in entries.iter().filter(|entry| entry.is_used()) {
            if entry.is_extended() {
                next = next.or(Some(base + u64::from(entry.first.get())));
                continue;
            }
            let first = link + u64::from(entry.first.get());
            let count = entry.count.get().into();
            let span = sectors(first, count, SECTOR, reader.volume_bytes());
            partitions.push(span.ok_or_else(|| fault("partition", first))?);
        }
        match next {
            None => return Ok(()),
            Some(next) => link = next,
        }
    }
    Err(StoodAside::Limit {
        what: "the number of logical partitions",
        limit: LOGICAL_PARTITIONS as u64,
    })
}
