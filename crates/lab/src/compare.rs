//! All policies over one load, side by side.

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
    /// The policy.
    pub policy: Policy,
    /// The cause.
    #[source]
    pub source: Box<ScenarioError>,
}

/// What is known of a load, for policies that need it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// True if it is known where a journal is.
    pub journal: bool,
    /// True if it is known which blocks its file system frees.
    pub freed: bool,
    /// True if the sizes its blocks can be stored in are known.
    pub sizes: bool,
}

impl Known {
    /// What is known of a scenario's load.
    #[must_use]
    pub fn of(scenario: &Scenario<'_>) -> Self {
        Self {
            journal: knows_journal(&scenario.load),
            freed: scenario.load.frees_blocks(),
            sizes: scenario.knows_sizes(),
        }
    }
}

/// Whether a drive's inside is simulated, whether it may be overwritten (it has no zones), and whether it has placement handles.
fn lets(preset: &Preset) -> (bool, bool, bool) {
    match &preset.kind {
        Kind::Nand(nand) => (true, nand.zoned.is_none(), nand.placement.is_some()),
        Kind::Block(_) => (false, true, false),
    }
}

/// The policies compared by default: the page map and the log without savings, each with greedy and cost-benefit victims; then the log with
/// each saving alone, and with all; and tables in place, where they are possible. Write-once needs the place of a journal, compression the
/// sizes of blocks, and freed blocks a simulated file system.
#[must_use]
pub fn policies(preset: &Preset, known: Known) -> Vec<Policy> {
    let Known {
        journal,
        freed,
        sizes,
    } = known;
    let (flash, drive, handles) = lets(preset);
    let names = [
        ("base", drive, false),
        ("base:cost-benefit", drive && flash, false),
        ("base:handles=heat", handles, false),
        ("vellum:zero=off", true, false),
        ("vellum:victim=cost-benefit,zero=off", true, false),
        ("vellum", true, false),
        ("vellum:zero=off,write-once", true, true),
        ("vellum:zero=off,freed", freed, false),
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
        ("vellum:dedup,on-drive", flash && drive, false),
        ("vellum:dedup,on-drive,handles", handles, false),
        (
            "vellum:dedup,layout=ordered,on-drive",
            flash && drive,
            false,
        ),
        ("vellum:dedup,layout=shadow,on-drive", flash && drive, false),
        ("vellum:dedup,layout=ordered", !flash, false),
        ("vellum:dedup,layout=shadow", !flash, false),
    ];
    let wanted = names
        .iter()
        .filter(|(_, here, needs_journal)| *here && (journal || !needs_journal));
    // The names are all in this file: a test parses them.
    wanted.filter_map(|(name, ..)| name.parse().ok()).collect()
}

/// True if the load says where a journal is.
#[must_use]
pub fn knows_journal(load: &Load<'_>) -> bool {
    match load {
        Load::Synthetic(load) => load.journal.is_some(),
        Load::Trace { trace, .. } => trace.journal().is_some(),
        Load::Tenants { tenants, .. } => tenants.traces().any(|t| t.journal().is_some()),
        Load::Jobs(_) | Load::Requests(_) => false,
    }
}

/// Runs the policies, at most `threads` at a time, each with the watch of the same index. One that cannot run does not
/// stop the others.
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
    fn each_default_policy_is_valid_and_listed_once() {
        for drive in drives::known() {
            let flash = matches!(drive.preset.kind, Kind::Nand(_));
            for (journal, sizes, count) in [
                (false, false, 10),
                (true, false, 12),
                (false, true, 14),
                (true, true, 16),
            ] {
                let known = Known {
                    journal,
                    sizes,
                    freed: false,
                };
                let policies = policies(&drive.preset, known);
                let names: std::collections::BTreeSet<_> =
                    policies.iter().map(ToString::to_string).collect();
                assert_eq!(names.len(), policies.len());
                assert_eq!(policies.len(), count + if flash { 2 } else { 0 });
            }
        }
    }
}
