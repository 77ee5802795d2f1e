//! Comparisons: the same on one thread or many, as table, CSV and HTML, and the HTML in a real browser.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

use std::io::Write;
use std::process::Command;
#[path = "common/sized.rs"]
mod sized;

use sized::sized;
use vellum_lab::compare;
use vellum_lab::csv;
use vellum_lab::drives;
use vellum_lab::html::{self, Preface};
use vellum_lab::journal::{Commit, File, Journal, Mode};
use vellum_lab::outcome::Outcome;
use vellum_lab::policy::Policy;
use vellum_lab::progress::Watch;
use vellum_lab::report;
use vellum_lab::scenario::{Device, Load, Precondition, Scenario, Synthetic};
use vellum_lab::sim::Pace;
use vellum_lab::sweep::{self, Axis, PointResult};
use vellum_lab::workload;

fn scenario() -> Scenario<'static> {
    Scenario {
        pace: Pace::Closed { depth: 8 },
        precondition: Precondition::Fill,
        seed: 3,
        ..Scenario::new(
            Device {
                capacity: Some(512 << 20),
                over_provisioning: Some(300),
                ..Device::new(drives::own("oftl"))
            },
            Load::Synthetic(Synthetic {
                requests: sized(8_000, 20_000),
                duplicates: 20,
                flush_every: 50,
                journal: Some(Journal {
                    mode: Mode::Data,
                    blocks: 2048,
                    commit: Commit::TwoFlushes,
                    fsync_flushes: true,
                    write_back: 0,
                    file: File::Overwritten,
                }),
                ..Synthetic::new(*workload::find("zipf").unwrap())
            }),
        )
    }
}

fn policies() -> Vec<Policy> {
    compare::policies(&drives::own("oftl"), compare::Known::of(&scenario()))
}

fn run(threads: usize) -> Vec<Outcome> {
    let (outcomes, failed) = compare::run(&scenario(), &policies(), &[], threads);
    assert!(failed.is_empty(), "{failed:?}");
    outcomes
}

/// The report opens with the policy that wrote least, whatever the order, and reports a loss as plainly as a win. It
/// says nothing of runs that had not settled.
#[test]
fn a_comparison_opens_with_one_sentence() {
    let mut outcomes = run(2);
    let table = report::table(&outcomes);
    assert!(table.starts_with("It is not known whether "), "{table}");
    assert!(table.contains("NOT SETTLED"), "{table}");
    for outcome in &mut outcomes {
        outcome.sure.settled = Some(true);
    }
    let wa = |o: &Outcome| o.write_amplification.unwrap();
    let best = outcomes[1..].iter().min_by(|a, b| wa(a).total_cmp(&wa(b)));
    let (best, first) = (best.unwrap().clone(), outcomes[0].clone());
    let less = 100.0 * (1.0 - wa(&best) / wa(&first));
    assert!(less > 1.0, "nothing to tell: {less}");
    let said = format!(
        "On this drive, with this load, {} instead of {}: ",
        best.policy, first.policy
    );
    let table = report::table(&outcomes);
    assert!(table.starts_with(&said), "{table}");
    let opening = table.lines().next().unwrap();
    assert!(opening.contains(&format!(" {less:.0}% (")), "{table}");
    assert!(opening.ends_with("%) less written."), "{table}");
    outcomes = vec![best, first];
    assert!(report::table(&outcomes).contains("%) more written."));
    assert!(!report::table(&outcomes[..1]).contains("instead of"));
}

#[test]
fn cells_that_are_wider_than_their_column_stay_apart() {
    let mut outcomes = run(2);
    for life in outcomes.iter_mut().filter_map(|o| o.life.as_mut()) {
        (life.years_low, life.years, life.years_high) = (Some(11.9), Some(12.3), Some(12.8));
    }
    let table = report::table(&outcomes);
    assert!(table.contains("12.8) 12.3 ("), "{table}");
}

#[test]
fn one_thread_and_many_give_the_same_bytes() {
    let text = |threads| serde_json::to_string(&run(threads)).unwrap();
    assert_eq!(text(1), text(4));
}

#[test]
fn savings_save_alone_and_together() {
    let outcomes = run(2);
    let data = |name: &str| {
        let found = outcomes.iter().find(|outcome| outcome.policy == name);
        found.unwrap_or_else(|| panic!("{name}")).medium[0].blocks
    };
    let nothing = data("vellum:zero=off");
    let (once, dedup) = (
        data("vellum:zero=off,write-once"),
        data("vellum:zero=off,dedup"),
    );
    assert!(once * 10 < nothing * 7, "{once} of {nothing}");
    assert!(dedup < nothing, "{dedup} of {nothing}");
    // The index finds journal copies as well: together they save as much as the better one.
    let both = data("vellum:dedup,write-once");
    assert!(
        both * 100 < once.min(dedup) * 102,
        "{both}, {once}, {dedup}"
    );
}

#[test]
fn csv_has_a_line_per_policy_with_equally_many_cells() {
    let outcomes = run(2);
    let text = csv::lines(&outcomes);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), outcomes.len() + 1);
    // Names with commas are quoted.
    let cells = |line: &str| {
        let mut quoted = false;
        let separators = line.chars().filter(|&c| {
            quoted ^= c == '"';
            c == ',' && !quoted
        });
        separators.count()
    };
    assert!(lines.iter().all(|line| cells(line) == cells(lines[0])));
    assert!(lines[0].contains("write_amplification") && text.contains("\"vellum:zero=off,dedup\""));
}

#[test]
fn a_policy_that_does_not_fit_does_not_stop_the_others() {
    let mut scenario = scenario();
    scenario.device.over_provisioning = Some(20);
    let (outcomes, failed) = compare::run(&scenario, &policies(), &[], 2);
    assert!(!outcomes.is_empty() && !failed.is_empty());
    assert!(
        failed
            .iter()
            .all(|f| f.source.to_string().contains("capacity"))
    );
}

#[test]
fn a_run_that_is_ended_says_so() {
    let watches = [Watch::default()];
    watches[0].stop();
    let (outcomes, failed) = compare::run(&scenario(), &policies()[..1], &watches, 1);
    assert!(failed.is_empty() && outcomes[0].partial);
    assert!(report::table(&outcomes).contains("PARTIAL"));
}

/// Helpers for every reader of a report; the page's own script has run before.
const HELP: &str = r##"<script>
const problems = [];
const is = (what, right) => { if (!right) problems.push(what); };
const figures = [...document.querySelectorAll("#plots figure")];
is("numbers", !/NaN|Infinity|undefined/.test(document.getElementById("plots").innerHTML));
is("nothing from elsewhere", performance.getEntriesByType("resource").length === 0);
const lines = figures.find((figure) => figure.dataset.range);
const range = () => lines.dataset.range.split(" ").map(Number);
const told = () => lines.querySelector(".tip").textContent;
const send = (kind, x, y) => {
  const svg = lines.querySelector("svg"), box = svg.getBoundingClientRect();
  const at = { clientX: box.left + box.width * x, clientY: box.top + box.height * y, bubbles: true };
  svg.dispatchEvent(new PointerEvent(kind, at));
};
const press = (key) => {
  const event = new KeyboardEvent("keydown", { key, bubbles: true });
  document.activeElement.dispatchEvent(event);
};
const done = () => {
  const isBeyond = (it) => it.getBoundingClientRect().right > innerWidth;
  const beyond = [...document.querySelectorAll("body *")].filter(isBeyond);
  const names = beyond.map((it) => `${it.tagName} ${it.className}`).join();
  const fits = document.documentElement.scrollWidth <= innerWidth;
  is(`nothing beyond the edge at ${innerWidth}: ${names}`, fits);
  document.documentElement.dataset.problems = problems.join("; ") || "none";
};
</script>"##;

/// What a reader does with a comparison, and the expected results.
const READER: &str = r##"<script>{
is("plots", figures.length >= 4 && document.documentElement.dataset.drawn === String(figures.length));
const before = range();
send("pointerdown", 0.4, 0.3); send("pointermove", 0.6, 0.6);
is("tip", told().includes("microseconds"));
send("pointerup", 0.6, 0.6);
const zoomed = range();
is("zoom", zoomed[0] > before[0] && zoomed[1] < before[1] && zoomed[3] < before[3]);
lines.querySelector("svg").dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));
is("zoom back", range().join() === before.join());
const drawn = () => lines.querySelectorAll("path[data-name]").length, all = drawn();
lines.querySelector(".legend button").click();
is("hide", drawn() === all - 1);
lines.querySelector(".legend button").click();
// The axis counts nines, and what is nearly all is not told as all.
const texts = (figure) => [...figure.querySelectorAll("svg text")].map((text) => text.textContent);
is("tail", ["0%", "90%", "99%", "99.9%"].every((label) => texts(lines).includes(label)));
is("as far as there are requests", !texts(lines).includes("99.999%"));
is("nines", percent(0.9999) === "99.99%" && percent(0.5) === "50%" && percent(1) === "100%");
const titles = [...document.querySelectorAll("#plots h2")].map((title) => title.textContent);
is("over time", titles.some((title) => title.startsWith("Write amplification in the course")));
is("table", document.querySelector("pre").textContent.includes("write amplification"));
done();
}</script>"##;

/// What a reader does with a sweep, and the expected results.
const SWEEP: &str = r##"<script>{
is("plots", figures.length === 2 && document.querySelectorAll("#plots svg[role=img]").length === 2);
is("points", lines.querySelectorAll("circle").length === 5);
const before = range();
send("pointermove", 0.1, 0.5);
is("the nearest run", told() === "op: 7\nbase: 1.50\nvellum: 2.50");
// Without a mouse: from run to run, closer, and back.
lines.querySelector(".plot").focus();
press("ArrowRight"); press("ArrowRight"); press("ArrowRight");
is("by keys", told() === "op: 28\nbase: 3.50\nvellum: -");
press("ArrowLeft"); press("+");
is("the run in sight", told() === "op: 15\nbase: 2.50\nvellum: 3.50");
const zoomed = range();
is("zoom", zoomed[0] > before[0] && zoomed[1] < before[1] && zoomed[0] < 15 && zoomed[1] > 15);
press("-"); press("-");
is("zoom out", range().join() === before.join());
press("+"); press("0");
is("all of it", range().join() === before.join());
is("still there", document.activeElement === lines.querySelector(".plot"));
lines.querySelector(".legend button").click();
is("hide", lines.querySelectorAll("circle").length === 2);
is("table", document.querySelectorAll("tr").length === 7);
done();
}</script>"##;

#[test]
fn a_sweep_is_one_file_to_look_into() {
    let axes: Vec<Axis> = ["policy=base vellum", "op=7 15 28"]
        .iter()
        .map(|text| text.parse().unwrap())
        .collect();
    let mut rows = Vec::new();
    for (n, point) in sweep::points(&axes).unwrap().into_iter().enumerate() {
        let cell = |name: &str, figure: f64| (name.to_owned(), figure.to_string());
        let amplification = (n % 3 + n / 3) as f64 + 1.5;
        rows.push(match n {
            5 => PointResult::failed(point, "no </script> for it".into()),
            _ => PointResult {
                point,
                figures: vec![
                    cell("write_amplification", amplification),
                    cell("erases", 9.0),
                ],
                error: None,
            },
        });
    }
    let text = sweep::html(&Preface::default(), &axes, &rows).unwrap();
    one_file(&text);
    shows(&text, SWEEP);
}

#[test]
fn the_report_is_one_file_that_a_browser_shows() {
    let preface = Preface {
        title: "A </script> & a title".into(),
        lead: None,
        about: vec!["a load".into()],
        warnings: vec!["mind <this>".into()],
        command: "vellum lab compare".into(),
    };
    let outcomes = run(2);
    let text = html::render(&preface, &outcomes, &report::table(&outcomes)).unwrap();
    one_file(&text);
    shows(&text, READER);
}

/// Checks that the report requests nothing from elsewhere, and that its contents do not end its scripts.
fn one_file(text: &str) {
    assert_eq!(text.matches("</script>").count(), 2, "the two of its own");
    for outside in ["http:", "https:", "src=", "@import", "fetch("] {
        let elsewhere = text.replace("http://www.w3.org/2000/svg", "");
        assert!(!elsewhere.contains(outside), "{outside}");
    }
}

/// How wide the windows are in which a report is read: a desk's, a telephone's.
const WIDTHS: [u32; 2] = [1100, 420];

/// A page with another one in a frame of that width, for a browser's own window does not get as narrow as a telephone's.
/// It says what the other one's reader found.
fn framed(page: &str, width: u32) -> String {
    let page = page.replace('&', "&amp;").replace('"', "&quot;");
    let found = "document.documentElement.dataset.problems = \
                 this.contentDocument.documentElement.dataset.problems";
    format!(
        "<!doctype html><html><iframe width={width} height=900 style=border:0 onload=\"{found}\" \
         srcdoc=\"{page}\"></iframe></html>"
    )
}

/// Shows a report to a browser, and runs `reader` in it, which must find nothing wrong.
fn shows(text: &str, reader: &str) {
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    let works = |name: &&&str| {
        let asked = Command::new(name).arg("--version").output();
        asked.is_ok_and(|output| output.status.success())
    };
    let Some(browser) = browsers.iter().find(works) else {
        // Not with a macro: the test harness shows its output only if a test fails.
        let names = browsers.join(", ");
        let mut stderr = std::io::stderr();
        writeln!(stderr, "SKIP: no browser: none of {names}").unwrap();
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.html");
    let page = text.replace("</html>", &format!("{HELP}{reader}</html>"));
    for width in WIDTHS {
        std::fs::write(&path, framed(&page, width)).unwrap();
        let output = Command::new(browser)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
            .arg(format!(
                "--user-data-dir={}",
                folder.path().join("profile").display()
            ))
            .arg(format!("file://{}", path.display()))
            .output()
            .unwrap();
        let shown = String::from_utf8_lossy(&output.stdout);
        let head: String = shown.chars().take(400).collect();
        assert!(shown.contains("data-problems=\"none\""), "{width}: {head}");
    }
}
