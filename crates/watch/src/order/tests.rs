//! Tests of the order of commit blocks.

use super::{CommitOrder, Reason, Stop, Wait};
use crate::change::{Blocks, Change};
use crate::limits::{COMMIT_PATIENCE, COMMIT_SILENCE, SCOUT_PATIENCE};
use crate::ranges::BLOCK;
use vellum_core::addr::Buf;
use vellum_core::addr::Nanos;
use vellum_core::seam::{Digest, Payload};
use vellum_ext4::journal::{
    Alignment, Commits, JournalBlock, JournalFeatures, JournalFormat, Log, OWN, Refusal, Sequence,
};
use vellum_ext4::{Span, Uuid};

const FORMAT: JournalFormat = JournalFormat {
    block_bytes: BLOCK as u32,
    first: JournalBlock(1),
    end: JournalBlock(16),
    features: JournalFeatures {
        compatible: 0,
        // Asynchronous commits.
        incompatible: 4,
    },
    seed: 0,
};

/// A journal of 16 blocks that begins at this block of the volume. The next transaction is 7, at its first block.
pub(crate) fn journal(start: u64) -> Commits {
    let journal = vellum_ext4::journal::Journal {
        extents: vec![Span::new(start * BLOCK, 16 * BLOCK)],
        format: FORMAT,
        is_empty: true,
        blocks: 16,
        fast_commit_blocks: 0,
        uuid: Uuid::default(),
        superblock: JournalBlock(0),
        is_external: false,
        alignment: Alignment::Aligned,
    };
    let mut commits = Commits::new(&journal, 1 << 30).unwrap();
    let begin = Some((Sequence(7), JournalBlock(1)));
    let format = FORMAT;
    commits.superblock(Some(Log { format, begin }));
    commits
}

fn order(found: &[Commits]) -> CommitOrder {
    let mut order = CommitOrder::default();
    order.follow(found, std::iter::empty());
    assert!(order.take_due() && !order.take_due());
    order
}

const fn wait(journal: usize, is_withheld: bool) -> Wait {
    Wait {
        since: Nanos(5),
        reason: Reason::Blocks {
            journal: Some(journal),
            missing: 1,
            is_guess: false,
            was_refused: false,
        },
        is_answered: false,
        is_withheld,
    }
}

pub(crate) struct One([u8; 4096]);

impl One {
    /// A commit block of that transaction, and what the core knows of it.
    pub(crate) fn commit(sequence: u8) -> (Self, Payload) {
        let mut block = [0; 4096];
        block[..12].copy_from_slice(&[&OWN[..], &[0, 0, 0, 2, 0, 0, 0, sequence]].concat());
        let digest = Digest {
            first: u32::from_le_bytes(OWN),
            ..Digest::default()
        };
        let buf = Buf(0);
        (Self(block), Payload { buf, digest })
    }
}

impl Blocks for One {
    fn count(&self) -> usize {
        1
    }

    fn block(&self, _: usize) -> &[u8] {
        &self.0
    }
}

/// A commit block of that transaction, written to that block of the volume.
fn commit(order: &mut CommitOrder, at: u64, sequence: u8, waits: &[Wait]) -> Option<Stop> {
    let (block, payload) = One::commit(sequence);
    let change = Change {
        first: at,
        blocks: 1,
        written: Some(&block),
    };
    let stop = order.stop(&change, &[payload], |_, _| true, waits.iter());
    stop.map(|(_, stop)| stop)
}

fn ended(order: &mut CommitOrder, first: u64, blocks: u64, result: Result<(), Refusal>) {
    let change = Change {
        first,
        blocks,
        written: None,
    };
    order.ended(Nanos(9), &change, result);
}

#[test]
fn a_commit_block_waits_only_for_the_blocks_it_commits() {
    let mut order = order(&[journal(100)]);
    let waits = |missing| {
        Some(Stop::Wait(Reason::Blocks {
            journal: Some(0),
            missing,
            is_guess: false,
            was_refused: false,
        }))
    };
    assert_eq!(commit(&mut order, 104, 7, &[]), waits(3));
    ended(&mut order, 200, 3, Ok(()));
    assert!(!order.take_due(), "no journal has that block");
    ended(&mut order, 101, 2, Ok(()));
    assert!(order.take_due());
    assert_eq!(commit(&mut order, 104, 7, &[]), waits(1));
    ended(&mut order, 103, 1, Ok(()));
    assert_eq!(commit(&mut order, 104, 7, &[]), None);
    assert_eq!(order.counts(), (1, 0));
    // The next transaction begins after it. If a block of that transaction is refused, so is its commit.
    ended(&mut order, 105, 1, Err(Refusal::Failed));
    assert_eq!(
        commit(&mut order, 106, 8, &[]),
        Some(Stop::Refuse(Refusal::Failed))
    );
    // Outside of any journal nothing is a commit block.
    assert_eq!(commit(&mut order, 300, 8, &[]), None);
}

/// jbd2 may send the next transaction once a commit block was answered, even while it waits. The next commit block is judged
/// when the one before it has continued: `commit_order` met that case under load with seed 1084.
#[test]
fn a_commit_block_does_not_overtake_one_that_was_answered() {
    let answered = Wait {
        is_answered: true,
        ..wait(0, false)
    };
    let mut order = order(&[journal(100)]);
    assert!(matches!(
        commit(&mut order, 104, 8, &[answered]),
        Some(Stop::Wait(_))
    ));
    assert_eq!(order.counts(), (0, 0));
    // The waiting commit block is of another journal, or was not answered; in the latter case jbd2 would not have sent this one.
    let other = Wait {
        reason: wait(1, false).reason,
        ..answered
    };
    assert_eq!(commit(&mut order, 104, 8, &[wait(0, false), other]), None);
    assert_eq!(order.counts(), (0, 1));
}

/// A restarted server meets a log in its middle, by a superblock that moves the tail. Blocks of the transaction that were written
/// before do not come again. So its commit block continues, even if it may not be answered early.
#[test]
fn a_guess_is_given_up_soon() {
    let mut commits = journal(100);
    commits.give_up();
    commits.set_empty(false);
    let begin = Some((Sequence(7), JournalBlock(1)));
    let format = FORMAT;
    commits.superblock(Some(Log { format, begin }));
    let mut order = order(&[commits]);
    ended(&mut order, 102, 1, Ok(()));
    let Some(Stop::Wait(reason)) = commit(&mut order, 103, 7, &[]) else {
        panic!("the missing block may still come");
    };
    let one = Wait {
        reason,
        ..wait(0, true)
    };
    assert_eq!(one.guess(), Some(Some(0)));
    let silence = COMMIT_SILENCE.as_nanos() as u64;
    assert_eq!(order.deadline(&one), Some(Nanos(9 + silence)));
    order.give_up(Some(0));
    assert_eq!(commit(&mut order, 103, 7, &[]), None);
    assert_eq!(order.counts(), (0, 1));
    // The next one is judged.
    let next = commit(&mut order, 105, 8, &[]);
    let Some(Stop::Wait(reason)) = next else {
        panic!("{next:?}");
    };
    let one = Wait {
        reason,
        ..wait(0, true)
    };
    assert_eq!(one.guess(), None);
    ended(&mut order, 104, 1, Ok(()));
    assert_eq!(commit(&mut order, 105, 8, &[]), None);
    assert_eq!(order.counts(), (1, 1));
}

#[test]
fn a_wait_ends_some_time_after_the_last_new_block_of_its_journal() {
    let after = |at: u64, time: core::time::Duration| Some(Nanos(at + time.as_nanos() as u64));
    let mut order = order(&[journal(100), journal(200)]);
    assert_eq!(order.deadline(&wait(0, false)), after(5, COMMIT_SILENCE));
    assert_eq!(order.deadline(&wait(0, true)), after(5, COMMIT_PATIENCE));
    ended(&mut order, 101, 1, Ok(()));
    assert_eq!(order.deadline(&wait(0, false)), after(9, COMMIT_SILENCE));
    assert_eq!(order.deadline(&wait(1, false)), after(5, COMMIT_SILENCE));
    let mut one = wait(0, false);
    one.is_answered = true;
    assert_eq!(order.deadline(&one), None);
    one = wait(0, true);
    one.reason = Reason::Scan;
    assert_eq!(order.deadline(&one), after(5, SCOUT_PATIENCE));
}

/// A scan may find journals in another order, or no longer find one of them. A wait must still stay with its own journal.
#[test]
fn a_wait_stays_with_its_own_journal_whatever_a_later_scan_finds() {
    let (one, other) = (journal(100), journal(200));
    let mut order = order(&[one.clone(), other.clone()]);
    order.journals[1].news = Nanos(1000);
    let mut waits = [wait(1, true)];
    let mut deadline = |found: &[Commits]| {
        order.follow(found, waits.iter_mut());
        let patience = COMMIT_PATIENCE.as_nanos() as u64;
        order.deadline(&waits[0]).unwrap().0 - patience
    };
    assert_eq!(deadline(&[one.clone(), other.clone()]), 1000);
    let found = [other.clone(), journal(300), one.clone()];
    assert_eq!(deadline(&found), 1000, "in another order");
    assert_eq!(deadline(&[one]), 5, "found no more");
    assert_eq!(deadline(&[other]), 5, "another one now");
}
