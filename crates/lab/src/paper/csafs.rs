//! CSA-FS: how much less is written and erased when metadata is stored as differences and data once (write traffic and
//! erasures by workload), and how many contents have to be known by their hashes for that (its table of hash entries).

mod experiments;
mod runs;

use super::claim::Claim;
use super::evaluation::{Evaluation, Frame};
use super::failure::PaperError;
use super::list::Listed;
use super::size::Size;
use runs::{CLAIMED, Runs, SYSTEMS, Setting, WORKS, less};

const SETTING: &str = "Drive: the csafs device, 1 GiB of its flash (the paper's has 60 GB), 15% \
                       over-provisioning, filled before. Host: the lab's model of jbd2 with a journal of 32 \
                       MiB over one file, a commit after each 8 (TPC-C), 16 (TPC-W) or 64 writes (kernel \
                       build); the first two overwrite a fifth of their file most, the third grows. Sizes \
                       are modelled (metadata is small; data, where they get smaller, as in databases, mail \
                       and source trees): means measured on real journals, the rest made up. Synthetic \
                       throughout: the paper's traces are not public. *Traffic*: blocks that reach flash, \
                       moves, headers and maps included. *Metadata as deltas, data once* are the paper's two \
                       savings: metadata, and the journal's copies of it, are stored in parts of pages as \
                       their difference to an earlier version; what they take is modelled after what was \
                       measured on a real ext4. *Dedupfs* is the paper's variant of its system without \
                       deltas: metadata is deduplicated like data. *And data small* (by itself and as \
                       deltas) is what the paper does not do; the volume's content before the run gets \
                       smaller then, too, and a drive that is nearly empty collects nothing. *In buckets* is \
                       the paper's log of deltas, where those of a block group share pages with no other \
                       block.";

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
    let systems = match size {
        Size::Tiny => &SYSTEMS[..CLAIMED],
        _ => &SYSTEMS[..],
    };
    let works: Vec<usize> = (0..WORKS.len()).collect();
    let runs = Runs::of(&works, systems, Setting::new(writes), threads)?;
    let mut whole = Frame::new(WHOLE, SETTING, &COLUMNS)
        .rows(runs.rows())
        .claims((0..WORKS.len()).flat_map(|work| runs.claims(work)));
    let mut entries = hash_entries(&runs);
    for work in 0..WORKS.len() {
        for experiment in experiments::written(&runs, work, threads)? {
            let frame = match experiment.columns.len() {
                1 => &mut entries,
                _ => &mut whole,
            };
            frame.try_out(experiment);
        }
    }
    for work in 0..WORKS.len() {
        whole.try_out(experiments::speed(&runs, work, threads)?);
    }
    Ok(Evaluation {
        paper: "CSA-FS: a content and semantics aware file system for solid state drives".into(),
        frames: vec![whole, entries],
        missing: vec![
            "Merging back: a volume with `delta=log` does it below a fifth of free room, when it folds \
             sparse pages, and the lab folds none; on a read nothing does, for a read takes one base at \
             most, however often the block was written (docs/decisions/0015-deltas.md).".into(),
        ],
        list: listed(),
    })
}

const COLUMNS: [&str; 7] = [
    "workload",
    "system",
    "blocks a write",
    "less",
    "erasures",
    "fewer",
    "speed",
];

/// How many contents got an entry if all blocks are deduplicated, and if blocks stored in parts of pages are not.
fn hash_entries(runs: &Runs) -> Frame {
    let mut rows = Vec::new();
    let mut claims = Vec::new();
    for (index, work) in WORKS.iter().enumerate() {
        let (all, data) = runs.entries(index);
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
        claims.push(Claim::new(
            work.entries_claim(),
            less(theirs.into(), theirs_all.into()),
            less(data, all),
            runs.fewer_entries(index),
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
    let setting = "The same runs. Entries made: contents that were looked up and not found. The engine's own \
                   index takes all blocks, those that it stores as deltas too; the second column leaves out \
                   what is stored in parts of pages, as CSA-FS leaves metadata out.";
    Frame::new(ENTRIES, setting, &columns)
        .rows(rows)
        .claims(claims)
}
