//! Job files of fio with more than one load: concurrent and consecutive jobs, trims, ordered mixes, requests of several lengths.
#![allow(clippy::unwrap_used, reason = "a failure is a test's")]

#[path = "common/written.rs"]
mod written;

use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_lab::drives;
use vellum_lab::fio_job::FioFile;
use vellum_lab::jobs::{Asking, Jobs};
use vellum_lab::outcome::{Outcome, Percentiles};
use vellum_lab::scenario::{Device, Load, Precondition, Scenario, ScenarioError};
use vellum_lab::trace::Op;
use vellum_lab::workload::Request;

const VOLUME: u64 = (128 << 20) / 4096;

fn scenario(jobs: &Jobs) -> Scenario<'_> {
    Scenario {
        seed: 11,
        ..Scenario::new(
            Device {
                capacity: Some(128 << 20),
                over_provisioning: Some(280),
                ..Device::new(drives::own("oftl"))
            },
            Load::Jobs(jobs),
        )
    }
}

fn read(text: &str) -> Arc<Jobs> {
    Arc::clone(FioFile::read(text).unwrap().jobs().unwrap())
}

fn run_seen(text: &str) -> (Outcome, Vec<u64>) {
    run_seen_by(11, text)
}

fn run_seen_by(seed: u64, text: &str) -> (Outcome, Vec<u64>) {
    let jobs = read(text);
    written::run_seen(Scenario {
        seed,
        ..scenario(&jobs)
    })
}

fn run(text: &str) -> Outcome {
    run_seen(text).0
}

/// Returns all requests of the first job.
fn asked(text: &str) -> Vec<Request> {
    let jobs = read(text);
    let job = &jobs.all()[0];
    Asking::new(job, job.on(VOLUME).unwrap(), (7, 0), true).collect()
}

const TWO: &str = "[global]
ioengine=libaio
iodepth=8
size=8m
rw=randwrite
[first one]
[second]
bs=8k
iodepth=2
";

#[test]
fn concurrent_jobs_have_separate_files_and_figures() {
    let (outcome, pages) = run_seen(TWO);
    assert_eq!(outcome.requests, 2048 + 1024);
    let of: Vec<_> = outcome.tenants.iter().collect();
    assert_eq!(
        (of[0].name.as_str(), of[1].name.as_str()),
        ("first_one", "second")
    );
    assert_eq!((of[0].first_block, of[0].blocks), (0, 2048));
    assert_eq!((of[1].first_block, of[1].blocks), (2048, 2048));
    assert_eq!((of[0].host_written, of[1].host_written), (2048, 2048));
    // Concurrent: neither ends before the other has begun.
    let begins = pages.iter().position(|page| *page >= 2048).unwrap();
    let ends = pages.iter().rposition(|page| *page < 2048).unwrap();
    assert!(begins < 100 && ends > 2000, "{begins} {ends}");
    let mut sorted = pages.clone();
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(0..4096));
    assert_eq!(
        outcome.load,
        "fio (synthetic): first_one: randwrite, 4k; second: randwrite, 8k"
    );
    // Only the seed decides.
    assert_eq!(run_seen(TWO).1, pages);
    assert_ne!(run_seen_by(12, TWO).1, pages);
}

#[test]
fn a_later_job_waits_for_all_before_it_or_for_the_one_it_names() {
    let (_, pages) = run_seen(&TWO.replace("[second]\n", "[second]\nstonewall\n"));
    assert!(pages[..2048].iter().all(|page| *page < 2048));
    assert!(pages[2048..].iter().all(|page| *page >= 2048));
    // The third job waits for the first, and runs alongside the second.
    let text = format!("{TWO}size=24m\nrate_iops=2000\n[third]\nwait_for=first one\n");
    let (outcome, pages) = run_seen(&text);
    let third = |page: &u64| *page >= 2048 + 6144;
    let (begins, ends) = (
        pages.iter().position(third).unwrap(),
        pages.iter().rposition(third).unwrap(),
    );
    let first = pages.iter().rposition(|page| *page < 2048).unwrap();
    let second = pages
        .iter()
        .rposition(|page| (2048..8192).contains(page))
        .unwrap();
    assert!(
        first < begins && ends < second,
        "{first} {begins} {ends} {second}"
    );
    assert_eq!(outcome.tenants.len(), 3);
    // Copies of a job begin together, and the next job waits for all of them.
    let (_, pages) =
        run_seen("[a]\nrw=write\nsize=4m\nnumjobs=3\n[b]\nstonewall\nrw=write\nsize=4m\n");
    assert!(pages[..3072].iter().all(|page| *page < 3072), "{pages:?}");
    assert!(pages[..300].iter().any(|page| *page >= 2048));
}

#[test]
fn trimmed_blocks_are_gone_until_written_again() {
    let write = "[a]\nrw=write\nbs=64k\nfilename=x\nsize=16m\n";
    let more = |rw: &str| format!("{write}[b]\nstonewall\nfilename=x\n{rw}\n");
    assert_eq!(run(&more("rw=write\nsize=4k")).live_blocks, Some(4096));
    let trimmed = run(&more("rw=trim\nbs=1m\nsize=8m"));
    assert_eq!(trimmed.live_blocks, Some(2048));
    assert_eq!(trimmed.host_written, 4096);
    let random = run(&more("rw=randtrim\nsize=16m\nio_size=4m"));
    assert_eq!(random.live_blocks, Some(4096 - 1024));
    let both = run(&more("rw=trimwrite\nbs=64k\nsize=8m"));
    assert_eq!(both.live_blocks, Some(4096));
    assert_eq!(
        (both.host_written, both.requests),
        (4096 + 2048, 256 + 2 * 128)
    );
    let pairs = asked("[a]\nrw=randtrimwrite\nsize=1m\nfsync=10\n");
    let pairs: Vec<_> = pairs.iter().filter(|r| r.op != Op::Flush).collect();
    for pair in pairs.chunks(2) {
        assert_eq!((pair[0].op, pair[0].lba), (Op::DISCARD, pair[1].lba));
        assert_eq!(pair[1].op, Op::Write { fua: false });
    }
    assert_eq!(pairs.len(), 512);
}

#[test]
fn a_sequential_mix_has_two_sequences() {
    let all = asked("[a]\nrw=rw\nrwmixread=70\nbs=8k\nsize=32m\noffset=4m\nsync=1\n");
    assert_eq!(all.len(), 4096);
    let lbas = |read: bool| {
        let of = all.iter().filter(move |r| (r.op == Op::Read) == read);
        of.map(|r| r.lba).collect::<Vec<_>>()
    };
    let (reads, writes) = (lbas(true), lbas(false));
    assert!((2750..2980).contains(&reads.len()), "{}", reads.len());
    for order in [&reads, &writes] {
        assert!(
            order
                .iter()
                .copied()
                .eq((0..order.len() as u64).map(|n| 1024 + 2 * n))
        );
    }
    assert!(
        all.iter()
            .all(|r| r.op == Op::Read || r.op == Op::Write { fua: true })
    );
}

#[test]
fn requests_have_the_given_lengths() {
    let all = asked(
        "[a]\nrw=randwrite\nbssplit=4k/50:16k/30:64k/\n\
         random_distribution=zipf:0.9\nsize=32m\nio_size=512m\n",
    );
    let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
    all.iter()
        .for_each(|r| *counts.entry(r.blocks).or_default() += 1);
    let share = |blocks: u32| counts[&blocks] as f64 / all.len() as f64;
    for (blocks, wanted) in [(1, 0.5), (4, 0.3), (16, 0.2)] {
        assert!(
            (share(blocks) - wanted).abs() < 0.02,
            "{blocks}: {counts:?}"
        );
    }
    let asked_for: u64 = all.iter().map(|r| u64::from(r.blocks)).sum();
    assert_eq!(asked_for, (512 << 20) / 4096);
    assert!(all.iter().all(|r| r.lba + u64::from(r.blocks) <= 8192));
    assert!(all.iter().all(|r| r.contents.len() == r.blocks as usize));
    // In a sequential job each request begins where the one before ended.
    let all = asked("[a]\nrw=write\nbssplit=4k/50:8k/50\nsize=4m\nio_size=12m\n");
    let mut next = 0;
    for request in &all {
        assert!(
            request.lba == next || (request.lba == 0 && next >= 1023),
            "{next}"
        );
        next = request.lba + u64::from(request.blocks);
    }
    // Reads and writes have different lengths.
    let all = asked("[a]\nrw=randrw\nbs=4k,64k\nsize=16m\n");
    assert!(
        all.iter()
            .all(|r| r.blocks == if r.op == Op::Read { 1 } else { 16 })
    );
}

#[test]
fn each_has_its_own_pace_and_its_own_end() {
    // 500 a second for two seconds, alongside a job at full speed for one.
    let both = run(
        "[global]\nioengine=libaio\niodepth=4\nrw=randwrite\nsize=16m\ntime_based\n\
                    [slow]\nrate_iops=500\nruntime=2\n[fast]\nruntime=1s\n",
    );
    assert!(
        both.tenants[0].requests.abs_diff(1000) <= 2,
        "{}",
        both.tenants[0].requests
    );
    assert!(both.tenants[1].requests > 2000);
    assert!((2.0..2.1).contains(&both.seconds), "{}", both.seconds);
    // A job's time counts from its own start. What is in the drive's RAM at the end is still written.
    let after = run("[a]\nrw=write\nsize=16m\ntime_based\nruntime=500ms\n\
                     [b]\nstonewall\nrw=read\nsize=16m\ntime_based\nruntime=1\n");
    assert!((1.5..1.9).contains(&after.seconds), "{}", after.seconds);
    // It thinks once all four are answered.
    let thinks = run(
        "[a]\nrw=write\nsize=4m\nthinktime=10ms\nthinktime_blocks=4\nioengine=libaio\niodepth=8\n",
    );
    assert!((2.55..2.8).contains(&thinks.seconds), "{}", thinks.seconds);
    // The ramp time is not counted, and takes nothing from what is.
    let ramped = run("[global]\nrw=write\nsize=4m\nramp_time=1\nrate_iops=256\n[a]\n[b]\n");
    assert_eq!(ramped.requests, 2048);
    assert!((3.9..4.1).contains(&ramped.seconds), "{}", ramped.seconds);
    assert!(run("[a]\nrw=rw\nsize=16m\nnumber_ios=100\n").requests == 100);
    assert!(run("[a]\nrw=rw\nsize=1m\nloops=3\n").requests == 768);
}

/// One job waits for its own flushes, and not for those of its copies.
#[test]
fn copies_that_flush_are_separate_jobs() {
    let global = "[global]\nrw=randwrite\nsize=4m\nfsync=1\nfilename=f\n";
    let copies = run(&format!("{global}[a]\nnumjobs=8\n"));
    let sections: String = ('a'..='h').map(|name| format!("[{name}]\n")).collect();
    let sections = run(&format!("{global}{sections}"));
    assert_eq!(copies.seconds, sections.seconds);
    assert_eq!(copies.requests, sections.requests);
    let alone = run(&format!("{global}[a]\n"));
    assert!(copies.seconds < 4.0 * alone.seconds, "{}", copies.seconds);
}

/// `size` is what is written; the flushes come on top.
#[test]
fn a_job_that_flushes_writes_its_size() {
    let outcome = run("[a]\nrw=randwrite\nsize=4m\nfsync=1\n");
    assert_eq!(outcome.host_written, 1024);
    assert!(outcome.flushes.count.abs_diff(1024) <= 1);
}

/// Neither a rate nor a time to think counts flushes, as in fio.
#[test]
fn flushes_cost_neither_rate_nor_thought() {
    let job = "[a]\nrw=randwrite\nsize=4m\nfsync=1\n";
    let thinks = run(&format!("{job}thinktime=10000\nnumber_ios=200\n"));
    assert_eq!(thinks.host_written, 200);
    assert!((1.9..2.2).contains(&thinks.seconds), "{}", thinks.seconds);
    let paced = run(&format!("{job}rate_iops=100\nnumber_ios=200\n"));
    assert_eq!(paced.host_written, 200);
    assert!((1.9..2.2).contains(&paced.seconds), "{}", paced.seconds);
    let all = run(&format!(
        "{job}thinktime=10000\nthinktime_blocks=2\nnumber_ios=200\n"
    ));
    assert!((0.9..1.2).contains(&all.seconds), "{}", all.seconds);
}

#[test]
fn a_device_is_shared_in_parts_and_a_file_by_all_that_name_it() {
    let jobs =
        read("[a]\nfilename=/dev/nvme0n1\nrw=write\nnumjobs=4\noffset_increment=25%\nsize=25%\n");
    let of = |at: usize| jobs.all()[at].on(VOLUME).unwrap();
    for at in 0..4 {
        assert_eq!(
            (of(at).first, of(at).blocks),
            (at as u64 * VOLUME / 4, VOLUME / 4)
        );
    }
    // Without a size the job covers the whole device.
    let jobs =
        read("[a]\nfilename=/dev/sda\nrw=trim\n[b]\nrw=read\nfilename=/dev/sda\noffset=50%\n");
    assert_eq!(jobs.all()[0].on(VOLUME).unwrap().blocks, VOLUME);
    let half = jobs.all()[1].on(VOLUME).unwrap();
    assert_eq!((half.first, half.blocks), (VOLUME / 2, VOLUME / 2));
    let jobs = read(
        "[global]\nrw=write\nfilesize=8m\n[a]\nfilename=x\n[b]\n[c]\nfilename=x\noffset=4m\nsize=8m\n",
    );
    let firsts: Vec<_> = jobs
        .all()
        .iter()
        .map(|job| job.on(VOLUME).unwrap())
        .collect();
    let parts: Vec<_> = firsts.iter().map(|p| (p.first, p.blocks)).collect();
    assert_eq!(parts, [(0, 2048), (2048, 2048), (1024, 1024)]);
    // A later [global] applies to the jobs after it.
    let jobs = read("[global]\nrw=write\nsize=1m\n[a]\n[global]\nsize=2m\nbs=8k\n[b]\n[b]\n");
    let told: Vec<_> = jobs.all().iter().map(|job| job.told()).collect();
    assert_eq!(told, ["a: write, 4k", "b: write, 8k", "b-2: write, 8k"]);
}

#[test]
fn a_drive_is_warmed_up_by_all_jobs_that_write() {
    let text =
        "[global]\nsize=32m\nioengine=libaio\niodepth=8\n[w]\nrw=randwrite\n[r]\nrw=randread\n";
    for timed in [true, false] {
        let jobs = read(text);
        let mut scenario = scenario(&jobs);
        (scenario.precondition, scenario.timed) = (Precondition::Load, timed);
        let outcome = scenario.run(&"base".parse().unwrap()).unwrap();
        assert_eq!(outcome.requests, 2 * 8192);
        let notes = outcome.notes.join("; ");
        assert!(notes.contains("warmed up by the load itself"), "{notes}");
    }
}

#[test]
fn jobs_that_cannot_run_are_errors() {
    let policy = "base".parse().unwrap();
    let jobs = read("[a]\nrw=write\nsize=1g\n[b]\nrw=write\nsize=1m\n");
    let error = scenario(&jobs).run(&policy).unwrap_err();
    assert!(
        error.to_string().contains("the job a goes to block 262144"),
        "{error}"
    );
    let jobs = read("[a]\nrw=rw\nsize=1m\nruntime=1\n");
    let untimed = Scenario {
        timed: false,
        ..scenario(&jobs)
    };
    let error = untimed.run(&policy).unwrap_err();
    assert!(matches!(error, ScenarioError::Untimed), "{error}");
    let jobs = read("[a]\nrw=trim\nfilename=/dev/sda\nbs=16m\nsize=1%\n");
    let error = scenario(&jobs).run(&policy).unwrap_err().to_string();
    assert!(
        error.contains("asks for 4096 blocks at a time and has"),
        "{error}"
    );
}

#[test]
fn each_job_has_its_depth_and_waits_for_durable_writes() {
    let jobs = read(
        "[global]\nioengine=libaio\nrw=randread\nsize=32m\nio_size=4m\n\
         [alone]\niodepth=1\n[many]\nstonewall\niodepth=64\n",
    );
    let mut read_back = scenario(&jobs);
    read_back.precondition = Precondition::Fill;
    let outcome = read_back.run(&"base".parse().unwrap()).unwrap();
    let mean = |tenant: usize| outcome.tenants[tenant].reads.mean_ns;
    // Alone it has no competition; 64 that share eight dies have.
    assert!(
        mean(0) * 3 < mean(1),
        "{} ns alone, {} ns of 64",
        mean(0),
        mean(1)
    );
    // A write, its flush, the next write: they never overlap.
    let jobs = read(
        "[a]\nioengine=libaio\niodepth=8\nrw=write\nsize=2m\nfsync=1\n[b]\nstonewall\nrw=read\nsize=4k\n",
    );
    let outcome = scenario(&jobs).run(&"base".parse().unwrap()).unwrap();
    let took = |kind: &Percentiles| kind.mean_ns as f64 * kind.count as f64 / 1e9;
    let each = [&outcome.writes, &outcome.flushes, &outcome.reads].map(took);
    let all: f64 = each.iter().sum();
    assert!(
        (all / outcome.seconds - 1.0).abs() < 0.01,
        "{each:?} of {}",
        outcome.seconds
    );
}
