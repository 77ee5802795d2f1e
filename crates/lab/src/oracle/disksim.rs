//! Average responses, against another simulator's.
//!
//! DiskSim 4.0 with Microsoft's SSD extension, which CAFTL was evaluated with, comes with eight loads and what each should take on
//! average. Six of them are generated: they are made here by the same rule, from its parameter files, for the preset `disksim`. Two are
//! traces (iozone, postmark) and come with it.
//!
//! Where the models differ is in docs/benchmarks/lab.md.

use crate::base::{Levelling, Order, Victim};
use crate::content::{Content, Contents};
use crate::drives;
use crate::flash;
use crate::outcome::{Outcome, Snapshot};
use crate::policy::{Base, Layer, Policy};
use crate::replay::{Reading, RepeatedContents, TraceFile};
use crate::rng::Rng;
use crate::scenario::{Device, Load, Own, Precondition, Scenario, ScenarioError};
use crate::sim::Pace;
use crate::trace::{Format, Op};
use crate::workload::Request;
use serde::Serialize;
use std::path::Path;

/// How far a response may be off, in percent.
pub const OFF_MAX: f64 = 1.0;

/// How many requests of the five million sequential writes are of one page, of two and of three, as DiskSim counted them. A dozen sequences of
/// a length each is too few to draw: by that alone responses would be off by -0.6 to 3.2%.
const LENGTHS: [u64; 3] = [4_347_791, 600_113, 52_096];

/// Flash of the drive: 8 packages of 16,384 blocks, of which each has 63 pages beside its summary.
const FLASH_BYTES: u64 = 8 * 16_384 * 63 * 4096;
/// Blocks that are asked for, from the first on: 7,018,904 sectors.
const SPAN_BLOCKS: u64 = 7_018_904 / 8;
/// The longest gap between two requests; all shorter ones are as likely.
const GAP_NS: u64 = 1_000_000;
/// The mean of a request's length before it is rounded.
const MEAN_SECTORS: f64 = 8.0;

/// A generated load, and what DiskSim says of it.
#[derive(Clone, Copy, Debug)]
pub struct Reference {
    /// Its name there.
    pub load: &'static str,
    read: bool,
    sequential: bool,
    requests: u64,
    /// The average response, in milliseconds.
    response_ms: f64,
}

const fn reference(
    load: &'static str,
    (read, sequential): (bool, bool),
    requests: u64,
    response_ms: f64,
) -> Reference {
    Reference {
        load,
        read,
        sequential,
        requests,
        response_ms,
    }
}

/// The six.
pub const REFERENCES: [Reference; 6] = [
    reference("sequential read, 250k", (true, true), 250_000, 0.132_511),
    reference("sequential write, 250k", (false, true), 250_000, 0.310_895),
    reference("sequential write, 5M", (false, true), 5_000_000, 0.334_365),
    reference("random read, 250k", (true, false), 250_000, 0.136_118),
    reference("random write, 250k", (false, false), 250_000, 0.329_458),
    reference("random write, 5M", (false, false), 5_000_000, 0.593_438),
];

/// A trace of its validation, and what DiskSim says of it.
#[derive(Clone, Copy, Debug)]
pub struct Trace {
    /// Its name there.
    pub load: &'static str,
    file: &'static str,
    response_ms: f64,
}

/// The two.
pub const TRACES: [Trace; 2] = [
    Trace {
        load: "iozone",
        file: "ssd-iozone-aligned2-100K.trace",
        response_ms: 6.394_276,
    },
    Trace {
        load: "postmark",
        file: "ssd-postmark-aligned2.trace",
        response_ms: 4.140_330,
    },
];

/// What is compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Response {
    /// The load.
    pub load: &'static str,
    /// Requests.
    pub requests: u64,
    /// DiskSim's average, in milliseconds.
    pub disksim_ms: f64,
    /// Ours.
    pub measured_ms: f64,
    /// How far ours is off, in percent.
    pub off_percent: f64,
}

/// DiskSim's generator: a request after the other, at random places or from where the one before ended.
struct Generator {
    rng: Rng,
    reference: Reference,
    span: u64,
    /// Each request stands for so many.
    parts: u64,
    at: u64,
    lba: u64,
    blocks: u64,
    version: u64,
}

impl Generator {
    /// A sequence is of requests of one length. DiskSim's first one is, by its statistics, of single pages, and 250,000 are not its
    /// end. With `parts` the span is as many times shorter, and so are the sequences.
    fn new(reference: Reference, parts: u64, seed: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            reference,
            span: SPAN_BLOCKS / parts,
            parts,
            at: 0,
            lba: 0,
            blocks: 1,
            version: 0,
        }
    }

    /// How long the next of a sequence is.
    fn length(&self) -> u64 {
        let mut before = self.version * self.parts;
        for (blocks, count) in (1..).zip(LENGTHS) {
            if before < count {
                return blocks;
            }
            before -= count;
        }
        LENGTHS.len() as u64
    }

    /// Where the next request is and how long: behind the one before, in a sequence that has not come to the end of the span.
    fn follow(&mut self) -> (u64, u64) {
        if !self.reference.sequential {
            return self.anywhere();
        }
        let (next, blocks) = (self.lba + self.blocks, self.length());
        match blocks == self.blocks && next + blocks < self.span {
            true => (next, blocks),
            false => (self.rng.below(self.span - blocks), blocks),
        }
    }

    /// Where a request is and how long, of those that lie within the span.
    fn anywhere(&mut self) -> (u64, u64) {
        loop {
            let lba = self.rng.below(self.span);
            let sectors = (-MEAN_SECTORS * (1.0 - self.rng.unit()).ln()) as u64;
            let blocks = sectors.div_ceil(8);
            if blocks > 0 && lba + blocks < self.span {
                return (lba, blocks);
            }
        }
    }
}

impl Iterator for Generator {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        self.at += self.rng.below(GAP_NS);
        (self.lba, self.blocks) = self.follow();
        self.version += 1;
        let lbas = self.lba..self.lba + self.blocks;
        let (op, contents) = match self.reference.read {
            true => (Op::Read, Contents::new()),
            false => {
                let content = |lba| Content::synthetic(0, lba, self.version);
                (Op::Write { fua: false }, lbas.map(content).collect())
            }
        };
        Some(Request {
            at: self.at,
            op,
            lba: self.lba,
            blocks: self.blocks as u32,
            contents,
            homes: None,
            committed: None,
            sizes: None,
        })
    }
}

/// Runs one of them on the drive, or on one `parts` times smaller, which takes as many times fewer requests to the same state.
///
/// # Errors
/// When it cannot be run.
pub fn response(reference: Reference, parts: u64, seed: u64) -> Result<Response, ScenarioError> {
    let parts = parts.max(1);
    let scenario = scenario(Load::Requests(&[]), parts, seed);
    let (mut sim, _) = scenario.prepared(&BASE)?;
    sim.time.set_instant(false);
    let before = Snapshot::begin(&mut sim);
    let generator = Generator::new(reference, parts, seed);
    let mut requests = generator.take((reference.requests / parts) as usize);
    sim.run(&mut requests, scenario.pace)?;
    let outcome = before.until_now(&sim);
    Ok(Response::of(
        &outcome,
        reference.load,
        reference.response_ms,
    ))
}

/// Replays one of the traces that come with it.
///
/// # Errors
/// When it cannot be read, or is not served to its end.
pub fn replayed(trace: &Trace, folder: &Path, seed: u64) -> Result<Response, ScenarioError> {
    let reading = Reading {
        format: Some(Format::DiskSim),
        in_place: true,
        ..Reading::default()
    };
    let file = TraceFile::read(&folder.join(trace.file), &reading)?;
    let load = Load::Trace {
        trace: &file,
        times: 1,
        repeated: RepeatedContents::New,
    };
    let outcome = scenario(load, 1, seed).run(&BASE)?;
    Ok(Response::of(&outcome, trace.load, trace.response_ms))
}

impl Response {
    /// Whether it is as near as it has to be.
    #[must_use]
    pub fn is_near(&self) -> bool {
        self.off_percent.abs() <= OFF_MAX
    }

    fn of(outcome: &Outcome, load: &'static str, disksim_ms: f64) -> Self {
        let all = [outcome.reads, outcome.writes];
        let requests = all.iter().map(|seen| seen.count).sum::<u64>();
        let took: f64 = all
            .iter()
            .map(|seen| seen.mean_ns as f64 * seen.count as f64)
            .sum();
        let measured_ms = took / requests as f64 / 1e6;
        Self {
            load,
            requests,
            disksim_ms,
            measured_ms,
            off_percent: (measured_ms / disksim_ms - 1.0) * 100.0,
        }
    }
}

const BASE: Policy = Policy {
    layer: Layer::Base(Base {
        victim: Victim::Greedy,
        separated: false,
        order: Order::Off,
        levelling: Levelling {
            dynamic: false,
            threshold: None,
        },
        map_cache: None,
    }),
    over_provisioning: None,
};

fn scenario(load: Load<'_>, parts: u64, seed: u64) -> Scenario<'_> {
    Scenario {
        device: Device {
            preset: drives::own("disksim"),
            capacity: Some(FLASH_BYTES / parts),
            over_provisioning: None,
            erase_limit: None,
            flush_ns: 0,
            read_priority: false,
            options: flash::Options::default(),
        },
        load,
        pace: Pace::Open,
        precondition: Precondition::Fill,
        seed,
        daily_bytes: None,
        verify: false,
        timed: true,
        sizes: None,
        hashing: None,
        own: Own::default(),
        watch: None,
    }
}

/// The responses as a table.
#[must_use]
pub fn table(rows: &[Response]) -> String {
    let mut out = String::from(
        "| load | requests | DiskSim, ms | measured, ms | off |\n| --- | --- | --- | --- | --- |\n",
    );
    for row in rows {
        out.push_str(&format!(
            "| {} | {} | {:.4} | {:.4} | {:+.2}% |\n",
            row.load, row.requests, row.disksim_ms, row.measured_ms, row.off_percent
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_generated_loads_take_what_it_says() {
        let rows = REFERENCES.map(|reference| response(reference, 16, 1).unwrap());
        for row in &rows {
            assert!(row.is_near(), "{row:?}");
        }
        // What is asked for in turn meets nobody: it takes what its parts take, to the nanosecond.
        let [sequential_read, sequential_write, ..] = rows;
        assert!(sequential_read.off_percent.abs() < 0.01);
        assert!(sequential_write.off_percent.abs() < 0.01);
    }

    #[test]
    fn a_trace_is_replayed_from_its_folder_and_every_request_counts() {
        let folder = tempfile::tempdir().unwrap();
        let missing = replayed(&TRACES[0], folder.path(), 1).unwrap_err();
        assert!(missing.to_string().contains(TRACES[0].file), "{missing}");
        let lines = "0.5 0 800 8 0\n9.5 0 56000000 8 1\n19.5 0 800 8 1\n";
        std::fs::write(folder.path().join(TRACES[0].file), lines).unwrap();
        let row = replayed(&TRACES[0], folder.path(), 1).unwrap();
        let (read, write) = (0.132_507, 0.307_507);
        let mean = (2.0 * read + write) / 3.0;
        assert_eq!(row.requests, 3);
        assert!((row.measured_ms - mean).abs() < 1e-5, "{row:?}");
        assert!(!row.is_near());
    }

    #[test]
    fn the_load_is_that_of_its_statistics() {
        let of = |reference: Reference| {
            let requests = Generator::new(reference, 1, 1).take(250_000);
            let (mut blocks, mut last, mut sequential) = (0, 0, 0);
            let mut ends = 0;
            for request in requests {
                assert!(request.lba + u64::from(request.blocks) < SPAN_BLOCKS);
                sequential += u64::from(request.lba == ends);
                ends = request.lba + u64::from(request.blocks);
                blocks += request.blocks;
                last = request.at;
            }
            (f64::from(blocks) / 250_000.0, last, sequential)
        };
        let [sequential, _, _, random, ..] = REFERENCES;
        // Sectors of a request, milliseconds of the run, requests from where the one before ended.
        let (blocks, last, from_end) = of(random);
        assert!((blocks * 8.0 / 12.644 - 1.0).abs() < 0.01, "{blocks}");
        assert!((last as f64 / 125e9 - 1.0).abs() < 0.01);
        assert!(from_end < 10);
        let (blocks, _, from_end) = of(sequential);
        assert_eq!((blocks, from_end), (1.0, 249_999));
    }
}
