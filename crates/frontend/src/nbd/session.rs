//! A connection in its transmission phase, as its threads share it: what is in flight, and the replies.
//!
//! The receiving thread (`receive`) opens a slot for each request and submits its parts to the device; the
//! device's threads complete the parts, and the last one turns the slot into a reply. Whoever completes
//! also sends, without waiting. What the socket does not take is left to the connection's writer thread,
//! so that a client which does not read its replies holds up nobody else.
//!
//! Bounds: [`REQUESTS_MAX`] requests and `bytes_max` bytes of payload, counted until the reply is sent, or
//! one request of any size; memory for a read of more than `bytes_max` is lent by the server ([`Heap`]), which has so much for all
//! connections. So slots, outbox and heap are bounded by the limits, and the frames that
//! replies hold go back after twice [`STALL`] at the latest, however slowly the client reads. What then waits in memory of its own is
//! bounded for all connections together ([`Leftovers`]).

use super::export::Export;
use super::heap::{Heap, Own};
use super::leftovers::{Leftovers, Stay};
use super::link::Link;
use super::negotiate::Agreed;
use super::outbox::{self, Batch, Sent, trimmed};
use super::slab::Slab;
use super::wire::{self, Errno, PAYLOAD_BYTES_MAX, chunk};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vellum_core::addr::BLOCK_BYTES;
use vellum_device::block::{BlockError, Replies, Request};
use vellum_device::frames::Share;

/// Requests of one connection in flight.
pub const REQUESTS_MAX: u32 = 512;
/// Bytes of payload of one connection in flight, if the frames are enough; see [`Session::new`].
const BYTES_MAX: u64 = 64 << 20;
/// How long a client may leave its replies unread, or take to send a part of a payload, before its data leaves the frames.
pub const STALL: Duration = Duration::from_millis(100);
/// Memory for longer reads, of all connections to a server together.
const LONG_READS_BYTES: u64 = 8 * PAYLOAD_BYTES_MAX as u64;
/// How long a long read waits for it.
const LONG_READS_WAIT: Duration = Duration::from_secs(10);
/// Memory for replies that are not taken, of all connections to a server together.
const LEFTOVERS_BYTES: u64 = 4 * PAYLOAD_BYTES_MAX as u64;
/// How long a connection that ends may take to have its last replies read.
const LINGER: Duration = Duration::from_secs(10);
/// The longest words that go with an error.
const WORDS_MAX: usize = 512;

/// The client is gone or the connection was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// What a slot's reply looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Data.
    Read,
    /// Only whether it worked.
    Plain,
}

/// An error on its way to the client.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its number.
    pub errno: Errno,
    /// Words for people; sent with structured replies.
    pub words: String,
}

impl Failure {
    /// One of our own.
    pub fn new(errno: Errno, words: &str) -> Self {
        Self {
            errno,
            words: words.to_owned(),
        }
    }
}

impl From<BlockError> for Failure {
    fn from(error: BlockError) -> Self {
        let errno = match &error {
            BlockError::OutOfRange { .. } => Errno::Inval,
            BlockError::ReadOnly => Errno::Perm,
            BlockError::Full | BlockError::NoRoom => Errno::NoSpc,
            BlockError::Io(_) | BlockError::Unlinkable => Errno::Io,
            BlockError::Stopping => Errno::Shutdown,
        };
        Self {
            errno,
            words: error.to_string(),
        }
    }
}

/// What a request in flight will be answered with.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// The client's number for it.
    pub cookie: u64,
    /// The reply's kind.
    pub kind: Kind,
    /// Where a read starts.
    pub offset: u64,
    /// A read's length.
    pub length: u32,
    /// Bytes of payload that it counts for.
    pub cost: u32,
}

/// A request in flight.
#[derive(Debug)]
struct Slot {
    opening: Opening,
    /// Parts that are not answered, the receiving thread's own hold included.
    parts: u32,
    failure: Option<Failure>,
    /// Where a read of several parts is put together: its reply is one, for a simple reply cannot say
    /// after half of the data that the rest failed.
    whole: Option<Own>,
}

#[derive(Debug, Default)]
struct State {
    slots: Slab<Slot>,
    queue: Batch,
    spare: Batch,
    /// Somebody sends, or the writer thread has the leftover.
    sending: bool,
    leftover: Option<Batch>,
    dead: bool,
    ended: bool,
    requests: u32,
    bytes: u64,
    /// The receiving thread waits on `room`.
    waiting: bool,
}

/// Memory that a server's connections share.
#[derive(Clone, Debug)]
pub struct Memory {
    /// For long reads.
    pub heap: Arc<Heap>,
    /// For replies that are not taken.
    pub leftovers: Arc<Leftovers>,
}

impl Memory {
    /// As much as a server has.
    pub fn new() -> Self {
        Self {
            heap: Heap::new(LONG_READS_BYTES, LONG_READS_WAIT),
            leftovers: Leftovers::new(LEFTOVERS_BYTES),
        }
    }
}

/// The connection.
#[derive(Debug)]
pub struct Session {
    pub(super) link: Link,
    pub(super) export: Arc<Export>,
    pub(super) agreed: Agreed,
    pub(super) stopping: AtomicBool,
    bytes_max: u64,
    memory: Memory,
    state: Mutex<State>,
    room: Condvar,
    work: Condvar,
}

impl Session {
    /// A session on a link whose handshake is done. It may have half of the reads' frames in flight, so
    /// that no connection starves the others.
    pub fn new(link: Link, export: Arc<Export>, agreed: Agreed, memory: Memory) -> Self {
        let half = export.device().frames().capacity(Share::Read) as u64 * BLOCK_BYTES as u64 / 2;
        Self {
            link,
            export,
            agreed,
            stopping: AtomicBool::new(false),
            bytes_max: BYTES_MAX.min(half),
            memory,
            state: Mutex::default(),
            room: Condvar::new(),
            work: Condvar::new(),
        }
    }

    /// Takes no more requests; those in flight are answered.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.link.stop_receiving();
    }

    /// Breaks the connection now; what is in flight ends unseen.
    pub fn kill(&self) {
        let mut state = self.state.lock();
        self.bury(&mut state);
        drop(state);
        self.link.close();
    }

    /// As [`Session::kill`], and the writer ends.
    pub fn abandon(&self) {
        self.kill();
        self.state.lock().ended = true;
        self.work.notify_all();
    }

    /// Opens a slot if the limits allow it now.
    pub fn try_open(&self, opening: Opening) -> Result<Option<u32>, Gone> {
        let mut state = self.state.lock();
        if state.dead {
            return Err(Gone);
        }
        if !self.fits(&state, opening.cost) {
            return Ok(None);
        }
        state.requests += 1;
        state.bytes += u64::from(opening.cost);
        let slot = Slot {
            opening,
            parts: 1,
            failure: None,
            whole: None,
        };
        Ok(Some(state.slots.insert(slot)))
    }

    /// Waits until the limits allow a request of that length. The caller has submitted all that it has.
    pub fn wait_for_room(&self, cost: u32) {
        let mut state = self.state.lock();
        while !state.dead && !self.fits(&state, cost) {
            state.waiting = true;
            self.room.wait(&mut state);
        }
        state.waiting = false;
    }

    fn fits(&self, state: &State, cost: u32) -> bool {
        state.requests < REQUESTS_MAX
            && (state.requests == 0 || state.bytes + u64::from(cost) <= self.bytes_max)
    }

    /// A slot gets another part.
    pub fn add_part(&self, slot: u32) {
        if let Some(slot) = self.state.lock().slots.get_mut(slot) {
            slot.parts += 1;
        }
    }

    /// A slot gets memory to put its parts together. The caller has submitted all that it has.
    pub fn assemble(&self, slot: u32, length: u32) -> Result<(), Failure> {
        let loan = if u64::from(length) > self.bytes_max {
            let loan = self
                .memory
                .heap
                .borrow(length.into(), || !self.state.lock().dead);
            Some(loan.ok_or_else(|| {
                Failure::new(
                    Errno::NoMem,
                    "other clients have asked for so much at once and not taken it: read less at once",
                )
            })?)
        } else {
            None
        };
        if let Some(slot) = self.state.lock().slots.get_mut(slot) {
            slot.whole = Some(Own::new(vec![0; length as usize], loan));
        }
        Ok(())
    }

    /// Ends a part that never went to the device, or the receiving thread's hold.
    pub fn end_part(&self, slot: u32, result: Result<(), Failure>) {
        let mut state = self.state.lock();
        if let Some(slot) = state.slots.get_mut(slot) {
            slot.parts -= 1;
            if let Err(failure) = result {
                slot.failure.get_or_insert(failure);
            }
            if slot.parts > 0 {
                return;
            }
        }
        self.reply(&mut state, slot, None);
    }

    /// Ends a request with bytes made by the receiving thread, a chunk each.
    pub fn end_with(&self, slot: u32, kind: u16, bodies: &[Vec<u8>]) {
        let mut state = self.state.lock();
        if let Some(slot) = state.slots.remove(slot) {
            let cookie = slot.opening.cookie;
            for (index, body) in bodies.iter().enumerate() {
                let flags = match index + 1 == bodies.len() {
                    true => chunk::FLAG_DONE,
                    false => 0,
                };
                let head = wire::head_of_chunk(cookie, kind, body.len() as u32, flags);
                state.queue.head(&head);
                state.queue.head(body);
            }
            self.account(&mut state, slot.opening.cost);
        }
    }

    /// Turns a slot whose parts have all ended into its reply.
    fn reply(&self, state: &mut State, slot: u32, data: Option<Request>) {
        let Some(slot) = state.slots.remove(slot) else {
            return;
        };
        let queue = &mut state.queue;
        match (&slot.failure, slot.opening.kind) {
            (Some(failure), _) if self.agreed.structured => {
                let mut end = failure.words.len().min(WORDS_MAX);
                while !failure.words.is_char_boundary(end) {
                    end -= 1;
                }
                let words = &failure.words.as_bytes()[..end];
                queue.head(&wire::chunk_head(
                    slot.opening.cookie,
                    chunk::ERROR,
                    6 + words.len() as u32,
                ));
                queue.head(&(failure.errno as u32).to_be_bytes());
                queue.head(&(words.len() as u16).to_be_bytes());
                queue.head(words);
            }
            (Some(failure), _) => queue.head(&wire::simple_reply(
                slot.opening.cookie,
                failure.errno as u32,
            )),
            (None, Kind::Read) => {
                if !self.agreed.structured {
                    queue.head(&wire::simple_reply(slot.opening.cookie, 0));
                } else if slot.opening.length == 0 {
                    queue.head(&wire::chunk_head(slot.opening.cookie, chunk::NONE, 0));
                } else {
                    queue.head(&wire::chunk_head(
                        slot.opening.cookie,
                        chunk::OFFSET_DATA,
                        slot.opening.length + 8,
                    ));
                    queue.head(&slot.opening.offset.to_be_bytes());
                }
                if let Some(whole) = slot.whole {
                    queue.own(whole);
                } else if let Some(request) = data {
                    let from = (slot.opening.offset - request.lba.0 * BLOCK_BYTES as u64) as usize;
                    queue.frames(request.frames, from, slot.opening.length as usize);
                }
            }
            (None, Kind::Plain) => queue.head(&wire::simple_reply(slot.opening.cookie, 0)),
        }
        self.account(state, slot.opening.cost);
    }

    /// Counts a reply that was just queued.
    fn account(&self, state: &mut State, cost: u32) {
        state.queue.requests += 1;
        state.queue.bytes += u64::from(cost);
        if state.dead {
            let mut queue = std::mem::take(&mut state.queue);
            self.release(state, &mut queue);
        }
    }

    /// A batch has been sent, or never will be.
    fn release(&self, state: &mut State, batch: &mut Batch) {
        state.requests -= batch.requests;
        state.bytes -= batch.bytes;
        batch.reset();
        if state.waiting {
            self.room.notify_all();
        }
    }

    /// Nothing can be sent any more.
    fn bury(&self, state: &mut State) {
        state.dead = true;
        let mut queue = std::mem::take(&mut state.queue);
        self.release(state, &mut queue);
        self.room.notify_all();
    }

    /// Sends batch after batch until the queue is empty, the socket blocks (the batch is given back) or
    /// the client is gone. The caller has set `sending`.
    fn pump<'a>(&'a self, mut state: MutexGuard<'a, State>, mut batch: Batch) -> Option<Batch> {
        loop {
            let sent = if state.dead {
                Sent::Dead
            } else {
                MutexGuard::unlocked(&mut state, || batch.send(&self.link))
            };
            match sent {
                Sent::All => self.release(&mut state, &mut batch),
                Sent::Blocked => return Some(batch),
                Sent::Dead => {
                    self.release(&mut state, &mut batch);
                    self.bury(&mut state);
                }
            }
            if state.queue.is_empty() {
                state.sending = false;
                state.spare = batch;
                return None;
            }
            std::mem::swap(&mut state.queue, &mut batch);
        }
    }

    /// The writer thread: sends what the socket did not take at once.
    pub fn write_leftovers(self: &Arc<Self>) {
        let mut state = self.state.lock();
        loop {
            let Some(mut batch) = state.leftover.take() else {
                if state.ended {
                    return;
                }
                self.work.wait(&mut state);
                continue;
            };
            // Of the batch, not of the wait: a client that reads a little now and then does not put it off.
            let deadline = *batch.leaves.get_or_insert_with(|| Instant::now() + STALL);
            let waited = MutexGuard::unlocked(&mut state, || outbox::wait(&self.link, deadline));
            if waited == Err(Sent::Blocked) && !state.dead {
                // Not read for a while: the data must not sit in everybody's frames, nor what is queued meanwhile.
                state.queue.leave_frames(|bytes| self.lodge(bytes));
                MutexGuard::unlocked(&mut state, || batch.leave_frames(|bytes| self.lodge(bytes)));
                batch.leaves = None;
                state.leftover = Some(batch);
                continue;
            }
            if waited == Err(Sent::Dead) {
                self.bury(&mut state);
            }
            let left = self.pump(state, batch);
            state = self.state.lock();
            if left.is_some() {
                state.leftover = left;
            }
        }
    }

    /// Memory for so much that our client does not take; who has kept such for longest is cut off when it is too much.
    fn lodge(self: &Arc<Self>, bytes: u64) -> Stay {
        let session = Arc::downgrade(self);
        let cut = move || {
            if let Some(session) = session.upgrade() {
                session.link.cut();
            }
        };
        self.memory.leftovers.take(bytes, Arc::new(cut))
    }

    /// Waits until nothing is in flight and all replies are sent, not for ever; then the writer ends.
    pub fn end(&self) {
        let deadline = Instant::now() + LINGER;
        let mut state = self.state.lock();
        while state.requests > 0 {
            state.waiting = true;
            if state.dead {
                // The device still has parts: it answers each, and their memory comes back.
                self.room.wait(&mut state);
            } else if self.room.wait_until(&mut state, deadline).timed_out() {
                // Only now: closing makes the writer thread, if it waits for the client, give up.
                self.bury(&mut state);
                MutexGuard::unlocked(&mut state, || self.link.close());
            }
        }
        state.waiting = false;
        state.ended = true;
        self.work.notify_all();
        drop(state);
        self.link.close();
    }
}

impl Replies for Session {
    fn complete(&self, request: Request, result: Result<(), BlockError>) {
        let number = request.tag as u32;
        let mut state = self.state.lock();
        let Some(slot) = state.slots.get_mut(number) else {
            return;
        };
        slot.parts -= 1;
        if let Err(error) = result {
            slot.failure.get_or_insert(error.into());
        } else if let Some(whole) = &mut slot.whole {
            copy_part(&mut whole.bytes, slot.opening.offset, &request);
        }
        if slot.parts == 0 {
            self.reply(&mut state, number, Some(request));
        }
    }

    fn flush(&self) {
        let mut state = self.state.lock();
        if state.sending || state.queue.is_empty() {
            return;
        }
        state.sending = true;
        let spare = std::mem::take(&mut state.spare);
        let batch = std::mem::replace(&mut state.queue, spare);
        if let Some(left) = self.pump(state, batch) {
            self.state.lock().leftover = Some(left);
            self.work.notify_all();
        }
    }
}

/// Puts a part of a read where it belongs in the whole.
fn copy_part(whole: &mut [u8], offset: u64, part: &Request) {
    let start = part.lba.0 * BLOCK_BYTES as u64;
    let from = offset.saturating_sub(start) as usize;
    let mut at = start.saturating_sub(offset) as usize;
    let length = (part.frames.len() * BLOCK_BYTES - from).min(whole.len() - at);
    for (ptr, len) in trimmed(&part.frames, from, length) {
        // SAFETY: a run of frames that the request owns.
        whole[at..at + len].copy_from_slice(unsafe { std::slice::from_raw_parts(ptr, len) });
        at += len;
    }
}

#[cfg(test)]
mod tests;
