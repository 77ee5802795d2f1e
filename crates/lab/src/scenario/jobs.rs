//! Jobs as a load: each pass runs all of them, side by side and in sequence.

use super::ending::until_worn_out;
use super::portion::{Part, Portion, repetition};
use super::{Scenario, ScenarioError};
use crate::jobs::{Asking, Job, Jobs, Placed, seed_of};
use crate::progress::Watched;
use crate::sim::running::Running;
use crate::sim::{Host, Sim};

/// A job that is measured.
type Measured<'a> = Running<'a, Watched<'a, Asking<'a>>>;

/// The jobs of a scenario; see the module.
pub(super) struct OfJobs<'a> {
    jobs: &'a Jobs,
    placed: Vec<Placed>,
    /// The measured jobs.
    running: Vec<Measured<'a>>,
    /// Passes used by the warm-up.
    passes: u32,
}

impl<'a> OfJobs<'a> {
    /// Sets up the drive for the jobs.
    pub fn new(
        scenario: &'a Scenario<'_>,
        sim: &mut Sim,
        jobs: &'a Jobs,
        logical: u64,
    ) -> Result<Self, ScenarioError> {
        if jobs.is_timed() && !scenario.timed {
            return Err(ScenarioError::Untimed);
        }
        let placed = jobs.on(logical)?;
        sim.tenants = jobs.all().iter().map(|_| Host::default()).collect();
        let each = jobs.all().iter().zip(&placed).enumerate();
        let running = each.map(|(at, (job, placed))| {
            let chance = (seed_of(scenario.seed, at), at as u8);
            let asking = Asking::new(job, *placed, chance, true);
            Running::new(scenario.watched(asking), &job.when)
        });
        Ok(Self {
            jobs,
            running: running.collect(),
            placed,
            passes: 0,
        })
    }

    fn each(&self) -> impl Iterator<Item = (usize, (&'a Job, Placed))> {
        let jobs: &'a Jobs = self.jobs;
        let each = jobs.all().iter().zip(self.placed.iter().copied());
        each.enumerate()
    }

    /// Blocks that all of them write in a pass, and their requests.
    pub fn pass(&self) -> (u64, u64) {
        self.each().fold((0, 0), |(blocks, requests), (_, job)| {
            let (job, placed) = job;
            let (more, asked) = job.pass(&placed);
            (blocks + more, requests + asked)
        })
    }

    /// Requests that are measured.
    pub fn requests(&self) -> u64 {
        self.each().fold(0, |all: u64, (_, (job, placed))| {
            let (_, once) = job.pass(&placed);
            let more = match job.when.endless {
                true => u64::MAX,
                false => once.saturating_mul(job.place.loops),
            };
            all.saturating_add(more)
        })
    }

    /// Blocks that they may change; shared blocks count once.
    pub fn blocks(&self) -> u64 {
        let mut parts: Vec<(u64, u64)> = self.placed.iter().map(|p| (p.first, p.blocks)).collect();
        parts.sort_unstable();
        let mut end = 0;
        let mut own = |(first, blocks): (u64, u64)| {
            let from = end.max(first);
            end = end.max(first + blocks);
            end - from.min(end)
        };
        parts.into_iter().map(&mut own).sum()
    }

    /// Runs passes that are not measured.
    pub fn warm(
        &mut self,
        scenario: &Scenario<'_>,
        sim: &mut Sim,
        portion: Portion,
    ) -> Result<u64, ScenarioError> {
        let (blocks, requests) = self.pass();
        let mut left = portion;
        while left.goes_on() && !scenario.stopped() {
            let (seed, _) = repetition(scenario.seed, &mut self.passes);
            let each = self.each().map(|(at, (job, placed))| {
                let all = job.writes() || !portion.skips_reads;
                let once = if all { placed.once } else { 0 };
                let placed = Placed { once, ..placed };
                Asking::new(job, placed, (seed_of(seed, at), at as u8), false)
            });
            let mut each: Vec<_> = each.collect();
            let parts = each
                .iter_mut()
                .map(|asking| scenario.unseen(Part::new(asking, portion.whole())));
            let jobs = parts.zip(self.jobs.all());
            let mut running: Vec<_> = jobs
                .map(|(part, job)| Running::new(part, &job.when))
                .collect();
            sim.run_jobs(&mut running, None)?;
            left.take(blocks, requests.max(1));
        }
        Ok(portion.requests - left.requests)
    }

    /// Lets the jobs run for their ramp time before they are measured.
    pub fn ramp_up(&mut self, sim: &mut Sim) -> Result<(), ScenarioError> {
        let ramp = self.jobs.ramp_ns();
        if ramp == 0 {
            return Ok(());
        }
        let ran = sim.run_jobs(&mut self.running, Some(ramp));
        for job in &mut self.running {
            job.renew(|watched, drawn| watched.from.renew(drawn));
        }
        Ok(until_worn_out(ran)?)
    }

    /// Runs what is measured.
    pub fn measure(&mut self, sim: &mut Sim) -> Result<(), ScenarioError> {
        let ran = sim.run_jobs(&mut self.running, None);
        Ok(until_worn_out(ran)?)
    }
}
