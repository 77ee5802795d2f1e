//! Roots of several blocks, in pieces.

use super::super::Checkpoint;
use super::{CRC, CURSORS, NOW, Step, found};
use crate::addr::{BLOCK_BYTES, Generation, Leaf, Life as Number, Segment, Seq};
use crate::format::geometry::{self, Params, SMALL};
use crate::format::root::{self, FreeSegments, LeafSlot, RootHeader, SLOTS_IN_BLOCK};
use crate::format::superblock::Superblock;
use crate::log::sums::Sums;
use alloc::collections::BTreeMap;
use alloc::{vec, vec::Vec};
use proptest::prelude::*;

/// A medium: a block at each address.
pub(super) type Blocks = BTreeMap<u64, Vec<u8>>;

/// Writes the root that has begun, checks that both its copies are there, and returns the number of blocks written.
pub(super) fn write(checkpoint: &mut Checkpoint, volume: &Superblock, medium: &mut Blocks) -> u32 {
    let (mut written, mut marked) = (0, None);
    while let Some(piece) = checkpoint.next_piece() {
        let mut bytes = vec![0; piece.blocks as usize * BLOCK_BYTES];
        checkpoint.encode_root(volume, CRC, piece, &mut bytes);
        for (at, block) in (piece.at.0..).zip(bytes.chunks(BLOCK_BYTES)) {
            medium.insert(at, block.to_vec());
        }
        written += piece.blocks;
        marked = checkpoint.on_root_written(false);
    }
    let generation = checkpoint.next.generation;
    assert_eq!(marked, Some(generation));
    let slots: Vec<_> = checkpoint.slots.all_from(0).collect();
    assert_root(volume, medium, &checkpoint.next, &slots, &checkpoint.free);
    written
}

/// Both copies of a root are on the medium.
fn assert_root(
    volume: &Superblock,
    medium: &Blocks,
    header: &RootHeader,
    slots: &[LeafSlot],
    free: &FreeSegments,
) {
    for at in volume.root_copies(header.generation) {
        let range = at.0..at.0 + u64::from(volume.root_blocks());
        let bytes: Vec<u8> = range.flat_map(|at| medium[&at].clone()).collect();
        let (root, read) = root::decode(&bytes, &volume.uuid(), volume.leaves(), CRC)
            .expect("it is as it was encoded");
        assert_eq!(root, *header);
        assert!(read == slots);
        let read = FreeSegments::of_root(&bytes, volume.leaves());
        let mut segments = (0..volume.segment_count()).map(Segment);
        assert!(segments.all(|segment| read.holds(segment) == free.holds(segment)));
    }
}

/// 12 GiB, so that a root has several blocks with slots.
fn large() -> Superblock {
    let params = Params {
        medium_blocks: 3 << 20,
        segment_blocks: Some(1024),
        ..SMALL
    };
    geometry::plan(&params).expect("the parameters are sound")
}

#[test]
fn only_what_has_changed_in_a_place_is_written_there() {
    let volume = large();
    let slot_blocks = root::blocks(volume.leaves()) - 1;
    assert!(slot_blocks > 4, "{slot_blocks}");
    let all = volume.root_blocks() + volume.twin_blocks() as u32;
    let few = all - 2 * slot_blocks;
    let mut checkpoint = found(&volume);
    (0..volume.segment_count())
        .filter(|n| n % 3 == 0)
        .for_each(|n| checkpoint.free.put(Segment(n)));
    let mut medium = Blocks::new();
    // Which leaves each checkpoint writes, and how many blocks of slots its root then writes.
    let far = SLOTS_IN_BLOCK as u32;
    let lives: [(&[u32], u32); 7] = [
        (&[0], slot_blocks),
        (&[], slot_blocks),
        (&[1], 1),
        (&[far, 3 * far], 3),
        (&[], 2),
        (&[2], 1),
        (&[], 1),
    ];
    // No block has its turn in the roots that follow.
    checkpoint.root.generation = Generation(119);
    assert!((slot_blocks as usize) < 60);
    for (leaves, blocks) in lives {
        for &leaf in leaves {
            super::write(&mut checkpoint, Leaf(leaf));
            checkpoint.on_leaf_written(Leaf(leaf), false);
        }
        checkpoint.open.keep(
            &volume,
            &Sums::new(volume.clone(), 1),
            &checkpoint.next,
            CRC,
        );
        checkpoint.on_root_begun(&volume, CRC, Seq(26), 1, |_| ());
        let written = write(&mut checkpoint, &volume, &mut medium);
        assert_eq!(written, few + 2 * blocks, "{leaves:?}");
        checkpoint.on_marked();
    }
    checkpoint.write_whole_roots();
    for _ in 0..2 {
        checkpoint.on_root_begun(&volume, CRC, Seq(26), 1, |_| ());
        assert_eq!(write(&mut checkpoint, &volume, &mut medium), all);
        checkpoint.on_marked();
    }
}

#[test]
fn a_root_without_a_second_copy_and_a_small_one_are_written_whole() {
    let alone = large().without_copies();
    assert_eq!(alone.root_twin(Generation(5)), None);
    for (volume, most) in [(alone, 1), (large(), 1000)] {
        let all = volume.root_blocks() + volume.twin_blocks() as u32;
        let mut checkpoint = found(&volume);
        let mut medium = Blocks::new();
        for _ in 0..4 {
            let sums = Sums::new(volume.clone(), 1);
            checkpoint.open.keep(&volume, &sums, &checkpoint.next, CRC);
            checkpoint.on_root_begun(&volume, CRC, Seq(26), most, |_| ());
            let written = write(&mut checkpoint, &volume, &mut medium);
            assert_eq!(written, all);
            checkpoint.on_marked();
        }
    }
}

/// What happens to one root.
#[derive(Clone, Debug)]
struct Life {
    leaves: Vec<u32>,
    /// The most blocks of a piece.
    most: u32,
    /// The power fails: a bit for each piece that reaches the medium, the others do in part.
    cut: Option<u64>,
}

fn any_life(leaves: u32) -> impl Strategy<Value = Life> {
    let slots = SLOTS_IN_BLOCK as u32;
    let leaf = prop_oneof![
        Just(0),
        Just(slots - 1),
        Just(slots),
        Just(slots + 1),
        Just(leaves - 1),
        0..leaves,
    ];
    let cut = proptest::option::weighted(0.3, any::<u64>());
    let all = (proptest::collection::vec(leaf, 0..6), 1..5_u32, cut);
    all.prop_map(|(leaves, most, cut)| Life { leaves, most, cut })
}

/// Writes some pieces of the root that has begun, and of the others the first blocks.
fn write_some(checkpoint: &mut Checkpoint, volume: &Superblock, medium: &mut Blocks, cut: u64) {
    let mut number = 0;
    while let Some(piece) = checkpoint.next_piece() {
        let mut bytes = vec![0; piece.blocks as usize * BLOCK_BYTES];
        checkpoint.encode_root(volume, CRC, piece, &mut bytes);
        let whole = cut >> (number % 64) & 1 == 1;
        let written = if whole {
            piece.blocks
        } else {
            piece.blocks / 2
        };
        let blocks = bytes.chunks(BLOCK_BYTES).take(written as usize);
        for (at, block) in (piece.at.0..).zip(blocks) {
            medium.insert(at, block.to_vec());
        }
        number += 1;
    }
}

/// Continues from a root that has just been found.
fn opened(volume: &Superblock, header: RootHeader, slots: &[LeafSlot]) -> Checkpoint {
    Checkpoint::new(header, slots.to_vec().into(), volume.stripes())
}

/// Two attempts at one root are cut short: the first lacks one piece, and of the second only that piece arrives, in which both are equal.
/// Then the first must not be there: its leaves were overwritten.
#[test]
fn what_arrives_of_a_root_completes_no_root_that_was_passed_over() {
    let volume = large();
    let begins = |checkpoint: &mut Checkpoint, leaf| {
        super::write(checkpoint, Leaf(leaf));
        checkpoint.on_leaf_written(Leaf(leaf), false);
        let sums = Sums::new(volume.clone(), 1);
        checkpoint.open.keep(&volume, &sums, &checkpoint.next, CRC);
        checkpoint.on_root_begun(&volume, CRC, Seq(26), 1, |_| ());
    };
    let copies = |medium: &Blocks, next| {
        let read = |at: crate::addr::Pba| {
            let range = at.0..at.0 + u64::from(volume.root_blocks());
            let bytes: Vec<u8> = range.flat_map(|at| medium[&at].clone()).collect();
            root::decode(&bytes, &volume.uuid(), volume.leaves(), CRC).ok()
        };
        volume.root_copies(next).map(read).collect::<Vec<_>>()
    };
    let mut pieces = 0;
    for piece in 0.. {
        let (mut checkpoint, mut medium) = (found(&volume), Blocks::new());
        for _ in 0..2 {
            begins(&mut checkpoint, 1);
            write(&mut checkpoint, &volume, &mut medium);
            checkpoint.on_marked();
        }
        let (header, slots) = (
            checkpoint.root,
            checkpoint.slots.all_from(0).collect::<Vec<_>>(),
        );
        let next = checkpoint.next_generation();
        checkpoint.write_whole_roots();
        begins(&mut checkpoint, 2);
        pieces = pieces.max(checkpoint.pieces.left());
        if piece == pieces {
            break;
        }
        write_some(&mut checkpoint, &volume, &mut medium, !(1 << piece));
        let mut checkpoint = opened(&volume, header, &slots);
        checkpoint.on_opened(true, true);
        checkpoint.on_begun(Seq(20), Number(3), CURSORS);
        assert_eq!(checkpoint.poll(&NOW), Some(Step::Void));
        checkpoint.on_void_begun(&volume);
        let mut voided = 0;
        while checkpoint.poll(&NOW) == Some(Step::Piece) {
            let piece = checkpoint.next_piece().expect("it is left");
            let mut block = vec![1; BLOCK_BYTES];
            checkpoint.encode_root(&volume, CRC, piece, &mut block);
            medium.insert(piece.at.0, block);
            assert_eq!(checkpoint.on_root_written(false), None);
            voided += 1;
        }
        assert_eq!((voided, checkpoint.poll(&NOW)), (2, Some(Step::Stripe(0))));
        begins(&mut checkpoint, 3);
        write_some(&mut checkpoint, &volume, &mut medium, 1 << piece);
        let copies = copies(&medium, next);
        assert!(copies.iter().all(Option::is_none), "piece {piece}");
    }
    assert!(pieces > 8, "{pieces} pieces");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn the_newest_marked_root_is_whole_wherever_the_power_fails(
        lives in proptest::collection::vec(any_life(large().leaves()), 1..24)
    ) {
        let volume = large();
        let mut medium = Blocks::new();
        let mut checkpoint = found(&volume);
        let mut newest: Option<(RootHeader, Vec<LeafSlot>, FreeSegments)> = None;
        for life in lives {
            let mut leaves = life.leaves;
            leaves.sort_unstable();
            leaves.dedup();
            for leaf in leaves {
                super::write(&mut checkpoint, Leaf(leaf));
                checkpoint.on_leaf_written(Leaf(leaf), false);
                checkpoint.free.put(Segment(leaf % volume.segment_count()));
            }
            let sums = Sums::new(volume.clone(), 1);
            checkpoint.open.keep(&volume, &sums, &checkpoint.next, CRC);
            checkpoint.on_root_begun(&volume, CRC, Seq(26), life.most, |_| ());
            if let (Some(cut), Some((header, slots, free))) = (life.cut, &newest) {
                write_some(&mut checkpoint, &volume, &mut medium, cut);
                assert_root(&volume, &medium, header, slots, free);
                checkpoint = opened(&volume, *header, slots);
                checkpoint.free = free.clone();
                continue;
            }
            write(&mut checkpoint, &volume, &mut medium);
            checkpoint.on_marked();
            let slots = checkpoint.slots.all_from(0).collect();
            newest = Some((checkpoint.root, slots, checkpoint.free.clone()));
        }
    }
}
