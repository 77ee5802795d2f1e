//! Clients of 512-byte sectors: a write that covers a part of a block is read, changed and written back.
//!
//! Between its read and its write nothing else may change that block, from whatever connection, or the
//! write-back would undo it. So each export keeps a register of the changes that are in flight:
//!
//! * A *whole* change (aligned write, discard, zeros) enters its range before it is submitted and leaves
//!   when it is answered. Whole changes may overlap each other: their order is their clients' affair.
//! * A *partial* change enters one block, then waits for every whole change of it that is in flight and for
//!   every partial change of it that came earlier. From its entry on, whole changes of that block wait.
//!
//! That cannot lock up, because of two rules for those who wait. Whoever waits has submitted all that it
//! entered, so the device ends it without the waiter. And a partial change takes its memory before it
//! enters, so those that wait for it never hold what it needs.

use super::slab::Slab;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_device::block::{BlockDevice, BlockError, Op, Replies, Request};
use vellum_device::frames::Share;

/// Proof that a whole change was entered. A number, for it travels in a request's tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub u32);

/// The changes of one export that are in flight.
#[derive(Debug, Default)]
pub struct Register {
    state: Mutex<State>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct State {
    whole: Slab<(u64, u64)>,
    /// Blocks of partial changes, in order of arrival.
    partial: Vec<(u64, u64)>,
    arrivals: u64,
    waiting: u32,
}

impl State {
    fn partial_within(&self, lba: Lba, blocks: u64) -> bool {
        self.partial
            .iter()
            .any(|&(_, block)| block >= lba.0 && block - lba.0 < blocks)
    }

    fn must_wait(&self, arrival: u64, block: u64) -> bool {
        self.whole
            .values()
            .any(|&(start, blocks)| block >= start && block - start < blocks)
            || self
                .partial
                .iter()
                .any(|&(other, at)| at == block && other < arrival)
    }
}

impl Register {
    /// Enters a whole change, if no partial one is in its range.
    pub fn try_enter(&self, lba: Lba, blocks: u64) -> Option<Ticket> {
        let mut state = self.state.lock();
        if state.partial_within(lba, blocks) {
            return None;
        }
        Some(Ticket(state.whole.insert((lba.0, blocks))))
    }

    /// Enters a whole change, waiting. The caller has submitted all that it entered before.
    pub fn enter(&self, lba: Lba, blocks: u64) -> Ticket {
        let mut state = self.state.lock();
        while state.partial_within(lba, blocks) {
            state.waiting += 1;
            self.left.wait(&mut state);
            state.waiting -= 1;
        }
        Ticket(state.whole.insert((lba.0, blocks)))
    }

    /// A whole change was answered.
    pub fn leave(&self, ticket: Ticket) {
        let mut state = self.state.lock();
        state.whole.remove(ticket.0);
        if state.waiting > 0 {
            self.left.notify_all();
        }
    }

    /// Enters a partial change of `block`, and waits for its turn.
    fn enter_partial(&self, block: Lba) -> PartialTurn<'_> {
        let mut state = self.state.lock();
        state.arrivals += 1;
        let arrival = state.arrivals;
        state.partial.push((arrival, block.0));
        while state.must_wait(arrival, block.0) {
            state.waiting += 1;
            self.left.wait(&mut state);
            state.waiting -= 1;
        }
        PartialTurn {
            register: self,
            arrival,
        }
    }
}

struct PartialTurn<'a> {
    register: &'a Register,
    arrival: u64,
}

impl Drop for PartialTurn<'_> {
    fn drop(&mut self) {
        let mut state = self.register.state.lock();
        state
            .partial
            .retain(|&(arrival, _)| arrival != self.arrival);
        if state.waiting > 0 {
            self.register.left.notify_all();
        }
    }
}

/// Writes `bytes` at `within` of one block and waits for it. The caller has submitted all that it entered.
///
/// # Errors
/// The device's.
pub fn write_part(
    device: &dyn BlockDevice,
    register: &Register,
    block: Lba,
    within: usize,
    bytes: &[u8],
    fua: bool,
) -> Result<(), BlockError> {
    // Memory before the turn: see above. The reads' share before the writes': nobody does it the other way.
    let reads = device.frames().take(Share::Read, 1);
    let mut writes = device.frames().take(Share::Write, 1);
    let turn = register.enter_partial(block);
    let read = one(
        device,
        Request {
            tag: 0,
            op: Op::Read,
            lba: block,
            blocks: 1,
            frames: reads,
        },
    )?;
    let target = writes.block_mut(0);
    target.copy_from_slice(read.frames.block(0));
    target[within..within + bytes.len()].copy_from_slice(bytes);
    drop(read);
    one(
        device,
        Request {
            tag: 0,
            op: Op::Write { fua },
            lba: block,
            blocks: 1,
            frames: writes,
        },
    )?;
    drop(turn);
    Ok(())
}

/// Splits a range of bytes into the part of a first block, whole blocks, and the part of a last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Bytes that belong to a block whose beginning (or end, too) is not covered.
    pub head: usize,
    /// Whole blocks.
    pub blocks: u64,
    /// Bytes that belong to a block whose end is not covered.
    pub tail: usize,
}

impl Split {
    /// Of `length` bytes at `offset`.
    #[must_use]
    pub fn of(offset: u64, length: u64) -> Self {
        let block = BLOCK_BYTES as u64;
        let head = (offset.wrapping_neg() % block).min(length);
        let rest = length - head;
        Self {
            head: head as usize,
            blocks: rest / block,
            tail: (rest % block) as usize,
        }
    }
}

/// One request, waited for.
fn one(device: &dyn BlockDevice, request: Request) -> Result<Request, BlockError> {
    #[derive(Default)]
    struct Waiter {
        answer: Mutex<Option<(Request, Result<(), BlockError>)>>,
        came: Condvar,
    }
    impl Replies for Waiter {
        fn complete(&self, request: Request, result: Result<(), BlockError>) {
            *self.answer.lock() = Some((request, result));
            self.came.notify_one();
        }
        fn flush(&self) {}
    }
    let waiter = Arc::new(Waiter::default());
    let replies: Arc<dyn Replies> = Arc::clone(&waiter) as _;
    device.submit(&mut vec![request], &replies);
    let mut answer = waiter.answer.lock();
    loop {
        if let Some((request, result)) = answer.take() {
            return result.map(|()| request);
        }
        waiter.came.wait(&mut answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits() {
        let split = |offset, length| {
            let s = Split::of(offset, length);
            (s.head, s.blocks, s.tail)
        };
        assert_eq!(split(0, 4096), (0, 1, 0));
        assert_eq!(split(512, 512), (512, 0, 0));
        assert_eq!(split(0, 512), (0, 0, 512));
        assert_eq!(split(512, 4096), (3584, 0, 512));
        assert_eq!(split(4095, 8194), (1, 2, 1));
        assert_eq!(split(u64::MAX - 4095 - 1, 1), (1, 0, 0));
        assert_eq!(split(0, 0), (0, 0, 0));
    }

    #[test]
    fn whole_changes_wait_for_partial_ones_only() {
        let register = Register::default();
        let a = register.try_enter(Lba(0), 10).unwrap();
        let b = register.try_enter(Lba(5), 10).unwrap();
        register.leave(a);
        register.leave(b);
        let turn = register.enter_partial(Lba(7));
        assert!(register.try_enter(Lba(0), 8).is_none());
        assert!(register.try_enter(Lba(7), 1).is_none());
        let c = register.try_enter(Lba(8), 100).unwrap();
        drop(turn);
        assert!(register.try_enter(Lba(0), 8).is_some());
        register.leave(c);
    }
}
