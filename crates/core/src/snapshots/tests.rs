//! Tests the bookkeeping against a model that keeps a copy of everything for each snapshot, over a volume whose power may fail.

use super::*;
use crate::format::history::{Mark, Name};
use alloc::{boxed::Box, collections::BTreeMap, format, string::String, vec};
use proptest::prelude::*;

fn called(name: &str) -> Identity {
    Identity {
        name: Name::new(name).unwrap(),
        taken: 7,
        mark: Mark([3; 6]),
    }
}

const LOGICAL: u64 = 24;
const KEPT: u64 = 700;

/// What takes effect on a volume, in order.
#[derive(Clone, Debug)]
enum Effect {
    Copy(Copy),
    Write(Lba, Vec<u8>),
    Discard(Lba, u64),
}

/// Blocks by their address: numbers where clients see them, and bytes.
type Disk = BTreeMap<u64, Vec<u8>>;

fn carry_out(disk: &mut Disk, step: &Effect) {
    match step {
        Effect::Copy(copy) => {
            for index in 0..copy.blocks {
                let from = disk.get(&(copy.from.0 + index)).cloned();
                match from {
                    Some(block) => drop(disk.insert(copy.to.0 + index, block)),
                    None => drop(disk.remove(&(copy.to.0 + index))),
                }
            }
        }
        Effect::Write(lba, block) => drop(disk.insert(lba.0, block.clone())),
        Effect::Discard(lba, blocks) => {
            (lba.0..lba.0 + blocks).for_each(|lba| drop(disk.remove(&lba)))
        }
    }
}

#[derive(Clone, Debug)]
enum Act {
    Write(u64, u64, u8),
    Discard(u64, u64),
    Take,
    Delete(usize),
    /// Makes a clone of the snapshot with this index, if that is one.
    Clone(usize),
    /// Writes to the clone with this index.
    WriteClone(usize, u64, u64, u8),
    DiscardClone(usize, u64, u64),
    /// Everything requested takes effect except the last so many steps; then the volume is opened again.
    Cut(usize),
    /// Makes a plan of which only so many steps are carried out.
    Fail(u64, usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (0..LOGICAL, 1..6u64, any::<u8>()).prop_map(|(lba, blocks, byte)| Act::Write(lba, blocks, byte)),
        2 => (0..LOGICAL, 1..9u64).prop_map(|(lba, blocks)| Act::Discard(lba, blocks)),
        3 => Just(Act::Take),
        2 => (0..5usize).prop_map(Act::Delete),
        2 => (0..5usize).prop_map(Act::Clone),
        6 => (0..5usize, 0..LOGICAL, 1..6u64, any::<u8>())
            .prop_map(|(index, lba, blocks, byte)| Act::WriteClone(index, lba, blocks, byte)),
        2 => (0..5usize, 0..LOGICAL, 1..9u64)
            .prop_map(|(index, lba, blocks)| Act::DiscardClone(index, lba, blocks)),
        2 => (0..7usize).prop_map(Act::Cut),
        2 => (0..LOGICAL, 0..4usize).prop_map(|(lba, steps)| Act::Fail(lba, steps)),
    ]
}

/// A volume with its snapshots, and what each has to read as.
struct World {
    disk: Disk,
    /// The last steps, each with the disk before it and what was true then.
    before: Vec<(Disk, Vec<Truth>)>,
    snapshots: Snapshots,
    truths: Vec<Truth>,
    names: u32,
}

/// A snapshot, and what clients saw when it was taken.
#[derive(Clone)]
struct Truth {
    name: String,
    blocks: Vec<Option<Vec<u8>>>,
    /// Whether it was to be deleted; then it may read as anything.
    leaves: bool,
    /// Whether it is a clone; then its blocks include what was written to it since.
    is_clone: bool,
}

impl World {
    fn new() -> Self {
        Self {
            disk: Disk::new(),
            before: Vec::new(),
            snapshots: Snapshots::new(History::new(Lba(LOGICAL), KEPT)),
            truths: Vec::new(),
            names: 0,
        }
    }

    fn step(&mut self, step: &Effect) {
        self.before.push((self.disk.clone(), self.truths.clone()));
        let surplus = self.before.len().saturating_sub(8);
        self.before.drain(..surplus);
        carry_out(&mut self.disk, step);
    }

    fn write_rows(&mut self, blocks: &[u64]) {
        for &block in blocks {
            let mut bytes = vec![0; BLOCK_BYTES];
            self.snapshots.encode_rows(block, &mut bytes);
            self.step(&Effect::Write(self.snapshots.history().rows(block), bytes));
        }
    }

    fn write_owed(&mut self) {
        self.write_rows(&self.snapshots.stale_row_blocks());
        for (first, blocks) in self.snapshots.loose().to_vec() {
            self.step(&Effect::Discard(first, blocks));
        }
        self.snapshots.cleaned();
    }

    fn write_list(&mut self, block: u64) {
        let mut bytes = vec![0; BLOCK_BYTES];
        self.snapshots.encode_list(block, &mut bytes);
        self.step(&Effect::Write(self.snapshots.history().list(block), bytes));
    }

    fn keep(&mut self, lbas: core::ops::Range<u64>) {
        let Some(newest) = self.snapshots.newest() else {
            return;
        };
        self.write_owed();
        let plan = self.snapshots.plan(newest, lbas.map(Lba)).unwrap();
        self.carry_out(&plan, usize::MAX);
        self.snapshots.keep(plan);
    }

    /// Carries out so many copies and writes of a plan.
    fn carry_out(&mut self, plan: &Plan, mut most: usize) {
        for step in &plan.steps {
            for copy in step.copies.iter().take(most) {
                self.step(&Effect::Copy(*copy));
            }
            most = most.saturating_sub(step.copies.len());
            if most > 0 {
                self.write_rows(&[step.row_block]);
                most -= 1;
            }
        }
    }

    fn fail(&mut self, lba: u64, steps: usize) {
        let Some(newest) = self.snapshots.newest() else {
            return;
        };
        self.write_owed();
        let lbas = [lba, (lba + 7) % LOGICAL].map(Lba).into_iter();
        let plan = self.snapshots.plan(newest, lbas).unwrap();
        self.carry_out(&plan, steps);
        self.snapshots.drop_plan(plan);
        self.write_owed();
    }

    fn seen(&self) -> Vec<Option<Vec<u8>>> {
        (0..LOGICAL)
            .map(|lba| self.disk.get(&lba).cloned())
            .collect()
    }

    fn take(&mut self) {
        let name = format!("s{}", self.names);
        self.names += 1;
        self.write_owed();
        let (snapshot, place) = self.snapshots.propose(called(&name)).unwrap();
        // Some blocks are kept although no change of them follows, like blocks that a journal will change.
        let plan = self
            .snapshots
            .plan(snapshot.number, [Lba(1), Lba(3)].into_iter())
            .unwrap();
        self.carry_out(&plan, usize::MAX);
        let block = self.snapshots.add(snapshot, place);
        self.snapshots.keep(plan);
        self.write_list(block);
        self.truths.push(Truth {
            name,
            blocks: self.seen(),
            leaves: false,
            is_clone: false,
        });
    }

    fn delete(&mut self, index: usize) {
        let count = self.truths.len();
        if count == 0 {
            return;
        }
        let name = self.truths[index % count].name.clone();
        let number = self.snapshots.by_name(&name).unwrap().number;
        if self.snapshots.clones_of(number).next().is_some() {
            return;
        }
        self.truths[index % count].leaves = true;
        let stage = match self.snapshots.is_clone(number) {
            true => Stage::LeavingClone,
            false => Stage::Leaving,
        };
        let block = self.snapshots.set_stage(&name, stage).unwrap();
        self.write_list(block);
        self.go_on_deleting(number);
        self.truths.retain(|truth| truth.name != name);
    }

    fn make_clone(&mut self, index: usize) {
        let Some(truth) = self.truths.get(index).filter(|truth| !truth.is_clone) else {
            return;
        };
        let mut truth = truth.clone();
        let of = self.snapshots.by_name(&truth.name).unwrap().number;
        truth.name = format!("c{}", self.names);
        truth.is_clone = true;
        self.names += 1;
        self.write_owed();
        let mut identity = called(&truth.name);
        identity.mark = Mark::of_clone(of);
        let (mut clone, place) = self.snapshots.propose(identity).unwrap();
        clone.stage = Stage::Clone;
        let block = self.snapshots.add(clone, place);
        self.write_list(block);
        self.truths.push(truth);
    }

    /// `None` discards the blocks.
    fn change_clone(&mut self, index: usize, blocks: core::ops::Range<u64>, byte: Option<u8>) {
        let Some(truth) = self.truths.get(index).filter(|truth| truth.is_clone) else {
            return;
        };
        let number = self.snapshots.by_name(&truth.name).unwrap().number;
        let content = byte.map(|byte| vec![byte; 2]);
        let step = |place: Lba| match &content {
            Some(content) => Effect::Write(place, content.clone()),
            None => Effect::Discard(place, 1),
        };
        let mut at = blocks.start;
        while at < blocks.end {
            let part = self.snapshots.part(number, Lba(at), Lba(blocks.end));
            let mut made = at..at + part.blocks;
            if part.own {
                for n in 0..part.blocks {
                    self.step(&step(part.place.plus(n)));
                    self.truths[index].blocks[(at + n) as usize] = content.clone();
                }
            } else {
                self.write_owed();
                let change = self.snapshots.change(number, Lba(at), part.blocks).unwrap();
                made.end = at + change.blocks();
                for &(place, blocks) in &change.places {
                    (0..blocks).for_each(|n| self.step(&step(place.plus(n))));
                }
                self.write_rows(&[change.row_block]);
                self.snapshots.made(change);
                for lba in made.clone() {
                    self.truths[index].blocks[lba as usize] = content.clone();
                }
            }
            at = made.end;
        }
    }

    fn go_on_deleting(&mut self, number: Number) {
        let mut from = Some(Slot::default());
        while let Some(slot) = from {
            let forget = self.snapshots.forget(number, slot, 3);
            for &(first, blocks) in &forget.discards {
                self.step(&Effect::Discard(first, blocks));
            }
            self.write_rows(&forget.row_blocks);
            from = forget.next;
        }
        self.write_owed();
        let block = self.snapshots.remove(number).unwrap();
        self.write_list(block);
    }

    fn cut(&mut self, steps: usize) {
        if let Some(at) = self.before.len().checked_sub(steps).filter(|_| steps > 0) {
            let (disk, truths) = self.before.swap_remove(at);
            (self.disk, self.truths) = (disk, truths);
        }
        self.before.clear();
        self.open();
    }

    fn block(&self, lba: Lba) -> Box<[u8; BLOCK_BYTES]> {
        let block = self.disk.get(&lba.0).cloned();
        block.unwrap_or(vec![0; BLOCK_BYTES]).try_into().unwrap()
    }

    fn open(&mut self) {
        let history = self.snapshots.history();
        self.snapshots = Snapshots::new(history);
        for block in list_blocks() {
            let bytes = self.block(history.list(block));
            self.snapshots.load_list(block, &bytes).unwrap();
        }
        self.snapshots.check_clones().unwrap();
        for block in 0..history.row_blocks() {
            if self.disk.contains_key(&history.rows(block).0) {
                let bytes = self.block(history.rows(block));
                self.snapshots.load_rows(block, &bytes);
            }
        }
        let left = self.snapshots.without_rows().collect();
        self.snapshots.loosen(left);
        self.write_owed();
        let leaving = self.snapshots.iter().filter(|one| one.stage.leaves());
        for number in leaving.map(|one| one.number).collect::<Vec<_>>() {
            self.go_on_deleting(number);
        }
        let name = |one: &Snapshot| String::from(one.identity.name.as_str());
        let there: Vec<String> = self.snapshots.iter().map(name).collect();
        self.truths
            .retain(|truth| !truth.leaves || there.contains(&truth.name));
    }

    fn check(&self) {
        let names: Vec<&str> = self
            .snapshots
            .iter()
            .map(|s| s.identity.name.as_str())
            .collect();
        let wanted: Vec<&str> = self
            .truths
            .iter()
            .map(|truth| truth.name.as_str())
            .collect();
        assert_eq!(names, wanted);
        for truth in &self.truths {
            let number = self.snapshots.by_name(&truth.name).unwrap().number;
            for (lba, block) in (0..).zip(&truth.blocks) {
                let part = self.snapshots.part(number, Lba(lba), Lba(lba + 1));
                assert_eq!(part.blocks, 1);
                assert_eq!(
                    self.disk.get(&part.place.0),
                    block.as_ref(),
                    "{} at {lba}",
                    truth.name
                );
            }
        }
        // Each block that differs between two snapshots is reported as changed. A block that was kept in vain may be reported too.
        let snapshots = self.truths.iter().filter(|truth| !truth.is_clone);
        for pair in snapshots.collect::<Vec<_>>().windows(2) {
            let [since, until] =
                [0, 1].map(|at| self.snapshots.by_name(&pair[at].name).unwrap().number);
            for lba in 0..LOGICAL {
                let block = Lba(lba)..Lba(lba + 1);
                let told = self.snapshots.next_changed(block, since, Some(until));
                let is_told = told == Some(Lba(lba));
                let differs = pair[0].blocks[lba as usize] != pair[1].blocks[lba as usize];
                assert!(is_told || !differs, "{lba}");
            }
        }
        let kept = self
            .disk
            .keys()
            .filter(|at| **at >= self.snapshots.history().block(0).0);
        assert!(kept.count() as u64 <= self.snapshots.room().0);
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Write(lba, blocks, byte) => {
                let blocks = lba..(lba + blocks).min(LOGICAL);
                self.keep(blocks.clone());
                for lba in blocks {
                    self.step(&Effect::Write(Lba(lba), vec![byte; 2]));
                }
            }
            Act::Discard(lba, blocks) => {
                let blocks = lba..(lba + blocks).min(LOGICAL);
                self.keep(blocks.clone());
                self.step(&Effect::Discard(Lba(lba), blocks.end - blocks.start));
            }
            Act::Take => self.take(),
            Act::Delete(index) => self.delete(index),
            Act::Clone(index) => self.make_clone(index),
            Act::WriteClone(index, lba, blocks, byte) => {
                self.change_clone(index, lba..(lba + blocks).min(LOGICAL), Some(byte));
            }
            Act::DiscardClone(index, lba, blocks) => {
                self.change_clone(index, lba..(lba + blocks).min(LOGICAL), None);
            }
            Act::Cut(steps) => self.cut(steps),
            Act::Fail(lba, steps) => self.fail(lba, steps),
        }
        self.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn each_snapshot_reads_as_it_was(acts in prop::collection::vec(act(), 1..60)) {
        let mut world = World::new();
        for act in &acts {
            world.act(act);
        }
    }
}

#[test]
fn a_refusal_for_lack_of_room_changes_nothing() {
    let mut snapshots = Snapshots::new(History::new(Lba(100), 3));
    let (snapshot, place) = snapshots.propose(called("a")).unwrap();
    snapshots.add(snapshot, place);
    let lbas = |range: core::ops::Range<u64>| range.map(Lba);
    assert_eq!(
        snapshots.plan(snapshot.number, lbas(0..4)).unwrap_err(),
        NoRoom(3)
    );
    let plan = snapshots.plan(snapshot.number, lbas(0..3)).unwrap();
    assert_eq!(plan.steps[0].copies.len(), 1);
    snapshots.keep(plan);
    assert!(!snapshots.wants(Lba(0)) && snapshots.wants(Lba(3)));
    assert!(snapshots.plan(snapshot.number, lbas(3..4)).is_err());
    assert_eq!(snapshots.room(), (3, 3));
}

/// Clones take at most half of the room, and the room of a deleted one is free again.
#[test]
fn clones_leave_room_for_snapshots() {
    let mut snapshots = Snapshots::new(History::new(Lba(2000), 1100));
    let (snapshot, place) = snapshots.propose(called("a")).unwrap();
    snapshots.add(snapshot, place);
    let mut identity = called("b");
    identity.mark = Mark::of_clone(snapshot.number);
    let (mut clone, place) = snapshots.propose(identity).unwrap();
    clone.stage = Stage::Clone;
    snapshots.add(clone, place);
    // A change has one block of rows.
    let mut at = 0;
    for blocks in [512, 38] {
        let change = snapshots.change(clone.number, Lba(at), 600).unwrap();
        assert_eq!(change.blocks(), blocks);
        at += blocks;
        snapshots.made(change);
    }
    assert!(snapshots.change(clone.number, Lba(at), 1).is_err());
    let kept: u64 = snapshots
        .kept_by(clone.number)
        .iter()
        .map(|run| run.1)
        .sum();
    assert_eq!(kept, 550);
    assert_eq!(snapshots.newest(), Some(snapshot.number));
    let plan = snapshots.plan(snapshot.number, (0..550).map(Lba)).unwrap();
    snapshots.keep(plan);
    assert_eq!(snapshots.room(), (1100, 1100));
    snapshots.set_stage("b", Stage::LeavingClone).unwrap();
    let forget = snapshots.forget(clone.number, Slot::default(), 1000);
    assert_eq!((forget.next, forget.row_blocks), (None, vec![0, 1]));
    snapshots.remove(clone.number);
    assert_eq!(snapshots.room(), (550, 1100));
}

/// A row that was only given a slot may be on the medium or not. It is dropped with its plan, and deleting its snapshot must not free
/// the slot as well.
#[test]
fn deleting_a_snapshot_leaves_out_rows_that_do_not_count_yet() {
    let mut snapshots = Snapshots::new(History::new(Lba(100), KEPT));
    let (snapshot, place) = snapshots.propose(called("a")).unwrap();
    snapshots.add(snapshot, place);
    let plan = snapshots
        .plan(snapshot.number, [Lba(1)].into_iter())
        .unwrap();
    snapshots.keep(plan);
    let open = snapshots
        .plan(snapshot.number, [Lba(2)].into_iter())
        .unwrap();
    snapshots.set_stage("a", Stage::Leaving).unwrap();
    let forget = snapshots.forget(snapshot.number, Slot::default(), 10);
    let kept = snapshots.history().block(0);
    assert_eq!((forget.discards, forget.next), (vec![(kept, 1)], None));
    assert_eq!(snapshots.room().0, 1, "the open plan's");
    snapshots.drop_plan(open);
    assert_eq!(snapshots.room().0, 0);
}

/// A clone without its snapshot is damage: its original contents are not known.
#[test]
fn a_clone_without_its_snapshot_is_refused() {
    let mut snapshots = Snapshots::new(History::new(Lba(100), KEPT));
    let (snapshot, place) = snapshots.propose(called("a")).unwrap();
    snapshots.add(snapshot, place);
    for (of, is_right) in [(1, true), (u32::MAX, false), (7, false)] {
        let mut clone = snapshot;
        clone.number = Number(u32::MAX);
        clone.stage = Stage::Clone;
        clone.identity = called("b");
        clone.identity.mark = Mark::of_clone(Number(of));
        snapshots.add(clone, 1);
        assert_eq!(snapshots.check_clones().is_ok(), is_right, "{of}");
        assert!(!snapshots.gives_up_any(clone.number));
        snapshots.remove(clone.number);
    }
}

/// An arriving snapshot does not exist yet: nothing is kept for it, and rows that were to be its first mean nothing.
#[test]
fn an_arriving_snapshot_does_not_exist_yet() {
    let history = History::new(Lba(100), KEPT);
    let mut snapshots = Snapshots::new(history);
    let (base, place) = snapshots.propose(called("a")).unwrap();
    snapshots.add(base, place);
    let (mut arriving, place) = snapshots.propose(called("b")).unwrap();
    arriving.stage = Stage::ArrivingChanges;
    snapshots.add(arriving, place);
    assert_eq!(snapshots.newest(), Some(base.number));
    assert_eq!(snapshots.arriving(), Some(&arriving));
    let plan = snapshots.plan(arriving.number, [Lba(7)].into_iter());
    snapshots.keep(plan.unwrap());
    let (mut list, mut rows) = ([0; BLOCK_BYTES], [0; BLOCK_BYTES]);
    snapshots.encode_list(0, &mut list);
    snapshots.encode_rows(0, &mut rows);
    let mut opened = Snapshots::new(history);
    opened.load_list(0, &list).unwrap();
    opened.load_rows(0, &rows);
    assert_eq!(opened.stale_row_blocks(), [0]);
    assert_eq!(opened.place(arriving.number, Lba(7)), Lba(7));
    opened.set_stage("b", Stage::Kept).unwrap();
    assert_eq!(opened.newest(), Some(arriving.number));
    assert_eq!(opened.arriving(), None);
}

#[test]
fn rows_of_a_snapshot_that_was_never_taken_are_overwritten_before_its_number_is_reused() {
    let history = History::new(Lba(100), KEPT);
    let mut bytes = Box::new([0; BLOCK_BYTES]);
    let row = Row {
        lba: Lba(7),
        number: Number(1),
    };
    bytes[8..16].copy_from_slice(&history.row_form().raw(row).to_le_bytes());
    let mut snapshots = Snapshots::new(history);
    snapshots.load_rows(0, &bytes);
    assert_eq!(snapshots.stale_row_blocks(), [0]);
    snapshots.encode_rows(0, &mut bytes[..]);
    assert_eq!(*bytes, [0; BLOCK_BYTES]);
    snapshots.cleaned();
    assert!(snapshots.stale_row_blocks().is_empty());
    let (snapshot, place) = snapshots.propose(called("a")).unwrap();
    assert_eq!(snapshot.number, row.number);
    snapshots.add(snapshot, place);
    assert_eq!(snapshots.place(row.number, row.lba), row.lba);
}

/// A block of rows without any row left counts as never written.
#[test]
fn room_that_was_given_back_is_free_after_an_opening() {
    let history = History::new(Lba(2000), 1500);
    let mut snapshots = Snapshots::new(history);
    let name = called("a");
    let (snapshot, place) = snapshots.propose(name).unwrap();
    snapshots.add(snapshot, place);
    let plan = snapshots.plan(snapshot.number, (0..1400).map(Lba)).unwrap();
    snapshots.keep(plan);
    let (mut list, mut rows) = ([0; BLOCK_BYTES], [0; BLOCK_BYTES]);
    snapshots.encode_list(0, &mut list);
    snapshots.encode_rows(2, &mut rows);
    let mut opened = Snapshots::new(history);
    opened.load_list(0, &list).unwrap();
    opened.load_rows(2, &rows);
    let (kept, most) = opened.room();
    assert_eq!((kept, most), (1400 - 1024, 1500));
    let others = (0..1024).chain(1400..2000).map(Lba);
    let others: Vec<Lba> = others.take((most - kept) as usize).collect();
    let plan = opened.plan(snapshot.number, others.into_iter()).unwrap();
    opened.keep(plan);
    assert_eq!(opened.room(), (most, most));
    assert!(
        opened
            .plan(snapshot.number, [Lba(1999)].into_iter())
            .is_err()
    );
}
