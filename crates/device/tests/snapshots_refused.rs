//! What is done with a snapshot may be refused, at its start or midway, because the file system below has no room. Then the other
//! snapshots read as they did, also after a restart, and so does that one unless it is being deleted.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;

use common::{Client, assert_sound, create_keeping, open, open_under, read_all, small};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vellum_core::snapshots::{Schedule, Span};
use vellum_device::block::BlockError;
use vellum_device::pack::Compression;
use vellum_device::policy::{Deltas, Policy};
use vellum_device::{OpenOptions, SnapshotError, Volume};
use vellum_medium::{FaultMedium, Medium, MemoryMedium, Plan};

const BLOCKS: u64 = 4000;

struct World {
    fault: Arc<FaultMedium>,
    medium: Arc<dyn Medium>,
    volume: Arc<Volume>,
}

impl World {
    fn new() -> Self {
        Self::of(BLOCKS)
    }

    /// A new volume with room for snapshots, on a medium that can have no room.
    fn of(logical_blocks: u64) -> Self {
        let fault = Arc::new(FaultMedium::over_memory(8 * BLOCKS, Plan::default()));
        create_keeping(&*fault, logical_blocks, 1500);
        let medium: Arc<dyn Medium> = fault.clone();
        let volume = open(&medium);
        Self {
            fault,
            medium,
            volume,
        }
    }

    fn client(&self) -> Client {
        Client::new(&self.volume)
    }

    /// Writes until the medium, which is full, takes no more.
    fn fill(&self) {
        self.fault.set_full(true);
        let mut client = self.client();
        let mut at = (0..BLOCKS - 40).step_by(40).cycle();
        while client.write(at.next().unwrap(), &[9; 40]).is_ok() {}
    }

    /// Gives the medium room again, and waits until the volume has found it.
    fn relieve(&self) {
        self.fault.set_full(false);
        let began = Instant::now();
        while self.client().write(0, &[8]).is_err() {
            assert!(began.elapsed() < Duration::from_secs(60), "it finds room");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn reopened(self) -> Self {
        self.volume.stop().unwrap();
        let Self { fault, medium, .. } = self;
        let volume = open(&medium);
        Self {
            fault,
            medium,
            volume,
        }
    }

    /// Cuts the power, and restores it when the volume is gone: the volume would wait for ever for operations that a restart
    /// forgets.
    fn cut(self, seed: u64) -> Arc<dyn Medium> {
        let Self {
            fault,
            medium,
            volume,
        } = self;
        if !fault.is_off() {
            fault.power_cut(seed);
        }
        drop(volume);
        fault.set_plan(Plan::default());
        fault.restart();
        medium
    }

    fn seen(&self, name: &str) -> Vec<u64> {
        read_all(&Arc::new(self.volume.seen_at(name).unwrap()))
    }

    fn write_all(&self, fill: u64) {
        let mut client = self.client();
        for lba in (0..BLOCKS).step_by(40) {
            client.write(lba, &[fill; 40]).unwrap();
        }
    }
}

/// A refused command has not begun: the medium still lists the snapshot, so changes are still kept for it.
#[test]
fn a_snapshot_that_could_not_be_deleted_reads_as_before() {
    let world = World::new();
    world.write_all(1);
    world.volume.take_snapshot("s", 1).unwrap();
    world.fill();
    assert!(world.volume.delete_snapshot("s").is_err());
    assert!(world.volume.roll_back("s").is_err());
    world.relieve();
    assert!(!world.volume.snapshots().unwrap()[0].leaves);
    world.write_all(2);
    let world = world.reopened();
    assert_eq!(world.seen("s"), [1; BLOCKS as usize]);
    world.volume.delete_snapshot("s").unwrap();
    assert_eq!(world.volume.snapshots().unwrap(), []);
}

/// A deletion that is refused midway leaves rows that the next try does not visit. It must write them all the same, because the
/// older snapshot needs them now.
#[test]
fn a_deletion_in_two_tries_leaves_the_older_snapshot_intact() {
    const MANY: u64 = 5 * BLOCKS;
    let half_deleted = (0..40).find_map(|_| half_deleted(MANY));
    let world = half_deleted.expect("a deletion is refused midway");
    // Some of its rows are gone, so nobody knows what has changed since.
    for (since, until) in [("newer", None), ("older", Some("newer"))] {
        let changed = world.volume.changed_since(since, until);
        assert!(matches!(changed, Err(SnapshotError::Leaves)), "{changed:?}");
    }
    world.relieve();
    world.volume.delete_snapshot("newer").unwrap();
    let world = world.reopened();
    assert_eq!(world.seen("older"), [0; MANY as usize]);
    assert_eq!(world.volume.snapshots().unwrap().len(), 1);
}

/// A volume whose newer snapshot is deleted in part. `None`: the medium was found to be full before the deletion had begun, or when it
/// was done: threads decide.
fn half_deleted(blocks: u64) -> Option<World> {
    let world = World::of(blocks);
    world.volume.take_snapshot("older", 1).unwrap();
    world.volume.take_snapshot("newer", 2).unwrap();
    // Far apart, so that each step of the deletion writes many blocks of rows.
    for first in 0..blocks / 40 {
        let mut client = world.client();
        let lbas = (0..40).map(|n| first + n * blocks / 40);
        let requests = lbas
            .map(|lba| client.write_request(lba, &[2], false))
            .collect();
        for tag in client.submit(requests) {
            client.sink.wait(tag).unwrap();
        }
    }
    // Nothing else is on its way to the medium when it is full.
    world.client().flush().unwrap();
    world.fault.set_full(true);
    let refused = world.volume.delete_snapshot("newer");
    assert!(
        matches!(refused, Err(SnapshotError::Block(_))),
        "{refused:?}"
    );
    let left = world.volume.snapshots().unwrap();
    let is_midway = left.get(1).is_some_and(|newer| newer.leaves);
    is_midway.then_some(world)
}

/// A user who gives up all snapshots gets a volume in one state, even after a rollback was cut short. A read-only opening reports
/// the mixture.
#[test]
fn an_interrupted_rollback_completes_even_if_all_snapshots_are_given_up() {
    let mut midway = 0;
    for ios in 0..30 {
        let world = World::new();
        world.write_all(1);
        world.volume.take_snapshot("s", 1).unwrap();
        world.write_all(2);
        world.client().flush().unwrap();
        world.fault.set_plan(Plan::seeded(ios).with_cut_after(ios));
        let _ = world.volume.roll_back("s");
        let medium = world.cut(ios);
        let open = |read_only| {
            let options = OpenOptions {
                read_only,
                without_snapshots: !read_only,
                ..small()
            };
            Arc::new(Volume::open(Arc::clone(&medium), &options).unwrap())
        };
        let volume = open(true);
        let blocks = read_all(&volume);
        let is_mixed = blocks.iter().any(|one| *one != blocks[0]);
        if is_mixed {
            midway += 1;
            let told = volume.check_unmixed();
            assert!(matches!(told, Err(SnapshotError::Returns(_))), "{told:?}");
        }
        drop(volume);
        let volume = open(false);
        let blocks = read_all(&volume);
        assert!(
            blocks.iter().all(|one| *one == blocks[0]),
            "cut after {ios}"
        );
        assert!(!is_mixed || blocks[0] == 1, "cut after {ios}");
        assert_eq!(volume.snapshots().unwrap(), []);
        assert_eq!(volume.snapshot_room().unwrap().0, 0);
        volume.check_unmixed().unwrap();
        volume.stop().unwrap();
        drop(volume);
        assert_sound(&*medium);
    }
    assert!(midway > 0);
}

/// A block that held nothing is kept without data, so deleting its snapshot gives a full volume no room.
#[test]
fn kept_blocks_without_data_give_back_no_room() {
    let fault = FaultMedium::over_memory(BLOCKS, Plan::default());
    let medium: Arc<dyn Medium> = Arc::new(fault);
    create_keeping(&*medium, 3 * BLOCKS, 1000);
    let volume = open(&medium);
    // The name makes it one of the schedule's.
    let name = "auto-1970-01-01T00:00:05Z";
    volume.take_snapshot(name, 5).unwrap();
    // In the same step of a hundred years: none is due.
    volume.set_schedule(Schedule {
        every: Span::of(36_500 * 86_400),
        ..Schedule::default()
    });
    let mut client = Client::new(&volume);
    let full = (0..3 * BLOCKS).find_map(|lba| client.write(lba, &[lba + 1]).err());
    assert!(matches!(full, Some(BlockError::Full)), "{full:?}");
    let all = volume.snapshots().unwrap();
    assert_eq!((all[0].name.as_str(), all[0].scheduled), (name, true));
    assert_eq!(all[0].kept_bytes, 0);
    let (kept, _) = volume.snapshot_room().unwrap();
    assert!(kept > 1000, "each has a place: {kept}");
}

/// Writes to a snapshot stay in memory, up to a limit. At the limit, blocks already in memory can still be written.
#[test]
fn at_the_memory_limit_blocks_in_memory_can_be_rewritten() {
    let world = World::of(70_000);
    world.volume.take_snapshot("s", 1).unwrap();
    let seen = Arc::new(world.volume.seen_at("s").unwrap().with_memory());
    let mut client = Client::new(&seen);
    let most = vellum_device::limits::SNAPSHOT_MEMORY as u64;
    for lba in (0..most).step_by(64) {
        client.write(lba, &[1; 64]).unwrap();
    }
    assert!(matches!(client.write(most, &[1]), Err(BlockError::Full)));
    assert!(matches!(client.discard(most, 1), Err(BlockError::Full)));
    client.write(7, &[2]).unwrap();
    client.discard(8, 2).unwrap();
    assert_eq!(client.read(6, 5).unwrap(), [1, 2, 0, 0, 1]);
    // The zeros take the memory of one block, and not of two.
    client.write(most, &[3]).unwrap();
}

/// Writes incompressible blocks until one is refused. Returns how many were written.
fn fill(client: &mut Client, lbas: std::ops::Range<u64>, round: u64) -> u64 {
    let first = lbas.start;
    for lba in lbas.clone() {
        // No encoding makes these smaller.
        match client.write(lba, &[7 * (1 + lba + round * 100_000)]) {
            Ok(()) => {}
            Err(BlockError::Full) => return lba - first,
            Err(error) => panic!("{error}"),
        }
    }
    lbas.end - first
}

/// Rows of writes that are refused take no room that deleting a snapshot needs.
#[test]
fn refused_writes_leave_room_to_delete_a_snapshot() {
    const LOGICAL: u64 = 24_000;
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(8000));
    create_keeping(&*medium, LOGICAL, 1000);
    let policy = Policy {
        compression: Compression::ZSTD,
        deltas: Deltas::Packed,
        ..Policy::default()
    };
    let mut client = Client::new(&open_under(&medium, policy));
    let filled = fill(&mut client, 0..LOGICAL, 0);
    client.volume.take_snapshot("s", 1).unwrap();
    for round in 1..9 {
        fill(&mut client, 0..filled, round);
        client.volume.stop().unwrap();
        client = Client::new(&open_under(&medium, policy));
    }
    for lba in filled + 1..LOGICAL {
        let refused = client.write(lba, &[7 * lba]);
        assert!(matches!(refused, Err(BlockError::Full)), "{refused:?}");
    }
    client.volume.delete_snapshot("s").unwrap();
    assert_eq!(fill(&mut client, 0..filled, 10), filled);
    assert_eq!(fill(&mut client, filled..filled + 9, 0), 9);
    client.volume.stop().unwrap();
    drop(client);
    assert_sound(&*medium);
}

/// The bytes that are in use once all is discarded, after half of it was, perhaps until the power failed, and the newer of two snapshots
/// was deleted.
fn used_after(cut: Option<u64>) -> u64 {
    let world = World::new();
    world.volume.take_snapshot("m", 1).unwrap();
    world.write_all(1);
    world.volume.take_snapshot("n", 2).unwrap();
    world.client().flush().unwrap();
    let plan = |ios| Plan::seeded(ios).with_cut_after(ios);
    world.fault.set_plan(cut.map_or_else(Plan::default, plan));
    let discarded = world.client().discard(0, BLOCKS / 2);
    assert!(cut.is_some() || discarded.is_ok(), "{discarded:?}");
    let medium = match cut {
        Some(ios) => world.cut(ios),
        None => world.reopened().medium,
    };
    let volume = open(&medium);
    assert_eq!(
        read_all(&Arc::new(volume.seen_at("n").unwrap())),
        [1; BLOCKS as usize]
    );
    volume.delete_snapshot("n").unwrap();
    Client::new(&volume).discard(0, BLOCKS).unwrap();
    volume.stop().unwrap();
    drop(volume);
    assert_sound(&*medium);
    open(&medium).stats().room.used_bytes
}

/// Of a discard that was cut short, no block stays that nothing needs and nothing finds.
#[test]
fn a_discard_that_is_cut_short_leaves_no_block_behind() {
    let used = used_after(None);
    for ios in 0..30 {
        assert_eq!(used_after(Some(ios)), used, "cut after {ios}");
    }
}
