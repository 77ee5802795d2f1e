//! The end of the previous lives' log: what a superblock says about it, and which chunks are part of the log.

#[allow(dead_code, reason = "each test uses its share")]
mod disk;

use disk::{Chunk, Disk, chunk, disk_with};
use vellum_core::addr::{BLOCK_BYTES, Lba, Life, Seq};
use vellum_core::entry::Entry;
use vellum_core::format::superblock::LogEnd;
use vellum_core::recovery::RecoveryError;

/// Life 1 wrote a chunk that a crash tore, and life 2 wrote a chunk with the same number over it. If the drive confirmed the second write
/// and lost it, the older chunk is still there.
#[test]
fn an_older_chunk_in_the_place_of_the_last_is_not_taken_for_it() {
    let old = chunk(2, 0, 2, 1, &[2]);
    let last = Chunk {
        life: 2,
        ..chunk(2, 0, 2, 7, &[7])
    };
    let mut disk = disk_with(&[chunk(1, 0, 0, 0, &[1]), last]);
    let found = disk.recovered();
    assert_eq!((found.last_seq, found.last_life), (Seq(2), Life(2)));
    let mut next = found.superblock.clone();
    next.begin_life(LogEnd::NONE);
    next.begin_life(LogEnd::NONE);
    next.begin_life(found.log_end());
    disk.write_mirror(0, &next);
    disk.write_mirror(1, &next);
    assert_eq!(disk.recovered().last_seq, Seq(2));
    disk.write(&old);
    let (seq, durable) = (Seq(2), Seq(2));
    assert_eq!(disk.error(), RecoveryError::Missing { seq, durable });
}

#[test]
fn a_chunk_torn_when_a_life_began_stays_out_of_the_log() {
    let mut disk = disk_with(&[chunk(1, 0, 0, 0, &[1]), chunk(2, 0, 2, 1, &[2])]);
    disk.damage(disk.at(0, 3));
    let found = disk.recovered();
    assert_eq!(found.last_seq, Seq(1));
    let mut next = found.superblock.clone();
    // The chunks are of life 1.
    next.begin_life(LogEnd::NONE);
    next.begin_life(found.log_end());
    disk.write_mirror(0, &next);
    disk.write_mirror(1, &next);
    // The new life wrote the same data there again, and its header was lost.
    disk.damage(disk.at(0, 3));
    let found = disk.recovered();
    assert_eq!(
        (found.last_seq, found.state.map().get(Lba(1))),
        (Seq(1), Entry::Unmapped)
    );
    // Its own chunk is part of the log.
    let own = Chunk {
        life: next.life().0,
        ..chunk(2, 0, 2, 7, &[7])
    };
    disk.write(&own);
    assert_eq!(disk.recovered().last_seq, Seq(2));
}

/// Both superblocks were restored to their state some lives ago. The log is whole, and chunks written next are part of it.
#[test]
fn a_life_is_newer_than_the_log_that_it_continues() {
    let newest = Chunk {
        life: 5,
        ..chunk(2, 0, 2, 1, &[2])
    };
    let mut disk = disk_with(&[chunk(1, 0, 0, 0, &[1]), newest]);
    let found = disk.recovered();
    assert_eq!((found.last_seq, found.last_life), (Seq(2), Life(5)));
    assert!(found.superblock.life() < Life(5));
    let mut next = found.superblock.clone();
    next.begin_life(found.log_end());
    disk.write_mirror(0, &next);
    disk.write_mirror(1, &next);
    let own = Chunk {
        life: next.life().0,
        prev_life: 5,
        ..chunk(3, 0, 4, 7, &[7])
    };
    disk.write(&own);
    let found = disk.recovered();
    assert_eq!(found.last_seq, Seq(3));
    assert_ne!(found.state.map().get(Lba(7)), Entry::Unmapped);
}

/// Where no summary was ever written, a used drive has what was there before.
#[test]
fn what_a_drive_held_before_is_no_reason_to_look_everywhere() {
    let opened = |before: u8| {
        let mut disk = Disk::new();
        for segment in 0..2 {
            let at = disk.at(segment, disk.sb.usable_blocks());
            disk.put(at, &[before; BLOCK_BYTES]);
        }
        disk.recovered();
        disk.reads
    };
    assert_eq!(opened(0x5a), opened(0));
}
