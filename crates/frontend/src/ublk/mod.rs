//! ublk: a volume as a block device of the kernel, `/dev/ublkbN`, by io_uring.
//!
//! One thread a queue takes requests from the kernel and hands them to the volume. Data is copied directly between the kernel's
//! pages and frames (*user copy*, Linux 6.5). Flush, FUA, discard and write-zeroes arrive as such.
//!
//! - **Life of a device:** it is added, its limits are set, every queue fetches, and it is started. Then it is stopped, its
//!   queues end, and it is deleted. On a stop the kernel first writes what it still has, then the block node disappears.
//! - **A server that dies** takes the block node with it: the kernel answers what is in flight with EIO. A dead character node
//!   stays behind. It carries the volume's [`Mark`], by which [`clear_up`] finds it.
//! - ublk can also keep a dead server's device until a new one takes over (user recovery). We do not use that. What was
//!   acknowledged but not flushed was lost with the volume's write cache, and a mounted file system would continue as if it were
//!   there; its next flush would be a lie. An error and a new mount, with a replay of the journal, are the truth
//!   (docs/decisions/0007-ublk.md).
//! - **Sectors** have 512 bytes, as on a loop device: a partition table counts in sectors, and must be found again however the
//!   volume is attached. Physical blocks are published as 4 KiB, so no client needs to use less.

mod commits;
mod control;
mod error;
mod lanes;
mod node;
mod outcomes;
mod queue;
mod ring;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod uapi;
mod work;

use crate::unaligned::ByteDevice;
use control::Control;
pub use error::UblkError;
use lanes::Lane;
use node::Node;
use queue::{DEPTH, Queue};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use uapi::{DeviceInfo, Params};
use vellum_core::addr::BLOCK_BYTES;
use vellum_device::block::BlockDevice;
use vellum_device::frames::Quota;
use work::{Limits, SECTOR};

/// The most queues; with more processors, several share a queue. A volume's core has only one lock.
const QUEUES_MAX: usize = 4;
/// The longest read or write, unless the volume's memory for blocks is smaller.
const TRANSFER_BLOCKS_MAX: usize = 256;
/// The longest discard or write of zeros; the kernel splits longer ones. Others wait while the core unmaps one.
const ZERO_SECTORS_MAX: u32 = (128 << 20) / SECTOR as u32;

/// Identifies a device as its server's. Marks are chosen so that two volumes do not share one by chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(pub u64);

/// Receives errors that have no caller to return to.
pub type Report = Arc<dyn Fn(&str) + Send + Sync>;

/// A volume as a block device, until dropped.
pub struct UblkServer {
    control: Box<Control>,
    device: u32,
    threads: Vec<JoinHandle<()>>,
    ended: bool,
}

impl UblkServer {
    /// Makes a block device of a volume, and serves it on threads of its own. The volume's other front ends must have clones of
    /// the same [`ByteDevice`]. First removes what a dead server left with the same mark.
    ///
    /// # Errors
    /// If the kernel or the system lacks something. Nothing is then left behind.
    pub fn start(
        bytes: impl Into<ByteDevice>,
        mark: Option<Mark>,
        report: &Report,
    ) -> Result<Self, UblkError> {
        let bytes = bytes.into();
        let device = bytes.device();
        let mut control = Control::open()?;
        if let Some(mark) = mark {
            clear_up_with(&mut control, mark)?;
        }
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let pool = device.frames();
        let transfer_blocks = TRANSFER_BLOCKS_MAX
            .min(pool.capacity(Quota::Read))
            .min(pool.capacity(Quota::Write));
        let limits = Limits {
            bytes: device.blocks() * BLOCK_BYTES as u64,
            transfer_bytes_max: (transfer_blocks * BLOCK_BYTES) as u64,
        };
        let info = control.add(DeviceInfo {
            queues: cpus.clamp(1, QUEUES_MAX) as u16,
            depth: DEPTH,
            io_bytes_max: limits.transfer_bytes_max as u32,
            flags: uapi::F_USER_COPY | uapi::F_CMD_IOCTL_ENCODE,
            mark: mark.map_or(0, |mark| mark.0),
            ..DeviceInfo::default()
        })?;
        let mut server = Self {
            control: Box::new(control),
            device: info.device,
            threads: Vec::new(),
            ended: false,
        };
        // From here on, dropping the server undoes everything.
        let params = params(&**device, limits);
        server.control.set_params(info.device, &params)?;
        server.serve(info.queues, &bytes, limits, report)?;
        server.control.start(info.device)?;
        Ok(server)
    }

    /// Starts the threads, and waits until every queue is ready for the kernel to start.
    fn serve(
        &mut self,
        queues: u16,
        bytes: &ByteDevice,
        limits: Limits,
        report: &Report,
    ) -> Result<(), UblkError> {
        let number = self.device;
        let failed = |source| UblkError::Queue {
            device: number,
            source,
        };
        let node = Arc::new(Node::open(number)?);
        let requests_max = usize::from(queues) * usize::from(DEPTH);
        let mut lane = |name: &str| {
            let (lane, thread) = Lane::start(name, requests_max, Arc::clone(&node), bytes.clone())
                .map_err(failed)?;
            self.threads.push(thread);
            Ok(lane)
        };
        let (reads, writes) = (lane("ublk-reads")?, lane("ublk-writes")?);
        let (ready, readies) = mpsc::channel();
        let mut started = Ok(());
        let mut spawned = 0;
        for queue in 0..queues {
            let queue = Queue {
                number: queue,
                node: Arc::clone(&node),
                bytes: bytes.clone(),
                limits,
                reads: reads.clone(),
                writes: writes.clone(),
            };
            let (ready, report) = (ready.clone(), Arc::clone(report));
            let thread = std::thread::Builder::new()
                .name(format!("ublk-{number}-{}", queue.number))
                .spawn(move || {
                    if let Err(error) = queue.run(ready) {
                        report(&format!("a queue of device {number} ended: {error}"));
                    }
                });
            match thread {
                Ok(thread) => self.threads.push(thread),
                Err(error) => {
                    started = Err(error);
                    break;
                }
            }
            spawned += 1;
        }
        drop(ready);
        // All of them are waited for, even after a failure: the kernel takes requests for commands from a queue that is late for
        // the device's end, and never answers them.
        for _ in 0..spawned {
            // A thread that ends without a message has panicked.
            let is_ready = readies
                .recv()
                .unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()));
            started = started.and(is_ready);
        }
        started.map_err(failed)
    }

    /// The block device.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        block_node(self.device)
    }

    /// Ends it: the kernel writes what it still has, the block device disappears, and programs that have it open get errors.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn stop(mut self) -> Result<(), UblkError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), UblkError> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        // This ends the queues, which end the lanes.
        let stopped = self.control.stop(self.device);
        if stopped.is_ok() {
            for thread in self.threads.drain(..) {
                // A panic was already reported.
                let _ = thread.join();
            }
        }
        self.control.delete(self.device).and(stopped)
    }
}

impl Drop for UblkServer {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Checks whether this machine can serve ublk devices.
///
/// # Errors
/// What it lacks.
pub fn supported() -> Result<(), UblkError> {
    Control::open().map(drop)
}

/// Removes the devices with this mark whose server is dead. A device that is being served stays.
///
/// # Errors
/// If the kernel refuses.
pub fn clear_up(mark: Mark) -> Result<(), UblkError> {
    match Control::open() {
        // Without a driver there are no devices.
        Err(UblkError::NoDriver) => Ok(()),
        Err(error) => Err(error),
        Ok(mut control) => clear_up_with(&mut control, mark),
    }
}

fn clear_up_with(control: &mut Control, mark: Mark) -> Result<(), UblkError> {
    for device in marked(control, mark) {
        if device.state == uapi::STATE_DEAD {
            control.delete(device.device)?;
        }
    }
    Ok(())
}

/// The block devices with this mark, dead or alive.
#[must_use]
pub fn find(mark: Mark) -> Vec<PathBuf> {
    Control::open().map_or_else(
        |_| Vec::new(),
        |mut control| {
            marked(&mut control, mark)
                .iter()
                .map(|info| block_node(info.device))
                .collect()
        },
    )
}

fn marked(control: &mut Control, mark: Mark) -> Vec<DeviceInfo> {
    let nodes = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    nodes
        .filter_map(|node| {
            node.file_name()
                .to_str()?
                .strip_prefix("ublkc")?
                .parse()
                .ok()
        })
        // A device that disappears meanwhile is not ours.
        .filter_map(|number| control.info(number).ok())
        .filter(|info| info.mark == mark.0)
        .collect()
}

fn block_node(device: u32) -> PathBuf {
    Path::new("/dev").join(format!("ublkb{device}"))
}

/// The parameters for the kernel's block layer.
fn params(device: &dyn BlockDevice, limits: Limits) -> Params {
    let mut params = Params {
        len: size_of::<Params>() as u32,
        types: uapi::PARAM_BASIC | uapi::PARAM_DISCARD,
        ..Params::default()
    };
    let block_shift = BLOCK_BYTES.trailing_zeros() as u8;
    let basic = &mut params.basic;
    basic.attributes = uapi::ATTR_VOLATILE_CACHE | uapi::ATTR_FUA;
    if device.read_only() {
        basic.attributes |= uapi::ATTR_READ_ONLY;
    }
    basic.logical_shift = SECTOR.trailing_zeros() as u8;
    basic.physical_shift = block_shift;
    basic.io_min_shift = block_shift;
    // No size is better than a block: mkfs would lay out stripes by it.
    basic.io_opt_shift = block_shift;
    basic.sectors_max = (limits.transfer_bytes_max / SECTOR) as u32;
    basic.sectors = limits.bytes / SECTOR;
    params.discard = uapi::Discard {
        granularity: BLOCK_BYTES as u32,
        discard_sectors_max: ZERO_SECTORS_MAX,
        zeroes_sectors_max: ZERO_SECTORS_MAX,
        segments_max: 1,
        ..uapi::Discard::default()
    };
    params
}
