//! Flash behaviour beyond plain commands, in whole runs: wear-out, bit errors, suspension, cache commands, wear levelling, a map
//! on flash. With all of it off nothing changes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

#[path = "common/run.rs"]
mod run;

use run::run;
use vellum_lab::content::Content;
use vellum_lab::csv;
use vellum_lab::drives;
use vellum_lab::flash::{self, BitErrors, Endurance, Options, Suspend};
use vellum_lab::outcome::Outcome;
use vellum_lab::report;
use vellum_lab::scenario::{
    CAPACITY_MAX, Device, Load, Precondition, Scenario, ScenarioError, Synthetic, TooLarge,
    UNTIL_WORN_OUT,
};
use vellum_lab::sim::Pace;
use vellum_lab::trace::Op;
use vellum_lab::workload::{self, Request};

const WEARS: Endurance = Endurance {
    spread: 100,
    spare: 20,
    factory_bad: 5,
};

fn scenario(load: &str, requests: u64, options: Options) -> Scenario<'static> {
    Scenario {
        pace: Pace::Closed { depth: 16 },
        precondition: Precondition::Fill,
        seed: 5,
        verify: false,
        ..Scenario::new(
            Device {
                capacity: Some(256 << 20),
                over_provisioning: Some(250),
                erase_limit: Some(40),
                options,
                ..Device::new(drives::own("oftl"))
            },
            Load::Synthetic(Synthetic {
                requests,
                ..Synthetic::new(*workload::find(load).unwrap())
            }),
        )
    }
}

fn bytes(outcome: &Outcome) -> String {
    serde_json::to_string(outcome).unwrap()
}

/// All options are on, so the dies' second model simulates everything, but the events never happen.
const IDLE: Options = Options {
    errors: Some(BitErrors {
        fresh: 1e-9,
        worn: 1e-9,
        correctable: 72,
        retries: 5,
    }),
    endurance: None,
    suspend: None,
    cache_commands: false,
    single_plane: false,
};

#[test]
fn idle_options_make_both_models_of_a_die_equal() {
    type Made = fn(&str, u64, Options) -> Scenario<'static>;
    let all: [(Made, &str); 4] = [
        (scenario, "base"),
        (scenario, "vellum"),
        (scenario, "vellum:on-drive"),
        (disksim, "base"),
    ];
    for (scenario, policy) in all {
        let plain = run(&scenario("mixed", 60_000, Options::default()), policy);
        let mut other = run(&scenario("mixed", 60_000, IDLE), policy);
        assert_eq!(other.read_errors.take().unwrap().retries, 0);
        assert!(other.busy.take().unwrap().programs > 0);
        assert_eq!(bytes(&plain), bytes(&other), "{policy}");
        for name in ["lookups", "busy", "read_errors", "worn"] {
            let key = format!("\"{name}\":{{");
            assert!(!bytes(&plain).contains(&key), "{name}");
        }
    }
}

#[test]
fn blocks_that_never_reach_their_limit_change_nothing() {
    let wears = Options {
        endurance: Some(WEARS),
        ..Options::default()
    };
    for policy in ["base", "vellum"] {
        let mut scenario = scenario("uniform", 60_000, wears);
        scenario.device.erase_limit = Some(100_000);
        let mut worn = run(&scenario, policy);
        scenario.device.options = Options::default();
        let plain = run(&scenario, policy);
        let life = worn.life.as_mut().unwrap();
        let blocks = life.worn.take().unwrap().worn;
        assert_eq!((blocks.retired, blocks.ended_by), (0, None));
        assert!(worn.notes.pop().unwrap().starts_with("not worn out after"));
        assert_eq!(bytes(&plain), bytes(&worn), "{policy}");
    }
}

#[test]
fn a_drive_lives_about_as_long_as_is_estimated_and_then_ends() {
    let wears = Options {
        endurance: Some(WEARS),
        ..Options::default()
    };
    for policy in ["base", "vellum", "vellum:on-drive"] {
        let mut scenario = scenario("uniform", UNTIL_WORN_OUT, wears);
        scenario.timed = policy == "vellum:on-drive";
        let outcome = run(&scenario, policy);
        let life = outcome.life.as_ref().unwrap();
        let worn = life.worn.unwrap();
        assert!(worn.worn.ended_by.is_some(), "{policy}");
        assert!(worn.worn.retired > 0 && worn.worn.spares_left_least == 0);
        let estimate = life.endurance_bytes.unwrap() as f64;
        let share = worn.written_bytes as f64 / estimate;
        // With even wear, the weakest blocks of a die use up its spares first.
        assert!((0.6..1.05).contains(&share), "{policy}: {share}");
        assert!(worn.years(life.daily_bytes).unwrap() > 0.0);
        let told = |note: &String| note.starts_with("worn out after 0.");
        assert!(outcome.notes.iter().any(told), "{:?}", outcome.notes);
        assert_eq!(bytes(&outcome), bytes(&run(&scenario, policy)));
    }
}

#[test]
fn a_load_that_wears_nothing_out_still_ends() {
    let wears = Options {
        endurance: Some(WEARS),
        ..Options::default()
    };
    let mut scenario = scenario("uniform", UNTIL_WORN_OUT, wears);
    scenario.device.erase_limit = Some(2);
    scenario.timed = false;
    if let Load::Synthetic(load) = &mut scenario.load {
        load.zeros = 100;
    }
    let outcome = run(&scenario, "vellum");
    let worn = outcome.life.unwrap().worn.unwrap();
    assert_eq!(worn.worn.ended_by, None);
}

#[test]
fn more_bad_blocks_than_spare_ones_are_refused_first() {
    let options = Options {
        endurance: Some(Endurance {
            factory_bad: 100,
            spare: 1,
            ..WEARS
        }),
        ..Options::default()
    };
    let scenario = scenario("uniform", 10, options);
    let error = scenario.run(&"base".parse().unwrap()).unwrap_err();
    assert!(matches!(error, ScenarioError::NoSpare(_)));
    assert!(error.to_string().contains("--factory-bad"), "{error}");
}

#[test]
fn more_flash_than_fits_memory_is_refused_first() {
    for device in ["oftl", "fast-ssd"] {
        for bytes in [CAPACITY_MAX + 1, 16 << 50, u64::MAX] {
            let mut scenario = scenario("uniform", 10, Options::default());
            scenario.device.preset = drives::own(device);
            scenario.device.capacity = Some(bytes);
            let error = scenario.run(&"base".parse().unwrap()).unwrap_err();
            assert!(matches!(error, ScenarioError::TooLarge(TooLarge { bytes: b }) if b == bytes));
        }
    }
}

#[test]
fn reads_of_worn_blocks_are_retried_and_take_longer() {
    let errors = Options {
        errors: Some(BitErrors {
            fresh: 1e-4,
            worn: 8e-2,
            correctable: 72,
            retries: 2,
        }),
        ..Options::default()
    };
    let mut scenario = scenario("mixed", 400_000, errors);
    scenario.device.erase_limit = Some(6);
    for policy in ["base", "vellum"] {
        let outcome = run(&scenario, policy);
        let reads = outcome.read_errors.unwrap();
        assert!(reads.retried > 0 && reads.uncorrectable > 0, "{reads:?}");
        assert!(reads.retries >= reads.retried);
        let mut sound = scenario.device;
        sound.options = Options::default();
        let sound = run(
            &Scenario {
                device: sound,
                ..scenario
            },
            policy,
        );
        assert!(outcome.reads.mean_ns > sound.reads.mean_ns, "{policy}");
    }
}

#[test]
fn reads_are_faster_when_programs_and_erasures_stop_for_them() {
    let stops = Options {
        suspend: Some(Suspend {
            program: true,
            erase: true,
            each_ns: 20_000,
            most: 16,
        }),
        ..Options::default()
    };
    for policy in ["base", "vellum"] {
        let plain = run(&scenario("mixed", 200_000, IDLE), policy);
        let quick = run(&scenario("mixed", 200_000, stops), policy);
        assert!(quick.reads.p99_ns * 3 < plain.reads.p99_ns * 2, "{policy}");
        assert!(quick.reads.mean_ns < plain.reads.mean_ns, "{policy}");
        let (before, after) = (plain.busy.unwrap(), quick.busy.unwrap());
        assert_eq!(before.erases_ns, before.erases * 3_000_000);
        assert!(after.suspensions > 0);
        let longer = |busy: flash::Busy| {
            busy.erases_ns - busy.erases * 3_000_000 + busy.programs_ns - busy.programs * 600_000
        };
        // At least the time of stopping and resuming, and the reads in between.
        assert!(longer(after) > longer(before) + after.suspensions_ns * 9 / 10);
        assert_eq!(
            plain.host_written, quick.host_written,
            "the same was asked for"
        );
    }
}

#[test]
fn cache_commands_and_planes_together_write_faster() {
    let seconds = |device: &str, options| {
        let mut scenario = scenario("sequential", 60_000, options);
        scenario.device.preset = drives::own(device);
        scenario.device.capacity = Some(1 << 30);
        run(&scenario, "base").seconds
    };
    let plain = Options::default();
    let cache = Options {
        cache_commands: true,
        ..plain
    };
    let single = Options {
        single_plane: true,
        ..plain
    };
    let (a, b) = (seconds("sd", plain), seconds("sd", cache));
    // A unit's data cross in 328 us, its program takes 1500.
    assert!((1.15..1.25).contains(&(a / b)), "{a} {b}");
    let alone = seconds("sd", single);
    assert!((1.6..2.0).contains(&(alone / a)), "{alone} {a}");
}

#[test]
fn a_drive_whose_wear_is_levelled_lives_longer() {
    let wears = Options {
        endurance: Some(WEARS),
        ..Options::default()
    };
    let mut scenario = scenario("hot-cold", UNTIL_WORN_OUT, wears);
    scenario.timed = false;
    let [none, levelled] =
        ["base", "base:level-dynamic,level-static"].map(|policy| run(&scenario, policy));
    let life = |o: &Outcome| o.life.clone().unwrap();
    let written = |o: &Outcome| life(o).worn.unwrap().written_bytes;
    assert!(written(&levelled) > written(&none));
    assert_eq!(levelled.medium[2].name, "moved to level wear");
}

#[test]
fn a_drive_below_the_engine_levels_wear_as_well() {
    let mut scenario = scenario("hot-cold", 400_000, Options::default());
    scenario.device.capacity = Some(1 << 30);
    scenario.timed = false;
    let [none, levelled] =
        ["vellum:on-drive", "vellum:on-drive,level-static=2"].map(|policy| run(&scenario, policy));
    let deviation = |outcome: &Outcome| outcome.life.as_ref().unwrap().erases_deviation;
    let (none, levelled) = (deviation(&none), deviation(&levelled));
    assert!(levelled < none, "{levelled} {none}");
}

#[test]
fn a_cache_of_the_whole_map_is_a_map_in_ram_and_a_small_one_costs() {
    for load in ["mixed", "zipf"] {
        let scenario = scenario(load, 80_000, Options::default());
        let in_ram = run(&scenario, "base");
        let mut whole = run(&scenario, "base:map-cache=2048");
        let lookups = whole.lookups.take().unwrap();
        assert_eq!((lookups.misses, lookups.reads_waited), (0, 0));
        assert_eq!(whole.medium.pop().unwrap().blocks, 0);
        let memory = whole.memory.iter().find(|part| part.name == "map cache");
        assert!(memory.unwrap().bytes <= 2048 << 10);
        whole.policy.clone_from(&in_ram.policy);
        whole.memory.clone_from(&in_ram.memory);
        assert_eq!(bytes(&in_ram), bytes(&whole), "{load}");
        let small = run(&scenario, "base:map-cache=16");
        let lookups = small.lookups.unwrap();
        assert!(lookups.misses > 0 && small.medium[2].blocks > 0);
        assert!(small.write_amplification > in_ram.write_amplification);
        assert!(small.seconds > in_ram.seconds);
        assert_eq!(small.requests, 80_000);
        assert!(small.memory[0].bytes < in_ram.memory[0].bytes / 8);
    }
}

#[test]
fn every_policy_has_a_cell_for_every_optional_figure() {
    let options = Options {
        endurance: Some(WEARS),
        suspend: Some(Suspend {
            program: true,
            erase: true,
            each_ns: 1000,
            most: 3,
        }),
        ..IDLE
    };
    let scenario = scenario("mixed", 5000, options);
    let outcomes =
        ["base", "base:map-cache=64,level-dynamic", "vellum"].map(|policy| run(&scenario, policy));
    let text = csv::lines(&outcomes);
    let quoted = text.replace("\"base:map-cache=64,level-dynamic\"", "base");
    let quoted = quoted.replace("\"base:level-dynamic,map-cache=64\"", "base");
    let mut counts = quoted.lines().map(|line| line.matches(',').count());
    let first = counts.next().unwrap();
    assert!(counts.all(|count| count == first), "{text}");
    let table = report::table(&outcomes);
    for row in [
        "map entries in RAM",
        "stopped for reads",
        "spare blocks left",
        "read errors",
    ] {
        assert!(table.contains(row), "{row}: {table}");
    }
}

/// One package, written without a cache, with moves inside the package, and never quite full.
fn disksim(load: &str, requests: u64, options: Options) -> Scenario<'static> {
    let mut scenario = scenario(load, requests, options);
    scenario.device.preset = drives::own("disksim");
    scenario.device.erase_limit = None;
    scenario
}

#[test]
fn a_write_without_a_cache_takes_its_program_and_a_flush_nothing() {
    let mut scenario = disksim("uniform", 3000, Options::default());
    scenario.precondition = Precondition::None;
    scenario.pace = Pace::Closed { depth: 1 };
    if let Load::Synthetic(load) = &mut scenario.load {
        load.flush_every = 10;
    }
    let outcome = run(&scenario, "base");
    // 8 sectors on the link, 8 of 528 bytes on the channel, the cells; and after a block's last page a sector and the cells once
    // more.
    let alone = 1907 + 105_600 + 200_000;
    let summary = 13_200 + 200_000;
    let writes = outcome.writes;
    assert_eq!(writes.most_ns, alone + summary);
    let summaries = (writes.mean_ns - alone) * writes.count / summary;
    assert!((30..=writes.count / 63).contains(&summaries), "{summaries}");
    assert!(outcome.flushes.count > 200);
    assert_eq!(outcome.flushes.most_ns, 0);
}

#[test]
fn copied_back_pages_do_not_wait_for_the_channel() {
    let mut scenario = disksim("uniform", 60_000, Options::default());
    let mean = |scenario: &Scenario<'_>| {
        let outcome = run(scenario, "base");
        let of = |name| outcome.medium.iter().find(|cause| cause.name == name);
        let moved = of("moved").unwrap().blocks;
        assert!(moved > 20_000);
        (outcome.seconds, moved, outcome.life.unwrap().erases)
    };
    scenario.pace = Pace::Closed { depth: 1 };
    let copied = mean(&scenario);
    if let flash::Kind::Nand(nand) = &mut scenario.device.preset.kind {
        nand.page_map.copy_back = false;
    }
    let crossed = mean(&scenario);
    assert_eq!((copied.1, copied.2), (crossed.1, crossed.2));
    // Each moved page crosses the channel twice, while the only request waits for it.
    let (wanted, saved) = (crossed.1 as f64 * 2.0 * 105_600e-9, crossed.0 - copied.0);
    assert!((saved - wanted).abs() < 1e-6, "{saved} of {wanted}");
}

#[test]
fn a_drive_without_a_cache_serves_every_policy() {
    for policy in [
        "base",
        "base:fifo",
        "base:oftl",
        "base:stream",
        "base:level-static",
        "base:level-dynamic",
        "base:map-cache=16",
        "vellum",
        "vellum:on-drive",
        "vellum:on-drive,layout=ordered",
    ] {
        for options in [Options::default(), IDLE] {
            let mut scenario = disksim("mixed", 60_000, options);
            scenario.device.over_provisioning = Some(300);
            let small = run(&scenario, policy);
            assert!(small.life.unwrap().erases > 0, "{policy}");
            // The default, when nothing is set.
            scenario.device.capacity = None;
            scenario.device.over_provisioning = None;
            let outcome = run(&scenario, policy);
            assert!(outcome.requests >= 60_000, "{policy}");
            assert!(outcome.writes.mean_ns > 0, "{policy}");
        }
    }
}

#[test]
fn a_read_overtakes_a_write_on_the_link_only_where_commands_do_not_wait() {
    let request = |at, op, blocks: u32| Request {
        at,
        op,
        lba: 0,
        blocks,
        contents: (0..u64::from(blocks)).map(Content::of).collect(),
        ..Request::flush(0)
    };
    let write = Op::Write { fua: false };
    let requests = [request(0, write, 64), request(10_000, Op::Read, 1)];
    let mut scenario = disksim("uniform", 0, Options::default());
    (scenario.load, scenario.pace) = (Load::Requests(&requests), Pace::Open);
    scenario.device.read_priority = false;
    // The link carries the write for 122 us, and then its die programs 8 units of it.
    let read = |scenario: &Scenario<'_>| run(scenario, "base").reads.most_ns;
    let behind = 122_070 - 10_000 + 8 * 305_600 + 130_600 + 1907;
    assert!(read(&scenario).abs_diff(behind) < 100);
    scenario.device.preset.link_in_order = false;
    assert_eq!(read(&scenario), 130_600 + 1907);
}

#[test]
fn a_long_request_is_split_at_the_drives_size() {
    let write = Request {
        at: 0,
        op: Op::Write { fua: false },
        lba: 0,
        blocks: 1024,
        contents: (0..1024).map(Content::of).collect(),
        ..Request::flush(0)
    };
    let requests = [write];
    let mut scenario = disksim("uniform", 0, Options::default());
    (scenario.load, scenario.pace) = (Load::Requests(&requests), Pace::Open);
    let mut took = |kib: u64| {
        scenario.device.preset.request_bytes = kib << 10;
        let outcome = run(&scenario, "base");
        assert_eq!(outcome.writes.count, 1);
        outcome.writes.most_ns
    };
    // The part that crosses the link while the flash is already at work: all but the first part.
    let (cut, whole) = (took(1024), took(4096));
    let link = 1024 * 4096 * 1000 / 2148;
    assert!(
        (whole - cut).abs_diff(link * 3 / 4) < link / 100,
        "{cut} {whole}"
    );
}
