//! What says where blocks are need not stay in memory: it is read again when it is needed, also when it is damaged.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

mod common;

use common::{Client, assert_sound, create, small, superblock_of};
use std::sync::Arc;
use vellum_core::addr::{BLOCK_BYTES, Leaf};
use vellum_device::{OpenOptions, Volume};
use vellum_medium::{Medium, MemoryMedium};

const BLOCKS: u64 = 8192;
/// LBAs that a leaf maps.
const LEAF: u64 = 1024;
const LEAVES: u64 = 5;

fn open(medium: &Arc<dyn Medium>, map_leaves: Option<usize>) -> Arc<Volume> {
    let options = OpenOptions {
        map_leaves,
        ..small()
    };
    Arc::new(Volume::open(Arc::clone(medium), &options).unwrap())
}

/// A volume that was stopped, with a block in each leaf.
fn filled() -> Arc<dyn Medium> {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(BLOCKS));
    create(&*medium);
    let volume = open(&medium, None);
    let mut client = Client::new(&volume);
    for leaf in 0..LEAVES {
        client.write(leaf * LEAF, &[10 + leaf]).unwrap();
    }
    volume.stop().unwrap();
    medium
}

fn zero_leaf(medium: &dyn Medium, leaf: Leaf) {
    let superblock = superblock_of(medium);
    for slot in 0..2 {
        let at = superblock.leaf_slot(leaf, slot);
        medium.write(at, &[0; BLOCK_BYTES]).unwrap();
    }
}

fn leaves_read(volume: &Volume) -> u64 {
    volume.stats().core["leaves_read"]
}

#[test]
fn what_is_away_is_read_when_it_is_needed() {
    let medium = filled();
    for map_leaves in [0, 1, 100] {
        let volume = open(&medium, Some(map_leaves));
        let mut client = Client::new(&volume);
        let before = leaves_read(&volume);
        for leaf in (0..LEAVES).chain(0..LEAVES) {
            assert_eq!(client.read(leaf * LEAF, 2).unwrap(), [10 + leaf, 0]);
            client.write(leaf * LEAF + 500, &[20 + leaf]).unwrap();
        }
        client.flush().unwrap();
        let read = leaves_read(&volume) - before;
        assert_eq!(
            read > 0,
            map_leaves < LEAVES as usize,
            "{map_leaves}: {read}"
        );
        volume.stop().unwrap();
        assert_sound(&*medium);
    }
    let volume = open(&medium, None);
    let mut client = Client::new(&volume);
    for leaf in 0..LEAVES {
        assert_eq!(client.read(leaf * LEAF + 500, 1).unwrap(), [20 + leaf]);
    }
}

#[test]
fn a_leaf_that_is_damaged_while_it_is_away_is_told_by_its_stripe() {
    let medium = filled();
    let volume = open(&medium, Some(0));
    zero_leaf(&*medium, Leaf(2));
    let mut client = Client::new(&volume);
    for leaf in 0..LEAVES {
        assert_eq!(client.read(leaf * LEAF, 1).unwrap(), [10 + leaf]);
    }
    client.write(9, &[9]).unwrap();
    client.flush().unwrap();
}

/// Nothing may be decided without it: neither is a read answered with what is not so, nor does anything get to the medium.
#[test]
fn a_leaf_that_nothing_tells_poisons_the_volume() {
    let medium = filled();
    let superblock = superblock_of(&*medium);
    let parity = superblock.parity(superblock.stripe_of(Leaf(3))).unwrap();
    let before = |slot| superblock.leaf_slot(Leaf(3), slot);
    let mut kept = [[0; BLOCK_BYTES]; 2];
    for (slot, block) in (0..).zip(&mut kept) {
        medium.read(before(slot), block).unwrap();
    }
    for asks_to_write in [false, true] {
        let volume = open(&medium, Some(0));
        zero_leaf(&*medium, Leaf(3));
        zero_leaf(&*medium, parity);
        let mut client = Client::new(&volume);
        assert_eq!(client.read(0, 1).unwrap(), [10]);
        if asks_to_write {
            // It may be answered, for it is not durable.
            let _ = client.write(3 * LEAF, &[99]);
        } else {
            let read = client.read(3 * LEAF, 1);
            assert!(read.is_err(), "{read:?}");
        }
        assert!(client.flush().is_err() && client.write(0, &[1]).is_err());
        drop((client, volume));
        for (slot, block) in (0..).zip(&kept) {
            medium.write(before(slot), block).unwrap();
        }
        let volume = open(&medium, None);
        let mut client = Client::new(&volume);
        for leaf in 0..LEAVES {
            assert_eq!(client.read(leaf * LEAF, 1).unwrap(), [10 + leaf]);
        }
        drop((client, volume));
    }
}
