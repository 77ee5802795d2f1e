//! The results of requests, on their way to a queue's thread.
//!
//! A volume answers on any thread, but the kernel accepts the end of a tag only from its queue's thread. So results are collected
//! here, and an eventfd wakes that thread if it sleeps.

use super::commits::Commits;
use super::node::Node;
use parking_lot::Mutex;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vellum_core::addr::BLOCK_BYTES;
use vellum_device::block::{BlockError, Op, Replies, Request};

/// The results of one queue's requests.
#[derive(Debug)]
pub struct Outcomes {
    queue: u16,
    node: Arc<Node>,
    ended: Mutex<Vec<(u16, i32)>>,
    event: OwnedFd,
    /// True if the queue's thread will check before it sleeps, or has been woken.
    awake: AtomicBool,
}

impl Outcomes {
    /// A collection without results.
    pub fn new(queue: u16, node: Arc<Node>) -> io::Result<Self> {
        // SAFETY: no preconditions.
        let event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if event < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            queue,
            node,
            ended: Mutex::new(Vec::new()),
            // SAFETY: just made, and owned by nothing else.
            event: unsafe { OwnedFd::from_raw_fd(event) },
            awake: AtomicBool::new(true),
        })
    }

    /// What the queue's thread polls while it sleeps.
    pub fn event(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Clears the wake-up.
    pub fn clear_event(&self) {
        let mut count = 0_u64;
        // SAFETY: eight bytes of ours. With nothing to read it returns at once.
        unsafe { libc::read(self.event.as_raw_fd(), (&raw mut count).cast(), 8) };
    }

    /// Adds a tag's result. [`Self::wake`] reports it later, together with others.
    pub fn push(&self, tag: u16, result: i32) {
        self.ended.lock().push((tag, result));
    }

    /// Wakes the queue's thread if it sleeps.
    pub fn wake(&self) {
        if !self.awake.swap(true, Ordering::AcqRel) {
            let one = 1_u64;
            // SAFETY: eight bytes of ours. It fails only when the counter is full, and then it wakes.
            unsafe { libc::write(self.event.as_raw_fd(), (&raw const one).cast(), 8) };
        }
    }

    /// True if the queue's thread may sleep. Called just before it does.
    pub fn may_sleep(&self) -> bool {
        self.awake.store(false, Ordering::SeqCst);
        // A thread that pushed before this checks `awake` afterwards, and wakes us.
        let empty = self.ended.lock().is_empty();
        if !empty {
            self.awake.store(true, Ordering::SeqCst);
        }
        empty
    }

    /// Notes that the queue's thread is awake.
    pub fn woke(&self) {
        self.awake.store(true, Ordering::SeqCst);
    }

    /// Takes the results so far.
    pub fn take(&self, into: &mut Vec<(u16, i32)>) {
        into.append(&mut self.ended.lock());
    }
}

impl Replies for Outcomes {
    fn complete(&self, request: Request, result: Result<(), BlockError>) {
        let tag = request.tag as u16;
        let bytes = (request.blocks as usize * BLOCK_BYTES) as i32;
        let result = match (result, request.op) {
            (Err(error), _) => -errno(&error),
            (Ok(()), Op::Read) => match self.node.write_frames(self.queue, tag, &request.frames) {
                Ok(()) => bytes,
                Err(e) => -e.raw_os_error().unwrap_or(libc::EIO),
            },
            (Ok(()), Op::Write { .. }) => bytes,
            (Ok(()), _) => 0,
        };
        self.push(tag, result);
    }

    /// The volume goes on after this with what the answered requests need not wait for: it encodes what was written.
    fn flush(&self) {
        Commits::at_once(self.queue, &self.node, &self.ended);
        self.wake();
    }
}

/// The errno for a failure. The kernel's block layer knows these.
pub fn errno(error: &BlockError) -> i32 {
    match error {
        BlockError::OutOfRange { .. } => libc::EINVAL,
        BlockError::ReadOnly => libc::EPERM,
        BlockError::Full | BlockError::NoRoom => libc::ENOSPC,
        BlockError::Io(_) | BlockError::Unlinkable | BlockError::Stopping => libc::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::super::ring::ring;
    use super::*;

    fn polled(outcomes: &Outcomes) -> bool {
        let mut poll = libc::pollfd {
            fd: outcomes.event(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one descriptor, ours.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }

    #[test]
    fn only_a_sleeper_is_woken_and_once() {
        let outcomes = Outcomes::new(0, Arc::new(Node::fake())).unwrap();
        outcomes.push(1, 0);
        outcomes.wake();
        assert!(!polled(&outcomes), "nobody sleeps");
        assert!(!outcomes.may_sleep(), "there is something to take");
        let mut ends = Vec::new();
        outcomes.take(&mut ends);
        assert_eq!(ends, [(1, 0)]);
        assert!(outcomes.may_sleep());
        outcomes.push(2, -5);
        outcomes.wake();
        assert!(polled(&outcomes));
        outcomes.clear_event();
        outcomes.wake();
        assert!(!polled(&outcomes), "it is awake already");
    }

    #[test]
    fn an_answer_on_its_queues_thread_is_returned_before_the_thread_goes_on() {
        let node = Arc::new(Node::fake());
        let Ok(ring) = ring(&mut io_uring::IoUring::builder(), 4) else {
            eprintln!("SKIPPED: this kernel has no such rings");
            return;
        };
        let commits = Commits::here(0, Arc::clone(&node), ring);
        let outcomes = Outcomes::new(0, Arc::clone(&node)).unwrap();
        let other = Outcomes::new(1, node).unwrap();
        for outcomes in [&outcomes, &other] {
            outcomes.push(3, 4096);
            outcomes.flush();
        }
        // A file takes no commands of ublk: the kernel has seen the one.
        assert_eq!(commits.ends(), [(3, -libc::EOPNOTSUPP)]);
        let mut left = Vec::new();
        outcomes.take(&mut left);
        assert_eq!(left, []);
        other.take(&mut left);
        assert_eq!(left, [(3, 4096)]);
    }

    #[test]
    fn the_kernel_gets_an_errno_that_it_knows() {
        let full = errno(&BlockError::Full);
        assert_eq!(full, libc::ENOSPC);
        assert_eq!(errno(&BlockError::Io(String::new())), libc::EIO);
        assert_eq!(errno(&BlockError::Stopping), libc::EIO);
    }
}
