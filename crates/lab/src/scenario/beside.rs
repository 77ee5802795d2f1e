//! Tenants as a load: each pass runs all of them, side by side.

use super::ending::until_worn_out;
use super::portion::{Part, Portion};
use super::{Scenario, ScenarioError};
use crate::replay::{RepeatedContents, TraceFile};
use crate::sim::{Host, Pace, Sim};
use crate::tenants::{Asking, Merged, Tenants};
use vellum_core::addr::Lba;
use vellum_core::seam::{Region, WriteOnce};

/// The tenants of a scenario; see the module.
pub(super) struct Beside<'a> {
    tenants: &'a Tenants,
    times: u32,
    repeated: RepeatedContents,
}

impl<'a> Beside<'a> {
    /// Sets up the drive for the tenants and their journals.
    pub fn new(
        sim: &mut Sim,
        tenants: &'a Tenants,
        (times, repeated): (u32, RepeatedContents),
        rule: WriteOnce,
    ) -> Self {
        sim.tenants = tenants.all().iter().map(|_| Host::default()).collect();
        let regions: Vec<Region> = tenants
            .parts()
            .filter_map(|(tenant, first)| {
                let (start, blocks) = tenant.trace.journal()?;
                Some(Region {
                    start: Lba(first + start),
                    blocks,
                    homes: Lba(first),
                    homes_blocks: tenant.trace.blocks(),
                    rule,
                })
            })
            .collect();
        if !regions.is_empty() {
            sim.watch(&regions);
        }
        Self {
            tenants,
            times,
            repeated,
        }
    }

    /// Blocks that all of them write in a pass, and their requests.
    pub fn pass(&self) -> (u64, u64) {
        let of = |f: fn(&TraceFile) -> u64| self.tenants.traces().map(f).sum();
        (
            of(|trace| trace.summary().blocks_written),
            of(|trace| trace.summary().seen.requests),
        )
    }

    /// Requests of all passes.
    pub fn requests(&self) -> u64 {
        self.pass().1.saturating_mul(u64::from(self.times))
    }

    /// Blocks that they may change.
    pub fn blocks(&self) -> u64 {
        self.tenants.blocks()
    }

    /// Runs a pass that is not measured.
    pub fn warm(
        &self,
        scenario: &Scenario<'_>,
        sim: &mut Sim,
        (seed, repetition): (u64, u32),
        portion: Portion,
    ) -> Result<(), ScenarioError> {
        let each = self
            .tenants
            .replay(seed, 1, RepeatedContents::New, repetition)?;
        serve(scenario, sim, each, (portion, false))
    }

    /// Runs what is measured.
    pub fn measure(&self, scenario: &Scenario<'_>, sim: &mut Sim) -> Result<(), ScenarioError> {
        let (seed, repeated) = (scenario.seed, self.repeated);
        let each = self.tenants.replay(seed, self.times, repeated, 0)?;
        serve(scenario, sim, each, (Portion::ALL, true))
    }

    /// Bytes that all write per day, each at its own rate; none if one of them has no rate.
    pub fn daily_bytes(&self) -> Option<u64> {
        let traces = self.tenants.traces();
        traces.map(|trace| trace.summary().daily_bytes()).sum()
    }
}

/// Serves the rest of the tenants' requests.
fn serve(
    scenario: &Scenario<'_>,
    sim: &mut Sim,
    mut each: Vec<Asking<'_>>,
    (portion, count): (Portion, bool),
) -> Result<(), ScenarioError> {
    let parts = each.iter_mut().map(|asking| Part::new(asking, portion));
    let parts = parts.map(|part| match count {
        true => scenario.watched(part),
        false => scenario.unseen(part),
    });
    let ran = match scenario.pace {
        Pace::Closed { depth } => {
            let mut hosts: Vec<_> = parts.collect();
            sim.run_beside(&mut hosts, depth)
        }
        pace => sim.run(&mut Merged::new(parts), pace),
    };
    for asking in &mut each {
        asking.error().map_or(Ok(()), Err)?;
    }
    Ok(until_worn_out(ran)?)
}
