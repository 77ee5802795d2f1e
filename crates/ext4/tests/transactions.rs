//! When a transaction of a journal is complete, block by block.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

#[allow(dead_code, reason = "each test uses its share")]
mod log;

use log::{
    BLOCK, BLOCKS, HOME, V2, V3, commit, copy, descriptor, descriptor_of, format, header, journal,
    revoke, seal, superblock_with,
};
use std::sync::Arc;
use vellum_ext4::journal::{JournalBlock, Layout, Reader, Told, Transactions};
use vellum_ext4::limits;

/// Writes blocks from `at` on. Returns what each of them completes, with addresses as blocks.
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
    let Told::Complete(complete) = log.written(at, reader.read(at, block), &reader) else {
        return Vec::new();
    };
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

/// Returns the journal's superblock, with the place where the log begins; 0: nowhere.
fn superblock(sequence: u32, start: u32) -> Vec<u8> {
    superblock_with(V3, sequence, start)
}

fn transactions() -> Transactions {
    Transactions::new(Arc::new(Reader::new(&journal(V3), HOME)))
}

/// Returns a follower of the log from transaction 7 at block 10 on.
fn following() -> Transactions {
    let mut log = transactions();
    write(&mut log, 0, &[superblock(7, 10)]);
    log
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
    // Any of them may be the last.
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

/// In any order, some of them repeatedly: the transaction is reported when its last block is there, once, and
/// completely.
#[test]
fn a_transaction_is_complete_in_whatever_order_it_comes() {
    let blocks = [
        descriptor(V3, 7, &[(100, 2), (101, 2), (102, LAST)]),
        copy(),
        copy(),
        copy(),
        revoke(V3, 7, &[101]),
        descriptor(V3, 7, &[(103, 2), (104, LAST)]),
        copy(),
        copy(),
        commit(V3, 7),
    ];
    let expected = vec![(100, 11), (102, 13), (103, 16), (104, 17)];
    let mut random = 1_u64;
    let mut below = |limit: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) as usize % limit
    };
    for round in 0..5000 {
        let mut log = following();
        let mut there = [false; 9];
        while there.contains(&false) {
            let index = below(blocks.len());
            there[index] = true;
            let at = JournalBlock(10 + index as u32);
            // Sometimes it is written again.
            if there.contains(&false) && below(10) == 0 {
                assert_eq!(write_one(&mut log, at, &blocks[index]), [], "round {round}");
            }
            let told = write_one(&mut log, at, &blocks[index]);
            match there.contains(&false) {
                true => assert_eq!(told, [], "round {round}"),
                false => assert_eq!(told, expected, "round {round}"),
            }
        }
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
fn blocks_that_a_replay_would_not_put_home_are_not_reported() {
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
fn nothing_is_reported_before_a_superblock_names_the_log() {
    let transaction = |sequence| {
        [
            descriptor(V3, sequence, &[(100, LAST)]),
            copy(),
            commit(V3, sequence),
        ]
    };
    // The log has not begun.
    let mut log = transactions();
    assert_eq!(write(&mut log, 10, &transaction(7))[2], []);
    // A transaction completed before the superblock that leads to it is skipped; the next one is reported.
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
    // A damaged superblock is ignored.
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
    // Further on, or elsewhere: an image was written over the volume.
    for (sequence, start) in [(9, 16), (7, 16)] {
        let mut log = following();
        write(&mut log, 0, &[superblock(sequence, start)]);
        assert_eq!(write(&mut log, 10, &transaction(7))[2], []);
        assert_eq!(
            write(&mut log, start, &transaction(sequence))[2],
            [(100, start + 1)]
        );
    }
    // A tail further back: the same log.
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

/// The first mount of a file system gives its journal features, with the superblock that says that the log begins.
#[test]
fn a_superblock_says_how_what_follows_is_read() {
    let mut log = Transactions::new(Arc::new(Reader::new(&journal(0), HOME)));
    write(&mut log, 0, &[superblock_with(0, 0, 0)]);
    let old = Arc::clone(log.reader());
    write(&mut log, 0, &[superblock(7, 10)]);
    let blocks = [
        descriptor(V3, 7, &[(100, 0), (101, 2), (102, LAST)]),
        copy(),
        copy(),
        copy(),
        commit(V3, 7),
    ];
    let told = write(&mut log, 10, &blocks);
    assert_eq!(told[4], [(100, 11), (101, 12), (102, 13)]);
    // As a scan finds it afterwards.
    assert_eq!(**log.reader(), Reader::new(&journal(V3), HOME));
    // A block read in the old format, and delivered late, ends it until the next superblock.
    let late = descriptor(V3, 8, &[(100, LAST)]);
    let head = old.read(JournalBlock(15), &late);
    assert_eq!(log.written(JournalBlock(15), head, &old), Told::Nothing);
    assert_eq!(write(&mut log, 16, &[copy(), commit(V3, 8)])[1], []);
}

#[test]
fn a_superblock_of_nonsense_changes_no_format() {
    for (at, word) in [
        (0x0C, 1024),
        (0x10, BLOCKS + 1),
        (0x14, 0),
        (0x1C, BLOCKS - 256),
        (0x28, 1 << 30),
    ] {
        let mut block = superblock_with(0, 7, 10);
        block[at..at + 4].copy_from_slice(&u32::to_be_bytes(word));
        let mut log = following();
        write(&mut log, 0, &[block]);
        assert_eq!(**log.reader(), Reader::new(&journal(V3), HOME), "byte {at}");
        let blocks = [descriptor(V3, 7, &[(100, LAST)]), copy(), commit(V3, 7)];
        assert_eq!(write(&mut log, 10, &blocks)[2], [], "byte {at}");
    }
}

/// Descriptors follow each other around the whole journal, and never end.
#[test]
fn a_transaction_is_no_longer_than_its_journal() {
    let mut log = transactions();
    write(&mut log, 0, &[superblock(7, 1)]);
    let (end, each) = (BLOCKS - 256, 100u32);
    let tags: Vec<_> = (1..=each)
        .map(|tag| (5, if tag == each { LAST } else { 2 }))
        .collect();
    let mut said = 0;
    for at in 1..end {
        let block = match (at - 1) % (each + 1) {
            0 => descriptor(V3, 7, &tags),
            _ => copy(),
        };
        said += write_one(&mut log, JournalBlock(at), &block).len();
    }
    // A commit block where a copy is expected triggers the check.
    said += write_one(&mut log, JournalBlock(3), &commit(V3, 7)).len();
    assert_eq!(said, 0);
}

/// Below a write-back cache with its own order: another transaction's block is in a copy's place.
#[test]
fn a_block_that_is_not_the_copy_completes_nothing() {
    let other = vec![2; BLOCK];
    let blocks = |sequence| {
        [
            descriptor(V3, sequence, &[(100, 2), (101, LAST)]),
            copy(),
            other.clone(),
            commit(V3, sequence),
        ]
    };
    // Any of them may be the last.
    for last in 0..4 {
        let mut log = following();
        let blocks = blocks(7);
        for at in (0..4).filter(|at| *at != last).chain([last]) {
            assert_eq!(
                write_one(&mut log, JournalBlock(10 + at as u32), &blocks[at]),
                [],
                "{at} of those up to {last}"
            );
        }
        // Nor does it when the copy is written late, or the next transaction.
        assert_eq!(write_one(&mut log, JournalBlock(12), &copy()), []);
        let next = [descriptor(V3, 8, &[(9, LAST)]), copy(), commit(V3, 8)];
        assert_eq!(write(&mut log, 14, &next)[2], []);
        // A superblock restarts it.
        write(&mut log, 0, &[superblock(9, 17)]);
        let next = [descriptor(V3, 9, &[(9, LAST)]), copy(), commit(V3, 9)];
        assert_eq!(write(&mut log, 17, &next)[2], [(9, 18)]);
    }
    // The same bytes, of another transaction.
    let mut log = following();
    let mut old = blocks(7);
    (old[0], old[2]) = (
        descriptor_of(V3, 7, &[(100, 2), (101, LAST)], &[copy(), other.clone()]),
        other.clone(),
    );
    assert_eq!(write(&mut log, 10, &old)[3], [(100, 11), (101, 12)]);
    let mut log = following();
    let sealed_as_8 = descriptor_of(V3, 8, &[(100, LAST)], &[copy()]);
    let mut as_7 = sealed_as_8.clone();
    as_7[8..12].copy_from_slice(&7_u32.to_be_bytes());
    as_7[BLOCK - 4..].fill(0);
    let as_7 = seal(as_7, BLOCK - 4, V3);
    assert_eq!(write(&mut log, 10, &[as_7, copy(), commit(V3, 7)])[2], []);
}

/// A copy that is already there is overwritten before the last block is written.
#[test]
fn a_copy_that_is_replaced_counts_no_more() {
    let mut log = following();
    let blocks = [
        descriptor(V3, 7, &[(100, LAST)]),
        copy(),
        descriptor(V3, 7, &[(101, LAST)]),
        copy(),
        commit(V3, 7),
    ];
    // The commit block first, so that it walks as far as it can.
    for at in [4, 0, 1, 2] {
        assert_eq!(
            write_one(&mut log, JournalBlock(10 + at as u32), &blocks[at]),
            []
        );
    }
    write_one(&mut log, JournalBlock(11), &vec![3; BLOCK]);
    assert_eq!(write_one(&mut log, JournalBlock(13), &copy()), []);
}

/// Each time the order is found to be changed it restarts; after some times it no longer does.
#[test]
fn a_journal_whose_order_is_changed_is_given_up() {
    let mut log = transactions();
    for round in 0..limits::FOREIGN {
        assert!(!log.has_given_up());
        write(&mut log, 0, &[superblock(7 + round, 10)]);
        let blocks = [
            descriptor(V3, 7 + round, &[(100, LAST)]),
            vec![9; BLOCK],
            commit(V3, 7 + round),
        ];
        write(&mut log, 10, &blocks);
    }
    assert!(log.has_given_up());
    write(&mut log, 0, &[superblock(50, 10)]);
    let blocks = [descriptor(V3, 50, &[(100, LAST)]), copy(), commit(V3, 50)];
    assert_eq!(write(&mut log, 10, &blocks)[2], []);
}

/// If copies cannot be verified, nothing is reported.
#[test]
fn nothing_is_reported_of_a_journal_without_sums_of_copies() {
    for features in [0, V2] {
        let mut log = Transactions::new(Arc::new(Reader::new(&journal(features), HOME)));
        assert!(!log.reader().has_sums());
        write(&mut log, 0, &[superblock_with(features, 7, 10)]);
        let blocks = [
            descriptor(features, 7, &[(100, LAST)]),
            copy(),
            commit(features, 7),
        ];
        assert_eq!(write(&mut log, 10, &blocks)[2], []);
    }
}

/// As many journals as there may be share the memory for one.
#[test]
fn journals_share_what_is_remembered() {
    let told = |journals: usize| {
        let mut log = following();
        log.share(journals);
        let mut at = 10;
        // A transaction of one descriptor, and then copies that no descriptor names.
        let blocks = [descriptor(V3, 7, &[(100, LAST)]), copy()];
        write(&mut log, at, &blocks);
        at += 3;
        write(&mut log, at, &vec![copy(); 1000]);
        write(&mut log, 12, &[commit(V3, 7)])
    };
    assert_eq!(told(1)[0], [(100, 11)]);
    assert_eq!(told(limits::FRESH / 1001)[0], []);
}

/// A block that is written again costs no walk through all of a long transaction.
#[test]
fn blocks_that_are_written_again_cost_no_long_walk() {
    const EACH: u32 = 200;
    let tags: Vec<_> = (1..=EACH)
        .map(|tag| (100, if tag == EACH { LAST } else { 2 }))
        .collect();
    for other in [copy(), vec![9; BLOCK]] {
        let mut log = following();
        let mut at = 10;
        // The commit block first, so that each head that is missing is waited for.
        write(&mut log, 10 + 8 * (EACH + 1), &[commit(V3, 7)]);
        for _ in 0..7 {
            write(&mut log, at, &[descriptor(V3, 7, &tags)]);
            write(&mut log, at + 1, &vec![copy(); EACH as usize]);
            at += EACH + 1;
        }
        let before = log.steps();
        for _ in 0..1000 {
            // Something else, what was there, and what is not waited for in the place of the next descriptor.
            write(&mut log, 11, std::slice::from_ref(&other));
            write(&mut log, 11, &[copy()]);
            write(&mut log, at, &[copy()]);
        }
        let steps = log.steps() - before;
        assert!(steps <= 4 * u64::from(8 * EACH), "{steps}");
    }
}
