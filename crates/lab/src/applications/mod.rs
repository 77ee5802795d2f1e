//! What some kinds of applications ask of a disk: files that come, grow, are read and go; a package manager; a database with a
//! log; sorted runs that are merged. Models, held to what is published of the benchmarks that they are named for (docs/LAB.md has
//! the statistics side by side, `tests` asserts them); synthetic all the same, and labelled so wherever they appear.
//!
//! Nothing here is fragmented; where a file's metadata goes is the journaling host's part ([`crate::journal`]).

mod files;
mod install;
mod made;
mod merge;
mod oltp;
mod spread;
#[cfg(test)]
mod tests;

pub use files::{FILESERVER, NewFile, Personality, VARMAIL};

use crate::rng::Rng;
use crate::trace::Op;
use files::Files;
use install::Install;
use made::Made;
use merge::Merge;
use oltp::Oltp;
use std::collections::VecDeque;

/// Blocks of a request, at most: 128 KiB, as file systems send them.
const PIECE: u64 = 32;

/// Which application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Application {
    /// Files; of each round one is deleted, made, appended to and read.
    Files(Personality),
    /// Files are made, one after the other, and nothing else.
    Made {
        /// Their blocks in the mean, spread exponentially.
        mean_blocks: u64,
    },
    /// Files of packages, one behind the other, over the oldest when the disk is full.
    Install,
    /// TPC-C's transactions.
    Oltp,
    /// A log-structured merge tree.
    Merge,
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

/// What is yet to be asked, in order.
#[derive(Default)]
struct Steps(VecDeque<Step>);

impl Steps {
    fn pieces(&mut self, op: Op, lba: u64, blocks: u64) {
        let all = (0..blocks).step_by(PIECE as usize);
        self.0.extend(all.map(|at| Step {
            op,
            lba: lba + at,
            blocks: (blocks - at).min(PIECE) as u32,
        }));
    }

    fn write(&mut self, lba: u64, blocks: u64) {
        self.pieces(Op::Write { fua: false }, lba, blocks);
    }

    fn flush(&mut self) {
        self.0.push_back(Step {
            op: Op::Flush,
            lba: 0,
            blocks: 0,
        });
    }
}

enum Kind {
    Files(Files),
    Made(Made),
    Install(Install),
    Oltp(Oltp),
    Merge(Merge),
}

/// An application that runs.
pub struct Running {
    kind: Kind,
    steps: Steps,
}

impl Running {
    /// It begins, on so many blocks.
    #[must_use]
    pub fn new(what: Application, blocks: u64) -> Self {
        Self {
            kind: match what {
                Application::Files(personality) => Kind::Files(Files::new(personality, blocks)),
                Application::Made { mean_blocks } => Kind::Made(Made::new(mean_blocks, blocks)),
                Application::Install => Kind::Install(Install::new(blocks)),
                Application::Oltp => Kind::Oltp(Oltp::new(blocks)),
                Application::Merge => Kind::Merge(Merge::new(blocks)),
            },
            steps: Steps::default(),
        }
    }

    /// What is asked next.
    pub fn next(&mut self, rng: &mut Rng) -> Step {
        loop {
            if let Some(step) = self.steps.0.pop_front() {
                return step;
            }
            match &mut self.kind {
                Kind::Files(files) => files.round(rng, &mut self.steps),
                Kind::Made(made) => made.file(rng, &mut self.steps),
                Kind::Install(install) => install.file(rng, &mut self.steps),
                Kind::Oltp(oltp) => oltp.transaction(rng, &mut self.steps),
                Kind::Merge(merge) => merge.fill(&mut self.steps),
            }
        }
    }
}
