//! Blocks near the end of a log that cannot be read. What was flushed last may be in them, so nothing from before it passes for certain.

#![allow(clippy::unwrap_used, reason = "not a server: a failure is a test's")]

#[allow(dead_code, reason = "each test uses its share")]
mod disk;

use crc32c::crc32c;
use disk::{BLOCKS, Chunk, Disk, chunk, disk_with, disk_with_names};
use vellum_core::addr::{Lba, Life, Seq};
use vellum_core::check;
use vellum_core::format::superblock::LogEnd;
use vellum_core::layout::{self, Recovered};
use vellum_core::recovery;
use vellum_core::recovery::rescue::{Loss, Trust};
use vellum_core::shrink::{self, ShrinkError};

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

/// A head goes on behind a bad block while the newest chunk is in the other head's.
fn written_by_turns() -> [Chunk; 5] {
    [
        chunk(1, 0, 0, 0, &[10, 11, 12]),
        chunk(2, 1, 0, 3, &[20]),
        chunk(3, 1, 2, 4, &[30]),
        chunk(4, 1, 4, 0, &[40]),
        chunk(5, 0, 4, 0, &[50]),
    ]
}

/// A bad spot of a drive may cover more than one header, and a drive may have more than one.
#[test]
fn nor_while_any_two_blocks_cannot_be_read() {
    for chunks in [written(), written_by_turns()] {
        for mut disk in [disk_with(&chunks), disk_with_names(&chunks)] {
            no_older_block_is_certain_behind_any_two(&mut disk);
        }
    }
}

fn no_older_block_is_certain_behind_any_two(disk: &mut Disk) {
    let whole = disk.recovered();
    let newest: Vec<_> = (0..LBAS).map(|lba| disk.tag_of(&whole, lba)).collect();
    let places: Vec<_> = (0..2)
        .flat_map(|segment| (0..12).map(move |at| (segment, at)))
        .collect();
    let pairs = (0..places.len()).flat_map(|one| (0..one).map(move |other| [one, other]));
    for bad in pairs {
        let bad = bad.map(|index| places[index]);
        disk.unreadable = bad.map(|(segment, at)| disk.at(segment, at).0).into();
        for trust in [Trust::Certain, Trust::Newest] {
            let (found, loss) = rescued(disk, trust);
            for (lba, newest) in (0..).zip(&newest) {
                let is_in_doubt = loss.lost.contains(Lba(lba)) || loss.guessed.contains(Lba(lba));
                let is_newest = disk.tag_of(&found, lba) == *newest;
                assert!(is_in_doubt || is_newest, "{bad:?}, {trust:?}, LBA {lba}");
            }
        }
    }
}

/// An older life's chunk that a power cut tore, on a head that has not written since, may have the number of a lost one.
#[test]
fn a_torn_chunk_does_not_take_the_place_of_a_lost_one() {
    let mut disk = with_chunks_of_two_lives(&[chunk(2, 1, 0, 5, &[25])]);
    disk.damage(disk.at(1, 1));
    disk.unreadable = [5, 7].map(|offset| disk.at(0, offset).0).into();
    let (found, loss) = rescued(&mut disk, Trust::Certain);
    assert_eq!(disk.tag_of(&found, 3), Some(43));
    assert!(loss.lost.contains(Lba(1)) && loss.lost.contains(Lba(2)));
}

/// A log of two lives, and what a power cut has left of the first one.
fn with_chunks_of_two_lives(left: &[Chunk]) -> Disk {
    let of_next_life = |prev_life, chunk: Chunk| Chunk {
        life: 2,
        prev_life,
        ..chunk
    };
    let mut disk = disk_with_names(&[
        chunk(1, 0, 0, 0, &[10, 11, 12, 13]),
        of_next_life(1, chunk(2, 0, 5, 1, &[21])),
        of_next_life(2, chunk(3, 0, 7, 2, &[32])),
        of_next_life(2, chunk(4, 0, 9, 3, &[43])),
        of_next_life(2, chunk(5, 0, 11, 4, &[54])),
    ]);
    left.iter().for_each(|chunk| disk.write(chunk));
    let found = disk.recovered();
    assert_eq!((found.last_seq, found.last_life), (Seq(5), Life(2)));
    let mut next = found.superblock.clone();
    next.begin_life(LogEnd::NONE);
    next.begin_life(found.log_end());
    disk.write_mirror(0, &next);
    disk.write_mirror(1, &next);
    disk
}

/// Not even if a whole one follows it: the power cut tore the order, and not the last chunk.
#[test]
fn nor_do_two_chunks_of_an_older_life() {
    let mut disk = with_chunks_of_two_lives(&[chunk(2, 1, 0, 5, &[25]), chunk(3, 1, 2, 5, &[35])]);
    disk.damage(disk.at(1, 1));
    disk.unreadable = [5, 7, 9].map(|offset| disk.at(0, offset).0).into();
    let (found, loss) = rescued(&mut disk, Trust::Certain);
    assert_eq!(disk.tag_of(&found, 4), Some(54));
    assert!((1..4).all(|lba| loss.lost.contains(Lba(lba))));
}

/// What a later chunk of its life calls durable was not torn: it has decayed since, and costs itself.
#[test]
fn a_durable_chunk_that_has_decayed_is_none_of_them() {
    let last = Chunk {
        durable: 2,
        ..chunk(3, 1, 2, 5, &[35])
    };
    let mut disk = with_chunks_of_two_lives(&[chunk(2, 1, 0, 5, &[25]), last]);
    disk.damage(disk.at(1, 1));
    disk.unreadable = [5, 7, 9].map(|offset| disk.at(0, offset).0).into();
    let (found, _) = rescued(&mut disk, Trust::Certain);
    assert_eq!(disk.tag_of(&found, 5), Some(35));
}

/// A superblock says where the log of the life before ended. What is in it is no older life's rest, even if some of it is damaged.
#[test]
fn a_damaged_chunk_before_a_lost_header_costs_its_block() {
    let of_next_life = |prev_life, chunk: Chunk| Chunk {
        life: 2,
        prev_life,
        durable: 2,
        ..chunk
    };
    let mut disk = disk_with_names(&[
        chunk(1, 0, 0, 0, &[10, 11, 12, 13]),
        chunk(2, 0, 5, 1, &[21]),
        of_next_life(1, chunk(3, 0, 7, 2, &[32])),
        of_next_life(2, chunk(4, 0, 9, 3, &[43])),
    ]);
    let mut next = disk.sb.clone();
    let (seq, life) = (Seq(2), Life(1));
    next.begin_life(LogEnd { seq, life });
    disk.write_mirror(0, &next);
    disk.write_mirror(1, &next);
    disk.damage(disk.at(0, 6));
    disk.unreadable = [disk.at(0, 7).0].into();
    let (found, loss) = rescued(&mut disk, Trust::Certain);
    assert_eq!(disk.tag_of(&found, 0), Some(10));
    let lost = (0..LBAS).filter(|lba| loss.lost.contains(Lba(*lba)));
    assert_eq!(lost.collect::<Vec<_>>(), [2]);
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

/// What cannot be read may be the newest, so nobody ends the log before it.
#[test]
fn a_volume_is_not_given_another_end_while_its_newest_chunk_cannot_be_read() {
    let mut disk = disk_with(&written()[..1]);
    let at = disk.at(0, 1);
    disk.unreadable.insert(at.0);
    let found = disk.recovered();
    let blocks = found.superblock.logical_blocks() - 1;
    let ended = shrink::end_at(&found, blocks);
    assert!(matches!(ended, Err(ShrinkError::NotStopped)), "{ended:?}");
}
