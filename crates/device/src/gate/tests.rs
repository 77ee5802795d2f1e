//! Waits, and the journals that they are for.

use super::*;
use crate::block::Replies;
use crate::frames::{FramePool, Frames, Share};
use crate::scout::Watched;
use vellum_core::addr::Lba;
use vellum_ext4::Uuid;
use vellum_ext4::journal::{
    Alignment, Journal, JournalBlock, JournalFeatures, JournalFormat, Sequence,
};

struct Nobody;

impl Replies for Nobody {
    fn complete(&self, _: Request, _: Result<(), BlockError>) {}
    fn flush(&self) {}
}

const FORMAT: JournalFormat = JournalFormat {
    block_bytes: BLOCK_BYTES as u32,
    first: JournalBlock(1),
    end: JournalBlock(16),
    features: JournalFeatures {
        compatible: 0,
        incompatible: 0,
    },
    seed: 0,
};

/// A journal of 16 blocks that begins at this block of the volume.
fn journal(start: u64) -> Commits {
    let journal = Journal {
        extents: vec![Span::new(start * BLOCK, 16 * BLOCK)],
        format: FORMAT,
        blocks: 16,
        fast_commit_blocks: 0,
        uuid: Uuid::default(),
        superblock: JournalBlock(0),
        is_external: false,
        alignment: Alignment::Aligned,
    };
    Commits::new(&journal, 1 << 30).unwrap()
}

fn waiting(log: usize) -> Waiting {
    let request = Request {
        tag: 0,
        op: Op::Write { fua: true },
        lba: Lba(0),
        blocks: 0,
        frames: Frames::default(),
    };
    let sink: Arc<dyn Replies> = Arc::new(Nobody);
    Waiting {
        pending: Pending::new(request, &sink, Watched::default()),
        blocks: Vec::new(),
        found: Vec::new(),
        steps: Vec::new(),
        sight: Arc::default(),
        since: Nanos(5),
        reason: Reason::Blocks {
            log: Some(log),
            missing: 1,
        },
        is_answered: false,
        is_withheld: false,
    }
}

/// jbd2 may send the next transaction when a commit block was answered, also while that one waits. The next commit block is judged
/// when the one before it has gone on: `commit_order` met that under load with seed 1084.
#[test]
fn a_commit_block_does_not_overtake_one_that_was_answered() {
    let mut commits = journal(100);
    let mut format = FORMAT;
    // Asynchronous commits.
    format.features.incompatible = 4;
    let begin = Some((Sequence(7), JournalBlock(1)));
    commits.superblock(Some(vellum_ext4::journal::Log { format, begin }));
    let mut gate = Gate::default();
    gate.follow(&[commits]);
    let pool = FramePool::new(1, 1, 1).unwrap();
    let next = |gate: &mut Gate| {
        let mut request = waiting(0).pending.request;
        request.lba = Lba(104);
        request.frames = pool.take(Share::Write, 1).unwrap();
        // Magic, kind of block, transaction.
        let head = [0xC03B_3998_u32, 2, 8].map(u32::to_be_bytes);
        let bytes = request.frames.block_mut(0);
        bytes.fill(0);
        bytes[..12].copy_from_slice(head.as_flattened());
        gate.mark(&request, 0, true)
    };
    let one = |is_answered| Waiting {
        is_answered,
        ..waiting(0)
    };
    gate.waiting.push(one(true));
    assert!(matches!(next(&mut gate), Some(Stop::Wait(_))));
    assert_eq!(gate.counts.unjudged, 0);
    // Of another journal, or not answered: jbd2 would not have sent it.
    gate.waiting = vec![one(false)];
    assert_eq!(next(&mut gate), None);
    assert_eq!(gate.counts.unjudged, 1);
}

/// The scout may find journals in another order, or find one no more: a wait is for its own all the same.
#[test]
fn a_wait_is_for_its_own_journal_whatever_is_found_later() {
    let patience = COMMIT_PATIENCE.as_nanos() as u64;
    let (one, other) = (journal(100), journal(200));
    let mut gate = Gate::default();
    gate.follow(&[one.clone(), other.clone()]);
    gate.logs[1].news = Nanos(1000);
    gate.waiting.push(waiting(1));
    assert_eq!(gate.deadline(), Some(Nanos(1000 + patience)));
    gate.follow(&[other.clone(), journal(300), one.clone()]);
    assert_eq!(
        gate.deadline(),
        Some(Nanos(1000 + patience)),
        "in another order"
    );
    gate.follow(&[one]);
    assert_eq!(gate.deadline(), Some(Nanos(5 + patience)), "found no more");
    gate.follow(&[other]);
    assert_eq!(
        gate.deadline(),
        Some(Nanos(5 + patience)),
        "another one now"
    );
}
