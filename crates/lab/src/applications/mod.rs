//! What some kinds of applications ask of a disk: files that come, grow, are read and go; a database with a log; sorted runs that
//! are merged. Models, after the published descriptions of the benchmarks that they are named for; labelled as synthetic
//! wherever they appear.
//!
//! A file has a slot of its own, so nothing here is fragmented; where its metadata goes is the journaling host's part
//! ([`crate::journal`]).

use crate::rng::Rng;
use crate::trace::Op;
use std::collections::VecDeque;

/// Blocks of a request, at most: 128 KiB, as file systems send them.
const PIECE: u64 = 32;

/// Which application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Application {
    /// Files; of each round some are made, appended to, read and deleted.
    Files {
        /// A file's blocks in the mean, and those of an append; both are spread exponentially.
        file: u64,
        /// An append's.
        append: u64,
        /// Appends a round.
        appends: u32,
        /// Files read as a whole a round, beside those that are appended to.
        reads: u32,
        /// Whether a file is read before it is appended to.
        read_first: bool,
        /// Whether files are deleted, when as many are there as there is room for half of.
        deletes: bool,
        /// A flush after so many files written; 0: none.
        flush_files: u32,
    },
    /// Pages of two blocks, read and changed by popularity; each transaction is appended to a log and flushed.
    Oltp {
        /// Pages that a transaction reads.
        reads: u32,
        /// Pages that it changes: they are written home later, in the background.
        writes: u32,
    },
    /// A log-structured merge tree: tables are written from one end to the other, read when they are merged, and discarded.
    Merge {
        /// Blocks of a table.
        table: u64,
        /// Tables that are merged at a time.
        fan_in: u32,
    },
}

/// What is asked next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What.
    pub op: Op,
    /// The first block.
    pub lba: u64,
    /// How many.
    pub blocks: u32,
}

/// An application that runs.
pub struct Running {
    what: Application,
    steps: VecDeque<Step>,
    /// Blocks of a slot, and what each slot holds.
    slot: u64,
    held: Vec<u32>,
    /// Slots that hold something, oldest first, and those that hold nothing.
    full: VecDeque<u32>,
    empty: VecDeque<u32>,
    unflushed: u32,
    /// Blocks of the log, at the volume's start, and where it is.
    log: u64,
    log_at: u64,
    blocks: u64,
}

impl Running {
    /// It begins, on so many blocks.
    #[must_use]
    pub fn new(what: Application, blocks: u64) -> Self {
        let wanted = match what {
            Application::Files { file, append, .. } => 4 * (file + append),
            Application::Merge { table, .. } => table,
            Application::Oltp { .. } => 2,
        };
        // A small volume has smaller files, not fewer than some.
        let slot = wanted.min(blocks / 16).max(1);
        let slots = match what {
            Application::Oltp { .. } => 0,
            _ => u32::try_from(blocks / slot).unwrap_or(u32::MAX),
        };
        Self {
            what,
            steps: VecDeque::new(),
            slot,
            held: vec![0; slots as usize],
            full: VecDeque::new(),
            empty: (0..slots).collect(),
            unflushed: 0,
            log: (blocks / 64).max(1),
            log_at: 0,
            blocks,
        }
    }

    /// What is asked next.
    pub fn next(&mut self, rng: &mut Rng) -> Step {
        loop {
            if let Some(step) = self.steps.pop_front() {
                return step;
            }
            match self.what {
                Application::Files { .. } => self.files(rng),
                Application::Oltp { reads, writes } => self.transaction(rng, reads, writes),
                Application::Merge { fan_in, .. } => self.merge(rng, fan_in),
            }
        }
    }

    fn pieces(&mut self, op: Op, lba: u64, blocks: u64) {
        let all = (0..blocks).step_by(PIECE as usize);
        self.steps.extend(all.map(|at| Step {
            op,
            lba: lba + at,
            blocks: (blocks - at).min(PIECE) as u32,
        }));
    }

    fn flush(&mut self) {
        self.steps.push_back(Step {
            op: Op::Flush,
            lba: 0,
            blocks: 0,
        });
    }

    /// A number around a mean, exponentially spread, at least 1.
    fn around(rng: &mut Rng, mean: u64) -> u64 {
        (-(1.0 - rng.unit()).ln() * mean as f64).ceil().max(1.0) as u64
    }

    fn any(&self, rng: &mut Rng) -> Option<u32> {
        let at = rng.below(self.full.len() as u64) as usize;
        self.full.get(at).copied()
    }

    fn whole(&mut self, op: Op, slot: u32) {
        let held = u64::from(self.held[slot as usize]);
        self.pieces(op, u64::from(slot) * self.slot, held);
    }

    fn write_file(&mut self, blocks: u64) {
        let Some(slot) = self.empty.pop_front() else {
            return;
        };
        self.held[slot as usize] = blocks.min(self.slot) as u32;
        self.full.push_back(slot);
        self.whole(Op::Write { fua: false }, slot);
    }

    /// Gives up the file at a place among those that are there.
    fn delete(&mut self, at: usize) {
        if let Some(slot) = self.full.swap_remove_back(at) {
            self.whole(Op::Discard, slot);
            self.held[slot as usize] = 0;
            self.empty.push_back(slot);
        }
    }

    fn written(&mut self, flush_files: u32) {
        self.unflushed += 1;
        if flush_files > 0 && self.unflushed >= flush_files {
            self.unflushed = 0;
            self.flush();
        }
    }

    fn files(&mut self, rng: &mut Rng) {
        let Application::Files {
            file,
            append,
            appends,
            reads,
            read_first,
            deletes,
            flush_files,
        } = self.what
        else {
            return;
        };
        let many = self.full.len() * 2 > self.held.len();
        if many && deletes {
            self.delete(rng.below(self.full.len() as u64) as usize);
        } else if self.empty.is_empty() {
            // An installation that fills the disk begins anew, over the oldest.
            self.delete(0);
        }
        self.write_file(Self::around(rng, file));
        self.written(flush_files);
        for _ in 0..appends {
            let Some(slot) = self.any(rng) else { continue };
            if read_first {
                self.whole(Op::Read, slot);
            }
            let held = u64::from(self.held[slot as usize]);
            let more = Self::around(rng, append).min(self.slot - held);
            self.held[slot as usize] += more as u32;
            let at = u64::from(slot) * self.slot + held;
            self.pieces(Op::Write { fua: false }, at, more);
            self.written(flush_files);
        }
        for _ in 0..reads {
            if let Some(slot) = self.any(rng) {
                self.whole(Op::Read, slot);
            }
        }
    }

    fn transaction(&mut self, rng: &mut Rng, reads: u32, writes: u32) {
        let pages = (self.blocks.saturating_sub(self.log) / 2).max(1);
        // A tenth of the pages has nine tenths of the accesses.
        let page = |rng: &mut Rng| match rng.below(10) {
            0 => rng.below(pages),
            _ => rng.below((pages / 10).max(1)),
        };
        let two = self.blocks.saturating_sub(self.log).clamp(1, 2);
        for (op, count) in [(Op::Read, reads), (Op::Write { fua: false }, writes)] {
            for _ in 0..count {
                let lba = (self.log + 2 * page(rng)).min(self.blocks - two);
                self.pieces(op, lba, two);
            }
        }
        self.pieces(Op::Write { fua: false }, self.log_at, 1);
        self.log_at = (self.log_at + 1) % self.log;
        self.flush();
    }

    fn merge(&mut self, rng: &mut Rng, fan_in: u32) {
        // Two tables in three are merged ones, once there are tables: that is what a tree of a few levels writes.
        let full = self.full.len() * 4 > self.held.len() * 3;
        if self.full.len() > fan_in as usize && (full || rng.below(3) > 0) {
            let old: Vec<u32> = self.full.iter().copied().take(fan_in as usize).collect();
            old.iter().for_each(|&slot| self.whole(Op::Read, slot));
            // What was overwritten or deleted is gone.
            (0..fan_in - fan_in.div_ceil(4)).for_each(|_| self.write_file(self.slot));
            self.flush();
            for slot in old {
                if let Some(at) = self.full.iter().position(|&other| other == slot) {
                    self.full.remove(at);
                    self.whole(Op::Discard, slot);
                    self.held[slot as usize] = 0;
                    self.empty.push_back(slot);
                }
            }
        } else {
            if self.empty.is_empty() {
                self.delete(0);
            }
            self.write_file(self.slot);
            self.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Pattern, workloads};

    #[test]
    fn every_application_stays_on_its_volume_and_goes_on() {
        for workload in workloads() {
            let Pattern::Application(what) = workload.pattern else {
                continue;
            };
            for blocks in [1, 20, 1000, 100_000] {
                let (mut running, mut rng) = (Running::new(what, blocks), Rng::new(4));
                let (mut written, mut discarded) = (0, 0);
                for _ in 0..20_000 {
                    let step = running.next(&mut rng);
                    assert!(step.lba + u64::from(step.blocks) <= blocks, "{step:?}");
                    assert_eq!(step.op == Op::Flush, step.blocks == 0);
                    written += u32::from(matches!(step.op, Op::Write { .. }));
                    discarded += u32::from(step.op == Op::Discard);
                }
                assert!(written > 100, "{} on {blocks}", workload.name);
                assert_eq!(
                    discarded > 0,
                    !matches!(what, Application::Oltp { .. }),
                    "{} on {blocks}",
                    workload.name
                );
            }
        }
    }

    #[test]
    fn nothing_is_read_that_was_not_written_or_was_given_up() {
        for workload in workloads() {
            let Pattern::Application(what) = workload.pattern else {
                continue;
            };
            if matches!(what, Application::Oltp { .. }) {
                // Its database is there before it begins.
                continue;
            }
            let mut there = vec![false; 50_000];
            let (mut running, mut rng) = (Running::new(what, 50_000), Rng::new(5));
            for _ in 0..50_000 {
                let step = running.next(&mut rng);
                let range = step.lba as usize..step.lba as usize + step.blocks as usize;
                match step.op {
                    Op::Write { .. } => there[range].fill(true),
                    Op::Discard => there[range].fill(false),
                    _ => assert!(there[range].iter().all(|&there| there), "{step:?}"),
                }
            }
        }
    }
}
