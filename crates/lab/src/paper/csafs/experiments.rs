//! What the paper does not state, varied: how much metadata its workloads write, and how long they work between two
//! writes.

use super::runs::{AS_DELTAS, DEDUPFS, PLAIN, Runs, SYSTEMS, Setting, Speed, WORKS};
use crate::paper::claim::Range;
use crate::paper::experiment::{Assumption, Experiment};
use crate::paper::failure::PaperError;

/// How many blocks of metadata a commit changes beside those of its file, by workload: values, those that are plausible,
/// and why they are.
const METADATA: [(&[f64], Range, &str); 3] = [
    (&[8.0, 16.0], (1.0, 32.0), DATABASE),
    (&[8.0, 16.0], (1.0, 32.0), DATABASE),
    (
        &[8.0, 12.0, 16.0, 24.0, 40.0],
        (1.0, 64.0),
        "a build makes thousands of files and touches those that it reads, 16 inodes share a block, and \
         64 writes are several files; the paper's table II has 111 thousand contents with metadata and 59 \
         without it, so nearly half of what was written was metadata. Its three figures do not agree on one \
         value: what is written wants fewer than the hash entries",
    ),
];

const DATABASE: &str = "the paper does not say how much of its traffic was metadata, but its table II has \
    65 and 48 thousand contents with metadata and 12 and 17 without it, so \
                        that most was; its introduction quotes half of a file server's requests";

/// What a block that is written takes the application in microseconds, likewise. Plausible are a minute to half an hour
/// for as many blocks as the paper's table II has contents.
const WORKING: [(&[f64], Range, &str); 3] = [
    (
        &[2000.0, 8000.0],
        (1000.0, 28_000.0),
        "the paper does not say how long it ran, but its table II has 65 thousand contents, and a run of \
            one minute to half an hour has 1 to 28 ms for each",
    ),
    (
        &[1500.0, 6000.0],
        (1250.0, 37_000.0),
        "the paper does not say how long it ran, but its table II has 48 thousand contents, and a run of \
            one minute to half an hour has 1.25 to 37 ms for each",
    ),
    (
        &[1000.0, 4000.0],
        (540.0, 16_000.0),
        "the paper does not say how long the build took, but its table II has 111 thousand contents, and \
            a build of one minute to half an hour has 0.5 to 16 ms for each",
    ),
];

/// Neither metadata beside a file's own, nor work.
const USUAL: f64 = 0.0;

/// The traffic and the erasures, and then the hash entries, by how much metadata a commit changes.
pub fn written(runs: &Runs, work: usize, threads: usize) -> Result<[Experiment; 2], PaperError> {
    let (others, plausible, because) = METADATA[work];
    let systems = [PLAIN, AS_DELTAS, DEDUPFS].map(|system| SYSTEMS[system]);
    let mut trials = Vec::new();
    for &value in [USUAL].iter().chain(others) {
        let metadata = value as u64;
        let setting = Setting {
            metadata,
            ..runs.setting
        };
        trials.push((value, Runs::of(&[work], &systems, setting, threads)?));
    }
    let of = |value: f64| {
        let tried = trials.iter().find(|(other, _)| *other == value);
        tried.map_or(&trials[0].1, |(_, tried)| tried)
    };
    let assumption = Assumption {
        varies: "blocks of metadata that a commit changes beside those of its file",
        unit: "",
        usual: USUAL,
        others,
        plausible,
        because,
    };
    let [traffic, erases] = WORKS[work].claims();
    let columns = [(traffic, "%"), (erases, "%")];
    let entries = [(WORKS[work].entries_claim(), "%")];
    Ok([
        Experiment::vary(&assumption, &columns, |value| {
            Ok(of(value).written(work).to_vec())
        })?,
        Experiment::vary(&assumption, &entries, |value| {
            Ok(vec![of(value).fewer_entries(work)])
        })?,
    ])
}

/// The speed, by how long the application works.
pub fn speed(runs: &Runs, work: usize, threads: usize) -> Result<Experiment, PaperError> {
    let (others, plausible, because) = WORKING[work];
    let assumption = Assumption {
        varies: "time of the application for each block that it writes",
        unit: " us",
        usual: USUAL,
        others,
        plausible,
        because,
    };
    let systems = [PLAIN, AS_DELTAS].map(|system| SYSTEMS[system]);
    let Speed { unit, stated, .. } = WORKS[work].speed;
    let columns = [(WORKS[work].speed_claim(), unit)];
    Experiment::vary(&assumption, &columns, |value| {
        let write_ns = (value * 1000.0) as u64;
        let setting = Setting {
            write_ns,
            ..runs.setting
        };
        let runs = Runs::of(&[work], &systems, setting, threads)?;
        Ok(vec![stated(runs.faster(work))])
    })
}
