//! The model of a journaling host: what it writes where, and how often it flushes.

use super::*;
use crate::workload::{self, Generator};
use std::collections::BTreeSet;
use std::ops::Range;

const LOGICAL: u64 = 100_000;

/// Single blocks over everything beside the journal.
fn shape(journal: &Journal, flush_every: u64) -> workload::Shape {
    workload::Shape {
        blocks: LOGICAL - journal.data_at(LOGICAL),
        request_blocks: 1,
        zeros: 0,
        duplicates: 0,
        again: workload::Again::Popular,
        flush_every,
        drift: 0,
        bursts: None,
        seed: 1,
    }
}

/// The blocks of a journal after its superblock.
fn log(blocks: u64) -> Range<u64> {
    let at = Places::of(blocks, LOGICAL).journal;
    at + 1..at + blocks
}

fn requests(mode: Mode, commit: Commit) -> Vec<Request> {
    let journal = Journal {
        mode,
        blocks: 2048,
        commit,
        fsync_flushes: true,
        write_back: 0,
        file: File::Overwritten,
    };
    let shape = shape(&journal, 50);
    // 20,000 writes, and 400 fsyncs.
    let load = Generator::new(*workload::find("uniform").unwrap(), shape).take(20_400);
    Host::new(load, journal, LOGICAL, 1).collect()
}

#[test]
fn every_home_block_equals_a_journal_copy_that_is_still_there() {
    let requests = requests(Mode::Data, Commit::TwoFlushes);
    let at = Places::of(2048, LOGICAL).journal;
    let mut journal = BTreeMap::new();
    let mut homes = 0;
    for request in requests.iter().filter(|r| r.op != Op::Flush) {
        for (i, &content) in request.contents.iter().enumerate() {
            let lba = request.lba + i as u64;
            if (at..at + 2048).contains(&lba) {
                journal.insert(lba, content);
            } else {
                homes += 1;
                assert!(journal.values().any(|&copy| copy == content), "home {lba}");
            }
        }
    }
    let written: BTreeSet<Content> = requests.iter().flat_map(|r| r.contents.clone()).collect();
    assert!(
        homes > 15_000 && written.len() > 20_000,
        "{homes} {}",
        written.len()
    );
}

#[test]
fn each_mode_has_its_number_of_flushes() {
    let count = |commit| {
        let all = requests(Mode::Data, commit);
        let fua = all
            .iter()
            .filter(|r| r.op == Op::Write { fua: true })
            .count();
        (all.iter().filter(|r| r.op == Op::Flush).count(), fua)
    };
    let (two, one) = (count(Commit::TwoFlushes), count(Commit::Async));
    // 400 commits: a flush and a FUA each, or only a flush, and the flush of the fsync; a checkpoint has one of each.
    assert_eq!(two.0, one.0);
    assert_eq!(two.1 - one.1, 400);
    assert!(two.0 >= 800, "{two:?}");
    let ordered = requests(Mode::Ordered, Commit::TwoFlushes);
    let blocks: u64 = ordered.iter().map(|r| u64::from(r.blocks)).sum();
    let journal: u64 = requests(Mode::Data, Commit::TwoFlushes)
        .iter()
        .map(|r| u64::from(r.blocks))
        .sum();
    assert!(
        journal * 2 > blocks * 3 && journal < blocks * 2,
        "{journal} {blocks}"
    );
}

#[test]
fn a_file_that_grows_changes_bitmap_and_descriptor_once_a_commit() {
    let blocks = |file| {
        let journal = Journal {
            mode: Mode::Ordered,
            blocks: 16_384,
            commit: Commit::TwoFlushes,
            fsync_flushes: true,
            write_back: 0,
            file,
        };
        let shape = shape(&journal, 10);
        // 2000 writes, 200 fsyncs. Counts what is written into the journal except its superblock.
        let load = Generator::new(*workload::find("sequential").unwrap(), shape).take(2200);
        let host = Host::new(load, journal, LOGICAL, 1);
        let log = log(16_384);
        let journaled = host.filter(|r| r.op != Op::Flush && log.contains(&r.lba));
        journaled.map(|r| r.blocks).sum::<u32>()
    };
    assert_eq!(blocks(File::Overwritten), 200 * 3);
    assert_eq!(blocks(File::Growing), 200 * 5);
    // Another indirect block for every 1024 blocks.
    assert!((1200..1203).contains(&blocks(File::GrowingIndirect)));
}

/// Files of 8192 blocks, written with an fsync every 256 and deleted. Returns the blocks written into the journal and
/// home.
fn deleted(mode: Mode, file: File, fsyncs: bool) -> (u64, u64) {
    let journal = Journal {
        mode,
        blocks: 16_384,
        commit: Commit::TwoFlushes,
        fsync_flushes: true,
        write_back: 0,
        file,
    };
    let write = |lba| Request::write_one(lba, 1, lba);
    let flush = |n: u64| (fsyncs && n % 256 == 255).then(|| Request::flush(0));
    let load = (0..8192).flat_map(|n| [Some(write(n)), flush(n)]);
    let delete = Request {
        op: Op::DISCARD,
        blocks: 8192,
        contents: Contents::new(),
        ..write(0)
    };
    let load = load.flatten().chain([delete, Request::flush(0)]);
    let log = log(16_384);
    let (mut journaled, mut home) = (0, 0);
    for request in Host::new(load, journal, LOGICAL, 1).filter(|r| r.op != Op::Flush) {
        match request.lba {
            at if log.contains(&at) => journaled += u64::from(request.blocks),
            at if at + 1 == log.start => {}
            _ => home += u64::from(request.blocks),
        }
    }
    (journaled, home)
}

#[test]
fn deleted_blocks_are_not_written_home_and_indirect_ones_are_revoked() {
    // 32 commits: descriptor, inode, bitmap, group descriptor, commit; and the same for the deletion.
    let (commits, growing) = (33, File::Growing);
    let (journaled, home) = deleted(Mode::Ordered, growing, true);
    assert_eq!((journaled, home), (commits * 5, 8192 + 3));
    assert_eq!(deleted(Mode::Writeback, growing, true), (journaled, home));
    // An indirect block in each of the 32, and in the last a revoke block for all eight.
    let indirect = deleted(Mode::Ordered, File::GrowingIndirect, true);
    assert_eq!(indirect, (journaled + 32 + 1, home));
    // A real one (docs/benchmarks/lab.md) was seen to take 218 blocks, three of them for another file.
    assert!(indirect.0.abs_diff(218) * 10 < 218, "{indirect:?}");
    // Journaled data is forgotten: never written home, and not revoked either. The real one took 8441 blocks.
    let data = deleted(Mode::Data, File::GrowingIndirect, true);
    assert!(data.1 < 2000, "{data:?}");
    assert!(data.0.abs_diff(8441) * 100 < 8441, "{data:?}");
    // What was never synced is not written at all.
    assert_eq!(deleted(Mode::Ordered, growing, false), (5, 3));
    assert_eq!(deleted(Mode::Data, growing, false).1, 3);
}

#[test]
fn each_commit_journals_the_metadata_that_it_is_said_to_change() {
    let of = |more, file| {
        let journal = Journal {
            mode: Mode::Ordered,
            blocks: 16_384,
            commit: Commit::TwoFlushes,
            fsync_flushes: false,
            write_back: 0,
            file,
        };
        let load = Generator::new(*workload::find("uniform").unwrap(), shape(&journal, 10));
        // 20 fsyncs, each after ten writes.
        let host = Host::new(load.take(220), journal, LOGICAL, 1).touching(more);
        let log = log(16_384);
        let mut own = BTreeSet::new();
        let mut blocks = 0;
        for request in host.filter(|r| r.op != Op::Flush && log.contains(&r.lba)) {
            blocks += request.blocks;
            own.extend(request.contents);
        }
        // No content of the file system comes twice.
        assert_eq!(own.len(), blocks as usize);
        blocks
    };
    assert_eq!(of(0, File::Overwritten), 20 * 3);
    assert_eq!(of(8, File::Overwritten), 20 * (3 + 8));
    // Their place is that of indirect blocks: there are no more of them, and where there are some, none at all.
    let most = LOGICAL.div_ceil(1024) as u32;
    assert!(of(u64::MAX, File::Overwritten) < 20 * (3 + most));
    assert_eq!(of(8, File::GrowingIndirect), of(0, File::GrowingIndirect));
}

#[test]
fn requests_say_how_long_the_application_has_worked() {
    let journal = Journal {
        mode: Mode::Ordered,
        blocks: 16_384,
        commit: Commit::TwoFlushes,
        fsync_flushes: false,
        write_back: 0,
        file: File::Overwritten,
    };
    let times = |write_ns| {
        let load = Generator::new(*workload::find("uniform").unwrap(), shape(&journal, 10));
        let host = Host::new(load.take(22), journal, LOGICAL, 1).working(write_ns);
        host.map(|request| request.at).collect::<BTreeSet<_>>()
    };
    assert_eq!(times(0), [0].into());
    // An fsync after each ten.
    assert_eq!(times(5), [50, 100].into());
}
