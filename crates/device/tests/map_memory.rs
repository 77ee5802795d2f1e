//! The map need not stay in memory: it is read again when it is needed, even when it is damaged.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

mod common;

use common::{
    Client, assert_sound, create, open_packing, open_under, small, stop_sound, superblock_of,
    wait_for,
};
use std::sync::Arc;
use vellum_core::addr::{BLOCK_BYTES, Leaf};
use vellum_device::block::Op;
use vellum_device::pack::Compression;
use vellum_device::policy::Policy;
use vellum_device::{OpenOptions, StopError, Volume};
use vellum_medium::{Medium, MemoryMedium};

const BLOCKS: u64 = 8192;
/// The LBAs that a leaf maps.
const LEAF: u64 = 1024;
const LEAVES: u64 = 5;

fn open(medium: &Arc<dyn Medium>, map_leaves: Option<usize>) -> Arc<Volume> {
    let options = OpenOptions {
        map_leaves,
        ..small()
    };
    let volume = Arc::new(Volume::open(Arc::clone(medium), &options).unwrap());
    // What is damaged from now on is damaged while the volume runs.
    wait_for(&volume, "the census", |volume| {
        volume.stats().core["uncounted_leaves"] == 0
    });
    volume
}

/// A stopped volume with a block in each leaf.
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

/// The number of blocks that the volume has read for itself.
fn own_reads(volume: &Volume) -> u64 {
    volume.stats().medium.read.read_metadata_bytes / BLOCK_BYTES as u64
}

fn leaves_read(volume: &Volume) -> u64 {
    volume.stats().core["leaves_read"]
}

#[test]
fn leaves_out_of_memory_are_read_when_they_are_needed() {
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
        stop_sound(&volume, &*medium);
    }
    let volume = open(&medium, None);
    let mut client = Client::new(&volume);
    for leaf in 0..LEAVES {
        assert_eq!(client.read(leaf * LEAF + 500, 1).unwrap(), [20 + leaf]);
    }
}

/// Memory still holds the old contents of leaves: a map checkpoint reads only their stripe's parity.
#[test]
fn a_map_checkpoint_does_not_read_what_it_writes() {
    let medium = filled();
    let volume = open(&medium, Some(4));
    let mut client = Client::new(&volume);
    // The scout looks for file systems first: it reads what the first leaf maps.
    wait_for(&volume, "the scout has looked", |volume| {
        !volume.stats().commits.looking
    });
    // The census keeps leaves while there is room, which is for three: others take it.
    for leaf in [0, 3, 4, 0, 3, 4] {
        client.read(leaf * LEAF, 1).unwrap();
    }
    let before = own_reads(&volume);
    for leaf in 1..3 {
        client.write(leaf * LEAF + 500, &[20 + leaf]).unwrap();
    }
    client.flush().unwrap();
    assert_eq!(own_reads(&volume) - before, 2, "each write reads its leaf");
    volume.stop().unwrap();
    assert_eq!(own_reads(&volume) - before, 3);
    assert_sound(&*medium);
}

#[test]
fn a_leaf_damaged_while_out_of_memory_is_rebuilt_from_its_stripe() {
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

/// A client's request for a block whose leaf is not available.
enum Asks {
    Read,
    Write,
    WriteDurably,
    ZeroDurably,
}

/// Nothing may be decided without it: no read is answered wrongly, and nothing reaches the medium.
#[test]
fn a_leaf_that_cannot_be_rebuilt_poisons_the_volume() {
    let medium = filled();
    let superblock = superblock_of(&*medium);
    let parity = superblock.parity(superblock.stripe_of(Leaf(3))).unwrap();
    let before = |slot| superblock.leaf_slot(Leaf(3), slot);
    let mut kept = [[0; BLOCK_BYTES]; 2];
    for (slot, block) in (0..).zip(&mut kept) {
        medium.read(before(slot), block).unwrap();
    }
    for asks in [
        Asks::Read,
        Asks::Write,
        Asks::WriteDurably,
        Asks::ZeroDurably,
    ] {
        let volume = open(&medium, Some(0));
        zero_leaf(&*medium, Leaf(3));
        zero_leaf(&*medium, parity);
        let mut client = Client::new(&volume);
        assert_eq!(client.read(0, 1).unwrap(), [10]);
        match asks {
            Asks::Read => {
                let read = client.read(3 * LEAF, 1);
                assert!(read.is_err(), "{read:?}");
            }
            // It may be answered, because it is not durable.
            Asks::Write => {
                let _ = client.write(3 * LEAF, &[99]);
            }
            // Its chunk is sealed at once, by the same input.
            Asks::WriteDurably => {
                let request = client.write_request(3 * LEAF, &[99], true);
                assert!(client.call(request).is_err());
            }
            Asks::ZeroDurably => {
                let request = client.request(Op::WriteZeroes { fua: true }, 3 * LEAF, 1);
                assert!(client.call(request).is_err());
            }
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

/// A volume whose map stays on the medium is open before all of its map was read. What is lost is found when it is counted.
#[test]
fn a_leaf_that_was_lost_before_the_opening_poisons_the_volume_when_it_is_counted() {
    let medium = filled();
    let superblock = superblock_of(&*medium);
    let lost = Leaf(3);
    zero_leaf(&*medium, lost);
    zero_leaf(
        &*medium,
        superblock.parity(superblock.stripe_of(lost)).unwrap(),
    );
    let options = OpenOptions {
        map_leaves: Some(0),
        ..small()
    };
    let volume = Arc::new(Volume::open(Arc::clone(&medium), &options).unwrap());
    wait_for(&volume, "the census", |volume| volume.stats().poisoned);
    let mut client = Client::new(&volume);
    assert!(client.write(0, &[1]).is_err() && client.flush().is_err());
    let told = volume.stats().poisoned_by;
    let Err(StopError::MapDamaged(at)) = volume.stop() else {
        panic!("the volume stopped in order");
    };
    let place = format!("physical block {at} ");
    assert!(
        told.as_ref().is_some_and(|told| told.contains(&place)),
        "{told:?}"
    );
    assert!(
        [0, 1]
            .map(|slot| superblock.leaf_slot(lost, slot))
            .contains(&at)
    );
    drop((client, volume));
    // All of the rest can be read.
    let options = OpenOptions {
        read_only: true,
        ..options
    };
    let volume = Arc::new(Volume::open(Arc::clone(&medium), &options).unwrap());
    let mut client = Client::new(&volume);
    for leaf in 0..LEAVES {
        let read = client.read(leaf * LEAF, 1);
        match leaf == u64::from(lost.0) {
            true => assert!(read.is_err(), "{read:?}"),
            false => assert_eq!(read.unwrap(), [10 + leaf]),
        }
    }
}

/// A lost leaf of the table of pages. Each of these requests needs the place of a page, which nothing holds any more. A write to
/// one of a page's many owners does not need it, but a map checkpoint may at any time, for the stripe.
#[test]
fn a_lost_leaf_of_pages_poisons_the_volume() {
    type Ask = fn(&mut Client) -> bool;
    let asks: [(&str, Ask); 5] = [
        ("read", |client| client.read(7, 1).is_err()),
        // It may have been answered before that.
        ("write", |client| {
            let _ = client.write(0, &[99; 60]);
            true
        }),
        ("durable write", |client| {
            let request = client.write_request(0, &[99; 60], true);
            client.call(request).is_err()
        }),
        ("discard", |client| {
            let _ = client.discard(0, 60);
            true
        }),
        ("zeroes", |client| {
            let request = client.request(Op::WriteZeroes { fua: true }, 0, LEAVES * LEAF);
            client.call(request).is_err()
        }),
    ];
    for (name, ask) in asks {
        let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(BLOCKS));
        create(&*medium);
        let volume = open_packing(&medium, Compression::Lz4);
        let mut client = Client::new(&volume);
        let fills: Vec<u64> = (0..60).map(|index| 7 * index + 2).collect();
        client.write(0, &fills).unwrap();
        client.flush().unwrap();
        assert!(volume.stats().core["packed_pages"] > 0, "nothing is packed");
        volume.stop().unwrap();
        drop((client, volume));

        let volume = open(&medium, Some(0));
        let superblock = superblock_of(&*medium);
        let pages = Leaf(superblock.map_leaves());
        zero_leaf(&*medium, pages);
        let parity = superblock.parity(superblock.stripe_of(pages)).unwrap();
        zero_leaf(&*medium, parity);
        let mut client = Client::new(&volume);
        assert!(ask(&mut client), "{name}");
        assert!(client.flush().is_err(), "{name}");
    }
}

/// The same of a page with two owners: the one that stays must not read as zeros when the other one goes.
#[test]
fn a_lost_leaf_of_shared_pages_makes_no_zeros_of_their_last_owners() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(BLOCKS));
    create(&*medium);
    let policy = Policy {
        dedup: true,
        ..Policy::default()
    };
    let volume = open_under(&medium, policy);
    let mut client = Client::new(&volume);
    let fills: Vec<u64> = (1..=20).collect();
    for lba in [0, 100] {
        client.write(lba, &fills).unwrap();
        client.flush().unwrap();
    }
    assert_eq!(volume.stats().core["shared_pages"], 20);
    volume.stop().unwrap();
    drop((client, volume));

    let volume = open(&medium, Some(0));
    let superblock = superblock_of(&*medium);
    let pages = Leaf(superblock.map_leaves());
    zero_leaf(&*medium, pages);
    let parity = superblock.parity(superblock.stripe_of(pages)).unwrap();
    zero_leaf(&*medium, parity);
    let mut client = Client::new(&volume);
    let write = client.write_request(0, &[99; 20], false);
    let read = client.request(Op::Read, 100, 20);
    let last = client.write_request(100, &[98; 20], false);
    let tags = client.submit(vec![write, read, last]);
    // The writes may have been answered before that.
    let [_, read, _] = [0, 1, 2].map(|index| client.sink.wait(tags[index]));
    assert!(read.is_err());
    assert!(client.flush().is_err());
    assert!(volume.stats().poisoned_by.is_some(), "by the leaf");
}
