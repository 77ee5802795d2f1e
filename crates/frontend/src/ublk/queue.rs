//! A queue: one thread that takes requests from the kernel and gives their ends back.
//!
//! Each tag is at any time either the kernel's (a FETCH or COMMIT_AND_FETCH of it stands in the ring) or
//! ours (its request is with the volume, in a lane, or among the outcomes). When the device stops, the kernel
//! ends its tags as aborted, and ours as soon as they are committed; with the last one the thread ends.

use super::lanes::{Lane, frames};
use super::node::{Descriptors, Node};
use super::outcomes::Outcomes;
use super::uapi::{self, IoCommand};
use super::work::{Edge, Limits, Work, work};
use crate::unaligned::ByteDevice;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::io;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use vellum_core::addr::Lba;
use vellum_device::block::{Op, Replies, Request};

/// Requests in flight of each queue.
pub const DEPTH: u16 = 128;
/// The eventfd's number among completions; the others are tags.
const WAKE: u64 = u64::MAX;
/// Room for every tag and the eventfd at once, so that pushing cannot fail.
const ENTRIES: u32 = 256;

/// How long to leave alone a kernel that is short of memory.
const SHORTAGE: Duration = Duration::from_millis(1);

const _: () = assert!((DEPTH as u32) < ENTRIES);

type Ring = IoUring<squeue::Entry128, cqueue::Entry>;

/// What a queue's thread needs.
pub struct Queue {
    /// Its number.
    pub number: u16,
    /// The device's requests.
    pub node: Arc<Node>,
    /// The volume.
    pub bytes: ByteDevice,
    /// What was published.
    pub limits: Limits,
    /// For reads that would wait.
    pub reads: Lane,
    /// For all else that would.
    pub writes: Lane,
}

/// A queue that runs.
struct Running {
    queue: Queue,
    ring: Ring,
    descriptors: Descriptors,
    outcomes: Arc<Outcomes>,
    /// Whether the ring polls the eventfd.
    armed: bool,
    requests: Vec<Request>,
    ended: Vec<(u16, i32)>,
    /// Tags that the kernel will still give requests for.
    live: u16,
}

impl Queue {
    /// Serves until the device is gone. Says through `ready` when the kernel may start it, or why not.
    ///
    /// # Errors
    /// When the ring breaks down; the kernel then ends the device.
    pub fn run(self, ready: &mpsc::Sender<io::Result<()>>) -> io::Result<()> {
        match self.begin() {
            Ok(mut running) => {
                let _ = ready.send(Ok(()));
                running.serve()
            }
            Err(error) => {
                let _ = ready.send(Err(error));
                Ok(())
            }
        }
    }

    fn begin(self) -> io::Result<Running> {
        // Of this thread alone: the kernel knows a queue by the thread that fetched first.
        let ring: Ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(ENTRIES)?;
        let mut running = Running {
            descriptors: Descriptors::map(&self.node, self.number, DEPTH)?,
            outcomes: Arc::new(Outcomes::new(self.number, Arc::clone(&self.node))?),
            queue: self,
            ring,
            armed: false,
            requests: Vec::new(),
            ended: Vec::new(),
            live: DEPTH,
        };
        for tag in 0..DEPTH {
            running.command(uapi::FETCH, tag, -1)?;
        }
        running.arm()?;
        running.ring.submit()?;
        // A command that is refused ends at once. The start of a device whose queue was refused would wait for ever.
        let refused = running.ring.completion().find(|e| e.result() < 0);
        match refused {
            Some(end) => Err(io::Error::from_raw_os_error(-end.result())),
            None => Ok(running),
        }
    }
}

impl Running {
    fn serve(&mut self) -> io::Result<()> {
        while self.live > 0 {
            self.arm()?;
            let wanted = usize::from(self.outcomes.may_sleep());
            let submitted = self.ring.submit_and_wait(wanted);
            self.outcomes.woke();
            if let Err(error) = submitted {
                pause(error)?;
            }
            self.reap();
            if !self.requests.is_empty() {
                let replies: Arc<dyn Replies> = self.outcomes.clone();
                self.queue.bytes.submit(&mut self.requests, &replies);
            }
            self.outcomes.take(&mut self.ended);
            let mut ended = std::mem::take(&mut self.ended);
            for (tag, result) in ended.drain(..) {
                self.command(uapi::COMMIT_AND_FETCH, tag, result)?;
            }
            self.ended = ended;
        }
        Ok(())
    }

    /// Takes what the kernel has for us.
    fn reap(&mut self) {
        let ends: Vec<_> = self
            .ring
            .completion()
            .map(|e| (e.user_data(), e.result()))
            .collect();
        for (tag, result) in ends {
            if tag == WAKE {
                self.armed = false;
                self.outcomes.clear_event();
            } else if result < 0 {
                // Aborted, or the device is already past taking commands: no more of this tag.
                self.live -= 1;
            } else {
                self.take(tag as u16);
            }
        }
    }

    fn take(&mut self, tag: u16) {
        let queue = &self.queue;
        let asked = match work(&self.descriptors.get(tag), queue.limits) {
            Ok(asked) => asked,
            Err(errno) => return self.outcomes.push(tag, -errno),
        };
        let reads = matches!(
            asked,
            Work::Blocks { op: Op::Read, .. }
                | Work::Bytes {
                    edge: Edge::Read,
                    ..
                }
        );
        let lane = if reads { &queue.reads } else { &queue.writes };
        let Work::Blocks { op, lba, blocks } = asked else {
            return lane.put(queue.number, tag, asked, &self.outcomes);
        };
        let pool = queue.bytes.device().frames();
        let take = |share, count| {
            Ok(lane
                .is_empty()
                .then(|| pool.try_take(share, count))
                .flatten())
        };
        match frames(&queue.node, queue.number, tag, op, blocks, take) {
            Ok(Some(frames)) => self.requests.push(Request {
                tag: u64::from(tag),
                op,
                lba: Lba(lba),
                blocks,
                frames,
            }),
            Ok(None) => lane.put(queue.number, tag, asked, &self.outcomes),
            Err(errno) => self.outcomes.push(tag, -errno),
        }
    }

    /// Waits for outcomes, unless it does already.
    fn arm(&mut self) -> io::Result<()> {
        if self.armed {
            return Ok(());
        }
        let entry = opcode::PollAdd::new(types::Fd(self.outcomes.event()), libc::POLLIN as u32)
            .build()
            .user_data(WAKE);
        self.push(entry.into())?;
        self.armed = true;
        Ok(())
    }

    fn command(&mut self, code: u32, tag: u16, result: i32) -> io::Result<()> {
        let command = IoCommand::new(self.queue.number, tag, result);
        let entry = opcode::UringCmd80::new(types::Fd(self.queue.node.fd()), code)
            .cmd(command.encode())
            .build()
            .user_data(u64::from(tag));
        self.push(entry)
    }

    fn push(&mut self, entry: squeue::Entry128) -> io::Result<()> {
        // SAFETY: neither a command with user copy nor a poll carries an address.
        unsafe { self.ring.submission().push(&entry) }
            .map_err(|_| io::Error::other("the queue's ring is full"))
    }
}

/// After a submission that failed: returns when it may be tried again. What the kernel did not take still stands in the ring.
///
/// # Errors
/// The same, if it is not one that passes.
fn pause(error: io::Error) -> io::Result<()> {
    match error.raw_os_error() {
        Some(libc::EINTR) => Ok(()),
        // No memory for a request now, or completions to be taken first: no reason to end a device that has a file system on it.
        Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => {
            std::thread::sleep(SHORTAGE);
            Ok(())
        }
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_passes_and_a_broken_ring_does_not() {
        for errno in [libc::EINTR, libc::EAGAIN, libc::EBUSY, libc::ENOMEM] {
            let passed = pause(io::Error::from_raw_os_error(errno));
            assert!(passed.is_ok(), "{passed:?}");
        }
        for errno in [libc::EBADF, libc::EFAULT, libc::EINVAL, libc::ENXIO] {
            let ended = pause(io::Error::from_raw_os_error(errno));
            assert_eq!(ended.unwrap_err().raw_os_error(), Some(errno));
        }
    }
}
