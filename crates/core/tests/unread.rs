//! Blocks near the end of a log that cannot be read. What was flushed last may be in them, so nothing from before it passes for certain.

#![allow(clippy::unwrap_used, reason = "not a server: a failure is a test's")]

#[allow(dead_code, reason = "each test uses its share")]
mod disk;

use crc32c::crc32c;
use disk::{BLOCKS, Chunk, Disk, chunk, disk_with};
use vellum_core::addr::{Lba, Seq};
use vellum_core::check;
use vellum_core::layout::{self, Recovered};
use vellum_core::recovery;
use vellum_core::recovery::rescue::{Loss, Trust};

/// LBAs that are looked at.
const LBAS: u64 = 6;

/// Chunks of both heads, none of which is known to be durable. They write some blocks again and again.
fn written() -> [Chunk; 5] {
    [
        chunk(1, 0, 0, 0, &[10, 11, 12]),
        chunk(2, 1, 0, 1, &[21]),
        chunk(3, 0, 4, 0, &[30]),
        chunk(4, 1, 2, 2, &[42, 43]),
        chunk(5, 0, 6, 0, &[50, 51]),
    ]
}

fn rescued(disk: &mut Disk, trust: Trust) -> (Box<recovery::Recovered>, Loss) {
    match layout::rescue(disk, BLOCKS, crc32c, trust).unwrap() {
        (Recovered::Log(found), loss) => (found, loss),
        (Recovered::Tables(_), _) => panic!("a log"),
    }
}

#[test]
fn no_older_block_is_certain_while_any_block_cannot_be_read() {
    let mut disk = disk_with(&written());
    let whole = disk.recovered();
    let newest: Vec<_> = (0..LBAS).map(|lba| disk.tag_of(&whole, lba)).collect();
    assert_eq!(newest[..4], [50, 51, 42, 43].map(Some));
    let mut refused = 0;
    for bad in (0..2).flat_map(|segment| (0..12).map(move |offset| (segment, offset))) {
        let mut disk = disk_with(&written());
        disk.unreadable.insert(disk.at(bad.0, bad.1).0);
        let unread = disk.recover().map(|found| found.unread);
        refused += usize::from(unread != Ok(None));
        for trust in [Trust::Certain, Trust::Newest] {
            let (found, loss) = rescued(&mut disk, trust);
            for (lba, newest) in (0..).zip(&newest) {
                let is_in_doubt = loss.lost.contains(Lba(lba)) || loss.guessed.contains(Lba(lba));
                let is_newest = disk.tag_of(&found, lba) == *newest;
                assert!(is_in_doubt || is_newest, "{bad:?}, {trust:?}, LBA {lba}");
            }
            let is_told = !loss.damage.is_empty();
            assert_eq!(is_told, unread != Ok(None), "{bad:?}, {trust:?}");
        }
    }
    assert_eq!(
        refused, 16,
        "each block of a chunk, and both places where the next one would be"
    );
}

/// A bad spot of a drive may cover more than one header.
#[test]
fn nor_while_any_two_blocks_cannot_be_read() {
    let mut disk = disk_with(&written());
    let whole = disk.recovered();
    let newest: Vec<_> = (0..LBAS).map(|lba| disk.tag_of(&whole, lba)).collect();
    let places: Vec<_> = (0..2)
        .flat_map(|segment| (0..12).map(move |at| (segment, at)))
        .collect();
    let pairs = (0..places.len()).flat_map(|one| (0..one).map(move |other| [one, other]));
    for bad in pairs {
        let bad = bad.map(|index| places[index]);
        let mut disk = disk_with(&written());
        for (segment, offset) in bad {
            disk.unreadable.insert(disk.at(segment, offset).0);
        }
        for trust in [Trust::Certain, Trust::Newest] {
            let (found, loss) = rescued(&mut disk, trust);
            for (lba, newest) in (0..).zip(&newest) {
                let is_in_doubt = loss.lost.contains(Lba(lba)) || loss.guessed.contains(Lba(lba));
                let is_newest = disk.tag_of(&found, lba) == *newest;
                assert!(is_in_doubt || is_newest, "{bad:?}, {trust:?}, LBA {lba}");
            }
        }
    }
}

/// Its header says what is in it, so it costs no more than the block.
#[test]
fn a_block_of_data_that_cannot_be_read_costs_itself() {
    let mut disk = disk_with(&written());
    let at = disk.at(0, 8);
    disk.unreadable.insert(at.0);
    assert_eq!(disk.recovered().last_seq, Seq(4));
    let (found, loss) = rescued(&mut disk, Trust::Certain);
    assert!(loss.lost.is_empty() && loss.guessed.is_empty());
    assert_eq!(found.last_seq, Seq(5));
    let report = check::check(&mut disk, BLOCKS, check::Options::default(), crc32c);
    assert!(!report.is_sound(), "{:?}", report.findings);
}

/// What later chunks name is certain all the same.
#[test]
fn a_header_that_cannot_be_read_costs_what_no_later_chunk_names() {
    let mut disk = disk_with(&written());
    disk.unreadable.insert(disk.at(1, 0).0);
    let (found, loss) = rescued(&mut disk, Trust::Certain);
    assert_eq!(found.last_seq, Seq(5));
    let lost = (0..LBAS).filter(|lba| loss.lost.contains(Lba(*lba)));
    assert_eq!(lost.collect::<Vec<_>>(), [4, 5]);
}

/// The next header says whether a chunk was durable whose data is bad: then it is damaged, not torn.
#[test]
fn a_chunk_is_not_taken_for_torn_while_what_follows_it_cannot_be_read() {
    for (bad, is_next) in [(9, true), (20, false)] {
        let mut disk = disk_with(&written());
        disk.damage(disk.at(0, 8));
        disk.unreadable.insert(disk.at(0, bad).0);
        let found = disk.recovered();
        assert_eq!((found.last_seq, found.unread.is_some()), (Seq(4), is_next));
        let (found, _) = rescued(&mut disk, Trust::Certain);
        assert_eq!(found.last_seq == Seq(5), is_next);
    }
}
