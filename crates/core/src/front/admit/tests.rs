use super::super::{Back, Ended, Front, Noted, Placed, Verdict, refuse};
use super::{copy, flush, read, serve_waiting, write};
use crate::addr::{Buf, EffectId, Lba, RequestId};
use crate::seam::{Ack, CopyBlocks, Payload, Refusal, Unmap};
use crate::stats::Stats;
use alloc::vec::Vec;

const BLOCKS: u64 = 100;

/// A layout that notes what takes effect. Blocks wait as long as `room` is 0.
struct Noting {
    front: Front<(), u32>,
    stats: Stats,
    room: u64,
    /// Blocks with twins, which have to be compared.
    twins: Vec<Lba>,
    /// True if writes miss leaves.
    misses: bool,
    /// What took effect, in order: LBAs that were written, unmapped, copied or read, or a FLUSH.
    done: Vec<(char, u64)>,
    refused: u32,
}

impl Noting {
    fn new() -> Self {
        Self {
            front: Front::of(false),
            stats: Stats::default(),
            room: 0,
            twins: Vec::new(),
            misses: false,
            done: Vec::new(),
            refused: 0,
        }
    }

    fn takes(&mut self, what: char, lba: Lba) -> bool {
        let has_room = self.room > 0;
        if has_room {
            self.room -= 1;
            self.done.push((what, lba.0));
        }
        has_room
    }

    fn writes(&mut self, id: u32, lba: u64, blocks: u32, ack: Ack) {
        let payload = |index| Payload {
            buf: Buf(10 * id + index),
            digest: Default::default(),
        };
        let blocks: Vec<Payload> = (0..blocks).map(payload).collect();
        write(self, RequestId(id), Lba(lba), &blocks, ack);
    }

    fn has_room(&mut self, room: u64) {
        self.room = room;
        serve_waiting(self);
    }

    fn replies(&mut self) -> Vec<(u32, Ended)> {
        let replies = core::iter::from_fn(|| self.front.outbox.next_reply());
        replies.map(|reply| (reply.id.0, reply.result)).collect()
    }

    fn done(&mut self) -> Vec<(char, u64)> {
        core::mem::take(&mut self.done)
    }
}

impl Back for Noting {
    type Purpose = ();
    type Twin = u32;

    fn front(&mut self) -> &mut Front<(), u32> {
        &mut self.front
    }

    fn counters(&mut self) -> &mut Stats {
        &mut self.stats
    }

    fn logical_blocks(&self) -> u64 {
        BLOCKS
    }

    fn propose(&mut self, _: RequestId, lba: Lba, blocks: &[Payload]) -> Vec<Verdict<u32>> {
        Verdict::ask_for(blocks, |at, _| {
            let is_twin = self.twins.contains(&lba.plus(at as u64));
            is_twin.then_some(at as u32)
        })
    }

    fn misses(&mut self, _: Lba, _: usize) -> bool {
        self.misses
    }

    fn place(&mut self, lba: Lba, _: &Payload, verdict: &Verdict<u32>) -> Placed {
        match !verdict.is_asked() && self.takes('w', lba) {
            true => Placed::Done,
            false => Placed::Wait,
        }
    }

    fn unmap(&mut self, lba: Lba, _: u64) -> Option<Ended> {
        self.takes('u', lba).then_some(Ok(()))
    }

    fn copy(&mut self, copy: CopyBlocks, placed: &mut u64) -> Option<Ended> {
        while *placed < copy.blocks {
            if copy.from.plus(*placed) == Lba(BLOCKS - 1) {
                return Some(Err(Refusal::Unlinkable));
            }
            if !self.takes('c', copy.to.plus(*placed)) {
                return None;
            }
            *placed += 1;
        }
        Some(Ok(()))
    }

    fn read_now(&mut self, id: RequestId, lba: Lba, _: u32) {
        self.done.push(('r', lba.0));
        self.front.reply(id, Ok(()));
    }

    fn wait_for_durability(&mut self, id: RequestId, flush: bool) {
        self.done.push((if flush { 'f' } else { 'd' }, 0));
        self.front.reply(id, Ok(()));
    }

    fn on_refused(&mut self, verdicts: &[Verdict<u32>]) {
        self.refused += 1 + verdicts.len() as u32;
    }

    fn refuse_waiters(&mut self, _: Refusal) {}
}

fn discard(back: &mut Noting, id: u32, lba: Lba, blocks: u64, zero: bool) {
    let unmap = Unmap {
        lba,
        blocks,
        zero,
        fua: false,
    };
    super::unmap(back, RequestId(id), unmap);
}

#[test]
fn changes_take_effect_in_order_and_a_read_waits_for_those_of_its_blocks_alone() {
    let mut back = Noting::new();
    back.writes(1, 10, 2, Ack::Placed);
    back.writes(2, 20, 1, Ack::Durable);
    discard(&mut back, 3, Lba(30), 5, true);
    read(&mut back, RequestId(4), Lba(11), 9);
    read(&mut back, RequestId(5), Lba(12), 8);
    // It overlaps a read that waits, and no change.
    read(&mut back, RequestId(6), Lba(12), 1);
    assert_eq!(back.done(), [('r', 12), ('r', 12)]);
    assert_eq!(back.replies(), [(5, Ok(())), (6, Ok(()))]);
    back.has_room(1);
    assert_eq!(
        (back.done(), back.replies()),
        ([('w', 10)].to_vec(), Vec::new())
    );
    back.has_room(9);
    let order = [('w', 11), ('w', 20), ('d', 0), ('u', 30), ('r', 11)];
    assert_eq!(back.done(), order);
    let answers: Vec<u32> = back.replies().iter().map(|(id, _)| *id).collect();
    assert_eq!(answers, [1, 2, 3, 4]);
    let stats = back.stats;
    assert_eq!((stats.host_blocks_written, stats.host_blocks_read), (3, 18));
    assert_eq!((stats.zero_blocks, stats.discarded_blocks), (5, 0));
}

#[test]
fn a_write_waits_for_comparisons_and_for_leaves() {
    let mut back = Noting::new();
    back.room = 9;
    back.twins.push(Lba(11));
    back.writes(1, 10, 2, Ack::Placed);
    assert_eq!(back.done(), [('w', 10)]);
    back.misses = true;
    back.writes(2, 20, 1, Ack::Placed);
    back.misses = false;
    back.writes(3, 30, 1, Ack::Placed);
    discard(&mut back, 4, Lba(40), 1, false);
    serve_waiting(&mut back);
    assert!(back.done().is_empty(), "nothing overtakes the first");
    back.front.queue.on_answer(RequestId(1), 1, Some);
    serve_waiting(&mut back);
    let order = [('w', 11), ('w', 20), ('w', 30), ('u', 40)];
    assert_eq!(back.done(), order);
}

#[test]
fn a_flush_waits_for_writes_that_are_answered_and_for_no_others() {
    let mut back = Noting::new();
    back.writes(1, 10, 1, Ack::Placed);
    flush(&mut back, RequestId(2));
    assert_eq!(back.done(), [('f', 0)]);
    back.writes(3, 20, 1, Ack::Given);
    flush(&mut back, RequestId(4));
    assert!(back.done().is_empty());
    back.has_room(2);
    assert_eq!(back.done(), [('w', 10), ('w', 20), ('f', 0)]);
    assert_eq!(back.stats.flushes, 2);
}

#[test]
fn a_copy_goes_on_where_it_stopped() {
    let mut back = Noting::new();
    back.room = 1;
    let of = |from, to, blocks| CopyBlocks {
        from: Lba(from),
        to: Lba(to),
        blocks,
    };
    copy(&mut back, RequestId(1), of(50, 10, 3));
    copy(&mut back, RequestId(2), of(BLOCKS - 2, 20, 2));
    copy(&mut back, RequestId(3), of(BLOCKS - 2, 20, 3));
    back.has_room(9);
    assert_eq!(back.done(), [('c', 10), ('c', 11), ('c', 12), ('c', 20)]);
    let (out, not) = (Refusal::OutOfRange, Refusal::Unlinkable);
    assert_eq!(back.replies(), [(3, Err(out)), (1, Ok(())), (2, Err(not))]);
    assert_eq!(back.stats.copied_blocks, 3);
}

#[test]
fn without_room_only_writes_that_are_answered_and_reads_wait_on() {
    let mut back = Noting::new();
    back.writes(1, 10, 1, Ack::Given);
    back.writes(2, 20, 2, Ack::Placed);
    read(&mut back, RequestId(3), Lba(20), 1);
    refuse::until_room(&mut back, EffectId(0));
    assert_eq!(back.replies(), [(2, Err(Refusal::NoRoom))]);
    back.writes(4, 30, 1, Ack::Placed);
    back.writes(5, 40, 1, Ack::Given);
    discard(&mut back, 6, Lba(50), 1, false);
    flush(&mut back, RequestId(7));
    let refused: Vec<u32> = back.replies().iter().map(|(id, _)| *id).collect();
    assert_eq!((refused, back.refused), ([4, 6, 7].to_vec(), 2));
    assert_eq!(back.front.outbox.buffers(), 2);
    back.has_room(2);
    assert_eq!(back.done(), [('w', 10), ('r', 20), ('w', 40)]);
}

#[test]
fn a_poisoned_volume_refuses_all_and_keeps_no_buffer() {
    let mut back = Noting::new();
    back.twins.push(Lba(21));
    back.writes(1, 10, 1, Ack::Given);
    back.writes(2, 20, 2, Ack::Placed);
    read(&mut back, RequestId(3), Lba(20), 1);
    back.front.course.poison();
    refuse::all(&mut back);
    let poisoned = Err(Refusal::Poisoned);
    assert_eq!(back.replies(), [(1, poisoned), (3, Ok(()))]);
    back.writes(4, 30, 1, Ack::Given);
    assert_eq!(back.replies(), [(4, poisoned)]);
    // The buffers of a write are held until its blocks have been compared.
    assert_eq!(back.front.outbox.buffers(), 2);
    let noted = back.front.queue.on_answer(RequestId(2), 1, |_| None);
    let Noted::Refused(Some(1), Some((write, refusal))) = noted else {
        panic!("it was refused, and is compared now")
    };
    refuse::one(&mut back, write, refusal);
    assert_eq!(
        (back.replies(), back.refused),
        ([(2, poisoned)].to_vec(), 6)
    );
    assert_eq!(back.front.outbox.buffers(), 0);
}
