//! Waits, and the journals that they are for.

use super::*;
use crate::block::Replies;
use crate::frames::Frames;
use crate::scout::Watched;
use vellum_core::addr::Lba;
use vellum_ext4::Uuid;
use vellum_ext4::journal::{Alignment, Journal, JournalBlock, JournalFeatures, JournalFormat};

struct Nobody;

impl Replies for Nobody {
    fn complete(&self, _: Request, _: Result<(), BlockError>) {}
    fn flush(&self) {}
}

/// A journal of 16 blocks that begins at this block of the volume.
fn journal(start: u64) -> Commits {
    let journal = Journal {
        extents: vec![Span::new(start * BLOCK, 16 * BLOCK)],
        format: JournalFormat {
            block_bytes: BLOCK_BYTES as u32,
            first: JournalBlock(1),
            end: JournalBlock(16),
            features: JournalFeatures::default(),
            seed: 0,
        },
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
    }
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
