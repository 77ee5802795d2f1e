use super::*;
use crate::addr::{Lba, RequestId};
use crate::format::chunk::Record;
use crate::seam::ChunkBlock;
use alloc::{vec, vec::Vec};

const USABLE: u32 = 10;
const LIFE: Life = Life(3);

/// A log whose heads are in segments 0 and 1, after chunk 5 of life 2.
fn log() -> Log {
    let cursor = |segment| Cursor {
        segment: Segment(segment),
        offset: 0,
    };
    let cursors = [cursor(0), cursor(1)];
    Log::recovered(USABLE, cursors, (Seq(5), Life(2)), None, Seq(5))
}

/// Opens the host's next chunk, with `blocks` blocks in buffers from `buf` on.
fn open(log: &mut Log, blocks: u32, buf: u32) -> ChunkId {
    let start = Pba(u64::from(log.segment(Head::Hot).0) * 100);
    let max = log.longest_now(Head::Hot, true).expect("the head has room");
    let id = log.begin(Head::Hot, start, max, Nanos(7));
    for index in 0..blocks {
        let record = Record::Data {
            lba: Lba(index.into()),
            sum: 0,
        };
        log.get_mut(id)
            .push_data(record, ChunkBlock::Whole(Buf(buf + index)));
    }
    id
}

fn seal(log: &mut Log, urgent: bool) -> ToWrite {
    let sealed = log.seal(Head::Hot, urgent, LIFE, |buf| buf.0 < 100);
    sealed.expect("a chunk is open")
}

#[test]
fn a_chunk_starts_where_the_one_before_ends_and_has_the_next_number() {
    let mut log = log();
    let first = open(&mut log, 2, 0);
    assert_eq!(
        log.open(Head::Hot).map(|chunk| chunk.opening().at),
        Some(Pba(0))
    );
    assert_eq!(
        log.seal_due(),
        Some(Nanos(7 + limits::SEAL_AFTER_NANOS)),
        "an open chunk is sealed after a while"
    );
    let sealed = seal(&mut log, false);
    assert_eq!((sealed.id, sealed.seq, sealed.blocks), (first, Seq(6), 3));
    assert!(log.is_all_sealed() && log.seal_due().is_none());
    assert_eq!(log.get(first).seal().map(|s| s.prev_life), Some(Life(2)));
    let second = open(&mut log, 1, 2);
    let third = seal(&mut log, false).id;
    assert_eq!(log.get(third).opening().at, Pba(3));
    assert_eq!(log.get(second).seal().map(|s| s.prev_life), Some(LIFE));
    assert_eq!((log.last_seq(), log.last_life()), (Seq(7), LIFE));
    assert_eq!(log.cursors()[0].offset, 5);
}

#[test]
fn the_last_chunk_of_a_segment_names_the_one_that_its_head_goes_on_in() {
    let mut log = log();
    open(&mut log, 2, 0);
    // No segment is free: the head opens a chunk that is surely not the last.
    seal(&mut log, false);
    assert!(log.wants_next(Head::Hot));
    assert_eq!(log.longest_now(Head::Hot, true), Some(4));
    log.go_on_in(Head::Hot, Segment(8));
    assert!(!log.wants_next(Head::Hot));
    let last = open(&mut log, 5, 2);
    assert_eq!(log.get(last).opening().max_data, 6);
    let sealed = seal(&mut log, false);
    assert!(
        sealed.ends_segment,
        "one block is left, and no room for data"
    );
    assert_eq!(log.get(last).seal().and_then(|s| s.next), Some(Segment(8)));
    assert_eq!(
        (log.segment(Head::Hot), log.cursors()[0].offset),
        (Segment(8), 0)
    );
}

#[test]
fn a_head_that_cannot_go_on_keeps_room_for_a_header_behind_a_short_chunk() {
    let mut log = log();
    open(&mut log, 6, 0);
    seal(&mut log, false);
    assert_eq!(log.cursors()[0].offset, 7);
    assert_eq!(log.longest_now(Head::Hot, true), None);
    assert_eq!(log.longest_now(Head::Hot, false), Some(0), "records alone");
}

#[test]
fn a_block_is_in_memory_until_its_chunk_is_on_the_medium() {
    let mut log = log();
    let id = open(&mut log, 2, 99);
    let then = log.absorptions_at(Pba(2), None).expect("the chunk is open");
    assert!(log.is_as_at(then));
    log.on_absorbed();
    assert!(!log.is_as_at(then));
    seal(&mut log, false);
    assert_eq!(log.absorptions_at(Pba(2), None), None);
    assert!(log.holds(Pba(1)) && !log.holds(Pba(0)) && !log.holds(Pba(3)));
    assert!(matches!(log.held(Pba(1), None), Some(Held::Block(Buf(99)))));
    assert_eq!(
        log.clients_on_their_way(),
        1,
        "the other is the collector's"
    );
    let mut released = Vec::new();
    let segment = log.on_written(id, |buf| {
        released.push(buf);
        buf.0 < 100
    });
    assert_eq!((segment, released), (Segment(0), vec![Buf(99), Buf(100)]));
    assert_eq!(log.clients_on_their_way(), 0);
    assert!(!log.holds(Pba(1)));
}

#[test]
fn a_limited_number_of_chunks_is_written_at_once() {
    let mut log = log();
    let mut first = None;
    for _ in 0..limits::CHUNKS_IN_FLIGHT {
        assert!(log.may_write());
        if log.wants_next(Head::Hot) {
            log.go_on_in(Head::Hot, Segment(8));
        }
        let id = open(&mut log, 1, 0);
        first = first.or(Some(id));
        seal(&mut log, false);
    }
    assert!(!log.may_write());
    log.on_written(first.expect("there is one"), |_| true);
    assert!(log.may_write());
    log.on_lost();
    assert!(log.may_write());
}

#[test]
fn a_replacement_is_durable_with_its_chunk_and_all_before_it() {
    let mut log = log();
    let nothing = log.marks();
    assert!(log.are_durable(nothing));
    let id = open(&mut log, 1, 0);
    let marks = log.marks();
    assert!(log.is_in_open(Head::Hot, marks) && !log.is_in_open(Head::Cold, marks));
    assert!(!log.is_in_open(Head::Hot, nothing));
    seal(&mut log, false);
    assert!(!log.is_in_open(Head::Hot, marks) && !log.are_durable(marks));
    log.on_written(id, |_| true);
    log.want_all_durable();
    assert!(!log.poll_durable());
    let through = log.poll_sync().expect("a sync is wanted");
    log.durability_mut().on_synced(through);
    assert!(log.poll_durable() && !log.poll_durable());
    assert!(log.are_durable(marks));
}

#[test]
fn an_urgent_chunk_needs_no_sync_unless_it_is_written_twice() {
    for again in [false, true] {
        let mut log = log();
        let id = open(&mut log, 1, 0);
        log.durability_mut().wait_for_open(RequestId(4), true);
        assert!(seal(&mut log, true).durable);
        log.on_open_sealed();
        if again {
            log.on_written_again(id);
        }
        log.on_written(id, |_| true);
        assert_eq!(log.poll_durable(), !again);
        assert_eq!(log.durability_mut().poll_waiter().is_some(), !again);
        assert_eq!(log.poll_sync().is_some(), again);
    }
}
