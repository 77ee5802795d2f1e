//! Average responses, compared with another simulator's.
//!
//! DiskSim 4.0 with Microsoft's SSD extension, with which CAFTL was evaluated, includes eight loads and the average
//! response of each. Six are generated: they are made here by the same rule, with its parameter files, for the preset
//! `disksim`. Two are traces (iozone, postmark) that come with it.
//!
//! docs/benchmarks/lab.md says where the models differ.

use crate::base::{Levelling, Order, Victim};
use crate::content::{Content, Contents};
use crate::drives;
use crate::outcome::{Outcome, Snapshot};
use crate::policy::{Base, Layer, Policy};
use crate::replay::{Reading, RepeatedContents, TraceFile};
use crate::rng::Rng;
use crate::scenario::{Device, Load, Precondition, Scenario, ScenarioError};
use crate::sim::Pace;
use crate::trace::{Format, Op};
use crate::workload::Request;
use serde::Serialize;
use std::path::Path;

/// How far a response may be off, in percent.
pub const OFF_MAX: f64 = 1.0;

/// How many requests of the five million sequential writes have one page, two and three, as counted by DiskSim. Only a
/// dozen sequences, each of one length, are too few to draw at random: that alone would move responses by -0.6 to
/// 3.2%.
const LENGTHS: [u64; 3] = [4_347_791, 600_113, 52_096];

/// Flash of the drive: 8 packages of 16,384 blocks, each with 63 pages besides its summary.
const FLASH_BYTES: u64 = 8 * 16_384 * 63 * 4096;
/// Blocks that are requested, from the first on: 7,018,904 sectors.
const SPAN_BLOCKS: u64 = 7_018_904 / 8;
/// The longest gap between two requests; gaps are uniform below it.
const GAP_NS: u64 = 1_000_000;
/// The mean of a request's length before it is rounded.
const MEAN_SECTORS: f64 = 8.0;

/// A generated load, and DiskSim's result for it.
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

/// The six generated loads.
pub const REFERENCES: [Reference; 6] = [
    reference("sequential read, 250k", (true, true), 250_000, 0.132_511),
    reference("sequential write, 250k", (false, true), 250_000, 0.310_895),
    reference("sequential write, 5M", (false, true), 5_000_000, 0.334_365),
    reference("random read, 250k", (true, false), 250_000, 0.136_118),
    reference("random write, 250k", (false, false), 250_000, 0.329_458),
    reference("random write, 5M", (false, false), 5_000_000, 0.593_438),
];

/// A trace of its validation, and DiskSim's result for it.
#[derive(Clone, Copy, Debug)]
pub struct Trace {
    /// Its name there.
    pub load: &'static str,
    file: &'static str,
    response_ms: f64,
}

/// The two traces.
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

/// A comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Response {
    /// The load.
    pub load: &'static str,
    /// Requests.
    pub requests: u64,
    /// DiskSim's average, in milliseconds.
    pub disksim_ms: f64,
    /// Our average, in milliseconds.
    pub measured_ms: f64,
    /// How far ours is off, in percent.
    pub off_percent: f64,
}

/// DiskSim's generator: requests in sequence, at random places or from where the previous one ended.
struct Generator {
    rng: Rng,
    reference: Reference,
    span: u64,
    /// Each request stands for this many.
    parts: u64,
    at: u64,
    lba: u64,
    blocks: u64,
    version: u64,
}

impl Generator {
    /// A sequence has requests of one length. DiskSim's first sequence is, by its statistics, of single pages, and
    /// longer than 250,000 requests. With `parts` the span and the sequences are shorter by that factor.
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

    /// The length of the next request of a sequence.
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

    /// The place and length of the next request: after the previous one, unless its sequence or the span has ended.
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

    /// A random place and length within the span.
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
            ..Request::flush(0)
        })
    }
}

/// Runs one of them on the drive, or on one `parts` times smaller, which reaches the same state with as many times
/// fewer requests.
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

/// Replays one of the traces that come with DiskSim.
///
/// # Errors
/// When it cannot be read, or fails before its end.
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
    /// True if it is close enough.
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
        handles: None,
    }),
    over_provisioning: None,
};

fn scenario(load: Load<'_>, parts: u64, seed: u64) -> Scenario<'_> {
    Scenario {
        pace: Pace::Open,
        precondition: Precondition::Fill,
        seed,
        verify: false,
        ..Scenario::new(
            Device {
                capacity: Some(FLASH_BYTES / parts),
                read_priority: false,
                ..Device::new(drives::own("disksim"))
            },
            load,
        )
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
    fn its_generated_loads_have_its_responses() {
        let rows = REFERENCES.map(|reference| response(reference, 16, 1).unwrap());
        for row in &rows {
            assert!(row.is_near(), "{row:?}");
        }
        // Sequential requests never wait for others: each takes what its parts take, to the nanosecond.
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
        // Sectors of a request, milliseconds of the run, requests that start where the previous one ended.
        let (blocks, last, from_end) = of(random);
        assert!((blocks * 8.0 / 12.644 - 1.0).abs() < 0.01, "{blocks}");
        assert!((last as f64 / 125e9 - 1.0).abs() < 0.01);
        assert!(from_end < 10);
        let (blocks, _, from_end) = of(sequential);
        assert_eq!((blocks, from_end), (1.0, 249_999));
    }
}
