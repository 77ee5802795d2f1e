//! `vellum lab sweep`: a grid over any options of a run.

use super::output::{Figures, Output};
use super::progress::counted;
use super::source;

use crate::outcome::usage;
use anyhow::{Context, Result, bail};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use vellum_lab::drives::{self, DriveFile};
use vellum_lab::html::Page;
use vellum_lab::parallel;
use vellum_lab::policy::Policy;
use vellum_lab::progress::Watch;
use vellum_lab::scenario::Scenario;
use vellum_lab::sweep::{self, Axis, Journal, Point, Row};
use vellum_options::number::number;
use vellum_options::setup::{Ready, Setup};
use vellum_options::words;

/// Options that say which trace it is and how it is read: with one of them as an axis it is read for each run.
const OF_THE_TRACE: [&str; 4] = ["format", "columns", "journal-at", "in-place"];

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// An axis: an option of `vellum lab run` (or `policy`) and its values, separated by spaces, like "op=7 15 28"; give it
    /// several times. Every value is tried with every other.
    #[arg(long, value_name = "KEY=VALUES", required = true)]
    vary: Vec<Axis>,
    /// Keep what is done here, and do not do again what is there.
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Runs at the same time; by default one a core. The results are the same.
    #[arg(long, value_name = "COUNT", value_parser = number::<u16>(1..=1024))]
    threads: Option<u16>,
    #[command(flatten)]
    output: Output,
    /// What all runs have in common: the trace and options of `vellum lab run`, and one --policy.
    #[arg(last = true, value_name = "RUN")]
    run: Vec<String>,
}

/// One run of a sweep.
#[derive(clap::Args)]
struct One {
    #[command(flatten)]
    setup: Setup,
    /// The policy.
    #[arg(long, default_value = "vellum")]
    policy: Policy,
}

/// What came of a sweep: a list of rows.
#[derive(Serialize)]
#[serde(transparent)]
struct Grid<'a> {
    rows: &'a [Row],
    #[serde(skip)]
    axes: &'a [Axis],
    #[serde(skip)]
    runs: usize,
}

impl Figures for Grid<'_> {
    fn partial(&self) -> Option<String> {
        let (done, runs) = (self.rows.len(), self.runs);
        (done < runs).then(|| format!("PARTIAL: {done} of {runs} runs are done"))
    }

    fn table(&self) -> String {
        sweep::table(self.axes, self.rows)
    }

    fn csv(&self) -> String {
        sweep::csv(self.axes, self.rows)
    }

    fn html(&self, page: &Page) -> Result<String> {
        Ok(sweep::html(page, self.axes, self.rows)?)
    }
}

/// Parses the options of one run: what it has of its own wins.
fn one(common: &[String], point: &Point) -> Result<One> {
    let own = point.iter().map(|(key, value)| format!("--{key}={value}"));
    let words = common.iter().cloned().chain(own);
    words::parse("vellum lab sweep", words).map_err(|error| {
        let point: Vec<String> = point.iter().map(|(k, v)| format!("{k}={v}")).collect();
        usage(format!("the run with {}: {error}", point.join(" ")))
    })
}

impl Args {
    /// Does it.
    pub fn run(&self) -> Result<()> {
        let points = sweep::points(&self.vary).map_err(|error| usage(error.to_string()))?;
        // All are looked at before any is run.
        let runs: Vec<One> = points
            .iter()
            .map(|point| one(&self.run, point))
            .collect::<Result<_>>()?;
        let shared = !self
            .vary
            .iter()
            .any(|a| OF_THE_TRACE.contains(&a.key.as_str()));
        let trace = match (shared, runs.first()) {
            (true, Some(first)) => source::trace(&first.setup)?.map(Arc::new),
            _ => None,
        };
        let ready = |one: &One| match shared {
            true => Ok(one.setup.ready_with(trace.clone())),
            false => source::ready(&one.setup),
        };
        let looked_at = if shared { points.len() } else { 1 };
        for (run, point) in runs.iter().zip(&points).take(looked_at) {
            let ready = ready(run).with_context(|| named(point))?;
            run.setup.scenario(&ready).with_context(|| named(point))?;
        }
        let what = self.run.join(" ") + &of_own(&runs);
        let mut journal = match &self.resume {
            None => None,
            Some(path) => Some(Journal::open(path, &what)?),
        };
        let known: Vec<Option<Row>> = points
            .iter()
            .map(|point| {
                journal
                    .as_ref()
                    .and_then(|journal| journal.done(point))
                    .cloned()
            })
            .collect();
        let left: Vec<usize> = (0..points.len())
            .filter(|&at| known[at].is_none())
            .collect();
        let keeper = Mutex::new((&mut journal, None));
        let threads = self.threads.map_or_else(parallel::cores, usize::from);
        let fresh = counted(left.len() as u64, |watch, done| {
            parallel::map(&left, threads, |_, &at| {
                let row = result(&runs[at], &points[at], &ready, watch);
                if let Some(row) = &row {
                    let mut keeper = keeper.lock().unwrap_or_else(PoisonError::into_inner);
                    let (journal, trouble) = &mut *keeper;
                    if let Some(Err(error)) = journal.as_mut().map(|journal| journal.add(row)) {
                        // What could not be kept is reported all the same.
                        trouble.get_or_insert(error);
                    }
                }
                count(done);
                row
            })
        })?;
        let (_, trouble) = keeper.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut all = known;
        for (at, row) in left.into_iter().zip(fresh) {
            all[at] = row;
        }
        let rows: Vec<Row> = all.into_iter().flatten().collect();
        let about = vec![format!("{} runs of: {what}", points.len())];
        let grid = Grid {
            rows: &rows,
            axes: &self.vary,
            runs: points.len(),
        };
        self.output.give("Sweep", about, Vec::new(), &grid)?;
        if let Some(error) = trouble {
            return Err(error).context("what was done could not be kept");
        }
        let failed = rows.iter().filter(|row| row.error.is_some()).count();
        match (rows.len() < points.len(), failed) {
            (true, _) => bail!(
                "interrupted: {} of {} runs are done{}",
                rows.len(),
                points.len(),
                if self.resume.is_some() {
                    "; the same command goes on"
                } else {
                    ""
                }
            ),
            (_, 0) => Ok(()),
            (_, failed) => bail!("{failed} of {} runs could not be run", points.len()),
        }
    }
}

/// What tells a sweep over drives of one's own from one over the same files as they were before.
fn of_own(runs: &[One]) -> String {
    let own = runs.iter().map(|run| run.setup.drive());
    let own = own.filter(|drive| drives::find(&drive.name) != Some(*drive));
    let digests: BTreeSet<u32> = own.map(DriveFile::digest).collect();
    let digests = digests.iter().map(|digest| format!(" drive:{digest:08x}"));
    digests.collect()
}

fn count(done: &AtomicU64) {
    done.fetch_add(1, Ordering::Relaxed);
}

fn named(point: &Point) -> String {
    let parts: Vec<String> = point.iter().map(|(k, v)| format!("{k}={v}")).collect();
    format!("the run with {}", parts.join(" "))
}

/// Runs one; none when it was ended: a part of a run says nothing.
fn result(
    run: &One,
    point: &Point,
    ready: &impl Fn(&One) -> Result<Ready>,
    watch: &Watch,
) -> Option<Row> {
    if watch.stopped() {
        return None;
    }
    let outcome = ready(run).and_then(|ready| {
        let scenario = run.setup.scenario(&ready)?;
        let watch = Some(watch);
        Ok(Scenario { watch, ..scenario }.run(&run.policy)?)
    });
    match outcome {
        _ if watch.stopped() => None,
        Ok(outcome) => Some(Row::of(point.clone(), &outcome)),
        Err(error) => Some(Row::failed(point.clone(), format!("{error:#}"))),
    }
}
