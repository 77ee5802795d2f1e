//! GPT partitions: from the table after the MBR, or else from its backup at the end of the volume.

use super::found::{Partitioning, Tables, sectors};
use crate::aside::{Part, StoodAside};
use crate::checksum::crc32;
use crate::limits::{GPT_ENTRIES, GPT_ENTRY_BYTES};
use crate::source::Reader;
use crate::span::Span;
use crate::watch::{Watches, read_watched};
use core::mem::offset_of;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout};

const SIGNATURE: [u8; 8] = *b"EFI PART";
const SECTORS: [u64; 2] = [512, 4096];

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Header {
    signature: [u8; 8],
    _revision: U32,
    header_bytes: U32,
    checksum: U32,
    _reserved: U32,
    own_sector: U64,
    _alternate: U64,
    _first_usable: U64,
    _last_usable: U64,
    _disk: [u8; 16],
    entries_sector: U64,
    entries: U32,
    entry_bytes: U32,
    entries_checksum: U32,
}

const HEADER: usize = 92;

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Entry {
    kind: [u8; 16],
    _partition: [u8; 16],
    first: U64,
    last: U64,
}

pub(super) fn find(reader: &mut Reader<'_>, watches: &mut Watches, tables: &mut Tables) {
    let end = reader.volume_bytes();
    let primary = SECTORS.map(|sector| (sector, sector, Partitioning::Gpt));
    let backup = SECTORS.map(|sector| (sector, end - sector, Partitioning::GptBackup));
    for (sector, at, partitioning) in primary.into_iter().chain(backup) {
        match table(sector, at, reader, watches) {
            Ok(Some(partitions)) => {
                tables.partitioning = partitioning;
                tables.partitions = partitions;
                return;
            }
            Ok(None) => {}
            Err(aside) => tables.faults.push(aside),
        }
    }
}

/// The partitions of the table with its header at `at`; `None` if there is no header.
fn table(
    sector: u64,
    at: u64,
    reader: &mut Reader<'_>,
    watches: &mut Watches,
) -> Result<Option<Vec<Span>>, StoodAside> {
    let bytes = read_watched(reader, watches, at, sector as usize)?;
    let Ok((header, _)) = Header::ref_from_prefix(&bytes) else {
        return Ok(None);
    };
    if header.signature != SIGNATURE {
        return Ok(None);
    }
    check_header(header, sector, at, &bytes)?;
    let fault = header_fault(at);
    let size = header.entry_bytes.get() as usize;
    let entries_at = header.entries_sector.get();
    let Some(start) = entries_at.checked_mul(sector) else {
        return Err(fault("partition_entry_lba", entries_at));
    };
    let entries = read_watched(reader, watches, start, header.entries.get() as usize * size)?;
    if crc32(&entries) != header.entries_checksum.get() {
        return Err(StoodAside::Checksum {
            part: Part::GptEntries,
            at: start,
        });
    }
    // One false entry must not hide the others.
    let partitions = entries
        .chunks_exact(size)
        .filter_map(|entry| partition(entry, sector, reader.volume_bytes()))
        .collect();
    Ok(Some(partitions))
}

/// Says what is wrong with a field of the header at `at`.
fn header_fault(at: u64) -> impl Fn(&'static str, u64) -> StoodAside {
    move |field, found| StoodAside::Field {
        part: Part::GptHeader,
        at,
        field,
        found,
    }
}

/// Checks the header at `at`, whose sector has `bytes`, as far as that is possible without the entries.
fn check_header(header: &Header, sector: u64, at: u64, bytes: &[u8]) -> Result<(), StoodAside> {
    let fault = header_fault(at);
    let length = header.header_bytes.get() as usize;
    if !(HEADER..=bytes.len()).contains(&length) {
        return Err(fault("header_size", length as u64));
    }
    let mut covered = bytes[..length].to_vec();
    let field = offset_of!(Header, checksum);
    covered[field..field + 4].fill(0);
    if crc32(&covered) != header.checksum.get() {
        return Err(StoodAside::Checksum {
            part: Part::GptHeader,
            at,
        });
    }
    if header.own_sector.get() != at / sector {
        return Err(fault("my_lba", header.own_sector.get()));
    }
    let (count, size) = (header.entries.get(), header.entry_bytes.get());
    if count == 0 || count > GPT_ENTRIES {
        return Err(fault("num_partition_entries", count.into()));
    }
    if !size.is_multiple_of(8) || !(128..=GPT_ENTRY_BYTES).contains(&size) {
        return Err(fault("sizeof_partition_entry", size.into()));
    }
    Ok(())
}

/// The range of an entry's partition; `None` if the entry is empty, or its range is none.
fn partition(entry: &[u8], sector: u64, volume_bytes: u64) -> Option<Span> {
    let (entry, _) = Entry::ref_from_prefix(entry).ok()?;
    if entry.kind == [0; 16] {
        return None;
    }
    let first = entry.first.get();
    let count = entry.last.get().checked_sub(first)?.checked_add(1)?;
    sectors(first, count, sector, volume_bytes)
}
