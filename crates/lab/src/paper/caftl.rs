//! CAFTL (Chen et al., 2011): what in-line deduplication finds (§4.2), what it costs in time (§4.3, §4.4), and how its
//! store is searched (§4.3.3).

mod accelerated;
mod setting;
mod timing;

use super::cell::{Cell, run};
use super::claim::{Claim, Stated, percent};
use super::evaluation::{Evaluation, Frame};
use super::experiment::{Assumption, Experiment};
use super::failure::PaperError;
use super::list::Listed;
use super::scenarios::scenario;
use super::size::Size;
use crate::content::Content;
use crate::outcome::Outcome;
use crate::scenario::{Load, Scenario};
use crate::workload::{Generator, Shape};
use setting::{BLOCKS, DUPLICATES, MEMORY, load, memory_kib};
use std::collections::HashMap;

const FOUND: &str = "Section 4.2: what is found";
const SEARCH: &str = "Section 4.3.3: searching the store";

/// How the accelerations' figures differ.
const SLOW: &str = "at 304 MHz, the paper's at 934";

fn listed() -> Vec<Listed> {
    vec![
        Listed::not(
            "Figures 1, 2, 4, 6 and 7",
            "duplicates on disks and in traces, and what of a block tells them",
            "of its motivation and design; the disks and traces are not public",
        ),
        Listed::not(
            "Tables 1 and 2",
            "the simulated drive",
            "the setting: the caftl device, and cycles of SHA-1 and CRC32",
        ),
        Listed::run("Figure 8", "duplicate writes removed", FOUND),
        Listed::run("Figure 9", "space gained", FOUND)
            .but("in pages, where the paper counts erase blocks"),
        Listed::run(
            "Figure 10",
            "latency by the size of the buffer",
            timing::COSTS,
        ),
        Listed::run(
            "Figure 11",
            "latency by the speed of the processor",
            timing::COSTS,
        ),
        Listed::run("Figure 12", "comparisons of a look-up", SEARCH)
            .but("in fewer segments than 256: the memory is small"),
        Listed::run("Figures 13 and 14", "sampling, by its unit", timing::UNITS),
        Listed::run("Figure 15", "pre-hashing", accelerated::COSTS).but(SLOW),
        Listed::run("Figure 16", "the dynamic switch", accelerated::COSTS).but(SLOW),
        Listed::run("Figure 17", "all three", accelerated::COSTS).but(SLOW),
    ]
}

/// The contents that these requests write, without duplicates.
fn contents(requests: u64, duplicates: u32) -> u64 {
    requests * u64::from(BLOCKS) * u64::from(100 - duplicates) / 100
}

/// The paper's store with memory for a share of the contents, the same with sampling, and ours with memory for all.
fn systems(contents: u64, memory: u64) -> [(&'static str, String); 3] {
    let kib = memory_kib(contents, memory);
    [
        (
            "CAFTL's store",
            format!("vellum:zero=off,dedup,dedup-memory={kib}K,store=caftl"),
        ),
        (
            "and sampling",
            format!(
                "vellum:zero=off,dedup,dedup-memory={kib}K,sample={}K,store=caftl",
                4 * BLOCKS
            ),
        ),
        ("ours, all contents", "vellum:zero=off,dedup".into()),
    ]
}

/// Runs the evaluation, as far as the lab can.
///
/// # Errors
/// When a run fails.
pub fn evaluate(size: Size, threads: usize) -> Result<Evaluation, PaperError> {
    let (capacity, requests) = match size {
        Size::Tiny => (1 << 30, 8192),
        Size::Short => (2 << 30, 65_536),
        Size::Full => (16 << 30, 1 << 20),
    };
    Ok(Evaluation {
        paper: "CAFTL: A Content-Aware Flash Translation Layer Enhancing the Lifespan of Flash Memory based \
                Solid State Drives (Chen et al., 2011)".into(),
        frames: vec![
            found(capacity, requests, threads)?,
            timing::buffers_and_clocks(size, capacity, threads)?,
            timing::units(size, capacity, threads)?,
            accelerated::frame(size, capacity, threads)?,
            search(capacity, requests, threads)?,
        ],
        missing: vec![
            "The paper's traces (desktop, TPC-H on Hadoop, TPC-C) are not public: the shares of duplicates \
             are theirs, the streams are made up.".into(),
            "Out-of-line deduplication, of which the paper has no figure: the engine's background pass is a \
             scan of the device's runtime, which the lab does not have; `make bench-dedup` runs it on a \
             volume."
                .into(),
        ],
        list: listed(),
    })
}

/// What a pass that remembers every stored content finds: duplicate blocks, and the blocks and contents stored at the end.
struct Perfect {
    duplicates: u64,
    addresses: u64,
}

fn perfect(scenario: &Scenario<'_>, blocks: u64) -> Perfect {
    let Load::Synthetic(load) = scenario.load else {
        unreachable!("the load was made here")
    };
    let shape = Shape {
        blocks,
        request_blocks: load.request_blocks,
        zeros: 0,
        duplicates: load.duplicates,
        again: load.again,
        flush_every: 0,
        drift: 0,
        bursts: None,
        seed: scenario.seed,
    };
    let mut holds: HashMap<u64, Content> = HashMap::new();
    let mut stored: HashMap<Content, u64> = HashMap::new();
    let mut duplicates = 0;
    for request in Generator::new(load.workload, shape).take(load.requests as usize) {
        for (lba, &content) in (request.lba..).zip(&request.contents) {
            let owners = stored.entry(content).or_default();
            duplicates += u64::from(*owners > 0);
            *owners += 1;
            if let Some(old) = holds.insert(lba, content)
                && let Some(owners) = stored.get_mut(&old)
            {
                *owners -= 1;
                if *owners == 0 {
                    stored.remove(&old);
                }
            }
        }
    }
    Perfect {
        duplicates,
        addresses: holds.len() as u64,
    }
}

const FOUND_SETTING: &str = "The caftl device (10 packages of 8 planes, 64 pages of 4 KiB a block, 15% \
                             over-provisioning), new, 2 GiB of its flash (the paper's is 42 GB; --full: 16 \
                             GiB); 65,536 writes of 32 KiB (--full: 1,048,576), 80% of them to 20% of the \
                             volume; of the requests 6, 17 or 28% hold what an earlier one held, mostly one \
                             not long ago. Synthetic. *Found*: of the duplicates that a pass which knows all \
                             that is stored finds. *Space*: pages in use at the end, fewer than addresses \
                             written. The paper's store has memory for a tenth of the contents. Ours decides \
                             by comparing bytes.";

fn found(capacity: u64, requests: u64, threads: usize) -> Result<Frame, PaperError> {
    let mut cells = Vec::new();
    for duplicates in DUPLICATES {
        for (system, policy) in systems(contents(requests, duplicates), MEMORY) {
            let scenario = scenario("caftl", capacity, load(duplicates, requests));
            let what = format!("{duplicates}% duplicates");
            cells.push(Cell::new((duplicates, system), what, scenario, &policy)?);
        }
    }
    let outcomes = run(cells, threads)?;
    let mut rows = Vec::new();
    let mut best = HashMap::new();
    let mut last = None;
    for ((duplicates, system), outcome) in &outcomes {
        if last.as_ref().is_none_or(|(of, _)| of != duplicates) {
            let scenario = scenario("caftl", capacity, load(*duplicates, requests));
            last = Some((*duplicates, perfect(&scenario, outcome.logical_blocks)));
        }
        let Some((_, perfect)) = &last else { continue };
        let shares = Shares::of(outcome, perfect);
        rows.push(vec![
            format!("{duplicates}%"),
            (*system).into(),
            entries(outcome).to_string(),
            percent(shares.found),
            percent(shares.fewer),
            percent(shares.space),
        ]);
        let most: &mut Shares = best.entry(*system).or_default();
        most.found = most.found.max(shares.found);
        most.fewer = most.fewer.max(shares.fewer);
        most.space = most.space.max(shares.space);
    }
    let of = |system| best.get(system).copied().unwrap_or_default();
    let (store, engine) = (of("CAFTL's store"), of("ours, all contents"));
    let copies = "what comes again comes mostly soon here, and how soon it did in the paper's traces is not \
                  known: the store must hold a content until then";
    let space = "what is overwritten leaves its owners: of the pages in use at the end fewer are shared than \
                 of those written, and a fifth of the volume is overwritten again and again here";
    let claim = |what: &str, theirs: f64, why: &str, of: fn(Shares) -> f64| {
        let (store, engine) = (of(store), of(engine));
        let ours = format!(
            "up to {} in the paper's store, {} in ours",
            percent(store),
            percent(engine)
        );
        let stated = Stated::figure(theirs, store * 100.0).over(0.0);
        Claim::new(what, format!("up to {theirs}%"), ours, stated, why)
    };
    let columns = [
        "duplicates",
        "system",
        "entries",
        "found",
        "fewer writes",
        "space",
    ];
    let mut frame = Frame::new(FOUND, FOUND_SETTING, &columns)
        .rows(rows)
        .claims([
            claim("duplicates found, of a perfect pass's", 86.2, copies, |s| {
                s.found
            }),
            claim(FEWER.0, FEWER.1, copies, |s| s.fewer),
            claim(SPACE.0, SPACE.1, space, |s| s.space),
        ]);
    frame.try_out(found_by_memory(capacity, requests, threads)?);
    Ok(frame)
}

/// Claims, and the paper's figures.
const FEWER: (&str, f64) = ("fewer writes", 24.2);
const SPACE: (&str, f64) = ("fewer erase blocks in use", 31.2);

/// The memory of the store.
const STORE: Assumption = Assumption {
    varies: "memory of the store, for so much of the contents",
    unit: "%",
    usual: MEMORY as f64,
    others: &[20.0, 40.0, 100.0],
    plausible: (1.0, 100.0),
    because: "the paper does not say how many contents its store holds: where it counts comparisons its 256 \
              segments hold \"the fingerprints for each workload\", and it advises to keep all in memory if \
              there is room",
};

/// What is found of the most duplicates, by the store's memory.
fn found_by_memory(capacity: u64, requests: u64, threads: usize) -> Result<Experiment, PaperError> {
    let most = DUPLICATES[2];
    let columns = [FEWER, SPACE].map(|(claim, _)| (claim.to_owned(), "%"));
    let perfect = |outcome: &Outcome| {
        let scenario = scenario("caftl", capacity, load(most, requests));
        perfect(&scenario, outcome.logical_blocks)
    };
    Experiment::vary(&STORE, &columns, |memory| {
        let [(_, policy), ..] = systems(contents(requests, most), memory as u64);
        let scenario = scenario("caftl", capacity, load(most, requests));
        let cell = Cell::new((), "the store's memory".into(), scenario, &policy)?;
        let outcomes = run(vec![cell], threads)?;
        let mut shares = outcomes.iter().map(|(_, o)| Shares::of(o, &perfect(o)));
        let shares = shares.next().unwrap_or_default();
        let both = [(FEWER.1, shares.fewer), (SPACE.1, shares.space)];
        let stated = both.map(|(theirs, ours)| Stated::figure(theirs, ours * 100.0).over(0.0));
        Ok(stated.to_vec())
    })
}

#[derive(Clone, Copy, Default)]
struct Shares {
    found: f64,
    fewer: f64,
    space: f64,
}

impl Shares {
    fn of(outcome: &Outcome, perfect: &Perfect) -> Self {
        let share = |part: u64, of: u64| part as f64 / of.max(1) as f64;
        let found = outcome.counted("dedup_blocks");
        Self {
            found: share(found, perfect.duplicates),
            fewer: share(found, outcome.host_written),
            space: 1.0 - share(outcome.counted("live_blocks"), perfect.addresses),
        }
    }
}

/// Contents that its index can hold, at 8 bytes each.
fn entries(outcome: &Outcome) -> u64 {
    let index = outcome
        .memory
        .iter()
        .find(|part| part.name == "content index");
    index.map_or(0, |part| part.bytes / 8)
}

/// The stores, as the paper's figure has them.
const STORES: [(&str, &str); 5] = [
    (PLAIN, "caftl-plain"),
    ("range check", "caftl-range"),
    ("by hotness", "caftl-hot"),
    ("by hotness, range check", "caftl-hot-range"),
    (BY_VALUE, "caftl"),
];
const PLAIN: &str = "as they come";
const BY_VALUE: &str = "by value: binary search over buckets";

/// The comparisons a look-up of each store.
struct Searched(Vec<(&'static str, f64)>);

impl Searched {
    fn of(capacity: u64, requests: u64, threads: usize) -> Result<Self, PaperError> {
        let kib = memory_kib(contents(requests, DUPLICATES[1]), MEMORY);
        let mut cells = Vec::new();
        for (name, store) in STORES {
            let scenario = scenario("caftl", capacity, load(DUPLICATES[1], requests));
            let policy = format!("vellum:zero=off,dedup,dedup-memory={kib}K,store={store}");
            cells.push(Cell::new(name, name.into(), scenario, &policy)?);
        }
        let each = run(cells, threads)?.into_iter().map(|(name, outcome)| {
            let lookups = outcome.counted("dedup_lookups").max(1);
            let comparisons = outcome.counted("index_comparisons");
            (name, comparisons as f64 / lookups as f64)
        });
        Ok(Self(each.collect()))
    }

    /// How many fewer a store has than the plain one, as a share.
    fn fewer(&self, store: &str) -> f64 {
        let of = |store| {
            let found = self.0.iter().find(|(name, _)| *name == store);
            found.map_or(1.0, |(_, each)| *each)
        };
        1.0 - of(store) / of(PLAIN)
    }
}

fn search(capacity: u64, requests: u64, threads: usize) -> Result<Frame, PaperError> {
    let usual = Searched::of(capacity, requests, threads)?;
    let rows = usual.0.iter().map(|&(name, each)| {
        let fewer = usual.fewer(name);
        vec![name.into(), format!("{each:.1}"), percent(fewer)]
    });
    let claims = [
        Claim::new(
            "fewer comparisons by the range check",
            "23.7%",
            percent(usual.fewer(STORES[1].0)),
            Stated::figure(23.7, usual.fewer(STORES[1].0) * 100.0).over(0.0),
            "it costs two comparisons where a binary search of a bucket of 341 costs nine, and a bucket of \
             contents in the order of arrival spans nearly all of its segment: it pays where buckets are \
             hardly filled",
        ),
        Claim::new(
            "fewer comparisons by binary search over buckets",
            "up to 85.5%",
            percent(usual.fewer(BY_VALUE)),
            Stated::figure(85.5, usual.fewer(BY_VALUE) * 100.0).over(0.0),
            "the more buckets a segment has, the more it saves: memory is a tenth of the contents' here",
        ),
    ];
    let setting = "As in the first table, 17% duplicates, memory for a tenth of the contents; comparisons a \
                   look-up, and a newcomer's place, together.";
    let columns = ["store", "comparisons a look-up", "fewer"];
    Ok(Frame::new(SEARCH, setting, &columns)
        .rows(rows)
        .claims(claims))
}
