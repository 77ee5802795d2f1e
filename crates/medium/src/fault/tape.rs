//! All operations requested of a medium, in order, and when each ended.
//!
//! This is enough to derive what a power cut at any instant may leave: it shows which operations were in flight then, and which ones a
//! sync had covered.

use std::ops::Range;
use vellum_core::addr::{BLOCK_BYTES, Pba};

/// A requested operation. Reads change nothing, and are not recorded.
#[derive(Debug)]
pub enum Asked {
    /// Put bytes on the medium.
    Write {
        /// Where the bytes begin.
        at: Pba,
        /// Whole blocks.
        bytes: Box<[u8]>,
        /// On stable storage when it ends.
        durable: bool,
    },
    /// Make durable what had ended before.
    Sync,
    /// The contents of the blocks are no longer needed.
    Discard {
        /// The first block.
        at: Pba,
        /// How many.
        blocks: u64,
    },
}

impl Asked {
    /// The blocks that it changes.
    #[must_use]
    pub fn blocks(&self) -> Range<u64> {
        let (at, blocks) = match self {
            Self::Write { at, bytes, .. } => (at.0, (bytes.len() / BLOCK_BYTES) as u64),
            Self::Discard { at, blocks } => (at.0, *blocks),
            Self::Sync => (0, 0),
        };
        at..at + blocks
    }
}

/// One instant of a tape.
#[derive(Debug)]
pub enum Event {
    /// An operation was requested.
    Issued(Asked),
    /// An operation requested at an earlier instant has ended.
    Ended {
        /// That earlier instant.
        issued: usize,
        /// True if it succeeded.
        is_ok: bool,
    },
}

/// What happened to a medium. An instant is an index into it.
#[derive(Debug, Default)]
pub struct Tape(Vec<Event>);

impl Tape {
    /// The number of instants so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if nothing was requested.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All instants, in order.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.0.iter()
    }

    /// The event at an instant.
    #[must_use]
    pub fn event(&self, at: usize) -> Option<&Event> {
        self.0.get(at)
    }

    /// The operation requested at an instant, if any.
    #[must_use]
    pub fn asked(&self, at: usize) -> Option<&Asked> {
        match self.0.get(at) {
            Some(Event::Issued(asked)) => Some(asked),
            _ => None,
        }
    }

    /// Records a request and returns its instant.
    pub(super) fn issue(&mut self, asked: Asked) -> usize {
        self.0.push(Event::Issued(asked));
        self.0.len() - 1
    }

    pub(super) fn end(&mut self, issued: usize, is_ok: bool) {
        self.0.push(Event::Ended { issued, is_ok });
    }

    /// Withdraws a request. A sync that never ends covers nothing.
    pub(super) fn take_back(&mut self, issued: usize) {
        if let Some(event) = self.0.get_mut(issued) {
            *event = Event::Issued(Asked::Sync);
        }
    }
}
