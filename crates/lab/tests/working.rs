//! A host that works between its requests (`Pace::Working`): its time and the drive's add up, for each waits for the other.
#![allow(clippy::unwrap_used, reason = "a failure is a test's")]

#[path = "common/run.rs"]
mod run;

use run::run;
use vellum_lab::drives;
use vellum_lab::journal::{Commit, File, Journal, Mode};
use vellum_lab::scenario::{Device, Load, Scenario, Synthetic};
use vellum_lab::sim::Pace;
use vellum_lab::workload;

const WRITES: u64 = 2000;
/// Writes an fsync.
const WINDOW: u64 = 50;

/// The seconds of these writes.
fn seconds(pace: Pace, write_ns: u64) -> f64 {
    let load = Synthetic {
        requests: WRITES + WRITES / WINDOW,
        flush_every: WINDOW,
        journal: Some(Journal {
            mode: Mode::Data,
            blocks: 8192,
            commit: Commit::TwoFlushes,
            fsync_flushes: false,
            write_back: 0,
            file: File::Overwritten,
        }),
        write_ns,
        ..Synthetic::new(*workload::find("uniform").unwrap())
    };
    let device = Device {
        capacity: Some(256 << 20),
        ..Device::new(drives::own("moderate-ssd"))
    };
    let scenario = Scenario {
        pace,
        ..Scenario::new(device, Load::Synthetic(load))
    };
    run(&scenario, "base").seconds
}

#[test]
fn what_the_host_works_is_added_to_what_the_drive_takes() {
    let (closed, working) = (Pace::Closed { depth: 32 }, Pace::Working { depth: 32 });
    let drive = seconds(closed, 0);
    assert_eq!(seconds(working, 0), drive);
    for us in [10.0, 200.0] {
        let both = seconds(working, (us * 1000.0) as u64);
        // A load's times begin with its first request, so the work before that is not in them.
        let expected = drive + us / 1e6 * (WRITES - WINDOW) as f64;
        assert!(
            (both - expected).abs() < 1e-6,
            "{both}, expected {expected}"
        );
    }
    // Who sends as soon as the drive lets him does not work.
    assert_eq!(seconds(closed, 200_000), drive);
}
