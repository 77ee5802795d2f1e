//! The requests of some kinds of applications: files that are made, grow, are read and deleted; a package manager; a
//! database with a log; sorted runs that are merged. These models match what is published of the benchmarks they are
//! named after (docs/LAB.md compares the statistics, `tests` asserts them). They are synthetic all the same, and
//! labelled so wherever they appear.
//!
//! Nothing here is fragmented. The metadata of files is up to the journaling host ([`crate::journal`]).

mod files;
mod install;
mod made;
mod merge;
mod oltp;
mod spread;
mod steps;
#[cfg(test)]
mod tests;

pub use files::{FILESERVER, NewFile, Personality, VARMAIL};
pub use steps::NextRequest;

use crate::rng::Rng;
use files::Files;
use install::Install;
use made::Made;
use merge::Merge;
use oltp::Oltp;
use steps::NextRequests;

/// The application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Application {
    /// Files; in each round one is deleted, made, appended to and read.
    Files(Personality),
    /// Files are made one after the other, and nothing else.
    Made {
        /// Their mean size in blocks, spread exponentially.
        mean_blocks: u64,
    },
    /// Files of packages, one after the other, replacing the oldest when the disk is full.
    Install,
    /// TPC-C's transactions.
    Oltp,
    /// A log-structured merge tree.
    Merge,
}

enum Kind {
    Files(Files),
    Made(Made),
    Install(Install),
    Oltp(Oltp),
    Merge(Merge),
}

/// A running application.
pub struct Running {
    kind: Kind,
    steps: NextRequests,
}

impl Running {
    /// Starts it on this many blocks.
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
            steps: NextRequests::default(),
        }
    }

    /// The next request.
    pub fn next(&mut self, rng: &mut Rng) -> NextRequest {
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
