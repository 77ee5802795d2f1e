//! Tables in place in the lab: selected by a flag or in a scenario file; traces in place of a paper's loads; errors are named.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{dir, fails, ok, text};
use std::fs;

const RUN: [&str; 8] = [
    "lab",
    "run",
    "--device=oftl",
    "--capacity=256M",
    "--op=28",
    "--seed=3",
    "--precondition=fill",
    "--json",
];

#[test]
fn a_layout_is_chosen_by_a_flag_or_in_a_file_and_both_amplifications_are_told() {
    let dir = dir();
    let policy = "vellum:dedup,layout=ordered,persistence=strong,on-drive";
    let load = ["--workload=zipf", "--requests=3000", "--flush-every=64"];
    let mut args = RUN.to_vec();
    args.extend(load);
    args.extend(["--policy", policy]);
    let by_flag = ok(&args);
    let run: serde_json::Value = serde_json::from_str(&by_flag).unwrap();
    assert_eq!(run[0]["policy"], policy);
    assert!(run[0]["stacked"]["engine"].as_f64().unwrap() > 0.0);
    assert!(run[0]["stacked"]["drive"].as_f64().unwrap() >= 1.0);
    let file = dir.path().join("lab.toml");
    let lines = format!(
        "[lab.run]\nworkload = \"zipf\"\nrequests = 3000\nflush-every = 64\npolicy = [\"{policy}\"]\n"
    );
    fs::write(&file, lines).unwrap();
    let mut args = vec!["--config", text(&file)];
    args.extend(RUN);
    assert_eq!(ok(&args), by_flag);
    for (policy, said) in [
        ("vellum:layout=tree", "log, ordered, shadow"),
        ("vellum:persistence=none", "weak, strong"),
        ("vellum:layout=shadow,compress", "layout=log"),
    ] {
        let mut args = RUN.to_vec();
        args.extend(load);
        args.extend(["--policy", policy]);
        fails(2, &args, &[policy, said]);
    }
    let mut args = RUN.to_vec();
    args.extend(load);
    args.extend(["--policy", "vellum:layout=ordered"]);
    fails(1, &args, &["on-drive"]);
}

#[test]
fn traces_replace_a_papers_loads_and_wrong_ones_are_named() {
    let dir = dir();
    let traces = dir.path().join("traces");
    let paper = |name: &'static str| {
        let mut args = vec!["lab", "paper", name, "--threads=1"];
        args.extend(["--traces", text(&traces)]);
        args.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let args = paper("woj");
    fails(
        2,
        &args.iter().map(String::as_str).collect::<Vec<_>>(),
        &["--traces"],
    );
    let args = paper("omd");
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    fails(1, &args, &[text(&traces)]);
    fs::create_dir(&traces).unwrap();
    fails(1, &args, &[text(&traces), "0 files"]);
    let trace = traces.join("app.csv");
    fs::write(&trace, "nobody knows what this is\n").unwrap();
    fails(1, &args, &[text(&trace)]);
    let shares = ["lab", "shares", text(&trace)];
    fails(1, &shares, &[text(&trace)]);
}
