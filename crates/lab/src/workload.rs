//! Requests that nobody recorded: synthetic loads, and labelled so wherever they appear.

use crate::applications::{Application, FILESERVER, Running, Step, VARMAIL};
use crate::content::{Content, Contents};
use crate::rng::{Rng, mix};
use crate::sizes::Tells;
use crate::trace::Op;
use crate::zipf::Zipf;
use crate::zones::Zones;
use smallvec::smallvec;
use vellum_core::addr::Lba;

/// What a host asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// When, in nanoseconds from the start; 0 where that is the host's own pace.
    pub at: u64,
    /// What.
    pub op: Op,
    /// The first block.
    pub lba: u64,
    /// How many.
    pub blocks: u32,
    /// What a write writes, a content a block.
    pub contents: Contents,
    /// Of a write into a journal: whose copies its blocks are.
    pub homes: Homes,
    /// What a journal's transaction puts home that is complete with this write.
    pub committed: Committed,
    /// In how many bytes its blocks can be stored, where that was measured.
    pub sizes: Tells,
}

/// Of each block of a write into a journal: where it belongs, or [`NO_HOME`]. None of any other write.
pub type Homes = Option<Box<[u64]>>;

/// Home blocks, each with its copy in the journal; as the core is told of them.
pub type Committed = Option<Box<[(Lba, Lba)]>>;

/// What a journal writes for itself belongs nowhere else.
pub const NO_HOME: u64 = u64::MAX;

impl Request {
    /// Brings what was written before to the medium.
    #[must_use]
    pub fn flush(at: u64) -> Self {
        Self {
            at,
            op: Op::Flush,
            lba: 0,
            blocks: 0,
            contents: Contents::new(),
            homes: None,
            committed: None,
            sizes: None,
        }
    }

    /// A write of one block with a content of its own.
    #[must_use]
    pub fn write_one(lba: u64, seed: u64, version: u64) -> Self {
        Self {
            at: 0,
            op: Op::Write { fua: false },
            lba,
            blocks: 1,
            contents: smallvec![Content::synthetic(seed, lba, version)],
            homes: None,
            committed: None,
            sizes: None,
        }
    }
}

/// Where requests go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// One after the other, and again from the start.
    Sequential,
    /// Anywhere with the same chance.
    Uniform,
    /// The `n`th most popular with a chance proportional to `1 / n^skew`, scattered over the volume.
    Zipf {
        /// From 0 to [`SKEW_MAX`](crate::zipf::SKEW_MAX).
        skew: f64,
    },
    /// `share` of the requests go to `space` of the volume.
    HotCold {
        /// Of the requests, in percent.
        share: u32,
        /// Of the volume, in percent.
        space: u32,
    },
    /// Each zone of the volume has its share.
    Zones(Zones),
    /// As an application asks, in requests of its own sizes, with its own flushes.
    Application(Application),
}

/// A load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Where requests go.
    pub pattern: Pattern,
    /// Reads among them, in percent.
    pub reads: u32,
}

/// YCSB's constant, also for contents that come again.
const SKEW: f64 = 0.99;

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
        about: "a mail server, filebench's: files of 16 KiB in the mean made, appended to, read and deleted; a flush after each write",
        pattern: Pattern::Application(Application::Files(VARMAIL)),
        reads: 0,
    },
    Workload {
        name: "fileserver",
        about: "a file server, filebench's: files of 128 KiB in the mean made, appended to, read and deleted; no flushes",
        pattern: Pattern::Application(Application::Files(FILESERVER)),
        reads: 0,
    },
    Workload {
        name: "packages",
        about: "packages installed: files of 4 KiB in the median and 52 in the mean, a flush after each; over the oldest when the disk is full",
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
        about: "a log-structured merge tree, LevelDB's: tables of 2 MiB, levels ten times as large as the one before, old tables discarded",
        pattern: Pattern::Application(Application::Merge),
        reads: 0,
    },
];

/// All of them.
#[must_use]
pub fn workloads() -> &'static [Workload] {
    &WORKLOADS
}

/// The one of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Workload> {
    WORKLOADS.iter().find(|workload| workload.name == name)
}

impl Workload {
    /// What it is, with what was made different of it.
    #[must_use]
    pub fn told(&self) -> String {
        let known = find(self.name);
        let mut told = format!("{} (synthetic)", self.name);
        if known.is_none_or(|known| known.pattern != self.pattern) {
            told += &match self.pattern {
                Pattern::Zipf { skew } => format!(", skew {skew}"),
                Pattern::Zones(zones) => format!(", zones {zones}"),
                _ => String::new(),
            };
        }
        if known.is_none_or(|known| known.reads != self.reads) {
            told += &format!(", {}% reads", self.reads);
        }
        told
    }
}

/// Which contents are written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// One of a hundredth as many as the volume has blocks, by popularity.
    Popular,
    /// Those of a request that came before, mostly not long before: the logarithm of the distance is uniform. A request's
    /// blocks come again together.
    Soon,
}

/// Requests that come at once, and when the next do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bursts {
    /// How many.
    pub requests: u64,
    /// Nanoseconds from one to the next.
    pub every_ns: u64,
}

/// How a load is made into requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Blocks of the volume.
    pub blocks: u64,
    /// Blocks of a request.
    pub request_blocks: u32,
    /// Blocks of zeros among those written, in percent.
    pub zeros: u32,
    /// Blocks among those written whose content others have as well, in percent.
    pub duplicates: u32,
    /// Which those are.
    pub again: Again,
    /// A flush after so many writes; 0: none.
    pub flush_every: u64,
    /// By how much of the volume the pattern moves on, in thousandths, while as many requests come as it has places.
    pub drift: u32,
    /// When requests come; none: at 0, whoever runs them has a pace of his own.
    pub bursts: Option<Bursts>,
    /// Chance.
    pub seed: u64,
}

/// Makes requests without end.
pub struct Generator {
    workload: Workload,
    shape: Shape,
    places: u64,
    zipf: Option<Zipf>,
    /// How popular each of the contents that come again is.
    popular: Option<Zipf>,
    application: Option<Running>,
    rng: Rng,
    next: u64,
    writes: u64,
    requests: u64,
    unflushed: u64,
}

impl Generator {
    /// A generator of that load.
    #[must_use]
    pub fn new(workload: Workload, shape: Shape) -> Self {
        let places = (shape.blocks / u64::from(shape.request_blocks.max(1))).max(1);
        let zipf = match workload.pattern {
            Pattern::Zipf { skew } => Some(Zipf::new(places, skew)),
            _ => None,
        };
        Self {
            workload,
            shape,
            places,
            zipf,
            popular: (shape.duplicates > 0 && shape.again == Again::Popular)
                .then(|| Zipf::new((shape.blocks / 100).max(1), SKEW)),
            application: match workload.pattern {
                Pattern::Application(what) => Some(Running::new(what, shape.blocks)),
                _ => None,
            },
            rng: Rng::new(shape.seed),
            next: 0,
            writes: 0,
            requests: 0,
            unflushed: 0,
        }
    }

    /// Where a request goes: a place of the pattern, and the pattern moves.
    fn place(&mut self, read: bool) -> u64 {
        let moved = u128::from(self.requests - 1) * u128::from(self.shape.drift) / 1000;
        let place = u128::from(self.place_of_pattern(read)) + moved;
        (place % u128::from(self.places)) as u64
    }

    fn place_of_pattern(&mut self, read: bool) -> u64 {
        let places = self.places;
        match (self.workload.pattern, &self.zipf) {
            (Pattern::Sequential, _) => {
                self.next = (self.next + 1) % places;
                (self.next + places - 1) % places
            }
            (Pattern::Zipf { .. }, Some(zipf)) => {
                // Popular ones are not neighbours: the golden ratio's steps visit every place.
                let rank = zipf.draw(&mut self.rng);
                let step = (places as f64 * 0.618_033_988_75) as u64 | 1;
                (u128::from(rank) * u128::from(coprime(step, places)) % u128::from(places)) as u64
            }
            (Pattern::HotCold { share, space }, _) => {
                let hot = (places * u64::from(space) / 100).max(1);
                match self.rng.below(100) < u64::from(share) || hot == places {
                    true => self.rng.below(hot),
                    false => hot + self.rng.below(places - hot),
                }
            }
            (Pattern::Zones(zones), _) => zones.draw(&mut self.rng, places, read),
            _ => self.rng.below(places),
        }
    }
}

/// The first number from `n` on that shares no factor with `m`.
fn coprime(n: u64, m: u64) -> u64 {
    let gcd = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    (n..).find(|&n| gcd(n, m) == 1).unwrap_or(1)
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
        let Step { op, lba, blocks } = self.step();
        let mut contents = Contents::new();
        if matches!(op, Op::Write { .. }) {
            self.writes += 1;
            self.unflushed += 1;
            (0..u64::from(blocks)).for_each(|index| contents.push(self.content(lba, index)));
        }
        Some(Request {
            at,
            op,
            lba,
            blocks,
            contents,
            homes: None,
            committed: None,
            sizes: None,
        })
    }
}

impl Generator {
    fn step(&mut self) -> Step {
        if let Some(application) = &mut self.application {
            return application.next(&mut self.rng);
        }
        let reads = u64::from(self.workload.reads);
        let is_read = reads > 0 && self.rng.below(100) < reads;
        Step {
            op: match is_read {
                true => Op::Read,
                false => Op::Write { fua: false },
            },
            lba: self.place(is_read) * u64::from(self.shape.request_blocks),
            blocks: self.shape.request_blocks.min(self.shape.blocks as u32),
        }
    }

    /// What a write from `lba` on holds in one of its blocks.
    fn content(&mut self, lba: u64, index: u64) -> Content {
        let zeros = u64::from(self.shape.zeros);
        let known = zeros + u64::from(self.shape.duplicates);
        let drawn = match known {
            0 => 100,
            _ => self.rng.below(100),
        };
        if drawn < zeros {
            return Content::ZERO;
        }
        match &self.popular {
            Some(popular) if drawn < known => {
                Content::of(mix(popular.draw(&mut self.rng) ^ mix(self.shape.seed)))
            }
            _ if self.shape.again == Again::Soon => soon(&self.shape, self.writes, index),
            _ => Content::synthetic(self.shape.seed, lba + index, self.writes),
        }
    }
}

/// What a block of the `number`th write holds, where contents come again soon: its own, or that of an earlier write's.
fn soon(shape: &Shape, mut number: u64, index: u64) -> Content {
    loop {
        let drawn = mix(shape.seed ^ mix(number ^ 0xd0b1e));
        if number == 0 || drawn % 100 >= u64::from(shape.duplicates) {
            return Content::synthetic(shape.seed, u64::MAX - index, number);
        }
        let unit = (mix(drawn) >> 11) as f64 / (1u64 << 53) as f64;
        let back = (number as f64).powf(unit) as u64;
        number -= back.clamp(1, number);
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
    fn a_pattern_that_drifts_has_gone_as_far_as_is_asked() {
        // A tenth of the volume while a volume's worth of requests comes; then each place was asked for one earlier.
        let shape = Shape {
            drift: 100,
            ..shape(1000)
        };
        let sequential = Generator::new(*find("sequential").unwrap(), shape);
        for (number, request) in sequential.take(5000).enumerate() {
            let number = number as u64;
            assert_eq!(request.lba, (number + number / 10) % 1000);
        }
        // What is hot stays as large, and lies a fifth further on after two volumes.
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
    fn flushes_come_when_asked_for_and_zeros_in_number() {
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
    fn contents_that_come_soon_come_in_number_and_bursts_at_their_times() {
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
    fn duplicates_come_in_number_and_by_popularity() {
        let shape = Shape {
            duplicates: 30,
            ..shape(10_000)
        };
        let mut seen = std::collections::BTreeMap::new();
        for request in Generator::new(*find("uniform").unwrap(), shape).take(10_000) {
            *seen.entry(request.contents[0]).or_insert(0u32) += 1;
        }
        let again: u32 = seen.values().filter(|&&count| count > 1).sum();
        // A hundred contents: nearly all of them come more than once.
        assert!((2700..3200).contains(&again), "{again}");
        assert!(seen.values().max() > Some(&400));
    }
}
