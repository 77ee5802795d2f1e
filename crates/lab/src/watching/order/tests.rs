//! A commit block goes on after everything it commits, and as soon as that is there.

use crate::journal::{Commit, Host, Places};
use crate::rng::Rng;
use crate::trace::Op;
use crate::watching::Watching;
use crate::watching::tests::{LOGICAL, journal, load, written};
use crate::workload::Request;
use std::collections::{BTreeSet, HashMap};
use vellum_core::addr::{Lba, Nanos};
use vellum_watch::{Stop, Wait, Wants};

/// A device whose writes take effect late, and in any order.
struct Device {
    watching: Watching,
    /// Handed on, without effect yet.
    open: Vec<Request>,
    held: Vec<(Request, Wait)>,
    /// Blocks whose newest write has taken effect.
    there: BTreeSet<u64>,
    waited: u64,
}

/// The number of a transaction that a write commits.
fn commits(request: &Request) -> Option<u64> {
    let (_, bytes) = request.bytes.as_deref()?.first()?;
    let is_commit = written(request).is_journals(0) && bytes[4..8] == [0, 0, 0, 2];
    let number = u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
    is_commit.then_some(u64::from(number))
}

fn blocks(request: &Request) -> std::ops::Range<u64> {
    request.lba..request.lba + u64::from(request.blocks)
}

impl Device {
    fn send(&mut self, request: Request, waited: Option<Wait>, truth: &Truth) {
        let waits = self.held.iter().map(|(_, wait)| wait);
        match self.watching.stop(&written(&request), true, waits) {
            Some(Stop::Wait(reason)) => {
                self.waited += u64::from(waited.is_none());
                let wait = Wait {
                    since: Nanos(0),
                    reason,
                    is_answered: false,
                    is_withheld: false,
                };
                return self.held.push((request, wait));
            }
            Some(Stop::Refuse) => panic!("nothing was refused"),
            None => {}
        }
        if let Some(number) = commits(&request) {
            for (_, Lba(place)) in &truth[&number] {
                assert!(self.there.contains(place), "{number} without {place}");
            }
        }
        for block in blocks(&request) {
            self.there.remove(&block);
        }
        self.open.push(request);
    }

    fn end(&mut self, one: usize, truth: &Truth) {
        let request = self.open.swap_remove(one);
        self.there.extend(blocks(&request));
        let range = (request.lba, u64::from(request.blocks));
        self.watching.ended(1, range, true);
        while self.watching.take_due() {
            for (request, wait) in std::mem::take(&mut self.held) {
                self.send(request, Some(wait), truth);
            }
        }
    }
}

type Truth = HashMap<u64, Vec<(Lba, Lba)>>;

/// One run. Returns how many commit blocks waited, of how many.
fn live(seed: u64) -> (u64, u64) {
    let mut rng = Rng::new(seed);
    let mut journal = journal(&mut rng);
    journal.commit = Commit::Async;
    let at = Places::of(journal.blocks, LOGICAL);
    let load = load(&mut rng, LOGICAL - at.data_at);
    let mut host = Host::new(load.into_iter(), journal, LOGICAL, seed);
    let requests: Vec<Request> = host.by_ref().collect();
    let truth: Truth = host.truth.into_iter().collect();
    let mut device = Device {
        watching: Watching::new(&journal.disk(LOGICAL), Wants::default()),
        open: Vec::new(),
        held: Vec::new(),
        there: BTreeSet::new(),
        waited: 0,
    };
    assert!(device.watching.orders_commits());
    for request in requests {
        if matches!(request.op, Op::Write { .. }) {
            device.send(request, None, &truth);
        } else {
            // A flush is sent when everything else is answered.
            while !device.open.is_empty() {
                device.end(device.open.len() - 1, &truth);
            }
            assert!(device.held.is_empty(), "it waits for what is there");
        }
        while !device.open.is_empty() && rng.below(3) == 0 {
            let one = rng.below(device.open.len() as u64) as usize;
            device.end(one, &truth);
        }
    }
    let (complete, unjudged) = device.watching.judged();
    assert_eq!(unjudged, 0);
    assert_eq!(complete, truth.len() as u64, "each is judged");
    (device.waited, complete)
}

#[test]
fn a_commit_block_waits_for_all_that_it_commits() {
    let lives = (1..60).map(live);
    let (waited, all) = lives.fold((0, 0), |sum, life| (sum.0 + life.0, sum.1 + life.1));
    assert!(waited > 1000 && all > waited, "{waited} of {all}");
}
