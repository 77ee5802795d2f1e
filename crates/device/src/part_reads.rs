//! Reads of parts of pages that wait for the medium.

use crate::memory::Buffer;
use crate::pack::Unpacker;
use vellum_codec::Block as Bytes;
use vellum_core::addr::{BLOCK_BYTES, Buf, RequestId};
use vellum_core::seam::Outcome;

/// A read of parts that the medium has not answered yet: of their page, of the page of their base, or of both at once.
pub(crate) struct PartsRead {
    pub slot: u8,
    pub count: u8,
    pub to: Decoded,
    pub base: Needs,
    pub page: Came,
}

/// What parts need besides their page.
pub(crate) enum Needs {
    Nothing,
    /// A part of a page that is being read into this buffer.
    Part(u8, Buffer),
    Block(Box<Bytes>),
    /// A base that cannot be read.
    Lost,
}

/// The page that parts are in, while they wait for what they need.
pub(crate) enum Came {
    NotYet,
    /// It was in memory, in a frame that may be reused before the base arrives.
    Copied(Box<Bytes>),
    /// It has been read into the effect's buffer, or could not be.
    Read {
        failed: bool,
    },
}

/// Where parts are decoded to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Decoded {
    /// The frames of a request, from this one on.
    Request(RequestId, u32),
    /// One of the collector's frames.
    Collector(Buf),
    /// Nowhere: the part is compared with this frame.
    Compared(Buf),
}

/// A result that is known at once, and is reported to the core after the core has given out all its effects.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EarlyOutcome {
    Same(bool),
    Parts { whole: bool, base: bool },
}

impl EarlyOutcome {
    pub fn outcome(self) -> Outcome<'static> {
        match self {
            Self::Same(same) => Outcome::Same(same),
            Self::Parts { whole, base } => Outcome::Parts {
                sum: 0,
                whole,
                base,
            },
        }
    }
}

impl PartsRead {
    pub fn new(slot: u8, count: u8, to: Decoded) -> Self {
        Self {
            slot,
            count,
            to,
            base: Needs::Nothing,
            page: Came::NotYet,
        }
    }

    /// True if the base is still being read.
    pub fn waits_for_base(&self) -> bool {
        matches!(self.base, Needs::Part(..))
    }

    /// False if the base cannot be read.
    pub fn has_base(&self) -> bool {
        !matches!(self.base, Needs::Lost)
    }
}

impl Needs {
    /// A base that is a whole block.
    pub fn block(block: &[u8]) -> Self {
        <&Bytes>::try_from(block).map_or(Self::Lost, |block| Self::Block(Box::new(*block)))
    }

    /// A base that is a part of a page.
    pub fn part(unpacker: &mut Unpacker, page: &[u8], slot: u8) -> Self {
        let mut block = Box::new([0; BLOCK_BYTES]);
        match unpacker.unpack(page, slot, None, &mut block) {
            true => Self::Block(block),
            false => Self::Lost,
        }
    }
}
