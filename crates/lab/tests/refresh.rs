//! Read disturb and retention: when blocks are refreshed, and the cost, compared with values computed by hand.
#![allow(clippy::unwrap_used, reason = "a failure is a test's")]

#[path = "common/die.rs"]
mod die;
#[path = "common/run.rs"]
mod run;

use die::{DRIVE, WRITE, ask, scenario};
use run::run;
use vellum_lab::base::Refreshed;
use vellum_lab::flash::{BitErrors, Options, PastDue};
use vellum_lab::outcome::Outcome;
use vellum_lab::scenario::{Load, Precondition, Synthetic};
use vellum_lab::sim::Pace;
use vellum_lab::trace::Op;
use vellum_lab::workload::{self, Pattern, Request, Workload};

const READ: u64 = 60_000 + 4096;
const PROGRAM: u64 = 900_000 + 4096;
const PAGES: u64 = 64;
/// 0.00002 days.
const AGE: u64 = 1_728_000_000;

fn reads(most: u32) -> String {
    format!("{DRIVE}[read-disturb]\nreads = {most}\n")
}

fn ages() -> String {
    format!("{DRIVE}[retention]\ndays = 0.00002\n")
}

const ONE: Pace = Pace::Closed { depth: 1 };

fn of(drive: &str, requests: &[Request], policy: &str) -> Outcome {
    run(&scenario(drive, Load::Requests(requests), ONE), policy)
}

/// Writes two blocks, and some of the first block's pages again; then reads one of its pages `times` times.
fn written_and_read(again: u64, times: u64) -> Vec<Request> {
    let writes = (0..2 * PAGES).chain(0..again);
    let writes = writes.map(|lba| ask(WRITE, lba, 0));
    let reads = (0..times).map(|_| ask(Op::Read, PAGES - 1, 0));
    writes.chain(reads).collect()
}

fn moved(outcome: &Outcome) -> u64 {
    let cause = outcome.medium.iter().find(|c| c.name == "moved to refresh");
    cause.unwrap().blocks
}

fn erases(outcome: &Outcome) -> u64 {
    outcome.life.as_ref().unwrap().erases
}

fn refreshed(for_reads: u64, for_age: u64, moved: u64) -> Option<Refreshed> {
    Some(Refreshed {
        for_reads,
        for_age,
        moved,
        past_due: PastDue::default(),
    })
}

#[test]
fn a_block_is_refreshed_at_its_limit_of_reads_with_its_valid_pages() {
    for (again, times, blocks, pages) in [
        (0, 49, 0, 0),
        (0, 50, 1, 64),
        (0, 99, 1, 64),
        // The later reads are of the block that the page was moved to, and make that due as well.
        (0, 100, 2, 128),
        (24, 50, 1, 40),
        (24, 49, 0, 0),
        (63, 50, 1, 1),
    ] {
        let requests = written_and_read(again, times);
        let outcome = of(&reads(50), &requests, "base");
        let what = (again, times);
        assert_eq!(outcome.refreshed, refreshed(blocks, 0, pages), "{what:?}");
        assert_eq!(
            (moved(&outcome), erases(&outcome)),
            (pages, blocks),
            "{what:?}"
        );
        let written = 2 * PAGES + again;
        assert_eq!(outcome.medium_blocks(), written + pages);
        let amplification = (written + pages) as f64 / written as f64;
        assert_eq!(outcome.write_amplification, Some(amplification));
        let by_cause = outcome.steps.last().map(|step| step.by_cause.len());
        assert_eq!(by_cause, Some(outcome.medium.len()));
    }
}

#[test]
fn a_refresh_takes_time_of_its_die() {
    let requests = written_and_read(0, 99);
    let outcome = of(&reads(50), &requests, "base");
    // Reads overtake, so the next read waits for the reads of the refresh; each read after that waits for one of its programs.
    let long = (PAGES + 1) * READ;
    assert_eq!(outcome.reads.most_ns, long);
    // The rest of the refresh runs after the load has ended.
    let left = 16 * PROGRAM + 3_000_000;
    let all = 2 * PAGES * PROGRAM + 50 * READ + long + 48 * (PROGRAM + READ) + left;
    assert!(
        (outcome.seconds * 1e9 - all as f64).abs() < 1.0,
        "{}",
        outcome.seconds
    );
    let without = of(DRIVE, &requests, "base");
    assert_eq!(without.reads.most_ns, READ);
}

#[test]
fn each_retry_counts_as_a_read() {
    let errors = BitErrors {
        fresh: 0.1,
        worn: 0.1,
        correctable: 1,
        retries: 4,
    };
    for (times, blocks) in [(9, 0), (10, 1)] {
        let requests = written_and_read(0, times);
        let drive = reads(50);
        let mut scenario = scenario(&drive, Load::Requests(&requests), ONE);
        scenario.device.options = Options {
            errors: Some(errors),
            ..Options::default()
        };
        let outcome = run(&scenario, "base");
        assert_eq!(outcome.refreshed.unwrap().for_reads, blocks);
    }
}

/// Writes a block at once, and then reads at some moments.
fn written_and_waited(until: &[u64]) -> Vec<Request> {
    let writes = (0..PAGES).map(|lba| ask(WRITE, lba, 0));
    let reads = until.iter().map(|&at| ask(Op::Read, 3, at));
    writes.chain(reads).collect()
}

#[test]
fn data_are_refreshed_at_their_age_even_on_an_idle_drive() {
    let before = AGE - 1_000_000;
    for (until, blocks) in [
        (vec![before], 0),
        // Once in the long idle time, and again after as long.
        (vec![AGE + 1], 1),
        (vec![2 * AGE - 1_000_000], 1),
        (vec![2 * AGE + 1], 2),
        (vec![before, 5 * AGE + 1], 5),
    ] {
        let requests = written_and_waited(&until);
        let outcome = run(
            &scenario(&ages(), Load::Requests(&requests), Pace::Open),
            "base",
        );
        assert_eq!(outcome.refreshed, refreshed(0, blocks, blocks * PAGES));
        assert_eq!(moved(&outcome), blocks * PAGES, "{until:?}");
        assert_eq!(erases(&outcome), blocks, "{until:?}");
    }
}

#[test]
fn a_refresh_for_age_begins_on_time() {
    // A read just after the refresh begins waits for its reads.
    let requests = written_and_waited(&[AGE + 1]);
    let outcome = run(
        &scenario(&ages(), Load::Requests(&requests), Pace::Open),
        "base",
    );
    assert_eq!(outcome.reads.most_ns, (PAGES + 1) * READ - 1);
}

#[test]
fn a_die_refreshes_all_due_blocks_one_at_a_time() {
    // Three blocks are due at one moment; the load ends before the second refresh begins.
    let writes = (0..3 * PAGES).map(|lba| ask(WRITE, lba, 0));
    let requests: Vec<Request> = writes.chain([ask(Op::Read, 0, AGE + 1)]).collect();
    let outcome = run(
        &scenario(&ages(), Load::Requests(&requests), Pace::Open),
        "base",
    );
    assert_eq!(outcome.refreshed, refreshed(0, 3, 3 * PAGES));
    // It waits for the reads of one block, not of three.
    assert_eq!(outcome.reads.most_ns, (PAGES + 1) * READ - 1);
    assert_eq!(erases(&outcome), 3);
}

#[test]
fn limits_that_are_not_reached_change_nothing() {
    let never = format!("{}[retention]\ndays = 36500\n", reads(u32::MAX));
    let load = Load::Synthetic(Synthetic {
        requests: 20_000,
        ..Synthetic::new(*workload::find("mixed").unwrap())
    });
    for policy in [
        "base",
        "base:hot-cold",
        "base:level-dynamic,level-static=4",
        "vellum:on-drive,op=60",
        "vellum:op=60",
    ] {
        let [plain, mut never] = [DRIVE, &never].map(|drive| {
            let mut scenario = scenario(drive, load, Pace::Closed { depth: 4 });
            scenario.precondition = Precondition::Fill;
            run(&scenario, policy)
        });
        assert_eq!(plain.refreshed, None);
        assert_eq!(never.refreshed.take(), refreshed(0, 0, 0), "{policy}");
        never
            .medium
            .retain(|cause| cause.name != "moved to refresh");
        never
            .notes
            .retain(|note| !note.starts_with("nothing is refreshed"));
        for step in &mut never.steps {
            step.by_cause.truncate(step.by_cause.len());
        }
        let same = |outcome: &Outcome| {
            let steps = outcome.steps.iter();
            let steps: Vec<_> = steps
                .map(|s| (s.host_written, s.medium_written, s.erases))
                .collect();
            let mut outcome = outcome.clone();
            outcome.steps.clear();
            (outcome, steps)
        };
        assert_eq!(same(&plain), same(&never), "{policy}");
    }
}

#[test]
fn a_steady_load_on_a_drive_that_refreshes_much_loses_nothing() {
    let load = Load::Synthetic(Synthetic {
        requests: 60_000,
        ..Synthetic::new(*workload::find("mixed").unwrap())
    });
    let by_age = format!("{DRIVE}[retention]\ndays = 0.0002\n");
    for (drive, for_reads) in [(reads(60), true), (by_age, false)] {
        let mut scenario = scenario(&drive, load, Pace::Closed { depth: 4 });
        scenario.precondition = Precondition::Fill;
        // The engine checks each read against what was written. Its log has moved everything before it is old.
        let policies = [
            ("vellum:on-drive,op=60", "moved by the drive"),
            ("base", "moved to refresh"),
            ("base:hot-cold", "moved to refresh"),
            ("base:level-static=4", "moved to refresh"),
        ];
        for (policy, cause) in &policies[usize::from(!for_reads)..] {
            let outcome = run(&scenario, policy);
            let all = outcome.refreshed.unwrap();
            let (many, none) = match for_reads {
                true => (all.for_reads, all.for_age),
                false => (all.for_age, all.for_reads),
            };
            assert!(many > 20 && none == 0, "{policy}: {all:?}");
            assert_eq!(all.past_due, PastDue::default());
            let mut causes = outcome.medium.iter();
            let moved = causes.find(|c| c.name == *cause).unwrap().blocks;
            assert!(all.moved > 500 && moved >= all.moved, "{policy}: {all:?}");
            assert!(*cause == "moved by the drive" || moved == all.moved);
            assert!(erases(&outcome) >= many);
        }
    }
}

/// A load that reads one half of the volume and writes the other, after a warm-up.
fn warmed(most: u32, times: u64) -> Outcome {
    let zones = "50:100:0,50:0:100".parse().unwrap();
    let hot_cold = *workload::find("hot-cold").unwrap();
    let load = Synthetic::new(Workload {
        pattern: Pattern::Zones(zones),
        reads: 90,
        ..hot_cold
    });
    let drive = reads(most).replace("pages-per-block = 64", "pages-per-block = 256");
    let mut scenario = scenario(&drive, Load::Synthetic(load), Pace::Closed { depth: 4 });
    scenario.device.capacity = Some(256 << 20);
    (scenario.precondition, scenario.timed) = (Precondition::Load, false);
    let logical = run(&scenario, "base").logical_blocks;
    if times > 1 {
        scenario.load = Load::Synthetic(Synthetic {
            requests: 2 * logical * times,
            ..load
        });
    }
    run(&scenario, "base")
}

#[test]
fn a_warm_up_includes_reads_on_a_drive_that_refreshes_for_reads() {
    let (short, long) = (warmed(2000, 1), warmed(2000, 20));
    assert_eq!(short.sure.settled, Some(true), "{:?}", short.notes);
    assert!(short.refreshed.unwrap().for_reads > 0);
    let of = |outcome: &Outcome| outcome.write_amplification.unwrap();
    let off = of(&short) / of(&long) - 1.0;
    assert!(off.abs() < 0.05, "{off}: {} {}", of(&short), of(&long));
    // A drive that has refreshed nothing yet does not show what refreshes add.
    let unread = warmed(u32::MAX, 1);
    assert_eq!(unread.sure.settled, None);
    assert!(
        unread
            .notes
            .iter()
            .any(|note| note.contains("no block had been read"))
    );
}

#[test]
fn a_drive_that_refreshes_too_slowly_still_ends_with_its_load() {
    // Refreshing 64 blocks takes twice the retention time.
    let writes = (0..64 * PAGES).map(|lba| ask(WRITE, lba, 0));
    let reads = (1..20).map(|n| ask(Op::Read, 9, n * AGE));
    let requests: Vec<Request> = writes.chain(reads).collect();
    for pace in [Pace::Open, ONE] {
        for policy in ["base", "vellum:on-drive,op=60"] {
            let outcome = run(&scenario(&ages(), Load::Requests(&requests), pace), policy);
            assert!(outcome.refreshed.unwrap().for_age > 40, "{policy}");
        }
    }
}

#[test]
fn the_engine_on_flash_refreshes_nothing_and_tells_what_was_due() {
    let writes = (0..4000).map(|lba| ask(WRITE, lba, 0));
    let reads_of_one = (0..120).map(|_| ask(Op::Read, 7, 0));
    let requests: Vec<Request> = writes
        .chain([Request::flush(0)])
        .chain(reads_of_one)
        .collect();
    let told = |outcome: &Outcome| {
        let mut notes = outcome.notes.iter();
        notes.any(|note| note.contains("nothing is refreshed"))
    };
    for (most, due) in [(120, 1), (121, 0)] {
        let outcome = of(&reads(most), &requests, "vellum:op=60");
        let past_due = PastDue { reads: due, age: 0 };
        let nothing = Refreshed {
            past_due,
            ..Refreshed::default()
        };
        assert_eq!(outcome.refreshed, Some(nothing), "{most}");
        assert!(told(&outcome));
    }
    assert!(!told(&of(DRIVE, &requests, "vellum:op=60")));
    // Each block with data is due by its age, and not before.
    for (end, is_due) in [(AGE / 4 * 3, false), (2 * AGE, true)] {
        let last = ask(Op::Read, 7, end);
        let writes = (0..600).map(|lba| ask(WRITE, lba, 0));
        let requests: Vec<Request> = writes.chain([Request::flush(0), last]).collect();
        let outcome = run(
            &scenario(&ages(), Load::Requests(&requests), Pace::Open),
            "vellum:op=60",
        );
        let all = outcome.refreshed.unwrap();
        assert_eq!(all.for_age + all.for_reads + all.past_due.reads, 0);
        let blocks = outcome.programmed.div_ceil(PAGES);
        assert_eq!(all.past_due.age, if is_due { blocks } else { 0 });
    }
}

#[test]
fn policies_that_cannot_refresh_are_refused_and_untimed_ages_are_told() {
    let requests = written_and_read(0, 60);
    for (drive, policy) in [
        (reads(50), "base:oftl"),
        (ages(), "base:unordered"),
        (reads(50), "base:map-cache=16"),
        (ages(), "base:map-cache=16"),
    ] {
        let scenario = scenario(&drive, Load::Requests(&requests), ONE);
        let error = scenario.run(&policy.parse().unwrap()).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("[read-disturb] or [retention]"), "{error}");
    }
    let both = format!("{}[retention]\ndays = 0.00002\n", reads(50));
    let mut untimed = scenario(&both, Load::Requests(&requests), ONE);
    untimed.timed = false;
    let outcome = run(&untimed, "base");
    assert_eq!(outcome.refreshed, refreshed(1, 0, 64));
    let mut notes = outcome.notes.iter();
    assert!(notes.any(|note| note.contains("data come of age ([retention]) only by")));
}
