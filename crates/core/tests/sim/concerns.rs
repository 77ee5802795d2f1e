//! The LBAs that a block of a volume concerns, or a chunk.

use super::medium::{BLOCK, Medium};
use std::collections::{BTreeMap, BTreeSet};
use vellum_core::addr::{Pba, Segment, Seq, Vba};
use vellum_core::entry::{Entry, PartId};
use vellum_core::format::chunk::{self, ChunkHeader, Record};
use vellum_core::format::summary;
use vellum_core::layout::Recovered;

/// The header in a block, if there is one.
pub fn header(medium: &Medium, at: u64) -> Option<ChunkHeader> {
    let mut block = [0; BLOCK];
    medium.read_into(at, &mut block);
    let (header, _) = chunk::decode(&block, crc32c::crc32c).ok()?;
    (header.at == Pba(at)).then_some(header)
}

/// The LBAs that a header says something about or moves, and those whose data is in its chunk or in a page whose number it names.
/// Also the LBAs pledged to a block of the journal that it says something about, because that may have ended the pledge.
pub fn said(medium: &Medium, whole: &Recovered, at: u64) -> BTreeSet<u64> {
    let mut block = [0; BLOCK];
    medium.read_into(at, &mut block);
    let Ok((header, records)) = chunk::decode(&block, crc32c::crc32c) else {
        return BTreeSet::new();
    };
    let moved = |record: &Record| match *record {
        Record::Move { lba, .. } => Some((lba, 1)),
        _ => record.names(),
    };
    let runs = records.iter().filter_map(moved);
    let said = runs.flat_map(|(lba, blocks)| lba.0..lba.0 + blocks);
    let blocks = at..=at + u64::from(header.data_blocks);
    let here = blocks.flat_map(|at| hit_by(whole, at));
    let said: BTreeSet<u64> = said.collect();
    // A block pledged since reads what the chunk said about the journal's block, wherever that lies.
    let pledged = pledged_before(medium, whole, header.seq).chain(pledges(whole));
    let pledged = pledged.filter(|(_, journal)| said.contains(journal));
    let homes: Vec<u64> = pledged.map(|(home, _)| home).collect();
    let led = here.chain(numbered(whole, &records));
    said.iter().copied().chain(led).chain(homes).collect()
}

/// The pledges of chunks between the map checkpoint and this one: home addresses with their journal's blocks.
fn pledged_before<'a>(
    medium: &'a Medium,
    whole: &Recovered,
    end: Seq,
) -> impl Iterator<Item = (u64, u64)> + 'a {
    let from = match whole {
        Recovered::Log(whole) => whole.root.seq,
        Recovered::Tables(_) => end,
    };
    (0..medium.blocks())
        .filter_map(|at| {
            let mut block = [0; BLOCK];
            medium.read_into(at, &mut block);
            chunk::decode(&block, crc32c::crc32c).ok()
        })
        .filter(move |(header, _)| header.seq > from && header.seq < end)
        .flat_map(|(_, records)| records)
        .filter_map(|record| match record {
            Record::Pledge { home, journal } => Some((home.0, journal.0)),
            _ => None,
        })
}

/// The LBAs that lead to a page whose number these records name.
fn numbered(whole: &Recovered, records: &[Record]) -> Vec<u64> {
    let Recovered::Log(whole) = whole else {
        return Vec::new();
    };
    let told: BTreeSet<Vba> = records
        .iter()
        .filter_map(|record| match *record {
            Record::Pack { vba, .. }
            | Record::PackHere { vba }
            | Record::Share { vba, .. }
            | Record::MoveShared { vba, .. } => Some(vba),
            _ => None,
        })
        .collect();
    let leads = whole.state.map().iter().filter(|(_, entry)| match *entry {
        Entry::Shared(vba) => told.contains(&vba),
        Entry::Packed(page, slot) => {
            let base = whole.state.shared().deltas().base_of(PartId { page, slot });
            told.contains(&page) || base.is_some_and(|base| told.contains(&base.page))
        }
        Entry::Unmapped | Entry::Zero | Entry::Plain(_) => false,
    });
    leads.map(|(lba, _)| lba.0).collect()
}

/// The blocks that come home when the volume is opened, by LBA.
pub fn pledges(found: &Recovered) -> BTreeMap<u64, u64> {
    match found {
        Recovered::Log(found) => {
            let pairs = found.state.pledges().iter();
            pairs.map(|(home, journal)| (home.0, journal.0)).collect()
        }
        Recovered::Tables(_) => BTreeMap::new(),
    }
}

/// The LBAs whose data a block's damage costs because it is a whole summary, but a stale one: it knows a chunk that a power cut tore, whose
/// number and place were used again. Headers count only of chunks that a summary does not know.
pub fn used_twice(found: &Recovered, now: &Medium, damaged: &Medium, at: u64) -> BTreeSet<u64> {
    let Recovered::Log(log) = found else {
        return BTreeSet::new();
    };
    let (superblock, usable) = (&log.superblock, log.superblock.usable_blocks());
    let mut segments = (0..superblock.segment_count()).map(Segment);
    let starts = |segment: &Segment| superblock.segment_start(*segment).0;
    let Some(segment) = segments.find(|one| starts(one) + u64::from(usable) == at) else {
        return BTreeSet::new();
    };
    let read = |medium: &Medium| {
        let mut bytes = [0; BLOCK];
        medium.read_into(at, &mut bytes);
        let (signature, count) = (superblock.signature(), usable as usize);
        let last = summary::last_seq(&signature, segment, count, &bytes, crc32c::crc32c);
        let tags = summary::decode(&signature, segment, count, &bytes, crc32c::crc32c);
        last.and_then(|last| Ok((last, tags?)))
    };
    let (Ok((last, stale)), Ok((_, right))) = (read(damaged), read(now)) else {
        return BTreeSet::new();
    };
    let first = starts(&segment);
    let headers = (first..at).filter_map(|at| header(now, at));
    let known = headers.filter(|header| header.seq <= last);
    let blocks = known.flat_map(|header| header.at.0..=header.at.0 + u64::from(header.data_blocks));
    let differ = |at: &u64| stale[(at - first) as usize].sum != right[(at - first) as usize].sum;
    let differing = blocks.filter(|at| *at < first + u64::from(usable) && differ(at));
    differing.flat_map(|at| hit_by(found, at)).collect()
}

/// The LBAs whose data is in a block, or needs it.
pub fn hit_by(found: &Recovered, at: u64) -> BTreeSet<u64> {
    let found = match found {
        Recovered::Log(found) => found,
        Recovered::Tables(found) => {
            let here = found.links().filter(|(_, pba, _)| pba.0 == at);
            return here.map(|(lba, ..)| lba.into()).collect();
        }
    };
    let here = |entry: Entry| match entry {
        Entry::Unmapped | Entry::Zero => false,
        Entry::Plain(pba) => pba.0 == at,
        Entry::Shared(vba) => found.state.shared().pba(vba).0 == at,
        Entry::Packed(page, slot) => {
            let base = found.state.shared().deltas().base_of(PartId { page, slot });
            found.state.shared().pba(page).0 == at
                || base.is_some_and(|base| found.state.shared().pba(base.page).0 == at)
        }
    };
    let mapped = found.state.map().iter().filter(|(_, entry)| here(*entry));
    // A pledged block is read where the journal has it.
    let pledged = found.state.pledges().iter();
    let pledged = pledged.filter(|(_, journal)| here(found.state.map().get(*journal)));
    let pledged = pledged.map(|(home, _)| home.0);
    mapped.map(|(lba, _)| lba.0).chain(pledged).collect()
}
