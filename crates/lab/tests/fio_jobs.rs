//! Job files of fio: what is read from them, what is refused, and what they request.
#![allow(clippy::unwrap_used, reason = "a failure is a test's")]

#[path = "common/written.rs"]
mod written;

use std::collections::BTreeMap;

use vellum_lab::drives;
use vellum_lab::fio_job::FioFile;
use vellum_lab::outcome::Outcome;
use vellum_lab::scenario::{Area, Device, Load, Precondition, Scenario, ScenarioError};
use vellum_lab::sim::Pace;
use vellum_lab::workload::{Again, Generator, Pattern, Shape, Workload};

const JOB: &str = "; a comment
[global]
ioengine=io_uring
direct=1
bs = 8k
filename=/dev/nvme0n1
[database]
rw=randrw
rwmixread=70
random_distribution=zipf:1.1
size=64m
offset=16m
iodepth=16
numjobs=2
dedupe_percentage=30
io_size=32m
group_reporting
";

fn scenario(job: &FioFile) -> Scenario<'_> {
    let one = job.one();
    Scenario {
        pace: one.map_or(Pace::Open, |(_, pace)| pace),
        seed: 11,
        ..Scenario::new(
            Device {
                capacity: Some(128 << 20),
                over_provisioning: Some(280),
                ..Device::new(drives::own("oftl"))
            },
            match (one, job.jobs()) {
                (Some((load, _)), _) => Load::Synthetic(load),
                (None, Some(jobs)) => Load::Jobs(jobs),
                (None, None) => unreachable!(),
            },
        )
    }
}

fn run_seen(text: &str) -> (Outcome, Vec<u64>) {
    let job = FioFile::read(text).unwrap();
    written::run_seen(scenario(&job))
}

fn run(text: &str) -> Outcome {
    run_seen(text).0
}

#[test]
fn a_job_is_what_its_file_says() {
    let job = FioFile::read(JOB).unwrap();
    let (load, pace) = job.one().unwrap();
    assert_eq!(job.name(), "database");
    assert_eq!(load.workload.pattern, Pattern::Zipf { skew: 1.1 });
    assert_eq!((load.workload.reads, load.request_blocks), (70, 2));
    let (first, blocks) = (4096, 16_384);
    assert_eq!(load.area, Some(Area { first, blocks }));
    assert_eq!((load.requests, load.duplicates), (2 * 4096, 30));
    assert_eq!(pace, Pace::Closed { depth: 32 });
    let outcome = scenario(&job).run(&"base".parse().unwrap()).unwrap();
    assert_eq!(outcome.requests, 2 * 4096);
    assert!(outcome.live_blocks.unwrap() <= 16_384);
    assert!(
        outcome.load.starts_with("fio (synthetic), skew 1.1"),
        "{}",
        outcome.load
    );
    let of = |more: &str| {
        let text = format!("[a]\nrw=randwrite\nsize=1g\n{more}");
        FioFile::read(&text).unwrap().one().unwrap()
    };
    // A synchronous engine has one request at a time, and fio's default is one.
    assert_eq!(of("iodepth=8\n").1, Pace::Closed { depth: 1 });
    let think = Some(1_000_000);
    let paced = of("ioengine=libaio\niodepth=4\nrate=4000k\n");
    assert_eq!(paced.1, Pace::Elastic { depth: 4, think });
    assert_eq!(of("").0.workload.pattern, Pattern::Shuffled);
    assert_eq!(of("norandommap\n").0.workload.pattern, Pattern::Uniform);
    let zoned = of("random_distribution=zoned:60/10:40/90\n").0;
    assert_eq!(
        zoned.workload.pattern,
        Pattern::Zones("10:60,90:40".parse().unwrap())
    );
}

/// Checks that each text is refused, with its line and message.
fn refused(cases: &[(String, usize, &str)]) {
    for (text, line, said) in cases {
        let error = FioFile::read(text).unwrap_err();
        let told = error.to_string();
        assert!(
            error.line == *line && told.contains(said),
            "{text:?}: {told}"
        );
    }
}

fn with(more: &str) -> String {
    format!("[a]\nrw=randwrite\nsize=1g\n{more}")
}

#[test]
fn an_option_that_is_not_modelled_is_named_with_its_line() {
    refused(&[
        (String::new(), 1, "it has a job"),
        ("rw=read\n".into(), 1, "in a section"),
        ("[]\n".into(), 1, "a section is [global] or [NAME]"),
        ("[a\n".into(), 1, "a section is [global] or [NAME]"),
        (with("[b]\nverify=md5\n"), 5, "verify: it is not modelled"),
        (
            with("include b.fio\n"),
            4,
            "include: other files are not read",
        ),
        ("include b.fio\n[a]\n".into(), 1, "include: other files"),
        (with("size=${SIZE}\n"), 4, "variables of the environment"),
        (with("verify=crc32c\n"), 4, "verify: it is not modelled"),
        (with("buffer_compress_percentage=50\n"), 4, "--sizes"),
        (with("rw=randrw:8\n"), 4, "there are read, write"),
        (with("bs=4k,8k,16k,32k\n"), 4, "there are three"),
        (with("bs=4kib\n"), 4, "it is bytes"),
        (with("bssplit=4k/60:8k/60\n"), 4, "100% together"),
        (with("bssplit=4k/60:8k/30\n"), 4, "100% together"),
        (with("bssplit=4k/x\n"), 4, "100% together"),
        (with("bssplit=5k\n"), 4, "a multiple of 4096"),
        (with("sync=2\n"), 4, "there are none, sync"),
        (with("bs=5000\n"), 4, "a multiple of 4096"),
        (with("bs=0\n"), 4, "4k to 16m"),
        (with("bs=32m\n"), 4, "4k to 16m"),
    ]);
}

#[test]
fn an_impossible_job_is_named_with_its_line() {
    refused(&[
        (with("size=50%\n"), 1, "percent are of a device"),
        (with("size=101%\n"), 4, "percent from 0% to 100%"),
        (with("io_size=50%\n"), 1, "percent are of a device"),
        (
            with("filename=/dev/sda\n[b]\nsize=1g\n"),
            5,
            "there is one drive",
        ),
        (with("[b]\nfilename=/dev/sda\n"), 4, "there is one drive"),
        (
            with("filename=/dev/sda\n[b]\nfilename=/dev/sdb\n"),
            5,
            "there is one drive",
        ),
        (
            with("[b]\nsize=1g\nwait_for=c\n"),
            6,
            "the name of a job above",
        ),
        (with("wait_for=a\n"), 4, "the name of a job above"),
    ]);
}

#[test]
fn jobs_that_do_not_go_together_are_named_with_their_line() {
    refused(&[
        (with("exitall\n[b]\nsize=1g\n"), 4, "exitall: that the end"),
        (
            with("ramp_time=1\n[b]\nsize=1g\n"),
            5,
            "ramp_time: all jobs have the same",
        ),
        (
            with("ramp_time=1\n[b]\nstonewall\nramp_time=1\nsize=1g\n"),
            1,
            "ramp_time: all jobs have the same",
        ),
        (with("numjobs=129\n"), 1, "more than 128 jobs"),
        (
            with("offset=4k\noffset_increment=5%\n"),
            1,
            "both bytes or both percent",
        ),
        (with("thinktime=1x\n"), 4, "it is microseconds"),
        (with("[b]\n"), 4, "size: the job has one"),
        (with("size=99999999999999999999\n"), 4, "it is bytes"),
        (with("size=9999999t\n"), 4, "it is bytes"),
        (with("iodepth=0\n"), 4, "from 1 to 65536"),
        (
            with("filename=x\nioengine=libaio\nnumjobs=1024\niodepth=65\n"),
            1,
            "65536 requests",
        ),
    ]);
}

#[test]
fn invalid_values_are_named_with_their_line() {
    refused(&[
        (with("ioengine=rados\n"), 4, "there are libaio"),
        (
            with("random_distribution=normal:50\n"),
            4,
            "there are random, zipf",
        ),
        (
            with("random_distribution=zipf:nan\n"),
            4,
            "there are random, zipf",
        ),
        (
            with("random_distribution=pareto:1\n"),
            4,
            "there are random, zipf",
        ),
        (
            with("random_distribution=zoned:60/10\n"),
            4,
            "there are random, zipf",
        ),
        (
            with("rw=write\nrandom_distribution=zipf:1\n"),
            1,
            "of a random rw",
        ),
        (with("runtime=0\n"), 4, "it is seconds"),
        (with("direct=0\n"), 4, "a page cache"),
        (with("filename=a:b\n"), 4, "several files"),
        (with("rate=4m\nrate_iops=9\n"), 1, "not both"),
        (with("rw=randrw\nrate_iops=9\n"), 1, "in a mix"),
        (
            with("zero_buffers\ndedupe_percentage=1\n"),
            1,
            "all duplicates",
        ),
        ("[a]\nrw=write\n".into(), 1, "size: the job has one"),
    ]);
    let long = "#".repeat(70_000);
    let told = FioFile::read(&long).unwrap_err().to_string();
    assert!(told.contains("65536"));
}

fn drawn(pattern: Pattern, blocks: u64, count: usize) -> Vec<u64> {
    let workload = Workload {
        name: "x",
        about: "x",
        pattern,
        reads: 0,
    };
    let shape = Shape {
        blocks,
        request_blocks: 1,
        zeros: 0,
        duplicates: 0,
        again: Again::Popular,
        flush_every: 0,
        drift: 0,
        bursts: None,
        seed: 5,
    };
    Generator::new(workload, shape)
        .take(count)
        .map(|request| request.lba)
        .collect()
}

#[test]
fn each_pass_visits_every_place_in_a_new_order() {
    for blocks in [1, 2, 3, 4, 5, 1000, 1024, 1025] {
        let lbas = drawn(Pattern::Shuffled, blocks, 2 * blocks as usize);
        let (first, second) = lbas.split_at(blocks as usize);
        for pass in [first, second] {
            let mut sorted = pass.to_vec();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..blocks), "{blocks}");
        }
        assert!(blocks < 10 || first != second);
        // A drive cannot exploit the order.
        let next = first
            .windows(2)
            .filter(|pair| pair[1] == pair[0] + 1)
            .count();
        assert!(blocks < 10 || next < 10, "{next}");
    }
}

#[test]
fn pareto_sends_most_requests_to_a_share_of_the_places() {
    for share in [0.1, 0.2, 0.4] {
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        for lba in drawn(Pattern::Pareto { share }, 10_000, 400_000) {
            *counts.entry(lba).or_default() += 1;
        }
        let mut counts: Vec<u64> = counts.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let hot: u64 = counts.iter().take((10_000.0 * share) as usize).sum();
        let of = hot as f64 / 400_000.0;
        assert!((of - (1.0 - share)).abs() < 0.02, "{share}: {of}");
    }
}

#[test]
fn a_job_covers_its_area_as_often_as_it_says() {
    let area = "[a]\nrw=randwrite\nioengine=libaio\niodepth=8\nsize=16m\noffset=32m\n";
    let (once, mut pages) = run_seen(area);
    pages.sort_unstable();
    pages.dedup();
    assert!(pages.into_iter().eq(8192..8192 + 4096));
    assert_eq!((once.requests, once.live_blocks), (4096, Some(4096)));
    let again = run(&format!("{area}loops=3\n"));
    assert_eq!((again.requests, again.live_blocks), (3 * 4096, Some(4096)));
}

#[test]
fn a_job_lasts_as_long_as_it_says() {
    let area = "[a]\nrw=randwrite\nioengine=libaio\niodepth=8\nsize=16m\noffset=32m\n";
    // 500 requests a second for two seconds, after one second that is not counted.
    let paced = run(&format!(
        "{area}rate_iops=500\ntime_based\nruntime=2\nramp_time=1s\n"
    ));
    assert!(paced.requests.abs_diff(1000) <= 2, "{}", paced.requests);
    assert!((paced.seconds - 2.0).abs() < 0.02, "{}", paced.seconds);
    assert!(paced.live_blocks.unwrap().abs_diff(1500) <= 4);
    // At full speed; what is in the drive's RAM at the end is still written.
    let fast = run(&format!("{area}runtime=1\ntime_based=1\n"));
    assert!(
        (1.0..1.6).contains(&fast.seconds) && fast.requests > 1000,
        "{}",
        fast.seconds
    );
    assert!(run(&format!("{area}runtime=100\n")).requests == 4096);
    assert!(run(&format!("{area}number_ios=100\n")).requests == 100);
    assert!(run(&format!("{area}number_ios=100000\n")).requests == 4096);
    let past = FioFile::read(&area.replace("32m", "1g")).unwrap();
    let policy = "base".parse().unwrap();
    let error = scenario(&past).run(&policy).unwrap_err();
    assert!(
        matches!(error, ScenarioError::Area { end: 266_240, .. }),
        "{error}"
    );
    let timed = FioFile::read(&format!("{area}runtime=1\n")).unwrap();
    let mut untimed = scenario(&timed);
    untimed.timed = false;
    let error = untimed.run(&policy).unwrap_err();
    assert!(matches!(error, ScenarioError::Untimed), "{error}");
}

#[test]
fn a_drive_is_warmed_up_only_by_a_job_that_writes_and_where_it_goes() {
    let notes = |rw: &str| {
        let text = format!("[a]\nrw={rw}\nsize=16m\nioengine=libaio\niodepth=8\n");
        let job = FioFile::read(&text).unwrap();
        let mut scenario = scenario(&job);
        scenario.precondition = Precondition::Load;
        let outcome = scenario.run(&"base".parse().unwrap()).unwrap();
        assert_eq!(outcome.requests, 4096);
        outcome.notes.join("; ")
    };
    assert!(!notes("randread").contains("warmed up"));
    let written = notes("randwrite");
    assert!(
        written.contains("times what it touches and the spare space"),
        "{written}"
    );
}
