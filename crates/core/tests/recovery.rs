//! Recovery over media that were written by hand: every state that a crash, or damage, can cause.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "not a server: a failure is a test's"
)]

#[allow(dead_code, reason = "each test uses its share")]
mod disk;

use crc32c::crc32c;
use disk::{Chunk, Disk, chunk, data, disk_with};
use vellum_core::addr::{BLOCK_BYTES, Generation, Lba, Leaf, Life, Segment, Seq, Vba};
use vellum_core::entry::Entry;
use vellum_core::format::{self, SumKind, chunk::Record};
use vellum_core::layout;
use vellum_core::recovery::{RecoveryError, Unreadable};

/// Chunks 1 (hot), 2 (cold), 3 (hot).
fn three() -> [Chunk; 3] {
    [
        chunk(1, 0, 0, 0, &[10, 11]),
        chunk(2, 1, 0, 1, &[21]),
        chunk(3, 0, 3, 0, &[30]),
    ]
}

#[test]
fn chunks_of_both_heads_are_applied_in_one_order() {
    let mut disk = disk_with(&three());
    let found = disk.recovered();
    assert_eq!((found.last_seq, found.last_life), (Seq(3), Life(1)));
    assert_eq!(
        [0, 1, 2].map(|lba| disk.tag_of(&found, lba)),
        [Some(30), Some(21), None]
    );
    assert_eq!(found.heads.map(|head| head.offset), [5, 2]);
    assert_eq!(found.state.live().total(), 2);
    assert_eq!(found.replayed.verified, 4);
}

/// A log of many small chunks is most of what an opening reads: on a slow medium, reading it twice takes seconds.
#[test]
fn a_header_is_read_once() {
    let reads = |chunks: u64| {
        let chunk = |seq: u64| chunk(seq, 0, 2 * (seq as u32 - 1), seq, &[seq as u32]);
        let chunks: Vec<Chunk> = (1..=chunks).map(chunk).collect();
        let mut disk = disk_with(&chunks);
        let found = disk.recovered();
        assert_eq!(found.last_seq, Seq(chunks.len() as u64));
        disk.reads
    };
    // Nothing says that these were durable, so the data of each is read as well. Behind the log's end each block of the segment is
    // searched for a header. So each block is read once, whether the log has it or not.
    assert_eq!(reads(4), reads(10));
}

#[test]
fn nothing_written_is_an_empty_volume() {
    let found = Disk::new().recovered();
    assert_eq!((found.last_seq, found.replayed.chunks), (Seq(0), 0));
    assert_eq!(found.state.map().iter().count(), 0);
}

#[test]
fn a_header_that_a_client_forged_is_not_believed() {
    let mut disk = disk_with(&three());
    let at = disk.at(0, 3);
    let block = disk.blocks.get_mut(&at.0).unwrap();
    let (mut header, records) = format::chunk::decode(block, crc32c).unwrap();
    // The forged header is made from everything that a client can know.
    header.signature = disk.sb.uuid();
    format::chunk::encode(&header, &records, &[], crc32c, block);
    assert_eq!(disk.recovered().last_seq, Seq(2));
}

#[test]
fn a_torn_header_ends_the_log() {
    for torn in [0, 1, 2] {
        let mut disk = disk_with(&three());
        let place = [(0, 0), (1, 0), (0, 3)][torn];
        disk.damage(disk.at(place.0, place.1));
        assert_eq!(disk.recovered().last_seq, Seq(torn as u64));
    }
}

#[test]
fn a_chunk_with_torn_data_is_not_there_at_all() {
    let mut disk = disk_with(&three());
    disk.damage(disk.at(0, 2));
    let found = disk.recovered();
    assert_eq!(found.last_seq, Seq(0));
    assert_eq!(
        disk.tag_of(&found, 0),
        None,
        "its whole block is not taken either"
    );
}

#[test]
fn bad_data_of_a_durable_chunk_is_left_to_the_read_that_finds_it() {
    let mut chunks = three();
    chunks[2].durable = 2;
    for place in [(0, 2), (1, 1)] {
        let mut disk = disk_with(&chunks);
        disk.damage(disk.at(place.0, place.1));
        assert_eq!(disk.recovered().last_seq, Seq(3), "{place:?}");
        disk.unreadable.insert(disk.at(place.0, place.1).0);
        assert_eq!(disk.recovered().last_seq, Seq(3), "{place:?}");
    }
}

#[test]
fn data_of_chunks_known_durable_is_not_read() {
    let mut chunks = three();
    chunks[1].durable = 1;
    assert_eq!(disk_with(&chunks).recovered().replayed.verified, 2);
}

#[test]
fn a_hole_before_what_was_durable_is_damage() {
    for durable in 0..=2 {
        let mut chunks = three();
        chunks[2].durable = durable;
        let mut disk = disk_with(&chunks);
        disk.damage(disk.at(1, 0));
        if durable < 2 {
            assert_eq!(disk.recovered().last_seq, Seq(1));
        } else {
            let durable = Seq(durable);
            assert_eq!(
                disk.error(),
                RecoveryError::Missing {
                    seq: Seq(2),
                    durable
                }
            );
        }
    }
}

/// The last life read the log past any cache, and blocks that only an older state needs may have been overwritten since.
#[test]
fn a_hole_before_the_place_where_the_last_life_began_is_damage() {
    let mut disk = disk_with(&three());
    let found = disk.recovered();
    let mut next = found.superblock.clone();
    next.begin_life(found.log_end());
    disk.write_mirror(0, &next);
    disk.write_mirror(1, &next);
    assert_eq!(disk.recovered().last_seq, Seq(3));
    disk.damage(disk.at(1, 0));
    assert_eq!(
        disk.error(),
        RecoveryError::Missing {
            seq: Seq(2),
            durable: Seq(3)
        }
    );
}

#[test]
fn evidence_further_on_in_the_segment_counts() {
    let mut chunks = vec![
        chunk(1, 0, 0, 0, &[1]),
        chunk(2, 0, 2, 0, &[2]),
        chunk(3, 0, 4, 0, &[3]),
    ];
    chunks[2].durable = 2;
    let mut disk = disk_with(&chunks);
    disk.damage(disk.at(0, 0));
    disk.damage(disk.at(0, 2));
    let at = disk.at(0, 4);
    assert_eq!(
        disk.error(),
        RecoveryError::Hole {
            seq: Seq(1),
            later: Seq(3),
            at
        }
    );
}

#[test]
fn evidence_in_the_next_segment_counts_when_the_chunk_that_named_it_is_lost() {
    let disk = Disk::new();
    let room = disk.sb.usable_blocks() - 1;
    let tags: Vec<u32> = (100..100 + room).collect();
    let mut last = chunk(1, 0, 0, 0, &tags);
    last.next = Some(2);
    let mut after = chunk(2, 2, 0, 0, &[5]);
    (after.head, after.durable) = (0, 1);
    let mut disk = disk_with(&[last.clone(), after]);
    disk.write_summary(0, &[&last]);
    assert_eq!(disk.recovered().last_seq, Seq(2));
    disk.damage(disk.at(0, 0));
    let at = disk.at(2, 0);
    assert_eq!(
        disk.error(),
        RecoveryError::Hole {
            seq: Seq(1),
            later: Seq(2),
            at
        }
    );
}

/// After a lost chunk of the hot head the cold head continues in segment 2. Only the contents of that segment, after its first
/// chunk, show that the lost one was durable.
fn with_evidence_where_the_other_head_went_on(lost: Chunk) -> Disk {
    let room = Disk::new().sb.usable_blocks() - 1;
    let tags: Vec<u32> = (100..100 + room).collect();
    let mut cold = chunk(2, 1, 0, 50, &tags);
    cold.next = Some(2);
    let mut after = [chunk(3, 2, 0, 0, &[5]), chunk(4, 2, 2, 0, &[6])];
    (after[0].head, after[1].head) = (1, 1);
    after[1].durable = 1;
    let [first, second] = after;
    disk_with(&[lost, cold, first, second])
}

#[test]
fn evidence_counts_in_the_segments_that_the_other_head_went_on_to() {
    let mut disk = with_evidence_where_the_other_head_went_on(chunk(1, 0, 0, 0, &[1]));
    assert_eq!(disk.recovered().last_seq, Seq(4));
    disk.damage(disk.at(0, 0));
    let at = disk.at(2, 2);
    let (seq, later) = (Seq(1), Seq(4));
    assert_eq!(disk.error(), RecoveryError::Hole { seq, later, at });
}

/// The same for a chunk whose data is bad: the log continues.
#[test]
fn later_chunks_of_the_other_head_prove_that_bad_data_was_durable() {
    let mut disk = with_evidence_where_the_other_head_went_on(chunk(1, 0, 0, 0, &[1]));
    disk.damage(disk.at(0, 1));
    assert_eq!(disk.recovered().last_seq, Seq(4));
    disk.damage(disk.at(2, 0));
    assert_eq!(disk.recovered().last_seq, Seq(2));
}

#[test]
fn a_summary_alone_proves_nothing() {
    // It was written together with the segment's last chunk, and the power failed between the two.
    let disk = Disk::new();
    let tags: Vec<u32> = (1..disk.sb.usable_blocks()).collect();
    let mut last = chunk(1, 0, 0, 0, &tags);
    last.next = Some(2);
    let mut disk = disk_with(&[]);
    disk.write_summary(0, &[&last]);
    assert_eq!(disk.recovered().last_seq, Seq(0));
}

#[test]
fn the_root_knows_what_was_durable_too() {
    let mut disk = disk_with(&three());
    disk.checkpoint_durable(
        2,
        1,
        3,
        [(0, 3), (1, 0)],
        &[(0, disk.at(0, 1)), (1, disk.at(0, 2))],
    );
    assert_eq!(disk.recovered().last_seq, Seq(3));
    disk.damage(disk.at(0, 3));
    let durable = Seq(3);
    assert_eq!(
        disk.error(),
        RecoveryError::Missing {
            seq: Seq(3),
            durable
        }
    );
}

#[test]
fn of_two_chunks_with_one_number_the_newer_lifes_is_taken() {
    // Life 1 wrote chunk 2, torn; recovery ended at 1. Life 2 wrote its own chunk 2 with the other head.
    for (old, new) in [(0, 1), (1, 0)] {
        for torn in [false, true] {
            let place = |segment: u32| if segment == 0 { 2 } else { 0 };
            let first = chunk(1, 0, 0, 0, &[1]);
            let stale = chunk(2, old, place(old), 0, &[66]);
            let mut second = chunk(2, new, place(new), 0, &[2]);
            second.life = 2;
            let mut third = chunk(3, new, place(new) + 2, 1, &[3]);
            (third.life, third.prev_life, third.durable) = (2, 2, 2);
            let mut disk = disk_with(&[first, stale, second, third]);
            if torn {
                disk.damage(disk.at(old, place(old) + 1));
            }
            let found = disk.recovered();
            assert_eq!((found.last_seq, found.last_life), (Seq(3), Life(2)));
            assert_eq!(
                [0, 1].map(|lba| disk.tag_of(&found, lba)),
                [Some(2), Some(3)]
            );
        }
    }
}

#[test]
fn a_chunk_behind_another_one_of_that_number_is_not_taken() {
    // Life 2 wrote its own chunk 2, after which life 3 continued. It is lost, and life 1's chunk 2 does not replace it.
    let mut third = chunk(3, 0, 4, 2, &[3]);
    (third.life, third.prev_life) = (3, 2);
    let mut disk = disk_with(&[chunk(1, 0, 0, 0, &[1]), chunk(2, 0, 2, 1, &[66]), third]);
    assert_eq!(disk.recovered().last_seq, Seq(2));
}

#[test]
fn a_chunk_of_a_life_that_ended_before_it_is_not_taken() {
    // Life 1 wrote 1, 2 and 3; 2 was torn. Life 2 wrote another 2, and life 1's 3 still lies after it.
    let mut second = chunk(2, 0, 2, 0, &[2]);
    second.life = 2;
    let stale = chunk(3, 0, 4, 0, &[66]);
    let mut disk = disk_with(&[chunk(1, 0, 0, 0, &[1]), second, stale]);
    let found = disk.recovered();
    assert_eq!(found.last_seq, Seq(2));
    assert_eq!(disk.tag_of(&found, 0), Some(2));
}

#[test]
fn a_chunk_that_was_copied_elsewhere_is_not_taken() {
    let mut disk = disk_with(&[chunk(1, 0, 0, 0, &[1]), chunk(2, 0, 30, 0, &[2])]);
    let header = disk.blocks[&disk.at(0, 30).0].clone();
    disk.put(disk.at(0, 2), &header);
    disk.put(disk.at(0, 3), &data(2));
    assert_eq!(disk.recovered().last_seq, Seq(1));
}

/// Checkpoint 2 after chunk 3.
fn with_checkpoint(disk: &mut Disk) {
    let map = [(0, disk.at(0, 4)), (1, disk.at(1, 1))];
    disk.checkpoint(2, 3, [(0, 5), (1, 2)], &map);
}

#[test]
fn replay_begins_at_the_newest_checkpoint() {
    let mut disk = disk_with(&three());
    with_checkpoint(&mut disk);
    let found = disk.recovered();
    assert_eq!(
        (found.root.generation, found.replayed.chunks),
        (Generation(2), 0)
    );
    assert_eq!(
        [0, 1].map(|lba| disk.tag_of(&found, lba)),
        [Some(30), Some(21)]
    );
    // The tags of open segments are read from their chunks.
    let tags = |segment| {
        &found
            .tags
            .iter()
            .find(|(s, _)| *s == Segment(segment))
            .unwrap()
            .1
    };
    assert_eq!(tags(0)[4].sum, disk::sum(&data(30)));
    assert_eq!(tags(1)[1].sum, disk::sum(&data(21)));
}

#[test]
fn a_volume_opens_only_for_reading_while_a_header_before_the_cursors_cannot_be_read() {
    let mut disk = disk_with(&three());
    with_checkpoint(&mut disk);
    let at = disk.at(0, 3);
    disk.unreadable.insert(at.0);
    let unread = Unreadable { at, blocks: 1 };
    let found = disk.recovered();
    assert_eq!(found.unread, Some(unread));
    let mut found = layout::Recovered::Log(Box::new(found));
    assert_eq!(
        found.begin_life().err(),
        Some(RecoveryError::Unreadable(unread))
    );
    disk.unreadable.clear();
    let found = disk.recovered();
    assert_eq!(found.unread, None);
    let tags = found.tags.iter().find(|(s, _)| *s == Segment(0));
    assert_eq!(tags.unwrap().1[4].sum, disk::sum(&data(30)));
}

/// A torn chunk can be read. One that cannot be read now may be whole, and flushed: a life that began before it would lose it for good.
#[test]
fn a_volume_opens_only_for_reading_while_data_of_its_newest_chunk_cannot_be_read() {
    let mut disk = disk_with(&three());
    let at = disk.at(0, 4);
    disk.unreadable.insert(at.0);
    let found = disk.recovered();
    let unread = Some(Unreadable { at, blocks: 1 });
    assert_eq!((found.last_seq, found.unread), (Seq(2), unread));
    disk.unreadable.clear();
    let found = disk.recovered();
    assert_eq!((found.last_seq, found.unread), (Seq(3), None));
}

#[test]
fn a_torn_checkpoint_falls_back_to_the_one_before() {
    for blocks in 0..2 {
        let mut disk = disk_with(&three());
        with_checkpoint(&mut disk);
        disk.damage(disk.sb.root_place(Generation(2)).plus(blocks));
        let found = disk.recovered();
        assert_eq!(
            (found.root.generation, found.replayed.chunks),
            (Generation(1), 3)
        );
    }
}

/// Damages the second checkpoint's root.
fn assert_root_is_missed(mut disk: Disk) {
    let lost = Generation(2);
    disk.damage(disk.sb.root_place(lost));
    assert_eq!(disk.error(), RecoveryError::RootLost { lost });
}

#[test]
fn the_loss_of_a_checkpoint_that_was_durable_is_an_error() {
    let mut fourth = chunk(4, 0, 5, 0, &[40]);
    fourth.root = 2;
    let mut disk = disk_with(&three());
    disk.write(&fourth);
    with_checkpoint(&mut disk);
    assert_eq!(disk.recovered().last_seq, Seq(4));
    assert_root_is_missed(disk);
}

#[test]
fn a_lost_checkpoint_is_known_from_the_start_of_any_segment() {
    let mut far = chunk(9, 7, 0, 0, &[90]);
    (far.root, far.head) = (2, 0);
    let mut disk = disk_with(&three());
    disk.write(&far);
    with_checkpoint(&mut disk);
    assert_root_is_missed(disk);
}

#[test]
fn a_volume_without_any_checkpoint_does_not_open() {
    let mut disk = disk_with(&three());
    disk.damage(disk.sb.root_place(Generation(1)));
    assert!(matches!(disk.error(), RecoveryError::NoRoot { .. }));
}

#[test]
fn a_checkpoint_in_the_place_of_the_other_does_not_count() {
    let mut disk = disk_with(&three());
    with_checkpoint(&mut disk);
    for block in 0..u64::from(disk.sb.root_blocks()) {
        let root = disk.blocks[&disk.sb.root_place(Generation(2)).plus(block).0].clone();
        disk.put(disk.sb.root_place(Generation(1)).plus(block), &root);
        disk.damage(disk.sb.root_place(Generation(2)).plus(block));
    }
    assert!(matches!(disk.error(), RecoveryError::NoRoot { .. }));
}

#[test]
fn a_damaged_leaf_is_named() {
    let mut disk = disk_with(&three());
    with_checkpoint(&mut disk);
    let at = disk.sb.leaf_slot(Leaf(0), 0);
    disk.damage(at);
    assert_eq!(disk.error(), RecoveryError::Leaf { leaf: Leaf(0), at });
}

#[test]
fn records_without_data_are_replayed() {
    let mut second = chunk(2, 0, 4, 9, &[]);
    let from = |disk: &Disk, offset| disk.at(0, offset);
    let disk = Disk::new();
    second.records = vec![
        Record::Zero {
            lba: Lba(0),
            blocks: 1,
        },
        Record::Discard {
            lba: Lba(1),
            blocks: 1,
        },
        Record::Share {
            lba: Lba(8),
            vba: Vba(3),
            pba: from(&disk, 3),
        },
        Record::Share {
            lba: Lba(2),
            vba: Vba(3),
            pba: from(&disk, 3),
        },
    ];
    let first = chunk(1, 0, 0, 0, &[1, 2, 3]);
    let mut disk = disk_with(&[first.clone(), second.clone()]);
    let found = disk.recovered();
    let entries = [0, 1, 2, 8].map(|lba| found.state.map().get(Lba(lba)));
    let shared = Entry::Shared(Vba(3));
    assert_eq!(entries, [Entry::Unmapped, Entry::Unmapped, shared, shared]);
    assert_eq!(found.state.shared().owners(Vba(3)), 2);
    assert_eq!(
        found.state.live().valid(Segment(0)),
        1,
        "one page, however many own it"
    );

    // With one owner left it is an ordinary page, and its tag names another.
    second.records.push(Record::Discard {
        lba: Lba(2),
        blocks: 1,
    });
    let mut disk = disk_with(&[first, second]);
    let found = disk.recovered();
    assert_eq!(found.state.map().get(Lba(8)), Entry::Plain(disk.at(0, 3)));
    let strays = found.state.strays();
    assert_eq!(
        (strays.len(), strays.owner(disk.at(0, 3))),
        (1, Some(Lba(8)))
    );
}

/// A block that ends with its own CRC32C, as ext4's extent blocks do: the CRC32C of all its versions is the same.
fn version(number: u8) -> Vec<u8> {
    let mut block = vec![number; BLOCK_BYTES];
    let sum = crc32c(&block[..BLOCK_BYTES - 4]);
    block[BLOCK_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
    block
}

#[test]
fn a_torn_chunk_over_an_older_version_of_its_block_is_not_taken_for_whole() {
    assert_eq!(crc32c(&version(1)), crc32c(&version(2)));
    // An older volume does not detect it.
    for (sums, chunks) in [(SumKind::Xxh3, 0), (SumKind::Crc32c, 1)] {
        let mut disk = Disk::with_sums(sums);
        let sum = disk.sb.sum(crc32c).of(&version(2));
        let mut torn = chunk(1, 0, 0, 5, &[0]);
        torn.records = vec![Record::Data { lba: Lba(5), sum }];
        torn.data = vec![version(2)];
        disk.write(&torn);
        assert_eq!(disk.recovered().replayed.chunks, 1);
        disk.put(disk.at(0, 1), &version(1));
        assert_eq!(disk.recovered().replayed.chunks, chunks, "{sums:?}");
    }
}

#[test]
fn a_move_counts_only_if_the_map_still_names_the_old_place() {
    let mut moved = chunk(3, 1, 0, 0, &[1, 2]);
    let disk = Disk::new();
    for (index, record) in moved.records.iter_mut().enumerate() {
        let Record::Data { lba, sum } = *record else {
            unreachable!()
        };
        *record = Record::Move {
            lba,
            sum,
            from: disk.at(0, 1 + index as u32),
        };
    }
    let mut disk = disk_with(&[chunk(1, 0, 0, 0, &[1, 2]), chunk(2, 0, 3, 0, &[9]), moved]);
    let found = disk.recovered();
    assert_eq!(
        [0, 1].map(|lba| disk.tag_of(&found, lba)),
        [Some(9), Some(2)]
    );
    assert_eq!(found.state.map().get(Lba(1)), Entry::Plain(disk.at(1, 2)));
}

#[test]
fn an_idle_heads_place_is_not_read_for_every_chunk() {
    let chunks: Vec<_> = (0..25)
        .map(|n| chunk(n + 1, 0, 2 * n as u32, n, &[n as u32]))
        .collect();
    let mut disk = disk_with(&[]);
    disk.recovered();
    let idle = disk.reads;
    let mut disk = disk_with(&chunks);
    assert_eq!(disk.recovered().last_seq, Seq(25));
    // For each chunk: its header, read twice (once to learn what was durable, once to apply it), and its data. After the end there are 50
    // blocks less to search.
    assert!(
        disk.reads <= idle + 3 * 25 - 50 + 2,
        "{} reads, {idle} of them when empty",
        disk.reads
    );
    assert_eq!(BLOCK_BYTES, data(1).len());
}
