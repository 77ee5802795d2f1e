//! All that was asked of a medium, in the order in which it was asked, and when each operation ended.
//!
//! That is enough to tell what a power cut at any of these instants may leave: what was in flight then, and what a sync had
//! covered.

use std::ops::Range;
use vellum_core::addr::{BLOCK_BYTES, Pba};

/// What was asked. Reads change nothing, and are not here.
#[derive(Debug)]
pub enum Asked {
    /// Put bytes on the medium.
    Write {
        /// Where they begin.
        at: Pba,
        /// Whole blocks.
        bytes: Box<[u8]>,
        /// On stable storage when it ends.
        durable: bool,
    },
    /// Make durable what had ended before.
    Sync,
    /// The blocks' content is not needed any more.
    Discard {
        /// The first.
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
    /// Something was asked.
    Issued(Asked),
    /// What was asked at an earlier instant has ended.
    Ended {
        /// That instant.
        issued: usize,
        /// Whether it succeeded.
        is_ok: bool,
    },
}

/// What happened to a medium; an instant is an index of it.
#[derive(Debug, Default)]
pub struct Tape(Vec<Event>);

impl Tape {
    /// So many instants have passed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing was asked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All instants, in order.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.0.iter()
    }

    /// What happened at an instant.
    #[must_use]
    pub fn event(&self, at: usize) -> Option<&Event> {
        self.0.get(at)
    }

    /// What was asked at an instant, if something was.
    #[must_use]
    pub fn asked(&self, at: usize) -> Option<&Asked> {
        match self.0.get(at) {
            Some(Event::Issued(asked)) => Some(asked),
            _ => None,
        }
    }

    /// The instant of what is asked now.
    pub(super) fn issue(&mut self, asked: Asked) -> usize {
        self.0.push(Event::Issued(asked));
        self.0.len() - 1
    }

    pub(super) fn end(&mut self, issued: usize, is_ok: bool) {
        self.0.push(Event::Ended { issued, is_ok });
    }

    /// It was not asked after all. A sync that never ends covers nothing.
    pub(super) fn take_back(&mut self, issued: usize) {
        if let Some(event) = self.0.get_mut(issued) {
            *event = Event::Issued(Asked::Sync);
        }
    }
}
