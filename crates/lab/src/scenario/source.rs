//! Where a run's requests come from: what a warm-up takes of them, and what is measured.

use super::{JOURNAL_BLOCKS_MIN, Load, Scenario, ScenarioError, Synthetic, UNTIL_WORN_OUT};
use crate::journal::Host;
use crate::policy::{Layer, Policy};
use crate::progress::{Watch, Watched};
use crate::replay::{RepeatedContents, TraceFile};
use crate::rng::mix;
use crate::sim::Sim;
use crate::trace::Op;
use crate::workload::{self, Generator, Request};
use std::cell::Cell;
use std::rc::Rc;
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_core::seam::{Region, WriteOnce};

/// Repetitions of a trace that warm a drive up are numbered from here on, so that they write other contents than those that
/// are measured.
const WARM_REPETITIONS: u32 = 1 << 31;

/// A load on one drive.
pub(super) enum Source<'a> {
    /// Made up.
    Made(Made<'a>),
    /// Recorded.
    Trace {
        trace: &'a TraceFile,
        times: u32,
        repeated: RepeatedContents,
        /// Passes that the warm-up has taken.
        passes: u32,
    },
    /// Given one by one.
    Given(&'a [Request]),
}

/// A load that is measured from where the warm-up left it.
pub(super) struct Made<'a> {
    requests: Box<dyn Iterator<Item = Request> + 'a>,
    left: Rc<Cell<u64>>,
    count: u64,
}

/// How much of a load is taken.
#[derive(Clone, Copy)]
pub(super) struct Portion {
    /// Blocks that it writes, at least.
    pub blocks: u64,
    /// Requests of it, at most.
    pub requests: u64,
    /// Whether its reads are left out: of most drives they change nothing that is counted.
    pub skips_reads: bool,
}

impl<'a> Scenario<'a> {
    /// The requests for a drive that shows so many blocks, which is told where journals are.
    pub(super) fn source(
        &'a self,
        policy: &Policy,
        sim: &mut Sim,
        logical: u64,
    ) -> Result<Source<'a>, ScenarioError> {
        let rule = match policy.layer {
            Layer::Vellum(engine) => engine.write_once,
            _ => WriteOnce::Off,
        };
        match &self.load {
            Load::Requests(requests) => Ok(Source::Given(requests)),
            Load::Synthetic(load) => {
                if let Some(journal) = load.journal {
                    self.shape(load, logical)?;
                    sim.watch(&[journal.region(logical, rule)]);
                }
                Ok(Source::Made(self.made(load, logical)?))
            }
            &Load::Trace {
                trace,
                times,
                repeated,
            } => {
                if let Some((start, blocks)) = trace.journal() {
                    sim.watch(&[Region {
                        start: Lba(start),
                        blocks,
                        homes: Lba(0),
                        homes_blocks: logical,
                        rule,
                    }]);
                }
                Ok(Source::Trace {
                    trace,
                    times,
                    repeated,
                    passes: 0,
                })
            }
        }
    }

    fn made(&'a self, load: &Synthetic, logical: u64) -> Result<Made<'a>, ScenarioError> {
        let shape = self.shape(load, logical)?;
        let each = u64::from(load.request_blocks);
        let count = match load.requests {
            UNTIL_WORN_OUT => self.wearing_out(load.request_blocks),
            0 => 2 * shape.blocks / each,
            count => count,
        };
        let left = Rc::new(Cell::new(0));
        let made = Taken {
            from: Generator::new(load.workload, shape),
            left: Rc::clone(&left),
        };
        let made = self.watched(made);
        let requests: Box<dyn Iterator<Item = Request>> = match load.journal {
            None => Box::new(made),
            Some(journal) => {
                let host = Host::new(made, journal, logical, self.seed);
                Box::new(host.marking(self.sizes.is_some()))
            }
        };
        Ok(Made {
            requests,
            left,
            count,
        })
    }

    /// How a load lies on the volume, beside a journal if it has one.
    fn shape(&self, load: &Synthetic, volume: u64) -> Result<workload::Shape, ScenarioError> {
        let left = match load.journal {
            Some(journal) if journal.blocks >= JOURNAL_BLOCKS_MIN => {
                volume.saturating_sub(journal.data_at(volume))
            }
            Some(_) => 0,
            None => volume,
        };
        if load.request_blocks == 0 || u64::from(load.request_blocks) > left {
            return Err(ScenarioError::Request {
                request: load.request_blocks,
                volume,
                left,
            });
        }
        Ok(workload::Shape {
            blocks: left,
            request_blocks: load.request_blocks,
            zeros: load.zeros,
            duplicates: load.duplicates,
            again: load.again,
            flush_every: load.flush_every,
            drift: load.drift,
            bursts: load.bursts,
            seed: self.seed,
        })
    }

    pub(super) fn watched<I>(&self, from: I) -> Watched<'_, I> {
        Watched {
            from,
            watch: self.watch,
            count: true,
        }
    }

    pub(super) fn unseen<I>(&self, from: I) -> Watched<'_, I> {
        Watched {
            from,
            watch: self.watch,
            count: false,
        }
    }

    fn begin(&self, requests: u64) {
        if let Some(watch) = self.watch {
            watch.begin(requests);
        }
    }

    pub(super) fn stopped(&self) -> bool {
        self.watch.is_some_and(Watch::stopped)
    }
}

impl Source<'_> {
    /// Whether a drive can be warmed up by it.
    pub(super) fn goes_on(&self) -> bool {
        match self {
            Self::Made(_) => true,
            Self::Trace { trace, .. } => trace.summary().blocks_written > 0,
            Self::Given(_) => false,
        }
    }

    /// Blocks that it may change: of a trace what it touches and the spare space, which is most of a volume or hardly any.
    pub(super) fn reach(&self, logical: u64, over_permille: u32) -> u64 {
        match self {
            Self::Trace { trace, .. } => {
                let spare = logical * u64::from(over_permille) / 1000;
                logical.min(trace.blocks() + spare)
            }
            Self::Made(_) | Self::Given(_) => logical,
        }
    }

    /// Serves a portion of it; of a trace whole passes. How many requests that took.
    pub(super) fn warm(
        &mut self,
        scenario: &Scenario<'_>,
        sim: &mut Sim,
        portion: Portion,
    ) -> Result<u64, ScenarioError> {
        let pace = scenario.pace;
        match self {
            Self::Given(_) => Ok(0),
            Self::Made(made) => {
                made.left.set(u64::MAX);
                let mut part = Part::new(&mut made.requests, portion);
                sim.run(&mut part, pace)?;
                Ok(portion.requests - part.portion.requests)
            }
            Self::Trace { trace, passes, .. } => {
                let mut left = portion;
                while left.blocks > 0 && left.requests > 0 && !scenario.stopped() {
                    let repetition = WARM_REPETITIONS + *passes;
                    *passes += 1;
                    let seed = mix(scenario.seed ^ mix(u64::from(repetition)));
                    let mut pass = trace.replay(seed, 1)?.numbered(repetition);
                    let whole = Portion {
                        blocks: u64::MAX,
                        requests: u64::MAX,
                        ..portion
                    };
                    sim.run(&mut scenario.unseen(Part::new(&mut pass, whole)), pace)?;
                    pass.error().map_or(Ok(()), Err)?;
                    let summary = trace.summary();
                    left.blocks = left.blocks.saturating_sub(summary.blocks_written);
                    left.requests = left.requests.saturating_sub(summary.seen.records);
                }
                Ok(portion.requests - left.requests)
            }
        }
    }

    /// Serves what is measured.
    pub(super) fn measure(
        &mut self,
        scenario: &Scenario<'_>,
        sim: &mut Sim,
    ) -> Result<(), ScenarioError> {
        let pace = scenario.pace;
        let all = Portion {
            blocks: u64::MAX,
            requests: u64::MAX,
            skips_reads: false,
        };
        match self {
            Self::Given(requests) => {
                scenario.begin(requests.len() as u64);
                let ran = sim.run(&mut scenario.watched(requests.iter().cloned()), pace);
                Ok(super::until_worn_out(ran)?)
            }
            Self::Made(made) => {
                scenario.begin(made.count);
                made.left.set(made.count);
                let ran = sim.run(&mut Part::new(&mut made.requests, all), pace);
                Ok(super::until_worn_out(ran)?)
            }
            Self::Trace {
                trace,
                times,
                repeated,
                ..
            } => {
                scenario.begin(trace.summary().seen.records * u64::from(*times));
                let mut replay = trace.replay(scenario.seed, *times)?.writing(*repeated);
                let ran = sim.run(&mut scenario.watched(&mut replay), pace);
                replay.error().map_or(Ok(()), Err)?;
                Ok(super::until_worn_out(ran)?)
            }
        }
    }

    /// What the host writes a day, in bytes: at the trace's own rate, or one volume of a load; none where nobody knows.
    pub(super) fn daily_bytes(&self, logical: u64) -> Option<u64> {
        match self {
            Self::Made(_) => Some(logical * BLOCK_BYTES as u64),
            Self::Given(_) => None,
            Self::Trace { trace, .. } => {
                let summary = trace.summary();
                let span = (summary.last_at - summary.first_at) as f64 / 1e9;
                let bytes = summary.blocks_written as f64 * BLOCK_BYTES as f64;
                (span > 0.0).then(|| (bytes / span * 86_400.0) as u64)
            }
        }
    }
}

/// So many requests as are left.
struct Taken<I> {
    from: I,
    left: Rc<Cell<u64>>,
}

impl<I: Iterator> Iterator for Taken<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        self.left.set(self.left.get().checked_sub(1)?);
        self.from.next()
    }
}

/// A portion of a load, whose times begin at 0.
struct Part<'a, I> {
    from: &'a mut I,
    portion: Portion,
    start: Option<u64>,
}

impl<'a, I> Part<'a, I> {
    fn new(from: &'a mut I, portion: Portion) -> Self {
        Self {
            from,
            portion,
            start: None,
        }
    }
}

impl<I: Iterator<Item = Request>> Iterator for Part<'_, I> {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        while self.portion.blocks > 0 && self.portion.requests > 0 {
            let mut request = self.from.next()?;
            self.portion.requests -= 1;
            request.at = request
                .at
                .saturating_sub(*self.start.get_or_insert(request.at));
            match request.op {
                Op::Read if self.portion.skips_reads => continue,
                Op::Write { .. } => {
                    let blocks = u64::from(request.blocks);
                    self.portion.blocks = self.portion.blocks.saturating_sub(blocks);
                }
                _ => {}
            }
            return Some(request);
        }
        None
    }
}
