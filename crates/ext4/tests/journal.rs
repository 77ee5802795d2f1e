//! Blocks of the log, written here by the rules of `jbd2.h`, and the follower that reads along.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

use proptest::prelude::*;
use std::sync::Arc;
use vellum_ext4::journal::{
    Alignment, Block, Followed, Follower, Journal, JournalBlock, JournalFeatures, JournalFormat,
    Layout, Reader, Sequence, Tag, Transactions,
};
use vellum_ext4::{FsBlock, Span, Uuid, limits};

const BLOCK: usize = 4096;
const BLOCKS: u32 = 2048;
const HOME: Span = Span::new(1 << 30, 1 << 32);
const SEED: u32 = 0x1234_5678;

const WIDE: u32 = 2;
const V2: u32 = 8;
const V3: u32 = 16;

fn format(incompatible: u32) -> JournalFormat {
    JournalFormat {
        block_bytes: BLOCK as u32,
        first: JournalBlock(1),
        end: JournalBlock(BLOCKS - 256),
        features: JournalFeatures {
            compatible: 0,
            incompatible,
        },
        seed: SEED,
    }
}

/// A journal in three pieces, out of order.
fn journal(incompatible: u32) -> Journal {
    let piece = |start: u64, blocks: u64| Span::new(start * BLOCK as u64, blocks * BLOCK as u64);
    Journal {
        extents: vec![piece(9000, 1000), piece(500, 1), piece(20_000, 1047)],
        format: format(incompatible),
        blocks: BLOCKS,
        fast_commit_blocks: 256,
        uuid: Uuid([7; 16]),
        superblock: JournalBlock(0),
        is_external: false,
        alignment: Alignment::Aligned,
    }
}

fn header(kind: u32, sequence: u32) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    for (word, to) in [0xC03B_3998, kind, sequence]
        .iter()
        .zip(block.chunks_mut(4))
    {
        to.copy_from_slice(&word.to_be_bytes());
    }
    block
}

/// Puts the checksum of v2 and v3 at `at`.
fn seal(mut block: Vec<u8>, at: usize, features: u32) -> Vec<u8> {
    if features & (V2 | V3) != 0 {
        let sum = !crc32c::crc32c_append(!SEED, &block);
        block[at..at + 4].copy_from_slice(&sum.to_be_bytes());
    }
    block
}

/// As `jbd2_journal_commit_transaction` writes it; (home, flags).
fn descriptor(features: u32, sequence: u32, tags: &[(u64, u32)]) -> Vec<u8> {
    let mut block = header(1, sequence);
    let mut at = 12;
    for (home, flags) in tags {
        let low = (*home as u32).to_be_bytes();
        let high = ((home >> 32) as u32).to_be_bytes();
        block[at..at + 4].copy_from_slice(&low);
        if features & V3 != 0 {
            block[at + 4..at + 8].copy_from_slice(&flags.to_be_bytes());
            block[at + 8..at + 12].copy_from_slice(&high);
            at += 16;
        } else {
            block[at + 6..at + 8].copy_from_slice(&(*flags as u16).to_be_bytes());
            at += 8;
            if features & WIDE != 0 {
                block[at..at + 4].copy_from_slice(&high);
                at += 4;
            }
            at += if features & V2 != 0 { 2 } else { 0 };
        }
        if flags & 2 == 0 {
            block[at..at + 16].fill(7);
            at += 16;
        }
    }
    seal(block, BLOCK - 4, features)
}

fn revoke(features: u32, sequence: u32, blocks: &[u64]) -> Vec<u8> {
    let mut block = header(5, sequence);
    let mut at = 16;
    for home in blocks {
        if features & WIDE != 0 {
            block[at..at + 8].copy_from_slice(&home.to_be_bytes());
            at += 8;
        } else {
            block[at..at + 4].copy_from_slice(&(*home as u32).to_be_bytes());
            at += 4;
        }
    }
    block[12..16].copy_from_slice(&(at as u32).to_be_bytes());
    seal(block, BLOCK - 4, features)
}

fn commit(features: u32, sequence: u32) -> Vec<u8> {
    seal(header(2, sequence), 16, features)
}

const LAYOUTS: [u32; 6] = [0, WIDE, V2, V2 | WIDE, V3, V3 | WIDE];

/// Feeds blocks from `at` on; what is said, with places as blocks of the journal.
fn feed(follower: &mut Follower, at: u32, blocks: &[Vec<u8>]) -> Vec<(char, u64, u32)> {
    let layout = follower.layout().clone();
    let mut said = Vec::new();
    let mut at = JournalBlock(at);
    for block in blocks {
        let place = layout.place_of(at).unwrap();
        follower.written(place, block, &mut |followed| {
            said.push(match followed {
                Followed::Copy { home, place } => (
                    'c',
                    (home - HOME.start) / BLOCK as u64,
                    layout.block_at(place).unwrap().0,
                ),
                Followed::Revoked { home } => ('r', (home - HOME.start) / BLOCK as u64, 0),
            });
        });
        at = format(0).after(at);
    }
    said
}

proptest! {
    /// What is written is read, in each of the six layouts.
    #[test]
    fn tags_round(
        layout in 0..LAYOUTS.len(),
        sequence: u32,
        tags in prop::collection::vec((0u64..1 << 48, 0u32..4), 1..120),
    ) {
        let features = LAYOUTS[layout];
        let mask = if features & WIDE != 0 { u64::MAX } else { u64::from(u32::MAX) };
        let mut tags = tags;
        let last = tags.len() - 1;
        tags[last].1 |= 8;
        let block = descriptor(features, sequence, &tags);
        let Block::Descriptor(read) = Block::parse(&block, &format(features)) else {
            panic!("no descriptor");
        };
        prop_assert_eq!(read.sequence, Sequence(sequence));
        let expected: Vec<_> = tags.iter().map(|(home, flags)| Tag {
            home: FsBlock(home & mask),
            is_escaped: flags & 1 != 0,
            has_same_uuid: flags & 2 != 0,
            is_deleted: false,
            is_last: flags & 8 != 0,
        }).collect();
        prop_assert_eq!(read.tags().collect::<Vec<_>>(), expected);

        let homes: Vec<u64> = tags.iter().map(|(home, _)| home & mask).collect();
        let block = revoke(features, sequence, &homes);
        let Block::Revoke(read) = Block::parse(&block, &format(features)) else {
            panic!("no revoke block");
        };
        prop_assert_eq!(read.blocks().map(|b| b.0).collect::<Vec<_>>(), homes);
    }

    /// Whatever is written to a journal, the follower says nothing impossible and never panics.
    #[test]
    fn anything_may_come(
        layout in 0..LAYOUTS.len(),
        writes in prop::collection::vec(
            (0u32..BLOCKS + 2, 0u32..7, prop::collection::vec(any::<u8>(), 0..200), 0usize..BLOCK),
            1..20,
        ),
    ) {
        let journal = journal(LAYOUTS[layout]);
        let mut follower = Follower::new(&journal, HOME);
        let layout = Layout::new(&journal.extents, BLOCK as u32);
        for (at, kind, bytes, cut) in writes {
            let mut block = header(kind, 1);
            block[12..12 + bytes.len()].copy_from_slice(&bytes);
            let block = seal(block, if kind == 2 { 16 } else { BLOCK - 4 }, journal.format.features.incompatible);
            let check = &mut |followed| match followed {
                Followed::Copy { home, place } => {
                    assert!(HOME.contains(Span::new(home, BLOCK as u64)));
                    assert!(layout.block_at(place).is_some());
                }
                Followed::Revoked { home } => {
                    assert!(HOME.contains(Span::new(home, BLOCK as u64)));
                }
            };
            follower.block(JournalBlock(at), &block, check);
            follower.block(JournalBlock(at), &block[..cut], check);
            follower.written(u64::from(at) * 512, &block, check);
        }
    }
}

#[test]
fn a_transaction_over_the_end_of_the_log_and_over_extents() {
    for features in LAYOUTS {
        let mut follower = Follower::new(&journal(features), HOME);
        let end = BLOCKS - 256;
        let said = feed(
            &mut follower,
            end - 2,
            &[
                descriptor(features, 9, &[(5, 0), (6, 2), (7, 2 | 8)]),
                vec![1; BLOCK],
                vec![2; BLOCK],
                vec![3; BLOCK],
                commit(features, 9),
                descriptor(features, 10, &[(5, 8)]),
            ],
        );
        assert_eq!(
            said,
            [('c', 5, end - 1), ('c', 6, 1), ('c', 7, 2), ('c', 5, 5)]
        );
        let said = feed(
            &mut follower,
            998,
            &[descriptor(features, 11, &[(1, 0), (2, 2), (3, 10)])],
        );
        assert_eq!(said, [('c', 1, 999), ('c', 2, 1000), ('c', 3, 1001)]);
    }
}

/// From the volume's start, each block of the journal once, in the volume's order.
#[test]
fn every_block_has_its_place() {
    let journal = journal(0);
    let layout = Layout::new(&journal.extents, BLOCK as u32);
    let mut expected: Vec<u64> = (0..BLOCKS)
        .map(|block| layout.place_of(JournalBlock(block)).unwrap())
        .collect();
    expected.sort_unstable();
    let places = std::iter::successors(layout.next_after(0), |at| layout.next_after(*at));
    assert_eq!(places.collect::<Vec<_>>(), expected);
    let middle = layout.place_of(JournalBlock(3)).unwrap();
    assert_eq!(layout.next_after(middle - 1), Some(middle));
    assert_eq!(layout.next_after(u64::MAX), None);
}

#[test]
fn several_blocks_in_one_write() {
    let mut follower = Follower::new(&journal(0), HOME);
    let layout = follower.layout().clone();
    let mut write = vec![0xEE; 512];
    write.extend(descriptor(0, 1, &[(5, 8)]));
    write.extend(vec![1; BLOCK]);
    write.extend(commit(0, 1));
    write.extend(descriptor(0, 2, &[(6, 8)]));
    let mut said = Vec::new();
    let at = layout.place_of(JournalBlock(3)).unwrap() - 512;
    follower.written(at, &write, &mut |followed| said.push(followed));
    let copy = |home: u64, block| Followed::Copy {
        home: HOME.start + home * BLOCK as u64,
        place: layout.place_of(JournalBlock(block)).unwrap(),
    };
    assert_eq!(said, [copy(5, 4), copy(6, 7)]);
}

/// Where the magic was cut out the copy is not the block; what is not to be replayed is not to be remapped;
/// what lies outside of the file system is a lie.
#[test]
fn what_is_passed_over() {
    let mut follower = Follower::new(&journal(WIDE), HOME);
    let outside = HOME.bytes / BLOCK as u64;
    let tags = [
        (5, 1),
        (6, 2 | 4),
        (outside, 2),
        // As a byte's address it is in range, in the volume it is not: the sum must not be made.
        (u64::MAX / BLOCK as u64 - 1, 2),
        (u64::MAX, 2),
        (outside - 1, 10),
    ];
    let said = feed(&mut follower, 10, &[descriptor(WIDE, 1, &tags)]);
    assert_eq!(said, [('r', 5, 0), ('c', outside - 1, 16)]);
    // Outside of the log: the superblock's place and the fast-commit area.
    let said = feed(&mut follower, 0, &[descriptor(WIDE, 1, &[(5, 8)])]);
    assert_eq!(said, []);
    let mut said = 0;
    let block = descriptor(WIDE, 1, &[(5, 8)]);
    follower.block(JournalBlock(BLOCKS - 256), &block, &mut |_| said += 1);
    assert_eq!(said, 0);
}

#[test]
fn a_revoked_block() {
    for features in LAYOUTS {
        let mut follower = Follower::new(&journal(features), HOME);
        let blocks = [
            descriptor(features, 1, &[(5, 0), (6, 10)]),
            vec![1; BLOCK],
            vec![2; BLOCK],
            commit(features, 1),
            // Freed in transaction 2: its copy in 1 is void, and so would be one in 2 itself.
            revoke(features, 2, &[5]),
            descriptor(features, 2, &[(5, 0), (7, 10)]),
            vec![1; BLOCK],
            vec![2; BLOCK],
            commit(features, 2),
            // In use again.
            descriptor(features, 3, &[(5, 8)]),
        ];
        assert_eq!(
            feed(&mut follower, 1, &blocks),
            [
                ('c', 5, 2),
                ('c', 6, 3),
                ('r', 5, 0),
                ('c', 7, 8),
                ('c', 5, 11)
            ]
        );
    }
}

/// What is remembered of a transaction has a limit; behind it the transaction says nothing more, and the next
/// one is as good as any.
#[test]
fn more_revoked_than_is_remembered() {
    let mut follower = Follower::new(&journal(0), HOME);
    let mut said = 0;
    let homes: Vec<u64> = (0..1000).collect();
    for part in 0..limits::REVOKED as u64 / 1000 + 1 {
        let homes: Vec<u64> = homes.iter().map(|home| home + part * 1000).collect();
        let block = revoke(0, 1, &homes);
        follower.block(JournalBlock(1), &block, &mut |_| said += 1);
    }
    assert!(said > limits::REVOKED);
    let free = HOME.bytes / BLOCK as u64 - 1;
    assert_eq!(
        feed(&mut follower, 9, &[descriptor(0, 1, &[(free, 8)])]),
        []
    );
    let next = descriptor(0, 2, &[(0, 8)]);
    assert_eq!(feed(&mut follower, 9, &[next]), [('c', 0, 10)]);
}

/// A copy of someone's old journal, written as data, has the wrong checksum: its seed is the journal's UUID.
#[test]
fn a_foreign_descriptor() {
    for features in [V2, V3 | WIDE] {
        let journal = Journal {
            format: JournalFormat {
                seed: SEED + 1,
                ..format(features)
            },
            ..journal(features)
        };
        let mut follower = Follower::new(&journal, HOME);
        let blocks = [
            revoke(features, 1, &[5]),
            descriptor(features, 1, &[(5, 8)]),
        ];
        assert_eq!(feed(&mut follower, 1, &blocks), []);
        let commit = commit(features, 1);
        assert!(matches!(
            Block::parse(&commit, &journal.format),
            Block::Other
        ));
    }
}

/// Writes blocks from `at` on; what each of them completes, with addresses as blocks.
fn write(log: &mut Transactions, at: u32, blocks: &[Vec<u8>]) -> Vec<Vec<(u64, u32)>> {
    let format = format(V3);
    let mut at = JournalBlock(at);
    let mut told = Vec::new();
    for block in blocks {
        told.push(write_one(log, at, block));
        at = format.after(at);
    }
    told
}

fn write_one(log: &mut Transactions, at: JournalBlock, block: &[u8]) -> Vec<(u64, u32)> {
    let reader = log.reader().clone();
    let layout = Layout::new(&journal(V3).extents, BLOCK as u32);
    let complete = log.written(at, reader.read(at, block));
    complete
        .into_iter()
        .map(|(home, place)| {
            (
                (home - HOME.start) / BLOCK as u64,
                layout.block_at(place).unwrap().0,
            )
        })
        .collect()
}

/// The journal's superblock, which says where the log begins; 0: nowhere.
fn superblock(sequence: u32, start: u32) -> Vec<u8> {
    let mut block = header(4, 0);
    block[0x18..0x1C].copy_from_slice(&sequence.to_be_bytes());
    block[0x1C..0x20].copy_from_slice(&start.to_be_bytes());
    let sum = !crc32c::crc32c(&block[..1024]);
    block[0xFC..0x100].copy_from_slice(&sum.to_be_bytes());
    block
}

fn transactions() -> Transactions {
    Transactions::new(Arc::new(Reader::new(&journal(V3), HOME)))
}

/// Follows the log from transaction 7 at block 10 on.
fn following() -> Transactions {
    let mut log = transactions();
    write(&mut log, 0, &[superblock(7, 10)]);
    log
}

fn copy() -> Vec<u8> {
    vec![1; BLOCK]
}

const ESCAPED: u32 = 1;
const LAST: u32 = 2 | 8;

#[test]
fn a_transaction_is_complete_with_its_last_block() {
    let blocks = [
        descriptor(V3, 7, &[(100, 2), (101, LAST)]),
        copy(),
        copy(),
        commit(V3, 7),
    ];
    let expected = vec![(100, 11), (101, 12)];
    // Whichever that is.
    for last in 0..blocks.len() {
        let mut log = following();
        for at in (0..blocks.len()).filter(|at| *at != last) {
            assert_eq!(
                write_one(&mut log, JournalBlock(10 + at as u32), &blocks[at]),
                []
            );
        }
        let told = write_one(&mut log, JournalBlock(10 + last as u32), &blocks[last]);
        assert_eq!(told, expected, "block {last}");
    }
}

#[test]
fn transactions_follow_each_other_over_the_end_of_the_log() {
    let end = BLOCKS - 256;
    let mut log = transactions();
    write(&mut log, 0, &[superblock(7, end - 3)]);
    for sequence in 7..400 {
        let begin = (sequence - 7) * 3 + end - 3;
        let wrap = |at: u32| (at - 1) % (end - 1) + 1;
        let told = write(
            &mut log,
            wrap(begin),
            &[
                descriptor(V3, sequence, &[(5, LAST)]),
                copy(),
                commit(V3, sequence),
            ],
        );
        assert_eq!(told[2], [(5, wrap(begin + 1))], "transaction {sequence}");
    }
}

#[test]
fn what_replay_would_not_put_home_is_not_told() {
    let mut log = following();
    let told = write(
        &mut log,
        10,
        &[
            revoke(V3, 7, &[100]),
            descriptor(
                V3,
                7,
                &[
                    (100, 2),
                    (101, 2 | ESCAPED),
                    (HOME.bytes / BLOCK as u64, 2),
                    (103, LAST),
                ],
            ),
            copy(),
            copy(),
            copy(),
            copy(),
            commit(V3, 7),
        ],
    );
    assert_eq!(told[6], [(103, 15)]);
}

#[test]
fn nothing_is_told_that_a_superblock_does_not_lead_to() {
    let transaction = |sequence| {
        [
            descriptor(V3, sequence, &[(100, LAST)]),
            copy(),
            commit(V3, sequence),
        ]
    };
    // Not begun.
    let mut log = transactions();
    assert_eq!(write(&mut log, 10, &transaction(7))[2], []);
    // Complete before the superblock that leads to it: passed over; the next one is told.
    write(&mut log, 0, &[superblock(7, 10)]);
    assert_eq!(write(&mut log, 13, &transaction(8))[2], [(100, 14)]);
    // Another number, another place, damaged.
    for (at, blocks) in [
        (10, transaction(6)),
        (10, transaction(9)),
        (11, transaction(7)),
        (
            10,
            [
                descriptor(V3, 7, &[(100, LAST)]),
                copy(),
                header(2, 7), // no checksum
            ],
        ),
    ] {
        let mut log = following();
        assert!(
            write(&mut log, at, &blocks)
                .iter()
                .all(|told| told.is_empty())
        );
    }
    // The journal has been emptied.
    let mut log = following();
    write(&mut log, 0, &[superblock(0, 0)]);
    assert_eq!(write(&mut log, 10, &transaction(7))[2], []);
    // A damaged superblock says nothing.
    let mut log = transactions();
    let mut damaged = superblock(7, 10);
    damaged[0x20] ^= 1;
    write(&mut log, 0, &[damaged]);
    assert_eq!(write(&mut log, 10, &transaction(7))[2], []);
}

#[test]
fn a_superblock_of_another_log_is_followed_from_there() {
    let transaction = |sequence| {
        [
            descriptor(V3, sequence, &[(100, LAST)]),
            copy(),
            commit(V3, sequence),
        ]
    };
    // Further on, or elsewhere: an image that is written over the volume.
    for (sequence, start) in [(9, 16), (7, 16)] {
        let mut log = following();
        write(&mut log, 0, &[superblock(sequence, start)]);
        assert_eq!(write(&mut log, 10, &transaction(7))[2], []);
        assert_eq!(
            write(&mut log, start, &transaction(sequence))[2],
            [(100, start + 1)]
        );
    }
    // Its tail, behind: the same log.
    let mut log = following();
    assert_eq!(write(&mut log, 10, &transaction(7))[2], [(100, 11)]);
    write(&mut log, 0, &[superblock(7, 10)]);
    assert_eq!(write(&mut log, 13, &transaction(8))[2], [(100, 14)]);
    // Damaged.
    let mut damaged = superblock(9, 16);
    damaged[0x20] ^= 1;
    write(&mut log, 0, &[damaged]);
    assert_eq!(write(&mut log, 16, &transaction(9))[2], []);
}

#[test]
fn a_copy_of_the_last_lap_completes_nothing() {
    let mut log = transactions();
    // Seen before it is known where the log begins.
    write(&mut log, 11, &[copy()]);
    write(&mut log, 0, &[superblock(7, 10)]);
    assert_eq!(
        write_one(
            &mut log,
            JournalBlock(10),
            &descriptor(V3, 7, &[(100, LAST)])
        ),
        []
    );
    assert_eq!(write_one(&mut log, JournalBlock(12), &commit(V3, 7)), []);
    assert_eq!(write_one(&mut log, JournalBlock(11), &copy()), [(100, 11)]);
}
