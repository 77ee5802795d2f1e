//! When tables are committed: as often as a policy says, and what no answer waits for when it says so.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "not a server: a failure is a test's"
)]

#[allow(dead_code, reason = "each test uses its share")]
mod sim;

use sim::driver::{Ask, Driver};
use sim::medium::{Broken, Medium};
use sim::model::Model;
use sim::open::{self, Volume};
use sim::rng::Rng;
use vellum_core::engine;
use vellum_core::format::SumKind;
use vellum_core::format::areas::Layout;
use vellum_core::layout::Recovered;
use vellum_core::seam::Commits;
use vellum_core::tables::{Options, Persistence, Tables};

const LAYOUTS: [Layout; 2] = [Layout::Ordered, Layout::Shadow];
/// More than what a group of changes waits for company.
const SECONDS: u64 = 5_000_000_000;

fn created(layout: Layout) -> Medium {
    let volume = Volume {
        medium_blocks: 800,
        logical_blocks: Some(200),
        segment_blocks: 64,
        over_provisioning: 70,
        layout,
        sums: SumKind::Xxh3,
    };
    volume.create(Broken::No).unwrap().0
}

fn opened(mut medium: Medium, commits: Commits) -> Driver {
    let mut rng = Rng::new(1);
    let Recovered::Tables(found) = open::open(&mut medium, &mut rng, false).unwrap() else {
        panic!("tables");
    };
    let options = Options::new(&engine::Options::default(), Persistence::Weak);
    let tables = Tables::new(*found, options, crc32c::crc32c);
    let mut driver = Driver::new(tables, medium, Model::new(200), rng, 0);
    driver.start().unwrap();
    driver.commits(commits).unwrap();
    driver
}

/// As far as it goes while no time passes.
fn write(driver: &mut Driver, lbas: std::ops::Range<u64>) {
    for lba in lbas {
        let tokens = vec![driver.counts.done as u32 + 1];
        let fua = false;
        driver.ask(&Ask::Write { lba, tokens, fua }).unwrap();
        while driver.advance().unwrap() {}
    }
}

fn links(medium: &Medium) -> usize {
    match open::recover(medium, None).unwrap() {
        Recovered::Tables(found) => found.links().count(),
        Recovered::Log(_) => panic!("tables"),
    }
}

/// Dmdedup's flush interval: nobody flushes, no time passes, and after so many requests they are durable.
#[test]
fn a_commit_is_due_after_so_many_requests() {
    for layout in LAYOUTS {
        let every_third = Commits {
            requests: 3,
            ..Commits::default()
        };
        let mut driver = opened(created(layout), every_third);
        write(&mut driver, 0..7);
        assert_eq!(driver.engine.stats().commits, 2, "{layout:?}");
        driver.commits(Commits::default()).unwrap();
        write(&mut driver, 7..20);
        assert_eq!(driver.engine.stats().commits, 2, "{layout:?}");
        let (medium, ..) = driver.crash(true).unwrap();
        assert_eq!(links(&medium), 6, "{layout:?}");
    }
}

/// A count that goes down waits for half a minute, or for nothing.
#[test]
fn what_no_answer_waits_for_is_held_back_to_be_merged() {
    // What is known of the map's editions is held back by the same rule: without it, that is a commit of its own.
    for (merging, commits) in [(true, 2), (false, 4)] {
        let policy = Commits {
            merging,
            ..Commits::default()
        };
        let mut driver = opened(created(Layout::Ordered), policy);
        for _ in 0..2 {
            write(&mut driver, 0..1);
            driver.ask(&Ask::Flush).unwrap();
            driver.settle().unwrap();
        }
        while driver
            .engine
            .poll_timeout()
            .is_some_and(|due| due.0 < SECONDS)
        {
            driver.wait().unwrap();
            driver.settle().unwrap();
        }
        assert_eq!(driver.engine.stats().commits, commits, "{merging}");
    }
}
