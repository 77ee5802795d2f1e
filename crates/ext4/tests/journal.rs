//! Blocks of the log, written here by the rules of `jbd2.h`, and the follower that reads them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

#[allow(dead_code, reason = "each test uses its share")]
mod log;

use log::{
    BLOCK, BLOCKS, HOME, SEED, V2, V3, WIDE, commit, copy, descriptor, format, header, journal,
    revoke, seal, sum_of, superblock_with,
};
use proptest::prelude::*;
use vellum_ext4::journal::{
    Block, Followed, Follower, Journal, JournalBlock, JournalFormat, Layout, Sequence, Tag,
};
use vellum_ext4::{FsBlock, Span, limits};

const LAYOUTS: [u32; 6] = [0, WIDE, V2, V2 | WIDE, V3, V3 | WIDE];

/// Feeds blocks from `at` on. Returns what is reported, with places as blocks of the journal.
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
            sum: (features & V3 != 0).then(|| sum_of(sequence, &copy())),
        }).collect();
        prop_assert_eq!(read.tags().collect::<Vec<_>>(), expected);

        let homes: Vec<u64> = tags.iter().map(|(home, _)| home & mask).collect();
        let block = revoke(features, sequence, &homes);
        let Block::Revoke(read) = Block::parse(&block, &format(features)) else {
            panic!("no revoke block");
        };
        prop_assert_eq!(read.blocks().map(|b| b.0).collect::<Vec<_>>(), homes);
    }

    /// Whatever is written to a journal, the follower reports nothing impossible and never panics.
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
            let checksum = if kind == 2 { 16 } else { BLOCK - 4 };
            let block = seal(block, checksum, journal.format.features.incompatible);
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

/// Each block of the journal once, from the volume's start, in the volume's order.
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

/// Skipped copies: if the magic was removed, the copy is not the block. A copy that must not be replayed must not be remapped either. A
/// home outside the file system is false.
#[test]
fn copies_that_cannot_be_remapped_are_skipped() {
    let mut follower = Follower::new(&journal(WIDE), HOME);
    let outside = HOME.bytes / BLOCK as u64;
    let tags = [
        (5, 1),
        (6, 2 | 4),
        (outside, 2),
        // As a byte address it is in range, in the volume it is not: the addition must not be done.
        (u64::MAX / BLOCK as u64 - 1, 2),
        (u64::MAX, 2),
        (outside - 1, 10),
    ];
    let said = feed(&mut follower, 10, &[descriptor(WIDE, 1, &tags)]);
    assert_eq!(said, [('r', 5, 0), ('c', outside - 1, 16)]);
    // Outside the log: the superblock's place and the fast-commit area.
    let said = feed(&mut follower, 0, &[descriptor(WIDE, 1, &[(5, 8)])]);
    assert_eq!(said, []);
    let mut said = 0;
    let block = descriptor(WIDE, 1, &[(5, 8)]);
    follower.block(JournalBlock(BLOCKS - 256), &block, &mut |_| said += 1);
    assert_eq!(said, 0);
}

/// A journal gets its features when its file system is mounted: blocks after that superblock use them.
#[test]
fn a_superblock_says_how_what_follows_is_read() {
    let mut follower = Follower::new(&journal(0), HOME);
    let by_features = [descriptor(V3 | WIDE, 1, &[(5, 0), (6, 10)])];
    assert_ne!(
        feed(&mut follower, 10, &by_features),
        [('c', 5, 11), ('c', 6, 12)]
    );
    feed(&mut follower, 0, &[superblock_with(V3 | WIDE, 1, 10)]);
    let mut damaged = superblock_with(0, 1, 10);
    damaged[0x0E] ^= 1;
    for said_nothing in [damaged[..100].to_vec(), damaged] {
        feed(&mut follower, 0, &[said_nothing]);
        assert_eq!(
            feed(&mut follower, 10, &by_features),
            [('c', 5, 11), ('c', 6, 12)]
        );
    }
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

/// The memory for a transaction is limited. Beyond the limit the transaction reports nothing more, and the next one is
/// unaffected.
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

/// A copy of a foreign old journal, written as data, has the wrong checksum: its seed is the journal's UUID.
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
