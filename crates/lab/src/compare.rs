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

/// What a row of the comparison needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    /// A drive that may be overwritten: it has no zones.
    Overwrites,
    /// A drive whose inside is simulated.
    Inside,
    /// One whose inside is not.
    NoInside,
    /// A drive that has placement handles.
    Handles,
    /// A load that says where a journal is.
    Journal,
    /// One that does not.
    NoJournal,
    /// A load with the sizes of compressed blocks.
    Sizes,
    /// A load with a file system that frees blocks.
    Freed,
}

use Needs::{Freed, Handles, Inside, Journal, NoInside, NoJournal, Overwrites, Sizes};

/// The policies compared by default: the page map and the log without savings, each with greedy and cost-benefit victims; then the log with
/// each saving alone, and with all; and tables in place, where they are possible.
const ROWS: &[(&str, &[Needs])] = &[
    ("base", &[Overwrites]),
    ("base:cost-benefit", &[Overwrites, Inside]),
    ("base:handles=heat", &[Handles]),
    ("vellum:zero=off", &[]),
    ("vellum:victim=cost-benefit,zero=off", &[]),
    ("vellum", &[]),
    ("vellum:zero=off,write-once", &[Journal]),
    ("vellum:zero=off,write-once,replay", &[Journal]),
    ("vellum:zero=off,freed", &[Freed]),
    ("vellum:zero=off,dedup", &[]),
    ("vellum:zero=off,sweep", &[]),
    ("vellum:zero=off,compress", &[Sizes]),
    ("vellum:zero=off,compress,fold", &[Sizes]),
    ("vellum:dedup", &[]),
    ("vellum:dedup,write-once", &[Journal]),
    ("vellum:victim=cost-benefit,dedup", &[NoJournal]),
    ("vellum:victim=cost-benefit,dedup,write-once", &[Journal]),
    (
        "vellum:victim=cost-benefit,dedup,compress",
        &[Sizes, NoJournal],
    ),
    (
        "vellum:victim=cost-benefit,dedup,compress,write-once",
        &[Sizes, Journal],
    ),
    (
        "vellum:victim=cost-benefit,dedup,compress,fold,sweep",
        &[Sizes, NoJournal],
    ),
    (
        "vellum:victim=cost-benefit,dedup,compress,write-once,fold,sweep",
        &[Sizes, Journal],
    ),
    (
        "vellum:victim=cost-benefit,dedup,compress,delta",
        &[Sizes, NoJournal],
    ),
    (
        "vellum:victim=cost-benefit,dedup,compress,delta,write-once",
        &[Sizes, Journal],
    ),
    ("vellum:dedup,on-drive", &[Inside, Overwrites]),
    ("vellum:dedup,on-drive,handles", &[Handles]),
    (
        "vellum:dedup,layout=ordered,on-drive",
        &[Inside, Overwrites],
    ),
    ("vellum:dedup,layout=shadow,on-drive", &[Inside, Overwrites]),
    ("vellum:dedup,layout=ordered", &[NoInside]),
    ("vellum:dedup,layout=shadow", &[NoInside]),
];

/// The policies compared by default on a drive, with a load of which so much is known.
#[must_use]
pub fn policies(preset: &Preset, known: Known) -> Vec<Policy> {
    let (inside, overwrites, handles) = match &preset.kind {
        Kind::Nand(nand) => (true, nand.zoned.is_none(), nand.placement.is_some()),
        Kind::Block(_) => (false, true, false),
    };
    let has = |needs: &Needs| match needs {
        Overwrites => overwrites,
        Inside => inside,
        NoInside => !inside,
        Handles => handles,
        Journal => known.journal,
        NoJournal => !known.journal,
        Sizes => known.sizes,
        Freed => known.freed,
    };
    let wanted = ROWS.iter().filter(|(_, needs)| needs.iter().all(has));
    // The names are all in this file: a test parses them.
    wanted.filter_map(|(name, _)| name.parse().ok()).collect()
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
                (true, false, 13),
                (false, true, 15),
                (true, true, 18),
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
