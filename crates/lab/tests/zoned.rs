//! Drives with zones: the log on them, and what it costs that nothing can be overwritten.
#![allow(clippy::unwrap_used, reason = "a failure is a test's")]

use vellum_lab::drives::{self, DriveFile};
use vellum_lab::outcome::Outcome;
use vellum_lab::scenario::{Device, Load, Precondition, Scenario, ScenarioError, Synthetic};
use vellum_lab::vellum::LayoutError;
use vellum_lab::workload;

const ZONES: &str = "dies = 4\nerase-blocks = 1\nopen = 8\nactive = 8\n";

fn drive(zones: &str) -> DriveFile {
    let text = drives::find("oftl").unwrap().written() + "[zoned]\n" + zones;
    let text = text.replace("[page-map]", "[not-a-table]");
    let text: String = text
        .lines()
        .filter(|line| {
            let map = [
                "[not-a-table]",
                "striped",
                "kept-free",
                "copy-back",
                "summaries",
            ];
            !map.iter().any(|start| line.starts_with(start))
        })
        .flat_map(|line| [line, "\n"])
        .collect();
    DriveFile::read("mine", &text).unwrap()
}

fn run(drive: &DriveFile, timed: bool, policy: &str) -> Result<Outcome, ScenarioError> {
    let hot_cold = workload::find("hot-cold").unwrap();
    let load = Load::Synthetic(Synthetic {
        requests: 300_000,
        flush_every: 50,
        ..Synthetic::new(*hot_cold)
    });
    let scenario = Scenario {
        precondition: Precondition::Fill,
        seed: 11,
        timed,
        ..Scenario::new(
            Device {
                capacity: Some(1 << 30),
                over_provisioning: Some(250),
                ..Device::new(drive.preset)
            },
            load,
        )
    };
    scenario.run(&policy.parse().unwrap())
}

fn blocks(outcome: &Outcome, cause: &str) -> u64 {
    let found = outcome.medium.iter().find(|found| found.name == cause);
    found
        .unwrap_or_else(|| panic!("{cause}: {:?}", outcome.medium))
        .blocks
}

#[test]
fn the_log_keeps_the_rules_and_the_drive_writes_what_it_is_given() {
    for conventional in [0, 12] {
        for timed in [false, true] {
            let zones = format!("{ZONES}conventional = {conventional}\n");
            let outcome = run(&drive(&zones), timed, "vellum").unwrap();
            assert!(blocks(&outcome, "moved") > 50_000, "{:?}", outcome.medium);
            assert_eq!(outcome.stacked, None);
            // All that is programmed is what the log wrote, but for units that were not full at the beginning or at the end.
            let (all, programmed) = (outcome.medium_blocks(), outcome.programmed);
            assert!(programmed.abs_diff(all) < 4096, "{programmed} {all}");
            let own = blocks(&outcome, "map area's own");
            assert!(conventional > 0 || own > 0);
            assert!(own * 50 < all, "{own} of {all}");
        }
    }
}

#[test]
fn the_log_costs_on_zones_what_it_costs_on_flash_of_the_same_segments() {
    let flash = run(drives::find("oftl").unwrap(), false, "vellum").unwrap();
    let zones = run(&drive(ZONES), false, "vellum").unwrap();
    let of = |outcome: &Outcome| outcome.write_amplification.unwrap();
    let (flash, zones) = (of(&flash), of(&zones));
    assert!((zones / flash - 1.0).abs() < 0.1, "{zones} {flash}");
}

#[test]
fn the_log_waits_for_zones_and_needs_a_few() {
    let zones = |active, conventional| {
        let zones = ZONES.replace("= 8", &format!("= {active}"));
        drive(&format!("{zones}conventional = {conventional}\n"))
    };
    for timed in [false, true] {
        // The log of the map has a zone of its own.
        for (active, conventional) in [(4, 0), (3, 12)] {
            let outcome = run(&zones(active, conventional), timed, "vellum").unwrap();
            assert!(outcome.host_written > 290_000);
            let error = run(&zones(active - 1, conventional), timed, "vellum").unwrap_err();
            let is_limit = matches!(
                error,
                ScenarioError::Layout(LayoutError::Active { needs, .. }) if needs == active
            );
            assert!(is_limit, "{error}");
        }
    }
}

#[test]
fn what_needs_a_page_map_is_refused_on_zones() {
    let zones = drive(ZONES);
    for policy in ["base", "vellum:on-drive", "vellum:layout=shadow,on-drive"] {
        let error = run(&zones, false, policy).unwrap_err();
        assert!(matches!(error, ScenarioError::Zoned { .. }), "{error}");
    }
}
