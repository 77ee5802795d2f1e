//! The rows of figures 2 to 5: one file, by drive, window and system.

use super::setting::JOURNAL_BLOCKS;
use crate::journal::{Commit, File, Journal, Mode};
use crate::outcome::Outcome;
use crate::paper::cell::{Cell, run, throughput};
use crate::paper::claim::range;
use crate::paper::failure::PaperError;
use crate::paper::scenarios::{scenario, working, workload};
use crate::paper::size::Size;
use crate::scenario::Synthetic;

pub const WINDOWS: [u64; 4] = [1, 10, 100, 1000];
/// The same names, for other hash functions.
pub const HASHES: [(&str, &str); 6] = [
    ("WOJ_xxh64", "woj"),
    ("WOJ_md5", "woj:md5"),
    ("WOJ_sha1", "woj:sha1"),
    ("Dmdedup_sha1", "dmdedup"),
    ("JFTL", "jftl"),
    (
        "the engine, by descriptors",
        "vellum:zero=off,write-once=descriptor",
    ),
];

/// A row of a figure.
pub struct FigureRow {
    pub drive: &'static str,
    pub window: u64,
    pub system: &'static str,
    pub writes: u64,
    pub outcome: Outcome,
}

impl FigureRow {
    pub fn amplification(&self) -> f64 {
        self.outcome.medium_blocks() as f64 / self.writes as f64
    }

    pub fn speed(&self) -> f64 {
        throughput(self.writes, &self.outcome)
    }
}

/// The rows of one load, for drives and systems, over all windows.
pub fn rows(
    load: &str,
    drives: &[&'static str],
    systems: &[(&'static str, &'static str)],
    size: Size,
    threads: usize,
) -> Result<Vec<FigureRow>, PaperError> {
    let each = drives.iter().flat_map(|&drive| {
        let windows = WINDOWS.into_iter();
        windows.flat_map(move |window| systems.iter().map(move |&own| (drive, window, own)))
    });
    rows_of(load, each, (size, 0), threads)
}

/// The rows of one load for some drives, windows and systems, when a write takes the processor this long.
pub fn rows_of(
    load: &str,
    each: impl IntoIterator<Item = (&'static str, u64, (&'static str, &'static str))>,
    (size, write_ns): (Size, u64),
    threads: usize,
) -> Result<Vec<FigureRow>, PaperError> {
    let cells = each.into_iter().map(|(drive, window, (system, policy))| {
        let writes = match (size, window) {
            (Size::Full, _) => 2 << 20,
            (Size::Tiny, _) => 8192,
            // With an fsync per write the journal fills five times as fast.
            (Size::Short, 1) => 65_536,
            (Size::Short, _) => 262_144,
        };
        let file = Synthetic {
            requests: writes + writes / window,
            flush_every: window,
            journal: Some(Journal {
                mode: Mode::Data,
                blocks: JOURNAL_BLOCKS,
                commit: Commit::TwoFlushes,
                fsync_flushes: false,
                write_back: 0,
                file: match load {
                    "sequential" => File::GrowingIndirect,
                    _ => File::Overwritten,
                },
            }),
            ..Synthetic::new(workload(load))
        };
        let mut scenario = scenario(drive, 12 << 30, file);
        scenario.device.over_provisioning = Some(150);
        working(&mut scenario, write_ns);
        let what = format!("{load}, {drive}, a flush each {window}");
        Cell::new((drive, window, system, writes), what, scenario, policy)
    });
    let outcomes = run(cells.collect::<Result<_, _>>()?, threads)?.into_iter();
    Ok(outcomes
        .map(|((drive, window, system, writes), outcome)| FigureRow {
            drive,
            window,
            system,
            writes,
            outcome,
        })
        .collect())
}

pub fn find<'a>(rows: &'a [FigureRow], drive: &str, window: u64, system: &str) -> &'a FigureRow {
    let found = rows
        .iter()
        .find(|row| (row.drive, row.window, row.system) == (drive, window, system));
    let Some(row) = found else {
        unreachable!("{drive}, {window}, {system} was run")
    };
    row
}

/// How many times as fast WOJ is by the fast hash as by SHA-1, at most.
pub fn by_fast_hash(rows: &[FigureRow]) -> f64 {
    let fast = rows.iter().filter(|row| row.system == "WOJ_xxh64");
    let times = fast.map(|row| row.speed() / find(rows, row.drive, row.window, "WOJ_sha1").speed());
    range(times).1
}
