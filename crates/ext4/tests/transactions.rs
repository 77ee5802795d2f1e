//! When a transaction of a journal is complete, block by block.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

#[allow(dead_code, reason = "each test uses its share")]
mod log;

use log::{BLOCK, BLOCKS, HOME, V3, commit, descriptor, format, header, journal, revoke};
use std::sync::Arc;
use vellum_ext4::journal::{JournalBlock, Layout, Reader, Transactions};

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
