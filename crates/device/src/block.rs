//! The block interface: everything a front end knows about a volume.

pub use crate::error::BlockError;
use crate::frames::{FramePool, Frames};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use vellum_core::addr::Lba;

/// What a client requests, in whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Fill the request's frames.
    Read,
    /// Store the request's frames.
    Write {
        /// Durable before it is acknowledged.
        fua: bool,
    },
    /// Make everything that was acknowledged before durable.
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

impl Op {
    /// True if its answer says that it is durable.
    pub fn is_fua(self) -> bool {
        match self {
            Self::Write { fua } | Self::Discard { fua } | Self::WriteZeroes { fua } => fua,
            Self::Read | Self::Flush => false,
        }
    }
}

/// One request; returned with its frames when it is answered.
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

impl Request {
    /// A request that needs no number.
    #[must_use]
    pub fn new(op: Op, lba: Lba, blocks: u64, frames: Frames) -> Self {
        Self {
            tag: 0,
            op,
            lba,
            blocks,
            frames,
        }
    }
}

/// Receives answers. One for each connection.
pub trait Replies: Send + Sync {
    /// Takes the answer to `request`. Called on any thread, also from inside `submit`; must not block for long and must not call
    /// back into the device.
    fn complete(&self, request: Request, result: Result<(), BlockError>);
    /// Sends the answers. Called when all answers of a batch have been given.
    fn flush(&self);
    /// True if the submitting thread has nothing else to do until it is answered. That thread may then do the medium's work: waking
    /// another one would take as long as a quick drive does.
    fn lends_thread(&self) -> bool {
        false
    }
}

#[derive(Default)]
struct OneAnswer {
    answer: Mutex<Option<(Request, Result<(), BlockError>)>>,
    came: Condvar,
}

impl Replies for OneAnswer {
    fn complete(&self, request: Request, result: Result<(), BlockError>) {
        *self.answer.lock() = Some((request, result));
        self.came.notify_one();
    }

    fn flush(&self) {}
}

/// Has `start` begin one request, and waits for its answer. It arrives even when the volume breaks down: then all outstanding requests
/// are answered.
///
/// # Errors
/// The error that it is answered with.
pub fn answer_to(start: impl FnOnce(&Arc<dyn Replies>)) -> Result<Request, BlockError> {
    let one = Arc::new(OneAnswer::default());
    start(&(one.clone() as _));
    let mut answer = one.answer.lock();
    loop {
        match answer.take() {
            Some((request, result)) => return result.map(|()| request),
            None => one.came.wait(&mut answer),
        }
    }
}

/// An extent of the volume, for block status.
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
    /// True if writes are refused.
    fn read_only(&self) -> bool;
    /// A front end keeps this for as long as a client has the volume open.
    fn hold(&self) -> Option<Box<dyn std::any::Any + Send + Sync>> {
        None
    }
    /// Memory for requests.
    fn frames(&self) -> &Arc<FramePool>;
    /// Starts requests in order and empties the vector; each is answered through `replies`.
    fn submit(&self, requests: &mut Vec<Request>, replies: &Arc<dyn Replies>);
    /// Notes that a write of these blocks is refused and never submitted: there is no [memory](Self::frames) for it, or the rest of a block
    /// that it changes could not be read. `why`: the error that its client gets.
    fn refused(&self, lba: Lba, blocks: u64, why: &BlockError) {
        let _ = (lba, blocks, why);
    }
    /// Reports what is mapped from `lba` on: at least one extent, at most `blocks` blocks and `max` extents. Covers fewer blocks
    /// where looking at all of them would keep other requests waiting.
    fn extents(&self, lba: Lba, blocks: u64, max: usize) -> Vec<Extent>;
}
