//! What hashing costs by buffer and processor (figures 10 and 11), and what sampling saves by its unit (13 and 14).

use super::setting::{
    Bursting, DUPLICATES, MEMORY, MHZ, SHA1_CYCLES, SLOWEST_MHZ, USUAL, bursts, load, memory_kib,
    nanos,
};
use crate::outcome::Outcome;
use crate::paper::cell::{Cell, run};
use crate::paper::claim::{Claim, Stated, percent};
use crate::paper::evaluation::Frame;
use crate::paper::experiment::{Assumption, Experiment};
use crate::paper::failure::PaperError;
use crate::paper::size::Size;
use crate::vellum::Hashing;

pub const COSTS: &str = "Figures 10 and 11: hashing, by the buffer and by the processor";
pub const UNITS: &str = "Figures 13 and 14: sampling, by its unit";

/// The paper's slowest processor, its fastest, and one between.
const CLOCKS: [u64; 3] = [SLOWEST_MHZ, 600, MHZ];
const BUFFERS: [u64; 4] = [2, 4, 8, 16];
const LARGE: u64 = 16;
const SMALL: u64 = 2;
/// Blocks of the paper's sampling units, 8 to 128 KB; a request has as many as the largest.
const SAMPLES: [u32; 5] = [2, 4, 8, 16, 32];
const REQUEST_BLOCKS: u32 = 32;

fn requests(size: Size) -> u64 {
    match size {
        Size::Tiny => 1500,
        Size::Short => 6000,
        Size::Full => 30_000,
    }
}

const fn each(check_ns: u64) -> Hashing {
    Hashing {
        check_ns,
        print_ns: 0,
        switch: false,
    }
}

/// By how much a latency exceeds another, as a share.
fn added(with: u64, without: u64) -> f64 {
    with as f64 / without.max(1) as f64 - 1.0
}

/// The mean latencies of reads and writes.
fn means(outcome: &Outcome) -> (u64, u64) {
    (outcome.reads.mean_ns, outcome.writes.mean_ns)
}

/// Figures 10 and 11.
pub fn buffers_and_clocks(size: Size, capacity: u64, threads: usize) -> Result<Frame, PaperError> {
    let settings = BUFFERS.map(|buffer| (buffer, MHZ));
    let slower = CLOCKS.map(|mhz| (LARGE, mhz));
    let slower = slower.into_iter().filter(|(_, mhz)| *mhz != MHZ);
    let settings = settings.into_iter().chain(slower);
    let outcomes = hashed(settings, USUAL, (size, capacity), threads)?;
    let mut rows = Vec::new();
    let mut shares = Vec::new();
    for pair in outcomes.chunks(2) {
        let Some(share) = added_in(pair) else {
            continue;
        };
        let (buffer, mhz, on_reads, on_writes) = share;
        let (reads, writes) = means(&pair[0].1);
        shares.push(share);
        rows.push(vec![
            format!("{buffer} MB"),
            format!("{mhz} MHz"),
            format!("{:.3} ms", reads as f64 / 1e6),
            percent(on_reads),
            format!("{:.3} ms", writes as f64 / 1e6),
            percent(on_writes),
        ]);
    }
    let setting = "The caftl device; bursts of 100 requests of 32 KiB (80% writes, 6% of them duplicates) \
        ten times a second, at their own times. Synthetic. SHA-1 of each block, one after the other, \
                   47548 cycles; a write is answered when it is in the buffer, and nothing else \
                   accelerates it. Mean latencies without hashing, and what hashing adds.";
    let columns = ["buffer", "processor", "reads", "added", "writes", "added"];
    let mut frame = Frame::new(COSTS, setting, &columns)
        .rows(rows)
        .claims(added_by_hashing(&shares));
    frame.try_out(by_burst(size, capacity, threads)?);
    Ok(frame)
}

/// The megabytes of a buffer and the clock of a processor, and what a run with them showed.
type Hashed = ((u64, u64), Outcome);

/// Runs with and without hashing, one after the other, with each buffer and processor.
fn hashed(
    settings: impl IntoIterator<Item = (u64, u64)>,
    how: Bursting,
    (size, capacity): (Size, u64),
    threads: usize,
) -> Result<Vec<Hashed>, PaperError> {
    let mut cells = Vec::new();
    for (buffer, mhz) in settings {
        let hash = nanos(SHA1_CYCLES, mhz);
        for (hash, policy) in [
            (0, "vellum:zero=off"),
            (hash, "vellum:zero=off,dedup,decide=sha1"),
        ] {
            let load = load(DUPLICATES[0], requests(size));
            let scenario = bursts(capacity, (load, how), buffer, each(hash));
            let what = format!("{buffer} MB, {mhz} MHz");
            cells.push(Cell::new((buffer, mhz), what, scenario, policy)?);
        }
    }
    run(cells, threads)
}

/// How densely the bursts come.
const EVERY: Assumption = Assumption {
    varies: "time from one burst to the next",
    unit: " ms",
    usual: USUAL.every_ms,
    others: &[40.0, 50.0, 55.0, 60.0, 70.0],
    plausible: (45.0, 1000.0),
    because: "the paper does not say how much its loads ask for; it recorded them on a disk of 7,200 \
        revolutions a minute, which does not write more than \
              about 75 MB/s for long, and a burst is 3.3 MB",
};

/// What hashing adds with the small buffer, by the time between two bursts.
fn by_burst(size: Size, capacity: u64, threads: usize) -> Result<Experiment, PaperError> {
    let more = |&(_, _, reads, writes): &(u64, u64, f64, f64)| reads.max(writes) * 100.0;
    Experiment::vary(&EVERY, &[(WITH_SMALL.into(), "%")], |every_ms| {
        let how = Bursting { every_ms, ..USUAL };
        let pair = hashed([(SMALL, MHZ)], how, (size, capacity), threads)?;
        let added = more(&added_in(&pair).unwrap_or((SMALL, MHZ, 0.0, 0.0)));
        Ok(vec![Stated::figure(34.0, added).over(0.0)])
    })
}

const WITH_SMALL: &str = "latency added with 2 MB";

/// The buffer and the processor of a pair of runs, and what hashing adds to reads and to writes.
fn added_in(pair: &[Hashed]) -> Option<(u64, u64, f64, f64)> {
    let [(_, without), ((buffer, mhz), with)] = pair else {
        return None;
    };
    let ((reads, writes), (reads_with, writes_with)) = (means(without), means(with));
    Some((
        *buffer,
        *mhz,
        added(reads_with, reads),
        added(writes_with, writes),
    ))
}

/// What hashing adds to reads and writes, by the megabytes of the buffer and by the clock.
fn added_by_hashing(shares: &[(u64, u64, f64, f64)]) -> Vec<Claim> {
    let of = |buffer, mhz| {
        let found = shares
            .iter()
            .find(|share| (share.0, share.1) == (buffer, mhz));
        found.map_or((1.0, 1.0), |&(_, _, reads, writes)| (reads, writes))
    };
    let both = |(reads, writes): (f64, f64)| {
        format!("reads {}, writes {}", percent(reads), percent(writes))
    };
    let waits = "a burst that finds the buffer full waits for hashing, as long as the burst is beyond it; \
        the paper's loads are not known";
    let most = |megabytes| {
        let ours = of(megabytes, MHZ);
        (100.0 * ours.0.max(ours.1), both(ours))
    };
    let claim = |megabytes: u64, theirs: f64| {
        let (ours, both) = most(megabytes);
        let what = format!("latency added with {megabytes} MB");
        Claim::new(
            what,
            format!("less than {theirs}%"),
            both,
            Stated::AtMost { theirs, ours },
            waits,
        )
    };
    let slow = of(LARGE, SLOWEST_MHZ).0;
    let (small, both_small) = most(SMALL);
    vec![
        Claim::new(
            WITH_SMALL,
            "up to 34%",
            both_small,
            Stated::figure(34.0, small).over(0.0),
            waits,
        ),
        claim(8, 4.5),
        claim(LARGE, 0.5),
        Claim::new(
            "reads with 16 MB: latency added at 304 MHz",
            "less than 8.5%",
            percent(slow),
            Stated::AtMost {
                theirs: 8.5,
                ours: slow * 100.0,
            },
            "hashing each block at that speed takes as long as the load lasts, and the buffer fills",
        ),
    ]
}

/// Figures 13 and 14.
pub fn units(size: Size, capacity: u64, threads: usize) -> Result<Frame, PaperError> {
    let sha1 = nanos(SHA1_CYCLES, MHZ);
    let requests = requests(size) / 4;
    let mut cells = Vec::new();
    for duplicates in DUPLICATES {
        // Four requests in five are writes.
        let contents = requests * u64::from(REQUEST_BLOCKS) * 4 / 5 * u64::from(100 - duplicates);
        let store = format!(
            "vellum:zero=off,dedup,dedup-memory={}K,store=caftl",
            memory_kib(contents / 100, MEMORY)
        );
        for unit in std::iter::once(1).chain(SAMPLES) {
            let mut load = load(duplicates, requests);
            load.request_blocks = REQUEST_BLOCKS;
            // One block of each unit is hashed, and the rest of the unit if that block is found.
            let rest = u64::from(unit - 1) * u64::from(duplicates) / 100;
            let hash = sha1 * (1 + rest) / u64::from(unit);
            let scenario = bursts(capacity, (load, USUAL), SMALL, each(hash));
            let policy = match unit {
                1 => store.clone(),
                _ => format!("{store},sample={}K", 4 * unit),
            };
            let what = format!("{duplicates}%, {unit} blocks");
            cells.push(Cell::new((duplicates, unit), what, scenario, &policy)?);
        }
    }
    let outcomes = run(cells, threads)?;
    let rate = |outcome: &Outcome| {
        outcome.counted("dedup_blocks") as f64 / outcome.host_written.max(1) as f64
    };
    let mut rows = Vec::new();
    let mut most = (0.0_f64, 0.0_f64);
    let mut lost = 0.0_f64;
    let mut whole = (1, 1, 0.0);
    for ((duplicates, unit), outcome) in &outcomes {
        let (reads, writes) = means(outcome);
        if *unit == 1 {
            whole = (reads, writes, rate(outcome));
        }
        let faster = |before: u64, now: u64| before as f64 / now.max(1) as f64;
        let (on_reads, on_writes) = (faster(whole.0, reads), faster(whole.1, writes));
        most = (most.0.max(on_reads), most.1.max(on_writes));
        lost = lost.max(whole.2 - rate(outcome));
        rows.push(vec![
            format!("{duplicates}%"),
            match unit {
                1 => "each block".into(),
                _ => format!("{} KB", unit * 4),
            },
            format!("{on_reads:.2}"),
            format!("{on_writes:.2}"),
            percent(rate(outcome)),
        ]);
    }
    let setting = "As above with a buffer of 2 MB and 934 MHz, in requests of 128 KiB, so that they have \
        units of all sizes; the paper's store, with memory for a tenth of the contents. How many times as \
        fast as with each block hashed, \
                   and what of the writes is found. Sampling is charged its mean: a block of a unit, and \
                   the rest of the units that are found.";
    let columns = [
        "duplicates",
        "unit",
        "reads",
        "writes",
        "found of the writes",
    ];
    Ok(Frame::new(UNITS, setting, &columns)
        .rows(rows)
        .claims(by_sampling(most, lost)))
}

/// How much faster sampling is, reads and writes, at most, and which share of the writes it loses.
fn by_sampling(most: (f64, f64), lost: f64) -> [Claim; 3] {
    [
        Claim::new(
            "sampling: reads faster than with each block hashed",
            "up to 110.6 times",
            format!("up to {:.1} times", most.0),
            Stated::figure(110.6, most.0).over(1.0),
            "reads wait for hashing only where it cannot keep up from one burst to the next; here, at 934 \
                MHz, it can, and where it cannot the ratio says how long the load lasted",
        ),
        Claim::new(
            "the same, writes",
            "3.5 times (h7)",
            format!("up to {:.1} times", most.1),
            Stated::figure(3.5, most.1).over(1.0),
            "as above",
        ),
        Claim::new(
            "duplicates that sampling loses, of all writes",
            "2.6 and 3.3 points (h7, t1)",
            format!("up to {:.1} points", lost * 100.0),
            Stated::range((2.6, 3.3), (lost * 100.0, lost * 100.0)).over(0.0),
            "what comes again comes here as whole requests, which is easy for a sample",
        ),
    ]
}
