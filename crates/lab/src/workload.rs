//! Generated requests: synthetic loads, labelled so wherever they appear.

mod filler;
mod places;

pub use filler::Again;
pub(crate) use filler::Filler;
use filler::SKEW;
pub use places::Pattern;
pub(crate) use places::Places;

use crate::applications::{Application, FILESERVER, NextRequest, Running, VARMAIL};
use crate::content::{Content, Contents};
use crate::rng::Rng;
use crate::sizes::MeasuredSizes;
use crate::trace::Op;
use smallvec::smallvec;
use std::sync::Arc;
use vellum_core::addr::Lba;

/// A request of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// When, in nanoseconds from the start; 0 where the host sets the pace.
    pub at: u64,
    /// What it does.
    pub op: Op,
    /// The first block.
    pub lba: u64,
    /// How many blocks.
    pub blocks: u32,
    /// What a write writes: one content per block.
    pub contents: Contents,
    /// The bytes of metadata that a file system writes.
    pub bytes: Bytes,
    /// For a write that completes a journal's transaction: the blocks that the transaction puts home.
    pub committed: Committed,
    /// The sizes its blocks can be stored in, if measured.
    pub sizes: MeasuredSizes,
    /// The tenant that sends it, or [`NOBODY`].
    pub tenant: u8,
}

/// The sender where there are no tenants, and when a drive is filled and flushed for all of them.
pub const NOBODY: u8 = u8::MAX;

/// The bytes of a block.
pub type Block = Arc<[u8]>;

/// For a write: the blocks that a file system made, by index, with their bytes.
pub type Bytes = Option<Box<[(u32, Block)]>>;

/// Home blocks, each with its copy in the journal, as the core gets them.
pub type Committed = Option<Box<[(Lba, Lba)]>>;

impl Request {
    /// A flush: makes what was written before durable.
    #[must_use]
    pub fn flush(at: u64) -> Self {
        Self {
            at,
            op: Op::Flush,
            lba: 0,
            blocks: 0,
            contents: Contents::new(),
            bytes: None,
            committed: None,
            sizes: None,
            tenant: NOBODY,
        }
    }

    /// A write of one block with a unique content.
    #[must_use]
    pub fn write_one(lba: u64, seed: u64, version: u64) -> Self {
        Self {
            at: 0,
            op: Op::Write { fua: false },
            lba,
            blocks: 1,
            contents: smallvec![Content::synthetic(seed, lba, version)],
            bytes: None,
            committed: None,
            sizes: None,
            tenant: NOBODY,
        }
    }
}

/// A load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in words.
    pub about: &'static str,
    /// Where requests go.
    pub pattern: Pattern,
    /// Percent of reads.
    pub reads: u32,
}

const WORKLOADS: [Workload; 10] = [
    Workload {
        name: "sequential",
        about: "writes from the first block to the last, again and again",
        pattern: Pattern::Sequential,
        reads: 0,
    },
    Workload {
        name: "uniform",
        about: "writes anywhere with the same chance: the closed forms' load",
        pattern: Pattern::Uniform,
        reads: 0,
    },
    Workload {
        name: "zipf",
        about: "writes by popularity (skew 0.99, YCSB's constant), scattered over the volume",
        pattern: Pattern::Zipf { skew: SKEW },
        reads: 0,
    },
    Workload {
        name: "hot-cold",
        about: "80% of the writes to 20% of the volume",
        pattern: Pattern::HotCold {
            share: 80,
            space: 20,
        },
        reads: 0,
    },
    Workload {
        name: "mixed",
        about: "70% reads, 30% writes, anywhere",
        pattern: Pattern::Uniform,
        reads: 70,
    },
    Workload {
        name: "varmail",
        about: "a mail server, filebench's: files of 16 KiB in the mean made, appended to, read and deleted; \
                a flush after each write",
        pattern: Pattern::Application(Application::Files(VARMAIL)),
        reads: 0,
    },
    Workload {
        name: "fileserver",
        about: "a file server, filebench's: files of 128 KiB in the mean made, appended to, read and \
                deleted; no flushes",
        pattern: Pattern::Application(Application::Files(FILESERVER)),
        reads: 0,
    },
    Workload {
        name: "packages",
        about: "packages installed: files of 4 KiB in the median and 52 in the mean, a flush after each; \
                over the oldest when the disk is full",
        pattern: Pattern::Application(Application::Install),
        reads: 0,
    },
    Workload {
        name: "oltp",
        about: "TPC-C: its transactions on pages of 8 KiB; a log, flushed by each that changes anything",
        pattern: Pattern::Application(Application::Oltp),
        reads: 0,
    },
    Workload {
        name: "key-value",
        about: "a log-structured merge tree, LevelDB's: tables of 2 MiB, levels ten times as large as the \
                one before, old tables discarded",
        pattern: Pattern::Application(Application::Merge),
        reads: 0,
    },
];

/// All workloads.
#[must_use]
pub fn workloads() -> &'static [Workload] {
    &WORKLOADS
}

/// The workload with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Workload> {
    WORKLOADS.iter().find(|workload| workload.name == name)
}

impl Workload {
    /// Describes it, including what was changed about it.
    #[must_use]
    pub fn told(&self) -> String {
        let known = find(self.name);
        let mut told = format!("{} (synthetic)", self.name);
        if known.is_none_or(|known| known.pattern != self.pattern) {
            told += &match self.pattern {
                Pattern::Zipf { skew } => format!(", skew {skew}"),
                Pattern::Zones(zones) => format!(", zones {zones}"),
                Pattern::Pareto { share } => format!(", pareto {share}"),
                Pattern::Sequential => ", in order".into(),
                Pattern::Shuffled => ", each place once, then again".into(),
                _ => String::new(),
            };
        }
        if known.is_none_or(|known| known.reads != self.reads) {
            told += &format!(", {}% reads", self.reads);
        }
        told
    }
}

/// Requests that arrive at once, and the time to the next ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bursts {
    /// How many.
    pub requests: u64,
    /// Nanoseconds from one burst to the next.
    pub every_ns: u64,
}

/// How a workload becomes requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Blocks of the volume.
    pub blocks: u64,
    /// Blocks of a request.
    pub request_blocks: u32,
    /// Percent of zero blocks among those written.
    pub zeros: u32,
    /// Percent of the written blocks whose content other blocks have too.
    pub duplicates: u32,
    /// Which contents those have.
    pub again: Again,
    /// A flush after this many writes; 0: none.
    pub flush_every: u64,
    /// By how much of the volume the pattern moves, in thousandths, while as many requests are sent as it has places.
    pub drift: u32,
    /// When requests arrive; none: at 0, and the caller sets the pace.
    pub bursts: Option<Bursts>,
    /// The seed of all random choices.
    pub seed: u64,
}

/// Generates requests without end.
pub struct Generator {
    workload: Workload,
    shape: Shape,
    places: Places,
    filler: Filler,
    application: Option<Running>,
    rng: Rng,
    writes: u64,
    requests: u64,
    unflushed: u64,
}

impl Generator {
    /// A generator for this workload.
    #[must_use]
    pub fn new(workload: Workload, shape: Shape) -> Self {
        let places = (shape.blocks / u64::from(shape.request_blocks.max(1))).max(1);
        Self {
            workload,
            shape,
            places: Places::new(workload.pattern, places, shape.seed),
            filler: Filler::new(
                (shape.zeros, shape.duplicates),
                shape.again,
                (shape.blocks, shape.seed),
            ),
            application: match workload.pattern {
                Pattern::Application(what) => Some(Running::new(what, shape.blocks)),
                _ => None,
            },
            rng: Rng::new(shape.seed),
            writes: 0,
            requests: 0,
            unflushed: 0,
        }
    }

    /// The place of a request, by the pattern and how far it has moved.
    fn place(&mut self, read: bool) -> u64 {
        let moved = u128::from(self.requests - 1) * u128::from(self.shape.drift) / 1000;
        let place = u128::from(self.places.draw(&mut self.rng, read)) + moved;
        (place % u128::from(self.places.count())) as u64
    }
}

impl Iterator for Generator {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let at = match self.shape.bursts {
            Some(bursts) => self.requests / bursts.requests.max(1) * bursts.every_ns,
            None => 0,
        };
        self.requests += 1;
        let flush_every = self.shape.flush_every;
        if flush_every > 0 && self.unflushed == flush_every {
            self.unflushed = 0;
            return Some(Request::flush(at));
        }
        let NextRequest { op, lba, blocks } = self.step();
        let mut contents = Contents::new();
        if matches!(op, Op::Write { .. }) {
            self.writes += 1;
            self.unflushed += 1;
            let each = self.filler.each(&mut self.rng, (lba, blocks), self.writes);
            contents.extend(each);
        }
        Some(Request {
            at,
            op,
            lba,
            blocks,
            contents,
            bytes: None,
            committed: None,
            sizes: None,
            tenant: NOBODY,
        })
    }
}

impl Generator {
    fn step(&mut self) -> NextRequest {
        if let Some(application) = &mut self.application {
            return application.next(&mut self.rng);
        }
        let reads = u64::from(self.workload.reads);
        let is_read = reads > 0 && self.rng.below(100) < reads;
        NextRequest {
            op: match is_read {
                true => Op::Read,
                false => Op::Write { fua: false },
            },
            lba: self.place(is_read) * u64::from(self.shape.request_blocks),
            blocks: self.shape.request_blocks.min(self.shape.blocks as u32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(blocks: u64) -> Shape {
        Shape {
            blocks,
            request_blocks: 1,
            zeros: 0,
            duplicates: 0,
            again: Again::Popular,
            flush_every: 0,
            drift: 0,
            bursts: None,
            seed: 5,
        }
    }

    fn hits(name: &str, blocks: u64, draws: usize) -> Vec<u32> {
        let mut hits = vec![0; blocks as usize];
        for request in Generator::new(*find(name).unwrap(), shape(blocks)).take(draws) {
            hits[request.lba as usize] += 1;
        }
        hits
    }

    #[test]
    fn sequential_visits_each_once_a_round() {
        assert_eq!(hits("sequential", 50, 100), vec![2; 50]);
    }

    #[test]
    fn a_pattern_drifts_at_the_requested_rate() {
        // A tenth of the volume in the time of a volume's worth of requests; then each place is requested one earlier.
        let shape = Shape {
            drift: 100,
            ..shape(1000)
        };
        let sequential = Generator::new(*find("sequential").unwrap(), shape);
        for (number, request) in sequential.take(5000).enumerate() {
            let number = number as u64;
            assert_eq!(request.lba, (number + number / 10) % 1000);
        }
        // The hot part stays as large, and lies a fifth further on after two volumes.
        let hot = Generator::new(*find("hot-cold").unwrap(), shape).skip(2000);
        let hits = hot
            .take(100)
            .filter(|r| (200..410).contains(&r.lba))
            .count();
        assert!((65..95).contains(&hits), "{hits}");
    }

    #[test]
    fn hot_is_hot() {
        let hits = hits("hot-cold", 1000, 100_000);
        let hot: u32 = hits[..200].iter().sum();
        assert!((79_000..81_000).contains(&hot), "{hot}");
    }

    #[test]
    fn zipf_follows_its_law() {
        let mut hits = hits("zipf", 1000, 1_000_000);
        hits.sort_unstable_by(|a, b| b.cmp(a));
        // zeta(1000, 0.99) is 7.729: the first has 12.9% of the draws, the second half of that.
        assert!((126_000..133_000).contains(&hits[0]), "{}", hits[0]);
        assert!((63_000..68_000).contains(&hits[1]), "{}", hits[1]);
    }

    #[test]
    fn flushes_and_zeros_have_the_requested_frequency() {
        let shape = Shape {
            flush_every: 10,
            zeros: 25,
            ..shape(100)
        };
        let requests: Vec<_> = Generator::new(*find("uniform").unwrap(), shape)
            .take(11_000)
            .collect();
        let flushes = requests.iter().filter(|r| r.op == Op::Flush).count();
        assert_eq!(flushes, 1000);
        let zeros = requests
            .iter()
            .filter(|r| r.contents[..] == [Content::ZERO])
            .count();
        assert!((2300..2700).contains(&zeros), "{zeros}");
    }

    #[test]
    fn recent_contents_repeat_as_requested_and_bursts_arrive_on_time() {
        let shape = Shape {
            duplicates: 30,
            again: Again::Soon,
            bursts: Some(Bursts {
                requests: 100,
                every_ns: 5000,
            }),
            ..shape(10_000)
        };
        let load = Generator::new(*find("uniform").unwrap(), shape).take(10_000);
        let requests: Vec<_> = load.collect();
        let contents = requests.iter().map(|request| request.contents[0]);
        let different = contents.collect::<std::collections::BTreeSet<_>>().len();
        assert!((6800..7200).contains(&different), "{different}");
        assert!(requests[0].at == 0 && requests[99].at == 0 && requests[100].at == 5000);
    }

    #[test]
    fn duplicates_have_their_share_and_popularity() {
        let shape = Shape {
            duplicates: 30,
            ..shape(10_000)
        };
        let mut seen = std::collections::BTreeMap::new();
        for request in Generator::new(*find("uniform").unwrap(), shape).take(10_000) {
            *seen.entry(request.contents[0]).or_insert(0u32) += 1;
        }
        let again: u32 = seen.values().filter(|&&count| count > 1).sum();
        // A hundred contents: nearly all of them repeat.
        assert!((2700..3200).contains(&again), "{again}");
        assert!(seen.values().max() > Some(&400));
    }
}
