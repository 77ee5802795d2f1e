//! A volume that loses its server, its power, or writes that its medium confirmed; for each layout, by its own promise.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[path = "common/soak.rs"]
mod soak;

use common::{
    Client, Random, Sink, assert_sound, create, create_as, open, open_packing, small, wait_for,
};
use std::sync::Arc;
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_core::format::areas::Layout;
use vellum_device::block::{BlockDevice, BlockError, Replies, Request};
use vellum_device::frames::Quota;
use vellum_device::pack::Compression;
use vellum_device::{OpenOptions, StopError, Volume};
use vellum_medium::{Fault, FaultMedium, Medium, MemoryMedium, Plan};

const ALL: std::ops::Range<u64> = 0..u64::MAX;
const LAYOUTS: [Layout; 3] = [Layout::Log, Layout::Ordered, Layout::Shadow];

/// The address of a stamp that was lost.
const LOST: u64 = u64::MAX;

/// What was written where, in the order in which it took effect: promise 3's oracle. Stamps count from 1.
struct History {
    layout: Layout,
    first: u64,
    blocks: u64,
    /// The address of stamp `n`, at `n - 1`.
    writes: Vec<u64>,
    durable: usize,
    /// The oldest stamp that each block may have.
    least: Vec<u64>,
}

impl History {
    fn new(layout: Layout, first: u64, blocks: u64) -> Self {
        Self {
            layout,
            first,
            blocks,
            writes: Vec::new(),
            durable: 0,
            least: vec![0; blocks as usize],
        }
    }

    /// Everything that was written is durable from now on.
    fn all_durable(&mut self) {
        self.durable = self.writes.len();
        for (stamp, &lba) in (1..).zip(&self.writes) {
            if lba != LOST {
                self.least[lba as usize] = stamp;
            }
        }
    }

    /// The write with this stamp is durable, and so are those before it if the layout keeps order.
    fn durable(&mut self, stamp: u64, lba: u64) {
        match self.layout.keeps_order() {
            true => self.all_durable(),
            false => self.least[lba as usize] = stamp,
        }
    }

    /// Checks that the volume holds what the promise allows.
    fn check(&mut self, client: &mut Client) {
        let found = self.read(client);
        match self.layout.keeps_order() {
            true => self.is_a_prefix(&found),
            false => self.is_of_each_block(&found),
        }
    }

    fn read(&self, client: &mut Client) -> Vec<u64> {
        let mut found = Vec::new();
        for lba in (0..self.blocks).step_by(64) {
            found.extend(
                client
                    .read(self.first + lba, 64.min(self.blocks - lba))
                    .unwrap(),
            );
        }
        found
    }

    /// Checks that each block is from some instant, not before it was durable.
    fn is_of_each_block(&mut self, found: &[u64]) {
        for (lba, (&stamp, &least)) in (0..).zip(found.iter().zip(&self.least)) {
            let written = stamp == 0 || self.writes.get(stamp as usize - 1) == Some(&lba);
            assert!(written, "stamp {stamp} was never written to block {lba}");
            assert!(
                stamp >= least,
                "block {lba}: durable as of {least}, found {stamp}"
            );
        }
        for (stamp, lba) in (1..).zip(&mut self.writes) {
            if *lba != LOST && stamp > found[*lba as usize] {
                *lba = LOST;
            }
        }
        self.all_durable();
    }

    /// Checks that the blocks are the effect of a prefix that is no shorter than what was durable.
    fn is_a_prefix(&mut self, found: &[u64]) {
        let newest = found.iter().copied().max().unwrap_or(0) as usize;
        assert!(
            newest <= self.writes.len(),
            "stamp {newest} was never written"
        );
        assert!(
            newest >= self.durable,
            "durable through {}, found only {newest}",
            self.durable
        );
        let mut expected = vec![0; self.blocks as usize];
        for (index, &lba) in self.writes[..newest].iter().enumerate() {
            expected[lba as usize] = index as u64 + 1;
        }
        assert_eq!(found, expected, "not the prefix of {newest} writes");
        self.writes.truncate(newest);
        self.durable = newest;
    }

    /// Writes until told to stop or refused, with flushes and durable writes in between.
    fn write_on(&mut self, client: &mut Client, random: &mut Random, writes: u64) {
        for _ in 0..writes {
            let lba = random.below(self.blocks);
            let stamp = self.writes.len() as u64 + 1;
            self.writes.push(lba);
            let fua = random.below(40) == 0;
            let request = client.write_request(self.first + lba, &[stamp], fua);
            if client.call(request).is_err() {
                return;
            }
            let flushed = random.below(60) == 0 && client.flush().is_ok();
            if flushed {
                self.all_durable();
            } else if fua {
                self.durable(stamp, lba);
            }
        }
    }
}

/// Like [`open_packing`], if the layout has parts of pages.
fn open_by_turns(medium: &Arc<dyn Medium>, layout: Layout, turn: u64) -> Arc<Volume> {
    match layout {
        Layout::Log => open_packing(medium, Compression::ALL[turn as usize % 3]),
        _ => open(medium),
    }
}

#[test]
fn a_dropped_volume_keeps_a_prefix() {
    LAYOUTS.into_iter().for_each(lives_with_kills);
}

fn lives_with_kills(layout: Layout) {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(3000));
    create_as(&*medium, layout);
    let mut history = History::new(layout, 0, 500);
    let mut random = Random(1);
    for life in 0..30 {
        let volume = open_by_turns(&medium, layout, life);
        let mut client = Client::new(&volume);
        history.check(&mut client);
        let writes = random.below(1500);
        history.write_on(&mut client, &mut random, writes);
        if life % 7 == 6 {
            volume.stop().unwrap();
            history.all_durable();
        }
        drop(client);
        drop(volume);
        assert_sound(&*medium);
    }
}

#[test]
fn a_power_cut_keeps_a_prefix() {
    for layout in LAYOUTS {
        for seed in soak::seeds("a_power_cut_keeps_a_prefix", 0..40, LAYOUTS.len() as u64) {
            let _tells = soak::Tells(seed);
            let plan = Plan::seeded(seed);
            lives_with_power_cuts(layout, seed, plan);
        }
    }
}

fn faulty(layout: Layout) -> (Arc<FaultMedium>, Arc<dyn Medium>) {
    let medium = Arc::new(FaultMedium::over_memory(3000, Plan::default()));
    create_as(&*medium, layout);
    (medium.clone(), medium)
}

fn lives_with_power_cuts(layout: Layout, seed: u64, plan: Plan) {
    let (medium, as_medium) = faulty(layout);
    let mut history = History::new(layout, 0, 500);
    let mut random = Random(seed);
    for life in 0..6 {
        medium.set_plan(plan.clone());
        let volume = open_by_turns(&as_medium, layout, seed + life);
        let mut client = Client::new(&volume);
        history.check(&mut client);
        // In the middle of some operation, or between two.
        if life % 2 == 0 {
            medium.set_plan(plan.clone().with_cut_after(random.below(60)));
        }
        let writes = 200 + random.below(3000);
        history.write_on(&mut client, &mut random, writes);
        if !medium.is_off() {
            medium.power_cut(seed * 100 + life);
        }
        drop(client);
        drop(volume);
        medium.restart();
        medium.set_plan(Plan::default());
        assert_sound(&*medium);
    }
}

/// Each of several clients finds a prefix of its own writes. They are ordered among themselves, because each waits for its answer
/// before it continues.
#[test]
fn a_power_cut_under_many_clients_keeps_each_ones_prefix() {
    for (seed, layout) in (0..12).flat_map(|seed| LAYOUTS.map(|layout| (seed, layout))) {
        let plan = Plan::seeded(seed);
        let medium = Arc::new(FaultMedium::over_memory(4000, plan.clone()));
        create_as(&*medium, layout);
        let as_medium: Arc<dyn Medium> = medium.clone();
        let mut histories: Vec<_> = (0..4).map(|n| History::new(layout, n * 500, 500)).collect();
        for life in 0..4 {
            let volume = open(&as_medium);
            let cut_after = Some(20 + seed * 7 + life * 13);
            medium.set_plan(Plan {
                cut_after,
                ..plan.clone()
            });
            std::thread::scope(|scope| {
                for (thread, history) in histories.iter_mut().enumerate() {
                    let mut client = Client::new(&volume);
                    scope.spawn(move || {
                        let mut random = Random(seed * 1000 + life * 10 + thread as u64);
                        history.write_on(&mut client, &mut random, 4000);
                    });
                }
            });
            drop(volume);
            medium.restart();
            medium.set_plan(plan.clone());
            assert_sound(&*medium);
            let volume = open(&as_medium);
            for history in &mut histories {
                history.check(&mut Client::new(&volume));
            }
            volume.stop().unwrap();
        }
    }
}

/// Checks the oracle of the tests above: it detects a medium that lies about its syncs.
#[test]
fn a_lying_medium_is_found_out() {
    let plan = Plan::default().with_every(Fault::LostSync, ALL);
    for layout in LAYOUTS {
        let found = (0..20).any(|seed| {
            let plan = plan.clone();
            std::thread::spawn(move || lives_with_power_cuts(layout, seed, plan))
                .join()
                .is_err()
        });
        assert!(found, "{layout:?}");
    }
}

#[test]
fn a_cut_during_recovery_is_survived() {
    LAYOUTS.into_iter().for_each(lives_with_cuts_at_openings);
}

fn lives_with_cuts_at_openings(layout: Layout) {
    let (medium, as_medium) = faulty(layout);
    let mut history = History::new(layout, 0, 500);
    let mut random = Random(5);
    for life in 0..20 {
        {
            let volume = open(&as_medium);
            let mut client = Client::new(&volume);
            history.check(&mut client);
            history.write_on(&mut client, &mut random, 800);
            medium.power_cut(life);
        }
        medium.restart();
        medium.set_plan(Plan::seeded(life).with_cut_after(life));
        let opened = Volume::open(Arc::clone(&as_medium), &small());
        if !medium.is_off() {
            medium.power_cut(life);
        }
        drop(opened);
        medium.restart();
        medium.set_plan(Plan::default());
    }
}

#[test]
fn a_failed_sync_poisons() {
    LAYOUTS.into_iter().for_each(a_sync_fails);
}

fn a_sync_fails(layout: Layout) {
    let (medium, as_medium) = faulty(layout);
    let volume = open(&as_medium);
    let mut client = Client::new(&volume);
    client.write(1, &[11]).unwrap();
    client.flush().unwrap();
    let plan = Plan::default().with_every(Fault::SyncError, ALL);
    medium.set_plan(plan.with_every(Fault::WriteError, ALL));
    client.write(2, &[22]).unwrap();
    assert!(matches!(client.flush(), Err(BlockError::Io(_))));
    // The medium works again, but the volume does not pretend that nothing happened.
    medium.set_plan(Plan::default());
    assert!(matches!(client.write(3, &[33]), Err(BlockError::Io(_))));
    assert!(matches!(client.flush(), Err(BlockError::Io(_))));
    assert_eq!(client.read(1, 1).unwrap(), [11]);
    assert!(volume.stats().poisoned);
    assert!(!volume.events().is_empty());
    assert_eq!(volume.stop(), Err(StopError::Poisoned));
    drop(client);
    drop(volume);
    let volume = open(&as_medium);
    let mut client = Client::new(&volume);
    assert_eq!(client.read(1, 1).unwrap(), [11]);
    client.write(3, &[33]).unwrap();
    client.flush().unwrap();
    volume.stop().unwrap();
}

/// What could not be written stays in its frames, so that it can be read. A client that continues to write is refused all the
/// same.
#[test]
fn a_client_of_a_poisoned_volume_is_refused_and_not_kept_waiting() {
    LAYOUTS.into_iter().for_each(writes_fail);
}

fn writes_fail(layout: Layout) {
    let (medium, as_medium) = faulty(layout);
    let frames = 1024;
    let options = OpenOptions {
        write_frames: frames,
        ..OpenOptions::default()
    };
    let volume = Arc::new(Volume::open(as_medium, &options).unwrap());
    let mut client = Client::new(&volume);
    medium.set_plan(Plan::default().with_every(Fault::WriteError, ALL));
    let values: Vec<u64> = (1..=600).collect();
    client.write(0, &values).unwrap();
    assert!(matches!(client.flush(), Err(BlockError::Io(_))));
    let all = volume.frames().take(Quota::Write, frames as usize);
    assert!(
        matches!(all, Err(BlockError::Io(_))),
        "{:?}",
        volume.stats()
    );
    let values: Vec<u64> = (1..=600).collect();
    assert!(matches!(client.write(0, &values), Err(BlockError::Io(_))));
    assert_eq!(client.read(1, 1).unwrap(), [2]);
    assert_eq!(volume.stop(), Err(StopError::Poisoned));
}

#[test]
fn damage_is_an_error_and_never_data() {
    LAYOUTS.into_iter().for_each(a_bit_flips);
}

fn a_bit_flips(layout: Layout) {
    let medium = Arc::new(MemoryMedium::new(3000));
    create_as(&*medium, layout);
    let as_medium: Arc<dyn Medium> = medium.clone();
    let volume = open(&as_medium);
    let mut client = Client::new(&volume);
    let fills: Vec<u64> = (1..=100).collect();
    client.write(0, &fills).unwrap();
    client.flush().unwrap();
    // Finds a block of ours on the medium and flips one bit of it.
    let mut block = [0; BLOCK_BYTES];
    let at = (0..3000)
        .find(|&at| {
            medium.read(Pba(at), &mut block).unwrap();
            block == common::block_of(42)
        })
        .unwrap();
    block[4000] ^= 1;
    medium.write(Pba(at), &block).unwrap();
    let refused = client.read(41, 1).unwrap_err();
    assert!(refused.to_string().contains(&at.to_string()), "{refused}");
    assert!(client.read(30, 20).is_err());
    assert_eq!(client.read(42, 58).unwrap(), fills[42..]);
    assert_eq!(volume.stats().checksum_failures, 2);
    assert!(volume.events().iter().any(|event| event.kind == "checksum"));
    // An overwrite repairs it.
    client.write(41, &[7]).unwrap();
    client.flush().unwrap();
    assert_eq!(client.read(41, 1).unwrap(), [7]);
    volume.stop().unwrap();
}

#[test]
fn a_read_error_is_told_and_passes() {
    LAYOUTS.into_iter().for_each(a_read_fails);
}

fn a_read_fails(layout: Layout) {
    let (medium, as_medium) = faulty(layout);
    let volume = open(&as_medium);
    let mut client = Client::new(&volume);
    client.write(1, &[11]).unwrap();
    client.flush().unwrap();
    medium.set_plan(Plan::default().with_nth(Fault::ReadError, 0));
    assert!(matches!(client.read(1, 1), Err(BlockError::Io(_))));
    assert_eq!(client.read(1, 1).unwrap(), [11]);
    assert!(!volume.stats().poisoned);
}

/// The reaper reports a medium's error, and a client's thread delivers the answers that are ready: neither holds the lock.
#[test]
fn a_panic_beside_the_core_breaks_the_volume_and_answers_everybody() {
    struct Panics(Arc<Sink>);
    impl Replies for Panics {
        fn complete(&self, request: Request, result: Result<(), BlockError>) {
            assert_ne!(request.tag, u64::MAX, "on purpose");
            self.0.complete(request, result);
        }
        fn flush(&self) {
            self.0.flush();
        }
    }
    for fault in [Some(Fault::ReadError), Some(Fault::FlipRead), None] {
        let medium = Arc::new(FaultMedium::over_memory(3000, Plan::default()));
        create(&*medium);
        let options = OpenOptions {
            on_event: Some(Arc::new(|event| panic!("on purpose: {}", event.message))),
            ..small()
        };
        let volume = Arc::new(Volume::open(medium.clone(), &options).unwrap());
        let mut client = Client::new(&volume);
        client.write(1, &[11]).unwrap();
        client.flush().unwrap();
        if let Some(fault) = fault {
            medium.set_plan(Plan::default().with_every(fault, ALL));
            assert!(client.read(1, 1).is_err(), "{fault:?}");
        } else {
            let mut requests: Vec<Request> = (5..8)
                .map(|lba| client.write_request(lba, &[22], false))
                .collect();
            (requests[0].tag, requests[1].tag) = (u64::MAX, u64::MAX);
            let other = requests[2].tag;
            let sink: Arc<dyn Replies> = Arc::new(Panics(Arc::clone(&client.sink)));
            let submit = || volume.submit(&mut requests, &sink);
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(submit)).unwrap_err();
            client.sink.wait(other).unwrap();
        }
        wait_for(&volume, "writes are refused", |_| {
            matches!(client.write(3, &[33]), Err(BlockError::Io(_)))
        });
        assert!(matches!(client.flush(), Err(BlockError::Io(_))));
        assert_eq!(volume.stop(), Err(StopError::Internal), "{fault:?}");
    }
}

#[test]
fn requests_in_flight_at_a_drop_are_answered() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(3000));
    create(&*medium);
    let volume = open(&medium);
    let mut client = Client::new(&volume);
    let requests = (0..50)
        .map(|lba| client.write_request(lba, &[lba + 1], true))
        .collect();
    let tags = client.submit(requests);
    let Client {
        volume: theirs,
        sink,
        ..
    } = client;
    drop(theirs);
    assert_eq!(Arc::strong_count(&volume), 1);
    drop(volume);
    for tag in tags {
        match sink.wait(tag) {
            Ok(_) | Err(BlockError::Stopping) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn an_unsealed_write_reaches_the_medium_by_itself() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(3000));
    create(&*medium);
    let volume = open(&medium);
    Client::new(&volume).write(1, &[11]).unwrap();
    let began = std::time::Instant::now();
    while volume.stats().medium.writes == 0 {
        assert!(began.elapsed().as_secs() < 60, "the clock is looked at");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(volume.blocks(), volume.info().logical_bytes / 4096);
}
