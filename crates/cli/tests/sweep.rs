//! `vellum lab sweep`, and scenarios in a file: the same results however they are run, interrupted and continued, and errors
//! are named.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{dir, fails, ok, text, vellum};
use std::fs;
use std::process::{Command, Stdio};

const GRID: [&str; 6] = [
    "lab",
    "sweep",
    "--vary",
    "op=20 30",
    "--vary",
    "policy=base vellum",
];
const RUN: [&str; 8] = [
    "--",
    "--workload=uniform",
    "--device=oftl",
    "--capacity=256M",
    "--requests=2000",
    "--precondition=none",
    "--depth=1",
    "--seed=3",
];

fn sweep(options: &[&str]) -> Vec<String> {
    let all = GRID.iter().chain(options).chain(&RUN);
    all.map(|&part| part.to_owned()).collect()
}

fn run(options: &[&str]) -> String {
    let args = sweep(options);
    ok(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn a_sweep_is_the_same_on_one_core_and_after_an_interruption() {
    let dir = dir();
    let (kept, html) = (dir.path().join("kept"), dir.path().join("page"));
    let once = run(&["--csv", "--threads=1"]);
    assert_eq!(once.lines().count(), 5, "{once}");
    assert!(once.starts_with("op,policy,"), "{once}");
    assert_eq!(run(&["--csv", "--threads=4"]), once);
    let resume = format!("--resume={}", text(&kept));
    assert_eq!(run(&["--csv", &resume]), once);
    // Interrupted after two runs, in the middle of a line.
    let done = fs::read_to_string(&kept).unwrap();
    let lines: Vec<&str> = done.lines().collect();
    assert_eq!(lines.len(), 5, "a line that says what it is, and one a run");
    fs::write(
        &kept,
        format!(
            "{}\n{}\n{}\n{}",
            lines[0],
            lines[3],
            lines[1],
            &lines[2][..9]
        ),
    )
    .unwrap();
    assert_eq!(run(&["--csv", &resume]), once);
    assert_eq!(fs::read_to_string(&kept).unwrap().lines().count(), 5);
    let page = format!("--html={}", text(&html));
    let table = run(&[&page]);
    assert!(table.contains("amplification"), "{table}");
    let page = fs::read_to_string(&html).unwrap();
    assert!(page.contains("write amplification") && page.contains("Sweep"));
    for form in [&once, &table, &page, &run(&["--json"])] {
        let labels = form.matches("uniform (synthetic)").count();
        assert_eq!(labels, 4, "one a run: {form}");
    }
    // From another sweep.
    let mut other = sweep(&[&resume]);
    other.push("--zeros=5".into());
    let other: Vec<&str> = other.iter().map(String::as_str).collect();
    fails(1, &other, &["another sweep"]);
}

#[test]
fn an_interrupted_sweep_reports_its_finished_runs() {
    let dir = dir();
    let kept = dir.path().join("kept");
    let args = [
        "lab",
        "sweep",
        "--vary",
        "seed=1 2 3 4 5 6 7 8",
        "--threads=1",
        "--resume",
        text(&kept),
        "--",
        "--workload=uniform",
        "--device=oftl",
        "--capacity=1G",
        "--policy=base",
        "--requests=1000000",
        "--precondition=none",
    ];
    let child = Command::new(env!("CARGO_BIN_EXE_vellum"))
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    common::eventually("a run is done", || {
        fs::read_to_string(&kept).is_ok_and(|text| text.lines().count() >= 2)
    });
    common::run("kill", &["-INT", &child.id().to_string()]);
    let out = child.wait_with_output().unwrap();
    let (said, wrong) = (
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    );
    assert_eq!(out.status.code(), Some(1), "{said}{wrong}");
    assert!(said.contains("PARTIAL"), "{said}");
    assert!(wrong.contains("the same command goes on"), "{wrong}");
}

#[test]
fn errors_of_a_sweep_are_named() {
    let fails = |vary: &[&str], says: &[&str]| {
        let mut args = vec!["lab", "sweep"];
        vary.iter().for_each(|vary| args.extend(["--vary", vary]));
        args.extend(RUN);
        fails(2, &args, says);
    };
    fails(&["op"], &["KEY=VALUE"]);
    fails(&["nope=1 2"], &["--vary nope", "policy"]);
    fails(&["depth=1 0"], &["depth=0", "1..=65536"]);
    fails(&["depth=1 many"], &["depth=many", "1..=65536"]);
    fails(&["think=own"], &["a load has no times of its own"]);
    fails(&["policy=base basic"], &["policy=basic", "begins with"]);
    fails(&["op=1 7"], &["it is from 2 to 1000"]);
    fails(&["op=7", "op=8"], &["twice"]);
    fails(&["device=oftl nope"], &["nope"]);
    // A point that cannot be run does not prevent the others.
    let args = ["lab", "sweep", "--vary", "capacity=1M 256M"];
    let out = vellum(&[&args[..], &RUN[..]].concat());
    let said = String::from_utf8_lossy(&out.stdout);
    assert_eq!(out.status.code(), Some(1));
    assert!(said.contains("not run:"), "{said}");
}

#[test]
fn a_sweep_over_other_input_is_another_sweep() {
    let dir = dir();
    let file = |name: &str| text(&dir.path().join(name)).to_owned();
    let (job, trace) = (file("job.fio"), file("trace.csv"));
    let (kept, input) = (file("kept"), format!("--fio={job}"));
    let of_job = |size: &str| format!("[a]\nrw=randwrite\nbs=4k\nsize={size}\n");
    let of_trace = |at: u64| format!("128166372003061629,host,0,Write,{at},4096,500\n").repeat(100);
    for (path, input, before, after) in [
        (&job, &input, of_job("4M"), of_job("8M")),
        // The same number of requests and bytes, in a file of the same length.
        (&trace, &trace, of_trace(4096), of_trace(8192)),
    ] {
        let resume = format!("--resume={kept}");
        let mut args = vec!["lab", "sweep", "--vary", "op=20 30", &resume, "--", input];
        args.extend(["--device=oftl", "--capacity=256M", "--precondition=none"]);
        fs::write(path, before).unwrap();
        assert_eq!(ok(&args), ok(&args));
        fs::write(path, after).unwrap();
        fails(1, &args, &["another sweep"]);
        fs::remove_file(&kept).unwrap();
    }
}

#[test]
fn a_failed_run_is_tried_again() {
    let dir = dir();
    let kept = dir.path().join("kept");
    let resume = format!("--resume={}", text(&kept));
    let args = ["lab", "sweep", "--vary", "capacity=1M 256M", &resume];
    let args = [&args[..], &RUN[..], &["--op=20"]].concat();
    for _ in 0..2 {
        fails(1, &args, &["1 of 2 runs could not be run"]);
        let lines = fs::read_to_string(&kept).unwrap();
        assert_eq!(lines.lines().count(), 2, "{lines}");
        assert!(lines.contains("256M") && !lines.contains("\"1M"), "{lines}");
    }
}

#[test]
fn a_scenario_in_a_file_is_a_run() {
    let dir = dir();
    let file = dir.path().join("scenario.toml");
    let scenario = |text: &str| fs::write(&file, text).unwrap();
    let args = ["--config", text(&file), "lab", "run", "--json"];
    scenario(
        "[lab.run]\nworkload = \"uniform\"\ndevice = \"oftl\"\ncapacity = \"256M\"\nrequests = 2000\n\
         precondition = \"none\"\ndepth = 1\nseed = 3\nop = 20\npolicy = [\"base\"]\n",
    );
    let mut flags = vec!["lab", "run", "--json", "--op=20", "--policy=base"];
    flags.extend(&RUN[1..]);
    assert_eq!(ok(&args), ok(&flags));
    for (text, says) in [
        ("[lab.run]\nworkloat = \"x\"\n", &["line 2", "workloat"][..]),
        (
            "[lab.run]\nworkload = \"uniform\"\ndepth = 0\n",
            &["depth", "1..=65536", "line 3"],
        ),
        (
            "[lab.run]\nworkload = \"uniform\"\nop = 1001\n",
            &["1001", "from 2 to 1000", "\"op\"", "line 3"],
        ),
        (
            "[lab.run]\nworkload = \"uniformly\"\n",
            &["uniformly", "zipf", "\"workload\"", "line 2"],
        ),
        (
            "[lab.run]\nworkload = \"uniform\"\n\ndevice = \"nope\"\n",
            &["nope", "oftl", "\"device\"", "line 4"],
        ),
        (
            "[lab.run]\nrequest-size = \"5K\"\nworkload = \"uniform\"\n",
            &["5K", "up to 16M", "\"request-size\"", "line 2"],
        ),
        (
            "[lab.run]\nworkload = \"uniform\"\ncapacity = \"16P\"\n",
            &[
                "16P",
                "at most 8.0 TiB",
                "16.0 GiB to 44.0 GiB of memory",
                "\"capacity\"",
                "line 3",
            ],
        ),
        (
            "[lab.run]\nworkload = \"uniform\"\nprecondition = \"most\"\n",
            &["most", "none, fill, load, steady"],
        ),
    ] {
        scenario(text);
        fails(2, &args, says);
    }
}
