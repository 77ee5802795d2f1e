//! A queue: one thread that takes requests from the kernel and returns their results.
//!
//! At any time each tag belongs either to the kernel (a FETCH or COMMIT_AND_FETCH for it is in the ring) or to us (its request is
//! with the volume, in a lane, or among the outcomes). When the device stops, the kernel aborts its own tags at once, and ours as
//! soon as they are committed. The thread ends with the last one.

use super::commits::Commits;
use super::lanes::{Lane, frames};
use super::node::{Descriptors, Node};
use super::outcomes::Outcomes;
use super::ring::{pause, ring};
use super::uapi;
use super::work::{Edge, Limits, Work, work};
use crate::unaligned::ByteDevice;
use io_uring::{IoUring, opcode, types};
use std::io;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use vellum_core::addr::Lba;
use vellum_device::block::{Op, Replies, Request};

/// Requests in flight of each queue.
pub const DEPTH: u16 = 128;
/// The eventfd's number among completions; the others are tags.
const WAKE: u64 = u64::MAX;
/// Room for every tag and the eventfd at once, so that pushing cannot fail.
const ENTRIES: u32 = 256;

const _: () = assert!((DEPTH as u32) < ENTRIES);

/// The data of a queue's thread.
pub struct Queue {
    /// Its number.
    pub number: u16,
    /// The device's requests.
    pub node: Arc<Node>,
    /// The volume.
    pub bytes: ByteDevice,
    /// The published limits.
    pub limits: Limits,
    /// For reads that would wait.
    pub reads: Lane,
    /// For other requests that would wait.
    pub writes: Lane,
}

/// A running queue.
struct Running {
    queue: Queue,
    commits: Rc<Commits>,
    descriptors: Descriptors,
    outcomes: Arc<Outcomes>,
    /// True if the ring polls the eventfd.
    armed: bool,
    reads: Vec<Request>,
    requests: Vec<Request>,
    ended: Vec<(u16, i32)>,
    /// Tags for which the kernel will still deliver requests.
    live: u16,
}

impl Queue {
    /// Serves until the device is gone. Reports through `ready` when the kernel may start the device, or why not.
    ///
    /// # Errors
    /// If the ring fails. The kernel then ends the device.
    pub fn run(self, ready: mpsc::Sender<io::Result<()>>) -> io::Result<()> {
        match self.begin() {
            Ok(mut running) => {
                let _ = ready.send(Ok(()));
                // Whoever waits for the other queues must notice if one of them panics.
                drop(ready);
                running.serve()
            }
            Err(error) => {
                let _ = ready.send(Err(error));
                Ok(())
            }
        }
    }

    fn begin(self) -> io::Result<Running> {
        // Used only by this thread: the kernel identifies a queue by the thread that fetched first. The flag tells when the kernel has
        // something for it, also if it does not wait.
        let mut how = IoUring::builder();
        how.setup_single_issuer().setup_defer_taskrun();
        let ring = ring(how.setup_taskrun_flag(), ENTRIES)?;
        let commits = Commits::here(self.number, Arc::clone(&self.node), ring);
        let mut running = Running {
            descriptors: Descriptors::map(&self.node, self.number, DEPTH)?,
            outcomes: Arc::new(Outcomes::new(self.number, Arc::clone(&self.node))?),
            queue: self,
            commits,
            armed: false,
            reads: Vec::new(),
            requests: Vec::new(),
            ended: Vec::new(),
            live: DEPTH,
        };
        for tag in 0..DEPTH {
            running.commits.command(uapi::FETCH, tag, -1)?;
        }
        running.arm()?;
        running.commits.submit(0)?;
        // A refused command ends at once. Starting a device with a refused queue would wait forever.
        let ends = running.commits.ends();
        match ends.into_iter().find(|(_, result)| *result < 0) {
            Some((_, errno)) => Err(io::Error::from_raw_os_error(-errno)),
            None => Ok(running),
        }
    }
}

impl Running {
    fn serve(&mut self) -> io::Result<()> {
        while self.live > 0 {
            self.arm()?;
            let wanted = usize::from(self.outcomes.may_sleep());
            let submitted = self.commits.submit(wanted);
            self.outcomes.woke();
            if let Err(error) = submitted {
                pause(error)?;
            }
            self.reap();
            // Reads are a batch of their own: in one with writes or a FLUSH they would wait for everything answered before.
            for batch in [&mut self.reads, &mut self.requests] {
                if !batch.is_empty() {
                    let replies: Arc<dyn Replies> = self.outcomes.clone();
                    self.queue.bytes.submit(batch, &replies);
                }
            }
            self.outcomes.take(&mut self.ended);
            let mut ended = std::mem::take(&mut self.ended);
            for (tag, result) in ended.drain(..) {
                self.commits.command(uapi::COMMIT_AND_FETCH, tag, result)?;
            }
            self.ended = ended;
        }
        Ok(())
    }

    /// Handles what the kernel has delivered.
    fn reap(&mut self) {
        for (tag, result) in self.commits.ends() {
            if tag == WAKE {
                self.armed = false;
                self.outcomes.clear_event();
            } else if result < 0 {
                // Aborted, or the device no longer accepts commands: this tag is finished.
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
            Ok(Some(frames)) => {
                let batch = match reads {
                    true => &mut self.reads,
                    false => &mut self.requests,
                };
                batch.push(Request {
                    tag: u64::from(tag),
                    op,
                    lba: Lba(lba),
                    blocks,
                    frames,
                });
            }
            Ok(None) => lane.put(queue.number, tag, asked, &self.outcomes),
            Err(errno) => self.outcomes.push(tag, -errno),
        }
    }

    /// Polls for outcomes, unless that is already under way.
    fn arm(&mut self) -> io::Result<()> {
        if self.armed {
            return Ok(());
        }
        let entry = opcode::PollAdd::new(types::Fd(self.outcomes.event()), libc::POLLIN as u32)
            .build()
            .user_data(WAKE);
        self.commits.push(&entry.into())?;
        self.armed = true;
        Ok(())
    }
}
