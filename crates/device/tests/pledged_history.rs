//! A file system that journals on a volume with snapshots and clones, until the power fails. The volume then puts home what was
//! committed, and every snapshot reads as when it was taken, under any policy.
//!
//! `VELLUM_LIVES=n` runs as many lives, from `VELLUM_SEED` on; each can be replayed alone.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;
#[path = "common/drawn.rs"]
mod drawn;
#[path = "common/host.rs"]
mod host;

use common::{Client, Random, assert_sound, stop_sound};
use drawn::{Counted, Drawn, contents, has_lost_power, seeds};
use host::{
    Act, FILES, FILLER, HOMES, Host, SIZE, Sums, act, made, noise, sum_of, sums, try_sums,
    write_request,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};
use vellum_core::addr::Lba;
use vellum_device::block::{BlockDevice, BlockError};
use vellum_device::{SnapshotError, Volume, crc32c};
use vellum_medium::{FaultMedium, Medium, Plan};

/// How often the file system is mounted with one seed.
const LIVES: u64 = 4;

/// What has to be there.
#[derive(Clone, Default)]
struct Model {
    now: Sums,
    /// What a crash may put home: the newest committed copy of each home block since it was written, and where the journal has it.
    committed: BTreeMap<u64, (u64, u32)>,
    snapshots: BTreeMap<String, Sums>,
    /// Each with its snapshot.
    clones: BTreeMap<String, (String, Sums)>,
}

impl Model {
    /// The contents found.
    fn of(volume: &Arc<Volume>) -> Self {
        let mut model = Self {
            now: sums(volume),
            ..Self::default()
        };
        for info in volume.snapshots().unwrap() {
            let name = info.name;
            match volume.clone_at(&name).unwrap() {
                Some(clone) => {
                    let clone = (info.clone_of.unwrap(), sums(&Arc::new(clone)));
                    model.clones.insert(name, clone);
                }
                None => {
                    let seen = Arc::new(volume.seen_at(&name).unwrap());
                    model.snapshots.insert(name, sums(&seen));
                }
            }
        }
        model
    }

    fn set(&mut self, lba: u64, sum: u32) {
        self.now.insert(lba, sum);
        self.committed
            .retain(|home, (journal, _)| *home != lba && *journal != lba);
    }

    /// The state after an act; `each` sees it before and after each block that it changes.
    fn after(&mut self, act: &Act, each: &mut dyn FnMut(&Self)) {
        match act {
            Act::Write(lba, blocks, copies) => {
                for (lba, block) in (*lba..).zip(blocks) {
                    each(self);
                    self.set(lba, crc32c(block));
                }
                // They are directly before the commit block.
                let first = lba + blocks.len() as u64 - 1 - copies.len() as u64;
                for ((home, fill), journal) in copies.iter().zip(first..) {
                    self.committed.insert(*home, (journal, sum_of(*fill)));
                }
            }
            Act::Discard(lba, blocks) => {
                for lba in *lba..lba + blocks {
                    each(self);
                    self.set(lba, sum_of(0));
                }
            }
            Act::Flush => {}
            Act::Take(name) => drop(self.snapshots.insert(name.clone(), self.now.clone())),
            Act::Clone(of, name) => {
                let clone = (of.clone(), self.snapshots[of].clone());
                self.clones.insert(name.clone(), clone);
            }
            Act::WriteClone(name, lba, fills) => {
                for (lba, fill) in (*lba..).zip(fills) {
                    each(self);
                    let (_, clone) = self.clones.get_mut(name).unwrap();
                    clone.insert(lba, sum_of(*fill));
                }
            }
            Act::Delete(name) => {
                self.snapshots.remove(name);
                self.clones.remove(name);
            }
            Act::RollBack(name) => {
                self.now = self.snapshots[name].clone();
                self.committed.clear();
            }
        }
        each(self);
    }

    /// How what was found differs; `None` if a crash may have left it of this.
    fn differs_from(&self, found: &Self) -> Option<String> {
        let names = |model: &Self| {
            let all = model.snapshots.keys().chain(model.clones.keys());
            all.cloned().collect::<Vec<_>>()
        };
        if names(self) != names(found) {
            return Some(format!("{:?} and not {:?}", names(found), names(self)));
        }
        let nothing = BTreeMap::new();
        let differ = |name: &str, known: &Sums, found: &Sums, committed: &BTreeMap<u64, _>| {
            let may_be = |lba: &u64, sum: &u32| {
                let copy: Option<&(u64, u32)> = committed.get(lba);
                known[lba] == *sum || copy.is_some_and(|(_, copy)| copy == sum)
            };
            let differs = found.iter().find(|(lba, sum)| !may_be(lba, sum));
            differs.map(|(lba, _)| format!("{name}: block {lba}"))
        };
        let clones = self.clones.iter().map(|(name, (_, sums))| (name, sums));
        let others = self.snapshots.iter().chain(clones);
        let of_others = others.filter_map(|(name, known)| {
            let clone = found.clones.get(name).map(|(_, sums)| sums);
            let found = clone.unwrap_or_else(|| &found.snapshots[name]);
            differ(name, known, found, &nothing)
        });
        let of_now = differ("volume", &self.now, &found.now, &self.committed);
        of_now.into_iter().chain(of_others).next()
    }

    /// The same, without a crash.
    fn is(&mut self, found: &Self, when: &str) {
        self.committed.clear();
        assert_eq!(self.differs_from(found), None, "{when}");
    }
}

impl Host {
    /// What comes next.
    fn next(&mut self, model: &Model) -> Vec<Act> {
        self.fresh += 10;
        let any = |random: &mut Random, of: Vec<&String>| {
            let at = random.below(of.len().max(1) as u64) as usize;
            of.get(at).map(|name| (*name).clone())
        };
        let snapshot = any(&mut self.random, model.snapshots.keys().collect());
        let clone = any(&mut self.random, model.clones.keys().collect());
        let length = 1 + self.random.below(5);
        let (kind, within) = match self.random.below(3) {
            0 => (self.random.below(40), HOMES),
            _ => (self.random.below(40), FILES),
        };
        let lba = within.start + self.random.below(within.end - within.start - length);
        let fills = contents(&mut self.random, lba, length, self.fresh);
        let is_free = |name: &String| !model.clones.values().any(|(of, _)| of == name);
        match (kind, snapshot, clone) {
            (0..3, ..) if model.snapshots.len() < 4 => vec![Act::Take(format!("s{}", self.fresh))],
            (3, Some(of), _) if model.clones.len() < 2 => {
                vec![Act::Clone(of, format!("c{}", self.fresh))]
            }
            (4, Some(name), _) if is_free(&name) => vec![Act::Delete(name)],
            (5, _, Some(name)) => vec![Act::Delete(name)],
            (6, Some(name), _) => {
                let mut acts = vec![Act::RollBack(name)];
                acts.extend(self.mount());
                acts
            }
            (7..10, _, Some(name)) => vec![Act::WriteClone(name, lba, fills)],
            (10, ..) => vec![Act::Discard(lba, length)],
            (11..16, ..) => vec![Act::Write(lba, Self::blocks(&fills), Vec::new())],
            (16..24, ..) => {
                let most = 1 + self.random.below(6) as usize;
                self.go_home(most)
            }
            (24..26, ..) => vec![Act::Flush],
            (26..32, ..) => {
                // The log comes round.
                let lba = FILLER.start + self.random.below(FILLER.end - FILLER.start - 40);
                vec![Act::Write(lba, noise(self.fresh << 16), Vec::new())]
            }
            _ => self.commit(),
        }
    }
}

/// The log of a life.
struct Life {
    begun: Model,
    acts: Vec<Act>,
    /// How many of them are certainly durable.
    durable: usize,
    now: Model,
}

impl Life {
    fn new(begun: Model) -> Self {
        Self {
            now: begun.clone(),
            begun,
            acts: Vec::new(),
            durable: 0,
        }
    }

    /// Carries these out; false if the power has failed, or if what the snapshots keep has filled the volume.
    fn carry_out(&mut self, volume: &Arc<Volume>, acts: Vec<Act>) -> bool {
        acts.into_iter().all(|one| {
            let done = act(volume, &one);
            let is_done = done.is_ok();
            if let Err(SnapshotError::Block(BlockError::Full)) = done {
                let room = volume.stats().room;
                assert!(room.used_percent >= 90, "{one:?}: there is room: {room:?}");
            }
            if is_done {
                self.now.after(&one, &mut |_| {});
            }
            let is_durable =
                !matches!(one, Act::Write(..) | Act::Discard(..) | Act::WriteClone(..));
            self.acts.push(one);
            if is_done && is_durable {
                self.durable = self.acts.len();
            }
            is_done
        })
    }

    /// How what was found differs from all that a crash may have left since the last act that is certainly durable.
    fn is_no_instant(&self, found: &Model) -> Option<String> {
        let mut model = self.begun.clone();
        let mut differs = model.differs_from(found);
        let mut is_found = self.durable == 0 && differs.is_none();
        for (number, one) in self.acts.iter().enumerate() {
            model.after(one, &mut |state| {
                if number + 1 >= self.durable {
                    let now = state.differs_from(found);
                    is_found |= now.is_none();
                    differs = now.or(differs.take());
                }
            });
        }
        differs.filter(|_| !is_found)
    }
}

/// Nothing is left when all of them are deleted.
fn gone(volume: &Volume, found: &Model, medium: &dyn Medium) {
    for name in found.clones.keys().chain(found.snapshots.keys()) {
        volume.delete_snapshot(name).unwrap();
    }
    let behind = volume.extents(Lba(SIZE), 1000, 10);
    assert!(behind.iter().all(|run| !run.mapped));
    stop_sound(volume, medium);
}

fn lives(seed: u64, counted: &mut Counted) {
    let fault = made();
    let medium: Arc<dyn Medium> = fault.clone();
    let mut host = Host::new(seed);
    let mut before: Option<Life> = None;
    for number in 0..=LIVES {
        let drawn = Drawn::of(seed + number);
        let volume = drawn.open(&medium, &mut host.random);
        let when = format!("VELLUM_SEED={seed} VELLUM_LIVES=1, life {number}, {drawn:?}");
        let found = Model::of(&volume);
        if let Some(before) = before {
            assert_eq!(before.is_no_instant(&found), None, "{when}");
        }
        if number == LIVES {
            return gone(&volume, &found, &*medium);
        }
        let mut life = Life::new(found);
        host.look(&volume);
        let cut = host.random.below(3) < 2;
        if cut {
            let ios = 5 + host.random.below(400);
            fault.set_plan(Plan::seeded(seed).with_cut_after(ios));
        }
        let mount = host.mount();
        let mut goes_on = life.carry_out(&volume, mount);
        for _ in 0..100 {
            let acts = host.next(&life.now);
            goes_on = goes_on && life.carry_out(&volume, acts);
        }
        if goes_on && !cut {
            life.now.clone().is(&Model::of(&volume), &when);
        }
        counted.add(&volume);
        if number == 3 && !cut {
            volume.stop().unwrap();
            if goes_on {
                life.now.committed.clear();
                life = Life::new(life.now);
            }
        }
        end(&fault, volume, (seed, cut));
        assert_sound(&*medium);
        before = Some(life);
    }
}

/// Ends a life: by a power cut, or by a kill if the volume was not stopped.
fn end(fault: &FaultMedium, volume: Arc<Volume>, (seed, cut): (u64, bool)) {
    if cut {
        if !fault.is_off() {
            fault.power_cut(seed);
        }
        has_lost_power(&volume);
    }
    drop(volume);
    fault.set_plan(Plan::default());
    if cut {
        fault.restart();
    }
}

#[test]
fn a_snapshot_reads_as_it_was_taken_whatever_is_put_home() {
    let mut counted = Counted::default();
    seeds(20).for_each(|seed| lives(seed, &mut counted));
    eprintln!("{counted:?}");
    counted.has_seen_in(20, &Counted::PLAIN);
    counted.has_seen_in(20, &["collections"]);
    counted.has_seen_in(20, &Counted::JOURNALED);
}

/// What a client that journals tells the one that takes snapshots.
struct Progress {
    goes_on: AtomicBool,
    steps: AtomicU64,
}

impl Progress {
    /// Waits until it has gone on by some steps, or has ended.
    fn wait_for(&self, steps: u64) {
        let end = self.steps.load(Ordering::Relaxed) + steps;
        let start = Instant::now();
        while self.goes_on.load(Ordering::Relaxed) && self.steps.load(Ordering::Relaxed) < end {
            assert!(start.elapsed() < Duration::from_secs(60), "it hangs");
            sleep(Duration::from_micros(50));
        }
    }
}

/// Tells the other client when one ends, also by a panic: it would wait for ever.
struct Ends<'a>(&'a Progress);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.goes_on.store(false, Ordering::Relaxed);
    }
}

/// Journals until the volume refuses, or nobody takes snapshots any more. Some commit blocks arrive before what they commit.
fn journal_on(volume: &Arc<Volume>, host: &mut Host, progress: &Progress) {
    let _ends = Ends(progress);
    let mut client = Client::new(volume);
    let mut early = None;
    while progress.goes_on.load(Ordering::Relaxed) {
        let acts = match host.random.below(8) {
            0..5 => host.commit(),
            5 | 6 => host.go_home(3),
            _ => vec![Act::Discard(HOMES.start + host.random.below(20), 2)],
        };
        let mut acts = VecDeque::from(acts);
        while let Some(one) = acts.pop_front() {
            if let (Act::Write(..), Some(Act::Write(at, blocks, pairs))) = (&one, acts.front())
                && !pairs.is_empty()
                && host.random.below(2) == 0
            {
                let commit = write_request(&mut client, *at, blocks).ok();
                early = commit.and_then(|commit| client.submit(vec![commit]).pop());
                acts.pop_front();
                let most = if host.random.below(10) == 0 { 300 } else { 2 };
                sleep(Duration::from_millis(host.random.below(most)));
            }
            let is_done = act(volume, &one).is_ok();
            let is_committed = early.take().is_none_or(|tag| client.sink.wait(tag).is_ok());
            if !is_done || !is_committed {
                return;
            }
        }
        progress.steps.fetch_add(1, Ordering::Relaxed);
    }
}

/// Takes snapshots, and reads each of them, until the power fails. Returns those that were not deleted.
fn take_on(
    volume: &Arc<Volume>,
    random: &mut Random,
    progress: &Progress,
) -> BTreeMap<String, Sums> {
    let mut seen = BTreeMap::new();
    for number in 0..2 + random.below(12) {
        let name = format!("s{number}");
        if volume.take_snapshot(&name, number).is_err() {
            break;
        }
        let Ok(Ok(sums)) = volume.seen_at(&name).map(|view| try_sums(&Arc::new(view))) else {
            break;
        };
        seen.insert(name, sums);
        while seen.len() > random.below(4) as usize {
            let (name, _) = seen.pop_first().unwrap();
            if volume.delete_snapshot(&name).is_err() {
                return seen;
            }
        }
        progress.wait_for(random.below(16));
    }
    seen
}

/// No act waits for another one here, so a block may be pledged while a snapshot is taken.
#[test]
fn a_snapshot_taken_while_a_client_journals_reads_the_same_after_a_cut() {
    let mut counted = Counted::default();
    for seed in seeds(30) {
        let (fault, mut host) = (made(), Host::new(seed));
        let medium: Arc<dyn Medium> = fault.clone();
        let mut random = Random(seed + 1);
        // Only these rows replay.
        let drawn = Drawn::of(seed % 4);
        let volume = drawn.open(&medium, &mut random);
        host.look(&volume);
        host.mount()
            .iter()
            .for_each(|one| act(&volume, one).unwrap());
        let ios = 5 + random.below(1000);
        fault.set_plan(Plan::seeded(seed).with_cut_after(ios));
        let progress = Progress {
            goes_on: AtomicBool::new(true),
            steps: AtomicU64::new(0),
        };
        let seen = std::thread::scope(|scope| {
            scope.spawn(|| journal_on(&volume, &mut host, &progress));
            let _ends = Ends(&progress);
            take_on(&volume, &mut random, &progress)
        });
        counted.add(&volume);
        if !fault.is_off() {
            fault.power_cut(seed);
        }
        has_lost_power(&volume);
        drop(volume);
        fault.set_plan(Plan::default());
        fault.restart();
        let volume = drawn.open(&medium, &mut random);
        for (name, sums) in seen {
            let view = Arc::new(volume.seen_at(&name).unwrap());
            let differs = differ(&sums, &try_sums(&view).unwrap());
            assert_eq!(differs, None, "VELLUM_SEED={seed}: snapshot {name}");
        }
        counted.add(&volume);
        stop_sound(&volume, &*medium);
    }
    eprintln!("{counted:?}");
    counted.has_seen_in(30, &Counted::JOURNALED);
}

/// The first block that differs.
fn differ(known: &Sums, found: &Sums) -> Option<u64> {
    found
        .iter()
        .find(|(lba, sum)| known[lba] != **sum)
        .map(|(lba, _)| *lba)
}
