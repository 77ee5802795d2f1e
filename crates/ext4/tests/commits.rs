//! When a commit block may take effect, held against a model that remembers everything.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

#[allow(dead_code, reason = "each test uses its share")]
mod log;

use log::{BLOCK, BLOCKS, V3, commit, format, header, journal};
use std::collections::BTreeSet;
use vellum_ext4::Span;
use vellum_ext4::journal::{
    Commits, JournalBlock, Layout, Log, Mark, Sequence, Verdict, begins_a_log,
};

const VOLUME: u64 = 1 << 40;
const FIRST: u32 = 1;
const END: u32 = BLOCKS - 256;

fn after(at: u32) -> u32 {
    if at + 1 == END { FIRST } else { at + 1 }
}

/// A journal, its blocks by number.
struct Host {
    commits: Commits,
    layout: Layout,
}

impl Host {
    fn new() -> Self {
        Self {
            commits: Commits::new(&journal(V3), VOLUME).unwrap(),
            layout: Layout::new(&journal(V3).extents, BLOCK as u32),
        }
    }

    fn span(&self, at: u32) -> Span {
        Span::new(
            self.layout.place_of(JournalBlock(at)).unwrap(),
            BLOCK as u64,
        )
    }

    fn begin(&mut self, sequence: u32, at: u32) {
        let begin = Some((Sequence(sequence), JournalBlock(at)));
        let format = format(V3);
        self.commits.superblock(Some(Log { format, begin }));
    }

    fn took_effect(&mut self, at: u32) -> bool {
        let span = self.span(at);
        self.commits.took_effect(span)
    }

    fn commit(&mut self, sequence: u32, at: u32) -> Verdict {
        let before = Span::new(self.span(at).start, 0);
        self.commits
            .commit(JournalBlock(at), Sequence(sequence), before)
    }
}

#[test]
fn it_waits_for_all_between_two_commit_blocks() {
    let mut host = Host::new();
    host.begin(7, 10);
    for last in 10..14 {
        let mut host = Host::new();
        host.begin(7, 10);
        for at in (10..14).filter(|at| *at != last) {
            assert!(host.took_effect(at));
            assert!(!host.took_effect(at), "no news");
            assert!(matches!(host.commit(7, 14), Verdict::Waits(_)));
        }
        assert_eq!(host.commit(7, 14), Verdict::Waits(1));
        host.took_effect(last);
        assert_eq!(host.commit(7, 14), Verdict::Complete);
        // And so on, from behind it: what was there before does not count.
        assert_eq!(host.commit(8, 16), Verdict::Waits(1));
        host.took_effect(15);
        assert_eq!(host.commit(8, 16), Verdict::Complete);
    }
    // Of nothing.
    assert_eq!(host.commit(7, 10), Verdict::Complete);
}

/// The commit block before it may be answered while it waits, and is let through later.
#[test]
fn what_came_behind_a_commit_block_that_waited_counts() {
    let mut host = Host::new();
    host.begin(7, END - 3);
    host.took_effect(END - 3);
    host.took_effect(END - 1);
    host.took_effect(FIRST);
    assert_eq!(host.commit(7, END - 1), Verdict::Waits(1));
    host.took_effect(END - 2);
    assert_eq!(host.commit(7, END - 1), Verdict::Complete);
    assert_eq!(host.commit(8, FIRST + 1), Verdict::Complete);
}

#[test]
fn what_its_own_request_brings_before_it_counts() {
    let mut host = Host::new();
    host.begin(7, 10);
    host.took_effect(10);
    let own = Span::new(host.span(11).start, 2 * BLOCK as u64);
    let commit =
        |host: &mut Host, at, before| host.commits.commit(JournalBlock(at), Sequence(7), before);
    assert_eq!(commit(&mut host, 14, own), Verdict::Waits(1));
    assert_eq!(commit(&mut host, 13, own), Verdict::Complete);
}

#[test]
fn a_block_that_was_refused_is_not_waited_for() {
    let mut host = Host::new();
    host.begin(7, 10);
    let refused = host.span(11);
    host.took_effect(10);
    assert!(host.commits.refused(refused));
    assert_eq!(host.commit(7, 12), Verdict::Never);
    // Unless it comes after all.
    host.took_effect(11);
    assert_eq!(host.commit(7, 12), Verdict::Complete);
    assert_eq!(
        host.commit(8, 14),
        Verdict::Waits(1),
        "that was of the one before"
    );
    // The superblock is none of them.
    let superblock = host.span(0);
    assert!(!host.commits.refused(superblock));
    assert_eq!(host.commit(8, 14), Verdict::Waits(1));
}

#[test]
fn what_a_superblock_says_of_the_log() {
    let mut host = Host::new();
    assert_eq!(host.commit(7, 14), Verdict::Unjudged, "nothing is known");
    assert_eq!(
        host.commit(8, 16),
        Verdict::Waits(1),
        "it is followed from there"
    );
    // Its tail moves: as far as to what is committed now.
    for (sequence, at) in [(5, 700), (7, 11), (8, 15)] {
        host.begin(sequence, at);
        assert_eq!(host.commit(8, 16), Verdict::Waits(1));
    }
    host.took_effect(15);
    host.begin(8, 15);
    assert_eq!(host.commit(8, 16), Verdict::Complete);
    // Another log, ahead or elsewhere.
    for (sequence, at) in [(11, 1), (11, 2)] {
        host.took_effect(sequence);
        host.begin(sequence, at);
        assert_eq!(host.commit(sequence, at + 20), Verdict::Waits(20));
    }
    // Empty, or damaged.
    let empty = Log {
        format: format(V3),
        begin: None,
    };
    for log in [Some(empty), None] {
        host.begin(20, 1);
        host.commits.superblock(log);
        assert_eq!(host.commit(20, 5), Verdict::Unjudged);
    }
    // It has to be one to be waited for by whoever does not know it.
    let mut block = header(4, 0);
    assert!(!begins_a_log(&block));
    block[0x1F] = 1;
    assert!(begins_a_log(&block));
    assert!(!begins_a_log(&commit(V3, 7)) && !begins_a_log(&block[1..]) && !begins_a_log(&[]));
}

#[test]
fn its_own_blocks_are_read() {
    let host = Host::new();
    let at = |block: u32| host.span(block).start;
    let mark = |block: u32, bytes: &[u8]| host.commits.read(at(block), bytes);
    assert_eq!(
        mark(14, &commit(V3, 7)),
        Some((JournalBlock(14), Mark::Commit(Sequence(7))))
    );
    assert_eq!(
        mark(14, &commit(0, 7)),
        None,
        "without its checksum it counts for nobody"
    );
    assert_eq!(mark(0, &commit(V3, 7)), None, "not in the log");
    assert_eq!(mark(END, &commit(V3, 7)), None, "in the fast-commit area");
    assert_eq!(host.commits.read(0, &commit(V3, 7)), None);
    assert_eq!(
        mark(0, &header(4, 0)),
        Some((JournalBlock(0), Mark::Superblock(None)))
    );
    assert_eq!(mark(14, &header(4, 0)), None);
    // What cannot be seen whole is not followed.
    let mut other = journal(V3);
    assert!(Commits::new(&other, 22_000 * BLOCK as u64).is_some());
    assert!(
        Commits::new(&other, 21_000 * BLOCK as u64).is_none(),
        "past the volume"
    );
    other.extents[1].start += 512;
    assert!(
        Commits::new(&other, VOLUME).is_none(),
        "not of whole blocks"
    );
    other.extents.remove(1);
    assert!(Commits::new(&other, VOLUME).is_none(), "with a hole");
    let mut small = journal(V3);
    small.format.block_bytes = 1024;
    assert!(Commits::new(&small, VOLUME).is_none());
}

/// Everything that a journal is told, remembered one by one.
#[derive(Default)]
struct Model {
    turn: Option<(u32, u32)>,
    written: BTreeSet<u32>,
}

impl Model {
    fn begin(&mut self, sequence: u32, at: u32) {
        self.turn = Some((sequence, at));
        self.written.clear();
    }

    /// What is written behind the commit block at `end` stays written.
    fn go_on(&mut self, sequence: u32, end: u32) {
        let (_, mut at) = self.turn.replace((sequence, after(end))).unwrap();
        while at != after(end) {
            self.written.remove(&at);
            at = after(at);
        }
    }

    fn is_complete(&self, at: u32) -> bool {
        let mut next = self.turn.unwrap().1;
        while next != at {
            if !self.written.contains(&next) {
                return false;
            }
            next = after(next);
        }
        true
    }
}

#[test]
fn it_is_as_the_model_has_it() {
    let mut random = 1_u64;
    let mut below = |limit: u32| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) as u32 % limit
    };
    let (mut complete, mut waits) = (0, 0);
    for _ in 0..400 {
        let (mut host, mut model) = (Host::new(), Model::default());
        // Now and then numbers and places wrap.
        let mut sequence = [5, u32::MAX - 3][below(2) as usize];
        let mut at = [10, END - 9][below(2) as usize];
        host.begin(sequence, at);
        model.begin(sequence, at);
        for _ in 0..300 {
            match below(8) {
                0 => {
                    let end = (0..below(12)).fold(at, |at, _| after(at));
                    let verdict = host.commit(sequence, end);
                    assert_eq!(verdict == Verdict::Complete, model.is_complete(end));
                    if verdict == Verdict::Complete {
                        (sequence, at) = (sequence.wrapping_add(1), after(end));
                        model.go_on(sequence, end);
                        complete += 1;
                    } else {
                        assert!(matches!(verdict, Verdict::Waits(1..)));
                        waits += 1;
                    }
                }
                1 if below(10) == 0 => {
                    // Of another one, as if a few had been missed, or of the one before, once more.
                    let other = sequence.wrapping_add(below(6)).wrapping_sub(1);
                    if other != sequence {
                        let end = (0..=below(4)).fold(at, |at, _| after(at));
                        assert_eq!(host.commit(other, end), Verdict::Unjudged);
                        let next = (other.wrapping_add(1), after(end));
                        if model.turn != Some(next) {
                            (sequence, at) = next;
                            model.begin(sequence, at);
                        }
                    }
                }
                2 if below(20) == 0 => {
                    host.begin(sequence, at);
                    host.begin(sequence.wrapping_sub(below(9)), at);
                }
                _ => {
                    let block = (0..below(12)).fold(at, |at, _| after(at));
                    let is_news = host.took_effect(block);
                    assert_eq!(is_news, model.written.insert(block));
                }
            }
        }
    }
    assert!(complete > 1000 && waits > 1000, "{complete} {waits}");
}
