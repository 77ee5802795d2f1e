//! When a commit block may take effect, compared with a model that remembers everything.
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
    Commits, Journal, JournalBlock, Layout, Log, Mark, Refusal, Sequence, Verdict, begins_a_log,
};

const VOLUME: u64 = 1 << 40;
const FIRST: u32 = 1;
const END: u32 = BLOCKS - 256;

fn after(at: u32) -> u32 {
    if at + 1 == END { FIRST } else { at + 1 }
}

/// A journal whose blocks are given by number.
struct Host {
    commits: Commits,
    layout: Layout,
}

impl Host {
    fn new() -> Self {
        Self::met(true)
    }

    /// Its log is found empty, or is met in its middle.
    fn met(is_empty: bool) -> Self {
        let found = Journal {
            is_empty,
            ..journal(V3)
        };
        Self {
            commits: Commits::new(&found, VOLUME).unwrap(),
            layout: Layout::new(&found.extents, BLOCK as u32),
        }
    }

    fn span(&self, at: u32) -> Span {
        let place = self.layout.place_of(JournalBlock(at));
        Span::new(place.unwrap(), BLOCK as u64)
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
fn a_commit_block_waits_for_all_blocks_since_the_previous_one() {
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
        // The next transaction starts after it: earlier writes do not count.
        assert_eq!(host.commit(8, 16), Verdict::Waits(1));
        host.took_effect(15);
        assert_eq!(host.commit(8, 16), Verdict::Complete);
    }
    // An empty transaction.
    assert_eq!(host.commit(7, 10), Verdict::Complete);
}

/// The commit block before may be answered while it waits, and proceeds later.
#[test]
fn blocks_that_came_behind_a_waiting_commit_block_count() {
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
fn blocks_before_a_commit_block_in_its_own_request_count() {
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
    assert!(host.commits.refused(refused, Refusal::Failed));
    assert_eq!(host.commit(7, 12), Verdict::Never(Refusal::Failed));
    // But if the block is written after all, it counts.
    host.took_effect(11);
    assert_eq!(host.commit(7, 12), Verdict::Complete);
    // The refused block was of the previous transaction.
    assert_eq!(host.commit(8, 14), Verdict::Waits(1));
    // The superblock is not among these blocks.
    let superblock = host.span(0);
    assert!(!host.commits.refused(superblock, Refusal::Failed));
    assert_eq!(host.commit(8, 14), Verdict::Waits(1));
}

/// A virtual machine writes it again when it has room. Blocks of several transactions are in flight together.
#[test]
fn a_block_is_refused_until_it_comes_again_and_for_its_own_transaction() {
    let mut host = Host::new();
    host.begin(7, 10);
    host.took_effect(10);
    for refused in [11, 14].map(|at| host.span(at)) {
        assert!(host.commits.refused(refused, Refusal::NoRoom));
    }
    assert_eq!(host.commit(7, 13), Verdict::Never(Refusal::NoRoom));
    host.took_effect(11);
    let commits = [13, 16].map(|at| host.span(at));
    let refusals = commits.map(|at| host.commits.refusal(at));
    assert_eq!(refusals, [None, Some(Refusal::NoRoom)]);
    assert_eq!(host.commit(7, 13), Verdict::Waits(1));
    host.took_effect(12);
    assert_eq!(host.commit(7, 13), Verdict::Complete);
    assert_eq!(host.commit(8, 16), Verdict::Never(Refusal::NoRoom));
    let failed = host.span(15);
    host.commits.refused(failed, Refusal::Failed);
    assert_eq!(host.commit(8, 16), Verdict::Never(Refusal::Failed));
}

#[test]
fn a_superblock_may_begin_a_log_or_only_move_its_tail() {
    let mut host = Host::new();
    assert_eq!(host.commit(7, 14), Verdict::Unjudged, "nothing is known");
    assert_eq!(
        host.commit(8, 16),
        Verdict::Waits(1),
        "a commit block is followed from its place on"
    );
    // The tail moves up to what is committed now.
    for (sequence, at) in [(5, 700), (7, 11), (8, 15)] {
        host.begin(sequence, at);
        assert_eq!(host.commit(8, 16), Verdict::Waits(1));
    }
    host.took_effect(15);
    host.begin(8, 15);
    assert_eq!(host.commit(8, 16), Verdict::Complete);
    // A different log: ahead, or elsewhere.
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
    // If the journal is unknown, only a block that begins a log is waited for.
    let mut block = header(4, 0);
    assert!(!begins_a_log(&block));
    block[0x1F] = 1;
    assert!(begins_a_log(&block));
    assert!(!begins_a_log(&commit(V3, 7)) && !begins_a_log(&block[1..]) && !begins_a_log(&[]));
}

/// When a tail moves, a superblock may name a transaction that is half written. A server that has not seen its beginning must not wait
/// for it.
#[test]
fn a_turn_is_a_guess_unless_its_log_was_empty() {
    let mut host = Host::met(false);
    // The server has not seen the transaction, and the tail moves to the one that is being committed.
    host.took_effect(11);
    host.begin(7, 11);
    host.took_effect(12);
    assert_eq!(host.commit(7, 13), Verdict::Waits(1));
    assert!(host.commits.is_guess());
    // A later tail is a guess, too. An older one changes nothing.
    host.begin(8, 14);
    assert_eq!(host.commit(8, 16), Verdict::Waits(2));
    host.begin(7, 11);
    assert!(host.commits.is_guess());
    // The guess was right: nothing is missing.
    host.took_effect(14);
    host.took_effect(15);
    assert_eq!(host.commit(8, 16), Verdict::Complete);
    assert!(!host.commits.is_guess());
    host.begin(9, 17);
    assert!(!host.commits.is_guess(), "the turn is known now");
    // When the guess is given up, the commit block shows where the next transaction begins.
    let mut host = Host::met(false);
    host.begin(7, 11);
    host.commits.give_up();
    assert!(!host.commits.is_guess());
    assert_eq!(host.commit(7, 13), Verdict::Unjudged);
    assert_eq!(host.commit(8, 15), Verdict::Waits(1));
    assert!(!host.commits.is_guess());
    // The log is known to be empty: by the scan, or by its superblock.
    let empty = Log {
        format: format(V3),
        begin: None,
    };
    for is_found_so in [true, false] {
        let mut host = Host::met(is_found_so);
        if !is_found_so {
            host.commits.superblock(Some(empty));
        }
        let mut other = Host::met(false);
        other.commits = host.commits.clone();
        // The superblock is not part of the log, and neither is a fast commit.
        host.took_effect(0);
        host.took_effect(END);
        host.begin(7, 11);
        assert!(!host.commits.is_guess());
        other.took_effect(500);
        other.begin(7, 11);
        assert!(other.commits.is_guess(), "something was written there");
    }
    // Damaged: nothing is known.
    host.commits.superblock(None);
    host.begin(7, 11);
    assert!(host.commits.is_guess());
}

#[test]
fn the_journals_own_blocks_are_recognised() {
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
        "without its checksum it is no commit block"
    );
    assert_eq!(mark(0, &commit(V3, 7)), None, "not in the log");
    assert_eq!(mark(END, &commit(V3, 7)), None, "in the fast-commit area");
    assert_eq!(host.commits.read(0, &commit(V3, 7)), None);
    assert_eq!(
        mark(0, &header(4, 0)),
        Some((JournalBlock(0), Mark::Superblock(None)))
    );
    assert_eq!(mark(14, &header(4, 0)), None);
    // A journal that is not wholly visible is not followed.
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

/// Runs jbd2 as it commits and moves its tail, and starts the server at any moment. Only in a turn that is a guess may a commit block
/// wait for blocks that jbd2 does not send again.
#[test]
fn a_server_that_meets_a_log_in_its_middle_waits_only_by_a_guess() {
    let mut random = 7_u64;
    let mut below = |limit: u32| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) as u32 % limit
    };
    let (mut guesses, mut complete) = (0, 0);
    for _ in 0..2000 {
        let mut host = Host::met(false);
        let (mut sequence, mut at) = (
            [5, u32::MAX - 3][below(2) as usize],
            [10, END - 9][below(2) as usize],
        );
        let (mut tail, mut comes) = ((sequence, at), below(30));
        for _ in 0..6 {
            let begin = at;
            let is_seen = comes == 0;
            let mut blocks: Vec<u32> = Vec::new();
            for _ in 0..=below(5) {
                blocks.push(at);
                at = after(at);
            }
            while !blocks.is_empty() {
                let block = blocks.swap_remove(below(blocks.len() as u32) as usize);
                match comes {
                    0 => drop(host.took_effect(block)),
                    _ => comes -= 1,
                }
                if comes == 0 && below(4) == 0 {
                    // Up to the transaction that is being committed.
                    if below(2) == 0 {
                        tail = (sequence, begin);
                    }
                    host.begin(tail.0, tail.1);
                }
            }
            if comes == 0 {
                match host.commit(sequence, at) {
                    Verdict::Complete => {
                        assert!(is_seen);
                        complete += 1;
                    }
                    Verdict::Unjudged => {}
                    verdict => {
                        assert!(host.commits.is_guess(), "{verdict:?}");
                        guesses += 1;
                        host.commits.give_up();
                        assert_eq!(host.commit(sequence, at), Verdict::Unjudged);
                    }
                }
            }
            (sequence, at) = (sequence.wrapping_add(1), after(at));
        }
    }
    assert!(guesses > 100 && complete > 1000, "{guesses} {complete}");
}

/// A commit block and the blocks in its request take effect in the next turn. In the next lap they must not be taken for blocks that are
/// written there then. The log has an odd length, so the copies of one lap lie where the commit blocks of the other were.
#[test]
fn blocks_of_an_earlier_lap_are_not_taken_for_those_of_the_next() {
    for with_its_blocks in [false, true] {
        let mut host = Host::new();
        host.begin(1, FIRST);
        let mut at = FIRST;
        for sequence in 1..=3 * END {
            let end = after(at);
            let before = match with_its_blocks && sequence % 3 > 0 {
                // All of it in one request.
                true => host.span(at),
                false => {
                    assert_eq!(host.commit(sequence, end), Verdict::Waits(1), "{sequence}");
                    host.took_effect(at);
                    Span::new(host.span(end).start, 0)
                }
            };
            let (at_end, number) = (JournalBlock(end), Sequence(sequence));
            let verdict = host.commits.commit(at_end, number, before);
            assert_eq!(verdict, Verdict::Complete, "{sequence}");
            if before.bytes > 0 {
                host.took_effect(at);
            }
            host.took_effect(end);
            at = after(end);
        }
    }
}

/// jbd2 without flushes: transactions of any size pass before a commit block takes effect.
#[test]
fn a_commit_block_may_take_effect_turns_later() {
    let mut host = Host::new();
    host.begin(1, FIRST);
    let (mut at, mut late) = (FIRST, Vec::new());
    for sequence in 1..=3 * END {
        // Most are small, and some are a large part of the log.
        let copies = if sequence % 50 < 3 {
            (END - FIRST) / 5
        } else {
            1
        };
        let end = (0..copies).fold(at, |at, _| after(at));
        assert_eq!(
            host.commit(sequence, end),
            Verdict::Waits(copies),
            "{sequence}"
        );
        while at != end {
            host.took_effect(at);
            at = after(at);
        }
        assert_eq!(host.commit(sequence, end), Verdict::Complete);
        late.push(end);
        if late.len() == 3 {
            for at in late.drain(..) {
                host.took_effect(at);
            }
        }
        at = after(end);
    }
}

/// What an unjudged commit block has overtaken takes effect after it, and is not the next lap's.
#[test]
fn what_an_unjudged_commit_block_overtook_is_not_the_next_laps() {
    for share in [3, 4, 100] {
        let (mut host, copies) = (Host::met(false), (END - FIRST) / share);
        let end = FIRST + copies;
        assert_eq!(host.commit(10, end), Verdict::Unjudged);
        for at in FIRST..=end {
            host.took_effect(at);
        }
        let mut at = after(end);
        for sequence in 11..11 + END {
            let end = after(at);
            assert_eq!(host.commit(sequence, end), Verdict::Waits(1), "{sequence}");
            host.took_effect(at);
            assert_eq!(host.commit(sequence, end), Verdict::Complete);
            host.took_effect(end);
            at = after(end);
        }
    }
}

/// A refused commit block is no block of a later lap either.
#[test]
fn a_refused_commit_block_is_not_waited_for() {
    let mut host = Host::new();
    host.begin(7, 10);
    host.took_effect(10);
    assert_eq!(host.commit(7, 11), Verdict::Complete);
    let span = host.span(11);
    host.commits.refused(span, Refusal::Failed);
    host.begin(9, 11);
    host.took_effect(11);
    assert_eq!(host.commit(9, 12), Verdict::Complete);
}

/// A client dies in mid-commit, and its commit block waits. Its next life begins another log with the number after that.
#[test]
fn the_commit_block_of_a_log_that_is_over_says_nothing_of_the_next() {
    let mut host = Host::new();
    host.begin(7, 10);
    host.took_effect(11);
    assert_eq!(host.commit(7, 60), Verdict::Waits(49));
    host.begin(8, 10);
    assert_eq!(host.commit(7, 60), Verdict::Unjudged);
    host.took_effect(10);
    host.took_effect(11);
    assert_eq!(host.commit(8, 12), Verdict::Complete);
}

/// Everything written to a journal, remembered block by block.
#[derive(Default)]
struct Model {
    turn: Option<(u32, u32)>,
    since: u32,
    late: BTreeSet<u32>,
    written: BTreeSet<u32>,
}

impl Model {
    fn begin(&mut self, sequence: u32, at: u32) {
        (self.turn, self.since) = (Some((sequence, at)), at);
        self.written.clear();
    }

    /// Writes after the commit block at `end` stay written.
    fn go_on(&mut self, sequence: u32, end: u32) {
        self.turn = Some((sequence, after(end)));
        let mut at = std::mem::replace(&mut self.since, after(end));
        while at != after(end) {
            self.written.remove(&at);
            at = after(at);
        }
        self.late.insert(end);
    }

    /// An unjudged commit block at `end`: as much is not known as a transaction can have.
    fn begin_behind(&mut self, sequence: u32, end: u32) {
        self.begin(sequence, after(end));
        for _ in 0..(END - FIRST) / 3 + 2 {
            self.since = if self.since == FIRST {
                END - 1
            } else {
                self.since - 1
            };
        }
    }

    fn took_effect(&mut self, block: u32) -> bool {
        let is_news = self.written.insert(block);
        if self.late.remove(&block) {
            self.written.remove(&block);
        }
        is_news
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
fn commit_blocks_are_judged_as_a_simple_model_judges_them() {
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
        // Sometimes sequence numbers and places wrap.
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
                    // A commit block of a different transaction, as if a few had been missed, or of the one before,
                    // again.
                    let other = sequence.wrapping_add(below(6)).wrapping_sub(1);
                    if other != sequence {
                        let end = (0..=below(4)).fold(at, |at, _| after(at));
                        assert_eq!(host.commit(other, end), Verdict::Unjudged);
                        let next = (other.wrapping_add(1), after(end));
                        if model.turn.map(|turn| turn.0) != Some(next.0) {
                            (sequence, at) = next;
                            model.begin_behind(sequence, end);
                        }
                        model.late.insert(end);
                    }
                }
                2 if below(20) == 0 => {
                    host.begin(sequence, at);
                    host.begin(sequence.wrapping_sub(below(9)), at);
                }
                _ => {
                    let block = (0..below(12)).fold(at, |at, _| after(at));
                    let is_news = host.took_effect(block);
                    assert_eq!(is_news, model.took_effect(block));
                }
            }
        }
    }
    assert!(complete > 1000 && waits > 1000, "{complete} {waits}");
}
