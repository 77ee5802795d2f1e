//! For the canaries: what a recovery would take for the truth if it got one kind of record wrong, or believed torn blocks.

use super::medium::{Broken, Medium};
use vellum_core::addr::{Lba, Vba};
use vellum_core::format::chunk::{self, ChunkHeader, Record};

/// The kind of a record that makes its header a page of parts.
const PACK_HERE: u8 = 17;

/// Changes the block at an address as this medium is broken, if it is a chunk's header.
pub fn mistake(medium: &Medium, at: u64, block: &mut [u8]) {
    let by: fn(&Medium, &ChunkHeader, &mut Vec<Record>) = match medium.broken {
        Broken::Mistakes(_) => mistake_first,
        Broken::TornIsWhole => believe,
        _ => return,
    };
    let Ok((header, mut records)) = chunk::decode(block, crc32c::crc32c) else {
        return;
    };
    // What is read of a header with parts is compared with its sum, and so any change of it would be found.
    let is_page = |record: &Record| matches!(record, Record::PackHere { .. });
    let of_page = medium.broken == Broken::Mistakes(PACK_HERE);
    let before = records.clone();
    if header.at.0 == at && (of_page || !records.iter().any(is_page)) {
        by(medium, &header, &mut records);
    }
    if records != before {
        chunk::encode(&header, &records, &[], crc32c::crc32c, block);
    }
}

fn mistake_first(medium: &Medium, _: &ChunkHeader, records: &mut Vec<Record>) {
    let is_of_kind = |record: &Record| Broken::Mistakes(record.kind()) == medium.broken;
    if let Some(index) = records.iter().position(is_of_kind) {
        let wrong = mistaken(records[index]);
        records.splice(index..=index, wrong);
    }
}

/// The record that this one is taken for, in no more bytes. `None`: it is not seen. If that would break no promise, as with a move or a
/// pledge, it has more effect than it should.
fn mistaken(record: Record) -> Option<Record> {
    let near = |lba: Lba| Lba(lba.0 ^ 1);
    let other = |vba: Vba| Vba(vba.0 ^ 1);
    Some(match record {
        Record::Zero { .. } | Record::Discard { .. } => return None,
        // It counts even if the block was written since.
        Record::Move { lba, sum, .. } => Record::Data { lba, sum },
        Record::MoveShared { vba, sum, .. } => Record::Pack {
            vba: other(vba),
            sum,
        },
        Record::Data { lba, sum } => Record::Data {
            lba: near(lba),
            sum,
        },
        Record::Share { lba, vba, pba } => Record::Share {
            lba: near(lba),
            vba,
            pba,
        },
        Record::Pledge { home, journal } => Record::Pledge {
            home,
            journal: near(journal),
        },
        Record::Pack { vba, sum } => Record::Pack {
            vba: other(vba),
            sum,
        },
        Record::PackHere { vba } => Record::PackHere { vba: other(vba) },
        Record::Part { lba, part } => Record::Part {
            lba: near(lba),
            part,
        },
        Record::Delta { lba, part, base } => Record::Delta {
            lba: near(lba),
            part,
            base,
        },
        Record::SharePart { lba, vba, slot } => Record::SharePart {
            lba: near(lba),
            vba,
            slot,
        },
    })
}

/// Makes each sum that of what is there, whatever a power cut has left.
fn believe(medium: &Medium, header: &ChunkHeader, records: &mut Vec<Record>) {
    let mut data = header.at.0 + 1..medium.blocks();
    for record in records {
        if let Record::Data { sum, .. }
        | Record::Move { sum, .. }
        | Record::MoveShared { sum, .. }
        | Record::Pack { sum, .. } = record
            && let Some(at) = data.next()
        {
            *sum = medium.read(at).sum(medium.tokens);
        }
    }
}
