//! `vellum lab run`: runs a load under a few policies.

use super::output::{Course, Output, save};
use super::progress::{interrupted, watched};
use super::source;
use anyhow::{Context, Error, Result};
use std::path::PathBuf;
use vellum_lab::flash::{self, Kind};
use vellum_lab::outcome::Outcome;
use vellum_lab::policy::{NAMES, Policy};
use vellum_lab::scenario::{Enough, Scenario, ScenarioError};
use vellum_lab::svg::{Line, Plot};
use vellum_options::setup::Setup;
use vellum_policies::size::exact;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    setup: Setup,
    /// A policy; give it several times. Default: base, vellum, and vellum:victim=cost-benefit where there is flash.
    #[arg(
        long,
        value_name = "POLICY",
        long_help = format!("A policy; give it several times. There are {NAMES}.")
    )]
    policy: Vec<Policy>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    course: Course,
    /// Write a plot of the write latencies' distribution here (SVG).
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

impl Args {
    /// Runs the load.
    pub fn run(&self) -> Result<()> {
        let ready = source::ready(&self.setup)?;
        let scenario = self.setup.scenario(&ready)?;
        let policies = self.policies(&ready.device.preset)?;
        let outcomes = watched(&policies, |watches| {
            let each = policies.iter().zip(watches);
            each.map(|(policy, watch)| {
                let watch = Some(watch);
                let scenario = Scenario { watch, ..scenario };
                let done = scenario.run(policy);
                done.map_err(|error| advised(&scenario, &policies, policy, error))
                    .with_context(|| policy.to_string())
            })
            .collect::<Result<Vec<_>>>()
        })??;
        if let Some(path) = &self.plot {
            save(path, &latency_plot(&outcomes))?;
        }
        let (about, warnings) = self.setup.about(&ready);
        self.output
            .give("Policies side by side", about, warnings, &outcomes)?;
        self.course.give(&outcomes)?;
        interrupted(&outcomes)
    }

    fn policies(&self, preset: &flash::Preset) -> Result<Vec<Policy>> {
        if !self.policy.is_empty() {
            return Ok(self.policy.clone());
        }
        let names: &[&str] = match preset.kind {
            Kind::Nand(nand) if nand.zoned.is_some() => &["vellum", "vellum:victim=cost-benefit"],
            Kind::Nand(_) => &["base", "vellum", "vellum:victim=cost-benefit"],
            Kind::Block(_) => &["base", "vellum"],
        };
        Ok(names
            .iter()
            .map(|name| name.parse())
            .collect::<Result<_, _>>()?)
    }
}

/// The error with what would be enough for all policies, if there is too little room for one.
fn advised(
    scenario: &Scenario<'_>,
    policies: &[Policy],
    policy: &Policy,
    error: ScenarioError,
) -> Error {
    if !error.is_for_want_of_room() {
        return error.into();
    }
    let all = flags(scenario.enough(policies));
    if !all.is_empty() {
        let for_whom = match policies.len() {
            1 => String::new(),
            n => format!(" for all {n} policies"),
        };
        return Error::msg(format!("{error}: {all} is enough{for_whom}"));
    }
    match flags(scenario.enough(std::slice::from_ref(policy))) {
        none if none.is_empty() => error.into(),
        own => Error::msg(format!(
            "{error}: {own} is enough for this policy, but not for all of them"
        )),
    }
}

/// The flags that give it.
fn flags(enough: Enough) -> String {
    let capacity = enough
        .capacity
        .map(|bytes| format!("--capacity {}", exact(bytes)));
    let over = enough.over_provisioning;
    let over = over.map(|over| format!("--op {}", f64::from(over) / 10.0));
    let flags: Vec<_> = capacity.into_iter().chain(over).collect();
    flags.join(", or ")
}

fn latency_plot(outcomes: &[Outcome]) -> Plot {
    let line = |outcome: &Outcome| Line {
        name: outcome.policy.clone(),
        points: outcome
            .write_cdf
            .iter()
            .map(|point| (point.ns as f64 / 1000.0, point.share))
            .collect(),
        theory: false,
    };
    Plot {
        title: "write latency, cumulative share of requests".into(),
        x: "microseconds (virtual)".into(),
        y: "share".into(),
        log_x: true,
        lines: outcomes.iter().map(line).collect(),
    }
}
