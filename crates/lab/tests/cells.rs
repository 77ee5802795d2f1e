//! Page types, the cache with one bit a cell, and energy, compared with values computed by hand.
#![allow(clippy::unwrap_used, reason = "a failure is a test's")]

#[path = "common/die.rs"]
mod die;
#[path = "common/run.rs"]
mod run;

use die::{DRIVE, WRITE, ask};
use run::run;
use vellum_lab::outcome::Outcome;
use vellum_lab::scenario::{Load, Precondition, Scenario, Synthetic};
use vellum_lab::sim::Pace;
use vellum_lab::trace::Op;
use vellum_lab::workload::{self, Request};

const CROSSING: u64 = 4096;
const TYPES: &str = "page-types = [{ read-us = 40, program-us = 500 }, { read-us = 60, program-us = 900 }, \
                     { read-us = 80, program-us = 1300 }]\n";

/// Its blocks have as many pages of each of three types.
fn one_die() -> String {
    DRIVE.replace("pages-per-block = 64", "pages-per-block = 96")
}

fn typed() -> String {
    one_die().replace("erase-ms", &format!("{TYPES}erase-ms"))
}

fn scenario<'a>(drive: &str, load: Load<'a>, depth: u32) -> Scenario<'a> {
    die::scenario(drive, load, Pace::Closed { depth })
}

#[test]
fn each_type_of_page_takes_its_own_time() {
    let writes = (0..960).map(|lba| ask(WRITE, lba, 0));
    let reads = (0..960).map(|lba| ask(Op::Read, lba, 0));
    let requests: Vec<Request> = writes.chain(reads).collect();
    let (plain, typed) = (one_die(), typed());
    let [plain, typed] =
        [plain, typed].map(|drive| run(&scenario(&drive, Load::Requests(&requests), 1), "base"));
    // A third of the pages of each type, in turn: the mean is the figure for all pages.
    assert_eq!(plain.writes.mean_ns, 900_000 + CROSSING);
    assert_eq!(typed.writes.mean_ns, 900_000 + CROSSING);
    assert_eq!(
        (plain.reads.mean_ns, typed.reads.mean_ns),
        (60_000 + CROSSING, 60_000 + CROSSING)
    );
    assert_eq!(
        (typed.writes.most_ns, typed.reads.most_ns),
        (1_300_000 + CROSSING, 80_000 + CROSSING)
    );
    assert_eq!(plain.writes.most_ns, 900_000 + CROSSING);
    // From one quartile of the distribution to the other.
    let third = |outcome: &Outcome, share: f64| {
        let found = outcome.write_cdf.iter().find(|point| point.share >= share);
        found.unwrap().ns as f64 / 1000.0
    };
    for (share, us) in [(0.3, 500.0), (0.6, 900.0), (0.9, 1300.0)] {
        let measured = third(&typed, share);
        assert!(
            (measured / (us + 4.1) - 1.0).abs() < 0.02,
            "{share}: {measured}"
        );
    }
}

#[test]
fn under_every_policy_a_steady_load_takes_as_long_as_with_the_mean() {
    let load = Load::Synthetic(Synthetic {
        requests: 30_000,
        ..Synthetic::new(*workload::find("uniform").unwrap())
    });
    for policy in [
        "base",
        "base:hot-cold",
        "base:level-static=20",
        "base:map-cache=16",
    ] {
        let [plain, typed] = [one_die(), typed()].map(|drive| {
            let mut scenario = scenario(&drive, load, 4);
            scenario.precondition = Precondition::Fill;
            run(&scenario, policy)
        });
        assert_eq!(plain.medium, typed.medium, "{policy}");
        let off = typed.seconds / plain.seconds - 1.0;
        assert!(
            plain.medium_blocks() > 50_000 && off.abs() < 0.003,
            "{policy}: {off}"
        );
        assert!(typed.writes.p9999_ns >= plain.writes.p9999_ns);
    }
}

#[test]
fn the_engine_on_flash_has_page_types_too() {
    // A block of 96 pages is no power of two, and the engine would use 64 of them.
    let drive = |types: bool| {
        let drive = if types { typed() } else { one_die() };
        drive.replace("pages-per-block = 96", "pages-per-block = 64")
    };
    let reads = (0..3000).map(|n| ask(Op::Read, n, 0));
    let writes = (0..3000).map(|lba| ask(WRITE, lba, 0));
    let requests: Vec<Request> = writes.chain([Request::flush(0)]).chain(reads).collect();
    for policy in ["vellum", "vellum:on-drive,op=60"] {
        let outcome = run(
            &scenario(&drive(true), Load::Requests(&requests), 1),
            policy,
        );
        let share = |us: u64| {
            let mut points = outcome.read_cdf.iter().rev();
            let within = points.find(|point| point.ns <= us * 1000);
            within.map_or(0.0, |point| point.share)
        };
        // Some pages are still in RAM, and of 64 pages the types have 22, 21 and 21.
        let shares = [share(50), share(70), share(90)];
        for (share, third) in shares.into_iter().zip([1.0, 2.0, 3.0]) {
            assert!((share - third / 3.0).abs() < 0.06, "{policy}: {shares:?}");
        }
        let plain = run(
            &scenario(&drive(false), Load::Requests(&requests), 1),
            policy,
        );
        assert_eq!(plain.medium, outcome.medium);
        assert!(plain.reads.p99_ns < 70_000 && outcome.reads.p99_ns > 80_000);
    }
}

#[test]
fn extended_dies_have_page_types_too() {
    let writes: Vec<Request> = (0..960).map(|lba| ask(WRITE, lba, 0)).collect();
    let drive = typed();
    let mut scenario = scenario(&drive, Load::Requests(&writes), 1);
    scenario.device.options.cache_commands = true;
    let outcome = run(&scenario, "base");
    assert_eq!(outcome.writes.mean_ns, 900_000 + CROSSING);
    assert_eq!(outcome.writes.most_ns, 1_300_000 + CROSSING);
    assert_eq!(outcome.busy.unwrap().programs_ns / 960, 900_000 + CROSSING);
}

/// 4 blocks of 32 pages with one bit a cell: 128 blocks of 4 KiB.
const CACHE: &str = "[slc-cache]
erase-blocks = 4
bits-per-cell = 3
read-us = 20
program-us = 100
erase-ms = 2
";
const CACHED: u64 = 128;

fn cached(more: &str) -> String {
    one_die() + CACHE + more
}

#[test]
fn a_burst_that_fits_the_cache_is_written_at_its_speed() {
    let writes: Vec<Request> = (0..CACHED).map(|lba| ask(WRITE, lba, 0)).collect();
    let outcome = run(&scenario(&cached(""), Load::Requests(&writes), 1), "base");
    let each = 100_000 + CROSSING;
    assert_eq!(
        (outcome.writes.mean_ns, outcome.writes.most_ns),
        (each, each)
    );
    // Folding after the end is counted, but takes none of the run's time.
    let slc = outcome.slc.unwrap();
    assert_eq!((slc.written, slc.folded, slc.erases), (CACHED, CACHED, 4));
    assert_eq!(outcome.medium_blocks(), 2 * CACHED);
    assert_eq!(
        (outcome.write_amplification, outcome.behind_cache()),
        (Some(2.0), Some(1.0))
    );
    assert!((outcome.seconds * 1e9 - (CACHED * each) as f64).abs() < 1.0);
    let plain = run(&scenario(&one_die(), Load::Requests(&writes), 1), "base");
    assert_eq!(plain.writes.mean_ns, 900_000 + CROSSING);
}

#[test]
fn a_sustained_load_falls_to_the_rate_of_folding() {
    let blocks = 40;
    let writes = (0..CACHED + blocks * 32).map(|lba| ask(WRITE, lba, 0));
    let writes: Vec<Request> = writes.collect();
    let outcome = run(&scenario(&cached(""), Load::Requests(&writes), 1), "base");
    // A page is written, read, and written again; a block of 32 is erased.
    let (first, read, again) = (100_000 + CROSSING, 20_000 + CROSSING, 900_000 + CROSSING);
    let block = 32 * (first + read + again) + 2_000_000;
    let all = CACHED * first + blocks * block;
    assert!(
        (outcome.seconds * 1e9 / all as f64 - 1.0).abs() < 1e-9,
        "{}",
        outcome.seconds
    );
    // The write that finds no room waits for the whole fold.
    assert_eq!(outcome.writes.most_ns, block - 31 * first);
    assert_eq!(outcome.writes.p50_ns / 1000, first / 1000);
    assert_eq!(
        outcome.slc.unwrap().idle,
        CACHED,
        "only what was left at the end"
    );
}

#[test]
fn overwritten_data_are_not_folded() {
    let writes: Vec<Request> = (0..4000).map(|n| ask(WRITE, n % 16, 0)).collect();
    let outcome = run(&scenario(&cached(""), Load::Requests(&writes), 1), "base");
    let slc = outcome.slc.unwrap();
    assert_eq!((slc.written, slc.folded), (4000, 16));
    assert_eq!(outcome.medium_blocks(), 4016);
    // No page is programmed in the other blocks meanwhile.
    let erasures = 2_000_000 * (4000 - CACHED).div_ceil(32);
    let all = 4000 * (100_000 + CROSSING) + erasures;
    assert!((outcome.seconds * 1e9 / all as f64 - 1.0).abs() < 1e-9);
}

#[test]
fn an_idle_drive_folds_and_the_next_burst_fits_again() {
    let burst = |from: u64, at: u64| (from..from + 100).map(move |lba| ask(WRITE, lba, at));
    let writes: Vec<Request> = burst(0, 0).chain(burst(500, 10_000_000_000)).collect();
    let each = 100_000 + CROSSING;
    for (idle, fits) in [
        ("", false),
        ("idle-ms = 50\n", true),
        ("idle-ms = 20000\n", false),
    ] {
        let drive = cached(idle);
        let mut scenario = scenario(&drive, Load::Requests(&writes), 1);
        scenario.pace = Pace::Open;
        let outcome = run(&scenario, "base");
        assert_eq!(
            outcome.writes.most_ns == 100 * each,
            fits,
            "{idle}: {}",
            outcome.writes.most_ns
        );
        assert_eq!(outcome.slc.unwrap().folded, 200);
        // The run ends with the last completion: no request waits for what the drive does then.
        assert!(
            (10.0..10.2).contains(&outcome.seconds),
            "{}",
            outcome.seconds
        );
        assert!(!fits || outcome.reads.count == 0);
    }
}

#[test]
fn a_small_cache_leaves_the_collectors_work_the_same() {
    let load = Load::Synthetic(Synthetic {
        requests: 60_000,
        ..Synthetic::new(*workload::find("uniform").unwrap())
    });
    let drive = cached("");
    let of = |drive: &str, over: u32| {
        let mut scenario = scenario(drive, load, 4);
        scenario.precondition = Precondition::Load;
        scenario.device.over_provisioning = Some(over);
        run(&scenario, "base")
    };
    // Data in the cache take no room in the other blocks: 128 of the volume's 12,800 blocks.
    let (plain, cached) = (of(&one_die(), 293), of(&drive, 280));
    let without = plain.write_amplification.unwrap();
    let behind = cached.behind_cache().unwrap();
    assert!((behind / without - 1.0).abs() < 0.015, "{behind} {without}");
    let erases = |outcome: &Outcome| outcome.life.as_ref().unwrap().erases as f64;
    assert!((erases(&cached) / erases(&plain) - 1.0).abs() < 0.02);
    assert!((cached.write_amplification.unwrap() - behind - 1.0).abs() < 1e-9);
    assert!(cached.writes.p9999_ns > cached.writes.p50_ns);
}

#[test]
fn policies_say_how_they_do_not_use_the_cache() {
    let writes: Vec<Request> = (0..400).map(|lba| ask(WRITE, lba, 0)).collect();
    let drive = cached("").replace("pages-per-block = 96", "pages-per-block = 64");
    let of = |policy: &str| {
        let scenario = scenario(&drive, Load::Requests(&writes), 1);
        scenario.run(&policy.parse().unwrap())
    };
    for policy in ["base:oftl", "base:map-cache=16"] {
        let error = of(policy).unwrap_err().to_string();
        assert!(error.contains("SLC cache"), "{policy}: {error}");
    }
    let told = |policy: &str| {
        let outcome = of(policy).unwrap();
        assert!(outcome.notes.iter().any(|note| note.contains("SLC cache")));
        outcome.slc
    };
    assert_eq!(told("vellum"), None);
    assert!(told("vellum:on-drive,op=60").unwrap().written > 400);
}

const ENERGY: &str = "[energy]\nread-uj = 20\nprogram-uj = 100.5\nerase-uj = 1000\n";

#[test]
fn energy_is_the_sum_of_the_operations() {
    let writes = (0..960).map(|lba| ask(WRITE, lba, 0));
    let reads = (0..100).map(|lba| ask(Op::Read, lba, 0));
    let requests: Vec<Request> = writes.chain(reads).collect();
    let load = Load::Requests(&requests);
    let outcome = run(&scenario(&(one_die() + ENERGY), load, 1), "base");
    let taken = outcome.energy.unwrap();
    let close = |one: f64, other: f64| (one - other).abs() < 1e-9;
    assert!(close(taken.programs_j, 960.0 * 100.5e-6), "{taken:?}");
    assert!(close(taken.reads_j, 100.0 * 20e-6), "{taken:?}");
    // Nothing had to be erased yet.
    assert!(close(taken.erases_j, 0.0), "{taken:?}");
    let gib = 1060.0 * 4096.0 / f64::from(1 << 30);
    assert!(close(outcome.joules_per_gib().unwrap(), taken.all() / gib));
    assert_eq!(run(&scenario(&one_die(), load, 1), "base").energy, None);
}

#[test]
fn erasures_of_a_cache_take_energy_too() {
    let writes: Vec<Request> = (0..4000).map(|n| ask(WRITE, n % 16, 0)).collect();
    let drive = format!("{}{ENERGY}", cached(""));
    let outcome = run(&scenario(&drive, Load::Requests(&writes), 1), "base");
    let erases = outcome.slc.unwrap().erases;
    assert!(erases > 100 && outcome.life.unwrap().erases == 0);
    let joules = outcome.energy.unwrap().erases_j;
    assert!((joules - erases as f64 * 1000e-6).abs() < 1e-9, "{joules}");
}

#[test]
fn energy_of_a_steady_load_follows_the_flash_operations() {
    // Two planes that always work together: a program is two pages, an erasure two blocks.
    let drive = one_die()
        .replace("planes = 1", "planes = 2\nplanes-together = true")
        .replace("pages-per-block = 96", "pages-per-block = 48");
    let load = Load::Synthetic(Synthetic {
        requests: 30_000,
        ..Synthetic::new(*workload::find("uniform").unwrap())
    });
    let mut scenario = scenario(&format!("{drive}{ENERGY}"), load, 4);
    scenario.precondition = Precondition::Fill;
    let outcome = run(&scenario, "base");
    let taken = outcome.energy.unwrap();
    let programs = outcome.programmed as f64 * 100.5e-6;
    assert!((taken.programs_j - programs).abs() < 1e-6, "{taken:?}");
    let erasures = outcome.life.unwrap().erases as f64 * 2.0 * 1000e-6;
    assert!((taken.erases_j - erasures).abs() < 1e-6, "{taken:?}");
    assert!(taken.erases_j > 0.0 && taken.reads_j > 0.0);
}
