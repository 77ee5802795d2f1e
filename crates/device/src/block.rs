//! The block interface: all that a front end knows of a volume.

use crate::frames::{FramePool, Frames};
use std::sync::Arc;
use vellum_core::addr::Lba;

/// What a client asks, in whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Fill the request's frames.
    Read,
    /// Store the request's frames.
    Write {
        /// Durable before it is acknowledged.
        fua: bool,
    },
    /// Make all that was acknowledged before durable.
    Flush,
    /// The content is not needed any more; it reads as zeros.
    Discard {
        /// Durable before it is acknowledged.
        fua: bool,
    },
    /// Reads as zeros from now on.
    WriteZeroes {
        /// Durable before it is acknowledged.
        fua: bool,
    },
}

/// One request; given back with its frames when it is answered.
#[derive(Debug)]
pub struct Request {
    /// The front end's own number for it.
    pub tag: u64,
    /// What to do.
    pub op: Op,
    /// Where it starts.
    pub lba: Lba,
    /// How many blocks. For reads and writes, as many as frames.
    pub blocks: u64,
    /// The memory of a read (to be filled) or a write (taken by the volume: empty when given back).
    pub frames: Frames,
}

/// Why a request failed; each maps onto an errno.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BlockError {
    /// EINVAL.
    #[error("blocks {lba}+{blocks} end past the volume's {size} blocks")]
    OutOfRange {
        /// First block asked for.
        lba: u64,
        /// How many.
        blocks: u64,
        /// The volume's size in blocks.
        size: u64,
    },
    /// EPERM.
    #[error("the volume is attached read-only")]
    ReadOnly,
    /// ENOSPC.
    #[error("no physical space left: discard something, or migrate to a larger volume")]
    Full,
    /// ENOSPC, too.
    #[error(
        "what the volume is on has no room (a file system that is full, as a rule): free some there, and it goes on by itself"
    )]
    NoRoom,
    /// EIO: checksum, medium, or a poisoned volume; the text says which and where.
    #[error("{0}")]
    Io(String),
    /// EIO; the volume's own copies are told so, and no client.
    #[error("a block cannot be copied by a link")]
    Unlinkable,
    /// ESHUTDOWN.
    #[error("the volume is shutting down")]
    Stopping,
}

/// Where answers go. One for each connection.
pub trait Replies: Send + Sync {
    /// `request` ended. Called on any thread, also from inside `submit`; must not block for long and must
    /// not call back into the device.
    fn complete(&self, request: Request, result: Result<(), BlockError>);
    /// All answers of this batch have been given: send them.
    fn flush(&self);
    /// Whether the thread that submits has nothing else to do until it is answered. What the medium has to do for that may then be
    /// done on that thread: waking others would take as long as a quick drive.
    fn lends_thread(&self) -> bool {
        false
    }
}

/// What an extent of the volume holds, for block status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// How many blocks.
    pub blocks: u64,
    /// Whether they have data on the medium; the others read as zeros.
    pub mapped: bool,
}

/// A volume, as its clients see it.
pub trait BlockDevice: Send + Sync {
    /// Its size.
    fn blocks(&self) -> u64;
    /// Whether writes are refused.
    fn read_only(&self) -> bool;
    /// Held by a front end for as long as a client has it open.
    fn hold(&self) -> Option<Box<dyn std::any::Any + Send + Sync>> {
        None
    }
    /// Memory for requests.
    fn frames(&self) -> &Arc<FramePool>;
    /// Starts requests in order and empties the vector; each is answered through `replies`.
    fn submit(&self, requests: &mut Vec<Request>, replies: &Arc<dyn Replies>);
    /// What is mapped from `lba` on, at least one extent, for at most `blocks` blocks and `max` extents; for fewer blocks where so
    /// many would keep others waiting.
    fn extents(&self, lba: Lba, blocks: u64, max: usize) -> Vec<Extent>;
}
