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
    let fault = |field, found| StoodAside::Field {
        part: Part::GptHeader,
        at,
        field,
        found,
    };
    let Ok((header, _)) = Header::ref_from_prefix(&bytes) else {
        return Ok(None);
    };
    if header.signature != SIGNATURE {
        return Ok(None);
    }
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
    let entries_at = header.entries_sector.get();
    let Some(start) = entries_at.checked_mul(sector) else {
        return Err(fault("partition_entry_lba", entries_at));
    };
    let entries = read_watched(reader, watches, start, count as usize * size as usize)?;
    if crc32(&entries) != header.entries_checksum.get() {
        return Err(StoodAside::Checksum {
            part: Part::GptEntries,
            at: start,
        });
    }
    let mut partitions = Vec::new();
    for bytes in entries.chunks_exact(size as usize) {
        let Ok((entry, _)) = Entry::ref_from_prefix(bytes) else {
            continue;
        };
        if entry.kind == [0; 16] {
            continue;
        }
        let (first, last) = (entry.first.get(), entry.last.get());
        let span = last
            .checked_sub(first)
            .and_then(|count| count.checked_add(1))
            .and_then(|count| sectors(first, count, sector, reader.volume_bytes()));
        // One false entry must not hide the others.
        if let Some(span) = span {
            partitions.push(span);
        }
    }
    Ok(Some(partitions))
}
