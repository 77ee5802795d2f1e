//! Vellum's own traces (`docs/TRACE.md`), recorded by `vellum serve --record` and `vellum record`.

use super::traced::{Op, Traced};
use crate::content::Content;
use crate::sizes::Size;
use std::io::Read;
use vellum_core::addr::{BLOCK_BYTES, Nanos};
use vellum_trace::{
    Class, Content as TracedContent, Entry, Journal, Op as TracedOp, Request, Sizes, TraceError,
};

/// Totals of what is known of the blocks written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The encoding that the sizes are for.
    pub sizes: Sizes,
    /// Blocks whose size alone is known, and the sum of the sizes.
    pub packed: (u64, u64),
    /// Blocks whose size as a difference is known, and the sum of the sizes.
    pub delta: (u64, u64),
    /// Blocks by class.
    pub classes: [u64; Class::ALL.len()],
}

/// Reads the requests of a trace.
pub struct Own<R> {
    from: Option<R>,
    reader: Option<vellum_trace::Reader<R>>,
    /// The journals named last.
    pub journals: Vec<Journal>,
    /// Requests that are missing.
    pub lost: u64,
    /// What is known of the blocks.
    pub known: Known,
}

impl<R: Read> Own<R> {
    pub fn new(from: R) -> Self {
        Self {
            from: Some(from),
            reader: None,
            journals: Vec::new(),
            lost: 0,
            known: Known::default(),
        }
    }

    /// Blocks of the disk; none before the first entry is read.
    pub fn disk_blocks(&self) -> Option<u64> {
        self.reader.as_ref().map(|reader| reader.header().blocks)
    }

    /// True if it broke off.
    pub fn is_cut(&self) -> bool {
        self.reader
            .as_ref()
            .is_some_and(|reader| !reader.is_whole())
    }

    /// Reads the next entry; none at the end. The inner option is the request, if it is one.
    pub fn next(&mut self) -> Result<Option<Option<Traced>>, TraceError> {
        if let Some(from) = self.from.take() {
            let reader = vellum_trace::Reader::new(from)?;
            self.known.sizes = reader.header().sizes;
            self.reader = Some(reader);
        }
        let Some(entry) = self.reader.as_mut().and_then(Iterator::next) else {
            return Ok(None);
        };
        Ok(Some(match entry? {
            Entry::Request(request) => Some(self.traced(request)),
            Entry::Journals(journals) => {
                // A file system that is being recreated has none for a moment.
                if !journals.is_empty() {
                    self.journals = journals;
                }
                None
            }
            Entry::Lost(count) => {
                self.lost = self.lost.saturating_add(count);
                None
            }
        }))
    }

    fn traced(&mut self, request: Request) -> Traced {
        let add = |(blocks, bytes): &mut (u64, u64), size: Option<u16>| {
            if let Some(size) = size {
                *blocks += 1;
                *bytes += u64::from(size);
            }
        };
        for block in &request.contents {
            add(&mut self.known.packed, block.packed);
            add(&mut self.known.delta, block.delta);
            self.known.classes[block.class as usize] += 1;
        }
        let content = |told: TracedContent| match told {
            TracedContent::Unknown => None,
            TracedContent::Zero => Some(Content::ZERO),
            TracedContent::Digest(digest) => Some(Content::of(digest)),
        };
        let contents = request.contents.iter().map(|block| content(block.content));
        let sizes = request.contents.iter().map(|block| Size {
            packed: block.packed,
            delta: block.delta,
        });
        let told = sizes.clone().any(|size| size != Size::default());
        Traced {
            at: Nanos(request.at),
            disk: 0,
            op: match request.op {
                TracedOp::Read => Op::Read,
                TracedOp::Write { fua } => Op::Write { fua },
                TracedOp::Discard { fua } => Op::Discard { zero: false, fua },
                TracedOp::WriteZeroes { fua } => Op::Discard { zero: true, fua },
                TracedOp::Flush => Op::Flush,
            },
            offset: request.lba * BLOCK_BYTES as u64,
            bytes: request.blocks * BLOCK_BYTES as u64,
            contents: contents.collect::<Option<_>>().unwrap_or_default(),
            sizes: told.then(|| sizes.collect()),
            committed: request.committed,
        }
    }
}
