//! I/O by io_uring.
//!
//! Any thread submits: it puts its operations into the queue under a lock and enters the kernel once for all of them. One
//! thread waits. Operations that do not fit in flight wait in a bounded backlog, which the waiting thread empties as slots
//! become free. A wake-up arrives through an eventfd that the ring polls, so a waiting thread sleeps in one place only,
//! and an idle medium takes no CPU.
//!
//! Invariants:
//! - An operation is in exactly one place: a slot (the kernel may use its memory), the backlog, or done.
//! - A slot has at most one entry in the rings. There are half as many slots as entries in the
//!   submission queue, so pushing cannot fail, and the completion queue cannot overflow.
//! - A slot is freed only by its completion; the ring is closed only when there is none in use.

use crate::io::{Done, Io, Kind, Piece};
use crate::target::{DiscardBy, HOLE, Target};
use crate::threads::Pool;
use crate::transfer::{BYTES_MAX, Next, PIECES_MAX, Progress, window};
use io_uring::register::Restriction;
use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Operations in the kernel at once.
const SLOTS: usize = 256;

/// Entries of the submission queue; the completion queue has twice as many.
const ENTRIES: u32 = 512;

/// The most operations that may wait for a slot. This is far more than any caller's buffers allow; operations beyond it are refused.
const BACKLOG_MAX: usize = 1 << 16;

const _: () = assert!(SLOTS * 2 <= ENTRIES as usize);

/// The eventfd's number among the completions; all others are slots.
const WAKE: u64 = u64::MAX;

/// A ring and what is in flight through it.
pub(crate) struct Uring {
    ring: IoUring,
    target: Arc<Target>,
    state: Mutex<State>,
    waiter: Mutex<Waiter>,
    side: Arc<Side>,
    /// For operations that the ring cannot do: discards of block devices.
    pool: Pool,
}

struct State {
    slots: Vec<Option<Flight>>,
    free: Vec<usize>,
    backlog: VecDeque<Box<Io>>,
}

/// One operation in the kernel.
struct Flight {
    io: Box<Io>,
    progress: Progress,
    /// What is left of its memory, if not all of it.
    part: Vec<Piece>,
}

#[derive(Default)]
struct Waiter {
    armed: bool,
    reaped: Vec<(usize, i32)>,
}

/// Operations that complete outside the ring, and wake-ups.
struct Side {
    event: OwnedFd,
    done: Mutex<Vec<Done>>,
    /// True if the eventfd was written since the waiter last looked.
    signalled: AtomicBool,
    woken: AtomicBool,
}

impl std::fmt::Debug for Uring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uring")
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

impl Uring {
    /// Sets up a ring. Fails if this kernel, or its policy, does not provide a suitable one.
    pub(crate) fn new(target: &Arc<Target>) -> io::Result<Self> {
        let mut how = IoUring::builder();
        let ring: IoUring = how.dontfork().setup_r_disabled().build(ENTRIES)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::Read::CODE,
            opcode::Write::CODE,
            opcode::Readv::CODE,
            opcode::Writev::CODE,
            opcode::Fsync::CODE,
            opcode::Fallocate::CODE,
            opcode::PollAdd::CODE,
        ];
        // Native workers came with 5.12, multi-shot poll with 5.13, tags with the latter.
        let able = ring.params().is_feature_ext_arg()
            && ring.params().is_feature_nodrop()
            && ring.params().is_feature_resource_tagging()
            && needed.iter().all(|&code| probe.is_supported(code));
        if !able {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel's io_uring is too old",
            ));
        }
        // A server's filter of system calls does not see what a ring does. Restrictions are older than the features above.
        ring.submitter()
            .register_restrictions(&mut needed.map(Restriction::sqe_op))?;
        ring.submitter().register_enable_rings()?;
        // SAFETY: a system call; the result is checked, and then ours alone.
        let event = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        let side = Arc::new(Side {
            event,
            done: Mutex::default(),
            signalled: AtomicBool::new(false),
            woken: AtomicBool::new(false),
        });
        let sink = Arc::clone(&side);
        let pool = Pool::new(Arc::clone(target), 1, Box::new(move |done| sink.push(done)));
        Ok(Self {
            ring,
            target: Arc::clone(target),
            state: Mutex::new(State {
                slots: (0..SLOTS).map(|_| None).collect(),
                free: (0..SLOTS).rev().collect(),
                backlog: VecDeque::new(),
            }),
            waiter: Mutex::default(),
            side,
            pool,
        })
    }

    #[expect(
        clippy::vec_box,
        reason = "the Medium's signature: operations change hands by pointer"
    )]
    pub(crate) fn submit(&self, ios: &mut Vec<Box<Io>>) {
        let mut pushed = 0;
        {
            let mut state = self.state.lock();
            for io in ios.drain(..) {
                pushed += self.admit(&mut state, io);
            }
        }
        self.enter(pushed);
    }

    /// Finds a slot for an operation. Returns how many entries it put into the queue.
    fn admit(&self, state: &mut MutexGuard<'_, State>, io: Box<Io>) -> usize {
        let transfers = matches!(io.kind, Kind::Read | Kind::Write { .. });
        let discards = matches!(io.kind, Kind::Discard { .. });
        if let Err(e) = self.target.check(&io) {
            self.side.push(io.done(&self.target.name, Err(e)));
        } else if (transfers && io.is_empty())
            || (discards && (io.blocks() == 0 || self.target.discard == DiscardBy::Nothing))
        {
            self.side.push(io.done(&self.target.name, Ok(())));
        } else if discards && self.target.discard == DiscardBy::Ioctl {
            self.pool.submit(std::iter::once(io));
        } else if let Some(slot) = state.free.pop() {
            let flight = Flight {
                io,
                progress: Progress::default(),
                part: Vec::new(),
            };
            self.push(state.slots[slot].insert(flight), slot);
            return 1;
        } else if state.backlog.len() < BACKLOG_MAX {
            state.backlog.push_back(io);
        } else {
            let e = io::Error::new(io::ErrorKind::ResourceBusy, "too many operations at once");
            self.side.push(io.done(&self.target.name, Err(e)));
        }
        0
    }

    /// Puts the rest of an operation into the submission queue. The caller holds the state's lock.
    fn push(&self, flight: &mut Flight, slot: usize) {
        let entry = flight.entry(&self.target).user_data(slot as u64);
        self.push_entry(&entry);
    }

    fn push_entry(&self, entry: &squeue::Entry) {
        // SAFETY: the state is locked, so no other thread uses the queue. The entry's memory is in a slot (the pieces' vector,
        // the parts' vector, the memory they name), which only its completion frees.
        let pushed = unsafe { self.ring.submission_shared().push(entry) };
        // Holds by the invariant on slots.
        debug_assert!(pushed.is_ok());
    }

    /// Enters the kernel for `count` entries.
    fn enter(&self, mut count: usize) {
        while count > 0 {
            // SAFETY: no argument is passed.
            let result = unsafe {
                self.ring
                    .submitter()
                    .enter::<libc::sigset_t>(count as u32, 0, 0, None)
            };
            match result {
                Ok(taken) if taken >= count => return,
                Ok(_) => {}
                Err(error) => self.pass_over(&error),
            }
            // Another thread may have entered the kernel for our entries, or this thread for another's.
            let _state = self.state.lock();
            // SAFETY: the state is locked.
            count = unsafe { self.ring.submission_shared() }.len();
        }
    }

    pub(crate) fn wait(&self, done: &mut Vec<Done>, timeout: Option<Duration>) {
        let mut waiter = self.waiter.lock();
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        let before = done.len();
        loop {
            // The order matters: reaping takes the completion that announces a wake-up. If a wake-up comes between the two steps, the
            // second step sees it. If it comes after both, it leaves a completion, and the sleep ends at once.
            self.reap(&mut waiter, done);
            let woken = self.side.take(done);
            if woken || done.len() > before {
                return;
            }
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return;
            }
            if !waiter.armed {
                waiter.armed = true;
                let fd = types::Fd(self.side.event.as_raw_fd());
                let poll = opcode::PollAdd::new(fd, libc::POLLIN as u32)
                    .multi(true)
                    .build();
                {
                    let _state = self.state.lock();
                    self.push_entry(&poll.user_data(WAKE));
                }
                self.enter(1);
            }
            self.sleep(left);
        }
    }

    /// Sleeps until there is a completion, or for the time left.
    fn sleep(&self, left: Option<Duration>) {
        let timespec = left.map(types::Timespec::from);
        let mut arguments = types::SubmitArgs::new();
        if let Some(timespec) = &timespec {
            arguments = arguments.timespec(timespec);
        }
        if let Err(error) = self.ring.submitter().submit_with_args(1, &arguments) {
            self.pass_over(&error);
        }
    }

    /// Passes over an error of the kernel after which the same call can be made again.
    fn pass_over(&self, error: &io::Error) {
        match error.raw_os_error() {
            Some(libc::EINTR | libc::ETIME) => {}
            // The kernel is short of memory, or wants completions to be taken first.
            Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => {
                std::thread::sleep(Duration::from_micros(200));
            }
            // A broken ring can neither do I/O nor say which memory it still uses. Ending here loses nothing that was acknowledged.
            _ => panic!("io_uring of {} broke: {error}", self.target.name),
        }
    }

    /// Takes completions, continues unfinished operations, and fills free slots from the backlog.
    fn reap(&self, waiter: &mut Waiter, done: &mut Vec<Done>) {
        // SAFETY: the waiter is locked, so no other thread uses the queue.
        for completion in unsafe { self.ring.completion_shared() } {
            if completion.user_data() != WAKE {
                waiter
                    .reaped
                    .push((completion.user_data() as usize, completion.result()));
            } else if !cqueue::more(completion.flags()) {
                waiter.armed = false;
            }
        }
        if waiter.reaped.is_empty() {
            return;
        }
        let mut pushed = 0;
        {
            let state = &mut self.state.lock();
            for (slot, result) in waiter.reaped.drain(..) {
                let Some(flight) = state.slots.get_mut(slot).and_then(Option::as_mut) else {
                    debug_assert!(false, "a completion of nothing");
                    continue;
                };
                let result = match flight
                    .progress
                    .after(flight.io.kind, flight.io.len(), result)
                {
                    Next::Again => {
                        self.push(flight, slot);
                        pushed += 1;
                        continue;
                    }
                    Next::Finished => Ok(()),
                    Next::Failed(e) => Err(e),
                };
                if let Some(flight) = state.slots[slot].take() {
                    state.free.push(slot);
                    done.push(self.target.ended(flight.io, result));
                }
            }
            while !state.free.is_empty()
                && let Some(io) = state.backlog.pop_front()
            {
                pushed += self.admit(state, io);
            }
        }
        self.enter(pushed);
    }

    pub(crate) fn wake(&self) {
        self.side.woken.store(true, Ordering::SeqCst);
        self.side.signal();
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // The kernel may still write into the memory of operations in flight, so wait until they end.
        self.state.lock().backlog.clear();
        let mut done = Vec::new();
        while self.state.lock().free.len() < SLOTS {
            self.wait(&mut done, None);
            done.clear();
        }
    }
}

impl Flight {
    fn entry(&mut self, target: &Target) -> squeue::Entry {
        let fd = types::Fd(target.fd());
        let offset = self.io.at.byte_offset() + self.progress.bytes as u64;
        match self.io.kind {
            Kind::Sync => opcode::Fsync::new(fd)
                .flags(types::FsyncFlags::DATASYNC)
                .build(),
            Kind::Discard { blocks } => {
                let bytes = vellum_core::addr::Pba(blocks).byte_offset();
                opcode::Fallocate::new(fd, bytes)
                    .offset(offset)
                    .mode(HOLE)
                    .build()
            }
            Kind::Read => match self.memory() {
                [one] => opcode::Read::new(fd, one.ptr, one.len as u32)
                    .offset(offset)
                    .build(),
                all => opcode::Readv::new(fd, all.as_ptr().cast(), all.len() as u32)
                    .offset(offset)
                    .build(),
            },
            Kind::Write { durable } => {
                let flags = if durable { libc::RWF_DSYNC } else { 0 };
                match self.memory() {
                    [one] => opcode::Write::new(fd, one.ptr, one.len as u32)
                        .offset(offset)
                        .rw_flags(flags)
                        .build(),
                    all => opcode::Writev::new(fd, all.as_ptr().cast(), all.len() as u32)
                        .offset(offset)
                        .rw_flags(flags)
                        .build(),
                }
            }
        }
    }

    /// The memory of the next call: at most [`PIECES_MAX`] pieces and [`BYTES_MAX`] bytes.
    fn memory(&mut self) -> &[Piece] {
        let whole = self.progress.bytes == 0
            && self.io.pieces().len() <= PIECES_MAX
            && self.io.len() <= BYTES_MAX;
        if whole {
            return self.io.pieces();
        }
        window(self.io.pieces(), self.progress.bytes, &mut self.part);
        &self.part
    }
}

impl Side {
    fn push(&self, done: Done) {
        self.done.lock().push(done);
        self.signal();
    }

    fn signal(&self) {
        if !self.signalled.swap(true, Ordering::SeqCst) {
            let one = 1u64.to_ne_bytes();
            // SAFETY: a system call on an open descriptor, with memory of that length. It fails only if the counter is full, and
            // then the descriptor is readable anyway.
            unsafe { libc::write(self.event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        }
    }

    /// Takes what completed outside the ring. Returns true if `wake` was called.
    fn take(&self, done: &mut Vec<Done>) -> bool {
        // The order matters: a signal after the swap is seen the next time. The eventfd is never read: the poll reports each write to it,
        // and a read here could swallow a write whose flag is still set.
        self.signalled.swap(false, Ordering::SeqCst);
        let woken = self.woken.swap(false, Ordering::SeqCst);
        done.append(&mut self.done.lock());
        woken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::{Tuning, existing};

    #[test]
    fn a_ring_does_what_a_medium_needs_and_opens_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("medium");
        std::fs::write(&path, vec![0; 1 << 20]).unwrap();
        let target = existing(
            &path,
            None,
            crate::OpenOptions::default(),
            &Tuning::default(),
        );
        let Ok(uring) = Uring::new(&Arc::new(target.unwrap())) else {
            eprintln!("SKIPPED: this kernel has no io_uring");
            return;
        };
        let answer = |entry| {
            uring.push_entry(&entry);
            uring.enter(1);
            uring.ring.submitter().submit_and_wait(1).unwrap();
            // SAFETY: this is the only thread.
            let end = unsafe { uring.ring.completion_shared() }.next();
            end.unwrap().result()
        };
        let here = types::Fd(libc::AT_FDCWD);
        let (passwords, doomed) = (c"/etc/passwd".as_ptr(), c"/no/such/file".as_ptr());
        for refused in [
            opcode::OpenAt::new(here, passwords).build(),
            opcode::UnlinkAt::new(here, doomed).build(),
            opcode::Socket::new(libc::AF_UNIX, libc::SOCK_STREAM, 0).build(),
            opcode::Nop::new().build(),
        ] {
            assert_eq!(answer(refused), -libc::EACCES);
        }
        let fd = types::Fd(uring.target.fd());
        assert_eq!(answer(opcode::Fsync::new(fd).build()), 0);
    }
}
