//! A volume that has lost a block that many others depend on: what is whole is served, the rest is an error, and a rescue
//! recovers what can be found.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

mod common;
#[path = "common/journal.rs"]
mod journal;

use common::{Client, create, create_as, open_read_only, small, superblock_of};
use journal::{JOURNAL, mounted};
use std::sync::Arc;
use vellum_core::addr::{BLOCK_BYTES, Generation, Leaf, Pba, Segment};
use vellum_core::format::areas::Layout;
use vellum_core::recovery::rescue::Trust;
use vellum_device::{OpenError, OpenOptions, Volume, inspect::check_medium, rescue};
use vellum_medium::{Medium, MemoryMedium};

const BLOCKS: u64 = 8192;
/// The LBAs that a leaf maps.
const LEAF: u64 = 1024;

/// A stopped volume with a block in each of three leaves, and one that was discarded.
fn filled() -> Arc<dyn Medium> {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(BLOCKS));
    create(&*medium);
    let volume = common::open(&medium);
    let mut client = Client::new(&volume);
    for leaf in 0..3 {
        client.write(leaf * LEAF, &[10 + leaf, 20 + leaf]).unwrap();
    }
    client.write(7, &[7]).unwrap();
    client.discard(7, 1).unwrap();
    volume.stop().unwrap();
    medium
}

fn zero(medium: &dyn Medium, at: vellum_core::addr::Pba) {
    medium.write(at, &[0; BLOCK_BYTES]).unwrap();
}

/// Zeros both slots: it does not matter here which of them counts.
fn zero_leaf(medium: &dyn Medium, leaf: Leaf) {
    let superblock = superblock_of(medium);
    for slot in 0..2 {
        zero(medium, superblock.leaf_slot(leaf, slot));
    }
}

/// The leaf and its parity: two blocks are lost.
fn without_leaf(leaf: u32) -> Arc<dyn Medium> {
    let medium = filled();
    let superblock = superblock_of(&*medium);
    let parity = superblock.parity(superblock.stripe_of(Leaf(leaf)));
    zero_leaf(&*medium, Leaf(leaf));
    zero_leaf(&*medium, parity.unwrap());
    medium
}

/// Places where a single block may be lost: leaves, a parity, the first blocks of both copies of both roots, the blocks after the
/// second ones, and a chunk's header.
fn places() -> Vec<Pba> {
    let superblock = superblock_of(&*filled());
    let parity = superblock.parity(0).unwrap();
    let leaves = [Leaf(0), Leaf(1), Leaf(2), parity];
    let leaves = leaves.map(|leaf| [0, 1].map(|slot| superblock.leaf_slot(leaf, slot)));
    let roots = (0..2).flat_map(|number| superblock.root_copies(Generation(number)));
    let open = |number| [0, 1].map(|head| superblock.open_summary(Generation(number), head));
    let open = (0..2).flat_map(open).flatten();
    let header = superblock.segment_start(Segment(0));
    let leaves = leaves.into_iter().flatten();
    leaves.chain(roots).chain(open).chain([header]).collect()
}

#[test]
fn one_lost_block_of_metadata_costs_nothing_and_is_rewritten() {
    let mut told = 0;
    for at in places() {
        let medium = filled();
        zero(&*medium, at);
        for life in 0..2 {
            let volume = common::open(&medium);
            let from_copies = volume.stats().recovery.from_copies;
            assert!(from_copies <= 1 - life, "{at}: whole again");
            assert_eq!(volume.events().len() as u64, from_copies, "it is told");
            told += from_copies;
            let mut client = Client::new(&volume);
            for leaf in 0..3 {
                let found = client.read(leaf * LEAF, 2).unwrap();
                assert_eq!(found, [10 + leaf, 20 + leaf], "{at}");
            }
            volume.stop().unwrap();
        }
    }
    assert_eq!(
        told, 6,
        "three leaves, two copies of the newest root, and its open summary of the hot head"
    );
}

#[test]
fn a_scrub_writes_a_copy_anew() {
    for at in places() {
        let medium = filled();
        let volume = common::open(&medium);
        zero(&*medium, at);
        volume.scrub(0);
        while volume.scrub_report().ended == 0 {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        let report = volume.scrub_report();
        assert_eq!((report.damaged, report.second_copies), (0, 0), "{report:?}");
        volume.stop().unwrap();
        let found = check_medium(&*medium, vellum_core::check::Options::default());
        assert_eq!(found.findings, [], "{at}");
    }
}

#[test]
fn a_lost_leaf_costs_its_own_blocks() {
    let medium = without_leaf(1);
    let refused = Volume::open(Arc::clone(&medium), &small());
    assert!(matches!(refused, Err(OpenError::Recovery { .. })));
    let volume = open_read_only(&medium, Trust::Certain);
    let lost: Vec<_> = volume.damage().unwrap().lost().runs().collect();
    assert_eq!(lost, [(vellum_core::addr::Lba(LEAF), LEAF)]);
    assert_eq!(volume.events().len(), 1, "it is told");
    let mut client = Client::new(&volume);
    assert_eq!(client.read(0, 2).unwrap(), [10, 20]);
    assert_eq!(client.read(2 * LEAF, 2).unwrap(), [12, 22]);
    for (lba, blocks) in [(LEAF, 1), (LEAF - 1, 2), (2 * LEAF - 1, 2)] {
        let error = client.read(lba, blocks).unwrap_err().to_string();
        assert!(error.contains("is lost"), "{error}");
    }
    let extents = vellum_device::block::BlockDevice::extents(
        &*volume,
        vellum_core::addr::Lba(2),
        3 * LEAF,
        9,
    );
    assert!(!extents[0].mapped && extents[0].blocks == LEAF - 2);
    volume.stop().unwrap();
}

#[test]
fn a_rescue_finds_what_the_headers_tell() {
    for root in [false, true] {
        let medium = without_leaf(1);
        if root {
            let superblock = superblock_of(&*medium);
            for at in (0..2).flat_map(|number| superblock.root_copies(Generation(number))) {
                zero(&*medium, at);
            }
        }
        let source = open_read_only(&medium, Trust::Newest);
        let target: Arc<dyn Medium> = Arc::new(MemoryMedium::new(BLOCKS));
        create(&*target);
        let volume = common::open(&target);
        let copied = rescue::rescue(&source, Some(&*volume), &mut |_| true).unwrap();
        assert_eq!((copied.blocks, copied.lost.len()), (6, 0));
        let mut client = Client::new(&volume);
        for leaf in 0..3 {
            let found = client.read(leaf * LEAF, 2).unwrap();
            assert_eq!(found, [10 + leaf, 20 + leaf]);
        }
        assert_eq!(client.read(7, 1).unwrap(), [0]);
        let guessed = source.damage().unwrap().guessed();
        assert!(guessed.contains(vellum_core::addr::Lba(LEAF)));
        assert_eq!(guessed.contains(vellum_core::addr::Lba(0)), root);
        volume.stop().unwrap();
        source.stop().unwrap();
    }
}

#[test]
fn a_rescue_leaves_out_blocks_that_are_damaged_themselves() {
    let medium = filled();
    let superblock = superblock_of(&*medium);
    let first = superblock.segment_start(vellum_core::addr::Segment(0));
    // The first block after the first header.
    zero(&*medium, first.plus(1));
    let source = open_read_only(&medium, Trust::Certain);
    assert!(source.damage().is_none());
    let target: Arc<dyn Medium> = Arc::new(MemoryMedium::new(BLOCKS));
    create(&*target);
    let volume = common::open(&target);
    let copied = rescue::rescue(&source, Some(&*volume), &mut |_| true).unwrap();
    assert_eq!((copied.blocks, copied.lost.len()), (5, 1));
    volume.stop().unwrap();
    source.stop().unwrap();
}

/// The copy has a journal like the source's as soon as its first blocks are there. It must not wait for what is lost.
#[test]
fn a_rescue_copies_a_journal_that_has_lost_a_block() {
    let (medium, volume, mut host) = mounted(common::open);
    // Behind the first request of a copy.
    host.sequence = 70;
    host.begin_log();
    // A whole transaction, after which the next one is known to follow.
    host.commit(1);
    let lost = JOURNAL + u64::from(host.next_block()) + 1;
    let copies = [98, 99].map(common::block_of);
    host.commit_blocks(copies.each_ref());
    volume.stop().unwrap();
    let mut block = [0; BLOCK_BYTES];
    let is_it = |at: &Pba| medium.read(*at, &mut block).is_ok() && block == copies[0];
    let at = (0..medium.blocks()).map(Pba).find(is_it).unwrap();
    zero(&*medium, at);

    let source = open_read_only(&medium, Trust::Certain);
    let target: Arc<dyn Medium> = Arc::new(MemoryMedium::new(medium.blocks()));
    create(&*target);
    let options = OpenOptions {
        copying: true,
        ..small()
    };
    let to = Volume::open(Arc::clone(&target), &options).unwrap();
    let copied = rescue::rescue(&source, Some(&to), &mut |at| {
        if at > JOURNAL {
            common::wait_for(&to, "the journal", |to| {
                let found = to.stats().write_once.file_systems;
                found.iter().any(|found| !found.journal.is_empty())
            });
        }
        true
    });
    let runs: Vec<_> = copied.unwrap().lost.runs().collect();
    assert_eq!(runs, [(vellum_core::addr::Lba(lost), 1)]);
    to.stop().unwrap();
    source.stop().unwrap();
}

/// The LBAs that a block of the map table leads to.
const TABLE: u64 = 504;

/// A volume of tables with blocks under two blocks of its map, each written twice so that both slots of `shadow` are in use. Also
/// returns the places of both copies of the map's first block.
fn tables(layout: Layout) -> (Arc<dyn Medium>, Vec<[Pba; 2]>) {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(BLOCKS));
    create_as(&*medium, layout);
    let volume = common::open(&medium);
    let mut client = Client::new(&volume);
    for round in [0, 100] {
        client.write(3, &[round + 1, round + 2]).unwrap();
        client.write(TABLE, &[round + 3]).unwrap();
        client.flush().unwrap();
    }
    volume.stop().unwrap();
    let superblock = superblock_of(&*medium);
    let slots = if layout == Layout::Shadow { 2 } else { 1 };
    let slots = (0..slots).map(|slot| {
        let twin = superblock
            .map_twin(0, slot)
            .expect("new volumes have twins");
        [superblock.table_at(0, slot), twin]
    });
    (medium, slots.collect())
}

#[test]
fn a_lost_block_of_the_map_table_costs_its_own_links() {
    for layout in [Layout::Ordered, Layout::Shadow] {
        let (medium, slots) = tables(layout);
        slots.iter().for_each(|slot| zero(&*medium, slot[0]));
        let volume = common::open(&medium);
        assert!(volume.stats().recovery.from_copies > 0, "its twin tells");
        volume.stop().unwrap();
        drop(volume);
        slots
            .into_iter()
            .flatten()
            .for_each(|at| zero(&*medium, at));
        let refused = Volume::open(Arc::clone(&medium), &small());
        assert!(matches!(refused, Err(OpenError::Recovery { .. })));
        for trust in [Trust::Certain, Trust::Newest] {
            let source = open_read_only(&medium, trust);
            let lost: Vec<_> = source.damage().unwrap().lost().runs().collect();
            assert_eq!(lost, [(vellum_core::addr::Lba(0), TABLE)], "{layout:?}");
            let mut client = Client::new(&source);
            assert_eq!(client.read(TABLE, 1).unwrap(), [103], "{layout:?}");
            let error = client.read(3, 1).unwrap_err().to_string();
            assert!(error.contains("LBA 3 is lost"), "{error}");
            drop(client);
            let target: Arc<dyn Medium> = Arc::new(MemoryMedium::new(BLOCKS));
            create_as(&*target, layout);
            let volume = common::open(&target);
            let copied = rescue::rescue(&source, Some(&*volume), &mut |_| true).unwrap();
            assert_eq!((copied.blocks, copied.lost.len()), (1, TABLE));
            let mut client = Client::new(&volume);
            assert_eq!(client.read(TABLE, 1).unwrap(), [103]);
            assert_eq!(client.read(3, 1).unwrap(), [0], "not mapped");
            drop(client);
            volume.stop().unwrap();
            source.stop().unwrap();
        }
    }
}

/// The other slot of shadowed tables has the links of an earlier commit: they are reported as doubtful, and checked against the
/// blocks' sums.
#[test]
fn links_of_the_commit_before_are_found_in_the_other_slot() {
    let mut brought_back = 0;
    for slot in 0..2 {
        let (medium, slots) = tables(Layout::Shadow);
        slots[slot].into_iter().for_each(|at| zero(&*medium, at));
        let source = open_read_only(&medium, Trust::Newest);
        let Some(damage) = source.damage() else {
            source.stop().unwrap();
            continue;
        };
        assert!(damage.lost().is_empty() && damage.guessed().len() == TABLE);
        let mut client = Client::new(&source);
        let found = client.read(3, 1).unwrap();
        assert!([1, 101].contains(&found[0]), "{found:?}");
        brought_back += 1;
        drop(client);
        source.stop().unwrap();
    }
    assert_eq!(brought_back, 1, "the slot that counts");
}
