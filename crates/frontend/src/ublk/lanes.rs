//! Work that would make a queue's thread wait: requests that need memory others still hold, and the edges of unaligned requests.
//!
//! Two threads a device take it over, one for reads and one for writes, because a read must not wait after a write that waits for
//! the medium. While a lane has requests, later ones that need memory go there too; otherwise large requests would starve.

use super::node::Node;
use super::outcomes::{Outcomes, errno};
use super::work::{Edge, Work};
use crate::unaligned::ByteDevice;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use vellum_core::addr::Lba;
use vellum_device::block::{BlockError, Op, Replies, Request};
use vellum_device::frames::{Frames, Quota};

/// A waiting request.
struct Job {
    queue: u16,
    tag: u16,
    work: Work,
    outcomes: Arc<Outcomes>,
}

/// The sending end of a lane.
#[derive(Clone, Debug)]
pub struct Lane {
    jobs: mpsc::SyncSender<Job>,
    standing: Arc<AtomicUsize>,
}

impl Lane {
    /// Starts a lane for at most `requests_max` requests. It ends when its last sending end is dropped.
    pub fn start(
        name: &str,
        requests_max: usize,
        node: Arc<Node>,
        bytes: ByteDevice,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let (jobs, waiting) = mpsc::sync_channel::<Job>(requests_max);
        let standing = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&standing);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                for job in waiting {
                    run(&node, &bytes, job);
                    left.fetch_sub(1, Ordering::Relaxed);
                }
            })?;
        Ok((Self { jobs, standing }, thread))
    }

    /// True if no request is in it.
    pub fn is_empty(&self) -> bool {
        self.standing.load(Ordering::Relaxed) == 0
    }

    /// Appends a request. The lane has room for all tags of all queues, so this does not wait.
    pub fn put(&self, queue: u16, tag: u16, work: Work, outcomes: &Arc<Outcomes>) {
        self.standing.fetch_add(1, Ordering::Relaxed);
        let job = Job {
            queue,
            tag,
            work,
            outcomes: Arc::clone(outcomes),
        };
        if self.jobs.send(job).is_err() {
            self.standing.fetch_sub(1, Ordering::Relaxed);
            outcomes.push(tag, -libc::EIO);
        }
    }
}

fn run(node: &Node, bytes: &ByteDevice, job: Job) {
    let Job {
        queue,
        tag,
        work,
        outcomes,
    } = job;
    match work {
        Work::Blocks { op, lba, blocks } => {
            let pool = bytes.device().frames();
            let take = |quota, count| pool.take(quota, count).map(Some).map_err(|e| errno(&e));
            match frames(node, queue, tag, op, blocks, take) {
                Ok(frames) => {
                    let request = Request {
                        tag: u64::from(tag),
                        op,
                        lba: Lba(lba),
                        blocks,
                        frames: frames.unwrap_or_default(),
                    };
                    let replies: Arc<dyn Replies> = outcomes;
                    bytes.submit(&mut vec![request], &replies);
                }
                Err(error) => {
                    if matches!(op, Op::Write { .. }) {
                        let why = match error {
                            libc::ENOSPC => BlockError::NoRoom,
                            _ => BlockError::Io("there is no memory for it".to_owned()),
                        };
                        bytes.device().refused(Lba(lba), blocks, &why);
                    }
                    end(&outcomes, tag, -error);
                }
            }
        }
        Work::Bytes { edge, offset, len } => {
            let result = on_bytes(node, bytes, queue, tag, edge, offset, len);
            end(&outcomes, tag, result.unwrap_or_else(|error| -error));
        }
    }
}

fn end(outcomes: &Outcomes, tag: u16, result: i32) {
    outcomes.push(tag, result);
    outcomes.wake();
}

/// The memory for a request, filled with the data if it is a write; `None` if `take` has none.
pub fn frames(
    node: &Node,
    queue: u16,
    tag: u16,
    op: Op,
    blocks: u64,
    take: impl FnOnce(Quota, usize) -> Result<Option<Frames>, i32>,
) -> Result<Option<Frames>, i32> {
    let count = blocks as usize;
    match op {
        Op::Read => take(Quota::Read, count),
        Op::Write { .. } => {
            let Some(mut frames) = take(Quota::Write, count)? else {
                return Ok(None);
            };
            node.read_frames(queue, tag, &mut frames)
                .map_err(|e| e.raw_os_error().unwrap_or(libc::EIO))?;
            Ok(Some(frames))
        }
        _ => Ok(Some(Frames::default())),
    }
}

fn on_bytes(
    node: &Node,
    bytes: &ByteDevice,
    queue: u16,
    tag: u16,
    edge: Edge,
    offset: u64,
    len: u64,
) -> Result<i32, i32> {
    let system = |e: io::Error| e.raw_os_error().unwrap_or(libc::EIO);
    let device = |e: BlockError| errno(&e);
    match edge {
        Edge::Zero { discard, fua } => {
            bytes.zero(offset, len, discard, fua).map_err(device)?;
            return Ok(0);
        }
        Edge::Read => {
            let mut data = vec![0; len as usize];
            bytes.read(offset, &mut data).map_err(device)?;
            node.write_bytes(queue, tag, &data).map_err(system)?;
        }
        Edge::Write { fua } => {
            let mut data = vec![0; len as usize];
            node.read_bytes(queue, tag, &mut data).map_err(system)?;
            bytes.write(offset, &data, fua).map_err(device)?;
        }
    }
    Ok(len as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::RamDisk;
    use std::time::{Duration, Instant};
    use vellum_core::addr::BLOCK_BYTES;
    use vellum_device::block::BlockDevice;

    const BLOCK: u64 = BLOCK_BYTES as u64;

    struct World {
        disk: Arc<RamDisk>,
        node: Arc<Node>,
        outcomes: Arc<Outcomes>,
        lane: Lane,
    }

    fn world() -> World {
        let disk = Arc::new(RamDisk::new(64, 8, 8));
        let node = Arc::new(Node::fake());
        let device: Arc<dyn BlockDevice> = disk.clone();
        let bytes = ByteDevice::from(device);
        let (lane, _) = Lane::start("lane", 16, Arc::clone(&node), bytes).unwrap();
        let outcomes = Arc::new(Outcomes::new(0, Arc::clone(&node)).unwrap());
        World {
            disk,
            node,
            outcomes,
            lane,
        }
    }

    impl World {
        fn put(&self, tag: u16, work: Work) {
            self.lane.put(0, tag, work, &self.outcomes);
        }

        fn bytes(&self, tag: u16, edge: Edge, offset: u64, len: u64) -> i32 {
            self.put(tag, Work::Bytes { edge, offset, len });
            self.ends(1)[0].1
        }

        fn ends(&self, count: usize) -> Vec<(u16, i32)> {
            let (began, mut ends) = (Instant::now(), Vec::new());
            while ends.len() < count {
                assert!(began.elapsed() < Duration::from_secs(60), "{ends:?}");
                std::thread::sleep(Duration::from_millis(1));
                self.outcomes.take(&mut ends);
            }
            ends
        }
    }

    #[test]
    fn a_request_waits_for_memory_and_those_behind_it_keep_their_place() {
        let world = world();
        world.node.write_bytes(0, 1, &[7; 2 * BLOCK_BYTES]).unwrap();
        let held = world.disk.frames().take(Quota::Write, 7).unwrap();
        let op = Op::Write { fua: false };
        for (tag, lba) in [(1, 0), (2, 2)] {
            let blocks = 2;
            world.put(tag, Work::Blocks { op, lba, blocks });
        }
        std::thread::sleep(Duration::from_millis(20));
        assert!(!world.lane.is_empty());
        drop(held);
        let bytes = 2 * BLOCK_BYTES as i32;
        assert_eq!(world.ends(2), [(1, bytes), (2, bytes)]);
        let (op, lba, blocks) = (Op::Read, 0, 1);
        world.put(3, Work::Blocks { op, lba, blocks });
        assert_eq!(world.ends(1), [(3, BLOCK_BYTES as i32)]);
        let mut block = [0; BLOCK_BYTES];
        world.node.read_bytes(0, 3, &mut block).unwrap();
        assert_eq!(block, [7; BLOCK_BYTES]);
    }

    #[test]
    fn a_write_without_memory_is_refused_and_the_disk_is_told() {
        let world = world();
        let held = world.disk.without_memory().unwrap();
        let (op, lba, blocks) = (Op::Write { fua: false }, 2, 3);
        world.put(1, Work::Blocks { op, lba, blocks });
        assert_eq!(world.ends(1), [(1, -libc::ENOSPC)]);
        let edge = Edge::Write { fua: false };
        assert_eq!(world.bytes(2, edge, 6 * BLOCK + 512, 512), -libc::ENOSPC);
        assert_eq!(*world.disk.refused.lock(), [(2, 3), (6, 1)]);
        drop(held);
    }

    #[test]
    fn edges_change_what_they_name_and_nothing_else() {
        let world = world();
        world.node.write_bytes(0, 0, &[9; 5120]).unwrap();
        let fua = true;
        assert_eq!(world.bytes(0, Edge::Write { fua }, 512, 5120), 5120);
        let zero = Edge::Zero {
            discard: true,
            fua: false,
        };
        assert_eq!(world.bytes(0, zero, 1024, 512), 0);
        assert_eq!(world.bytes(0, Edge::Read, 0, 2 * BLOCK), 2 * BLOCK as i32);
        let mut read = vec![0; 2 * BLOCK_BYTES];
        world.node.read_bytes(0, 0, &mut read).unwrap();
        let mut wanted = vec![0; 2 * BLOCK_BYTES];
        wanted[512..5632].fill(9);
        wanted[1024..1536].fill(0);
        assert_eq!(read, wanted);
        world.disk.bad.store(1, Ordering::Relaxed);
        assert_eq!(world.bytes(0, Edge::Read, 512, 2 * BLOCK - 512), -libc::EIO);
    }
}
