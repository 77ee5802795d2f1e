//! The duplicates in a load match the published figures, within a stated tolerance (docs/LAB.md compares them).

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use vellum_lab::content::Content;
use vellum_lab::workload::{self, Again, Generator, Request, Shape};

const WRITES: usize = 200_000;

fn load(again: Again, duplicates: u32, request_blocks: u32) -> Vec<Request> {
    let shape = Shape {
        blocks: 100_000,
        request_blocks,
        zeros: 0,
        duplicates,
        again,
        flush_every: 0,
        drift: 0,
        bursts: None,
        seed: 3,
    };
    let requests = Generator::new(*workload::find("uniform").unwrap(), shape);
    requests.take(WRITES / request_blocks as usize).collect()
}

fn counts(requests: &[Request]) -> BTreeMap<Content, u32> {
    let mut counts = BTreeMap::new();
    for content in requests.iter().flat_map(|request| &request.contents) {
        *counts.entry(*content).or_insert(0) += 1;
    }
    counts
}

/// The share of contents that are written more than twice.
fn often(requests: &[Request]) -> f64 {
    let counts = counts(requests);
    let often = counts.values().filter(|&&count| count > 2).count();
    often as f64 / counts.len() as f64
}

#[test]
fn duplicates_have_the_requested_share() {
    // CAFTL's least and most duplicate writes (section 1.2: 5.8 and 28.1%), and OrderMergeDedup's most (73%).
    for duplicates in [6, 28, 73] {
        let requests = load(Again::Soon, duplicates, 1);
        let found = 100.0 * (1.0 - counts(&requests).len() as f64 / WRITES as f64);
        assert!((found - f64::from(duplicates)).abs() < 0.5, "{found}");
    }
}

#[test]
fn few_contents_repeat_often() {
    // CAFTL, section 3.2: 10 to 20% of the contents are there more than twice, on disks with duplicates of 8 to 86%.
    for duplicates in [32, 40, 48] {
        let share = often(&load(Again::Soon, duplicates, 1));
        assert!((0.10..0.20).contains(&share), "{duplicates}%: {share}");
    }
    // Where few contents repeat, each repeats many times: there the model does not match that paper.
    assert!(often(&load(Again::Popular, 40, 1)) < 0.02);
}

#[test]
fn popular_contents_follow_ycsbs_law() {
    let counts = counts(&load(Again::Popular, 40, 1));
    let mut by_count: Vec<u32> = counts.into_values().collect();
    by_count.sort_unstable_by(|a, b| b.cmp(a));
    // A thousand contents: zeta(1000, 0.99) is 7.729.
    let most = f64::from(by_count[0]) / (0.4 * WRITES as f64);
    assert!((most * 7.729 - 1.0).abs() < 0.03, "{most}");
}

#[test]
fn recent_contents_repeat_in_runs_and_mostly_soon() {
    // Neighbours of duplicates are duplicates (iDedup, FAST 2012): all of a request's blocks repeat, or none.
    let requests = load(Again::Soon, 40, 8);
    let mut seen = BTreeMap::new();
    let mut again = 0;
    for (at, request) in requests.iter().enumerate() {
        let known: Vec<Option<usize>> = request
            .contents
            .iter()
            .map(|content| seen.insert(*content, at))
            .collect();
        assert!(known.iter().all(|one| *one == known[0]));
        again += usize::from(known[0].is_some());
    }
    assert!(again > requests.len() / 3);
    // The logarithm of the distance is uniform: so half of all distances are at most the square root of the number written
    // before, or less, because an earlier copy may have been repeated in between.
    let requests = load(Again::Soon, 40, 1);
    let (mut near, mut all) = (0.0, 0.0);
    let mut seen = BTreeMap::new();
    for (at, request) in requests.iter().enumerate() {
        if let Some(before) = seen.insert(request.contents[0], at) {
            all += 1.0;
            near += f64::from(u8::from((at - before).pow(2) <= at));
        }
    }
    let share = near / all;
    assert!((0.5..0.6).contains(&share), "{share}");
}
