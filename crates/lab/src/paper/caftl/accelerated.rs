//! What the accelerations are worth (figures 15 to 17).

use super::setting::{
    BLOCKS, CRC32_CYCLES, DUPLICATES, SHA1_CYCLES, SLOWEST_MHZ, USUAL, bursts, load, nanos,
};
use crate::outcome::Outcome;
use crate::paper::cell::{Cell, run};
use crate::paper::claim::{Claim, Stated, percent};
use crate::paper::evaluation::Frame;
use crate::paper::failure::PaperError;
use crate::paper::size::Size;
use crate::vellum::Hashing;

pub const COSTS: &str = "Section 4.4: what the accelerations are worth";

/// Megabytes of the write buffer.
const BUFFERS: [u64; 2] = [16, SMALL];
const SMALL: u64 = 2;

const NONE: &str = "no hashing";
const EACH: &str = "SHA-1 of each";
const SAMPLING: &str = "sampling";
const PREHASHING: &str = "pre-hashing";
const SWITCH: &str = "dynamic switch";
const ALL: &str = "all three";

/// The accelerations, and how many times as fast as with each block hashed the paper has them.
const FASTER: [(&str, f64); 3] = [(SAMPLING, 110.0), (PREHASHING, 148.0), (SWITCH, 200.0)];

/// How blocks are hashed: the paper's name, nanoseconds per block and per decision, and the switch.
fn hashings() -> [(&'static str, Hashing); 6] {
    let sha1 = nanos(SHA1_CYCLES, SLOWEST_MHZ);
    // One block of each unit is hashed, and the rest of the unit if that block is found.
    let sampled = |each: u64| each / u64::from(BLOCKS) + each * u64::from(DUPLICATES[0]) / 100;
    let how = |check_ns, print_ns, switch| Hashing {
        check_ns,
        print_ns,
        switch,
    };
    [
        (NONE, how(0, 0, false)),
        (EACH, how(sha1, 0, false)),
        (SAMPLING, how(sampled(sha1), 0, false)),
        (
            PREHASHING,
            how(nanos(CRC32_CYCLES, SLOWEST_MHZ), sha1, false),
        ),
        (SWITCH, how(sha1, 0, true)),
        (
            ALL,
            how(sampled(nanos(CRC32_CYCLES, SLOWEST_MHZ)), sha1, true),
        ),
    ]
}

/// The outcomes by buffer and hashing.
struct Runs(Vec<((u64, &'static str), Outcome)>);

impl Runs {
    fn of(size: Size, capacity: u64, threads: usize) -> Result<Self, PaperError> {
        let requests = match size {
            Size::Tiny => 1500,
            Size::Short => 6000,
            Size::Full => 30_000,
        };
        let each = BUFFERS.into_iter();
        let each = each.flat_map(|megabytes| hashings().map(|how| (megabytes, how)));
        let mut cells = Vec::new();
        for (megabytes, (name, hashing)) in each {
            let load = (load(DUPLICATES[0], requests), USUAL);
            let scenario = bursts(capacity, load, megabytes, hashing);
            let policy = match name {
                NONE => "vellum:zero=off",
                SAMPLING | ALL => "vellum:zero=off,dedup,sample=32K,decide=sha1",
                _ => "vellum:zero=off,dedup,decide=sha1",
            };
            let what = format!("{megabytes} MB, {name}");
            cells.push(Cell::new((megabytes, name), what, scenario, policy)?);
        }
        Ok(Self(run(cells, threads)?))
    }

    /// The mean milliseconds of reads and of writes.
    fn mean(&self, megabytes: u64, name: &str) -> (f64, f64) {
        let found = self.0.iter().find(|(key, _)| *key == (megabytes, name));
        found.map_or((0.0, 0.0), |(_, o)| {
            (o.reads.mean_ns as f64 / 1e6, o.writes.mean_ns as f64 / 1e6)
        })
    }

    /// How many times as fast as with each block hashed, with the small buffer.
    fn faster(&self, name: &str) -> f64 {
        let (slow_reads, slow) = self.mean(SMALL, EACH);
        let (reads, writes) = self.mean(SMALL, name);
        (slow / writes).max(slow_reads / reads)
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let rows = self.0.iter().map(|((megabytes, name), outcome)| {
            let (reads, writes) = self.mean(*megabytes, name);
            vec![
                format!("{megabytes} MB"),
                (*name).into(),
                format!("{reads:.3} ms"),
                format!("{writes:.3} ms"),
                percent(
                    outcome.counted("dedup_blocks") as f64 / outcome.host_written.max(1) as f64,
                ),
            ]
        });
        rows.collect()
    }
}

/// The table.
pub fn frame(size: Size, capacity: u64, threads: usize) -> Result<Frame, PaperError> {
    let runs = Runs::of(size, capacity, threads)?;
    let setting = format!(
        "The same device with a write buffer of 16 or of 2 MB; bursts of 100 requests of 32 KiB (80% \
            writes, {}% of them duplicates) ten times a second, at their own times. Synthetic. \
         SHA-1 takes {SHA1_CYCLES} and CRC32 {CRC32_CYCLES} cycles a block (the paper's) at {SLOWEST_MHZ} \
         MHz, its slowest processor, one block after the other; a write is answered when it is \
         in the buffer. Sampling is charged its mean: one block in {BLOCKS}, and the rest of the units \
         that are found. While the switch is off nothing is \
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
        .rows(runs.rows())
        .claims(claims(&runs)))
}

fn claims(runs: &Runs) -> Vec<Claim> {
    let added = runs.mean(16, PREHASHING).1 / runs.mean(16, NONE).1 - 1.0;
    let left = runs.mean(SMALL, ALL).1 / runs.mean(SMALL, NONE).1 - 1.0;
    let overload = "where hashing every block cannot keep up, its queue grows for as long as the load \
        lasts: a ratio to it says how long that was, not how \
                    fast a system is";
    let mut claims = vec![Claim::new(
        "latency added by pre-hashing with a buffer of 16 MB",
        "at most 0.5%",
        percent(added),
        Stated::AtMost {
            theirs: 0.5,
            ours: added * 100.0,
        },
        "a burst that finds the buffer full waits for hashing; the paper's are not known",
    )];
    for (name, theirs) in FASTER {
        claims.push(Claim::new(
            format!("{name} with 2 MB: faster than hashing each block"),
            format!("up to {theirs} times"),
            format!("{:.1} times", runs.faster(name)),
            Stated::figure(theirs, runs.faster(name)).over(1.0),
            overload,
        ));
    }
    let all = "latency of writes with all three and 2 MB, over none";
    claims.push(Claim::words(all, "almost no overhead", percent(left), left <= 0.05).because(
        "what is found is not written; a third owner's fingerprint is computed in the way of its write",
    ));
    claims
}
