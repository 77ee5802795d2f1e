//! The runs of an evaluation, several at a time.

use super::failure::PaperError;
use crate::outcome::Outcome;
use crate::parallel;
use crate::policy::Policy;
use crate::scenario::Scenario;

/// One run of an evaluation, with its key.
pub(super) struct Cell<'a, K> {
    key: K,
    what: String,
    scenario: Scenario<'a>,
    policy: Policy,
}

impl<'a, K> Cell<'a, K> {
    pub(super) fn new(
        key: K,
        what: String,
        scenario: Scenario<'a>,
        policy: &str,
    ) -> Result<Self, PaperError> {
        Ok(Self {
            key,
            what,
            scenario,
            policy: policy.parse()?,
        })
    }
}

/// Runs the cells on `threads` threads; the results are in the cells' order.
pub(super) fn run<K: Sync>(
    cells: Vec<Cell<'_, K>>,
    threads: usize,
) -> Result<Vec<(K, Outcome)>, PaperError> {
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

/// The application's megabytes per second.
pub(super) fn throughput(blocks: u64, outcome: &Outcome) -> f64 {
    blocks as f64 * 4096.0 / 1e6 / outcome.seconds.max(1e-9)
}
