//! The output of a lab run: a table, JSON, CSV, a report; after Ctrl-C; on a full disk; from a trace that does not fit.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{dir, fails, ok, skipped, text, vellum};
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn args<'a>(command: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let few = ["--requests=3000"];
    [&endless(command)[..], &few, more].concat()
}

fn endless(command: &str) -> [&str; 9] {
    [
        "lab",
        command,
        "--workload=hot-cold",
        "--device=oftl",
        "--capacity=256M",
        "--op=28",
        "--precondition=fill",
        "--policy=base",
        "--policy=base:hot-cold",
    ]
}

/// Without options the drive has settled, and each form of output states the confidence of its figures.
#[test]
fn a_run_says_whether_it_had_settled_and_how_sure_it_is() {
    let load = [
        "lab",
        "run",
        "--workload=zipf",
        "--device=oftl",
        "--capacity=256M",
        "--op=28",
        "--policy=base",
    ];
    let given = |more: &[&str]| ok(&[&load[..], more].concat());
    let json: serde_json::Value = serde_json::from_str(&given(&["--json"])).unwrap();
    let run = &json[0];
    assert_eq!(run["settled"], true);
    let number = |from: &serde_json::Value, name: &str| from[name].as_f64().unwrap();
    for (from, low, figure, high) in [
        (
            run,
            "write_amplification_low",
            "write_amplification",
            "write_amplification_high",
        ),
        (&run["life"], "years_low", "years", "years_high"),
    ] {
        let [low, figure, high] = [low, figure, high].map(|name| number(from, name));
        assert!(
            low < figure && figure < high && high < 1.2 * low,
            "{low} {figure} {high}"
        );
    }
    assert!((63..128).contains(&run["steps"].as_array().unwrap().len()));
    let table = given(&[]);
    assert!(table.contains("settled, drift") && table.contains("warmed up by the load itself"));
    let csv = given(&["--csv"]);
    for name in [
        "settled",
        "drift_percent",
        "write_amplification_low",
        "years_high",
    ] {
        assert!(
            csv.lines()
                .next()
                .unwrap()
                .split(',')
                .any(|column| column == name),
            "{name}"
        );
    }
    // A few requests on a new drive are not meaningful, and the output says so.
    let few = given(&["--precondition=none", "--requests=2000"]);
    assert!(
        few.contains("NOT SETTLED") && few.contains("erasures are too few"),
        "{few}"
    );
    let years = few.lines().find(|line| line.starts_with("years")).unwrap();
    assert!(years.trim_end().ends_with('-'), "{years}");
}

#[test]
fn a_run_and_a_comparison_give_their_figures_in_every_form() {
    let dir = dir();
    for command in ["run", "compare"] {
        let path = dir.path().join(command);
        let page = format!("--html={}", text(&path));
        let table = ok(&args(command, &[&page]));
        assert!(table.contains("synthetic") && table.contains("base:hot-cold"));
        let report = fs::read_to_string(&path).unwrap();
        assert!(report.contains("<h2>All figures</h2>") && report.contains("base:hot-cold"));
        let json: serde_json::Value =
            serde_json::from_str(&ok(&args(command, &["--json"]))).unwrap();
        assert_eq!(json[1]["policy"], "base:hot-cold");
        let points = json[1]["write_cdf"].as_array().unwrap();
        assert!((2..=400).contains(&points.len()), "{}", points.len());
        let last = points.last().unwrap();
        assert_eq!(last["ns"], json[1]["writes"]["most_ns"]);
        assert_eq!(last["share"], 1.0);
        let csv = ok(&args(command, &["--csv"]));
        assert_eq!(csv.lines().count(), 3, "{csv}");
        fails(2, &args(command, &["--csv", "--json"]), &["--json"]);
    }
}

#[test]
fn generated_loads_are_called_synthetic_in_every_form() {
    let dir = dir();
    let path = dir.path().join("page");
    let page = format!("--html={}", text(&path));
    let given = |more: &str| {
        let model = ["--sizes=mail", more];
        ok(&args("run", &model))
    };
    for form in [
        given(&page),
        given("--json"),
        given("--csv"),
        fs::read_to_string(&path).unwrap(),
    ] {
        assert!(form.contains("hot-cold (synthetic)"), "{form}");
        assert!(form.contains("sizes: mail (synthetic)"), "{form}");
    }
    let json: serde_json::Value = serde_json::from_str(&given("--json")).unwrap();
    let csv = given("--csv");
    let heading = csv.lines().next().unwrap();
    let at = heading.split(',').position(|name| name == "load").unwrap();
    // Each result states it separately, so that a line copied elsewhere still does.
    for (line, result) in csv.lines().skip(1).zip(json.as_array().unwrap()) {
        assert_eq!(result["load"], line.split(',').nth(at).unwrap());
    }
    // Recorded loads do not state it.
    let trace = dir.path().join("trace.csv");
    fs::write(&trace, "time,op,offset,length\n1,w,0,4096\n2,w,8192,4096\n").unwrap();
    let columns = "--columns=time=0:us,op=1,offset=2,length=3";
    let recorded = ok(&[
        "lab",
        "run",
        text(&trace),
        columns,
        "--device=oftl",
        "--capacity=256M",
        "--precondition=fill",
        "--policy=base",
        "--json",
    ]);
    assert!(!recorded.contains("synthetic"), "{recorded}");
    let listed = ok(&["lab", "list"]);
    assert!(listed.contains("loads (synthetic)") && listed.contains("sizes (synthetic)"));
}

#[test]
fn a_report_for_which_there_is_no_room_is_an_error() {
    for command in ["run", "compare"] {
        fails(
            1,
            &args(command, &["--html=/dev/full"]),
            &["/dev/full", "No space left"],
        );
        let full = fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let out = Command::new(env!("CARGO_BIN_EXE_vellum"))
            .args(args(command, &["--json"]))
            .stdout(full)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{said}");
        assert!(said.contains("No space left"), "{said}");
    }
}

/// True if a process catches SIGINT, or blocks it to handle it itself.
fn minds_interrupts(status: &str) -> bool {
    let status = fs::read_to_string(status).unwrap();
    let mut masks = status.lines().filter_map(|line| {
        let mask = line
            .strip_prefix("SigCgt:")
            .or(line.strip_prefix("SigBlk:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    });
    masks.any(|mask| mask & 1 << 1 != 0)
}

/// Checks a report that does not fit: the error names it, the old contents are still there, and no file is next to it.
fn is_left_as_it_was(folder: &Path, out: &Output, says: &str) {
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    let report = folder.join("report");
    assert!(
        said.contains(text(&report)) && said.contains(says),
        "{said}"
    );
    assert_eq!(fs::read_to_string(&report).unwrap(), "a good one");
    assert_eq!(fs::read_dir(folder).unwrap().count(), 1, "{said}");
}

fn sweep(page: &str) -> Vec<&str> {
    let what = ["lab", "sweep", "--vary=policy=base", page, "--"];
    let common = &endless("run")[2..7];
    [&what[..], common, &["--requests=3000"]].concat()
}

#[test]
fn an_incomplete_report_does_not_replace_the_old_one() {
    let dir = dir();
    let report = dir.path().join("report");
    fs::write(&report, "a good one").unwrap();
    let page = format!("--html={}", text(&report));
    for args in [
        args("run", &[&page]),
        args("compare", &[&page]),
        sweep(&page),
    ] {
        // A file may have 4 KiB; beyond that it is an error, not a signal.
        let out = Command::new("sh")
            .args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$@\"", "sh"])
            .arg(env!("CARGO_BIN_EXE_vellum"))
            .args(args)
            .output()
            .unwrap();
        is_left_as_it_was(dir.path(), &out, "File too large");
    }
}

#[test]
fn a_full_disk_leaves_the_old_report() {
    let dir = dir();
    let report = dir.path().join("report");
    let page = format!("--html={}", text(&report));
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        skipped("a disk that fills: needs root for a tmpfs");
        return;
    }
    let small = ["-t", "tmpfs", "-o", "size=8K", "tmpfs", text(dir.path())];
    common::run("mount", &small);
    let mounted = Mounted(dir.path());
    fs::write(&report, "a good one").unwrap();
    for args in [
        args("run", &[&page]),
        args("compare", &[&page]),
        sweep(&page),
    ] {
        is_left_as_it_was(dir.path(), &common::vellum(&args), "No space left");
    }
    drop(mounted);
}

/// A mount, undone when dropped.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        common::run("umount", &[text(self.0)]);
    }
}

#[test]
fn an_interrupted_run_prints_its_partial_results() {
    for command in ["run", "compare"] {
        is_ended(command);
    }
}

fn is_ended(command: &str) {
    let dir = dir();
    let path = dir.path().join("report");
    let page = format!("--html={}", text(&path));
    let child = Command::new(env!("CARGO_BIN_EXE_vellum"))
        .args(endless(command))
        .args(["--requests=2000000000", &page])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    common::eventually("it minds signals", || minds_interrupts(&status));
    common::run("kill", &["-INT", &child.id().to_string()]);
    let out = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("PARTIAL"), "{said}");
    assert!(fs::read_to_string(&path).unwrap().contains("PARTIAL"));
}

#[test]
fn a_trace_too_large_for_the_drive_is_refused_with_the_size_needed() {
    let dir = dir();
    let path = dir.path().join("trace");
    // A block in each of 300 MiB.
    let line = |at: u64| format!("{},web,0,Write,{},4096,1\n", 1000 + at, at << 20);
    let lines: String = (0..300).map(line).collect();
    fs::write(&path, lines).unwrap();
    let run = [
        "lab",
        "run",
        text(&path),
        "--device=oftl",
        "--policy=base",
        "--precondition=fill",
    ];
    let needed = ["touches 76800 blocks", "--capacity"];
    fails(1, &[&run[..], &["--capacity=256M"]].concat(), &needed);
    assert!(ok(&[&run[..], &["--capacity=512M"]].concat()).contains("300 writes"));
    let whole = [&run[..], &["--capacity=256M", "--in-place"]].concat();
    fails(1, &whole, &["--capacity"]);
}

/// A comparison without options succeeds: policies the drive has no room for are omitted with one line. If they were named, it
/// is an error.
#[test]
fn a_comparison_leaves_out_policies_that_do_not_fit() {
    let load = [
        "lab",
        "compare",
        "--workload=uniform",
        "--device=oftl",
        "--capacity=256M",
        "--requests=300",
        "--precondition=none",
    ];
    let said = ok(&[&load[..], &["--op=7"]].concat());
    let left = said
        .lines()
        .find(|line| line.starts_with("left out"))
        .unwrap();
    assert!(
        left.contains("vellum:dedup,on-drive") && !said.contains("not run"),
        "{said}"
    );
    fails(
        1,
        &[
            &load[..],
            &["--op=7", "--policy=base", "--policy=vellum:dedup,on-drive"],
        ]
        .concat(),
        &["vellum:dedup,on-drive", "over-provisioning"],
    );
    fails(
        1,
        &[&load[..], &["--op=2"]].concat(),
        &["none of", "over-provisioning"],
    );
    // And the flash may be ten times as large as the volume.
    let whole = ok(&[&load[..], &["--op=1000"]].concat());
    assert!(!whole.contains("left out, for"), "{whole}");
}

/// A CSV trace whose third column is in sectors, with a request at each of these times.
fn requests(times: impl Iterator<Item = u64>) -> String {
    let line = |(number, at): (u64, u64)| format!("{at};W;{};4096\n", number * 8 % 4096);
    let lines = (0..).zip(times).map(line);
    "when;what;where;long\n".to_owned() + &lines.collect::<String>()
}

#[test]
fn a_trace_comes_from_standard_input_as_from_its_file() {
    let dir = dir();
    let path = dir.path().join("trace.csv");
    fs::write(&path, requests((0..500).map(|n| n * 100))).unwrap();
    let run = |trace: &str| {
        let mut vellum = Command::new(env!("CARGO_BIN_EXE_vellum"));
        vellum.args([
            "lab",
            "run",
            trace,
            "--device=oftl",
            "--capacity=256M",
            "--op=28",
            "--csv",
        ]);
        vellum.args(["--precondition=none", "--policy=base"]);
        vellum.arg("--columns=time=0:us,op=1,offset=2:sector,length=3,separator=semicolon");
        let out = vellum
            .stdin(fs::File::open(&path).unwrap())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{said}");
        out.stdout
    };
    let of_file = run(path.to_str().unwrap());
    assert!(!of_file.is_empty());
    assert_eq!(of_file, run("-"));
}

#[test]
fn made_up_times_get_a_warning_with_advice() {
    let dir = dir();
    let path = dir.path().join("trace.csv");
    let told = |times: &mut dyn Iterator<Item = u64>| {
        fs::write(&path, requests(times)).unwrap();
        let columns = "--columns=time=0:us,op=1,offset=2:sector,length=3,separator=semicolon";
        let drive = [
            "--device=oftl",
            "--capacity=256M",
            "--op=28",
            "--precondition=none",
        ];
        let trace = [
            "lab",
            "run",
            path.to_str().unwrap(),
            columns,
            "--policy=base",
        ];
        ok(&[&trace[..], &drive].concat())
    };
    for times in [
        &mut std::iter::repeat_n(0_u64, 500) as &mut dyn Iterator<Item = u64>,
        &mut (0..500).rev(),
    ] {
        let text = told(times);
        let said = [
            "times are made up",
            "32 requests are asked at a time",
            "--depth",
            "--daily",
        ];
        assert!(said.iter().all(|said| text.contains(said)), "{text}");
    }
    assert!(!told(&mut (0..500).map(|n| n * 70)).contains("made up"));
    // A thousand a second, or rows of milliseconds: half a second either way.
    let text = told(&mut (0..500).map(|n| n * 1000));
    assert!(text.contains("if these are row numbers"), "{text}");
    assert!(
        !text.contains("made up") && text.contains("over 0.5 s") && !text.contains("at a time")
    );
}

/// Tenants of one drive: by name in each form, in a sweep, from standard input; and invalid combinations.
#[test]
fn each_tenant_has_its_own_figures() {
    let dir = dir();
    let path = dir.path().join("trace.csv");
    fs::write(&path, requests(&mut (0..500))).unwrap();
    let tenant = |name: &str| format!("--tenant={name}={}", path.display());
    let (mail, web) = (tenant("mail"), tenant("web"));
    let common = [
        "--columns=time=0:us,op=1,offset=2:sector,length=3,separator=semicolon",
        "--device=oftl",
        "--capacity=256M",
        "--op=28",
        "--precondition=none",
        "--policy=base",
    ];
    let given = |command: &str, more: &[&str]| {
        ok(&[&["lab", command][..], &common, &[&mail, &web], more].concat())
    };
    let table = given("run", &[]);
    for said in ["tenant mail: csv", "tenant web   ", "  wrote, blocks"] {
        assert!(table.contains(said), "{table}");
    }
    let json: serde_json::Value = serde_json::from_str(&given("run", &["--json"])).unwrap();
    let of = |at: usize, name: &str| json[0]["tenants"][at][name].clone();
    assert_eq!(
        (of(0, "name"), of(1, "name")),
        ("mail".into(), "web".into())
    );
    assert_eq!(of(0, "requests"), 500);
    let csv = given("compare", &["--csv"]);
    assert!(csv.contains(",tenant_web_write_p99_ns"), "{csv}");
    let sweep = ["lab", "sweep", "--vary=depth=1 8", "--csv", "--"];
    let swept = ok(&[&sweep[..], &common, &[&mail, &web]].concat());
    assert!(swept.contains("tenant_mail_requests"), "{swept}");
    for (code, more, said) in [
        (2, &["--tenant=mail"][..], "is not NAME=TRACE"),
        (2, &["--tenant=a b=x"], "is no tenant's name"),
        (2, &[&mail, &mail], "two tenants are called mail"),
        (1, &["--tenant=x=/nowhere"], "tenant x: /nowhere"),
        (2, &[&mail, "--workload=zipf"], "cannot be used with"),
        (
            2,
            &[&mail, "--depth=1", "--think=own"],
            "cannot be used with",
        ),
    ] {
        fails(
            code,
            &[&["lab", "run"][..], &common, more].concat(),
            &[said],
        );
    }
}

/// A run on a drive that is too small says what would be enough, and it is.
fn advice_holds(run: &[&str], ends: &str) {
    let refused = vellum(&[run, &["--capacity=64M"]].concat());
    let said = String::from_utf8(refused.stderr).unwrap();
    let (_, advice) = said.split_once("over-provisioning: ").unwrap();
    let advice = advice.trim_end().strip_suffix(ends);
    assert!(advice.is_some(), "{said}");
    for flags in advice.unwrap().split(", or ") {
        let (flag, value) = flags.split_once(' ').unwrap();
        let capacity = if flag == "--op" { "--capacity=64M" } else { "" };
        let flags: Vec<_> = [flag, value, capacity]
            .into_iter()
            .filter(|f| !f.is_empty())
            .collect();
        ok(&[run, &flags].concat());
    }
}

#[test]
fn a_fio_job_file_is_a_load_and_its_errors_name_the_line() {
    let dir = dir();
    let path = dir.path().join("job.fio");
    let option = format!("--fio={}", path.display());
    let job = "[global]\nioengine=libaio\niodepth=4\n[mine]\nrw=randwrite\nsize=16m\nbs=8k\n";
    fs::write(&path, job).unwrap();
    let drive = ["--device=oftl", "--capacity=256M", "--policy=base"];
    let small = ["lab", "run", &option, "--device=emmc", "--policy=base"];
    advice_holds(&small, " is enough");
    let two = [&small[..], &["--policy=vellum"]].concat();
    advice_holds(&two, " is enough for all 2 policies");
    let run = [&["lab", "run", &option][..], &drive].concat();
    let table = ok(&run);
    for said in ["the job mine, requests of 8.0 KiB", "2048"] {
        assert!(table.contains(said), "{table}");
    }
    fails(
        2,
        &[&run[..], &["--depth=2"]].concat(),
        &["cannot be used with"],
    );
    let two = format!("{job}group_reporting\n[other]\nstonewall\nrw=trim\nsize=8m\n");
    fs::write(&path, two).unwrap();
    let table = ok(&run);
    for said in [
        "mine: randwrite, 8k",
        "other: trim, 4k",
        "changes nothing here: group_reporting",
        "tenant other",
    ] {
        assert!(table.contains(said), "{table}");
    }
    fs::write(&path, format!("{job}verify=md5\n")).unwrap();
    fails(2, &run, &["line 8: verify: it is not modelled"]);
}
