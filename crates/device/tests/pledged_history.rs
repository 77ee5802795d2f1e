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
#[path = "../../../fuzz/src/ext4.rs"]
#[allow(dead_code, unused_imports, reason = "one part of it is used")]
mod ext4;
#[path = "common/log.rs"]
mod log;

use common::{Client, Random, assert_sound, block_of, create_keeping, stop_sound, wait_for};
use drawn::{Counted, Drawn, contents, seeds};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use vellum_core::addr::Lba;
use vellum_device::block::{BlockDevice, BlockError, Op};
use vellum_device::{SnapshotError, Volume, crc32c};
use vellum_medium::{FaultMedium, Medium, Plan};

/// Blocks that clients see: all of the file system.
const SIZE: u64 = 4096;
/// The place of the journal, and the blocks of it that are used.
const JOURNAL: u64 = 68;
const USED: u64 = 120;
/// Blocks that the journal commits.
const HOMES: std::ops::Range<u64> = 1400..1424;
/// Blocks that it does not.
const FILES: std::ops::Range<u64> = 1424..1480;
/// How often the file system is mounted with one seed.
const LIVES: u64 = 4;
/// What is compared.
const SHOWN: [std::ops::Range<u64>; 2] = [0..200, 1390..1490];

/// Sums of all blocks that are compared.
type Sums = BTreeMap<u64, u32>;

fn sums<D: BlockDevice>(device: &Arc<D>) -> Sums {
    let mut client = Client::new(device);
    let mut found = Sums::new();
    for lba in SHOWN.into_iter().flatten().step_by(10) {
        let request = client.request(Op::Read, lba, 10);
        let read = client.call(request).unwrap();
        let blocks = (0..10).map(|n| crc32c(read.frames.block(n)));
        found.extend((lba..).zip(blocks));
    }
    found
}

fn sum_of(fill: u64) -> u32 {
    crc32c(&block_of(fill))
}

/// One act of the client.
#[derive(Clone, Debug)]
enum Act {
    /// The last block may commit copies: each with its home, and its number.
    Write(u64, Vec<Vec<u8>>, Vec<(u64, u64)>),
    Discard(u64, u64),
    Flush,
    Take(String),
    Clone(String, String),
    WriteClone(String, u64, Vec<u64>),
    Delete(String),
    RollBack(String),
}

/// What has to be there.
#[derive(Clone, Default)]
struct Model {
    now: Sums,
    /// What a crash may put home: the committed copies of each home block since it was written.
    committed: BTreeMap<u64, BTreeSet<u32>>,
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
        self.committed.remove(&lba);
    }

    /// The state after an act; `each` sees it before and after each block that it changes.
    fn after(&mut self, act: &Act, each: &mut dyn FnMut(&Self)) {
        match act {
            Act::Write(lba, blocks, copies) => {
                for (lba, block) in (*lba..).zip(blocks) {
                    each(self);
                    self.set(lba, crc32c(block));
                }
                for (home, fill) in copies {
                    let all = self.committed.entry(*home).or_default();
                    all.insert(sum_of(*fill));
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
                let copies: Option<&BTreeSet<u32>> = committed.get(lba);
                known[lba] == *sum || copies.is_some_and(|copies| copies.contains(sum))
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

fn act(volume: &Arc<Volume>, one: &Act) -> Result<(), SnapshotError> {
    let mut client = Client::new(volume);
    match one {
        Act::Write(lba, blocks, _) => {
            let op = Op::Write { fua: false };
            let mut request = client.request(op, *lba, blocks.len() as u64);
            for (index, block) in blocks.iter().enumerate() {
                request.frames.block_mut(index).copy_from_slice(block);
            }
            client.call(request).map(drop)?;
        }
        Act::Discard(lba, blocks) => client.discard(*lba, *blocks)?,
        Act::Flush => client.flush()?,
        Act::Take(name) => volume.take_snapshot(name, 1)?,
        Act::Clone(of, name) => volume.clone_snapshot(of, name, 1)?,
        Act::WriteClone(name, lba, fills) => {
            let clone = Arc::new(volume.clone_at(name)?.expect("it is a clone"));
            Client::new(&clone).write(*lba, fills)?;
        }
        Act::Delete(name) => volume.delete_snapshot(name)?,
        Act::RollBack(name) => volume.roll_back(name)?,
    }
    Ok(())
}

/// The client's file system: what it knows of its journal.
struct Host {
    random: Random,
    superblock: Vec<u8>,
    /// The number and the place of the next transaction.
    sequence: u32,
    block: u64,
    /// Copies that are committed and not home.
    away: BTreeMap<u64, u64>,
    fresh: u64,
}

impl Host {
    fn blocks(fills: &[u64]) -> Vec<Vec<u8>> {
        fills.iter().map(|fill| block_of(*fill).to_vec()).collect()
    }

    /// Begins the log again, at its first block.
    fn begin(&mut self) -> Vec<Act> {
        self.block = 1;
        log::begin(&mut self.superblock, self.sequence, 1);
        vec![
            Act::Write(JOURNAL, vec![self.superblock.clone()], Vec::new()),
            Act::Flush,
        ]
    }

    /// As a mount after a replay.
    fn mount(&mut self) -> Vec<Act> {
        self.away.clear();
        self.sequence += 20;
        log::begin(&mut self.superblock, self.sequence, 0);
        let empty = Act::Write(JOURNAL, vec![self.superblock.clone()], Vec::new());
        let mut acts = vec![empty, Act::Flush];
        acts.extend(self.begin());
        acts
    }

    fn go_home(&mut self, most: usize) -> Vec<Act> {
        let homes: Vec<u64> = self.away.keys().take(most).copied().collect();
        let write = |home| {
            let fill = self.away.remove(&home)?;
            Some(Act::Write(home, Self::blocks(&[fill]), Vec::new()))
        };
        homes.into_iter().filter_map(write).collect()
    }

    fn commit(&mut self) -> Vec<Act> {
        let count = 1 + self.random.below(5);
        let first = HOMES.start + self.random.below(HOMES.end - HOMES.start - 2 * count);
        let homes: Vec<u64> = (0..count).map(|n| first + 2 * n).collect();
        self.fresh += 10;
        let mut fills = contents(&mut self.random, first, count, self.fresh);
        if self.random.below(6) == 0 {
            fills[0] = 0;
        }
        let copies = Self::blocks(&fills);
        let mut acts = Vec::new();
        if self.block + count + 2 > USED {
            acts.extend(self.go_home(usize::MAX));
            acts.push(Act::Flush);
            acts.extend(self.begin());
        }
        let named: Vec<(u32, u32)> = homes.iter().map(|home| (*home as u32, 0)).collect();
        let parts: Vec<&[u8]> = copies.iter().map(Vec::as_slice).collect();
        let mut blocks = vec![log::descriptor(self.sequence, &named, &parts)];
        blocks.extend(copies);
        let commit = log::commit(self.sequence);
        let at = JOURNAL + self.block;
        let pairs: Vec<(u64, u64)> = homes.into_iter().zip(fills).collect();
        self.away.extend(pairs.iter().copied());
        self.sequence += 1;
        self.block += count + 2;
        match self.random.below(2) {
            0 => {
                blocks.push(commit);
                acts.push(Act::Write(at, blocks, pairs));
            }
            _ => {
                acts.push(Act::Write(at, blocks, Vec::new()));
                acts.push(Act::Write(at + count + 1, vec![commit], pairs));
            }
        }
        acts.push(Act::Flush);
        acts
    }

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

    /// Carries these out; false if the power has failed.
    fn carry_out(&mut self, volume: &Arc<Volume>, acts: Vec<Act>) -> bool {
        acts.into_iter().all(|one| {
            let done = act(volume, &one);
            let is_done = done.is_ok();
            if let Err(SnapshotError::Block(BlockError::Full)) = done {
                panic!("{one:?}: there is room");
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

/// A volume with a file system on it, which nobody has mounted yet.
fn made() -> Arc<FaultMedium> {
    let fault = Arc::new(FaultMedium::over_memory(8000, Plan::default()));
    create_keeping(&*fault, SIZE, 400);
    let medium: Arc<dyn Medium> = fault.clone();
    let volume = common::open(&medium);
    for (at, bytes) in ext4::mounted().pages() {
        let page = Act::Write(at / 4096, vec![bytes.to_vec()], Vec::new());
        act(&volume, &page).unwrap();
    }
    volume.stop().unwrap();
    fault
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
    let mut host = Host {
        random: Random(seed),
        superblock: Vec::new(),
        sequence: 1,
        block: 1,
        away: BTreeMap::new(),
        fresh: 1,
    };
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
        if host.random.below(4) > 0 {
            wait_for(&volume, "the scout", |volume| {
                !volume.stats().commits.looking
            });
        }
        let request = Client::new(&volume).request(Op::Read, JOURNAL, 1);
        let read = Client::new(&volume).call(request).unwrap();
        host.superblock = read.frames.block(0).to_vec();
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
        end(&fault, volume, (seed, number, cut), &mut life);
        assert_sound(&*medium);
        before = Some(life);
    }
}

/// Ends a life: by a power cut, by a kill, or by a stop.
fn end(
    fault: &FaultMedium,
    volume: Arc<Volume>,
    (seed, number, cut): (u64, u64, bool),
    life: &mut Life,
) {
    if cut {
        if !fault.is_off() {
            fault.power_cut(seed);
        }
    } else if number == 3 {
        volume.stop().unwrap();
        life.now.committed.clear();
        *life = Life::new(life.now.clone());
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
    seeds(12).for_each(|seed| lives(seed, &mut counted));
    eprintln!("{counted:?}");
    counted.has_seen_in(12, &Counted::PLAIN);
    counted.has_seen_in(12, &Counted::JOURNALED);
}
