//! A volume grows with its snapshots and clones: each reads as before, and zeros past its old end, whatever happens afterwards.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;
#[path = "common/drawn.rs"]
mod drawn;

use common::{
    Client, Random, assert_sound, copy, create_keeping, open_packing, read_all, small, stop_sound,
    superblock_of,
};
use drawn::{Counted, Drawn, contents};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vellum_core::addr::{BLOCK_BYTES, Generation};
use vellum_core::recovery::recover;
use vellum_core::recovery::rescue::{Trust, rescue};
use vellum_core::snapshots::Schedule;
use vellum_core::state::Place;
use vellum_device::block::BlockDevice;
use vellum_device::pack::Compression;
use vellum_device::stream::Sender;
use vellum_device::{
    GrowError, Growable, MediumSource, NewSize, OpenOptions, Volume, crc32c, grow_at_rest,
};
use vellum_medium::{FaultMedium, Medium, MemoryMedium, Plan};

const BLOCKS: u64 = 2400;
const SIZE: u64 = 600;

fn open(medium: &Arc<dyn Medium>) -> Arc<Volume> {
    open_packing(medium, Compression::Lz4)
}

/// The same under other policies, one after the other.
fn open_drawn(medium: &Arc<dyn Medium>, number: u64) -> Arc<Volume> {
    Drawn::of(number).open(medium, &mut Random(number))
}

/// The expected contents of the volume, its snapshots and its clones; zeros where there is no entry.
#[derive(Clone, Default)]
struct Known {
    now: BTreeMap<u64, u64>,
    others: BTreeMap<String, BTreeMap<u64, u64>>,
}

impl Known {
    fn holds(&self, volume: &Arc<Volume>) {
        let expected = |known: &BTreeMap<u64, u64>| -> Vec<u64> {
            let blocks = 0..volume.blocks();
            blocks
                .map(|lba| known.get(&lba).copied().unwrap_or(0))
                .collect()
        };
        assert_eq!(read_all(volume), expected(&self.now));
        assert_eq!(volume.snapshots().unwrap().len(), self.others.len());
        for (name, known) in &self.others {
            let found = match volume.clone_at(name).unwrap() {
                Some(clone) => read_all(&Arc::new(clone)),
                None => read_all(&Arc::new(volume.seen_at(name).unwrap())),
            };
            assert_eq!(found, expected(known), "{name}");
        }
    }

    /// Writes and discards here and there: new contents, and some that other blocks have as well.
    fn write<D: BlockDevice>(
        device: &Arc<D>,
        known: &mut BTreeMap<u64, u64>,
        seed: u64,
        steps: u64,
    ) {
        let (mut client, mut random) = (Client::new(device), Random(seed));
        let blocks = device.blocks();
        for step in 0..steps {
            let length = 1 + random.below(8);
            let lba = random.below(blocks - length + 1);
            if random.below(8) == 0 {
                client.discard(lba, length).unwrap();
                (lba..lba + length).for_each(|lba| _ = known.remove(&lba));
                continue;
            }
            let fills = contents(&mut random, lba, length, 1000 * seed + 10 * step);
            client.write(lba, &fills).unwrap();
            known.extend((lba..).zip(fills));
        }
        client.flush().unwrap();
    }

    fn take(&mut self, volume: &Volume, name: &str) {
        volume.take_snapshot(name, 1).unwrap();
        self.others.insert(name.to_owned(), self.now.clone());
    }

    fn write_clone(&mut self, volume: &Volume, name: &str, seed: u64) {
        let clone = Arc::new(volume.clone_at(name).unwrap().unwrap());
        Self::write(&clone, self.others.get_mut(name).unwrap(), seed, 40);
    }

    /// Overwrites everything again and again, until the collector has handled every segment several times.
    fn churn(&mut self, volume: &Arc<Volume>, seed: u64) {
        let segments = u64::from(volume.superblock().segment_count());
        let (mut client, mut random) = (Client::new(volume), Random(seed));
        let end = volume.stats().core["collections"] + 4 * segments;
        for round in 0..30_000 {
            if volume.stats().core["collections"] > end {
                return;
            }
            let lba = random.below(volume.blocks() - 9);
            let fills: Vec<u64> = (0..10).map(|n| seed + round * 10 + n).collect();
            client.write(lba, &fills).unwrap();
            self.now.extend((lba..).zip(fills));
        }
        panic!(
            "the collector has nothing to do: {:?} {:?}",
            volume.stats().core,
            volume.stats().space
        );
    }
}

/// The places of the blocks that snapshots and clones keep.
fn kept(medium: &dyn Medium) -> BTreeMap<u64, Option<Place>> {
    let mut source = MediumSource::new(medium);
    let recovered = recover(&mut source, medium.blocks(), crc32c).unwrap();
    let [_, _, kept] = recovered.superblock.history().parts();
    let all = recovered.state.map().iter_from(kept.start);
    all.map(|(lba, entry)| (lba.0 - kept.start.0, recovered.state.place_of(entry)))
        .collect()
}

/// A volume with two snapshots and a clone, not stopped.
fn filled() -> (Arc<dyn Medium>, Known) {
    filled_under(open)
}

fn filled_under(open: impl Fn(&Arc<dyn Medium>) -> Arc<Volume>) -> (Arc<dyn Medium>, Known) {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(BLOCKS));
    create_keeping(&*medium, SIZE, 6000);
    let (volume, mut known) = (open(&medium), Known::default());
    Known::write(&volume, &mut known.now, 1, 150);
    known.take(&volume, "first");
    Known::write(&volume, &mut known.now, 2, 60);
    volume.clone_snapshot("first", "clone", 1).unwrap();
    known
        .others
        .insert("clone".to_owned(), known.others["first"].clone());
    known.write_clone(&volume, "clone", 3);
    known.take(&volume, "second");
    Known::write(&volume, &mut known.now, 4, 60);
    known.holds(&volume);
    drop(volume);
    (medium, known)
}

fn to(blocks: u64) -> NewSize {
    NewSize {
        medium_blocks: None,
        logical_blocks: Some(blocks),
    }
}

#[test]
fn kept_blocks_survive_growth_and_later_moves() {
    let mut counted = Counted::default();
    let (mut before, mut known) = filled();
    let mut size = SIZE;
    for (number, blocks) in [(1, 2600), (2, 3300), (3, 4000)] {
        let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(blocks));
        copy(&*before, &*medium);
        let history = superblock_of(&*medium).history();
        size += [1, 37, 80][number as usize - 1];
        let grown = grow_at_rest(&medium, to(size)).unwrap();
        assert_eq!(superblock_of(&*medium), grown);
        assert!(grown.history().kept() >= history.kept());
        assert_sound(&*medium);
        let volume = open_drawn(&medium, number);
        assert_eq!(volume.blocks(), size);
        known.holds(&volume);
        // Also where those blocks had been.
        Known::write(&volume, &mut known.now, 10 * number, 60);
        known.write_clone(&volume, "clone", 10 * number + 1);
        known.holds(&volume);
        counted.add(&volume);
        // As in a crash.
        drop(volume);
        assert_sound(&*medium);
        let volume = open_drawn(&medium, number + 1);
        known.holds(&volume);
        drop(volume);
        let volume = common::open(&medium);
        let places = kept(&*medium);
        // The collector's choice of segments depends on when what was written, so it gets time.
        let have_moved = (0..20).any(|round| {
            known.churn(&volume, number << 30 | round << 24);
            known.holds(&volume);
            Client::new(&volume).flush().unwrap();
            let is_there = |(slot, entry): &(u64, Option<Place>)| places.get(slot) == Some(entry);
            let stayed = kept(&*medium).into_iter().filter(is_there).count();
            stayed + 30 < places.len()
        });
        assert!(have_moved, "the collector moves nothing that is kept");
        known.take(&volume, &format!("grown{number}"));
        Known::write(&volume, &mut known.now, 10 * number + 2, 30);
        volume.delete_snapshot("second").unwrap();
        known.others.remove("second");
        known.take(&volume, "second");
        known.holds(&volume);
        stop_sound(&volume, &*medium);
        before = medium;
    }
    let volume = open(&before);
    volume.roll_back("first").unwrap();
    known.now = known.others["first"].clone();
    known.holds(&volume);
    for name in ["clone", "first", "second", "grown1", "grown2", "grown3"] {
        volume.delete_snapshot(name).unwrap();
        known.others.remove(name);
        known.holds(&volume);
    }
    assert_eq!(volume.snapshot_room().unwrap().0, 0);
    counted.has_seen(&Counted::PLAIN);
}

/// Nothing is shared: only the growth explains why tags name other LBAs.
#[test]
fn a_snapshot_that_keeps_nothing_survives_growth() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(BLOCKS));
    create_keeping(&*medium, SIZE, 1000);
    let (volume, mut known) = (common::open(&medium), Known::default());
    known.take(&volume, "only");
    volume.stop().unwrap();
    drop(volume);
    let longer: Arc<dyn Medium> = Arc::new(MemoryMedium::new(BLOCKS + 500));
    copy(&*medium, &*longer);
    grow_at_rest(&longer, to(SIZE + 1)).unwrap();
    assert_sound(&*longer);
    known.holds(&common::open(&longer));
    assert_sound(&*longer);
}

/// If all metadata is lost, a rescue goes by the headers. It gives no LBA of the clients contents that a snapshot had under that
/// number before the growth.
#[test]
fn a_rescue_gives_clients_no_blocks_of_snapshots() {
    let (before, _) = filled();
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(2700));
    copy(&*before, &*medium);
    let grown = grow_at_rest(&medium, to(SIZE + 40)).unwrap();
    let volume = common::open(&medium);
    Client::new(&volume).write(SIZE + 1, &[1]).unwrap();
    volume.stop().unwrap();
    drop(volume);
    for generation in [0, 1].map(Generation) {
        for at in grown.root_copies(generation) {
            for index in 0..grown.root_blocks() {
                let at = at.plus(index.into());
                medium.write(at, &[0; BLOCK_BYTES]).unwrap();
            }
        }
    }
    let mut source = MediumSource::new(&medium);
    let rescued = rescue(&mut source, medium.blocks(), crc32c, Trust::Newest).unwrap();
    let map = rescued.recovered.state.map();
    assert_eq!(rescued.loss.guessed.len(), map.blocks());
    let found = map.iter().map(|(lba, _)| lba.0);
    let found: Vec<u64> = found.take_while(|lba| *lba < SIZE + 40).collect();
    assert!(found.len() > 100, "{found:?}");
    let new: Vec<&u64> = found.iter().filter(|lba| **lba >= SIZE).collect();
    assert_eq!(new, [&(SIZE + 1)]);
}

#[test]
fn growth_cut_short_changes_no_snapshot_or_clone() {
    let mut counted = Counted::default();
    let (before, known) = filled_under(|medium| Drawn::Everything.open(medium, &mut Random(2)));
    let cut_at = |cut: Option<u64>| {
        let seed = cut.unwrap_or(0);
        let fault = Arc::new(FaultMedium::over_memory(2700, Plan::seeded(seed)));
        copy(&*before, &*fault);
        let medium: Arc<dyn Medium> = fault.clone();
        open(&medium).stop().unwrap();
        let idle = fault.stats().ios;
        fault.set_plan(Plan {
            cut_after: cut,
            ..Plan::seeded(seed)
        });
        let result = grow_at_rest(&medium, to(SIZE + 40));
        assert_eq!(result.is_err(), fault.is_off(), "{result:?}");
        (fault, idle)
    };
    let (whole, idle) = cut_at(None);
    let steps = whole.stats().ios - idle;
    let mut outcomes = [0, 0];
    for cut in (0..steps - 20).step_by(9).chain(steps - 20..steps) {
        let (fault, _) = cut_at(Some(cut));
        fault.restart();
        fault.set_plan(Plan::seeded(cut));
        let medium: Arc<dyn Medium> = fault.clone();
        let volume = open_drawn(&medium, cut);
        let mut known = known.clone();
        outcomes[usize::from(volume.blocks() > SIZE)] += 1;
        known.holds(&volume);
        Known::write(&volume, &mut known.now, cut, 40);
        known.write_clone(&volume, "clone", cut + 1);
        counted.add(&volume);
        drop(volume);
        known.holds(&open_drawn(&medium, cut + 1));
        assert_sound(&*medium);
    }
    assert!(outcomes[0] > 10 && outcomes[1] > 0, "{outcomes:?}");
    counted.has_seen(&Counted::PLAIN);
}

/// True if nothing has changed since the schedule took the newest snapshot.
fn has_scheduled_all(volume: &Volume) -> bool {
    let all = volume.snapshots().unwrap();
    let newest = all.iter().rfind(|one| one.scheduled);
    let changed = newest.map(|newest| volume.changed_since(&newest.name, None));
    changed.is_some_and(|changed| changed.unwrap().is_empty())
}

#[test]
fn a_served_volume_grows_only_while_no_snapshot_is_open() {
    let (before, mut known) = filled();
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(2700));
    copy(&*before, &*medium);
    let options = OpenOptions {
        schedule: Schedule {
            every: vellum_core::snapshots::Span::of(1),
            keep: "1m:1s".parse().unwrap(),
        },
        ..small()
    };
    let device = Arc::new(Growable::open(medium, &options).unwrap());
    let view = device.volume().seen_at("first").unwrap();
    let held = view.hold();
    let error = device.grow(to(SIZE + 40), &options).unwrap_err();
    assert!(
        matches!(&error, GrowError::InUse(name) if name.as_str() == "first"),
        "{error}"
    );
    drop((view, held));
    let sender = Sender::new(&device.volume(), "second", None).unwrap();
    let error = device.grow(to(SIZE + 40), &options).unwrap_err();
    assert!(
        matches!(&error, GrowError::InUse(name) if name.as_str() == "second"),
        "{error}"
    );
    drop(sender);
    assert_eq!(device.blocks(), SIZE);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = BTreeMap::new();
            for seed in 100.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                Known::write(&device, &mut written, seed, 20);
            }
            written
        });
        let grown = device.grow(to(SIZE + 40), &options);
        stop.store(true, Ordering::Relaxed);
        assert!(grown.is_ok(), "{grown:?}");
        drop(writer.join().unwrap());
    });
    assert_eq!(device.blocks(), SIZE + 40);
    let volume = device.volume();
    common::wait_for(&volume, "a snapshot of its own of all", |volume| {
        volume.stats().history.taken > 0 && has_scheduled_all(volume)
    });
    volume.set_schedule(Schedule::default());
    known.now = (0..).zip(read_all(&volume)).collect();
    for one in volume.snapshots().unwrap() {
        let seen = || read_all(&Arc::new(volume.seen_at(&one.name).unwrap()));
        known
            .others
            .entry(one.name.clone())
            .or_insert_with(|| (0..).zip(seen()).collect());
    }
    known.holds(&volume);
    known.churn(&volume, 1 << 40);
    // Snapshots that the schedule took are deleted before a write finds no room.
    let left = volume.snapshots().unwrap();
    let is_left = |name: &String| left.iter().any(|one| one.name == *name);
    known.others.retain(|name, _| is_left(name));
    let ours = ["first", "second", "clone"];
    assert!(ours.iter().all(|name| known.others.contains_key(*name)));
    known.holds(&volume);
}
