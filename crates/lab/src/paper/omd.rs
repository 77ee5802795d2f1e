//! OrderMergeDedup (Chen and Shen, FAST 2016): what deduplication writes when its tables are kept consistent by the
//! order of writes, in five configurations, under weak (figure 2) and strong persistence (figure 3).

mod btree;
mod dmdedup;
mod loads;

use super::cell::{Cell, run};
use super::claim::{Claim, Range, Stated, range};
use super::evaluation::{Evaluation, Frame};
use super::failure::PaperError;
use super::list::Listed;
use super::scenarios::{scenario, workload};
use super::size::Size;
use crate::outcome::Outcome;
use crate::scenario::{self, Precondition, Scenario, Synthetic};
use crate::sim::Pace;
use crate::workload::Again;
use dmdedup::{Persistence, Written};
use loads::Load;
use std::path::Path;

/// The paper's configurations, and the log beside them.
const SYSTEMS: [(&str, &str); 6] = [
    ("plain device", "base"),
    ("shadow", "vellum:zero=off,dedup,layout=shadow"),
    (
        "ordered",
        "vellum:zero=off,dedup,layout=ordered,merging=off,anticipation=off",
    ),
    (
        "+ merging",
        "vellum:zero=off,dedup,layout=ordered,anticipation=off",
    ),
    ("+ anticipation", "vellum:zero=off,dedup,layout=ordered"),
    ("log", "vellum:zero=off,dedup"),
];
const PLAIN: usize = 0;
const SHADOW: usize = 1;
const WHOLE: usize = 4;

/// The most requests of the application open at a time.
const DEPTH: u32 = 16;

/// Two layers, one above the other.
const STACKS: [(&str, &str); 4] = [
    ("the drive alone", "base"),
    ("log", "vellum:dedup,on-drive"),
    ("ordered", "vellum:dedup,layout=ordered,on-drive"),
    ("shadow", "vellum:dedup,layout=shadow,on-drive"),
];

/// What the paper states for one kind of persistence, in percent.
struct Says {
    figure: &'static str,
    strong: bool,
    saved: Range,
    /// How far from the ideal, in points, if it says so.
    from_ideal: Option<f64>,
    /// How much more Dmdedup writes than the plain device.
    dmdedup: (&'static str, Range),
    install: Range,
}

const SAYS: [Says; 2] = [
    Says {
        figure: "Figure 2: weak persistence",
        strong: false,
        saved: (18.0, 63.0),
        from_ideal: Some(5.0),
        dmdedup: ("-33 to -7%, and 7% on BBench", (-33.0, 7.0)),
        install: (11.0, 15.0),
    },
    Says {
        figure: "Figure 3: strong persistence",
        strong: true,
        saved: (15.0, 51.0),
        from_ideal: None,
        dmdedup: ("400 to 1100%: 5 to 12 times as much", (400.0, 1100.0)),
        install: (37.0, 42.0),
    },
];

impl Says {
    fn persistence(&self) -> &'static str {
        match self.strong {
            true => "strong",
            false => "weak",
        }
    }
}

fn listed() -> Vec<Listed> {
    vec![
        Listed::run(
            "Figure 2 (A)",
            "blocks written, weak persistence",
            SAYS[0].figure,
        )
        .but("Dmdedup counted, not run"),
        Listed::run(
            "Figure 2 (B)",
            "execution time, weak persistence",
            SAYS[0].figure,
        )
        .but("in brackets; Dmdedup's is not known, `shadow` stands beside"),
        Listed::run(
            "Figure 3 (A)",
            "blocks written, strong persistence",
            SAYS[1].figure,
        )
        .but("Dmdedup counted, not run"),
        Listed::run(
            "Figure 3 (B)",
            "execution time, strong persistence",
            SAYS[1].figure,
        )
        .but("in brackets; Dmdedup's is not known, `shadow` stands beside"),
        Listed::run("Section 4.4, table", "space saved", SAYS[0].figure).but("its column of space"),
        Listed::not(
            "Section 4.1, tables",
            "latencies of the paper's two devices",
            "measurements: taken as the setting (omd-tablet and omd-server)",
        ),
    ]
}

const MADE: &str = "Loads: synthetic, with the paper's shares of duplicates and as much space as its workloads write to (section 4.4); requests, their order, their flushes \
and the time between them are made up. The paper's devices, new: the omd-server device for the last two loads (a write of 4 KiB takes 4.7 ms there, more at a time share 520 MB/s), omd-tablet for the others (2.9 ms, one at a time).";

const CAPTURED: &str = "Loads: traces of real activity, recorded below an ext4 (benches/capture.sh); *duplicates* are measured: blocks written whose content the \
trace had written before. The volume is empty at first, so contents that were there before the recording are not found. The moderate-ssd device (520 MB/s, 30 us a write, 100 us a read, 1 ms a flush), new.";

const SETTING: &str = "The application asks for its next request as long after the last as the \
load's times say, 16 at a time, and waits for its flushes. Blocks written, tables and roots and what was held back included, in per cent of what the plain device writes; in brackets the time of the whole \
load over the plain device's (under strong persistence it writes each request durably). *Dmdedup*: what its copy-on-write B-trees would write, counted and not run. *Ideal*: each content once. *Space*: of the blocks written to, how many are not stored, with everything (+ \
anticipation). Blocks of zeros are contents like others. Hashing takes no time; equal blocks are compared, which reads them.";

/// Runs the evaluation.
///
/// # Errors
/// When a run fails, or a trace cannot be read.
pub fn evaluate(
    size: Size,
    threads: usize,
    traces: Option<&Path>,
) -> Result<Evaluation, PaperError> {
    let (loads, about) = match traces {
        Some(directory) => (loads::captured(directory)?, CAPTURED),
        None => (loads::made(size), MADE),
    };
    let mut frames = Vec::new();
    let mut commits = Vec::new();
    for stated in &SAYS {
        let (frame, rows) = figure(&loads, stated, about, threads)?;
        frames.push(frame);
        commits.extend(rows);
    }
    frames.push(commits_of(commits));
    frames.push(stacked(size, threads)?);
    let mut missing = vec![
        "The paper's traces are not public. Dmdedup itself: it is a kernel module for Linux 3.x and 4.x; `shadow` is our tables, shadowed and committed by a root.".into(),
    ];
    if traces.is_some() {
        missing.push("A camera: there is none here; the frames that benches/capture.sh has stored are made up.".into());
    }
    Ok(Evaluation {
        paper: "OrderMergeDedup: efficient, failure-consistent deduplication on flash (Chen and Shen, 2016)".into(),
        frames,
        missing,
        list: listed(),
    })
}

/// A load under a system: percent of the plain device's blocks, and its time relative to the plain device's.
#[derive(Clone, Copy, Default)]
struct Shown {
    percent: f64,
    time: f64,
}

/// A load on an empty volume.
fn run_of(load: &Load, durable: bool) -> Scenario<'_> {
    let requests = if durable {
        &load.durable
    } else {
        &load.requests
    };
    // Twice the room: space is not what is measured.
    let capacity = (load.blocks * 2 * 4096).max(256 << 20);
    let nothing = Synthetic::new(workload("uniform"));
    let mut scenario = Scenario {
        load: scenario::Load::Requests(requests),
        pace: Pace::Elastic {
            depth: DEPTH,
            think: None,
        },
        ..scenario(load.device, capacity, nothing)
    };
    scenario.device.over_provisioning = Some(900);
    scenario
}

fn figure(
    loads: &[Load],
    stated: &Says,
    about: &str,
    threads: usize,
) -> Result<(Frame, Vec<Vec<String>>), PaperError> {
    let mut cells = Vec::new();
    for (index, load) in loads.iter().enumerate() {
        for (system, (name, policy)) in SYSTEMS.into_iter().enumerate() {
            let plain = system == PLAIN;
            let policy = match stated.strong && !plain {
                true => format!("{policy},persistence=strong"),
                false => policy.into(),
            };
            let scenario = run_of(load, stated.strong && plain);
            let what = format!("{}, {name}", load.name);
            cells.push(Cell::new((index, system), what, scenario, &policy)?);
        }
    }
    let outcomes = run(cells, threads)?;
    let of = |index: usize, system: usize| {
        let found = outcomes.iter().find(|(key, _)| *key == (index, system));
        found.map(|(_, outcome)| outcome)
    };
    let shown = |index: usize, system: usize| match (of(index, system), of(index, PLAIN)) {
        (Some(outcome), Some(plain)) => Shown {
            percent: outcome.medium_blocks() as f64 * 100.0 / plain.medium_blocks().max(1) as f64,
            time: outcome.seconds / plain.seconds.max(1e-9),
        },
        _ => Shown::default(),
    };
    let space = |index: usize| {
        let live = of(index, WHOLE).map_or(0, |outcome| outcome.counted("live_blocks"));
        100.0 - live as f64 * 100.0 / loads[index].shares.touched.max(1) as f64
    };
    let persistence = match stated.strong {
        true => Persistence::Strong,
        false => Persistence::Weak,
    };
    let counted: Vec<Written> = loads
        .iter()
        .map(|load| dmdedup::count(&load.requests, persistence))
        .collect();
    let dmdedup = |index: usize| {
        let plain = of(index, PLAIN).map_or(0, Outcome::medium_blocks);
        counted[index].total() as f64 * 100.0 / plain.max(1) as f64
    };
    let (mut rows, mut commits) = (Vec::new(), Vec::new());
    for (index, load) in loads.iter().enumerate() {
        let what = [load.name.clone(), stated.persistence().into()];
        commits.push(commit_of_dmdedup(&what, &counted[index]));
        commits.extend(of(index, SHADOW).map(|outcome| commit_of_shadow(&what, outcome)));
        let mut row = vec![
            load.name.clone(),
            load.shares.written.to_string(),
            format!("{:.0}%", load.shares.percent()),
            format!("{:.1}", load.ideal()),
            format!("{:.1}", dmdedup(index)),
        ];
        row.extend((SHADOW..SYSTEMS.len()).map(|system| {
            let Shown { percent, time } = shown(index, system);
            format!("{percent:.1} ({time:.2})")
        }));
        row.push(format!("{:.0}%", space(index)));
        rows.push(row);
    }
    let columns = ["load", "blocks written", "duplicates", "ideal", "Dmdedup"];
    let names = SYSTEMS[SHADOW..].iter().map(|(name, _)| *name);
    let columns: Vec<&str> = columns.into_iter().chain(names).chain(["space"]).collect();
    let all: Vec<Seen> = (0..loads.len())
        .map(|index| Seen {
            ideal: loads[index].ideal(),
            whole: shown(index, WHOLE),
            shadow: shown(index, SHADOW),
            dmdedup: dmdedup(index),
            space: space(index),
            name: &loads[index].name,
        })
        .collect();
    let setting = format!("{about} {SETTING}");
    let frame = Frame::new(stated.figure, &setting, &columns)
        .rows(rows)
        .claims(claims(stated, &all));
    Ok((frame, commits))
}

/// Why our shadowing costs less than Dmdedup's: what each writes for a commit.
fn commits_of(rows: Vec<Vec<String>>) -> Frame {
    let setting = "Not in the paper. Blocks written for a commit, on average, beside data. Of Dmdedup's trees the inner blocks are with their leaves; under strong persistence it commits after each \
                   block. *Shadow* commits then, too, but what comes while a commit is under way shares the next one; and a fingerprint lies where its block of data does, so new contents that are stored \
                   side by side share a block of them, where an index by hash has a leaf for nearly each. Its root is a header and a table, in two copies: four blocks at least.";
    let columns = [
        "load",
        "persistence",
        "system",
        "commits",
        "map",
        "hashes or fingerprints",
        "counts and free space",
        "directory",
        "root",
        "all",
    ];
    Frame::new("What a commit of shadowing writes", setting, &columns).rows(rows)
}

/// A row of the table: how many commits, and the blocks of all commits by cause.
fn commit_row(what: &[String; 2], system: &str, commits: u64, causes: [u64; 5]) -> Vec<String> {
    let each = |blocks: u64| match blocks {
        0 => "-".into(),
        _ => format!("{:.1}", blocks as f64 / commits.max(1) as f64),
    };
    let mut row = what.to_vec();
    row.extend([system.into(), commits.to_string()]);
    row.extend(causes.map(each));
    row.push(each(causes.iter().sum()));
    row
}

fn commit_of_dmdedup(what: &[String; 2], written: &Written) -> Vec<String> {
    let Written {
        map,
        hashes,
        space,
        roots,
        ..
    } = *written;
    let causes = [map, hashes, space, 0, roots];
    commit_row(what, "Dmdedup", written.commits, causes)
}

fn commit_of_shadow(what: &[String; 2], outcome: &Outcome) -> Vec<String> {
    let causes = ["links", "fingerprints", "counts", "directory", "map"];
    let causes = causes.map(|cause| outcome.counted(&format!("medium_{cause}")));
    commit_row(what, "shadow", outcome.counted("commits"), causes)
}

/// What is compared with the paper's statements, for one load.
struct Seen<'a> {
    name: &'a str,
    ideal: f64,
    whole: Shown,
    shadow: Shown,
    /// In percent of the plain device's blocks.
    dmdedup: f64,
    space: f64,
}

fn claims(stated: &Says, all: &[Seen<'_>]) -> Vec<Claim> {
    let scattered = match stated.strong {
        true => {
            "a write that comes alone is three blocks: its data, its count, its link. Only what comes while a commit is under way, or lies in the same blocks of the tables, shares \
             them; the times between the paper's requests are not known"
        }
        false => {
            "each flush writes a block of the map and of the counts for each place that was touched since the last: a load whose writes lie apart, or that flushes after few of \
             them, pays one or two blocks of tables a block of data; the requests of the paper's loads are not known"
        }
    };
    let each = |of: &dyn Fn(&Seen<'_>) -> f64| list(all, of);
    let least = stated.saved.0;
    let loads = |of: &dyn Fn(&Seen<'_>) -> f64, which: &dyn Fn(&Seen<'_>) -> bool| {
        range(all.iter().filter(|seen| which(seen)).map(of))
    };
    let every = |_: &Seen<'_>| true;
    let saved = |seen: &Seen<'_>| 100.0 - seen.whole.percent;
    let enough = |seen: &Seen<'_>| 100.0 - seen.ideal >= least;
    let mut claims = vec![Claim::new(
        format!(
            "fewer blocks than the plain device, each load with {least:.0}% duplicates or more"
        ),
        format!("{least:.0} to {:.0}%", stated.saved.1),
        each(&saved),
        Stated::range(stated.saved, loads(&saved, &enough)).over(0.0),
        scattered,
    )];
    if let Some(theirs) = stated.from_ideal {
        let off = |seen: &Seen<'_>| seen.whole.percent - seen.ideal;
        let near = all.iter().filter(|seen| off(seen) <= theirs).count();
        claims.push(Claim::new(
            "points from the ideal",
            format!("within {theirs}, all loads"),
            format!(
                "{near} of {} are: {}",
                all.len(),
                each(&off).replace('%', "")
            ),
            Stated::AtMost {
                theirs,
                ours: loads(&off, &every).1,
            },
            scattered,
        ));
    }
    claims.extend(shadowing(stated, all));
    claims.extend(times(stated, all));
    let space = |seen: &Seen<'_>| seen.space;
    claims.push(Claim::new(
        "space saved",
        "22 to 56%",
        each(&space),
        Stated::range((22.0, 56.0), loads(&space, &every)).over(0.0),
        "of the blocks in use at the end fewer are duplicates than of those written, where a load overwrites what it wrote; and no load can save more than its duplicates",
    ));
    claims
}

/// Lists a figure for each load, in whole percent.
fn list(all: &[Seen<'_>], of: impl Fn(&Seen<'_>) -> f64) -> String {
    let each = all
        .iter()
        .map(|seen| format!("{} {:.0}%", seen.name, of(seen)));
    each.collect::<Vec<_>>().join(", ")
}

/// The time of a load relative to the plain device's.
fn times(stated: &Says, all: &[Seen<'_>]) -> Vec<Claim> {
    let time = |seen: &Seen<'_>| (seen.whole.time - 1.0) * 100.0;
    let installs = |seen: &&Seen<'_>| seen.name.starts_with("install");
    let others = |seen: &&Seen<'_>| !installs(seen);
    let steps = "a commit has two steps one after the other (what links lead to, then links), each written and synced, where the plain device has one; the times between the paper's \
                 requests are not known";
    let times = list(all, time).replace("-0%", "0%");
    let mut claims = vec![Claim::new(
        "time of the load over the plain device's, but for an installation",
        "within 5%",
        &times,
        Stated::AtMost {
            theirs: 5.0,
            ours: range(all.iter().filter(others).map(time)).1,
        },
        steps,
    )];
    if all.iter().any(|seen| installs(&seen)) {
        claims.push(Claim::new(
            "the same, an installation",
            format!("{:.0} to {:.0}%", stated.install.0, stated.install.1),
            &times,
            Stated::range(stated.install, range(all.iter().filter(installs).map(time))).over(0.0),
            steps,
        ));
    }
    claims
}

/// What shadowing writes: Dmdedup's count, and ours.
fn shadowing(stated: &Says, all: &[Seen<'_>]) -> [Claim; 2] {
    let shadow = range(
        all.iter()
            .map(|seen| seen.shadow.percent / seen.whole.percent),
    );
    let dmdedup = range(all.iter().map(|seen| seen.dmdedup / seen.whole.percent));
    let more = |seen: &Seen<'_>| seen.dmdedup - 100.0;
    let (theirs, figures) = stated.dmdedup;
    let why = "what a commit of each writes, and how many there are, is counted below; the paper's loads are not known";
    [
        Claim::words(
            "shadowing loses to order and merging",
            "Dmdedup writes more",
            format!(
                "Dmdedup, counted, {:.2} to {:.2} times as much, our shadow {:.2} to {:.2} times",
                dmdedup.0, dmdedup.1, shadow.0, shadow.1
            ),
            dmdedup.0 >= 1.0,
        )
        .because(why),
        Claim::new(
            "what Dmdedup, counted, writes more than the plain device",
            theirs,
            list(all, more),
            Stated::range(figures, range(all.iter().map(more))).over(0.0),
            why,
        ),
    ]
}

/// Each layout above a drive with its own translation layer: both write amplifications.
fn stacked(size: Size, threads: usize) -> Result<Frame, PaperError> {
    let capacity = match size {
        Size::Tiny => 128 << 20,
        Size::Short => 512 << 20,
        Size::Full => 4 << 30,
    };
    let mut cells = Vec::new();
    for (load, flush_every) in [("zipf", 32), ("uniform", 32), ("uniform", 1024)] {
        for (name, policy) in STACKS {
            let synthetic = Synthetic {
                duplicates: 30,
                again: Again::Soon,
                flush_every,
                ..Synthetic::new(workload(load))
            };
            let mut scenario = scenario("oftl", capacity, synthetic);
            scenario.device.over_provisioning = Some(280);
            scenario.precondition = Precondition::Fill;
            let what = format!("{load}, {name}");
            cells.push(Cell::new(
                (load, flush_every, name),
                what,
                scenario,
                policy,
            )?);
        }
    }
    let outcomes = run(cells, threads)?;
    let mut alone = 0.0;
    let mut rows = Vec::new();
    for ((load, flush_every, name), outcome) in &outcomes {
        let erases = outcome.life.as_ref().map_or(0, |life| life.erases);
        let per_write = erases as f64 / outcome.host_written.max(1) as f64;
        if *name == STACKS[0].0 {
            alone = per_write;
        }
        let (engine, drive) = amplifications(outcome);
        rows.push(vec![
            format!("{load}, a flush after {flush_every}"),
            (*name).into(),
            format!("{engine:.2}"),
            format!("{drive:.2}"),
            format!("{:.2}", engine * drive),
            format!("{:.2}", per_write / alone),
        ]);
    }
    let setting = "Not in the paper. The oftl device with its page map (greedy), 28% over-provisioning (below the log the drive keeps a third of it, below tables all but 5%), filled, then overwritten twice, 4 KiB at a time, 32 at a time; 30% of the \
                   blocks have a content that was written before, mostly not long before. Synthetic. Write amplification of the layout, of the drive under it, and of both; erasures a block of the \
                   host's over those of the drive alone.";
    let columns = ["load", "system", "layout", "drive", "both", "erasures"];
    let name = "Above a drive with a translation layer of its own";
    Ok(Frame::new(name, setting, &columns).rows(rows))
}

fn amplifications(outcome: &Outcome) -> (f64, f64) {
    match outcome.stacked {
        Some(stacked) => (stacked.engine, stacked.drive),
        None => (1.0, outcome.write_amplification.unwrap_or_default()),
    }
}
