//! Runs a scenario under a policy, given by name.

use vellum_lab::outcome::Outcome;
use vellum_lab::scenario::Scenario;

/// Returns the outcome.
pub fn run(scenario: &Scenario<'_>, policy: &str) -> Outcome {
    let ran = scenario.run(&policy.parse().unwrap());
    ran.unwrap_or_else(|e| panic!("{policy}: {e}"))
}
