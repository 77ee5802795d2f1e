//! The papers' evaluations, run again: ours beside what the paper states, in the setting that it states.
//!
//! A paper's figures are drawn, not printed, so what it states in its text is what ours is held against. What the lab has no part for is
//! named, not left out.

pub mod caftl;
mod claim;
pub mod csafs;
mod evaluation;
mod list;
pub mod oftl;
pub mod omd;
mod page;
pub mod woj;

pub use claim::{BAND, Claim, Range, Stated, Verdict, count};
pub use evaluation::{Evaluation, Frame};
pub use list::Listed;
pub use page::page;

use claim::range;

use crate::drives;
use crate::flash;
use crate::outcome::Outcome;
use crate::parallel;
use crate::policy::{Policy, PolicyError};
use crate::replay::ReplayError;
use crate::scenario::{Device, Load, Own, Precondition, Scenario, ScenarioError, Synthetic};
use crate::sim::Pace;
use crate::workload::{self, Workload};
use std::path::Path;

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// A test's.
    Tiny,
    /// Enough for the counts to be those of the whole: a minute or two.
    Short,
    /// The paper's own: many minutes.
    Full,
}

/// Why a paper's run failed.
#[derive(Debug, thiserror::Error)]
pub enum PaperError {
    /// A run of it.
    #[error("{what}")]
    Run {
        /// Which.
        what: String,
        /// Why.
        #[source]
        source: Box<ScenarioError>,
    },
    /// A trace.
    #[error(transparent)]
    Trace(#[from] ReplayError),
    /// A directory of traces cannot be listed.
    #[error("{path}")]
    Directory {
        /// Which.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Too few or too many of them.
    #[error(
        "{path}: there are {found} files, and from 1 to 64 traces are wanted (benches/capture.sh makes some)"
    )]
    Traces {
        /// Where.
        path: String,
        /// How many, at most one more than are wanted.
        found: usize,
    },
    /// One that is too long.
    #[error(
        "{path}: the trace writes {blocks} blocks, and this keeps at most 16777216 in memory: `vellum lab compare` streams it"
    )]
    Long {
        /// Which.
        path: String,
        /// How many.
        blocks: u64,
    },
    /// A name of this crate's own that is none.
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

/// The names of the papers that there is an evaluation of.
pub const NAMES: [&str; 5] = ["woj", "caftl", "omd", "oftl", "csafs"];

/// Runs the evaluation of that name; none when there is none. OrderMergeDedup's takes traces in place of its loads.
///
/// # Errors
/// When a run of it fails.
pub fn evaluate(
    name: &str,
    size: Size,
    threads: usize,
    traces: Option<&Path>,
) -> Option<Result<Evaluation, PaperError>> {
    match name {
        "woj" => Some(woj::evaluate(size, threads)),
        "caftl" => Some(caftl::evaluate(size, threads)),
        "omd" => Some(omd::evaluate(size, threads, traces)),
        "oftl" => Some(oftl::evaluate(size, threads)),
        "csafs" => Some(csafs::evaluate(size, threads)),
        _ => None,
    }
}

/// One run of an evaluation, and what it is of.
struct Cell<'a, K> {
    key: K,
    what: String,
    scenario: Scenario<'a>,
    policy: Policy,
}

impl<'a, K> Cell<'a, K> {
    fn new(key: K, what: String, scenario: Scenario<'a>, policy: &str) -> Result<Self, PaperError> {
        Ok(Self {
            key,
            what,
            scenario,
            policy: policy.parse()?,
        })
    }
}

/// Runs them on so many threads; the results are in their order.
fn run<K: Sync>(cells: Vec<Cell<'_, K>>, threads: usize) -> Result<Vec<(K, Outcome)>, PaperError> {
    let results = parallel::map(&cells, threads, |_, cell| {
        let ran = cell.scenario.run(&cell.policy);
        ran.map_err(|source| PaperError::Run {
            what: format!("{}, {}", cell.what, cell.policy),
            source: Box::new(source),
        })
    });
    let keys = cells.into_iter().map(|cell| cell.key);
    keys.zip(results)
        .map(|(key, outcome)| Ok((key, outcome?)))
        .collect()
}

fn workload(name: &str) -> Workload {
    let Some(workload) = workload::find(name) else {
        unreachable!("{name}: a load of this crate's own")
    };
    *workload
}

/// A load on a device of this crate's own, as new, 32 requests at a time.
fn scenario(device: &str, capacity: u64, load: Synthetic) -> Scenario<'static> {
    Scenario {
        device: Device {
            preset: drives::own(device),
            capacity: Some(capacity),
            over_provisioning: None,
            erase_limit: None,
            flush_ns: 0,
            read_priority: true,
            options: flash::Options::default(),
        },
        load: Load::Synthetic(load),
        pace: Pace::Closed { depth: 32 },
        precondition: Precondition::None,
        seed: 1,
        daily_bytes: None,
        verify: false,
        timed: true,
        sizes: None,
        hashing: None,
        own: Own::default(),
        watch: None,
    }
}

/// The application's megabytes a second.
fn throughput(blocks: u64, outcome: &Outcome) -> f64 {
    blocks as f64 * 4096.0 / 1e6 / outcome.seconds.max(1e-9)
}
