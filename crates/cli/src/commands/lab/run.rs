//! `vellum lab run`: runs a load under a few policies.

use super::output::{Course, Output, save};
use super::progress::{interrupted, watched};
use super::source;
use anyhow::{Context, Result};
use std::path::PathBuf;
use vellum_lab::flash::{self, Kind};
use vellum_lab::outcome::Outcome;
use vellum_lab::policy::{NAMES, Policy};
use vellum_lab::scenario::Scenario;
use vellum_lab::svg::{Line, Plot};
use vellum_options::setup::Setup;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    setup: Setup,
    /// A policy; give it several times. Default: base, vellum, and vellum:victim=cost-benefit where there is flash.
    #[arg(long, value_name = "POLICY", long_help = format!("A policy; give it several times. There are {NAMES}."))]
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
                scenario.run(policy).with_context(|| policy.to_string())
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
            Kind::Nand(_) => &["base", "vellum", "vellum:victim=cost-benefit"],
            Kind::Block(_) => &["base", "vellum"],
        };
        Ok(names
            .iter()
            .map(|name| name.parse())
            .collect::<Result<_, _>>()?)
    }
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
