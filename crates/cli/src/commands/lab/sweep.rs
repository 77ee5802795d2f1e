//! `vellum lab sweep`: runs a grid over any options of a run.

use super::output::{Figures, Output};
use super::progress::counted;
use super::source;

use crate::outcome::usage;
use anyhow::{Context, Result, bail};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use vellum_lab::drives::{self, DriveFile};
use vellum_lab::html::Preface;
use vellum_lab::parallel;
use vellum_lab::policy::Policy;
use vellum_lab::progress::Watch;
use vellum_lab::replay::of_all_processors;
use vellum_lab::scenario::Scenario;
use vellum_lab::sweep::{self, Axis, Journal, JournalError, Point, PointResult};
use vellum_options::number::number;
use vellum_options::setup::{Ready, Setup};
use vellum_options::words;

/// Options that select the trace or how it is read. With one of them as an axis, the trace is read for each run.
const OF_THE_TRACE: [&str; 5] = ["tenant", "format", "columns", "journal-at", "in-place"];

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

/// The results of a sweep: a list of rows.
#[derive(Serialize)]
#[serde(transparent)]
struct Grid<'a> {
    rows: &'a [PointResult],
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

    fn html(&self, preface: &Preface) -> Result<String> {
        Ok(sweep::html(preface, self.axes, self.rows)?)
    }
}

/// Parses the options of one run. Its own options take precedence over the common ones.
fn one(common: &[String], point: &Point) -> Result<One> {
    let own = point.iter().map(|(key, value)| format!("--{key}={value}"));
    let words = common.iter().cloned().chain(own);
    words::parse("vellum lab sweep", words).map_err(|error| {
        let point: Vec<String> = point.iter().map(|(k, v)| format!("{k}={v}")).collect();
        usage(format!("the run with {}: {error}", point.join(" ")))
    })
}

impl Args {
    /// Refuses an axis that is no option of a run.
    fn check_axes(&self) -> Result<()> {
        let known = words::list::<One>().into_iter().map(|one| one.name);
        let known: Vec<String> = known.collect();
        match self.vary.iter().find(|axis| !known.contains(&axis.key)) {
            None => Ok(()),
            Some(Axis { key, .. }) => Err(usage(format!(
                "--vary {key}: a run has no such option: there are {}",
                known.join(", ")
            ))),
        }
    }

    /// Runs the sweep.
    pub fn run(&self) -> Result<()> {
        self.check_axes()?;
        let points = sweep::points(&self.vary).map_err(|error| usage(error.to_string()))?;
        // All are checked before any is run.
        let runs: Vec<One> = points
            .iter()
            .map(|point| one(&self.run, point))
            .collect::<Result<_>>()?;
        let shared = !self
            .vary
            .iter()
            .any(|a| OF_THE_TRACE.contains(&a.key.as_str()));
        let first = runs.first().filter(|_| shared);
        let read = first.map(|first| source::ready(&first.setup)).transpose()?;
        let ready = |one: &One| match &read {
            Some(Ready { trace, tenants, .. }) => {
                Ok(one.setup.ready_with(trace.clone(), tenants.clone()))
            }
            None => source::ready(&one.setup),
        };
        let looked_at = if shared { points.len() } else { 1 };
        for (run, point) in runs.iter().zip(&points).take(looked_at) {
            let ready = ready(run).with_context(|| named(point))?;
            run.setup.scenario(&ready).with_context(|| named(point))?;
        }
        let what = self.run.join(" ") + &of_own(&runs);
        let mut journal = self.journal(&what, &runs, read.as_ref())?;
        let done = |point| journal.as_ref().and_then(|journal| journal.done(point));
        let known = points.iter().map(|point| done(point).cloned());
        let known: Vec<Option<PointResult>> = known.collect();
        let left: Vec<usize> = (0..points.len())
            .filter(|&at| known[at].is_none())
            .collect();
        let keeper = Mutex::new((&mut journal, None));
        let threads = self.threads.map_or_else(parallel::cores, usize::from);
        let fresh = counted(left.len() as u64, |watch, done| {
            parallel::map(&left, threads, |_, &at| {
                let row = result(&runs[at], &points[at], &ready, watch);
                // A run that failed may not fail again.
                if let Some(row) = row.as_ref().filter(|row| row.error.is_none()) {
                    let mut keeper = keeper.lock().unwrap_or_else(PoisonError::into_inner);
                    keep(&mut keeper, row);
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
        let rows: Vec<PointResult> = all.into_iter().flatten().collect();
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
        self.verdict(&rows, points.len())
    }

    /// The results of earlier runs of the same sweep, if they are kept.
    fn journal(&self, what: &str, runs: &[One], read: Option<&Ready>) -> Result<Option<Journal>> {
        let Some(path) = &self.resume else {
            return Ok(None);
        };
        let what = what.to_owned() + &of_input(runs, read)?;
        Ok(Some(Journal::open(path, &what)?))
    }

    /// Fails unless all runs are done.
    fn verdict(&self, rows: &[PointResult], runs: usize) -> Result<()> {
        let failed = rows.iter().filter(|row| row.error.is_some()).count();
        let goes_on = match self.resume {
            Some(_) => "; the same command goes on",
            None => "",
        };
        match (rows.len() < runs, failed) {
            (true, _) => bail!(
                "interrupted: {} of {runs} runs are done{goes_on}",
                rows.len()
            ),
            (_, 0) => Ok(()),
            (_, failed) => bail!("{failed} of {runs} runs could not be run"),
        }
    }
}

/// Keeps a result. One that could not be kept is still reported.
fn keep((journal, trouble): &mut (&mut Option<Journal>, Option<JournalError>), row: &PointResult) {
    if let Some(Err(error)) = journal.as_mut().map(|journal| journal.add(row)) {
        trouble.get_or_insert(error);
    }
}

/// Distinguishes a sweep over the user's own drive files from one over earlier versions of the same files.
fn of_own(runs: &[One]) -> String {
    let own = runs.iter().map(|run| run.setup.drive());
    let own = own.filter(|drive| drives::find(&drive.name) != Some(*drive));
    let digests: BTreeSet<u32> = own.map(DriveFile::digest).collect();
    let digests = digests.iter().map(|digest| format!(" drive:{digest:08x}"));
    digests.collect()
}

/// Distinguishes a sweep from one by another program, or over what the same files had in them earlier.
fn of_input(runs: &[One], read: Option<&Ready>) -> Result<String> {
    let mut digests: Vec<u32> = runs.iter().filter_map(|run| run.setup.job_file()).collect();
    digests.dedup();
    let program = "/proc/self/exe";
    let program = digest(&[program.into()]).with_context(|| program)?;
    let shared = read.into_iter().flat_map(Ready::traces);
    let mut traces: BTreeSet<PathBuf> = shared.map(|trace| trace.path().into()).collect();
    if read.is_none() {
        let files = runs.iter().flat_map(|run| run.setup.trace_files());
        traces.extend(files.map(PathBuf::from));
    }
    for path in traces {
        let seen = digest(&of_all_processors(&path));
        digests.push(seen.with_context(|| path.display().to_string())?);
    }
    let digests = digests.iter().map(|digest| format!(" input:{digest:08x}"));
    Ok(format!(" vellum:{program:08x}") + &digests.collect::<String>())
}

/// A checksum of what is in files.
fn digest(files: &[PathBuf]) -> std::io::Result<u32> {
    let (mut sum, mut buffer) = (0, vec![0; 1 << 20]);
    for path in files {
        let mut file = File::open(path)?;
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                length => sum = crc32c::crc32c_append(sum, &buffer[..length]),
            }
        }
    }
    Ok(sum)
}

fn count(done: &AtomicU64) {
    done.fetch_add(1, Ordering::Relaxed);
}

fn named(point: &Point) -> String {
    let parts: Vec<String> = point.iter().map(|(k, v)| format!("{k}={v}")).collect();
    format!("the run with {}", parts.join(" "))
}

/// Runs one point; `None` if it was ended early, because a partial run means nothing.
fn result(
    run: &One,
    point: &Point,
    ready: &impl Fn(&One) -> Result<Ready>,
    watch: &Watch,
) -> Option<PointResult> {
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
        Ok(outcome) => Some(PointResult::of(point.clone(), &outcome)),
        Err(error) => Some(PointResult::failed(point.clone(), format!("{error:#}"))),
    }
}
