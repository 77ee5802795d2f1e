//! A connection in its transmission phase, shared by its threads: what is in flight, and the replies.
//!
//! The receiving thread (`receive`) opens a slot for each request and submits its parts to the device. The device's threads
//! complete the parts, and the last one turns the slot into a reply. The thread that completes a request also sends, without
//! waiting. What the socket does not accept is left to the connection's writer thread, so a client that does not read its
//! replies holds up no other client.
//!
//! Bounds: [`REQUESTS_MAX`] requests and `bytes_max` bytes of payload, counted until the reply is sent, or one request of
//! any size. For a read of more than `bytes_max`, the server lends memory ([`Heap`]), of which all connections share a
//! fixed amount. So the limits bound slots, outbox and heap. The frames that replies hold are given back after twice
//! [`STALL`] at the latest, however slowly the client reads. The memory of replies that wait after that is bounded for all
//! connections together ([`Leftovers`]).

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
use vellum_device::frames::Quota;

/// The most requests of one connection in flight.
pub const REQUESTS_MAX: u32 = 512;
/// The most payload bytes of one connection in flight, if there are enough frames; see [`Session::new`].
const BYTES_MAX: u64 = 64 << 20;
/// How long a client may leave its replies unread, or take to send a part of a payload, before the data leaves the frames.
pub const STALL: Duration = Duration::from_millis(100);
/// Memory for long reads, shared by all connections to a server.
const LONG_READS_BYTES: u64 = 8 * PAYLOAD_BYTES_MAX as u64;
/// How long a long read waits for memory.
const LONG_READS_WAIT: Duration = Duration::from_secs(10);
/// Memory for replies that clients do not take, shared by all connections to a server.
const LEFTOVERS_BYTES: u64 = 4 * PAYLOAD_BYTES_MAX as u64;
/// How long a client may take to read its last replies when the connection ends.
const LINGER: Duration = Duration::from_secs(10);
/// How many batches a thread of the device sends before the connection's own writer takes over. Otherwise a client that reads as
/// fast as it is answered would keep that thread for ever, and all other clients would wait.
const TURNS: u32 = 4;
/// The longest text sent with an error.
const WORDS_MAX: usize = 512;

/// The client is gone or the connection was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// The form of a slot's reply.
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
    /// Text for people; sent in structured replies.
    pub words: String,
}

impl Failure {
    /// A failure detected by the server.
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

/// How a request in flight will be answered.
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
    /// The payload bytes that it counts for.
    pub cost: u32,
}

/// A request in flight.
#[derive(Debug)]
struct Slot {
    opening: Opening,
    /// Parts not yet answered, including the one for the receiving thread's own use.
    parts: u32,
    failure: Option<Failure>,
    /// Where a read of several parts is assembled. It gets a single reply, because a simple reply cannot report after half of
    /// the data that the rest failed.
    whole: Option<Own>,
}

#[derive(Debug, Default)]
struct State {
    slots: Slab<Slot>,
    queue: Batch,
    spare: Batch,
    /// A thread is sending, or the writer thread has the leftover.
    sending: bool,
    leftover: Option<Batch>,
    dead: bool,
    ended: bool,
    requests: u32,
    bytes: u64,
    /// The receiving thread waits on `room`.
    waiting: bool,
}

/// Memory that the connections of a server share.
#[derive(Clone, Debug)]
pub struct Memory {
    /// For long reads.
    pub heap: Arc<Heap>,
    /// For replies that clients do not take.
    pub leftovers: Arc<Leftovers>,
}

impl Memory {
    /// The amounts that a server has.
    pub fn new() -> Self {
        Self {
            heap: Heap::new(LONG_READS_BYTES, LONG_READS_WAIT),
            leftovers: Leftovers::new(LEFTOVERS_BYTES),
        }
    }
}

/// A connection in its transmission phase.
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
    /// A session on a link whose handshake is done. It may have half of the reads' frames in flight, so that no
    /// connection starves the others.
    pub fn new(link: Link, export: Arc<Export>, agreed: Agreed, memory: Memory) -> Self {
        let half = export.device().frames().capacity(Quota::Read) as u64 * BLOCK_BYTES as u64 / 2;
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

    /// Stops taking requests. Those in flight are answered.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.link.stop_receiving();
    }

    /// Breaks the connection now. What is in flight ends without a reply.
    pub fn kill(&self) {
        let mut state = self.state.lock();
        self.bury(&mut state);
        drop(state);
        self.link.close();
    }

    /// Like [`Session::kill`], but also ends the writer.
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

    /// Waits until the limits allow a request of that length. The caller must have submitted everything it has.
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

    /// Adds a part to a slot.
    pub fn add_part(&self, slot: u32) {
        if let Some(slot) = self.state.lock().slots.get_mut(slot) {
            slot.parts += 1;
        }
    }

    /// Gives a slot memory to assemble its parts. The caller must have submitted everything it has.
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

    /// Ends a part that never went to the device, or the receiving thread's own.
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

    /// Ends a request with bytes made by the receiving thread, one chunk for each.
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

    /// Releases what a batch counts for, because it has been sent, or never will be.
    fn release(&self, state: &mut State, batch: &mut Batch) {
        state.requests -= batch.requests;
        state.bytes -= batch.bytes;
        batch.reset();
        if state.waiting {
            self.room.notify_all();
        }
    }

    /// Drops all replies, because nothing can be sent any more.
    fn bury(&self, state: &mut State) {
        state.dead = true;
        let mut queue = std::mem::take(&mut state.queue);
        self.release(state, &mut queue);
        self.room.notify_all();
    }

    /// Sends batch after batch until the queue is empty or the client is gone. Returns the batch that the socket does not accept
    /// now, or that comes after so many. The caller has set `sending`.
    fn pump<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        mut batch: Batch,
        mut turns: u32,
    ) -> Option<Batch> {
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
            turns -= 1;
            if turns == 0 {
                return Some(batch);
            }
        }
    }

    /// The writer thread: sends what the socket did not accept at once.
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
            // The deadline is the batch's, not the wait's: reading a little now and then does not extend it.
            let deadline = *batch.leaves.get_or_insert_with(|| Instant::now() + STALL);
            let waited = MutexGuard::unlocked(&mut state, || outbox::wait(&self.link, deadline));
            if waited == Err(Sent::Blocked) && !state.dead {
                // The client has not read for a while, so neither this data nor what is queued may stay in the shared frames.
                state.queue.leave_frames(|bytes| self.lodge(bytes));
                MutexGuard::unlocked(&mut state, || batch.leave_frames(|bytes| self.lodge(bytes)));
                batch.leaves = None;
                state.leftover = Some(batch);
                continue;
            }
            if waited == Err(Sent::Dead) {
                self.bury(&mut state);
            }
            let left = self.pump(state, batch, u32::MAX);
            state = self.state.lock();
            if left.is_some() {
                state.leftover = left;
            }
        }
    }

    /// Takes memory for data that our client does not take. If that exceeds the limit, the connections that have
    /// kept theirs longest are cut off.
    fn lodge(self: &Arc<Self>, bytes: u64) -> Stay {
        let session = Arc::downgrade(self);
        let cut = move || {
            if let Some(session) = session.upgrade() {
                session.link.cut();
            }
        };
        self.memory.leftovers.take(bytes, Arc::new(cut))
    }

    /// Waits, with a limit, until nothing is in flight and all replies are sent. Then the writer ends.
    pub fn end(&self) {
        let deadline = Instant::now() + LINGER;
        let mut state = self.state.lock();
        while state.requests > 0 {
            state.waiting = true;
            if state.dead {
                // The device still has parts. It answers each of them, and their memory is given back.
                self.room.wait(&mut state);
            } else if self.room.wait_until(&mut state, deadline).timed_out() {
                // Only now: closing makes the writer thread give up, if it waits for the client.
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
        if let Some(left) = self.pump(state, batch, TURNS) {
            self.state.lock().leftover = Some(left);
            self.work.notify_all();
        }
    }
}

/// Copies a part of a read to its place in the whole.
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
