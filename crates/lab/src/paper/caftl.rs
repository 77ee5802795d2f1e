//! CAFTL (Chen et al., 2011): what in-line deduplication finds (§4.2), what it costs in time (§4.3, §4.4), and how its
//! store is searched (§4.3.3).

mod setting;
mod timing;

use super::cell::{Cell, run};
use super::claim::{Claim, Stated, percent};
use super::evaluation::{Evaluation, Frame};
use super::failure::PaperError;
use super::list::Listed;
use super::scenarios::scenario;
use super::size::Size;
use crate::content::Content;
use crate::outcome::Outcome;
use crate::scenario::{Load, Scenario};
use crate::vellum::Hashing;
use crate::workload::{Generator, Shape};
use setting::{
    BLOCKS, CRC32_CYCLES, DUPLICATES, MHZ, SHA1_CYCLES, bursts, load, memory_kib, nanos,
};
use std::collections::HashMap;

/// Megabytes of the write buffer.
const BUFFERS: [u64; 2] = [16, 2];

const FOUND: &str = "Section 4.2: what is found";
const COSTS: &str = "Section 4.4: what the accelerations are worth";
const SEARCH: &str = "Section 4.3.3: searching the store";

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
        Listed::run("Figure 15", "pre-hashing", COSTS).but("at 304 MHz, the paper's at 934"),
        Listed::run("Figure 16", "the dynamic switch", COSTS).but("at 304 MHz, the paper's at 934"),
        Listed::run("Figure 17", "all three", COSTS).but("at 304 MHz, the paper's at 934"),
    ]
}

/// The paper's store with memory for a tenth of the contents, the same with sampling, and ours with memory for all.
fn systems(contents: u64) -> [(&'static str, String); 3] {
    let kib = memory_kib(contents);
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
        paper: "CAFTL: A Content-Aware Flash Translation Layer Enhancing the Lifespan of Flash Memory based Solid State Drives (Chen et al., 2011)".into(),
        frames: vec![
            found(capacity, requests, threads)?,
            timing::buffers_and_clocks(size, capacity, threads)?,
            timing::units(size, capacity, threads)?,
            latency(size, capacity, threads)?,
            search(capacity, requests, threads)?,
        ],
        missing: vec![
            "The paper's traces (desktop, TPC-H on Hadoop, TPC-C) are not public: the shares of duplicates are theirs, the streams are made up.".into(),
            "Out-of-line deduplication, of which the paper has no figure: the engine's background pass is a scan of the device's runtime, which the lab does not have; \
             `make bench-dedup` runs it on a volume."
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

fn found(capacity: u64, requests: u64, threads: usize) -> Result<Frame, PaperError> {
    let mut cells = Vec::new();
    for duplicates in DUPLICATES {
        let contents = requests * u64::from(BLOCKS) * u64::from(100 - duplicates) / 100;
        for (system, policy) in systems(contents) {
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
    let copies = "what comes again comes mostly soon here, and how soon it did in the paper's traces is not known: the store must hold a content until then";
    let space = "what is overwritten leaves its owners: of the pages in use at the end fewer are shared than of those written, and a fifth of the volume is \
                 overwritten again and again here";
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
    let setting = "The caftl device (10 packages of 8 planes, 64 pages of 4 KiB a block, 15% over-provisioning), new, 2 GiB of its flash (the paper's \
                   is 42 GB; --full: 16 GiB); 65,536 writes of 32 KiB (--full: 1,048,576), 80% of them to 20% of the volume; of the requests 6, 17 or 28% hold what an earlier one \
                   held, mostly one not long ago. Synthetic. *Found*: of the duplicates that a pass which knows all that is stored finds. *Space*: pages in use at the \
                   end, fewer than addresses written. The paper's store has memory for a tenth of the contents. Ours decides by comparing bytes.";
    let columns = [
        "duplicates",
        "system",
        "entries",
        "found",
        "fewer writes",
        "space",
    ];
    Ok(Frame::new(FOUND, setting, &columns).rows(rows).claims([
        claim("duplicates found, of a perfect pass's", 86.2, copies, |s| {
            s.found
        }),
        claim("fewer writes", 24.2, copies, |s| s.fewer),
        claim("fewer erase blocks in use", 31.2, space, |s| s.space),
    ]))
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

/// How blocks are hashed: the paper's name, nanoseconds per block and per decision, and the switch.
fn hashings() -> [(&'static str, Hashing); 6] {
    let sha1 = nanos(SHA1_CYCLES, MHZ);
    // One block of each unit is hashed, and the rest of the unit if that block is found.
    let sampled = |each: u64| each / u64::from(BLOCKS) + each * u64::from(DUPLICATES[0]) / 100;
    let how = |check_ns, print_ns, switch| Hashing {
        check_ns,
        print_ns,
        switch,
    };
    [
        ("no hashing", how(0, 0, false)),
        ("SHA-1 of each", how(sha1, 0, false)),
        ("sampling", how(sampled(sha1), 0, false)),
        ("pre-hashing", how(nanos(CRC32_CYCLES, MHZ), sha1, false)),
        ("dynamic switch", how(sha1, 0, true)),
        (
            "all three",
            how(sampled(nanos(CRC32_CYCLES, MHZ)), sha1, true),
        ),
    ]
}

fn latency(size: Size, capacity: u64, threads: usize) -> Result<Frame, PaperError> {
    let requests = match size {
        Size::Tiny => 1500,
        Size::Short => 6000,
        Size::Full => 30_000,
    };
    let mut cells = Vec::new();
    for megabytes in BUFFERS {
        for (name, hashing) in hashings() {
            let scenario = bursts(capacity, load(DUPLICATES[0], requests), megabytes, hashing);
            let policy = match name {
                "no hashing" => "vellum:zero=off",
                "sampling" | "all three" => "vellum:zero=off,dedup,sample=32K,decide=sha1",
                _ => "vellum:zero=off,dedup,decide=sha1",
            };
            let what = format!("{megabytes} MB, {name}");
            cells.push(Cell::new((megabytes, name), what, scenario, policy)?);
        }
    }
    let outcomes = run(cells, threads)?;
    let mean = |megabytes: u64, name: &str| {
        let of = |(key, _): &&((u64, &str), Outcome)| *key == (megabytes, name);
        let found = outcomes.iter().find(of);
        found.map_or((0.0, 0.0), |(_, o)| {
            (o.reads.mean_ns as f64 / 1e6, o.writes.mean_ns as f64 / 1e6)
        })
    };
    let rows = outcomes.iter().map(|((megabytes, name), outcome)| {
        let (reads, writes) = mean(*megabytes, name);
        vec![
            format!("{megabytes} MB"),
            (*name).into(),
            format!("{reads:.3} ms"),
            format!("{writes:.3} ms"),
            percent(outcome.counted("dedup_blocks") as f64 / outcome.host_written.max(1) as f64),
        ]
    });
    let rows: Vec<_> = rows.collect();
    let added = |name| mean(16, name).1 / mean(16, "no hashing").1 - 1.0;
    let faster = |name| {
        let ((slow_reads, slow), (reads, writes)) = (mean(2, "SHA-1 of each"), mean(2, name));
        (slow / writes).max(slow_reads / reads)
    };
    let left = mean(2, "all three").1 / mean(2, "no hashing").1 - 1.0;
    let overload = "where hashing every block cannot keep up, its queue grows for as long as the load lasts: a ratio to it says how long that was, not how \
                    fast a system is";
    let mut claims = vec![Claim::new(
        "latency added by pre-hashing with a buffer of 16 MB",
        "at most 0.5%",
        percent(added("pre-hashing")),
        Stated::AtMost {
            theirs: 0.5,
            ours: added("pre-hashing") * 100.0,
        },
        "a burst that finds the buffer full waits for hashing; the paper's are not known",
    )];
    for (name, theirs) in [
        ("sampling", 110.0),
        ("pre-hashing", 148.0),
        ("dynamic switch", 200.0),
    ] {
        claims.push(Claim::new(
            format!("{name} with 2 MB: faster than hashing each block"),
            format!("up to {theirs} times"),
            format!("{:.1} times", faster(name)),
            Stated::figure(theirs, faster(name)).over(1.0),
            overload,
        ));
    }
    let all = "latency of writes with all three and 2 MB, over none";
    claims.push(Claim::words(all, "almost no overhead", percent(left), left <= 0.05).because(
        "what is found is not written; a third owner's fingerprint is computed in the way of its write",
    ));
    let setting = format!(
        "The same device with a write buffer of 16 or of 2 MB; bursts of 100 requests of 32 KiB (80% writes, {}% of them duplicates) ten times a second, at their own times. Synthetic. \
         SHA-1 takes {SHA1_CYCLES} and CRC32 {CRC32_CYCLES} cycles a block (the paper's) at {MHZ} MHz, its slowest processor, one block after the other; a write is answered when it is \
         in the buffer. Sampling is charged its mean: one block in {BLOCKS}, and the rest of the units that are found. While the switch is off nothing is \
         charged, and what is found then is still found here.",
        DUPLICATES[0]
    );
    let columns = [
        "buffer",
        "hashing",
        "reads, mean",
        "writes, mean",
        "fewer writes",
    ];
    Ok(Frame::new(COSTS, &setting, &columns)
        .rows(rows)
        .claims(claims))
}

fn search(capacity: u64, requests: u64, threads: usize) -> Result<Frame, PaperError> {
    let contents = requests * u64::from(BLOCKS) * u64::from(100 - DUPLICATES[1]) / 100;
    let kib = memory_kib(contents);
    let mut cells = Vec::new();
    for (name, store) in [
        ("as they come", "caftl-plain"),
        ("range check", "caftl-range"),
        ("by hotness", "caftl-hot"),
        ("by hotness, range check", "caftl-hot-range"),
        ("by value: binary search over buckets", "caftl"),
    ] {
        let scenario = scenario("caftl", capacity, load(DUPLICATES[1], requests));
        let policy = format!("vellum:zero=off,dedup,dedup-memory={kib}K,store={store}");
        cells.push(Cell::new(name, name.into(), scenario, &policy)?);
    }
    let outcomes = run(cells, threads)?;
    let each = |outcome: &Outcome| {
        let lookups = outcome.counted("dedup_lookups").max(1);
        outcome.counted("index_comparisons") as f64 / lookups as f64
    };
    let first = outcomes.first().map_or(1.0, |(_, outcome)| each(outcome));
    let fewer = |at: usize| outcomes.get(at).map_or(0.0, |(_, o)| 1.0 - each(o) / first);
    let rows = outcomes.iter().map(|(name, outcome)| {
        vec![
            (*name).into(),
            format!("{:.1}", each(outcome)),
            percent(1.0 - each(outcome) / first),
        ]
    });
    let rows: Vec<_> = rows.collect();
    let claims = [
        Claim::new(
            "fewer comparisons by the range check",
            "23.7%",
            percent(fewer(1)),
            Stated::figure(23.7, fewer(1) * 100.0).over(0.0),
            "it costs two comparisons where a binary search of a bucket of 341 costs nine, and a bucket of contents in the order of arrival spans nearly all of its \
                  segment: it pays where buckets are hardly filled",
        ),
        Claim::new(
            "fewer comparisons by binary search over buckets",
            "up to 85.5%",
            percent(fewer(4)),
            Stated::figure(85.5, fewer(4) * 100.0).over(0.0),
            "the more buckets a segment has, the more it saves: memory is a tenth of the contents' here",
        ),
    ];
    let setting = "As in the first table, 17% duplicates, memory for a tenth of the contents; comparisons a look-up, and a newcomer's place, together.";
    let columns = ["store", "comparisons a look-up", "fewer"];
    Ok(Frame::new(SEARCH, setting, &columns)
        .rows(rows)
        .claims(claims))
}
