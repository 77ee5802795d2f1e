//! A volume that is open before its map was read (0061), on media that are damaged, or that an enemy made.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

mod common;
#[path = "common/layer.rs"]
mod layer;

use common::{
    Client, Random, create, create_keeping, open_packing, small, superblock_of, wait_for,
};
use crc32c::crc32c;
use layer::{Layer, Layered};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use vellum_core::addr::{BLOCK_BYTES, Generation, Leaf, Pba, Segment};
use vellum_core::check::{Options, Problem};
use vellum_core::format::leaf;
use vellum_core::format::root::{self, FreeSegments, LeafSlot, RootHeader};
use vellum_device::block::BlockError;
use vellum_device::pack::Compression;
use vellum_device::{OpenOptions, StopError, Volume, inspect};
use vellum_medium::{Io, Medium, MemoryMedium};

const BLOCKS: u64 = 8192;
/// The LBAs that a leaf maps.
const LEAF: u64 = 1024;
const LEAVES: u64 = 5;

fn open(medium: &Arc<dyn Medium>, map_leaves: usize) -> Arc<Volume> {
    let options = OpenOptions {
        map_leaves: Some(map_leaves),
        ..small()
    };
    Arc::new(Volume::open(Arc::clone(medium), &options).unwrap())
}

fn is_counted(volume: &Volume) -> bool {
    volume.stats().core["uncounted_leaves"] == 0
}

/// A stopped volume with compressed blocks in each leaf.
fn filled() -> Arc<dyn Medium> {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(BLOCKS));
    create(&*medium);
    let volume = open_packing(&medium, Compression::Lz4);
    let mut client = Client::new(&volume);
    for leaf in 0..LEAVES {
        client
            .write(leaf * LEAF, &[10 + leaf, 20 + leaf, 30 + leaf])
            .unwrap();
    }
    volume.stop().unwrap();
    medium
}

/// The newest root.
struct Newest {
    header: RootHeader,
    slots: Vec<LeafSlot>,
    free: FreeSegments,
}

fn newest(medium: &dyn Medium) -> Newest {
    let volume = superblock_of(medium);
    let roots = [0, 1].map(|place| {
        let mut bytes = vec![0; volume.root_blocks() as usize * BLOCK_BYTES];
        medium
            .read(volume.root_place(Generation(place)), &mut bytes)
            .unwrap();
        let (header, slots) = root::decode(&bytes, &volume.uuid(), volume.leaves(), crc32c).ok()?;
        let free = FreeSegments::of_root(&bytes, volume.leaves());
        Some(Newest {
            header,
            slots,
            free,
        })
    });
    let newest = roots.into_iter().flatten();
    newest.max_by_key(|root| root.header.generation).unwrap()
}

impl Newest {
    /// Replaces a leaf, as only somebody can who knows the checksums.
    fn forge(&mut self, medium: &dyn Medium, of: Leaf, block: &[u8; BLOCK_BYTES]) {
        let volume = superblock_of(medium);
        let slot = u32::from(matches!(self.slots[of.0 as usize], LeafSlot::Slot1(_)));
        medium.write(volume.leaf_slot(of, slot), block).unwrap();
        let sum = leaf::checksum(of, block, crc32c);
        self.slots[of.0 as usize] = LeafSlot::at(slot, sum);
    }

    fn write(&self, medium: &dyn Medium) {
        let volume = superblock_of(medium);
        let mut bytes = vec![0; volume.root_blocks() as usize * BLOCK_BYTES];
        root::encode_with(
            &self.header,
            self.slots.iter().copied(),
            &self.free,
            crc32c,
            &mut bytes,
        );
        for at in volume.root_copies(self.header.generation) {
            medium.write(at, &bytes).unwrap();
        }
    }
}

/// Nobody has checked the map of such a volume. Whatever it says, nothing panics, and the volume ends.
#[test]
fn a_hostile_map_is_survived() {
    let mut poisoned = 0;
    for seed in 0..60 {
        let medium = filled();
        let volume = superblock_of(&*medium);
        let mut random = Random(seed);
        let mut root = newest(&*medium);
        let pages = Leaf(volume.map_leaves());
        for of in [Leaf(0), Leaf(3), pages] {
            let slot = u32::from(matches!(root.slots[of.0 as usize], LeafSlot::Slot1(_)));
            let mut block = [0; BLOCK_BYTES];
            medium.read(volume.leaf_slot(of, slot), &mut block).unwrap();
            for _ in 0..random.below(4) {
                let index = random.below(8) as usize * 4;
                let raw = match random.below(4) {
                    0 => random.below(1 << 32) as u32,
                    // Plain blocks, shared pages and parts with any number, small ones as well.
                    kind => {
                        let bits = random.below(30);
                        (kind as u32) << 30 | random.below(1 << bits) as u32
                    }
                };
                block[index..index + 4].copy_from_slice(&raw.to_le_bytes());
            }
            root.forge(&*medium, of, &block);
        }
        root.write(&*medium);
        let options = OpenOptions {
            map_leaves: Some(random.below(3) as usize),
            ..small()
        };
        let Ok(volume) = Volume::open(Arc::clone(&medium), &options) else {
            continue;
        };
        let volume = Arc::new(volume);
        let mut client = Client::new(&volume);
        for lba in [0, 1, 5, 3 * LEAF, 3 * LEAF + 7] {
            let _ = client.read(lba, 1);
            let _ = client.write(lba, &[seed]);
        }
        let _ = client.discard(0, 8);
        let _ = client.flush();
        wait_for(&volume, "the census", |volume| {
            is_counted(volume) || volume.stats().poisoned
        });
        poisoned += u64::from(volume.stats().poisoned);
        assert_ne!(volume.stop(), Err(StopError::Internal), "seed {seed}");
    }
    assert!(poisoned > 10, "{poisoned} of 60 were found to be hostile");
}

/// A bit that says of a segment in use that it is free.
#[test]
fn a_segment_that_is_not_free_is_found() {
    let medium = filled();
    let mut root = newest(&*medium);
    let volume = superblock_of(&*medium);
    let hot = root.header.cursors[0].segment;
    // The heads go on elsewhere, so that the segment with the data is not theirs.
    root.header.cursors[0].segment = Segment(7);
    root.header.cursors[0].offset = 0;
    root.free.remove(Segment(7));
    root.free.put(hot);
    root.write(&*medium);
    let report = inspect::check_medium(&*medium, Options::default());
    let is_told =
        |problem: &Problem| matches!(problem, Problem::NotFree { segment, .. } if *segment == hot);
    assert!(report.findings.iter().any(is_told), "{:?}", report.findings);
    let volume_open = open(&medium, 0);
    wait_for(&volume_open, "the census", |volume| volume.stats().poisoned);
    // The root and the map contradict each other. The first leaf that leads there is named.
    let Err(StopError::MapDamaged(at)) = volume_open.stop() else {
        panic!("the volume stopped in order");
    };
    let leaves = (0..volume.map_leaves()).map(Leaf);
    let mut places = leaves.flat_map(|leaf| [0, 1].map(|slot| volume.leaf_slot(leaf, slot)));
    assert!(places.any(|place| place == at), "{at}");
}

/// A leaf that its stripe restores is reported and rewritten, whenever it is found.
#[test]
fn a_damaged_leaf_is_restored_reported_and_rewritten() {
    let medium = filled();
    let root = newest(&*medium);
    let volume = superblock_of(&*medium);
    let slot = u32::from(matches!(root.slots[3], LeafSlot::Slot1(_)));
    let at = volume.leaf_slot(Leaf(3), slot);
    medium.write(at, &[0; BLOCK_BYTES]).unwrap();
    for life in 0..2 {
        let volume = open(&medium, 0);
        wait_for(&volume, "the census", is_counted);
        let mut client = Client::new(&volume);
        assert_eq!(client.read(3 * LEAF, 3).unwrap(), [13, 23, 33]);
        assert_eq!(volume.stats().core["rebuilt_leaves"], 1 - life);
        assert_eq!(volume.events().len() as u64, 1 - life, "it is told once");
        volume.stop().unwrap();
    }
}

/// As after an opening that reads the whole map.
#[test]
fn what_fits_in_memory_is_there_when_it_is_counted() {
    let medium = filled();
    let volume = superblock_of(&*medium);
    let all = volume.map_leaves() + volume.shared_leaves();
    let volume = open(&medium, all as usize - 1);
    wait_for(&volume, "the census", is_counted);
    let read = volume.stats().core["leaves_read"];
    let mut client = Client::new(&volume);
    for leaf in 0..LEAVES {
        let found = client.read(leaf * LEAF, 3).unwrap();
        assert_eq!(found, [10 + leaf, 20 + leaf, 30 + leaf]);
    }
    let stats = volume.stats();
    assert_eq!(stats.core["leaves_read"], read, "nothing is read again");
    assert_eq!(
        stats.core["leaves_in_memory"],
        LEAVES + 1,
        "and that of pages"
    );
    volume.stop().unwrap();
}

/// Holds back what reads these blocks.
#[expect(
    clippy::vec_box,
    reason = "operations change hands by pointer, as the medium wants them"
)]
struct Held {
    medium: Arc<dyn Medium>,
    blocks: [Pba; 2],
    ios: Mutex<Option<Vec<Box<Io>>>>,
}

impl Held {
    fn let_go(&self) {
        let held = self.ios.lock().take();
        self.medium.submit(&mut held.unwrap());
    }
}

impl Layer for Held {
    fn below(&self) -> &dyn Medium {
        &*self.medium
    }

    fn submit(&self, ios: &mut Vec<Box<Io>>) {
        if let Some(held) = &mut *self.ios.lock() {
            let is_held = |io: &mut Box<Io>| self.blocks.contains(&io.at);
            held.extend(ios.extract_if(.., is_held));
        }
        self.medium.submit(ios);
    }
}

/// A volume that is nearly full has no room for clones. Before all is counted it looks emptier.
#[test]
fn a_clone_takes_no_room_before_all_is_counted() {
    const LOGICAL: u64 = 3 * BLOCKS;
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(BLOCKS));
    create_keeping(&*medium, LOGICAL, 1000);
    let volume = open(&medium, 0);
    volume.take_snapshot("s", 1).unwrap();
    volume.clone_snapshot("s", "c", 2).unwrap();
    let capacity = volume.stats().room.capacity_bytes / BLOCK_BYTES as u64;
    let mut client = Client::new(&volume);
    for lba in 0..capacity * 96 / 100 {
        client.write(lba, &[7 * (lba + 1)]).unwrap();
    }
    assert_eq!(volume.stats().room.used_percent, 96);
    volume.stop().unwrap();
    drop((client, volume));
    let superblock = superblock_of(&*medium);
    let held = Arc::new(Layered(Held {
        medium: Arc::clone(&medium),
        blocks: [0, 1].map(|slot| superblock.leaf_slot(Leaf(0), slot)),
        ios: Mutex::new(Some(Vec::new())),
    }));
    let slow: Arc<dyn Medium> = held.clone();
    let volume = open(&slow, 0);
    let clone = Arc::new(volume.clone_at("c").unwrap().unwrap());
    std::thread::scope(|scope| {
        let written = scope.spawn(|| Client::new(&clone).write(LOGICAL - 9, &[7]));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!is_counted(&volume), "and it holds nobody up meanwhile");
        assert!(!written.is_finished(), "nobody knows whether there is room");
        held.let_go();
        let refused = written.join().unwrap();
        assert!(matches!(refused, Err(BlockError::Full)), "{refused:?}");
    });
    assert!(is_counted(&volume));
    volume.stop().unwrap();
}
