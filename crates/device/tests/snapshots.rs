//! Snapshots read as the volume did when they were taken, whatever is written, deleted and rolled back meanwhile, by however many
//! clients, and whenever the power fails.
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
use drawn::{Counted, Drawn, contents, has_lost_power, seeds};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_device::block::{BlockDevice, BlockError, Op};
use vellum_device::pack::Compression;
use vellum_device::{NewSize, OpenError, OpenOptions, SnapshotError, Volume, grow_at_rest};
use vellum_medium::{FaultMedium, Medium, MemoryMedium, Plan};

const BLOCKS: u64 = 4000;

fn create(medium: &dyn Medium, history: u32) {
    create_keeping(medium, 400, history);
}

fn open(medium: &Arc<dyn Medium>) -> Arc<Volume> {
    open_packing(medium, Compression::Lz4)
}

fn new(history: u32) -> (Arc<dyn Medium>, Arc<Volume>) {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(BLOCKS));
    create(&*medium, history);
    let volume = open(&medium);
    (medium, volume)
}

/// The expected contents of the volume and its snapshots.
#[derive(Clone, Default)]
struct Model {
    now: Vec<u64>,
    snapshots: BTreeMap<String, Vec<u64>>,
}

impl Model {
    fn holds(&self, volume: &Arc<Volume>) {
        assert_eq!(read_all(volume), self.now);
        let infos = volume.snapshots().unwrap();
        let names: Vec<_> = infos.iter().map(|info| &info.name).collect();
        assert_eq!(names.len(), self.snapshots.len(), "{names:?}");
        for (name, blocks) in &self.snapshots {
            let seen = Arc::new(volume.seen_at(name).unwrap());
            assert_eq!(&read_all(&seen), blocks, "snapshot {name}");
        }
    }
}

/// One step of a life.
fn step(volume: &Arc<Volume>, model: &mut Model, random: &mut Random, fresh: &mut u64) {
    let mut client = Client::new(volume);
    let blocks = volume.blocks();
    let length = 1 + random.below(12);
    let lba = random.below(blocks - length);
    let range = lba as usize..(lba + length) as usize;
    match random.below(20) {
        0 => {
            let name = format!("s{fresh}");
            *fresh += 1;
            volume.take_snapshot(&name, *fresh).unwrap();
            model.snapshots.insert(name, model.now.clone());
        }
        1 if !model.snapshots.is_empty() => {
            let at = random.below(model.snapshots.len() as u64) as usize;
            let name = model.snapshots.keys().nth(at).unwrap().clone();
            volume.delete_snapshot(&name).unwrap();
            model.snapshots.remove(&name);
        }
        2 if !model.snapshots.is_empty() && random.below(3) == 0 => {
            let at = random.below(model.snapshots.len() as u64) as usize;
            let name = model.snapshots.keys().nth(at).unwrap().clone();
            volume.roll_back(&name).unwrap();
            model.now = model.snapshots[&name].clone();
        }
        3 | 4 => {
            client.discard(lba, length).unwrap();
            model.now[range].fill(0);
        }
        5 => {
            let request = client.request(Op::WriteZeroes { fua: false }, lba, length);
            client.call(request).unwrap();
            model.now[range].fill(0);
        }
        6 => {
            // A client that mixes requests in one batch.
            *fresh += 1;
            let write = client.write_request(lba, &vec![*fresh; length as usize], false);
            let read = client.request(Op::Read, 0, 1);
            for tag in client.submit(vec![read, write]) {
                client.sink.wait(tag).unwrap();
            }
            model.now[range].fill(*fresh);
        }
        _ => {
            let fills = contents(random, lba, length, *fresh);
            *fresh += length;
            client.write(lba, &fills).unwrap();
            model.now[range].copy_from_slice(&fills);
        }
    }
}

#[test]
fn each_reads_as_it_was_taken_whatever_happens() {
    let mut counted = Counted::default();
    for seed in seeds(6) {
        let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(4 * BLOCKS));
        create(&*medium, 20_000);
        let mut random = Random(seed);
        let mut fresh = 1;
        let mut model = Model {
            now: vec![0; 400],
            ..Model::default()
        };
        for life in 0..4 {
            let volume = Drawn::of(seed + life).open(&medium, &mut random);
            model.holds(&volume);
            for number in 0..120 {
                step(&volume, &mut model, &mut random, &mut fresh);
                if number % 40 == 0 {
                    model.holds(&volume);
                }
            }
            model.holds(&volume);
            counted.add(&volume);
            match life % 2 {
                0 => volume.stop().unwrap(),
                // As in a crash of the server: an answered write is only in memory, unless it is flushed.
                _ => Client::new(&volume).flush().unwrap(),
            }
            drop(volume);
            assert_sound(&*medium);
        }
    }
    counted.has_seen_in(6, &Counted::PLAIN);
}

/// What must be present after a life that a power cut ends.
#[derive(Default)]
struct Shown {
    /// Snapshots that were taken and acknowledged.
    taken: BTreeMap<String, Vec<u64>>,
    /// The last one that was requested.
    tried: Option<(String, Vec<u64>)>,
}

impl Shown {
    /// Writes, and takes and deletes snapshots, until the medium fails.
    fn live(&mut self, volume: &Arc<Volume>, random: &mut Random, mut now: Vec<u64>) {
        let mut client = Client::new(volume);
        for number in 0..400u64 {
            let lba = random.below(399) as usize;
            let is_done = match number % 25 {
                0 => {
                    let name = format!("s{number}");
                    self.tried = Some((name.clone(), now.clone()));
                    let is_taken = volume.take_snapshot(&name, number).is_ok();
                    if is_taken {
                        self.taken.insert(name, now.clone());
                    }
                    is_taken
                }
                24 if self.taken.len() > 2 => {
                    let (name, _) = self.taken.pop_first().unwrap();
                    volume.delete_snapshot(&name).is_ok()
                }
                _ => {
                    let fills = contents(random, lba as u64, 2, 1000 + 2 * number);
                    now[lba..lba + 2].copy_from_slice(&fills);
                    client.write(lba as u64, &fills).is_ok()
                }
            };
            if !is_done {
                return;
            }
        }
    }

    fn holds(&self, volume: &Arc<Volume>, seed: u64) {
        let infos = volume.snapshots().unwrap();
        let is_there = |name: &str| infos.iter().any(|info| info.name == name);
        for (name, blocks) in &self.taken {
            assert!(is_there(name), "seed {seed}: {name} is lost");
            let seen = Arc::new(volume.seen_at(name).unwrap());
            assert_eq!(&read_all(&seen), blocks, "seed {seed}: snapshot {name}");
        }
        // A snapshot that was not acknowledged may exist; then it is whole.
        let tried = self.tried.as_ref().filter(|(name, _)| is_there(name));
        if let Some((name, blocks)) = tried {
            let seen = Arc::new(volume.seen_at(name).unwrap());
            assert_eq!(&read_all(&seen), blocks, "seed {seed}: {name}, tried");
        }
    }
}

#[test]
fn the_power_may_fail_whenever_it_likes() {
    let mut counted = Counted::default();
    for seed in seeds(40) {
        let fault = Arc::new(FaultMedium::over_memory(BLOCKS, Plan::default()));
        create(&*fault, 2000);
        let medium: Arc<dyn Medium> = fault.clone();
        let mut random = Random(seed);
        let volume = Drawn::of(seed).open(&medium, &mut random);
        let now: Vec<u64> = (1..=400).collect();
        let mut client = Client::new(&volume);
        for (lba, fills) in (0..).step_by(20).zip(now.chunks(20)) {
            client.write(lba, fills).unwrap();
        }
        client.flush().unwrap();
        let ios = random.below(300);
        fault.set_plan(Plan::seeded(seed).with_cut_after(ios));
        let mut shown = Shown::default();
        shown.live(&volume, &mut random, now);
        if !fault.is_off() {
            fault.power_cut(seed);
        }
        has_lost_power(&volume);
        counted.add(&volume);
        drop((client, volume));
        fault.set_plan(Plan::default());
        fault.restart();
        let volume = Drawn::of(seed / 5).open(&medium, &mut random);
        shown.holds(&volume, seed);
        // The next one may get the number of one that never existed.
        let before = read_all(&volume);
        volume.take_snapshot("after", 0).unwrap();
        let mut client = Client::new(&volume);
        for lba in 0..400 {
            client.write(lba, &[7000 + lba]).unwrap();
        }
        let seen = Arc::new(volume.seen_at("after").unwrap());
        assert_eq!(read_all(&seen), before, "seed {seed}");
        // When all are deleted, nothing of them is left.
        for info in volume.snapshots().unwrap() {
            volume.delete_snapshot(&info.name).unwrap();
        }
        let behind = volume.extents(vellum_core::addr::Lba(400), 1000, 10);
        assert!(behind.iter().all(|run| !run.mapped), "seed {seed}");
        volume.stop().unwrap();
        counted.add(&volume);
        drop((client, seen, volume));
        assert_sound(&*medium);
    }
    counted.has_seen_in(40, &Counted::PLAIN);
}

/// Clients write one block after the other, each with an increasing number. A snapshot is an instant: its version of a block is
/// no older than its version of the block that was written after it.
#[test]
fn a_snapshot_is_an_instant_while_many_clients_write() {
    let (medium, volume) = new(20_000);
    let goes_on = AtomicBool::new(true);
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let (volume, goes_on) = (&volume, &goes_on);
            scope.spawn(move || {
                let mut client = Client::new(volume);
                for round in 1.. {
                    for lba in 0..20 {
                        client.write(writer * 20 + lba, &[round]).unwrap();
                    }
                    if !goes_on.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        let mut seen = Vec::new();
        for number in 0..25 {
            let name = format!("s{number}");
            volume.take_snapshot(&name, number).unwrap();
            let view = Arc::new(volume.seen_at(&name).unwrap());
            seen.push((read_all(&view), view));
            std::thread::sleep(std::time::Duration::from_millis(3));
        }
        goes_on.store(false, Ordering::Relaxed);
        for (before, view) in seen {
            assert_eq!(read_all(&view), before);
            for writer in before[..80].chunks(20) {
                let (first, last) = (writer[0], writer[19]);
                assert!(first == last || first == last + 1, "{writer:?}");
                assert!(writer.is_sorted_by(|a, b| a >= b), "{writer:?}");
            }
        }
    });
    stop_sound(&volume, &*medium);
}

#[test]
fn what_cannot_be_is_told() {
    let (medium, volume) = new(20);
    let mut client = Client::new(&volume);
    client.write(0, &[5; 30]).unwrap();
    volume.take_snapshot("a", 1).unwrap();
    assert!(matches!(
        volume.take_snapshot("a", 1),
        Err(SnapshotError::List(_))
    ));
    assert!(matches!(
        volume.take_snapshot("a/b", 1),
        Err(SnapshotError::Name(_))
    ));
    assert!(matches!(
        volume.delete_snapshot("b"),
        Err(SnapshotError::List(_))
    ));
    assert!(volume.seen_at("b").is_err() && volume.roll_back("b").is_err());
    // There is room for eight blocks.
    client.write(0, &[6; 8]).unwrap();
    assert!(matches!(client.write(8, &[6]), Err(BlockError::Full)));
    assert_eq!(volume.stats().clients.refused, 1);
    assert_eq!(client.read(7, 2).unwrap(), [6, 5]);
    client.write(0, &[7; 8]).unwrap();
    assert_eq!(volume.snapshot_room().unwrap(), (8, 8));
    assert_eq!(
        volume.changed_since("a", None).unwrap(),
        [(vellum_core::addr::Lba(0), 8)]
    );
    // A snapshot can only be read.
    let seen = Arc::new(volume.seen_at("a").unwrap());
    let mut viewer = Client::new(&seen);
    assert_eq!(viewer.read(0, 10).unwrap(), [5; 10]);
    assert!(matches!(viewer.write(0, &[1]), Err(BlockError::ReadOnly)));
    assert!(matches!(
        viewer.read(399, 2),
        Err(BlockError::OutOfRange { .. })
    ));
    volume.stop().unwrap();
    drop((client, volume, viewer, seen));
    let longer: Arc<dyn Medium> = Arc::new(MemoryMedium::new(BLOCKS + 2000));
    copy(&*medium, &*longer);
    // After growth they have room for more, in proportion.
    grow_at_rest(&longer, NewSize::default()).unwrap();
    assert!(superblock_of(&*longer).history().kept() > 8);
    let volume = open(&longer);
    let seen = Arc::new(volume.seen_at("a").unwrap());
    assert_eq!(Client::new(&seen).read(0, 10).unwrap(), [5; 10]);
    Client::new(&volume).write(8, &[6]).unwrap();
    volume.delete_snapshot("a").unwrap();
    assert_eq!(volume.snapshot_room().unwrap().0, 0);
    volume.take_snapshot("grown", 2).unwrap();
    assert_eq!(
        Client::new(&volume).read(0, 9).unwrap(),
        [7, 7, 7, 7, 7, 7, 7, 7, 6]
    );
}

/// Kept blocks can fill a volume. Then everything written can be read, and deleting a snapshot frees room.
#[test]
fn a_volume_filled_by_snapshots_is_not_dead() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(BLOCKS));
    create_keeping(&*medium, 2400, 1000);
    // With these options nothing is stored in fewer bytes.
    let volume = Volume::open(Arc::clone(&medium), &small()).unwrap();
    let volume = Arc::new(volume);
    let mut client = Client::new(&volume);
    let mut random = Random(1);
    let mut block = || random.below(u64::MAX);
    let first: Vec<u64> = (0..2400).map(|_| block()).collect();
    for (lba, fill) in first.iter().enumerate() {
        client.write(lba as u64, &[*fill]).unwrap();
    }
    volume.take_snapshot("a", 1).unwrap();
    let mut now = first.clone();
    let full = (0..2400u64).find_map(|lba| {
        let fill = block();
        let written = client.write(lba, &[fill]);
        if written.is_ok() {
            now[lba as usize] = fill;
        }
        written.err().map(|error| (lba, error))
    });
    let (full, error) = full.expect("it fills up");
    assert!(matches!(error, BlockError::Full), "{error} at {full}");
    assert_eq!(read_all(&volume), now);
    let seen = Arc::new(volume.seen_at("a").unwrap());
    assert_eq!(read_all(&seen), first);
    drop(seen);
    client.flush().unwrap();
    volume.delete_snapshot("a").unwrap();
    for lba in 0..2400u64 {
        let fill = block();
        client.write(lba, &[fill]).unwrap();
        now[lba as usize] = fill;
    }
    assert_eq!(read_all(&volume), now);
    volume.stop().unwrap();
    drop((client, volume));
    assert_sound(&*medium);
}

/// The place of the only block of a medium that begins with these bytes.
fn beginning_with(medium: &dyn Medium, bytes: &[u8]) -> Pba {
    let mut block = [0; BLOCK_BYTES];
    let mut places = (0..medium.blocks()).map(Pba).filter(|at| {
        medium.read(*at, &mut block).unwrap();
        block.starts_with(bytes)
    });
    places.next().expect("it is there")
}

/// If a row of a snapshot were missed, the snapshot would read what was written later. So there are no snapshots while the
/// metadata that describes them is damaged, and the volume is not written.
#[test]
fn damaged_snapshot_metadata_is_reported_and_costs_the_volume_nothing() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(BLOCKS));
    create(&*medium, 1000);
    let open = |read_only| {
        let options = OpenOptions {
            read_only,
            ..small()
        };
        Volume::open(Arc::clone(&medium), &options).map(Arc::new)
    };
    let volume = open(false).unwrap();
    let mut client = Client::new(&volume);
    client.write(0, &[5; 100]).unwrap();
    volume.take_snapshot("a", 1).unwrap();
    client.write(0, &[6; 50]).unwrap();
    let now = read_all(&volume);
    volume.stop().unwrap();
    drop((client, volume));
    let row = |lba: u64| (lba << 32 | 1).to_le_bytes();
    let rows = [row(0), row(1), row(2)].concat();
    let list = [1, 0, 0, 0, 1, 1];
    for bytes in [&rows[..], &list] {
        let at = beginning_with(&*medium, bytes);
        let mut block = [0; BLOCK_BYTES];
        medium.read(at, &mut block).unwrap();
        block[bytes.len() - 1] ^= 1;
        medium.write(at, &block).unwrap();
        let error = open(false).unwrap_err();
        assert!(matches!(error, OpenError::Snapshots(_)), "{error}");
        let volume = open(true).unwrap();
        assert_eq!(read_all(&volume), now);
        assert_eq!(volume.snapshots().unwrap(), []);
        assert!(volume.seen_at("a").is_err());
        assert!(
            volume
                .events()
                .iter()
                .any(|event| event.kind == "snapshots")
        );
        drop(volume);
        block[bytes.len() - 1] ^= 1;
        medium.write(at, &block).unwrap();
    }
    let volume = open(true).unwrap();
    let seen = Arc::new(volume.seen_at("a").unwrap());
    assert_eq!(read_all(&seen)[..100], [5; 100]);
    drop((seen, volume));
    // The way back: all of them are dropped, and the volume can be written again.
    let at = beginning_with(&*medium, &rows);
    let mut block = [0; BLOCK_BYTES];
    medium.read(at, &mut block).unwrap();
    block[0] ^= 1;
    medium.write(at, &block).unwrap();
    let options = OpenOptions {
        without_snapshots: true,
        ..small()
    };
    let volume = Volume::open(Arc::clone(&medium), &options).unwrap();
    assert_eq!(volume.snapshots().unwrap(), []);
    assert_eq!(volume.snapshot_room().unwrap().0, 0);
    volume.stop().unwrap();
    drop(volume);
    let volume = open(false).unwrap();
    assert_eq!(read_all(&volume), now);
    volume.take_snapshot("a", 2).unwrap();
    let mut client = Client::new(&volume);
    client.write(0, &[7; 10]).unwrap();
    let seen = Arc::new(volume.seen_at("a").unwrap());
    assert_eq!(read_all(&seen), now);
}

/// A reader that copies a snapshot skips the blocks that are not mapped in it, whatever the volume has written since.
#[test]
fn block_status_of_a_snapshot_is_its_own() {
    let (_, volume) = new(1000);
    let mut client = Client::new(&volume);
    client.write(10, &[5; 20]).unwrap();
    volume.take_snapshot("a", 1).unwrap();
    client.discard(12, 4).unwrap();
    client.write(25, &[6; 30]).unwrap();
    let mapped = |device: &dyn BlockDevice| {
        let mut lba = 0;
        let mut found = Vec::new();
        while lba < 400 {
            for extent in device.extents(vellum_core::addr::Lba(lba), 400 - lba, 3) {
                let run = lba..lba + extent.blocks;
                found.extend(run.filter(|_| extent.mapped));
                lba += extent.blocks;
            }
        }
        found
    };
    let told: Vec<u64> = (10..30).collect();
    let seen = Arc::new(volume.seen_at("a").unwrap());
    assert_eq!(mapped(&*seen), told);
    let written = Arc::new(volume.seen_at("a").unwrap().with_memory());
    assert_eq!(mapped(&*written), told);
    Client::new(&written).write(100, &[1]).unwrap();
    assert!(mapped(&*written).contains(&100));
    volume.delete_snapshot("a").unwrap();
    assert_eq!(mapped(&*seen).len(), 400, "nothing is claimed to be zero");
}

/// A loop device over FUSE writes zeros by a discard.
#[test]
fn blocks_discarded_in_a_snapshot_read_as_zeros() {
    let (_, volume) = new(1000);
    Client::new(&volume).write(10, &[5; 20]).unwrap();
    volume.take_snapshot("a", 1).unwrap();
    let seen = Arc::new(volume.seen_at("a").unwrap().with_memory());
    let mut client = Client::new(&seen);
    client.write(9, &[6]).unwrap();
    client.discard(9, 1).unwrap();
    client.discard(11, 3).unwrap();
    client.write(12, &[7]).unwrap();
    assert_eq!(client.read(8, 7).unwrap(), [0, 0, 5, 0, 7, 0, 5]);
    let mut other = Client::new(&volume);
    assert_eq!(other.read(8, 4).unwrap(), [0, 0, 5, 5]);
}

#[test]
fn a_volume_without_room_for_snapshots_says_so() {
    let (_, volume) = new(0);
    assert!(matches!(
        volume.take_snapshot("a", 0),
        Err(SnapshotError::NoHistory)
    ));
    assert!(matches!(volume.snapshots(), Err(SnapshotError::NoHistory)));
}

/// The list of snapshots is itself stored in fewer bytes, and overwriting it takes room.
#[test]
fn a_snapshot_that_filled_a_packing_volume_can_be_deleted() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(BLOCKS));
    create_keeping(&*medium, 2400, 1000);
    // With these options data is not stored in fewer bytes.
    let reopened = || Arc::new(Volume::open(Arc::clone(&medium), &small()).unwrap());
    let mut random = Random(1);
    let mut write = |client: &mut Client, lba| client.write(lba, &[random.below(u64::MAX)]);
    let volume = reopened();
    let mut client = Client::new(&volume);
    (0..2400)
        .try_for_each(|lba| write(&mut client, lba))
        .unwrap();
    volume.stop().unwrap();
    drop((client, volume));
    let volume = open(&medium);
    volume.take_snapshot("a", 1).unwrap();
    volume.stop().unwrap();
    drop(volume);
    let volume = reopened();
    let mut client = Client::new(&volume);
    let full = (0..2400).try_for_each(|lba| write(&mut client, lba));
    assert!(matches!(full, Err(BlockError::Full)), "{full:?}");
    volume.delete_snapshot("a").unwrap();
    (0..2400)
        .try_for_each(|lba| write(&mut client, lba))
        .unwrap();
    drop(client);
    volume.stop().unwrap();
    drop(volume);
    assert_sound(&*medium);
}
