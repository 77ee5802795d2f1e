mod roots;

use super::*;
use crate::addr::Lba;
use crate::format::geometry::{self, Params, SMALL};
use crate::format::open_summary;
use crate::format::summary::{Owner, Tag};
use alloc::vec;

const CRC: Crc = crc32c::crc32c;

/// Nothing outside makes a checkpoint begin.
const NOW: Now = Now {
    dirty: 3,
    is_too_dirty: false,
    is_behind: false,
    is_stopping: false,
    links: false,
    durable: Seq(10),
};

const CURSORS: [Cursor; 2] = [
    Cursor {
        segment: Segment(0),
        offset: 5,
    },
    Cursor {
        segment: Segment(1),
        offset: 0,
    },
];

/// A volume with four stripes at least, and two copies of the root.
fn volume() -> Superblock {
    let params = Params {
        medium_blocks: 1 << 17,
        ..SMALL
    };
    geometry::plan(&params).expect("the parameters are sound")
}

/// Continues from root 4, which includes chunk 10 and leads to each leaf in its first slot, with checksum 7.
fn found(volume: &Superblock) -> Checkpoint {
    let root = RootHeader {
        uuid: volume.uuid(),
        generation: Generation(4),
        seq: Seq(10),
        life: Life(2),
        durable: Seq(10),
        cursors: CURSORS,
        swept: 0,
        scrubbed: 0,
    };
    let slots = vec![LeafSlot::Slot0(7); volume.leaves() as usize];
    Checkpoint::new(root, slots.into(), volume.stripes())
}

/// Begun at chunk 20, with nothing written yet.
fn begun(volume: &Superblock) -> Checkpoint {
    let mut checkpoint = found(volume);
    checkpoint.due_if(true);
    assert_eq!(checkpoint.poll(&NOW), Some(Step::Begin(&[])));
    checkpoint.on_begun(Seq(20), Life(3), CURSORS);
    checkpoint
}

fn write(checkpoint: &mut Checkpoint, leaf: Leaf) {
    let block = checkpoint.blocks().take();
    checkpoint.on_leaf_begun(leaf, 77, block);
}

/// All stripes are clean from this one on.
fn pass_stripes(checkpoint: &mut Checkpoint, volume: &Superblock, from: u32) {
    for stripe in from..volume.stripes() {
        assert_eq!(checkpoint.poll(&NOW), Some(Step::Stripe(stripe)));
        checkpoint.on_stripe_begun(stripe);
    }
}

/// Both heads are sealed up to chunk 25.
fn settling(volume: &Superblock) -> Checkpoint {
    let mut checkpoint = begun(volume);
    pass_stripes(&mut checkpoint, volume, 0);
    assert_eq!(checkpoint.poll(&NOW), Some(Step::Seal));
    checkpoint.on_heads_sealed(Seq(25));
    checkpoint
}

/// The checkpoint's sync has begun.
fn syncing(volume: &Superblock) -> Checkpoint {
    let mut checkpoint = settling(volume);
    assert_eq!(checkpoint.poll(&NOW), Some(Step::Sync(Seq(25))));
    checkpoint.on_sync_begun(volume, &Sums::new(volume.clone(), 1), CRC);
    checkpoint
}

fn durable(seq: u64) -> Now {
    Now {
        durable: Seq(seq),
        ..NOW
    }
}

#[test]
fn a_checkpoint_runs_from_its_begin_to_its_mark() {
    let volume = volume();
    let mut checkpoint = found(&volume);
    assert_eq!(checkpoint.poll(&NOW), None);
    checkpoint.due_if(true);
    assert_eq!(checkpoint.poll(&NOW), Some(Step::Begin(&[])));
    checkpoint.on_begun(Seq(20), Life(3), CURSORS);
    assert!(!checkpoint.is_idle());

    write(&mut checkpoint, Leaf(0));
    let block = checkpoint.blocks().take();
    checkpoint.on_leaf_empty(Leaf(1), block);
    pass_stripes(&mut checkpoint, &volume, 0);
    assert_eq!(checkpoint.poll(&NOW), None, "a leaf is in flight");
    checkpoint.on_leaf_written(Leaf(0), false);
    assert_eq!(checkpoint.poll(&NOW), Some(Step::Seal));
    checkpoint.on_heads_sealed(Seq(25));
    assert_eq!(checkpoint.poll(&NOW), Some(Step::Sync(Seq(25))));
    checkpoint.on_sync_begun(&volume, &Sums::new(volume.clone(), 1), CRC);
    checkpoint.on_synced();
    checkpoint.on_swept(9, false);
    assert_eq!(checkpoint.poll(&durable(25)), Some(Step::Root));

    // Until now the old root led to the leaves.
    assert_eq!(checkpoint.kept_sum(Leaf(0)), Some(7));
    assert_eq!(checkpoint.target(Leaf(0)), 1);
    let mut placed = Vec::new();
    checkpoint.on_root_begun(&volume, CRC, Seq(26), 4, |leaf| placed.push(leaf));
    assert_eq!(placed, [Leaf(0), Leaf(1)]);
    assert_eq!(checkpoint.kept_sum(Leaf(0)), Some(77));
    assert_eq!(checkpoint.kept_sum(Leaf(1)), None);
    assert_eq!(checkpoint.target(Leaf(0)), 0);
    let pieces = roots::write(&mut checkpoint, &volume, &mut roots::Blocks::new());
    assert!(pieces > 2, "no more than four blocks at once");
    let expected = RootHeader {
        uuid: volume.uuid(),
        generation: Generation(5),
        seq: Seq(20),
        life: Life(3),
        durable: Seq(26),
        cursors: CURSORS,
        swept: 9,
        scrubbed: 0,
    };
    assert_eq!(checkpoint.next, expected);

    let newest = (checkpoint.generation(), checkpoint.durable_seq());
    assert_eq!(newest, (Generation(4), Seq(10)), "it is not marked yet");
    checkpoint.on_marked();
    let newest = (checkpoint.generation(), checkpoint.durable_seq());
    assert_eq!(newest, (Generation(5), Seq(20)));
    assert!(checkpoint.is_idle() && checkpoint.holds_all(Seq(20)));
    assert_eq!(checkpoint.poll(&NOW), None);
    write(&mut checkpoint, Leaf(0));
    let staged = checkpoint.staged.last();
    assert_eq!(staged, Some(&(Leaf(0), LeafSlot::Slot0(77))), "by turns");
}

#[test]
fn a_sync_waits_for_the_summaries_that_repeat_what_the_checkpoint_frees() {
    let mut checkpoint = settling(&volume());
    checkpoint.on_summary_begun(Segment(3), Seq(20));
    checkpoint.on_summary_begun(Segment(4), Seq(21));
    assert_eq!(
        (checkpoint.poll(&NOW), checkpoint.poll_sync()),
        (None, None)
    );
    checkpoint.on_summary_written(Segment(3));
    // The other segment is replayed from its headers.
    assert_eq!(checkpoint.poll(&NOW), Some(Step::Sync(Seq(25))));
    assert_eq!(checkpoint.poll_sync(), Some(Step::Sync(Seq(25))));
}

#[test]
fn the_root_waits_for_the_checkpoints_sync_and_for_every_chunk_that_a_leaf_may_have_seen() {
    let volume = volume();
    let mut checkpoint = settling(&volume);
    // This was a sync for requests: leaves may have been written after it began.
    checkpoint.on_synced();
    assert_eq!(checkpoint.poll(&durable(25)), Some(Step::Sync(Seq(25))));
    let mut checkpoint = syncing(&volume);
    assert_eq!(checkpoint.poll(&durable(25)), None, "the sync is in flight");
    assert_eq!(checkpoint.poll_sync(), None, "one is enough");
    checkpoint.on_synced();
    assert_eq!(checkpoint.poll(&durable(24)), None);
    assert_eq!(checkpoint.poll(&durable(25)), Some(Step::Root));
}

#[test]
fn a_root_is_marked_when_all_its_pieces_are_durable() {
    for most in [1, 4, 1000] {
        let mut checkpoint = syncing(&volume());
        checkpoint.on_synced();
        checkpoint.on_root_begun(&volume(), CRC, Seq(25), most, |_| ());
        let mut in_flight = 0;
        while let Some(step) = checkpoint.poll(&durable(25)) {
            assert_eq!(step, Step::Piece);
            assert!(checkpoint.next_piece().is_some());
            in_flight += 1;
            if in_flight == limits::ROOT_PIECES_IN_FLIGHT {
                assert_eq!(checkpoint.poll(&durable(25)), None, "enough at once");
                assert_eq!(checkpoint.on_root_written(false), None);
                in_flight -= 1;
            }
        }
        for left in (0..in_flight).rev() {
            let whole = (left == 0).then_some(Generation(5));
            assert_eq!(checkpoint.on_root_written(false), whole);
        }
    }
}

#[test]
fn nothing_follows_a_failed_write() {
    let volume = volume();
    let mut checkpoint = begun(&volume);
    write(&mut checkpoint, Leaf(0));
    write(&mut checkpoint, Leaf(1));
    pass_stripes(&mut checkpoint, &volume, 0);
    checkpoint.on_leaf_written(Leaf(1), true);
    checkpoint.on_leaf_written(Leaf(0), false);
    assert_eq!(checkpoint.poll(&durable(25)), None);

    for failed in [[true, false], [false, true]] {
        let mut checkpoint = syncing(&volume);
        checkpoint.on_synced();
        checkpoint.on_root_begun(&volume, CRC, Seq(25), 1000, |_| ());
        while checkpoint.next_piece().is_some() {}
        let marked = failed.map(|failed| checkpoint.on_root_written(failed));
        assert_eq!(marked, [None; 2], "{failed:?}");
        assert!(!checkpoint.is_idle() && checkpoint.generation() == Generation(4));
    }
}

#[test]
fn a_checkpoint_is_due_by_chunks_by_blocks_and_by_dirty_leaves() {
    let (least, most) = limits::LOG_BLOCKS_BETWEEN_CHECKPOINTS;
    let each = limits::LOG_BLOCKS_PER_DIRTY_LEAF;
    let between = 2 * least / each;
    assert!(between * each < most);
    for (chunks, blocks, dirty) in [
        (limits::CHUNKS_BETWEEN_CHECKPOINTS, 1, 0),
        (2, least / 2, 0),
        (2, between * each / 2, between),
        (2, most / 2, most),
    ] {
        let mut checkpoint = found(&volume());
        let now = Now { dirty, ..NOW };
        for _ in 0..chunks {
            assert_eq!(checkpoint.poll(&now), None, "{chunks} {blocks} {dirty}");
            checkpoint.on_sealed(blocks as u32);
        }
        let begin = Some(Step::Begin(&[]));
        assert_eq!(checkpoint.poll(&now), begin, "{chunks} {blocks} {dirty}");
        checkpoint.on_begun(Seq(20), Life(3), CURSORS);
        checkpoint.phase = Phase::Idle;
        assert_eq!(checkpoint.poll(&now), None, "it counts from here on");
    }
}

#[test]
fn a_checkpoint_begins_for_memory_but_not_while_a_leaf_is_read_from_an_older_root() {
    let checkpoint = found(&volume());
    let mut now = Now {
        is_too_dirty: true,
        ..NOW
    };
    assert_eq!(checkpoint.poll(&now), Some(Step::Begin(&[])));
    now.is_behind = true;
    assert_eq!(checkpoint.poll(&now), None);
}

#[test]
fn open_chunks_are_sealed_before_the_last_checkpoint_and_where_links_are_open() {
    let mut checkpoint = found(&volume());
    checkpoint.due_if(true);
    for (is_stopping, links, heads) in [
        (false, true, &HEADS[..1]),
        (true, false, &HEADS),
        (true, true, &HEADS),
    ] {
        let now = Now {
            is_stopping,
            links,
            ..NOW
        };
        assert_eq!(checkpoint.poll(&now), Some(Step::Begin(heads)));
    }
}

#[test]
fn a_limited_number_of_leaves_is_written_at_once() {
    let mut checkpoint = begun(&volume());
    for leaf in 0..limits::META_IN_FLIGHT as u32 {
        assert_eq!(checkpoint.poll(&NOW), Some(Step::Stripe(0)));
        write(&mut checkpoint, Leaf(leaf));
    }
    assert_eq!(checkpoint.poll(&NOW), None);
    checkpoint.on_leaf_written(Leaf(3), false);
    assert_eq!(checkpoint.poll(&NOW), Some(Step::Stripe(0)));
}

#[test]
fn the_progress_of_passes_is_kept_soon_on_request_and_is_missed_at_the_end() {
    for of in [Checkpoint::on_swept, Checkpoint::on_scrubbed] {
        let mut checkpoint = found(&volume());
        assert!(checkpoint.holds_all(Seq(10)) && !checkpoint.holds_all(Seq(11)));
        of(&mut checkpoint, 0, true);
        assert_eq!(checkpoint.poll(&NOW), None, "the root says so already");
        of(&mut checkpoint, 5, false);
        assert_eq!(checkpoint.poll(&NOW), None);
        assert!(!checkpoint.holds_all(Seq(10)));
        of(&mut checkpoint, 6, true);
        assert_eq!(checkpoint.poll(&NOW), Some(Step::Begin(&[])));
        assert_eq!(checkpoint.swept() + checkpoint.scrubbed(), 6);
    }
}

/// A copy of the root may be written again after the segments have grown.
#[test]
fn open_summaries_are_as_they_were_when_the_sync_began() {
    let volume = volume();
    let mut checkpoint = settling(&volume);
    let mut sums = Sums::new(volume.clone(), 1);
    let tag = |sum| Tag {
        owner: Owner::Lba(Lba(8)),
        sum,
    };
    sums.open(Segment(0));
    sums.tag(Segment(0), 1, tag(5));
    checkpoint.on_sync_begun(&volume, &sums, CRC);
    sums.tag(Segment(0), 1, tag(6));
    checkpoint.on_synced();
    checkpoint.on_root_begun(&volume, CRC, Seq(25), 1, |_| ());
    let twin = volume.root_twin(Generation(5)).expect("there are two");
    let mut behind = Vec::new();
    while let Some(piece) = checkpoint.next_piece() {
        let mut block = [0; BLOCK_BYTES];
        checkpoint.encode_root(&volume, CRC, piece, &mut block);
        if piece.at >= twin.plus(volume.root_blocks().into()) {
            assert!(piece.is_twin);
            behind.extend(block);
        }
    }
    let length = volume.open_summary_blocks() as usize * BLOCK_BYTES;
    let read = open_summary::decode(&volume, &checkpoint.next, 0, &behind[..length], CRC);
    let tags = read.expect("it is whole").expect("the segment is open");
    assert_eq!(tags[1], tag(5));
}

#[test]
fn damage_makes_one_checkpoint_due_until_another_begins_and_one_of_a_stop() {
    let volume = volume();
    let mut checkpoint = found(&volume);
    let is_due = |checkpoint: &mut Checkpoint, is_stopping| {
        checkpoint.on_restored(is_stopping);
        let now = Now { is_stopping, ..NOW };
        checkpoint.poll(&now).is_some()
    };
    let begin = |checkpoint: &mut Checkpoint| {
        checkpoint.on_begun(Seq(9), Life(1), checkpoint.root.cursors);
        checkpoint.phase = Phase::Idle;
    };
    assert!(is_due(&mut checkpoint, false));
    begin(&mut checkpoint);
    assert!(!is_due(&mut checkpoint, false), "it was due for that");
    begin(&mut checkpoint);
    assert!(is_due(&mut checkpoint, false), "it was not");
    begin(&mut checkpoint);
    assert!(is_due(&mut checkpoint, true));
    begin(&mut checkpoint);
    assert!(!is_due(&mut checkpoint, true));
}
