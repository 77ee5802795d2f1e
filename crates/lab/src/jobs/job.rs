//! One job.

use super::lengths::Lengths;
use crate::workload::Pattern;

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Discards.
    Trim,
    /// Reads and writes, by percent.
    Mixed {
        /// Percent of the requests that are reads.
        reads: u32,
    },
    /// Each place is discarded and then written.
    TrimWrite,
}

/// A number of blocks, or a part of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// This many.
    Blocks(u64),
    /// Percent of the volume's blocks.
    Percent(u32),
}

impl Amount {
    /// None.
    pub const NONE: Self = Self::Blocks(0);

    pub(super) fn of(self, volume: u64) -> u64 {
        match self {
            Self::Blocks(blocks) => blocks,
            Self::Percent(percent) => {
                (u128::from(volume) * u128::from(percent.min(100)) / 100) as u64
            }
        }
    }
}

/// Where a job goes, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Where its file begins.
    pub base: u64,
    /// Where it begins in its file.
    pub offset: Amount,
    /// How much of the file it uses.
    pub size: Amount,
    /// How much it requests; none: `size`.
    pub io: Option<Amount>,
    /// The most requests; pairs of a discard and a write count as one.
    pub count: u64,
    /// How often all of that is repeated.
    pub loops: u64,
}

/// When a job sends requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct When {
    /// The most requests open at a time.
    pub depth: u32,
    /// The least time from one request to the next, in nanoseconds.
    pub gap_ns: Option<u64>,
    /// After this many requests it waits for its answers, and then for this long.
    pub think: Option<(u64, u64)>,
    /// How long it lasts at most, from its own start.
    pub runtime_ns: Option<u64>,
    /// True if it ends only by `runtime_ns`.
    pub endless: bool,
    /// The jobs that it begins after, all before it in the list.
    pub after: Vec<usize>,
}

/// A job.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its name, unique among the jobs.
    pub name: String,
    /// What it does.
    pub way: Way,
    /// The lengths of its reads.
    pub reads: Lengths,
    /// The lengths of its other requests.
    pub others: Lengths,
    /// Where requests go. In sequence, reads and other requests each have a sequence.
    pub pattern: Pattern,
    /// A flush after this many writes; 0: none.
    pub flush_every: u64,
    /// Each write is durable when it is answered.
    pub durable: bool,
    /// Percent of zero blocks among those written.
    pub zeros: u32,
    /// Percent of the written blocks whose content other blocks of the job have too.
    pub duplicates: u32,
    /// Where it goes.
    pub place: Place,
    /// When it sends requests.
    pub when: When,
}

/// Why jobs do not fit on a drive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobsError {
    /// A job goes past the end of the volume.
    #[error(
        "the job {name} goes to block {end}, and the volume has {volume}: give it a larger --capacity"
    )]
    Area {
        /// The job.
        name: String,
        /// The block after its last.
        end: u64,
        /// Blocks of the volume.
        volume: u64,
    },
    /// A request is longer than the space of its job.
    #[error("the job {name} asks for {request} blocks at a time and has {blocks}")]
    Request {
        /// The job.
        name: String,
        /// Blocks of its longest request.
        request: u64,
        /// Blocks of its space.
        blocks: u64,
    },
}

/// Where a job goes on a volume whose size is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its first block.
    pub first: u64,
    /// Blocks of its space.
    pub blocks: u64,
    /// Blocks that it requests in one pass.
    pub once: u64,
}

impl Job {
    /// Where it goes on a volume of this many blocks.
    ///
    /// # Errors
    /// When there is no room.
    pub fn on(&self, volume: u64) -> Result<Placed, JobsError> {
        let first = self.place.base.saturating_add(self.place.offset.of(volume));
        let rest = volume.saturating_sub(first);
        let blocks = match self.place.size {
            // A share of a device ends at the device's end.
            size @ Amount::Percent(_) => size.of(volume).min(rest),
            size @ Amount::Blocks(_) => size.of(volume),
        };
        let end = first.saturating_add(blocks);
        if end > volume {
            return Err(JobsError::Area {
                name: self.name.clone(),
                end,
                volume,
            });
        }
        let request = u64::from(self.reads.most().max(self.others.most()));
        if request > blocks {
            return Err(JobsError::Request {
                name: self.name.clone(),
                request,
                blocks,
            });
        }
        let once = self.place.io.map_or(blocks, |io| io.of(volume));
        Ok(Placed {
            first,
            blocks,
            once,
        })
    }

    /// True if it writes anything.
    #[must_use]
    pub fn writes(&self) -> bool {
        match self.way {
            Way::Read | Way::Trim => false,
            Way::Write | Way::TrimWrite => true,
            Way::Mixed { reads } => reads < 100,
        }
    }

    /// About how many blocks it writes, and how many requests it makes, in one pass.
    pub(crate) fn pass(&self, placed: &Placed) -> (u64, u64) {
        let reads = match self.way {
            Way::Read => 1.0,
            Way::Mixed { reads } => f64::from(reads) / 100.0,
            Way::Write | Way::Trim | Way::TrimWrite => 0.0,
        };
        let mean = self.reads.mean() * reads + self.others.mean() * (1.0 - reads);
        let requests = (placed.once as f64 / mean).min(self.place.count as f64);
        let written = match self.writes() {
            true => requests * (1.0 - reads) * self.others.mean(),
            false => 0.0,
        };
        let pairs = if self.way == Way::TrimWrite { 2.0 } else { 1.0 };
        (written as u64, (requests * pairs) as u64)
    }

    /// Describes the job.
    #[must_use]
    pub fn told(&self) -> String {
        let random = self.pattern != Pattern::Sequential;
        let what = match (self.way, random) {
            (Way::Read, false) => "read".into(),
            (Way::Read, true) => "randread".into(),
            (Way::Write, false) => "write".into(),
            (Way::Write, true) => "randwrite".into(),
            (Way::Trim, false) => "trim".into(),
            (Way::Trim, true) => "randtrim".into(),
            (Way::TrimWrite, false) => "trimwrite".into(),
            (Way::TrimWrite, true) => "randtrimwrite".into(),
            (Way::Mixed { reads }, false) => format!("rw, {reads}% reads"),
            (Way::Mixed { reads }, true) => format!("randrw, {reads}% reads"),
        };
        let lengths = match self.way {
            Way::Read => self.reads.to_string(),
            Way::Mixed { .. } if self.reads != self.others => {
                format!("{} and {}", self.reads, self.others)
            }
            _ => self.others.to_string(),
        };
        let pattern = match self.pattern {
            Pattern::Zipf { skew } => format!(", skew {skew}"),
            Pattern::Pareto { share } => format!(", pareto {share}"),
            Pattern::Zones(zones) => format!(", zones {zones}"),
            _ => String::new(),
        };
        format!("{}: {what}{pattern}, {lengths}", self.name)
    }
}
