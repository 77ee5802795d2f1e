//! When tables are committed: as often as a policy says. Changes that no answer waits for are held back if the policy says so.

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
/// Longer than a group of changes waits for company.
const SECONDS: u64 = 5_000_000_000;

fn created(layout: Layout) -> Medium {
    created_of(layout, 200)
}

fn created_of(layout: Layout, blocks: u64) -> Medium {
    let volume = Volume {
        medium_blocks: 4 * blocks,
        logical_blocks: Some(blocks),
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
    let model = Model::new(tables.superblock().logical_blocks());
    let mut driver = Driver::new(tables, medium, model, rng, 0);
    driver.start().unwrap();
    driver.commits(commits).unwrap();
    driver
}

/// Writes as far as possible while no time passes.
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

/// Dmdedup's flush interval: without a flush, and without time passing, writes are durable after so many requests.
#[test]
fn a_commit_is_due_after_so_many_requests() {
    for layout in LAYOUTS {
        let every_third = Commits {
            requests: 3,
            ..Commits::default()
        };
        let mut driver = opened(created(layout), every_third);
        write(&mut driver, 0..7);
        assert_eq!(driver.core.stats().commits, 2, "{layout:?}");
        driver.commits(Commits::default()).unwrap();
        write(&mut driver, 7..20);
        assert_eq!(driver.core.stats().commits, 2, "{layout:?}");
        let (medium, ..) = driver.crash(true).unwrap();
        assert_eq!(links(&medium), 6, "{layout:?}");
    }
}

/// A commit waits for the data that its links lead to, and not for data that clients write meanwhile.
#[test]
fn a_flush_ends_while_clients_go_on_writing() {
    const BLOCKS: u64 = 600;
    for layout in LAYOUTS {
        let mut driver = opened(created_of(layout, BLOCKS), Commits::default());
        let mut next = 0;
        // As much as there are buffers for.
        let mut fill = |driver: &mut Driver| {
            for _ in 0..BLOCKS {
                let (lba, tokens) = (next % BLOCKS, vec![next as u32 + 1]);
                let fua = false;
                if !driver.ask(&Ask::Write { lba, tokens, fua }).unwrap() {
                    return;
                }
                next += 1;
            }
        };
        fill(&mut driver);
        driver.ask(&Ask::Flush).unwrap();
        let before = driver.core.stats().syncs;
        let has_synced = (0..3000).any(|_| {
            driver.advance().unwrap();
            fill(&mut driver);
            driver.core.stats().syncs > before
        });
        assert!(has_synced, "{layout:?}");
    }
}

/// A count that goes down is held back for half a minute, or not at all.
#[test]
fn changes_that_no_answer_waits_for_are_held_back_to_be_merged() {
    // The editions of the map are held back by the same rule; without it, they take a separate commit.
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
            .core
            .poll_timeout()
            .is_some_and(|due| due.0 < SECONDS)
        {
            driver.wait().unwrap();
            driver.settle().unwrap();
        }
        assert_eq!(driver.core.stats().commits, commits, "{merging}");
    }
}
