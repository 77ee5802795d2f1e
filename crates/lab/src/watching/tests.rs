//! What the watch finds out about a simulated file system, against what the file system knows of itself.

use super::{Watching, Written};
use crate::content::{Content, Contents};
use crate::journal::{Commit, File, Host, Journal, Mode, Places};
use crate::rng::Rng;
use crate::trace::Op;
use crate::workload::Request;
use std::collections::HashMap;
use vellum_core::addr::{Buf, Lba};
use vellum_core::seam::{Class, Hint, Payload, WriteOnce};
use vellum_watch::Wants;

pub(super) const LOGICAL: u64 = 40_000;
/// Larger transactions are not reported.
const TOLD: usize = 256;

/// Home blocks and their copies.
type Pairs = Vec<(Lba, Lba)>;

pub(super) fn load(rng: &mut Rng, space: u64) -> Vec<Request> {
    let mut load = Vec::new();
    for version in 0..400 {
        let blocks = 1 + rng.below(40);
        let lba = rng.below(space - blocks);
        load.push(match rng.below(12) {
            0..=2 => Request::flush(0),
            3 => Request {
                op: Op::DISCARD,
                blocks: blocks as u32,
                contents: Contents::new(),
                ..Request::write_one(lba, 0, 0)
            },
            _ => Request {
                blocks: blocks as u32,
                contents: (lba..lba + blocks)
                    .map(|lba| Content::synthetic(1, lba, version))
                    .collect(),
                ..Request::write_one(lba, 0, 0)
            },
        });
    }
    load
}

/// What lies in the journal, as the file system knows it.
#[derive(Default)]
struct Log {
    homes: HashMap<u64, u64>,
    newest: HashMap<u64, u64>,
}

/// Compares the watch's places of an earlier version of each block of a write with what lies there.
fn hold_places(watching: &mut Watching, log: &mut Log, request: &Request, told: &[(Lba, Lba)]) {
    let lbas = request.lba..request.lba + u64::from(request.blocks);
    for (index, lba) in lbas.clone().enumerate() {
        if written(request).is_journals(index) {
            log.homes.remove(&lba);
        }
    }
    log.homes
        .extend(told.iter().map(|(home, at)| (at.0, home.0)));
    for lba in lbas {
        let places: Vec<u64> = watching
            .earlier_places(Lba(lba))
            .all()
            .map(|at| at.0)
            .collect();
        let Some(&home) = log.homes.get(&lba) else {
            assert_eq!(places, [lba]);
            continue;
        };
        let before = log.newest.insert(home, lba);
        let before = before.filter(|at| log.homes.get(at) == Some(&home));
        let expected: Vec<u64> = before.into_iter().chain([home]).collect();
        assert_eq!(places, expected, "{lba}");
    }
}

/// Compares the class of each block of a write with where the block is.
fn hold_classes(watching: &Watching, at: &Places, log: &Log, request: &Request) {
    let payload = |content: &Content| Payload {
        buf: Buf(0),
        digest: content.digest(),
    };
    let mut payloads: Vec<Payload> = request.contents.iter().map(payload).collect();
    watching.classify(&written(request), &mut payloads);
    for (lba, payload) in (request.lba..).zip(&payloads) {
        let expected = match lba {
            lba if (at.journal..at.inode).contains(&lba) => match log.homes.contains_key(&lba) {
                true => Class::Copy,
                false => Class::Journal,
            },
            // Nothing points to indirect blocks: the file's inode is empty.
            lba if lba < at.indirect => Class::Metadata,
            _ => Class::Data,
        };
        assert_eq!(payload.digest.class, expected, "{lba}");
    }
}

pub(super) fn written(request: &Request) -> Written<'_> {
    Written {
        first: request.lba,
        contents: &request.contents,
        bytes: &request.bytes,
    }
}

pub(super) fn journal(rng: &mut Rng) -> Journal {
    Journal {
        mode: [Mode::Data, Mode::Ordered, Mode::Writeback][rng.below(3) as usize],
        blocks: 1024 + rng.below(1024),
        commit: [Commit::TwoFlushes, Commit::Async, Commit::DriveOrders][rng.below(3) as usize],
        fsync_flushes: true,
        write_back: 0,
        file: [File::Overwritten, File::Growing, File::GrowingIndirect][rng.below(3) as usize],
    }
}

/// One run. Returns how many pairs were reported, and how many of them as committed.
fn live(seed: u64) -> (usize, usize) {
    let mut rng = Rng::new(seed);
    let journal = journal(&mut rng);
    let at = Places::of(journal.blocks, LOGICAL);
    let load = load(&mut rng, LOGICAL - at.data_at);
    let wants = Wants {
        write_once: WriteOnce::Descriptor,
        replay: true,
        deltas: true,
        dedup: true,
    };
    let mut watching = Watching::new(&journal.disk(LOGICAL), wants);
    assert_eq!(watching.journals(), [(at.journal, journal.blocks)]);
    let mut host = Host::new(load.into_iter(), journal, LOGICAL, seed);
    let (mut told, mut committed, mut log): (Pairs, Vec<Pairs>, _) = Default::default();
    for request in host.by_ref() {
        if !matches!(request.op, Op::Write { .. }) {
            continue;
        }
        let pairs = watching.read(&written(&request)).to_vec();
        hold_places(&mut watching, &mut log, &request, &pairs);
        hold_classes(&watching, &at, &log, &request);
        told.extend(pairs);
        watching.handed_over(&mut |hint| match hint {
            Hint::Committed { pairs } => committed.push(pairs.to_vec()),
            _ => unreachable!("nothing else is told then"),
        });
    }
    let truth: Vec<Pairs> = host.truth.into_values().collect();
    assert_eq!(told, truth.concat(), "each copy, and no other pair");
    assert_eq!(watching.commits(), truth.len() as u64);
    let short: Vec<Pairs> = truth.into_iter().filter(|all| all.len() <= TOLD).collect();
    assert_eq!(committed, short, "each transaction as it is complete");
    (told.len(), committed.concat().len())
}

#[test]
fn the_watch_agrees_with_the_file_system() {
    let lives = (1..60).map(live);
    let (told, committed) = lives.fold((0, 0), |sum, life| (sum.0 + life.0, sum.1 + life.1));
    assert!(told > 50_000 && committed > 20_000, "{told}, {committed}");
}
