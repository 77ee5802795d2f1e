//! A clone reads as its snapshot with the clone's writes, and nothing else changes, whatever happens meanwhile to the volume, its
//! snapshots and other clones, and whenever the power fails.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;
#[path = "common/drawn.rs"]
mod drawn;
#[path = "common/gate.rs"]
mod gate;

use common::{Client, Random, assert_sound, create_keeping, open_packing, read_all, superblock_of};
use drawn::{Counted, Drawn, contents, has_lost_power, seeds};
use gate::Gate;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use vellum_core::addr::Lba;
use vellum_device::block::{BlockDevice, BlockError, Op};
use vellum_device::pack::Compression;
use vellum_device::{Cloned, SnapshotError, Volume};
use vellum_medium::{FaultMedium, Medium, MemoryMedium, Plan};

const BLOCKS: u64 = 4000;
const SIZE: u64 = 120;

fn create(medium: &dyn Medium, history: u32) {
    create_keeping(medium, SIZE, history);
}

fn open(medium: &Arc<dyn Medium>) -> Arc<Volume> {
    open_packing(medium, Compression::Lz4)
}

/// An earlier version must not take a clone's rows for a snapshot's. So no clone exists before the superblock says durably that there
/// are any, whichever of two is made first.
#[test]
fn no_clone_is_made_before_the_superblock_says_so() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(BLOCKS));
    create(&*medium, 300);
    let gate = Arc::new(Gate::new(Arc::clone(&medium), gate::MAKES_DURABLE));
    let gated: Arc<dyn Medium> = Arc::clone(&gate) as _;
    let volume = open(&gated);
    volume.take_snapshot("a", 1).unwrap();
    let clones = || {
        let all = volume.listed_snapshots().unwrap();
        all.iter().filter(|one| one.clone_of.is_some()).count()
    };
    gate.close();
    std::thread::scope(|scope| {
        scope.spawn(|| volume.clone_snapshot("a", "first", 2).unwrap());
        while !gate.holds() {
            std::thread::yield_now();
        }
        scope.spawn(|| volume.clone_snapshot("a", "second", 3).unwrap());
        std::thread::sleep(Duration::from_millis(300));
        let early = clones();
        gate.open();
        assert_eq!(early, 0);
    });
    assert_eq!(clones(), 2);
    volume.stop().unwrap();
}

/// A change of blocks.
#[derive(Clone, Debug)]
enum Change {
    Write(u64, Vec<u64>),
    Discard(u64, u64),
    Zero(u64, u64),
}

/// One act of one thread.
#[derive(Clone, Debug)]
enum Act {
    /// On the volume, or on a clone.
    Change(Option<String>, Change),
    Take(String),
    Clone(String, String),
    Delete(String),
    RollBack(String),
    /// For the volume, or for a clone.
    Flush(Option<String>),
}

/// The expected contents of the volume, its snapshots and its clones.
#[derive(Clone, Default, PartialEq, Eq)]
struct Model {
    now: Vec<u64>,
    snapshots: BTreeMap<String, Vec<u64>>,
    /// Each with its snapshot.
    clones: BTreeMap<String, (String, Vec<u64>)>,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {:?}", self.snapshots.keys(), self.clones.keys())
    }
}

impl Model {
    fn new() -> Self {
        Self {
            now: vec![0; SIZE as usize],
            ..Self::default()
        }
    }

    /// The contents found.
    fn of(volume: &Arc<Volume>) -> Self {
        let mut model = Self {
            now: read_all(volume),
            ..Self::default()
        };
        for info in volume.snapshots().unwrap() {
            let name = info.name;
            match volume.clone_at(&name).unwrap() {
                Some(clone) => {
                    let blocks = read_all(&Arc::new(clone));
                    model.clones.insert(name, (info.clone_of.unwrap(), blocks));
                }
                None => {
                    let blocks = read_all(&Arc::new(volume.seen_at(&name).unwrap()));
                    model.snapshots.insert(name, blocks);
                }
            }
        }
        model
    }

    fn differs_from(&self, found: &Self) -> Option<String> {
        let differ = |what: &str, a: &[u64], b: &[u64]| {
            let at = (0..a.len()).find(|&at| a[at] != b[at])?;
            Some(format!("{what}: block {at} is {} and not {}", b[at], a[at]))
        };
        if self.snapshots.keys().ne(found.snapshots.keys())
            || self.clones.keys().ne(found.clones.keys())
        {
            return Some(format!("{found:?} and not {self:?}"));
        }
        let snapshots = self.snapshots.iter().zip(&found.snapshots);
        let clones = self.clones.iter().zip(&found.clones);
        differ("volume", &self.now, &found.now)
            .or_else(|| {
                snapshots
                    .into_iter()
                    .find_map(|((name, a), (_, b))| differ(name, a, b))
            })
            .or_else(|| {
                clones
                    .into_iter()
                    .find_map(|((name, (_, a)), (_, (_, b)))| differ(name, a, b))
            })
    }

    /// The state after an act; `each` sees it before and after each block that it changes.
    fn after(&mut self, act: &Act, each: &mut dyn FnMut(&Self)) {
        match act {
            Act::Change(whose, change) => {
                let (lba, fills) = match change {
                    Change::Write(lba, fills) => (*lba, fills.clone()),
                    Change::Discard(lba, blocks) | Change::Zero(lba, blocks) => {
                        (*lba, vec![0; *blocks as usize])
                    }
                };
                for (at, fill) in (lba as usize..).zip(fills) {
                    each(self);
                    match whose {
                        None => self.now[at] = fill,
                        Some(name) => self.clones.get_mut(name).unwrap().1[at] = fill,
                    }
                }
            }
            Act::Take(name) => drop(self.snapshots.insert(name.clone(), self.now.clone())),
            Act::Clone(of, name) => {
                let clone = (of.clone(), self.snapshots[of].clone());
                self.clones.insert(name.clone(), clone);
            }
            Act::Delete(name) => {
                self.snapshots.remove(name);
                self.clones.remove(name);
            }
            Act::RollBack(name) => self.now = self.snapshots[name].clone(),
            Act::Flush(_) => {}
        }
        each(self);
    }
}

fn change<D: BlockDevice>(client: &mut Client<D>, change: &Change) -> Result<(), BlockError> {
    match change {
        Change::Write(lba, fills) => client.write(*lba, fills),
        Change::Discard(lba, blocks) => client.discard(*lba, *blocks),
        Change::Zero(lba, blocks) => {
            let request = client.request(Op::WriteZeroes { fua: false }, *lba, *blocks);
            client.call(request).map(drop)
        }
    }
}

fn cloned(volume: &Arc<Volume>, name: &str) -> Arc<Cloned> {
    Arc::new(volume.clone_at(name).unwrap().expect("it is a clone"))
}

fn act(volume: &Arc<Volume>, act: &Act) -> Result<(), SnapshotError> {
    match act {
        Act::Change(None, one) => change(&mut Client::new(volume), one)?,
        Act::Change(Some(name), one) => change(&mut Client::new(&cloned(volume, name)), one)?,
        Act::Take(name) => volume.take_snapshot(name, 1)?,
        Act::Clone(of, name) => volume.clone_snapshot(of, name, 1)?,
        Act::Delete(name) => volume.delete_snapshot(name)?,
        Act::RollBack(name) => volume.roll_back(name)?,
        Act::Flush(None) => Client::new(volume).flush()?,
        Act::Flush(Some(name)) => Client::new(&cloned(volume, name)).flush()?,
    }
    Ok(())
}

/// A random name.
fn any<'a, T>(random: &mut Random, of: &'a BTreeMap<String, T>) -> Option<&'a String> {
    let at = random.below(of.len().max(1) as u64) as usize;
    of.keys().nth(at)
}

/// A random act of those that are possible.
fn next(model: &Model, random: &mut Random, fresh: &mut u64) -> Act {
    *fresh += 20;
    let length = 1 + random.below(9);
    let lba = random.below(SIZE - length);
    let is_free = |name: &&String| !model.clones.values().any(|(of, _)| of == *name);
    let snapshot = any(random, &model.snapshots).cloned();
    let clone = any(random, &model.clones).cloned();
    match (random.below(24), snapshot, clone) {
        (0, ..) if model.snapshots.len() < 4 => Act::Take(format!("s{fresh}")),
        (1 | 2, Some(of), _) if model.clones.len() < 4 => Act::Clone(of, format!("c{fresh}")),
        (3, Some(name), _) if is_free(&&name) => Act::Delete(name),
        (4, _, Some(name)) => Act::Delete(name),
        (5, Some(name), _) if random.below(3) == 0 => Act::RollBack(name),
        (6, _, whose) => Act::Flush(whose),
        (7 | 8, _, whose) => Act::Change(whose, Change::Discard(lba, length)),
        (9, _, whose) => Act::Change(whose, Change::Zero(lba, length)),
        (number, _, clone) => {
            let whose = clone.filter(|_| number < 19);
            let fills = contents(random, lba, length, *fresh);
            Act::Change(whose, Change::Write(lba, fills))
        }
    }
}

#[test]
fn each_reads_as_what_was_written_to_it() {
    let mut counted = Counted::default();
    for seed in seeds(8) {
        let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(BLOCKS));
        create(&*medium, 10_000);
        let (mut random, mut fresh, mut model) = (Random(seed), 1, Model::new());
        for life in 0..4 {
            let volume = Drawn::of(seed + life).open(&medium, &mut random);
            assert_eq!(model.differs_from(&Model::of(&volume)), None, "seed {seed}");
            for number in 0..150 {
                let one = next(&model, &mut random, &mut fresh);
                let done = act(&volume, &one);
                assert!(done.is_ok(), "seed {seed}: {one:?}: {done:?}");
                model.after(&one, &mut |_| {});
                if number % 30 == 0 {
                    let found = Model::of(&volume);
                    assert_eq!(model.differs_from(&found), None, "seed {seed}: {one:?}");
                }
            }
            assert_eq!(model.differs_from(&Model::of(&volume)), None, "seed {seed}");
            match life % 2 {
                0 => volume.stop().unwrap(),
                _ => Client::new(&volume).flush().unwrap(),
            }
            counted.add(&volume);
            drop(volume);
            assert_sound(&*medium);
        }
    }
    counted.has_seen_in(8, &Counted::PLAIN);
}

/// Begins with a clone, and makes some more changes.
fn begin(volume: &Arc<Volume>, random: &mut Random, fresh: &mut u64) -> Model {
    let mut model = Model::new();
    for number in 0..40 {
        let one = match number {
            0 => Act::Change(None, Change::Write(0, (1..=100).collect())),
            1 => Act::Take("first".to_owned()),
            2 => Act::Clone("first".to_owned(), "clone".to_owned()),
            39 => Act::Flush(None),
            _ => next(&model, random, fresh),
        };
        let done = act(volume, &one);
        assert!(done.is_ok(), "{one:?}: {done:?}");
        model.after(&one, &mut |_| {});
    }
    model
}

/// A life until the medium fails. Returns the requests, and how many of them are certainly durable.
fn live(
    volume: &Arc<Volume>,
    mut model: Model,
    random: &mut Random,
    fresh: &mut u64,
) -> (Vec<Act>, usize) {
    let (mut acts, mut durable) = (Vec::new(), 0);
    while acts.len() < 300 {
        let one = next(&model, random, fresh);
        acts.push(one.clone());
        if act(volume, &one).is_err() {
            break;
        }
        if !matches!(one, Act::Change(..)) {
            durable = acts.len();
        }
        model.after(&one, &mut |_| {});
    }
    (acts, durable)
}

/// How `found` differs from all states of a life since the last durable one; `None` if it is one of them.
fn is_no_instant(mut model: Model, acts: &[Act], durable: usize, found: &Model) -> Option<String> {
    let mut differs = model.differs_from(found);
    let mut is_found = durable == 0 && differs.is_none();
    for (number, one) in acts.iter().enumerate() {
        model.after(one, &mut |state| {
            if number + 1 >= durable {
                let now = state.differs_from(found);
                is_found |= now.is_none();
                differs = now.or(differs.take());
            }
        });
    }
    differs.filter(|_| !is_found)
}

/// The volume, its snapshots and its clones have one order: after a cut all of them are as at one instant, which is not before the
/// last flush of any of them.
#[test]
fn the_power_may_fail_whenever_it_likes() {
    let mut counted = Counted::default();
    for seed in seeds(60) {
        let fault = Arc::new(FaultMedium::over_memory(BLOCKS, Plan::default()));
        create(&*fault, 10_000);
        let medium: Arc<dyn Medium> = fault.clone();
        let (mut random, mut fresh) = (Random(seed), 1);
        let volume = Drawn::of(seed).open(&medium, &mut random);
        let begun = begin(&volume, &mut random, &mut fresh);
        fault.set_plan(Plan::seeded(seed).with_cut_after(random.below(400)));
        let (acts, durable) = live(&volume, begun.clone(), &mut random, &mut fresh);
        if !fault.is_off() {
            fault.power_cut(seed);
        }
        has_lost_power(&volume);
        counted.add(&volume);
        drop(volume);
        fault.set_plan(Plan::default());
        fault.restart();
        let volume = Drawn::of(seed / 5).open(&medium, &mut random);
        let mut model = Model::of(&volume);
        let differs = is_no_instant(begun, &acts, durable, &model);
        assert_eq!(
            differs,
            None,
            "seed {seed}: {} acts, {durable} durable",
            acts.len()
        );
        // It continues, and nothing is left when all of them are deleted.
        for _ in 0..40 {
            let one = next(&model, &mut random, &mut fresh);
            let done = act(&volume, &one);
            assert!(done.is_ok(), "seed {seed}: {one:?}: {done:?}");
            model.after(&one, &mut |_| {});
        }
        assert_eq!(model.differs_from(&Model::of(&volume)), None, "seed {seed}");
        for name in model.clones.keys().chain(model.snapshots.keys()) {
            volume.delete_snapshot(name).unwrap();
        }
        let behind = volume.extents(Lba(SIZE), 1000, 10);
        assert!(behind.iter().all(|run| !run.mapped), "seed {seed}");
        volume.stop().unwrap();
        counted.add(&volume);
        drop(volume);
        assert_sound(&*medium);
    }
    counted.has_seen_in(60, &Counted::PLAIN);
}

#[test]
fn what_cannot_be_is_told() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(BLOCKS));
    create(&*medium, 200);
    let volume = open(&medium);
    let mut client = Client::new(&volume);
    client.write(0, &[5; 60]).unwrap();
    volume.take_snapshot("a", 1).unwrap();
    assert!(!superblock_of(&*medium).properties().has_clones());
    assert!(volume.clone_snapshot("b", "c", 2).is_err());
    volume.clone_snapshot("a", "c", 2).unwrap();
    assert!(superblock_of(&*medium).properties().has_clones());
    let told = |result: Result<(), SnapshotError>| result.unwrap_err().to_string();
    assert!(told(volume.clone_snapshot("a", "c", 2)).contains("already"));
    assert!(told(volume.clone_snapshot("c", "d", 2)).contains("c is a clone"));
    assert!(told(volume.roll_back("c")).contains("c is a clone"));
    assert!(told(volume.changed_since("c", None).map(drop)).contains("c is a clone"));
    assert!(told(volume.seen_at("c").map(drop)).contains("c is a clone"));
    assert!(told(volume.delete_snapshot("a")).contains("delete c first"));
    assert!(volume.clone_at("a").unwrap().is_none());
    // Clones get half of the room for 24 blocks: 12. A write without room is refused, and affects nothing else.
    let clone = cloned(&volume, "c");
    let held = clone.hold();
    assert!(told(volume.delete_snapshot("c")).contains("in use"));
    drop(held);
    let mut writer = Client::new(&clone);
    writer.write(0, &[6; 12]).unwrap();
    assert!(matches!(writer.write(12, &[6]), Err(BlockError::Full)));
    assert!(matches!(writer.discard(12, 1), Err(BlockError::Full)));
    writer.write(0, &[7; 12]).unwrap();
    // There is nothing to discard, and so nothing to note.
    writer.discard(60, 60).unwrap();
    assert!(matches!(
        writer.write(SIZE - 1, &[1, 2]),
        Err(BlockError::OutOfRange { .. })
    ));
    client.write(0, &[8; 12]).unwrap();
    assert!(matches!(client.write(12, &[8]), Err(BlockError::Full)));
    assert_eq!(
        read_all(&clone)[..14],
        [[7; 12].as_slice(), &[5; 2]].concat()
    );
    volume.delete_snapshot("c").unwrap();
    assert!(matches!(writer.write(0, &[1]), Err(BlockError::Io(_))));
    assert!(matches!(writer.read(0, 1), Err(BlockError::Io(_))));
    client.write(12, &[8; 12]).unwrap();
    let seen = Arc::new(volume.seen_at("a").unwrap());
    assert_eq!(read_all(&seen)[..60], [5; 60]);
    drop((client, writer, clone, seen));
    volume.stop().unwrap();
    drop(volume);
    assert_sound(&*medium);
}

/// Some clients write to the volume and some to a clone, to the same blocks, while snapshots and other clones come and go.
#[test]
fn many_clients_write_at_once() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(BLOCKS));
    create(&*medium, 10_000);
    let volume = open(&medium);
    Client::new(&volume).write(0, &[5; 100]).unwrap();
    volume.take_snapshot("s", 1).unwrap();
    volume.clone_snapshot("s", "c", 1).unwrap();
    let clone = cloned(&volume, "c");
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (volume, clone) = (&volume, &clone);
            scope.spawn(move || write_and_look(volume, writer, 1));
            scope.spawn(move || write_and_look(clone, writer, 1_000_000));
        }
        for number in 0..30 {
            let [snapshot, other] = ["s", "c"].map(|kind| format!("{kind}{number}"));
            volume.take_snapshot(&snapshot, 1).unwrap();
            volume.clone_snapshot(&snapshot, &other, 1).unwrap();
            let written = cloned(&volume, &other);
            let before = read_all(&Arc::new(volume.seen_at(&snapshot).unwrap()));
            assert_eq!(read_all(&written), before);
            Client::new(&written).write(10, &[number; 20]).unwrap();
            assert_eq!(read_all(&written)[10..30], [number; 20]);
            volume.delete_snapshot(&other).unwrap();
            let seen = Arc::new(volume.seen_at(&snapshot).unwrap());
            assert_eq!(read_all(&seen), before);
            volume.delete_snapshot(&snapshot).unwrap();
        }
    });
    let first = Arc::new(volume.seen_at("s").unwrap());
    assert_eq!(read_all(&first)[..100], [5; 100]);
    volume.stop().unwrap();
    drop((volume, clone, first));
    assert_sound(&*medium);
}

/// Writes to its half of the blocks, and reads what it has written.
fn write_and_look<D: BlockDevice>(device: &Arc<D>, writer: u64, from: u64) {
    let mut client = Client::new(device);
    let mut random = Random(writer + from);
    let mut held = vec![None; 60];
    for round in 0..300 {
        let length = 1 + random.below(8);
        let at = random.below(60 - length);
        let range = at as usize..(at + length) as usize;
        match round % 7 {
            0 => {
                client.discard(60 * writer + at, length).unwrap();
                held[range].fill(Some(0));
            }
            _ => {
                let fill = from + round;
                client
                    .write(60 * writer + at, &vec![fill; length as usize])
                    .unwrap();
                held[range].fill(Some(fill));
            }
        }
        let found = client.read(60 * writer, 60).unwrap();
        for (held, found) in held.iter().zip(found) {
            assert!(held.is_none_or(|held| held == found), "{held:?} is {found}");
        }
    }
}
