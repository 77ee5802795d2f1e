//! `vellum lab paper`: repeats the papers' evaluations.

use super::progress::spinner;
use crate::outcome::{out, usage};
use anyhow::{Result, bail};
use std::io::Write;
use std::path::PathBuf;
use vellum_lab::paper::{self, Evaluation, Size};
use vellum_lab::parallel;
use vellum_options::number::number;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Which paper.
    #[arg(value_name = "NAME", value_parser = ["woj", "caftl", "omd", "oftl", "csafs", "all"])]
    name: String,
    /// Run what the paper ran, not a part of it.
    #[arg(long)]
    full: bool,
    /// Of omd: take the traces of this directory in place of synthetic loads (benches/capture.sh makes some).
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Runs at the same time; by default one a core. The results are the same.
    #[arg(long, value_name = "COUNT", value_parser = number::<u16>(1..=1024))]
    threads: Option<u16>,
    /// Print JSON instead of Markdown.
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Runs the evaluations. Fails if one of our results is neither what a paper states nor explained.
    pub fn run(&self) -> Result<()> {
        let threads = self.threads.map_or_else(parallel::cores, usize::from);
        let size = match self.full {
            true => Size::Full,
            false => Size::Short,
        };
        if self.traces.is_some() && self.name != "omd" {
            return Err(usage(
                "--traces is of omd: the other papers' loads are their own",
            ));
        }
        let mut all: Vec<Evaluation> = Vec::new();
        for name in paper::NAMES {
            if self.name != name && self.name != "all" {
                continue;
            }
            let bar = spinner(format!("{name}, {threads} runs at a time"));
            let evaluation = paper::evaluate(name, size, threads, self.traces.as_deref());
            bar.finish_and_clear();
            all.extend(evaluation.transpose()?);
        }
        match self.json {
            true => writeln!(out(), "{}", serde_json::to_string_pretty(&all)?)?,
            false => write!(out(), "{}", paper::page(&all))?,
        }
        let frames = all.iter().flat_map(|evaluation| &evaluation.frames);
        let claims = frames.flat_map(|frame| &frame.claims);
        let open: Vec<&str> = claims
            .filter(|claim| claim.is_open())
            .map(|claim| claim.what.as_str())
            .collect();
        if !open.is_empty() {
            bail!(
                "neither the paper's figure nor explained: {}",
                open.join("; ")
            );
        }
        Ok(())
    }
}
