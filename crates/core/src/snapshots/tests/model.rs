//! A model that keeps a copy of everything for each snapshot, over a volume whose power may fail.

use super::{KEPT, called};
use crate::addr::{BLOCK_BYTES, Lba};
use crate::format::history::{History, Mark, Number, Snapshot, Stage};
use crate::seam::CopyBlocks;
use crate::snapshots::{Plan, Slot, Snapshots, list_blocks};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::{boxed::Box, format, string::String, vec, vec::Vec};
use proptest::prelude::*;

const LOGICAL: u64 = 24;

/// What takes effect on a volume, in order.
#[derive(Clone, Debug)]
enum Effect {
    Copy(CopyBlocks),
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
    /// Deletes a snapshot in two tries: the first carries out only so many of the first steps.
    FailDelete(usize, usize),
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
        1 => (0..5usize, 0..4usize).prop_map(|(index, steps)| Act::FailDelete(index, steps)),
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

    /// Deletes a snapshot. `refused`: after so many steps the first try fails.
    fn delete(&mut self, index: usize, refused: Option<usize>) {
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
        if let Some(steps) = refused {
            self.fail_to_forget(number, steps);
        }
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

    fn fail_to_forget(&mut self, number: Number, steps: usize) {
        let forget = self.snapshots.forget(number, Slot::default(), 3);
        for &(first, blocks) in forget.discards.iter().take(steps) {
            self.step(&Effect::Discard(first, blocks));
        }
        self.snapshots.owe(&forget);
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
            let stepped = self.changed_in_steps(since, until);
            for lba in 0..LOGICAL {
                let block = Lba(lba)..Lba(lba + 1);
                let told = self.snapshots.next_changed(block, since, Some(until));
                let is_told = told == Some(Lba(lba));
                assert_eq!(stepped.contains(&lba), is_told, "{lba}");
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

    /// The blocks that differ between two snapshots, found with a look at few rows at a time.
    fn changed_in_steps(&self, since: Number, until: Number) -> BTreeSet<u64> {
        let (mut from, end) = (Lba(0), Lba(LOGICAL));
        let mut found = BTreeSet::new();
        while from < end {
            let between = (since, Some(until));
            let (runs, next) = self.snapshots.changed_runs(from..end, between, 2);
            assert!(next > from);
            for (lba, blocks) in runs {
                assert!(lba >= from && lba.plus(blocks) <= next);
                found.extend(lba.0..lba.0 + blocks);
            }
            from = next;
        }
        found
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
            Act::Delete(index) => self.delete(index, None),
            Act::FailDelete(index, steps) => self.delete(index, Some(steps)),
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
