//! OFTL: fio's sequential writes with regular fsyncs (its figures 6 and 9), a database (7) and a mail server (8), for several flush times.

use super::cell::{Cell, run, throughput};
use super::claim::{BAND, Claim, Stated};
use super::evaluation::{Evaluation, Frame};
use super::failure::PaperError;
use super::list::Listed;
use super::scenarios::{scenario, workload};
use super::size::Size;
use crate::journal::{Commit, File, Journal, Mode};
use crate::outcome::Outcome;
use crate::scenario::{Precondition, Scenario, Synthetic};

const FLUSH_MS: [u64; 3] = [2, 10, 50];
const WINDOWS: [u64; 3] = [32, 64, 96];
const MODES: [(&str, Mode); 2] = [("ordered", Mode::Ordered), ("data", Mode::Data)];
/// The paper's name, the drive, and how the host above it commits.
const SYSTEMS: [(&str, &str, Commit); 4] = [
    ("base FTL", "base:unordered", Commit::TwoFlushes),
    ("stream FTL", "base:stream", Commit::DriveOrders),
    ("asynchronous commit", "base:unordered", Commit::Async),
    ("OFTL", "base:oftl", Commit::DriveOrders),
];
/// The same host above drives that keep an order, and above one that does not: what breaks without flushes.
const UNFLUSHED: [(&str, &str, Commit); 3] = [
    ("stream FTL", "base:stream", Commit::DriveOrders),
    ("OFTL", "base:oftl", Commit::DriveOrders),
    (
        "base FTL, no first flush",
        "base:unordered",
        Commit::DriveOrders,
    ),
];

const FIO: &str = "Figure 6: fio";
const CHECKSUMS: &str = "Figure 9: asynchronous commit";
const ORDER: &str = "Figure 3: the order of map updates, without the first flush";

fn listed() -> Vec<Listed> {
    vec![
        Listed::run(
            "Figure 3",
            "an inversion of the order of map updates",
            ORDER,
        )
        .but("of the paper's motivation, counted"),
        Listed::run(
            "Figure 6",
            "fio, by the time of a flush and writes an fsync",
            FIO,
        ),
        Listed::run("Figure 7", "Sysbench on MySQL", DATABASE.figure)
            .but("the lab's `oltp` in place of a database"),
        Listed::run("Figure 8", "Filebench's varmail", MAIL.figure).but("the lab's model of it"),
        Listed::run("Figure 9", "asynchronous commit and OFTL", CHECKSUMS),
    ]
}

/// The setting of a run: how the file system journals, the time of a flush, writes per fsync (0: the application's
/// own), and the system.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    mode: &'static str,
    flush_ms: u64,
    window: u64,
    system: &'static str,
}

/// The result of a run.
struct OftlRun {
    key: Key,
    outcome: Outcome,
    /// Its throughput over the base FTL's in the same setting.
    gain: f64,
}

impl OftlRun {
    /// The most writes whose map update waited.
    fn held(&self) -> u64 {
        self.outcome.order.unwrap_or_default().0
    }

    /// Blocks that reach the drive, the journal's included, per flush or FUA write.
    fn blocks_a_flush(&self) -> f64 {
        let flushes = self.outcome.flushes.count + self.outcome.durable_writes;
        self.outcome.host_written as f64 / flushes.max(1) as f64
    }
}

/// Runs the evaluation.
///
/// # Errors
/// When a run fails.
pub fn evaluate(size: Size, threads: usize) -> Result<Evaluation, PaperError> {
    let (fio, figure) = synthetic(size, threads)?;
    Ok(Evaluation {
        paper: "OFTL: Ordering-aware FTL for Maximizing Performance of the Journaling File System"
            .into(),
        frames: vec![
            figure,
            application(&DATABASE, size, threads, &fio)?,
            application(&MAIL, size, threads, &fio)?,
            checksums(&fio),
            order(threads)?,
        ],
        missing: vec![],
        list: listed(),
    })
}

/// The runs of fio, and their frame.
fn synthetic(size: Size, threads: usize) -> Result<(Vec<OftlRun>, Frame), PaperError> {
    let writes: u64 = match size {
        Size::Tiny => 3072,
        Size::Short => 16_384,
        Size::Full => 524_288,
    };
    let rows = rows(&WINDOWS, threads, |window, host| {
        fio("sequential", 8 << 30, host, window, writes)
    })?;
    let setting = "2 channels of 4 banks, 4 KiB pages, one page mapped at a time (the oftl device, 16 MB of \
                   RAM); 4 KiB sequential writes to a file that grows, an fsync after each 32, 64 or 96; \
                   jbd2 with a journal of 128 MiB. A flush takes 2, 10 or 50 ms beside what it waits for. \
                   Synthetic: the file system is the lab's model of jbd2, with the flushes of the paper's \
                   kernel (4.4). Ours writes 64 MiB where the paper's fio writes 30 GB; --full writes 2 GiB. \
                   *Held*: writes whose map update waits, at most: a byte each, where the paper's two lists \
                   take 10 B a page of the write buffer; both are one queue here.";
    let columns = [
        "mode",
        "flush",
        "writes an fsync",
        "system",
        "MB/s",
        "over base",
        "held",
    ];
    let cells = |row: &OftlRun| {
        vec![
            row.key.mode.into(),
            format!("{} ms", row.key.flush_ms),
            row.key.window.to_string(),
            row.key.system.into(),
            format!("{:.2}", throughput(writes, &row.outcome)),
            format!("{:.2}", row.gain),
            row.held().to_string(),
        ]
    };
    let frame = Frame::new(FIO, setting, &columns)
        .rows(rows.iter().map(cells))
        .claims(claims(&rows));
    Ok((rows, frame))
}

/// A load in all settings: both modes, the paper's flush times, the fsync intervals of `windows`, all systems.
fn rows(
    windows: &[u64],
    threads: usize,
    load: impl Fn(u64, (Mode, Commit)) -> Scenario<'static>,
) -> Result<Vec<OftlRun>, PaperError> {
    let mut cells = Vec::new();
    for (mode_name, mode) in MODES {
        for flush_ms in FLUSH_MS {
            for &window in windows {
                for (system, policy, commit) in SYSTEMS {
                    let mut scenario = load(window, (mode, commit));
                    scenario.device.flush_ns = flush_ms * 1_000_000;
                    let what = format!("{mode_name}, {flush_ms} ms, an fsync each {window}");
                    let key = Key {
                        mode: mode_name,
                        flush_ms,
                        window,
                        system,
                    };
                    cells.push(Cell::new(key, what, scenario, policy)?);
                }
            }
        }
    }
    let mut base = 0.0;
    let outcomes = run(cells, threads)?.into_iter();
    Ok(outcomes
        .map(|(key, outcome)| {
            if key.system == SYSTEMS[0].0 {
                base = outcome.seconds;
            }
            let gain = base / outcome.seconds.max(1e-9);
            OftlRun { key, outcome, gain }
        })
        .collect())
}

/// Our substitute for a program of the paper, and what the paper states about it.
struct Application {
    figure: &'static str,
    load: &'static str,
    file: File,
    setting: &'static str,
    claims: fn(&[OftlRun], &[OftlRun]) -> Vec<Claim>,
}

const DATABASE: Application = Application {
    figure: "Figure 7: Sysbench on MySQL",
    load: "oltp",
    file: File::Overwritten,
    setting: "As in figure 6, but the lab's `oltp` stands for the database: TPC-C's transactions read and \
              change pages of 8 KiB, and those that change any append a block to a log that is there already \
              and are followed by an fsync. Synthetic, and no MySQL: one transaction at a time, where the \
              paper's up to 500 connections may share an fsync, and InnoDB's pages have 16 KiB. 1 GiB of \
              flash, new. The paper states no figure. A commit block with FUA is counted as a flush.",
    claims: database_claims,
};

const MAIL: Application = Application {
    figure: "Figure 8: Filebench's varmail",
    load: "varmail",
    file: File::Growing,
    setting: "As in figure 6, but the lab's `varmail`, after Filebench's: files of 16 KiB made, read, \
              appended to and deleted, an fsync after each write of one. Synthetic: one thread of it, all \
              files of one directory, whose blocks are not modelled. 1 GiB of flash, new. A commit block \
              with FUA is counted as a flush.",
    claims: mail_claims,
};

/// Figures 7 and 8: the same with an application's own fsyncs.
fn application(
    what: &Application,
    size: Size,
    threads: usize,
    fio: &[OftlRun],
) -> Result<Frame, PaperError> {
    let requests = match size {
        Size::Tiny => 2000,
        Size::Short => 40_000,
        Size::Full => 500_000,
    };
    let rows = rows(&[0], threads, |_, (mode, commit)| {
        let load = Synthetic {
            requests,
            journal: Some(journal(mode, commit, what.file)),
            ..Synthetic::new(workload(what.load))
        };
        scenario("oftl", 1 << 30, load)
    })?;
    let cells = |row: &OftlRun| {
        vec![
            row.key.mode.into(),
            format!("{} ms", row.key.flush_ms),
            row.key.system.into(),
            format!("{:.1}", row.blocks_a_flush()),
            format!("{:.1} s", row.outcome.seconds),
            format!("{:.2}", row.gain),
            row.held().to_string(),
        ]
    };
    let columns = [
        "mode",
        "flush",
        "system",
        "blocks a flush",
        "time",
        "over base",
        "held",
    ];
    Ok(Frame::new(what.figure, what.setting, &columns)
        .rows(rows.iter().map(cells))
        .claims((what.claims)(&rows, fio)))
}

/// The requests of fio and the file system to the board.
fn fio(
    load: &str,
    capacity: u64,
    (mode, commit): (Mode, Commit),
    window: u64,
    writes: u64,
) -> Scenario<'static> {
    let file = Synthetic {
        requests: writes + writes / window,
        flush_every: window,
        journal: Some(journal(mode, commit, File::Growing)),
        ..Synthetic::new(workload(load))
    };
    scenario("oftl", capacity, file)
}

/// The paper's kernel is 4.4, and the journal is as large as ext4 makes it on a disk of that size.
fn journal(mode: Mode, commit: Commit, file: File) -> Journal {
    Journal {
        mode,
        blocks: 32_768,
        commit,
        fsync_flushes: false,
        write_back: 0,
        file,
    }
}

/// Why order matters: dies are not equally busy, here because they collect.
fn order(threads: usize) -> Result<Frame, PaperError> {
    let mut cells = Vec::new();
    for (name, mode) in MODES {
        for (system, policy, commit) in UNFLUSHED {
            let mut scenario = fio("uniform", 1 << 30, (mode, commit), 32, 16_384);
            // A full drive, so that dies collect.
            scenario.precondition = Precondition::Fill;
            let what = format!("order, {name}");
            cells.push(Cell::new((name, system), what, scenario, policy)?);
        }
    }
    let outcomes = run(cells, threads)?;
    let mut rows = Vec::new();
    let (mut kept, mut broken) = (0, u64::MAX);
    for ((mode, system), outcome) in outcomes {
        let (held, early) = outcome.order.unwrap_or_default();
        match system {
            "base FTL, no first flush" => broken = broken.min(early),
            _ => kept += early,
        }
        rows.push(vec![
            mode.into(),
            system.into(),
            held.to_string(),
            early.to_string(),
        ]);
    }
    let columns = ["mode", "system", "held", "early"];
    let setting = "As in figure 6, with an fsync each 32 writes and flushes that take no time of their own, \
                   on a full drive of 1 GiB that is overwritten at random: its dies collect, and so are not \
                   alike busy. *Held*: writes whose map update waits, at most. *Early*: journal blocks that \
                   were in the map before something that was written before them: each is a moment in which \
                   a power cut would have left a commit without its blocks.";
    Ok(Frame::new(ORDER, setting, &columns)
        .rows(rows)
        .claims([Claim::words(
            "a commit is never in the map before its blocks",
            "with OFTL and the stream FTL; not with base",
            format!("early: {kept} with them, at least {broken} without"),
            kept == 0 && broken > 0,
        )]))
}

/// How far a system is ahead of the base FTL in one setting.
fn gain(rows: &[OftlRun], system: &str, mode: &str, flush_ms: u64, window: u64) -> f64 {
    let key = |row: &&OftlRun| {
        let key = row.key;
        (key.system, key.mode, key.flush_ms, key.window) == (system, mode, flush_ms, window)
    };
    let Some(row) = rows.iter().find(key) else {
        unreachable!("{system}, {mode}, {flush_ms} ms, {window} was run")
    };
    row.gain
}

/// The least and the greatest ratio of one system to another, over all settings.
fn between(rows: &[OftlRun], one: &str, other: &str) -> (f64, f64) {
    let of = rows.iter().filter(|row| row.key.system == one);
    let each = of.map(|row| {
        let Key {
            mode,
            flush_ms,
            window,
            ..
        } = row.key;
        row.gain / gain(rows, other, mode, flush_ms, window)
    });
    each.fold((f64::MAX, f64::MIN), |(low, high), share| {
        (low.min(share), high.max(share))
    })
}

/// The base FTL's blocks per flush, where it has the most flushes.
fn least_a_flush(rows: &[OftlRun]) -> f64 {
    let base = rows.iter().filter(|row| row.key.system == SYSTEMS[0].0);
    base.map(OftlRun::blocks_a_flush).fold(f64::MAX, f64::min)
}

fn ahead(rows: &[OftlRun]) -> Claim {
    let (least, _) = between(rows, "OFTL", "base FTL");
    let ours = format!("at least {least:.3} times");
    Claim::words(
        "OFTL is ahead of base in all cases",
        "yes",
        ours,
        least > 1.0,
    )
}

fn claims(rows: &[OftlRun]) -> Vec<Claim> {
    let gain = |system, mode: &str, flush_ms, window| gain(rows, system, mode, flush_ms, window);
    let mut claims = Vec::new();
    for (mode, _) in MODES {
        let ours = gain("OFTL", mode, 50, 32);
        claims.push(Claim::new(
            format!("OFTL over base: {mode} mode, flush 50 ms, an fsync each 32"),
            "up to 1.8 times",
            format!("{ours:.2} times"),
            Stated::figure(1.8, ours).over(1.0),
            "one flush instead of two is 2 at most, when nothing else takes time",
        ));
    }
    claims.push(ahead(rows));
    let falls = MODES.into_iter().all(|(mode, _)| {
        WINDOWS.into_iter().all(|w| {
            gain("OFTL", mode, 2, w) < gain("OFTL", mode, 10, w)
                && gain("OFTL", mode, 10, w) < gain("OFTL", mode, 50, w)
        })
    });
    let answer = if falls { "yes" } else { "no" };
    claims.push(Claim::words(
        "the gap falls with the flush's time",
        "yes",
        answer,
        falls,
    ));
    let stream = WINDOWS.map(|window| gain("stream FTL", "data", 2, window));
    claims.push(Claim::words(
        "the stream FTL falls below base in data mode when a flush is short",
        "yes",
        stream.map(|gain| format!("{gain:.2}")).join(", "),
        stream.into_iter().all(|gain| gain < 1.0),
    ));
    claims
}

/// Figure 9: the kernel's own way to avoid the flush.
fn checksums(rows: &[OftlRun]) -> Frame {
    let setting = "The runs of figure 6: OFTL over a kernel that commits asynchronously, by checksums, above \
                   the base FTL. What the checksum costs the processor is not in it.";
    let columns = ["mode", "flush", "OFTL over asynchronous commit"];
    let each = MODES.into_iter().flat_map(|(mode, _)| {
        FLUSH_MS.map(|flush_ms| {
            let share = |window| {
                gain(rows, "OFTL", mode, flush_ms, window)
                    / gain(rows, "asynchronous commit", mode, flush_ms, window)
            };
            let shares = WINDOWS.map(|window| format!("{:.3}", share(window)));
            vec![mode.into(), format!("{flush_ms} ms"), shares.join(", ")]
        })
    });
    let (least, most) = between(rows, "OFTL", "asynchronous commit");
    Frame::new(CHECKSUMS, setting, &columns)
        .rows(each)
        .claims([Claim::words(
            "asynchronous commit is as fast as OFTL",
            "similar",
            format!("OFTL is {least:.2} to {most:.2} times as fast"),
            least >= 1.0 - BAND && most <= 1.0 + BAND,
        )])
}

fn database_claims(rows: &[OftlRun], fio: &[OftlRun]) -> Vec<Claim> {
    let (low, high) = between(rows, "stream FTL", "OFTL");
    let (flushes, of_fio) = (least_a_flush(rows), least_a_flush(fio));
    vec![
        ahead(rows),
        Claim::words(
            "the stream FTL is comparable to OFTL",
            "yes: few writes an fsync",
            format!("{low:.2} to {high:.2} times"),
            low >= 1.0 - BAND,
        )
        .because(
            "the stream FTL programs a commit's blocks one after the other: what takes OFTL one round of the \
             banks takes it several, and beside a flush of 2 ms that shows; how many the paper's \
             transactions have is not known",
        ),
        Claim::words(
            "blocks a flush, and fio's, base FTL",
            "frequent fsyncs, few writes",
            format!("{flushes:.1} and {of_fio:.1}"),
            flushes < of_fio,
        ),
    ]
}

fn mail_claims(rows: &[OftlRun], fio: &[OftlRun]) -> Vec<Claim> {
    let ours = gain(rows, "OFTL", "ordered", 50, 0);
    let of_fio = gain(fio, "OFTL", "ordered", 50, 32);
    let (flushes, fio_flushes) = (least_a_flush(rows), least_a_flush(fio));
    vec![
        Claim::new(
            "OFTL over base: ordered mode, flush 50 ms",
            "1.97 times",
            format!("{ours:.3} times"),
            Stated::figure(1.97, ours).over(1.0),
            "one flush instead of two is 2 at most",
        ),
        ahead(rows),
        Claim::words(
            "the gap is larger than fio's: ordered mode, flush 50 ms",
            "yes",
            format!("{ours:.3} against {of_fio:.3} times"),
            ours > of_fio,
        ),
        Claim::words(
            "varmail flushes more often than fio: blocks a flush, base FTL",
            "yes",
            format!("{flushes:.1} and {fio_flushes:.1}"),
            flushes < fio_flushes,
        ),
    ]
}
