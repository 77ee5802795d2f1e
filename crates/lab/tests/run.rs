//! Whole runs: every request is answered, every read returns what was written, and two runs give the same bytes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

#[path = "common/run.rs"]
mod run;
#[path = "common/sized.rs"]
mod sized;

use run::run;
use sized::sized;
use vellum_lab::content::Content;
use vellum_lab::drives;
use vellum_lab::flash::{self, Kind};
use vellum_lab::journal::{Commit, File, Journal, Mode};
use vellum_lab::scenario::{Device, Load, Precondition, Scenario, Synthetic};
use vellum_lab::sim::Pace;
use vellum_lab::sizes::{self, Size};
use vellum_lab::trace::Op;
use vellum_lab::vellum::Hashing;
use vellum_lab::verdict;
use vellum_lab::workload::{self, Request};

fn device(name: &str, capacity: u64) -> Device {
    Device {
        preset: drives::own(name),
        capacity: Some(capacity),
        over_provisioning: Some(200),
        erase_limit: None,
        flush_ns: 0,
        read_priority: true,
        options: flash::Options::default(),
    }
}

fn scenario(device: Device, load: &str, requests: u64) -> Scenario<'static> {
    Scenario {
        pace: Pace::Closed { depth: 16 },
        precondition: Precondition::Fill,
        seed: 11,
        daily_bytes: Some(10 << 30),
        ..Scenario::new(
            device,
            Load::Synthetic(Synthetic {
                requests,
                zeros: 10,
                duplicates: 15,
                flush_every: 100,
                ..Synthetic::new(*workload::find(load).unwrap())
            }),
        )
    }
}

const POLICIES: [&str; 14] = [
    "base",
    "base:fifo",
    "base:random",
    "base:d=5",
    "base:cost-benefit",
    "base:d=5,hot-cold",
    "vellum",
    "vellum:victim=cost-benefit",
    "vellum:zero=off",
    "vellum:dedup",
    "vellum:on-drive",
    "vellum:layout=ordered,on-drive",
    "vellum:dedup,layout=ordered,persistence=strong,on-drive",
    "vellum:dedup,layout=shadow,on-drive",
];

#[test]
fn under_every_policy_reads_return_what_was_written() {
    let requests = sized(40_000, 120_000);
    let scenario = scenario(
        device("oftl", sized(256 << 20, 512 << 20)),
        "mixed",
        requests,
    );
    for policy in POLICIES {
        let outcome = run(&scenario, policy);
        assert_eq!(
            outcome.reads.count + outcome.writes.count + outcome.flushes.count,
            requests
        );
        assert!(outcome.seconds > 0.0, "{policy}");
        assert!(
            outcome.reads.p50_ns >= 50_000,
            "{policy}: a read takes no less than the cells need"
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_of_output() {
    let scenario = scenario(device("caftl", 256 << 20), "zipf", sized(30_000, 120_000));
    for policy in POLICIES {
        let text = || serde_json::to_string(&run(&scenario, policy)).unwrap();
        assert_eq!(text(), text(), "{policy}");
    }
}

#[test]
fn the_causes_of_writes_add_up() {
    let scenario = scenario(
        device("oftl", sized(256 << 20, 512 << 20)),
        "uniform",
        sized(125_000, 250_000),
    );
    for policy in POLICIES {
        let outcome = run(&scenario, policy);
        let data = outcome.medium[0].blocks;
        let counted = |name: &str| {
            outcome
                .engine
                .iter()
                .find(|(n, _)| *n == name)
                .map_or(0, |c| c.1)
        };
        let kept_back =
            counted("zero_blocks") + counted("absorbed_blocks") + counted("dedup_blocks");
        assert_eq!(data + kept_back, outcome.host_written, "{policy}");
        let life = outcome.life.as_ref().unwrap();
        assert!(life.erases > 0 && life.years.unwrap() > 0.0, "{policy}");
        let erased = life.erases * 128;
        let programmed = outcome.programmed;
        // In the long run as much is erased as was programmed.
        assert!(
            erased.abs_diff(programmed) < programmed / 5,
            "{policy}: {erased} {programmed}"
        );
        let medium = outcome.medium_blocks();
        assert!(
            programmed.abs_diff(medium) <= medium / 50,
            "{policy}: {programmed} {medium}"
        );
    }
}

#[test]
fn a_plain_block_device_serves_the_base_and_the_engine() {
    let scenario = scenario(device("moderate-ssd", 512 << 20), "mixed", 30_000);
    for policy in ["base", "vellum"] {
        let outcome = run(&scenario, policy);
        assert!(outcome.life.is_none());
        assert!(outcome.reads.p50_ns >= 100_000);
    }
    let refused = scenario.run(&"base:fifo".parse().unwrap()).unwrap_err();
    assert!(refused.to_string().contains("base:fifo"), "{refused}");
}

#[test]
fn a_drive_that_is_too_small_is_refused_with_advice() {
    for policy in ["base", "vellum"] {
        let mut device = device("emmc", 64 << 20);
        device.over_provisioning = Some(20);
        let error = scenario(device, "uniform", 10)
            .run(&policy.parse().unwrap())
            .unwrap_err();
        assert!(error.to_string().contains("capacity"), "{policy}: {error}");
    }
}

#[test]
fn an_odd_number_of_dies_serves_every_policy() {
    let mut device = device("oftl", 256 << 20);
    let Kind::Nand(nand) = &mut device.preset.kind else {
        panic!("flash")
    };
    (nand.channels, nand.dies_per_channel) = (3, 1);
    let scenario = scenario(device, "mixed", 20_000);
    for policy in POLICIES {
        assert_eq!(run(&scenario, policy).requests, 20_000, "{policy}");
    }
}

#[test]
fn every_preset_runs() {
    for drive in drives::known() {
        let mut device = device(&drive.name, 1);
        // The smallest sensible capacity.
        device.capacity = match drive.name.as_str() {
            "tlc-nvme" => Some(6 << 30),
            "qlc-nvme" => Some(12 << 30),
            _ => Some(1 << 30),
        };
        let mut scenario = scenario(device, "uniform", 2000);
        scenario.verify = false;
        scenario.precondition = Precondition::None;
        for policy in ["base", "vellum"] {
            assert_eq!(
                run(&scenario, policy).requests,
                2000,
                "{} {policy}",
                drive.name
            );
        }
        assert!(
            drive.source.len() > 40,
            "{}: no word on its figures",
            drive.name
        );
    }
}

#[test]
fn tables_in_place_fit_on_a_drive_with_little_spare_space() {
    let mut device = device("oftl", 1 << 30);
    device.over_provisioning = None;
    let mut scenario = scenario(device, "uniform", 20_000);
    for layout in ["ordered", "shadow"] {
        let outcome = run(&scenario, &format!("vellum:layout={layout},on-drive"));
        assert_eq!(outcome.requests, 20_000, "{layout}");
    }
    scenario.device.preset = drives::own("moderate-ssd");
    for layout in ["ordered", "shadow"] {
        let outcome = run(&scenario, &format!("vellum:layout={layout}"));
        assert_eq!(outcome.requests, 20_000, "{layout}");
    }
}

#[test]
fn write_once_removes_the_checkpoints_of_a_journal() {
    let mut scenario = scenario(device("oftl", 1 << 30), "uniform", 40_400);
    if let Load::Synthetic(load) = &mut scenario.load {
        (load.zeros, load.duplicates) = (0, 0);
        load.journal = Some(Journal {
            mode: Mode::Data,
            blocks: 4096,
            commit: Commit::TwoFlushes,
            fsync_flushes: true,
            write_back: 0,
            file: File::Overwritten,
        });
    }
    let plain = run(&scenario, "vellum");
    let once = run(&scenario, "vellum:write-once");
    assert_eq!(plain.host_written, once.host_written);
    let counted = |name: &str| {
        once.engine
            .iter()
            .find(|(n, _)| *n == name)
            .map_or(0, |c| c.1)
    };
    // Each home block equals its journal copy: every one that can be remapped is.
    let (asked, remapped) = (counted("home_writes"), counted("remapped_blocks"));
    assert!(
        asked > 35_000 && remapped * 100 >= asked * 99,
        "{remapped} of {asked}"
    );
    let saved = plain.medium[0].blocks - once.medium[0].blocks;
    assert!(saved * 100 >= asked * 90, "{saved} of {asked}");
    // Rewritten summaries are counted once: the blocks programmed are those written, except for units that are not full.
    let restamped = counted("medium_restamped");
    let (programmed, written) = (once.programmed, once.medium_blocks());
    assert!(restamped > 100, "{restamped}");
    assert!(
        programmed.abs_diff(written) < restamped / 2,
        "{programmed} {written}"
    );
    let base = run(&scenario, "base");
    assert!(base.medium_blocks() > once.medium_blocks());
    // The journal's descriptors identify copies without a hash. The pool's fingerprints have only a few bits, and a home block is
    // written if two of them are equal.
    let told = run(&scenario, "vellum:write-once=descriptor").counted("remapped_blocks");
    assert!(
        remapped <= told && (told - remapped) * 1000 <= told,
        "{remapped}, and by descriptors {told}"
    );
    scenario.device = device("moderate-ssd", 1 << 30);
    let [hashed, told] = ["woj", "jftl"].map(|policy| run(&scenario, policy).medium_blocks());
    assert_eq!(hashed, told);
}

#[test]
fn blocks_that_share_pages_and_blocks_that_wait_to_be_hashed_read_back_as_they_were_written() {
    let mut scenario = scenario(device("oftl", 256 << 20), "mixed", 60_000);
    let whole = run(&scenario, "vellum:dedup");
    assert!(
        scenario.run(&"vellum:compress".parse().unwrap()).is_err(),
        "nobody says in how many bytes blocks can be stored"
    );
    scenario.sizes = sizes::find("source").copied();
    for policy in [
        "vellum:compress",
        "vellum:victim=cost-benefit,dedup,compress",
    ] {
        let parts = run(&scenario, policy);
        assert!(parts.counted("packed_reads") > 1000, "{policy}");
        assert!(
            parts.medium_blocks() * 2 < whole.medium_blocks(),
            "{policy}"
        );
    }
    // The same again, from the journal's copies.
    let mut journaled = Scenario { ..scenario };
    if let Load::Synthetic(load) = &mut journaled.load {
        load.journal = Some(Journal {
            mode: Mode::Data,
            blocks: 4096,
            commit: Commit::TwoFlushes,
            fsync_flushes: true,
            write_back: 0,
            file: File::Overwritten,
        });
    }
    let once = run(&journaled, "vellum:compress,write-once");
    assert!(once.counted("packed_blocks") > 1000 && once.counted("remapped_blocks") > 1000);
    // And as deltas to the versions they replace, for a database's pages.
    journaled.sizes = sizes::find("database").copied();
    if let Load::Synthetic(load) = &mut journaled.load {
        load.workload = *workload::find("hot-cold").unwrap();
        load.workload.reads = 30;
    }
    let deltas = run(&journaled, "vellum:compress,delta,write-once");
    let counted = ["delta_blocks", "delta_reads", "remapped_blocks"].map(|n| deltas.counted(n));
    assert!(counted.iter().all(|&count| count > 200), "{counted:?}");
    let alone = run(&journaled, "vellum:compress,write-once");
    assert!(
        deltas.counted("packed_bytes") < alone.counted("packed_bytes"),
        "{counted:?}"
    );
    scenario.sizes = None;
    for switch in [false, true] {
        scenario.hashing = Some(Hashing {
            check_ns: 40_000,
            print_ns: 150_000,
            switch,
        });
        let hashed = run(&scenario, "vellum:dedup,decide=sha1");
        assert!(hashed.counted("dedup_blocks") > 1000);
        assert_eq!(hashed.requests, whole.requests);
    }
}

#[test]
fn only_policies_that_look_blocks_up_hash_them() {
    let mut scenario = scenario(device("oftl", 128 << 20), "uniform", 2000);
    let hashing = Hashing {
        check_ns: 1000,
        print_ns: 0,
        switch: false,
    };
    scenario.hashing = Some(hashing);
    let outcome = run(&scenario, "vellum:dedup");
    assert_eq!(outcome.hash_ns, Some(outcome.host_written * 1000));
    assert_eq!(run(&scenario, "vellum").hash_ns, Some(0));
    assert_eq!(run(&scenario, "base").hash_ns, None);
    scenario.device = device("fast-ssd", 128 << 20);
    let outcome = run(&scenario, "dmdedup");
    assert_eq!(outcome.hash_ns, Some(outcome.host_written * 8309));
}

#[test]
fn a_copy_in_a_journal_is_a_delta_against_the_copy_before_it() {
    let mut scenario = scenario(device("oftl", 256 << 20), "hot-cold", 6000);
    scenario.sizes = sizes::find("random").copied();
    scenario.precondition = Precondition::None;
    if let Load::Synthetic(load) = &mut scenario.load {
        load.flush_every = 10;
        load.journal = Some(Journal {
            mode: Mode::Ordered,
            blocks: 16_384,
            commit: Commit::TwoFlushes,
            fsync_flushes: false,
            write_back: 0,
            file: File::Overwritten,
        });
    }
    // Deltas of the inode only: nothing is written home before the unmount, so the other blocks have no base.
    let outcome = run(&scenario, "vellum:compress,delta");
    let deltas = outcome.counted("delta_blocks");
    let commits = 6000 / 11;
    assert!(
        (commits * 9 / 10..commits + 10).contains(&deltas),
        "{deltas}"
    );
}

#[test]
fn a_comparison_on_a_device_has_a_verdict() {
    let scenario = scenario(device("fast-ssd", 128 << 20), "zipf", 200_000);
    let outcomes = ["base", "vellum"].map(|policy| run(&scenario, policy));
    let base = outcomes[0].sure;
    assert!(base.write_amplification_low.unwrap() > 0.99 && base.settled.is_none());
    let said = verdict::sentence(&outcomes).unwrap();
    assert!(!said.contains("too short"), "{said}");
}

#[test]
fn an_untimed_run_counts_the_same_and_has_no_latencies() {
    let mut scenario = scenario(device("oftl", 256 << 20), "hot-cold", 60_000);
    let timed = run(&scenario, "base");
    scenario.timed = false;
    let counted = run(&scenario, "base");
    assert_eq!(counted.medium, timed.medium);
    assert_eq!((counted.seconds, counted.writes.count), (0.0, 0));
    // A report would plot them.
    assert!(counted.write_cdf.is_empty() && counted.read_cdf.is_empty());
    assert!(counted.steps.iter().all(|s| s.write_mean_ns.is_none()));
}

#[test]
fn tables_in_place_count_exactly_what_the_core_counts() {
    let requests = sized(20_000, 60_000);
    let drive = scenario(
        device("oftl", sized(128 << 20, 256 << 20)),
        "zipf",
        requests,
    );
    let block = scenario(
        device("moderate-ssd", sized(128 << 20, 512 << 20)),
        "zipf",
        requests,
    );
    for options in [
        "layout=ordered",
        "layout=ordered,merging=off,anticipation=off",
        "layout=ordered,persistence=strong",
        "layout=shadow",
        "layout=shadow,persistence=strong",
    ] {
        let above = run(&drive, &format!("vellum:dedup,{options},on-drive"));
        let alone = run(&block, &format!("vellum:dedup,{options}"));
        for outcome in [&above, &alone] {
            let counted = |name: &str| outcome.counted(name);
            let causes = [
                "data",
                "links",
                "counts",
                "fingerprints",
                "directory",
                "map",
            ];
            let written: u64 = causes
                .map(|cause| counted(&format!("medium_{cause}")))
                .iter()
                .sum();
            let by_drive = outcome
                .medium
                .iter()
                .find(|c| c.name == "moved by the drive");
            assert_eq!(
                outcome.medium_blocks() - by_drive.map_or(0, |cause| cause.blocks),
                written,
                "{options}"
            );
            assert_eq!(
                outcome.host_written,
                counted("host_blocks_written"),
                "{options}"
            );
            assert!(
                counted("medium_links") > 0 && counted("commits") > 0,
                "{options}"
            );
        }
        let stacked = above.stacked.unwrap();
        let asked = above.medium_blocks() as f64 / stacked.drive;
        let product = stacked.engine * stacked.drive;
        assert!(
            (product - above.write_amplification.unwrap()).abs() < 1e-9,
            "{options}"
        );
        assert!((asked / above.host_written as f64 - stacked.engine).abs() < 1e-9);
        assert!(stacked.drive > 1.0, "{options}: the drive collects");
        assert_eq!(alone.stacked, None, "{options}");
    }
}

#[test]
fn tables_in_place_need_a_medium_that_can_be_overwritten() {
    let scenario = scenario(device("oftl", 256 << 20), "zipf", 10);
    let refused = scenario.run(&"vellum:layout=ordered".parse().unwrap());
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("on-drive"), "{said}");
}

#[test]
fn an_application_that_thinks_waits_for_a_slow_drive_and_for_its_flushes() {
    let mut scenario = scenario(device("moderate-ssd", 256 << 20), "uniform", 0);
    let requests: Vec<Request> = (0..200u64)
        .map(|n| Request {
            at: n * 50_000,
            op: if n % 10 == 9 {
                Op::Flush
            } else {
                Op::Write { fua: false }
            },
            lba: n % 100,
            blocks: u32::from(n % 10 != 9),
            contents: (0..u64::from(n % 10 != 9))
                .map(|_| Content::synthetic(1, n, n))
                .collect(),
            ..Request::flush(0)
        })
        .collect();
    scenario.load = Load::Requests(&requests);
    scenario.precondition = Precondition::None;
    scenario.pace = Pace::Elastic {
        depth: 4,
        think: None,
    };
    let outcome = run(&scenario, "base");
    // Twenty flushes of 1 ms, and nine pauses of 50 us between two of them.
    assert_eq!(outcome.flushes.count, 20);
    assert!(
        (0.029..0.04).contains(&outcome.seconds),
        "{}",
        outcome.seconds
    );
    // One at a time, two milliseconds after the one before: no request takes that long, nor does a flush.
    scenario.pace = Pace::Elastic {
        depth: 1,
        think: Some(2_000_000),
    };
    let outcome = run(&scenario, "base");
    assert!(
        (0.4..0.403).contains(&outcome.seconds),
        "{}",
        outcome.seconds
    );
}

#[test]
fn a_filled_block_device_begins_idle_and_has_the_times_of_its_table() {
    let device = device("omd-server", 64 << 20);
    let one = |precondition| {
        let mut scenario = Scenario {
            precondition,
            pace: Pace::Closed { depth: 1 },
            ..scenario(device, "uniform", 2000)
        };
        if let Load::Synthetic(load) = &mut scenario.load {
            load.request_blocks = 3;
        }
        run(&scenario, "base")
    };
    // 12 KiB: halfway between 8 and 16.
    for precondition in [Precondition::None, Precondition::Fill] {
        let writes = one(precondition).writes;
        let each = (4_960_000 + 5_450_000) / 2;
        assert_eq!(
            (writes.mean_ns, writes.most_ns),
            (each, each),
            "{precondition:?}"
        );
    }
}

#[test]
fn measured_sizes_are_used_and_differences_add_up() {
    let (own, change) = (2000, 100);
    let write = |version: u64, sizes| Request {
        lba: 5,
        op: Op::Write { fua: true },
        blocks: 1,
        contents: [Content::synthetic(1, 5, version)].into_iter().collect(),
        sizes,
        ..Request::flush(0)
    };
    let told = |packed, delta| Some([Size { packed, delta }].into());
    let mut requests = vec![write(0, told(Some(own), None))];
    requests.extend((1..20).map(|n| write(n, told(Some(own), Some(change)))));
    let mut scenario = scenario(device("oftl", 256 << 20), "zipf", 1);
    scenario.precondition = Precondition::None;
    scenario.pace = Pace::Closed { depth: 1 };
    let counted = |requests: &[Request]| {
        let scenario = Scenario {
            load: Load::Requests(requests),
            ..scenario
        };
        let outcome = run(&scenario, "vellum:compress,delta");
        ["packed_blocks", "delta_blocks", "packed_bytes"].map(|name| outcome.counted(name))
    };
    // A base has been replaced once. A version half of which differs from it is stored whole, and becomes the next base.
    let by_itself = |n: u64| n < 2 || (n - 1).is_multiple_of(11);
    let bytes = |n: u64| match by_itself(n) {
        true => u64::from(own),
        false => (n - 1) % 11 * u64::from(change),
    };
    let deltas = (0..20).filter(|&n| !by_itself(n)).count() as u64;
    assert_eq!(counted(&requests), [20, deltas, (0..20).map(bytes).sum()]);
    // What was measured before the last version does not apply to the next.
    requests[3].sizes = told(Some(own), None);
    requests.truncate(5);
    assert_eq!(counted(&requests), [5, 2, 3 * 2000 + 2 * 100]);
    // Unknown: stored whole.
    requests[4].sizes = None;
    assert_eq!(counted(&requests)[0], 4);
    requests.iter_mut().for_each(|request| request.sizes = None);
    scenario.load = Load::Requests(&requests);
    let refused = scenario.run(&"vellum:compress".parse().unwrap());
    assert!(refused.unwrap_err().to_string().contains("--sizes"));
}
