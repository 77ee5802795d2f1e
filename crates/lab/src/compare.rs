//! All policies over one load, beside each other.

use crate::flash::{Kind, Preset};
use crate::outcome::Outcome;
use crate::parallel;
use crate::policy::Policy;
use crate::progress::Watch;
use crate::scenario::{Load, Scenario, ScenarioError};

/// A policy that could not be run, and why.
#[derive(Debug, thiserror::Error)]
#[error("{policy}")]
pub struct Failed {
    /// Which.
    pub policy: Policy,
    /// Why.
    #[source]
    pub source: Box<ScenarioError>,
}

/// What is compared when nobody says: the page map and the log with nothing, each greedy and by cost and benefit; then the
/// log with each of its savings alone, and with all; and tables in place where they can be. Write-once needs to know where a journal is, compression in how many
/// bytes blocks can be stored.
#[must_use]
pub fn policies(preset: &Preset, journal: bool, sizes: bool) -> Vec<Policy> {
    let flash = matches!(preset.kind, Kind::Nand(_));
    let names = [
        ("base", true, false),
        ("base:cost-benefit", flash, false),
        ("vellum:zero=off", true, false),
        ("vellum:victim=cost-benefit,zero=off", true, false),
        ("vellum", true, false),
        ("vellum:zero=off,write-once", true, true),
        ("vellum:zero=off,dedup", true, false),
        ("vellum:zero=off,sweep", true, false),
        ("vellum:zero=off,compress", sizes, false),
        ("vellum:dedup", true, false),
        ("vellum:dedup,write-once", true, true),
        ("vellum:victim=cost-benefit,dedup", !journal, false),
        ("vellum:victim=cost-benefit,dedup,write-once", true, true),
        (
            "vellum:victim=cost-benefit,dedup,compress",
            sizes && !journal,
            false,
        ),
        (
            "vellum:victim=cost-benefit,dedup,compress,write-once",
            sizes,
            true,
        ),
        (
            "vellum:victim=cost-benefit,dedup,compress,fold,sweep",
            sizes && !journal,
            false,
        ),
        (
            "vellum:victim=cost-benefit,dedup,compress,write-once,fold,sweep",
            sizes,
            true,
        ),
        (
            "vellum:victim=cost-benefit,dedup,compress,delta",
            sizes && !journal,
            false,
        ),
        (
            "vellum:victim=cost-benefit,dedup,compress,delta,write-once",
            sizes,
            true,
        ),
        ("vellum:dedup,on-drive", flash, false),
        ("vellum:dedup,layout=ordered,on-drive", flash, false),
        ("vellum:dedup,layout=shadow,on-drive", flash, false),
        ("vellum:dedup,layout=ordered", !flash, false),
        ("vellum:dedup,layout=shadow", !flash, false),
    ];
    let wanted = names
        .iter()
        .filter(|(_, here, needs_journal)| *here && (journal || !needs_journal));
    // The names are this file's own: a test reads them all.
    wanted.filter_map(|(name, ..)| name.parse().ok()).collect()
}

/// Whether a load says where a journal is.
#[must_use]
pub fn knows_journal(load: &Load<'_>) -> bool {
    match load {
        Load::Synthetic(load) => load.journal.is_some(),
        Load::Trace { trace, .. } => trace.journal().is_some(),
        Load::Requests(_) => false,
    }
}

/// Runs the policies, so many at a time, each seen through the watch of the same place. One that cannot be run
/// does not keep the others from it.
pub fn run(
    scenario: &Scenario<'_>,
    policies: &[Policy],
    watches: &[Watch],
    threads: usize,
) -> (Vec<Outcome>, Vec<Failed>) {
    let results = parallel::map(policies, threads, |at, policy| {
        let scenario = Scenario {
            watch: watches.get(at),
            ..*scenario
        };
        let policy = *policy;
        scenario.run(&policy).map_err(|source| Failed {
            policy,
            source: Box::new(source),
        })
    });
    let (mut outcomes, mut failed) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(outcome) => outcomes.push(outcome),
            Err(error) => failed.push(error),
        }
    }
    (outcomes, failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drives;

    #[test]
    fn the_policies_are_policies_and_each_is_there_once() {
        for drive in drives::known() {
            let flash = matches!(drive.preset.kind, Kind::Nand(_));
            for (journal, sizes, count) in [
                (false, false, 10),
                (true, false, 12),
                (false, true, 14),
                (true, true, 16),
            ] {
                let policies = policies(&drive.preset, journal, sizes);
                let names: std::collections::BTreeSet<_> =
                    policies.iter().map(ToString::to_string).collect();
                assert_eq!(names.len(), policies.len());
                assert_eq!(policies.len(), count + if flash { 2 } else { 0 });
            }
        }
    }
}
