//! The source of a run's requests: for the warm-up, and for what is measured.

use super::beside::Beside;
use super::ending::until_worn_out;
use super::jobs::OfJobs;
use super::portion::{Part, Portion, repetition};
use super::{JOURNAL_BLOCKS_MIN, Load, Scenario, ScenarioError, Synthetic, UNTIL_WORN_OUT};
use crate::flash::Kind;
use crate::journal::{File, Host};
use crate::policy::{Layer, Policy};
use crate::progress::{Watch, Watched};
use crate::replay::{RepeatedContents, TraceFile};
use crate::sim::Sim;
use crate::workload::{self, Generator, Request};
use std::cell::Cell;
use std::rc::Rc;
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_core::seam::{Region, WriteOnce};

/// The load writes at most this many times the erasures that all blocks endure together. So a load that writes little,
/// or whose blocks are not written, ends as well.
const WEAR_OUT_TIMES: u64 = 4;

impl Load<'_> {
    /// Blocks that a drive needs for a recorded load, or for the files of jobs.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        match self {
            Self::Trace { trace, .. } => trace.blocks(),
            Self::Tenants { tenants, .. } => tenants.blocks(),
            Self::Jobs(jobs) => jobs.blocks(),
            Self::Synthetic(_) | Self::Requests(_) => 0,
        }
    }

    /// True if the load goes through a simulated file system that frees blocks.
    #[must_use]
    pub fn frees_blocks(&self) -> bool {
        matches!(self, Self::Synthetic(load) if load.journal.is_some_and(|own| own.file != File::Overwritten))
    }
}

/// A load on one drive.
pub(super) enum Source<'a> {
    /// Generated.
    Made(Box<Made<'a>>),
    /// Recorded.
    Trace {
        trace: &'a TraceFile,
        times: u32,
        repeated: RepeatedContents,
        /// Passes used by the warm-up.
        passes: u32,
    },
    /// Recorded, of several tenants; with the passes used by the warm-up.
    Tenants(Beside<'a>, u32),
    /// Generated, by several jobs.
    Jobs(OfJobs<'a>),
    /// Given request by request.
    Given(&'a [Request]),
}

/// A load whose measurement continues where the warm-up stopped.
pub(super) struct Made<'a> {
    requests: Box<dyn Iterator<Item = Request> + 'a>,
    left: Rc<Cell<u64>>,
    count: u64,
    load: Synthetic,
}

impl<'a> Scenario<'a> {
    /// The requests for a drive with this many blocks. Passes the places of journals to the drive.
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
            Load::Jobs(jobs) => Ok(Source::Jobs(OfJobs::new(self, sim, jobs, logical)?)),
            &Load::Tenants {
                tenants,
                times,
                repeated,
            } => {
                let beside = Beside::new(sim, tenants, (times, repeated), rule);
                Ok(Source::Tenants(beside, 0))
            }
            Load::Synthetic(load) => {
                if let Some(journal) = load.journal {
                    self.shape(load, logical)?;
                    sim.follow(&journal.disk(logical), rule);
                }
                let flash = sim.flash.shape().blocks();
                let made = self.made(load, (logical, flash))?;
                Ok(Source::Made(Box::new(made)))
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

    /// A generated load, on a volume of `logical` blocks that lies on `flash` blocks of flash.
    fn made(
        &'a self,
        load: &Synthetic,
        (logical, flash): (u64, u64),
    ) -> Result<Made<'a>, ScenarioError> {
        let shape = self.shape(load, logical)?;
        let each = u64::from(load.request_blocks);
        let count = match load.requests {
            UNTIL_WORN_OUT => self.wearing_out(load, flash),
            0 => 2 * shape.blocks / each,
            count => count,
        };
        let left = Rc::new(Cell::new(0));
        let made = Taken {
            from: Generator::new(load.workload, shape),
            left: Rc::clone(&left),
        };
        let made = self.watched(made);
        let first = load.area.map_or(0, |area| area.first);
        let requests: Box<dyn Iterator<Item = Request>> = match load.journal {
            None if first > 0 => Box::new(made.map(move |request| Request {
                lba: request.lba + first,
                ..request
            })),
            None => Box::new(made),
            Some(journal) => {
                let host = Host::new(made, journal, logical, self.seed);
                let host = host.touching(load.metadata).working(load.write_ns);
                Box::new(host.marking(self.sizes.is_some()))
            }
        };
        Ok(Made {
            requests,
            left,
            count,
            load: *load,
        })
    }

    /// The shape of a load on the volume, besides a journal if it has one.
    fn shape(&self, load: &Synthetic, volume: u64) -> Result<workload::Shape, ScenarioError> {
        let left = match load.journal {
            Some(journal) if journal.blocks >= JOURNAL_BLOCKS_MIN => {
                volume.saturating_sub(journal.data_at(volume))
            }
            Some(_) => 0,
            None => load.area.map_or(volume, |area| area.blocks),
        };
        if (load.runtime_ns.is_some() || load.ramp_ns > 0) && !self.timed {
            return Err(ScenarioError::Untimed);
        }
        if let Some(area) = load.area {
            let end = area.first.saturating_add(area.blocks);
            if end > volume {
                return Err(ScenarioError::Area { end, volume });
            }
        }
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

    /// More requests than all the erasures that the `flash` blocks endure allow.
    fn wearing_out(&self, load: &Synthetic, flash: u64) -> u64 {
        let Kind::Nand(nand) = &self.device.preset.kind else {
            return 0;
        };
        let limit = self.device.erase_limit.unwrap_or(nand.erase_limit);
        let blocks = flash.saturating_mul(u64::from(limit) * WEAR_OUT_TIMES);
        let writes = blocks / u64::from(load.request_blocks.max(1));
        // A load that only reads wears nothing out, however long it runs.
        match load.workload.reads {
            reads @ 1..100 => writes.saturating_mul(100) / u64::from(100 - reads),
            _ => writes,
        }
    }
}

impl Source<'_> {
    /// True if it can warm a drive up.
    pub(super) fn goes_on(&self) -> bool {
        match self {
            Self::Made(made) => made.load.workload.reads < 100,
            Self::Trace { trace, .. } => trace.summary().blocks_written > 0,
            Self::Tenants(beside, _) => beside.pass().0 > 0,
            Self::Jobs(jobs) => jobs.pass().0 > 0,
            Self::Given(_) => false,
        }
    }

    /// Blocks that it may change. For a trace that is what it touches and the spare space: most of a volume, or hardly
    /// any.
    pub(super) fn reach(&self, logical: u64, over_permille: u32) -> u64 {
        let touched = match self {
            Self::Trace { trace, .. } => trace.blocks(),
            Self::Tenants(beside, _) => beside.blocks(),
            Self::Jobs(jobs) => jobs.blocks(),
            Self::Made(made) => match made.load.area {
                Some(area) => area.blocks,
                None => return logical,
            },
            Self::Given(_) => return logical,
        };
        let spare = logical * u64::from(over_permille) / 1000;
        logical.min(touched + spare)
    }

    /// Serves a portion of it; for a trace whole passes. Returns the number of requests.
    pub(super) fn warm(
        &mut self,
        scenario: &Scenario<'_>,
        sim: &mut Sim,
        portion: Portion,
    ) -> Result<u64, ScenarioError> {
        let pace = scenario.pace;
        match self {
            Self::Given(_) => Ok(0),
            Self::Jobs(jobs) => jobs.warm(scenario, sim, portion),
            Self::Made(made) => {
                made.left.set(u64::MAX);
                let mut part = Part::new(&mut made.requests, portion);
                sim.run(&mut part, pace)?;
                Ok(portion.requests - part.portion.requests)
            }
            Self::Tenants(beside, passes) => {
                let (blocks, requests) = beside.pass();
                let whole = portion.whole();
                let mut left = portion;
                while left.goes_on() && !scenario.stopped() {
                    beside.warm(scenario, sim, repetition(scenario.seed, passes), whole)?;
                    left.take(blocks, requests);
                }
                Ok(portion.requests - left.requests)
            }
            Self::Trace { trace, passes, .. } => {
                let mut left = portion;
                while left.goes_on() && !scenario.stopped() {
                    let (seed, repetition) = repetition(scenario.seed, passes);
                    let mut pass = trace.replay(seed, 1)?.numbered(repetition);
                    let part = Part::new(&mut pass, portion.whole());
                    sim.run(&mut scenario.unseen(part), pace)?;
                    pass.error().map_or(Ok(()), Err)?;
                    let summary = trace.summary();
                    left.take(summary.blocks_written, summary.seen.requests);
                }
                Ok(portion.requests - left.requests)
            }
        }
    }

    /// Lets a load run for its ramp time before it is measured.
    pub(super) fn ramp_up(
        &mut self,
        scenario: &Scenario<'_>,
        sim: &mut Sim,
    ) -> Result<(), ScenarioError> {
        match self {
            Self::Made(made) if made.load.ramp_ns > 0 => {
                made.left.set(u64::MAX);
                sim.lasts(Some(made.load.ramp_ns));
                let mut part = Part::new(&mut made.requests, Portion::ALL);
                let ran = sim.run(&mut part, scenario.pace);
                sim.lasts(None);
                Ok(until_worn_out(ran)?)
            }
            Self::Jobs(jobs) => jobs.ramp_up(sim),
            _ => Ok(()),
        }
    }

    /// Serves what is measured.
    pub(super) fn measure(
        &mut self,
        scenario: &Scenario<'_>,
        sim: &mut Sim,
    ) -> Result<(), ScenarioError> {
        let pace = scenario.pace;
        match self {
            Self::Given(requests) => {
                scenario.begin(requests.len() as u64);
                let ran = sim.run(&mut scenario.watched(requests.iter().cloned()), pace);
                Ok(until_worn_out(ran)?)
            }
            Self::Made(made) => {
                scenario.begin(made.count);
                made.left.set(made.count);
                sim.lasts(made.load.runtime_ns);
                let ran = sim.run(&mut Part::new(&mut made.requests, Portion::ALL), pace);
                sim.lasts(None);
                Ok(until_worn_out(ran)?)
            }
            Self::Jobs(jobs) => {
                scenario.begin(jobs.requests());
                jobs.measure(sim)
            }
            Self::Tenants(beside, _) => {
                scenario.begin(beside.requests());
                beside.measure(scenario, sim)
            }
            Self::Trace {
                trace,
                times,
                repeated,
                ..
            } => {
                scenario.begin(trace.summary().seen.requests * u64::from(*times));
                let mut replay = trace.replay(scenario.seed, *times)?.writing(*repeated);
                let ran = sim.run(&mut scenario.watched(&mut replay), pace);
                replay.error().map_or(Ok(()), Err)?;
                Ok(until_worn_out(ran)?)
            }
        }
    }

    /// Bytes that the host writes per day: at the trace's own rate, or one volume for a generated load; none if not
    /// known.
    pub(super) fn daily_bytes(&self, logical: u64) -> Option<u64> {
        match self {
            Self::Made(_) | Self::Jobs(_) => Some(logical * BLOCK_BYTES as u64),
            Self::Given(_) => None,
            Self::Tenants(beside, _) => beside.daily_bytes(),
            Self::Trace { trace, .. } => trace.summary().daily_bytes(),
        }
    }
}

/// The given number of requests.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drives;
    use crate::scenario::{DEFAULT_BYTES, Device};
    use crate::workload::find;

    #[test]
    fn requests_that_wear_a_drive_out_are_counted_by_its_flash() {
        // This drive is larger than the default size.
        let limit = 5;
        let device = Device {
            erase_limit: Some(limit),
            ..Device::new(drives::own("qlc-nvme"))
        };
        for (reads, times) in [(0, 4), (75, 16), (100, 4)] {
            let mut load = Synthetic::new(*find("sequential").unwrap());
            load.requests = UNTIL_WORN_OUT;
            load.workload.reads = reads;
            let scenario = Scenario::new(device, Load::Synthetic(load));
            let policy = "base".parse().unwrap();
            let mut built = scenario.build(&policy).unwrap();
            let source = scenario.source(&policy, &mut built.sim, built.logical);
            let Ok(Source::Made(made)) = source else {
                panic!("a load that is generated");
            };
            let flash = built.sim.flash.shape().blocks();
            assert!(flash > 2 * DEFAULT_BYTES / BLOCK_BYTES as u64);
            assert_eq!(made.count, flash * u64::from(limit) * times, "{reads}");
        }
    }
}
