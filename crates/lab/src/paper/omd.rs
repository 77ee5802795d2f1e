//! OrderMergeDedup (Chen and Shen, FAST 2016): what deduplication writes when its tables are kept consistent by the
//! order of writes, in five configurations, under weak (figure 2) and strong persistence (figure 3).

mod btree;
mod dmdedup;
mod experiments;
mod loads;
mod says;

use super::cell::{Cell, run};
use super::evaluation::{Evaluation, Frame};
use super::failure::PaperError;
use super::list::Listed;
use super::scenarios::{scenario, workload};
use super::size::Size;
use crate::outcome::Outcome;
use crate::scenario::{Precondition, Synthetic};
use crate::workload::Again;
use dmdedup::{Persistence, Written};
use loads::{Load, Made};
use says::{PLAIN, SAYS, SHADOW, SYSTEMS, Says, Seen, Shown, WHOLE, claims, run_of, space};
use std::path::Path;

/// Two layers, one above the other.
const STACKS: [(&str, &str); 4] = [
    ("the drive alone", "base"),
    ("log", "vellum:dedup,on-drive"),
    ("ordered", "vellum:dedup,layout=ordered,on-drive"),
    ("shadow", "vellum:dedup,layout=shadow,on-drive"),
];

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
            "Section 4.5, table",
            "energy of the mobile workloads",
            "the power of a whole tablet, 6 to 7 W, times the run time: the lab counts the energy of the \
             flash alone; the run times are those of figure 2 (B)",
        ),
        Listed::not(
            "Section 4.1, tables",
            "latencies of the paper's two devices",
            "measurements: taken as the setting (omd-tablet and omd-server)",
        ),
    ]
}

const MADE: &str = "Loads: synthetic, with the paper's shares of duplicates and as much space as its \
                    workloads write to (section 4.4); requests, their order, their flushes and the time \
                    between them are made up. The paper's devices, new: the omd-server device for the last \
                    two loads (a write of 4 KiB takes 4.7 ms there, more at a time share 520 MB/s), \
                    omd-tablet for the others (2.9 ms, one at a time).";

const CAPTURED: &str = "Loads: traces of real activity, recorded below an ext4 (benches/capture.sh); \
                        *duplicates* are measured: blocks written whose content the trace had written \
                        before. The volume is empty at first, so contents that were there before the \
                        recording are not found. The moderate-ssd device (520 MB/s, 30 us a write, 100 us a \
                        read, 1 ms a flush), new.";

const SETTING: &str = "The application asks for its next request as long after the last as the load's times \
                       say, 16 at a time, and waits for its flushes. Blocks written, tables and roots and \
                       what was held back included, in per cent of what the plain device writes; in brackets \
                       the time of the whole load over the plain device's (under strong persistence it \
                       writes each request durably). *Dmdedup*: what its copy-on-write B-trees would write, \
                       counted and not run. *Ideal*: each content once. *Space*: of the blocks written to, \
                       how many are not stored, with everything (+ anticipation). Blocks of zeros are \
                       contents like others. Hashing takes no time; equal blocks are compared, which reads \
                       them.";

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
        None => (loads::made(size, Made::USUAL), MADE),
    };
    let mut frames = Vec::new();
    let mut commits = Vec::new();
    for stated in &SAYS {
        let figure = Figure::run(&loads, stated, threads)?;
        let mut frame = figure.frame(about);
        if traces.is_none() {
            for experiment in experiments::all(stated, size, threads)? {
                frame.try_out(experiment);
            }
        }
        frames.push(frame);
        commits.extend(figure.commits());
    }
    frames.push(commits_of(commits));
    frames.push(stacked(size, threads)?);
    let mut missing = vec![
        "The paper's traces are not public. Dmdedup itself: it is a kernel module for Linux 3.x and 4.x; \
         `shadow` is our tables, shadowed and committed by a root.".into(),
    ];
    if traces.is_some() {
        missing.push(
            "A camera: there is none here; the frames that benches/capture.sh has stored are made \
                      up."
            .into(),
        );
    }
    Ok(Evaluation {
        paper:
            "OrderMergeDedup: efficient, failure-consistent deduplication on flash (Chen and Shen, \
                2016)"
                .into(),
        frames,
        missing,
        list: listed(),
    })
}

/// The runs of one figure, and what Dmdedup would write for each load.
struct Figure<'a> {
    loads: &'a [Load],
    stated: &'a Says,
    /// By load and by system.
    outcomes: Vec<((usize, usize), Outcome)>,
    counted: Vec<Written>,
}

impl<'a> Figure<'a> {
    fn run(loads: &'a [Load], stated: &'a Says, threads: usize) -> Result<Self, PaperError> {
        let mut cells = Vec::new();
        for (index, load) in loads.iter().enumerate() {
            for (system, (name, policy)) in SYSTEMS.into_iter().enumerate() {
                let plain = system == PLAIN;
                let policy = stated.policy(policy, plain);
                let scenario = run_of(load, stated.strong && plain);
                let what = format!("{}, {name}", load.name);
                cells.push(Cell::new((index, system), what, scenario, &policy)?);
            }
        }
        let persistence = match stated.strong {
            true => Persistence::Strong,
            false => Persistence::Weak,
        };
        let count = |load: &Load| dmdedup::count(&load.requests, persistence);
        Ok(Self {
            loads,
            stated,
            outcomes: run(cells, threads)?,
            counted: loads.iter().map(count).collect(),
        })
    }

    fn of(&self, load: usize, system: usize) -> Option<&Outcome> {
        let mut outcomes = self.outcomes.iter();
        let (_, outcome) = outcomes.find(|(key, _)| *key == (load, system))?;
        Some(outcome)
    }

    fn shown(&self, load: usize, system: usize) -> Shown {
        match (self.of(load, system), self.of(load, PLAIN)) {
            (Some(outcome), Some(plain)) => Shown::of(outcome, plain),
            _ => Shown::default(),
        }
    }

    fn space(&self, load: usize) -> f64 {
        let whole = self.of(load, WHOLE);
        whole.map_or(0.0, |whole| space(&self.loads[load], whole))
    }

    /// What Dmdedup writes, in per cent of what the plain device writes.
    fn dmdedup(&self, load: usize) -> f64 {
        let plain = self.of(load, PLAIN).map_or(0, Outcome::medium_blocks);
        self.counted[load].total() as f64 * 100.0 / plain.max(1) as f64
    }

    /// What each system of shadowing writes for a commit.
    fn commits(&self) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        for (index, load) in self.loads.iter().enumerate() {
            let what = [load.name.clone(), self.stated.persistence().into()];
            rows.push(commit_of_dmdedup(&what, &self.counted[index]));
            let shadow = self.of(index, SHADOW);
            rows.extend(shadow.map(|outcome| commit_of_shadow(&what, outcome)));
        }
        rows
    }

    fn row(&self, index: usize) -> Vec<String> {
        let load = &self.loads[index];
        let mut row = vec![
            load.name.clone(),
            load.shares.written.to_string(),
            format!("{:.0}%", load.shares.percent()),
            format!("{:.1}", load.ideal()),
            format!("{:.1}", self.dmdedup(index)),
        ];
        row.extend((SHADOW..SYSTEMS.len()).map(|system| {
            let Shown { percent, time } = self.shown(index, system);
            format!("{percent:.1} ({time:.2})")
        }));
        row.push(format!("{:.0}%", self.space(index)));
        row
    }

    fn seen(&self, index: usize) -> Seen<'a> {
        let load = &self.loads[index];
        Seen {
            ideal: load.ideal(),
            whole: self.shown(index, WHOLE),
            shadow: self.shown(index, SHADOW),
            dmdedup: self.dmdedup(index),
            space: self.space(index),
            name: &load.name,
        }
    }

    fn frame(&self, about: &str) -> Frame {
        let columns = ["load", "blocks written", "duplicates", "ideal", "Dmdedup"];
        let names = SYSTEMS[SHADOW..].iter().map(|(name, _)| *name);
        let columns: Vec<&str> = columns.into_iter().chain(names).chain(["space"]).collect();
        let all: Vec<Seen> = (0..self.loads.len()).map(|load| self.seen(load)).collect();
        let setting = format!("{about} {SETTING}");
        Frame::new(self.stated.figure, &setting, &columns)
            .rows((0..self.loads.len()).map(|load| self.row(load)))
            .claims(claims(self.stated, &all))
    }
}

/// Why our shadowing costs less than Dmdedup's: what each writes for a commit.
fn commits_of(rows: Vec<Vec<String>>) -> Frame {
    let setting = "Not in the paper. Blocks written for a commit, on average, beside data. Of Dmdedup's \
                   trees the inner blocks are with their leaves; under strong persistence it commits after \
                   each block. *Shadow* commits then, too, but what comes while a commit is under way shares \
                   the next one; and a fingerprint lies where its block of data does, so new contents that \
                   are stored side by side share a block of them, where an index by hash has a leaf for \
                   nearly each. Its root is a header and a table, in two copies: four blocks at least.";
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
    let setting = "Not in the paper. The oftl device with its page map (greedy), 28% over-provisioning \
                   (below the log the drive keeps a third of it, below tables all but 5%), filled, then \
                   overwritten twice, 4 KiB at a time, 32 at a time; 30% of the blocks have a content that \
                   was written before, mostly not long before. Synthetic. Write amplification of the layout, \
                   of the drive under it, and of both; erasures a block of the host's over those of the \
                   drive alone.";
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
