//! The receiving thread: requests from the socket to the device.
//!
//! One system call takes as much as the staging buffer holds, usually many requests. They are parsed one after another and
//! submitted as one batch. Payloads of small writes are *copied* from staging into frames: copying 4 KiB costs a quarter of a
//! microsecond, while a separate system call would cost several, and the client would wait for it. From [`DIRECT_BYTES`] on the
//! copy costs more than the call, so what staging does not have yet is received into the frames directly.
//!
//! After a batch the thread stays awake for a moment, if the client was quick the last time. A wake-up costs the sending client,
//! and this thread, more than the polling does ([`AWAKE`]).
//!
//! The rule against deadlock: before waiting for anything (bytes, room, frames, an edge), submit the batch. Then everything
//! this thread holds is on its way, except the frames of the part being received. Their data moves to the heap if the client
//! does not send all of it soon.

use super::contexts::Context;
use super::end::End;
use super::outbox::{fill, trimmed};
use super::session::{Failure, Kind, Opening, STALL, Session};
use super::split::Split;
use super::wire::{
    Errno, PAYLOAD_BYTES_MAX, ProtocolError, REQUEST_BYTES, RequestHeader, chunk, command,
    command_flag as flag,
};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_device::block::{BlockError, Op, Replies, Request};
use vellum_device::frames::{Frames, Quota};

/// Bytes received at once.
const STAGING_BYTES: usize = 256 << 10;
/// Writes from this size on are received into frames.
const DIRECT_BYTES: u32 = 32 << 10;
/// Bytes received at once after a large write. The next write is likely to be large too, and whatever part of its payload
/// staging takes must be copied.
const STAGING_BYTES_AFTER_DIRECT: usize = 4 << 10;
/// The most blocks in one part of a request.
const PART_BLOCKS_MAX: usize = 256;
/// How long to poll for more requests before sleeping: about the time a local client takes from a reply to its next request.
const AWAKE: Duration = Duration::from_micros(50);
/// If a client's last bytes took longer than this, the thread sleeps at once: an idle or slow client costs no polling.
const QUICK: Duration = Duration::from_micros(100);
/// The longest refused write whose payload is drained; a longer one ends the connection.
const DRAIN_BYTES_MAX: u32 = 2 * PAYLOAD_BYTES_MAX;
/// Extents in one block-status reply.
const EXTENTS_MAX: usize = 1024;
/// Block bytes as an offset.
const BLOCK: u64 = BLOCK_BYTES as u64;

const _: () = assert!(DIRECT_BYTES as usize + REQUEST_BYTES <= STAGING_BYTES);
const _: () = assert!(DRAIN_BYTES_MAX >= PAYLOAD_BYTES_MAX);

/// Whether parsing continues.
enum Next {
    Parse,
    Receive,
}

/// The thread's state.
pub struct Receiver {
    session: Arc<Session>,
    replies: Arc<dyn Replies>,
    staging: Box<[u8]>,
    /// True if the last write was large.
    direct: bool,
    /// True if the last bytes arrived soon.
    quick: bool,
    /// The start of what was received but not parsed.
    start: usize,
    end: usize,
    batch: Vec<Request>,
}

impl Receiver {
    /// Makes the receiver of a session.
    pub fn new(session: Arc<Session>) -> Self {
        let replies = Arc::clone(&session) as Arc<dyn Replies>;
        let staging = vec![0; STAGING_BYTES].into_boxed_slice();
        Self {
            session,
            replies,
            staging,
            direct: false,
            quick: false,
            start: 0,
            end: 0,
            batch: Vec::with_capacity(64),
        }
    }

    /// Serves requests until the connection ends. Some may then still be in flight.
    pub fn run(&mut self) -> End {
        let end = loop {
            let parsed = self.parse();
            self.submit();
            if let Err(end) = parsed {
                break end;
            }
            match self.receive() {
                Ok(0) if self.start == self.end => break End::Closed,
                Ok(0) => break End::Io(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(e) => break End::Io(e),
            }
        };
        self.submit();
        end
    }

    /// Parses what staging holds.
    fn parse(&mut self) -> Result<(), End> {
        while let Some(header) = self.staging[self.start..self.end].first_chunk::<REQUEST_BYTES>() {
            let header = RequestHeader::decode(header)?;
            if let Next::Receive = self.request(&header)? {
                break;
            }
        }
        Ok(())
    }

    /// Receives more bytes into staging.
    fn receive(&mut self) -> io::Result<usize> {
        self.staging.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let most = if self.direct {
            self.end + STAGING_BYTES_AFTER_DIRECT
        } else {
            STAGING_BYTES
        };
        let free = &mut self.staging[self.end..most.min(STAGING_BYTES)];
        let mut piece = [libc::iovec {
            iov_base: free.as_mut_ptr().cast(),
            iov_len: free.len(),
        }];
        let began = Instant::now();
        let link = &self.session.link;
        // SAFETY: the piece is the free part of staging.
        let got = unsafe {
            match self.quick {
                true => link.receive_awake(&mut piece, AWAKE),
                false => link.receive(&mut piece, None),
            }
        }?;
        // After polling in vain, sleep next time. After a sleep, allow more time, because the wake-up took part of it.
        self.quick = began.elapsed() < if self.quick { AWAKE } else { QUICK };
        self.end += got;
        Ok(got)
    }

    /// Hands the batch to the device, and immediate answers to the client.
    fn submit(&mut self) {
        if !self.batch.is_empty() {
            self.session
                .export
                .changes()
                .submit(&mut self.batch, &self.replies);
            self.batch.clear();
        }
        self.replies.flush();
    }

    fn request(&mut self, header: &RequestHeader) -> Result<Next, End> {
        if header.command == command::DISC {
            return Err(End::Closed);
        }
        let refused = self.refuse(header);
        let writes = header.command == command::WRITE;
        if writes && header.length > DRAIN_BYTES_MAX {
            return Err(ProtocolError::PayloadLength {
                length: header.length,
                max: DRAIN_BYTES_MAX,
            }
            .into());
        }
        let small = writes && header.length < DIRECT_BYTES;
        if small && self.end - self.start < REQUEST_BYTES + header.length as usize {
            return Ok(Next::Receive);
        }
        self.start += REQUEST_BYTES;
        if header.length > 0 {
            self.direct = writes && !small;
        }
        let kind = if header.command == command::READ {
            Kind::Read
        } else {
            Kind::Plain
        };
        let (offset, length) = (header.offset, header.length);
        let cost = self.cost(header);
        if let Some(failure) = refused {
            let slot = self.open(Opening {
                cookie: header.cookie,
                kind: Kind::Plain,
                offset,
                length,
                cost: 0,
            })?;
            let drained = if writes {
                self.drain(length as usize)
            } else {
                Ok(())
            };
            self.session.end_part(slot, Err(failure));
            return drained.map(|()| Next::Parse);
        }
        let fua = header.flags & flag::FUA != 0;
        let slot = self.open(Opening {
            cookie: header.cookie,
            kind,
            offset,
            length,
            cost,
        })?;
        let done = match header.command {
            command::BLOCK_STATUS => {
                self.block_status(slot, offset, length, header.flags & flag::REQ_ONE != 0);
                return Ok(Next::Parse);
            }
            command::WRITE => self.write(slot, offset, length, fua),
            _ => {
                self.without_payload(header.command, slot, offset, length, fua);
                Ok(())
            }
        };
        // Also if the client vanished inside the payload: the slot must end with its parts.
        self.session.end_part(slot, Ok(()));
        done.map(|()| Next::Parse)
    }

    /// The bytes that a request, or its answer, may occupy while in flight. A discard's length costs nothing.
    fn cost(&self, header: &RequestHeader) -> u32 {
        match header.command {
            command::READ | command::WRITE => header.length,
            command::BLOCK_STATUS => {
                let runs = (header.length / BLOCK_BYTES as u32 + 2).min(EXTENTS_MAX as u32);
                self.session.agreed.contexts.len() as u32 * runs * size_of::<(u32, u32)>() as u32
            }
            _ => 0,
        }
    }

    fn without_payload(&mut self, command: u16, slot: u32, offset: u64, length: u32, fua: bool) {
        match command {
            command::READ => self.read(slot, offset, length),
            command::FLUSH => self.part(slot, Op::Flush, Lba(0), 0, Frames::default()),
            command::TRIM => self.trim(slot, offset, length, fua),
            command::WRITE_ZEROES => self.write_zeroes(slot, offset, length, fua),
            // CACHE is advice, and the client's own kernel cache is nearer than any of ours.
            _ => {}
        }
    }

    /// Why a request cannot be served, if it cannot. The error numbers are the specification's.
    fn refuse(&self, header: &RequestHeader) -> Option<Failure> {
        let export = &self.session.export;
        if self.session.stopping.load(Ordering::Acquire) {
            return Some(Failure::new(Errno::Shutdown, "the server is shutting down"));
        }
        let (allowed, changes) = match header.command {
            command::READ => (flag::DF, false),
            command::WRITE | command::TRIM => (flag::FUA, true),
            command::FLUSH | command::CACHE => (0, false),
            command::WRITE_ZEROES => (flag::FUA | flag::NO_HOLE | flag::FAST_ZERO, true),
            command::BLOCK_STATUS if !self.session.agreed.contexts.is_empty() => {
                (flag::REQ_ONE, false)
            }
            command::BLOCK_STATUS => {
                return Some(Failure::new(Errno::Inval, "no meta context was negotiated"));
            }
            _ => return Some(Failure::new(Errno::Inval, "unknown command")),
        };
        // FUA is tolerated where it means nothing, as the specification requires.
        if header.flags & !(allowed | flag::FUA) != 0
            || (header.flags & flag::DF != 0 && !self.session.agreed.structured)
        {
            return Some(Failure::new(Errno::Inval, "unknown command flags"));
        }
        if changes && export.read_only() {
            return Some(Failure::new(Errno::Perm, "the export is read-only"));
        }
        if header.command == command::FLUSH {
            let zero = header.offset == 0 && header.length == 0;
            return (!zero)
                .then(|| Failure::new(Errno::Inval, "a flush has neither offset nor length"));
        }
        if matches!(header.command, command::READ | command::WRITE)
            && header.length > PAYLOAD_BYTES_MAX
        {
            let errno = if header.command == command::READ {
                Errno::Overflow
            } else {
                Errno::Inval
            };
            return Some(Failure::new(errno, "longer than the maximum payload"));
        }
        let end = header.offset.checked_add(u64::from(header.length));
        if end.is_none_or(|end| end > export.bytes()) {
            let writes = matches!(header.command, command::WRITE | command::WRITE_ZEROES);
            let words = format!("ends past the export's {} bytes", export.bytes());
            return Some(Failure {
                errno: if writes { Errno::NoSpc } else { Errno::Inval },
                words,
            });
        }
        if header.flags & flag::FAST_ZERO != 0 {
            let split = Split::of(header.offset, u64::from(header.length));
            let words = "zeros in part of a 4096-byte block are no faster than a write";
            return (split.head + split.tail > 0).then(|| Failure::new(Errno::NotSup, words));
        }
        let empty = header.command == command::BLOCK_STATUS && header.length == 0;
        empty.then(|| Failure::new(Errno::Inval, "block status of nothing"))
    }

    /// Opens a slot with one part, which stands for this thread's own use. Waits for room.
    fn open(&mut self, opening: Opening) -> Result<u32, End> {
        loop {
            if let Some(slot) = self.session.try_open(opening)? {
                return Ok(slot);
            }
            self.submit();
            self.session.wait_for_room(opening.cost);
        }
    }

    /// Adds a part to the batch.
    fn part(&mut self, slot: u32, op: Op, lba: Lba, blocks: u64, frames: Frames) {
        self.session.add_part(slot);
        self.batch.push(Request {
            tag: u64::from(slot),
            op,
            lba,
            blocks,
            frames,
        });
    }

    fn take(&mut self, quota: Quota, blocks: usize) -> Result<Frames, BlockError> {
        let pool = Arc::clone(self.session.export.device().frames());
        if let Some(frames) = pool.try_take(quota, blocks) {
            return Ok(frames);
        }
        self.submit();
        pool.take(quota, blocks)
    }

    /// The largest part: at most a quarter of the quota, so that several are in flight.
    fn part_blocks(&self, quota: Quota) -> usize {
        (self.session.export.device().frames().capacity(quota) / 4).clamp(1, PART_BLOCKS_MAX)
    }

    fn read(&mut self, slot: u32, offset: u64, length: u32) {
        if length == 0 {
            return;
        }
        let mut lba = offset / BLOCK;
        let end = (offset + u64::from(length)).div_ceil(BLOCK);
        let most = self.part_blocks(Quota::Read) as u64;
        if end - lba > most {
            self.submit();
            if let Err(refused) = self.session.assemble(slot, length) {
                return self.refuse_part(slot, refused);
            }
        }
        while lba < end {
            let blocks = most.min(end - lba);
            match self.take(Quota::Read, blocks as usize) {
                Ok(frames) => self.part(slot, Op::Read, Lba(lba), blocks, frames),
                Err(refused) => return self.refuse_part(slot, refused),
            }
            lba += blocks;
        }
    }

    fn write(&mut self, slot: u32, offset: u64, length: u32, fua: bool) -> Result<(), End> {
        let split = Split::of(offset, u64::from(length));
        let mut lba = offset.div_ceil(BLOCK);
        if split.head > 0 {
            self.write_part(slot, offset, split.head, fua)?;
        }
        let mut left = split.blocks;
        let most = self.part_blocks(Quota::Write) as u64;
        while left > 0 {
            let blocks = most.min(left);
            match self.payload(blocks as usize)? {
                Ok(frames) => self.part(slot, Op::Write { fua }, Lba(lba), blocks, frames),
                Err(refused) => {
                    let device = self.session.export.device();
                    device.refused(Lba(lba), blocks, &refused);
                    self.refuse_part(slot, refused);
                }
            }
            lba += blocks;
            left -= blocks;
        }
        if split.tail > 0 {
            self.write_part(slot, lba * BLOCK, split.tail, fua)?;
        }
        Ok(())
    }

    /// Writes a part of a block from the stream.
    fn write_part(&mut self, slot: u32, offset: u64, length: usize, fua: bool) -> Result<(), End> {
        let mut bytes = [0; BLOCK_BYTES];
        self.read_exact(&mut bytes[..length])?;
        self.change_part(slot, offset, &bytes[..length], fua);
        Ok(())
    }

    fn change_part(&mut self, slot: u32, offset: u64, bytes: &[u8], fua: bool) {
        self.submit();
        let done = self.session.export.changes().write(offset, bytes, fua);
        self.session.add_part(slot);
        self.session.end_part(slot, done.map_err(Failure::from));
    }

    /// Fails a part for which there is no memory.
    fn refuse_part(&self, slot: u32, refused: impl Into<Failure>) {
        self.session.add_part(slot);
        self.session.end_part(slot, Err(refused.into()));
    }

    /// A discard is advice: a block that is only partly discarded keeps its contents.
    fn trim(&mut self, slot: u32, offset: u64, length: u32, fua: bool) {
        let blocks = Split::of(offset, u64::from(length)).blocks;
        if blocks > 0 {
            let lba = Lba(offset.div_ceil(BLOCK));
            self.part(slot, Op::Discard { fua }, lba, blocks, Frames::default());
        }
    }

    /// NO_HOLE changes nothing: a log always writes elsewhere, so zeros cannot reserve space for later.
    fn write_zeroes(&mut self, slot: u32, offset: u64, length: u32, fua: bool) {
        let split = Split::of(offset, u64::from(length));
        let lba = offset.div_ceil(BLOCK);
        if split.head > 0 {
            self.change_part(slot, offset, &[0; BLOCK_BYTES][..split.head], fua);
        }
        if split.blocks > 0 {
            self.part(
                slot,
                Op::WriteZeroes { fua },
                Lba(lba),
                split.blocks,
                Frames::default(),
            );
        }
        if split.tail > 0 {
            self.change_part(
                slot,
                (lba + split.blocks) * BLOCK,
                &[0; BLOCK_BYTES][..split.tail],
                fua,
            );
        }
    }

    fn block_status(&mut self, slot: u32, offset: u64, length: u32, one: bool) {
        let stop = offset + u64::from(length);
        let contexts = &self.session.agreed.contexts;
        let bodies = (1u32..).zip(contexts).map(|(id, context)| {
            let mut body = id.to_be_bytes().to_vec();
            for (bytes, state) in self.states(context, offset, stop, one) {
                body.extend_from_slice(&bytes.to_be_bytes());
                body.extend_from_slice(&state.to_be_bytes());
            }
            body
        });
        let bodies: Vec<_> = bodies.collect();
        self.session.end_with(slot, chunk::BLOCK_STATUS, &bodies);
    }

    /// Runs of bytes from `at` to `stop` and their states, as many as fit in an answer.
    fn states(&self, context: &Context, at: u64, stop: u64, one: bool) -> Vec<(u32, u32)> {
        let (mut at, mut edge) = (at, at / BLOCK);
        let mut runs: Vec<(u32, u32)> = Vec::new();
        let most = if one { 1 } else { EXTENTS_MAX };
        let end = Lba(stop.div_ceil(BLOCK));
        for (blocks, state) in context.runs(&self.session.export, Lba(edge), end) {
            edge += blocks;
            let until = (edge * BLOCK).min(stop);
            let bytes = (until - at) as u32;
            at = until;
            let full = runs.len() == most;
            match runs.last_mut() {
                Some((length, last)) if *last == state => *length += bytes,
                _ if full => break,
                _ => runs.push((bytes, state)),
            }
        }
        runs
    }

    /// Frames filled from the stream. If there are no frames to be had, the payload is skipped.
    fn payload(&mut self, blocks: usize) -> Result<Result<Frames, BlockError>, End> {
        let length = blocks * BLOCK_BYTES;
        let mut frames = match self.take(Quota::Write, blocks) {
            Ok(frames) => frames,
            Err(refused) => return self.drain(length).map(|()| Err(refused)),
        };
        let staged = length.min(self.end - self.start);
        fill(
            &mut frames,
            0,
            &self.staging[self.start..self.start + staged],
        );
        self.start += staged;
        let mut filled = staged;
        if filled == length {
            return Ok(Ok(frames));
        }
        self.submit();
        (self.start, self.end) = (0, 0);
        // One deadline for all of it: a client that sends a byte now and then holds the frames no longer than one that stalls.
        let deadline = Instant::now() + STALL;
        while filled < length {
            let mut pieces: Vec<_> = trimmed(&frames, filled, length - filled)
                .map(|(ptr, len)| libc::iovec {
                    iov_base: ptr.cast(),
                    iov_len: len,
                })
                .collect();
            // The next request follows the payload, so take its bytes with the same call.
            let staging = &mut self.staging[..STAGING_BYTES_AFTER_DIRECT];
            pieces.push(libc::iovec {
                iov_base: staging.as_mut_ptr().cast(),
                iov_len: staging.len(),
            });
            // SAFETY: frames that we own and staging, which holds nothing.
            match unsafe { self.session.link.receive(&mut pieces, Some(deadline)) } {
                Ok(0) => return Err(End::Io(ErrorKind::UnexpectedEof.into())),
                Ok(got) => {
                    let mine = got.min(length - filled);
                    filled += mine;
                    self.end = got - mine;
                }
                Err(e) if e.kind() == ErrorKind::TimedOut => {
                    return self.payload_of_a_slow_client(frames, filled);
                }
                Err(e) => return Err(End::Io(e)),
            }
        }
        Ok(Ok(frames))
    }

    /// Handles a client that is slow to send a payload: its frames serve others until it has sent the rest.
    fn payload_of_a_slow_client(
        &mut self,
        frames: Frames,
        filled: usize,
    ) -> Result<Result<Frames, BlockError>, End> {
        let blocks = frames.len();
        let mut own = Vec::with_capacity(blocks * BLOCK_BYTES);
        for index in 0..blocks {
            own.extend_from_slice(frames.block(index));
        }
        drop(frames);
        self.read_exact(&mut own[filled..])?;
        Ok(self.take(Quota::Write, blocks).map(|mut frames| {
            fill(&mut frames, 0, &own);
            frames
        }))
    }

    /// Waits until some bytes of the stream are there. Returns how many, at most `wanted`.
    fn arrived(&mut self, wanted: usize) -> Result<usize, End> {
        if self.start == self.end {
            self.submit();
            if self.receive()? == 0 {
                return Err(End::Io(ErrorKind::UnexpectedEof.into()));
            }
        }
        Ok(wanted.min(self.end - self.start))
    }

    /// Waits for bytes of the stream.
    fn read_exact(&mut self, mut out: &mut [u8]) -> Result<(), End> {
        while !out.is_empty() {
            let count = self.arrived(out.len())?;
            let (now, later) = out.split_at_mut(count);
            now.copy_from_slice(&self.staging[self.start..self.start + count]);
            self.start += count;
            out = later;
        }
        Ok(())
    }

    /// Skips bytes of the stream.
    fn drain(&mut self, mut length: usize) -> Result<(), End> {
        while length > 0 {
            let count = self.arrived(length)?;
            self.start += count;
            length -= count;
        }
        Ok(())
    }
}
