//! A request that waits for the drive or is open there, and its parts.

use crate::vellum::Submitted;
use crate::workload::Request;

/// A request that the controller has not taken from its submission queue.
pub(super) struct Waiting {
    pub(super) request: Request,
    pub(super) came: u64,
}

/// What a request has in place of a queue if it did not wait in one.
pub(super) const NO_QUEUE: u16 = u16::MAX;

/// A request that is not answered.
pub(super) struct Parent {
    pub(super) came: u64,
    pub(super) read: bool,
    pub(super) tenant: u8,
    /// The submission queue that it is in, or `NO_QUEUE`.
    pub(super) queue: u16,
    pub(super) parts: u32,
}

/// A part of one.
pub(super) struct Part {
    pub(super) parent: u32,
    pub(super) submitted: Option<Submitted>,
    pub(super) blocks: u32,
}

impl Part {
    /// Fills the numbers that belong to services and to the volume's own discards.
    pub(super) const NONE: Self = Self {
        parent: 0,
        submitted: None,
        blocks: 0,
    };
}

/// Puts something into a free place of a table, or adds one. Returns the place.
#[inline]
pub(super) fn place<T>(all: &mut Vec<T>, free: &mut Vec<u32>, new: T) -> u32 {
    match free.pop() {
        Some(index) => {
            all[index as usize] = new;
            index
        }
        None => {
            all.push(new);
            all.len() as u32 - 1
        }
    }
}
