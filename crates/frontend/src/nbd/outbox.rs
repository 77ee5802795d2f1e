//! Replies to be sent: gathered, then sent with few system calls.
//!
//! Reply headers are copied into one buffer; the data of reads stays in its frames and is sent from there. A batch records how
//! much of it was sent, so any thread can continue it.

use super::heap::Own;
use super::leftovers::Stay;
use super::link::{Link, PIECES_MAX};
use std::io::{self, ErrorKind};
use std::time::Instant;
use vellum_core::addr::BLOCK_BYTES;
use vellum_device::frames::Frames;

/// Replies, in sending order.
#[derive(Debug, Default)]
pub struct Batch {
    heads: Vec<u8>,
    parts: Vec<Part>,
    /// The part being sent, how much of it was sent, and how much of the headers.
    part: usize,
    sent: usize,
    heads_sent: usize,
    /// The requests that the replies count as against their connection's limits.
    pub requests: u32,
    /// The payload bytes that they count as.
    pub bytes: u64,
    /// When its data must leave the frames. Set when it first waits for the client.
    pub leaves: Option<Instant>,
    /// Memory that its replies occupy while the client does not take them.
    stay: Option<Stay>,
    /// The part being sent, and how much of it was, when that memory was taken.
    lodged_at: (usize, usize),
}

#[derive(Debug)]
enum Part {
    /// This many bytes of the headers.
    Heads(usize),
    /// Bytes `from..from + length` of the frames.
    Frames {
        frames: Frames,
        from: usize,
        length: usize,
    },
    /// Memory of our own.
    Own(Own),
    /// Sent, and its memory given back.
    Gone,
}

impl Part {
    fn length(&self) -> usize {
        match self {
            Self::Heads(length) | Self::Frames { length, .. } => *length,
            Self::Own(own) => own.bytes.len(),
            Self::Gone => 0,
        }
    }

    /// The bytes that need memory from the leftovers while it is not taken. Borrowed memory needs none.
    fn lodged(&self) -> u64 {
        match self {
            Self::Own(own) if own.is_lent() => 0,
            Self::Heads(_) | Self::Gone => 0,
            Self::Own(_) | Self::Frames { .. } => self.length() as u64,
        }
    }
}

/// The result of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Everything was sent.
    All,
    /// The socket accepts no more for now.
    Blocked,
    /// The client is gone.
    Dead,
}

impl Batch {
    /// True if there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Adds bytes, which are copied.
    pub fn head(&mut self, bytes: &[u8]) {
        self.heads.extend_from_slice(bytes);
        match self.parts.last_mut() {
            Some(Part::Heads(length)) => *length += bytes.len(),
            _ => self.parts.push(Part::Heads(bytes.len())),
        }
    }

    /// Adds bytes in frames, which are given back once they have been sent.
    pub fn frames(&mut self, frames: Frames, from: usize, length: usize) {
        self.parts.push(Part::Frames {
            frames,
            from,
            length,
        });
    }

    /// Adds memory of our own.
    pub fn own(&mut self, own: Own) {
        self.parts.push(Part::Own(own));
    }

    /// Empties it, but keeps its allocations.
    pub fn reset(&mut self) {
        self.heads.clear();
        self.parts.clear();
        (
            self.part,
            self.sent,
            self.heads_sent,
            self.requests,
            self.bytes,
        ) = (0, 0, 0, 0, 0);
        self.leaves = None;
        self.stay = None;
    }

    /// Moves data out of the frames that all share, into memory that `lodge` provides. For a client that reads slowly or not at all.
    ///
    /// A client that has taken nothing since the last time keeps its place: the one that has taken nothing for longest is cut off.
    pub fn leave_frames(&mut self, lodge: impl Fn(u64) -> Stay) {
        let at = (self.part, self.sent);
        let is_new = |part: &Part| matches!(part, Part::Frames { .. });
        if self.stay.is_some() && self.lodged_at == at && !self.parts.iter().any(is_new) {
            return;
        }
        self.lodged_at = at;
        let bytes = self.parts.iter().map(Part::lodged).sum();
        self.stay = None;
        if bytes > 0 {
            self.stay = Some(lodge(bytes));
        }
        for part in &mut self.parts {
            if let Part::Frames {
                frames,
                from,
                length,
            } = part
            {
                let mut own = Vec::with_capacity(*length);
                for (ptr, len) in trimmed(frames, *from, *length) {
                    // SAFETY: a run of frames that this part owns.
                    own.extend_from_slice(unsafe { std::slice::from_raw_parts(ptr, len) });
                }
                *part = Part::Own(Own::new(own, None));
            }
        }
    }

    /// Sends what can be sent without waiting.
    pub fn send(&mut self, link: &Link) -> Sent {
        let mut pieces = Vec::new();
        while self.part < self.parts.len() {
            pieces.clear();
            self.pieces(&mut pieces);
            // SAFETY: the pieces are this batch's headers, frames and memory, which it owns.
            match unsafe { link.send(&pieces) } {
                Ok(count) => self.advance(count),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Sent::Blocked,
                Err(_) => return Sent::Dead,
            }
        }
        match link.flush() {
            Ok(()) => Sent::All,
            Err(e) if e.kind() == ErrorKind::WouldBlock => Sent::Blocked,
            Err(_) => Sent::Dead,
        }
    }

    fn pieces(&self, pieces: &mut Vec<libc::iovec>) {
        let mut skip = self.sent;
        let mut heads = self.heads_sent;
        for part in &self.parts[self.part..] {
            if pieces.len() >= PIECES_MAX {
                return;
            }
            match part {
                Part::Heads(length) => {
                    pieces.push(piece(self.heads[heads..].as_ptr(), length - skip));
                    heads += length - skip;
                }
                Part::Own(own) => {
                    let bytes = &own.bytes[skip..];
                    pieces.push(piece(bytes.as_ptr(), bytes.len()));
                }
                Part::Frames {
                    frames,
                    from,
                    length,
                } => {
                    pieces.extend(
                        trimmed(frames, from + skip, length - skip)
                            .map(|(ptr, len)| piece(ptr, len)),
                    );
                }
                Part::Gone => {}
            }
            skip = 0;
        }
    }

    fn advance(&mut self, mut count: usize) {
        while count > 0 {
            let Some(part) = self.parts.get_mut(self.part) else {
                return;
            };
            let step = count.min(part.length() - self.sent);
            count -= step;
            self.sent += step;
            if matches!(part, Part::Heads(_)) {
                self.heads_sent += step;
            }
            if self.sent < part.length() {
                return;
            }
            // Frames and memory are given back as soon as possible.
            *part = Part::Gone;
            self.part += 1;
            self.sent = 0;
        }
    }
}

fn piece(ptr: *const u8, len: usize) -> libc::iovec {
    libc::iovec {
        iov_base: ptr.cast_mut().cast(),
        iov_len: len,
    }
}

/// The runs of memory for bytes `from..from + length` of some frames.
pub fn trimmed(
    frames: &Frames,
    from: usize,
    length: usize,
) -> impl Iterator<Item = (*mut u8, usize)> + '_ {
    let (mut skip, mut left) = (from, length);
    frames.runs().filter_map(move |(ptr, len)| {
        let skipped = skip.min(len);
        skip -= skipped;
        let take = (len - skipped).min(left);
        left -= take;
        // SAFETY: `skipped` is within the run.
        (take > 0).then(|| (unsafe { ptr.add(skipped) }, take))
    })
}

/// Copies `bytes` into frames, starting at byte `at`.
pub fn fill(frames: &mut Frames, mut at: usize, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let within = at % BLOCK_BYTES;
        let count = bytes.len().min(BLOCK_BYTES - within);
        frames.block_mut(at / BLOCK_BYTES)[within..within + count].copy_from_slice(&bytes[..count]);
        bytes = &bytes[count..];
        at += count;
    }
}

/// Waits until the link accepts more. `Blocked` after the deadline, even if the link would accept more; `Dead` if it never will.
pub fn wait(link: &Link, deadline: Instant) -> Result<(), Sent> {
    match link.wait_writable(deadline) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::TimedOut => Err(Sent::Blocked),
        Err(_) => Err(Sent::Dead),
    }
}

#[cfg(test)]
mod tests {
    use super::super::leftovers::Leftovers;
    use super::*;
    use std::cell::Cell;
    use std::sync::Arc;
    use vellum_device::frames::{FramePool, Quota};

    /// Otherwise the client with the oldest stay would be cut off, not the one that has been silent for longest.
    #[test]
    fn a_client_that_takes_nothing_keeps_its_place_among_the_silent() {
        let pool = FramePool::new(1, 4, 0).unwrap();
        let leftovers = Leftovers::new(1 << 20);
        let lodged = Cell::new(0);
        let lodge = |bytes| {
            lodged.set(lodged.get() + 1);
            leftovers.take(bytes, Arc::new(|| {}))
        };
        let mut batch = Batch::default();
        batch.frames(pool.take(Quota::Read, 2).unwrap(), 0, 2 * BLOCK_BYTES);
        for _ in 0..3 {
            batch.leave_frames(lodge);
        }
        assert_eq!(lodged.get(), 1);
        batch.sent += 1;
        batch.leave_frames(lodge);
        assert_eq!(lodged.get(), 2, "it took something");
        batch.frames(pool.take(Quota::Read, 1).unwrap(), 0, BLOCK_BYTES);
        batch.leave_frames(lodge);
        assert_eq!(
            (lodged.get(), leftovers.bytes()),
            (3, 3 * BLOCK_BYTES as u64)
        );
    }
}
