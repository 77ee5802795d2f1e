//! A commit block goes on after everything it commits, and as soon as that is there.

use crate::journal::{Commit, Host, Places};
use crate::rng::Rng;
use crate::trace::Op;
use crate::watching::Watching;
use crate::watching::tests::{LOGICAL, journal, load, written};
use crate::workload::Request;
use std::collections::{BTreeSet, HashMap};
use vellum_core::addr::{Lba, Nanos};
use vellum_watch::{CommitGate, Stop, Wait, Waiting, Wants};

/// A device whose writes take effect late, and in any order.
struct Device {
    gate: CommitGate<Request>,
    /// Handed on, without effect yet.
    open: Vec<Request>,
    /// Blocks whose newest write has taken effect.
    there: BTreeSet<u64>,
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
    fn send(&mut self, request: Request, waited: Option<&Wait>, truth: &Truth) {
        match written(&request).stop(&mut self.gate, usize::MAX, waited) {
            Some(Stop::Wait(reason)) => {
                let wait = Wait {
                    since: Nanos(0),
                    reason,
                    is_answered: false,
                    is_withheld: false,
                };
                let waiting = Waiting {
                    run: (request.lba, 1),
                    write: request,
                    wait,
                };
                return self.gate.keep(waiting, waited.is_none());
            }
            Some(Stop::Refuse(_)) => panic!("nothing was refused"),
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
        written(&request).read(|_, change| self.gate.order.ended(Nanos(1), change, Ok(())));
        while self.gate.begins(Nanos(1)) {
            while let Some(waiting) = self.gate.take_next() {
                self.send(waiting.write, Some(&waiting.wait), truth);
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
    let disk = journal.disk(LOGICAL);
    let watching = Watching::new(&disk, Wants::default());
    assert!(watching.orders_commits());
    let mut device = Device {
        gate: CommitGate::default(),
        open: Vec::new(),
        there: BTreeSet::new(),
    };
    watching.guard(&mut device.gate, &disk);
    for request in requests {
        if matches!(request.op, Op::Write { .. }) {
            device.send(request, None, &truth);
        } else {
            // A flush is sent when everything else is answered.
            while !device.open.is_empty() {
                device.end(device.open.len() - 1, &truth);
            }
            assert!(!device.gate.holds_any(), "it waits for what is there");
        }
        while !device.open.is_empty() && rng.below(3) == 0 {
            let one = rng.below(device.open.len() as u64) as usize;
            device.end(one, &truth);
        }
    }
    let (complete, unjudged) = device.gate.order.counts();
    assert_eq!(unjudged, 0);
    assert_eq!(complete, truth.len() as u64, "each is judged");
    (device.gate.counts().1, complete)
}

#[test]
fn a_commit_block_waits_for_all_that_it_commits() {
    let lives = (1..60).map(live);
    let (waited, all) = lives.fold((0, 0), |sum, life| (sum.0 + life.0, sum.1 + life.1));
    assert!(waited > 1000 && all > waited, "{waited} of {all}");
}
