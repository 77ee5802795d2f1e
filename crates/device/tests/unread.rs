//! What was flushed last may be in a block that the medium cannot read. Such a volume is not written, and readers get errors, not what
//! was there before.

#![allow(clippy::unwrap_used, reason = "a failure is a test's")]

mod common;

use common::{Client, block_of, create, open_read_only, small, superblock_of};
use std::sync::Arc;
use vellum_core::addr::{Lba, Pba, Segment};
use vellum_core::check::{Chunks, Options};
use vellum_core::format::chunk::ChunkHeader;
use vellum_core::format::grown::grown;
use vellum_core::recovery::rescue::Trust;
use vellum_device::inspect::check_medium;
use vellum_device::{MediumSource, OpenError, OpenOptions, Volume, crc32c, rescue};
use vellum_medium::{Fault, FaultMedium, Medium, MemoryMedium, Plan};

const BLOCKS: u64 = 4096;

/// A volume that was cut off after two flushes, and its newest chunk.
fn cut_off() -> (MemoryMedium, ChunkHeader) {
    let start = MemoryMedium::new(BLOCKS);
    create(&start);
    let medium: Arc<dyn Medium> = Arc::new(start);
    let volume = common::open(&medium);
    let mut client = Client::new(&volume);
    for fills in [[1, 2], [11, 12]] {
        client.write(3, &fills).unwrap();
        client.flush().unwrap();
    }
    let cut = MemoryMedium::new(BLOCKS);
    common::copy(&*medium, &cut);
    let superblock = superblock_of(&cut);
    let mut newest = None;
    for segment in 0..superblock.segment_count() {
        let mut chunks = Chunks::new(&superblock, Segment(segment), crc32c);
        while let Some(Ok(chunk)) = chunks.next(&mut MediumSource::new(&cut)) {
            let seq = |header: ChunkHeader| header.seq;
            if Some(chunk.header.seq) > newest.map(seq) {
                newest = Some(chunk.header);
            }
        }
    }
    (cut, newest.unwrap())
}

/// The medium, of which one block cannot be read.
fn without(medium: &MemoryMedium, bad: Pba) -> Arc<dyn Medium> {
    let plan = Plan::default().with_every(Fault::ReadError, bad.0..bad.0 + 1);
    Arc::new(FaultMedium::new(Box::new(medium.fork()), plan))
}

/// The place of the block of data that LBA 3 was written to last.
fn place_of_3(medium: &MemoryMedium, newest: &ChunkHeader) -> Pba {
    let mut block = block_of(0);
    let places = (1..=u64::from(newest.data_blocks)).map(|index| newest.at.plus(index));
    let mut places = places.filter(|at| {
        medium.read(*at, &mut block).unwrap();
        block == block_of(11)
    });
    places.next().unwrap()
}

/// Most likely nothing is in such a block: after a stop the log has ended. So readers get what was there before it, and are told.
#[test]
fn a_bad_block_where_the_log_may_go_on_does_not_cost_the_whole_volume() {
    let (medium, newest) = cut_off();
    let medium = without(&medium, newest.at);
    let source = open_read_only(&medium, OpenOptions::default().trust);
    let damage = source.damage().unwrap();
    assert!(damage.lost().is_empty() && damage.may_go_on());
    let mut client = Client::new(&source);
    assert_eq!(client.read(3, 2).unwrap(), [1, 2]);
    drop(client);
    source.stop().unwrap();
}

#[test]
fn what_was_flushed_last_is_an_error_while_it_cannot_be_read() {
    let (medium, newest) = cut_off();
    let data = place_of_3(&medium, &newest);
    for (bad, lost_by_name) in [(data, false), (newest.at, true)] {
        let medium = without(&medium, bad);
        let refused = Volume::open(Arc::clone(&medium), &small()).err();
        assert!(matches!(
            refused,
            Some(OpenError::Medium(_) | OpenError::Recovery { .. })
        ));
        assert!(!check_medium(&*medium, Options::default()).is_sound());

        let source = open_read_only(&medium, Trust::Certain);
        assert_eq!(
            source.damage().unwrap().lost().contains(Lba(3)),
            lost_by_name
        );
        let mut client = Client::new(&source);
        assert!(client.read(3, 1).is_err(), "{bad}");
        assert_eq!(client.read(4, 1).ok(), (!lost_by_name).then(|| vec![12]));
        drop(client);
        let rescued = rescue::rescue(&source, None, &mut |_| true).unwrap();
        assert!(rescued.lost.contains(Lba(3)));
        source.stop().unwrap();

        let source = open_read_only(&medium, Trust::Newest);
        let guessed = source.damage().unwrap().guessed().contains(Lba(3));
        let rescued = rescue::rescue(&source, None, &mut |_| true).unwrap();
        assert!(
            guessed != rescued.lost.contains(Lba(3)),
            "{bad}: it is counted"
        );
        source.stop().unwrap();
    }
}

/// Nothing at all is written to a volume that does not open.
#[test]
fn what_an_interrupted_growth_left_stays_while_the_volume_is_not_opened() {
    let (medium, newest) = cut_off();
    let long = MemoryMedium::new(2 * BLOCKS);
    for at in (0..BLOCKS).map(Pba) {
        let mut block = block_of(0);
        medium.read(at, &mut block).unwrap();
        long.write(at, &block).unwrap();
    }
    let left = grown(&superblock_of(&medium), 2 * BLOCKS, None).unwrap();
    let mut block = block_of(0);
    left.encode(crc32c, &mut block);
    let end = Pba(2 * BLOCKS - 1);
    long.write(end, &block).unwrap();
    let medium = without(&long, newest.at.plus(1));
    assert!(Volume::open(Arc::clone(&medium), &small()).is_err());
    let mut found = block_of(0);
    medium.read(end, &mut found).unwrap();
    assert!(found == block, "it was overwritten");
}
