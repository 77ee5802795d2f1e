//! CSA-FS: how much less is written and erased when metadata is stored as differences and data once (write traffic and
//! erasures by workload), and how many contents have to be known by their hashes for that (its table of hash entries).

use super::cell::{Cell, run};
use super::claim::{Claim, Stated};
use super::evaluation::{Evaluation, Frame};
use super::failure::PaperError;
use super::list::Listed;
use super::scenarios::{scenario, workload};
use super::size::Size;
use crate::journal::{Commit, File, Journal, Mode};
use crate::outcome::Outcome;
use crate::scenario::{Precondition, Scenario, Synthetic};
use crate::sizes;
use crate::workload::Again;

/// A workload of the paper and our substitute: load, sizes, writes per commit, percent of duplicates, and the paper's
/// figures: less traffic, fewer erasures.
struct Work {
    name: &'static str,
    load: &'static str,
    sizes: &'static str,
    window: u64,
    duplicates: u32,
    file: File,
    traffic: f64,
    erases: f64,
    /// Its speed over the plain drive's, and the statement about ours in percent.
    speed: (&'static str, fn(f64) -> Stated),
    /// Thousands of hash entries, of dedupfs and of CSA-FS.
    entries: (u32, u32),
}

const FASTER: (&str, fn(f64) -> Stated) = ("12 to 14% faster", |percent| {
    Stated::range((12.0, 14.0), (percent, percent)).over(0.0)
});

const WORKS: [Work; 3] = [
    Work {
        name: "TPC-C",
        load: "hot-cold",
        sizes: "database",
        window: 8,
        duplicates: 10,
        file: File::Overwritten,
        traffic: 77.0,
        erases: 73.0,
        speed: FASTER,
        entries: (65, 12),
    },
    Work {
        name: "TPC-W",
        load: "hot-cold",
        sizes: "mail",
        window: 16,
        duplicates: 10,
        file: File::Overwritten,
        traffic: 65.0,
        erases: 69.0,
        speed: FASTER,
        entries: (48, 17),
    },
    Work {
        name: "kernel build",
        load: "sequential",
        sizes: "source",
        window: 64,
        duplicates: 15,
        file: File::Growing,
        traffic: 55.0,
        erases: 64.0,
        speed: ("at most 7% slower", |percent| Stated::AtMost {
            theirs: 7.0,
            ours: -percent,
        }),
        entries: (111, 59),
    },
];

/// The system, how the host journals, the policy, and whether the application's data is compressible as well.
const SYSTEMS: [(&str, Mode, &str, bool); 10] = [
    ("plain drive, data=ordered", Mode::Ordered, "base", false),
    (
        "metadata as deltas, data once, data=ordered",
        Mode::Ordered,
        "vellum:victim=cost-benefit,zero=off,dedup,compress,delta",
        false,
    ),
    (
        "and data small",
        Mode::Ordered,
        "vellum:victim=cost-benefit,zero=off,dedup,compress,delta",
        true,
    ),
    (
        "dedupfs: metadata and data once, data=ordered",
        Mode::Ordered,
        "vellum:victim=cost-benefit,zero=off,dedup",
        false,
    ),
    ("plain drive, data=journal", Mode::Data, "base", false),
    (
        "all small, written once, data=journal",
        Mode::Data,
        "vellum:victim=cost-benefit,zero=off,dedup,compress,delta,write-once",
        true,
    ),
    (
        "all small, but no deltas, data=journal",
        Mode::Data,
        "vellum:victim=cost-benefit,zero=off,dedup,compress,write-once",
        true,
    ),
    (
        "metadata as deltas in buckets, data once, data=ordered",
        Mode::Ordered,
        "vellum:victim=cost-benefit,zero=off,dedup,compress,delta=log",
        false,
    ),
    (
        "all small, written once, deltas in buckets, data=journal",
        Mode::Data,
        "vellum:victim=cost-benefit,zero=off,dedup,compress,delta=log,write-once",
        true,
    ),
    (
        "all small, written once and replayed by the volume, data=journal",
        Mode::Data,
        "vellum:victim=cost-benefit,zero=off,dedup,compress,delta,write-once,replay",
        true,
    ),
];

/// The first of [`SYSTEMS`] that claims are about. The others are variants.
const CLAIMED: usize = 6;

/// Indexes into [`SYSTEMS`]: the system with deltas, and dedupfs.
const AS_DELTAS: usize = 1;
const DEDUPFS: usize = 3;

const SETTING: &str = "Drive: the csafs device, 1 GiB of its flash (the paper's has 60 GB), 15% over-provisioning, filled before. Host: the lab's model of jbd2 with a journal of 32 MiB over one file, a commit after \
each 8 (TPC-C), 16 (TPC-W) or 64 writes (kernel build); the first two overwrite a fifth of their file most, the third grows. Sizes are modelled (metadata is small; data, where they get smaller, as in databases, mail and source trees): means measured on real \
journals, the rest made up. Synthetic throughout: the paper's traces are not public. *Traffic*: blocks that reach flash, moves, headers and maps included. *Metadata as deltas, data once* \
are the paper's two savings: metadata, and the journal's copies of it, are stored in parts of pages as their difference to an earlier version; what they take is modelled after what was measured on a real ext4. *Dedupfs* is the paper's variant of its system without deltas: metadata is deduplicated like data. *And data small* (by itself and as deltas) is what the paper does not do; the volume's content \
before the run gets smaller then, too, and a drive that is nearly empty collects nothing. *In buckets* is the paper's log of deltas, where those of a block group share pages with no other block.";

const WHOLE: &str = "Write traffic, erasures and speed";
const ENTRIES: &str = "Hash entries";

fn listed() -> Vec<Listed> {
    vec![
        Listed::not(
            "Figures 1 and 2, table I",
            "which blocks of a mail server's trace are written, and how often",
            "an analysis of traces of FIU, before the design; the lab replays them (`vellum lab run TRACE`)",
        ),
        Listed::run("Figure 5", "performance over ext3", WHOLE).but("its column of speed"),
        Listed::not(
            "Figure 6",
            "the processor's use",
            "the lab's time is virtual: it has no processor",
        ),
        Listed::run("Table II", "hash entries", ENTRIES),
        Listed::run("Figure 7", "write traffic", WHOLE)
            .but("blocks that reach flash, where the paper counts those that reach the drive"),
        Listed::run("Table III", "erasures", WHOLE),
    ]
}

/// Runs the evaluation, as far as the lab can.
///
/// # Errors
/// When a run fails.
pub fn evaluate(size: Size, threads: usize) -> Result<Evaluation, PaperError> {
    let writes = match size {
        Size::Tiny => 40_000,
        Size::Short => 250_000,
        Size::Full => 2_000_000,
    };
    let mut cells = Vec::new();
    for (index, work) in WORKS.iter().enumerate() {
        let systems = match size {
            Size::Tiny => &SYSTEMS[..CLAIMED],
            _ => &SYSTEMS[..],
        };
        for &(system, mode, policy, data) in systems {
            let mut scenario = run_of(work, mode, writes);
            let model = if data { work.sizes } else { "random" };
            scenario.sizes = sizes::find(model).copied();
            cells.push(Cell::new(
                (index, system),
                work.name.into(),
                scenario,
                policy,
            )?);
        }
    }
    let outcomes = run(cells, threads)?;
    let find = |index: usize, system: usize| {
        let key = (index, SYSTEMS[system].0);
        let found = outcomes.iter().find(|(other, _)| *other == key);
        found.map_or((1.0, 1.0, 1.0), |(_, outcome)| figures(outcome, writes))
    };
    let rows = outcomes.iter().map(|((index, system), outcome)| {
        let (traffic, erases, speed) = figures(outcome, writes);
        let base = find(*index, 0);
        vec![
            WORKS[*index].name.into(),
            (*system).into(),
            format!("{traffic:.2}"),
            less(traffic, base.0),
            format!("{:.0}", erases * writes as f64),
            less(erases, base.1),
            format!("{:.2}", speed / base.2),
        ]
    });
    let rows: Vec<_> = rows.collect();
    let mut claims = Vec::new();
    for (index, work) in WORKS.iter().enumerate() {
        let [base, ours, more] = [0, 1, 2].map(|system| find(index, system));
        for (what, theirs, base, ours, more) in [
            ("less write traffic", work.traffic, base.0, ours.0, more.0),
            ("fewer erasures", work.erases, base.1, ours.1, more.1),
        ] {
            claims.push(Claim::new(
                format!("{}: {what}", work.name),
                format!("{theirs:.0}%"),
                format!("{}; data small as well: {}", less(ours, base), less(more, base)),
                Stated::figure(theirs, 100.0 * (1.0 - ours / base)).over(0.0),
                "how much of the paper's traffic was metadata is not known: here a commit has three blocks of it (five where a file grows) beside its data, and \
                 so little can be saved; headers and the map are counted, and a chunk ends with each flush",
            ));
        }
        let faster = 100.0 * (ours.2 / base.2 - 1.0);
        let (theirs, stated) = work.speed;
        claims.push(Claim::new(
            format!("{}: speed, over the plain drive", work.name),
            theirs,
            match faster < 0.0 {
                true => format!("{:.0}% slower", -faster),
                false => format!("{faster:.0}% faster"),
            },
            stated(faster),
            "encoding takes no time here; reading back to compare and to move does, and a chunk goes to the dies of one segment, half of the drive's, where the plain \
             drive writes to all",
        ));
    }
    let columns = [
        "workload",
        "system",
        "blocks a write",
        "less",
        "erasures",
        "fewer",
        "speed",
    ];
    Ok(Evaluation {
        paper: "CSA-FS: a content and semantics aware file system for solid state drives".into(),
        frames: vec![
            Frame::new(WHOLE, SETTING, &columns)
                .rows(rows)
                .claims(claims),
            hash_entries(&outcomes),
        ],
        missing: vec![
            "Merging back: a volume with `delta=log` does it below a fifth of free room, when it folds sparse pages, and the lab folds none; on a read nothing does, for a read takes one base at \
             most, however often the block was written (docs/decisions/0015-deltas.md).".into(),
        ],
        list: listed(),
    })
}

/// How many contents got an entry if all blocks are deduplicated, and if blocks stored in parts of pages are not.
fn hash_entries(outcomes: &[((usize, &str), Outcome)]) -> Frame {
    let mut rows = Vec::new();
    let mut claims = Vec::new();
    for (index, work) in WORKS.iter().enumerate() {
        let count = |system: usize, counter| {
            let key = (index, SYSTEMS[system].0);
            let found = outcomes.iter().find(|(other, _)| *other == key);
            found.map_or(0, |(_, outcome)| outcome.counted(counter))
        };
        let all = count(DEDUPFS, "dedup_lookups") - count(DEDUPFS, "dedup_blocks");
        let data = all.saturating_sub(count(AS_DELTAS, "packed_blocks")) as f64;
        let all = all as f64;
        let (theirs_all, theirs) = work.entries;
        rows.push(vec![
            work.name.into(),
            all.to_string(),
            data.to_string(),
            less(data, all),
            format!("{theirs_all}K"),
            format!("{theirs}K"),
            less(theirs.into(), theirs_all.into()),
        ]);
        let (theirs, theirs_all) = (f64::from(theirs), f64::from(theirs_all));
        let fewer = |ours: f64, all: f64| 100.0 * (1.0 - ours / all.max(1.0));
        claims.push(Claim::new(
            format!("{}: fewer hash entries than dedupfs", work.name),
            less(theirs, theirs_all),
            less(data, all),
            Stated::figure(fewer(theirs, theirs_all), fewer(data, all)).over(0.0),
            "as above: how much of the paper's traffic was metadata is not known, and here it is little",
        ));
    }
    let columns = [
        "workload",
        "dedupfs",
        "metadata as deltas",
        "fewer",
        "the paper's dedupfs",
        "CSA-FS",
        "fewer",
    ];
    let setting = "The same runs. Entries made: contents that were looked up and not found. The engine's own index takes all blocks, those that it stores as deltas too; the second column \
                   leaves out what is stored in parts of pages, as CSA-FS leaves metadata out.";
    Frame::new(ENTRIES, setting, &columns)
        .rows(rows)
        .claims(claims)
}

fn run_of(work: &Work, mode: Mode, writes: u64) -> Scenario<'static> {
    let file = Synthetic {
        requests: writes + writes / work.window,
        duplicates: work.duplicates,
        again: Again::Soon,
        flush_every: work.window,
        journal: Some(Journal {
            mode,
            blocks: 8192,
            commit: Commit::TwoFlushes,
            fsync_flushes: false,
            write_back: 0,
            file: work.file,
        }),
        ..Synthetic::new(workload(work.load))
    };
    let mut scenario = scenario("csafs", 1 << 30, file);
    scenario.device.over_provisioning = Some(150);
    scenario.precondition = Precondition::Fill;
    scenario
}

/// Blocks written to flash and erasures per write of the application, and writes per second.
fn figures(outcome: &Outcome, writes: u64) -> (f64, f64, f64) {
    let each = |count: u64| count as f64 / writes as f64;
    let erases = outcome.life.as_ref().map_or(0, |life| life.erases);
    let speed = writes as f64 / outcome.seconds.max(1e-9);
    (each(outcome.medium_blocks()), each(erases), speed)
}

fn less(ours: f64, theirs: f64) -> String {
    match theirs > 0.0 {
        true => format!("{:.0}%", (1.0 - ours / theirs) * 100.0),
        false => "-".into(),
    }
}
