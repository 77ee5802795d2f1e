//! The pages that a run writes.

use std::sync::{Arc, Mutex};
use vellum_lab::base::Separate;
use vellum_lab::outcome::Outcome;
use vellum_lab::scenario::Scenario;

/// Records the written pages, in order. It panics if there are more than any job here requests, so that a job that never ends
/// fails.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<u64>>>);

impl Separate for Seen {
    fn written(&mut self, page: u64) -> bool {
        let mut pages = self.0.lock().unwrap();
        assert!(pages.len() < 200_000, "a job does not end");
        pages.push(page);
        false
    }

    fn moved(&mut self, _: u64, hot: bool) -> bool {
        hot
    }
}

/// Runs a scenario. Returns the outcome, and the pages that it wrote.
pub fn run_seen(scenario: Scenario<'_>) -> (Outcome, Vec<u64>) {
    let seen = Seen::default();
    let made = || Box::new(seen.clone()) as Box<dyn Separate>;
    let mut scenario = scenario;
    scenario.own.separation = Some(&made);
    let outcome = scenario.run(&"base:hot-cold".parse().unwrap()).unwrap();
    let pages = std::mem::take(&mut *seen.0.lock().unwrap());
    (outcome, pages)
}
