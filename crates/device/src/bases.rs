//! Blocks that others are stored as deltas against (CSA-FS §3.2): their bytes, in a bounded memory.
//!
//! The core says what a part stands for as it stores it, and when its page is given up. In between its bytes are here, unless
//! others have been wanted more lately. So what is here is always what is stored, under the volume's lock. A delta is made
//! without the lock: before it is handed over it is looked whether its base is still the same.
//!
//! Which blocks are worth it is told by what they replace: what was written once may never be written again, and an installation
//! would push everything else out. A copy in a journal replaces the copy before it, or else what is at home: the journal's
//! descriptor block, which comes before it, says where that is.

use crate::block::{Op, Request};
use crate::digest::How;
use crate::drive::Inner;
use crate::limits::BASES;
use crate::pack::{pack, pack_against};
use crate::scratch::Verdict;
use crate::shared::Shared;
use crate::sight::Sight;
use lru::LruCache;
use std::sync::Arc;
use vellum_codec::Block as Bytes;
use vellum_core::addr::{BLOCK_BYTES, Buf, Lba, Vba};
use vellum_core::engine::Earlier;
use vellum_core::map::{MAX_PARTS, PartId};
use vellum_core::seam::Payload;

/// A block that may be a base.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    bytes: Arc<Bytes>,
    /// In how many bytes it is stored.
    len: u16,
}

/// The bases of a volume.
pub(crate) struct Bases {
    blocks: LruCache<u32, Base>,
    /// Of each frame for writes: in how many bytes its block is stored, if that is worth keeping as a base.
    wanted: Vec<u16>,
}

/// What was found for a block that is about to be encoded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    base: Option<(PartId, Base)>,
    /// It replaces something, and may be replaced again.
    replaces: bool,
}

impl Bases {
    pub fn new() -> Self {
        Self {
            blocks: LruCache::new(BASES),
            wanted: Vec::new(),
        }
    }

    /// Nothing is known any more.
    pub fn clear(&mut self) {
        self.blocks.clear();
        self.wanted.clear();
    }

    /// The core has stored a frame's block as this part.
    pub fn stored(&mut self, part: PartId, buf: Buf, block: &[u8]) {
        let len = self
            .wanted
            .get_mut(buf.0 as usize)
            .map_or(0, std::mem::take);
        match <&Bytes>::try_from(block) {
            // One copy and one allocation for a block that others will be a few bytes of.
            Ok(bytes) if len > 0 => {
                let bytes = Arc::new(*bytes);
                self.blocks.put(part.raw(), Base { bytes, len });
            }
            _ => {
                self.blocks.pop(&part.raw());
            }
        }
    }

    /// The frame's block is not worth being remembered when it is stored; what was there before may have been.
    pub fn unwanted(&mut self, buf: Buf) {
        if let Some(len) = self.wanted.get_mut(buf.0 as usize) {
            *len = 0;
        }
    }

    /// The page of this number stands for nothing any more.
    pub fn given_up(&mut self, page: Vba) {
        if !self.blocks.is_empty() {
            for slot in 0..MAX_PARTS as u8 {
                self.blocks.pop(&PartId { page, slot }.raw());
            }
        }
    }

    fn is_as_found(&self, part: PartId, found: &Base) -> bool {
        let known = self.blocks.peek(&part.raw());
        known.is_some_and(|known| Arc::ptr_eq(&known.bytes, &found.bytes))
    }
}

impl Inner {
    /// What the blocks of a write replace: looked up for all of them, and appended.
    fn find_bases(
        &mut self,
        lba: Lba,
        payloads: &[Payload],
        sight: &Sight,
        found: &mut Vec<Found>,
    ) {
        for (at, payload) in (lba.0..).map(Lba).zip(payloads) {
            if payload.digest.zero {
                found.push(Found::default());
                continue;
            }
            let mut this = Found::default();
            let mut is_fit = false;
            for place in sight.earlier_places(at) {
                let earlier = self.engine.earlier(place);
                this.replaces |= earlier != Earlier::Nothing;
                let Earlier::Base(part) = earlier else {
                    continue;
                };
                is_fit = true;
                if let Some(base) = self.bases.blocks.get(&part.raw()) {
                    this.base = Some((part, base.clone()));
                    break;
                }
            }
            let counters = &mut self.counters.deltas;
            match this.base {
                Some(_) => counters.hits += 1,
                None if is_fit => counters.misses += 1,
                None => counters.unfit += u64::from(this.replaces),
            }
            found.push(this);
        }
    }

    /// Blocks are about to be handed to the core: deltas whose base is not what it was are blocks that are stored whole, and what is
    /// worth it is remembered when the core has stored it.
    pub fn settle_bases(&mut self, payloads: &mut [Payload], found: &[Found]) {
        let frames = self.frames.writable() as usize;
        for (payload, found) in payloads.iter_mut().zip(found) {
            let base = payload.digest.packed.and_then(|packed| packed.base);
            self.counters.deltas.long += u64::from(found.base.is_some() && base.is_none());
            let Some(packed) = payload.digest.packed else {
                continue;
            };
            let wanted = match (packed.base, &found.base) {
                (None, _) => u16::from(found.replaces) * packed.len.get(),
                (Some(part), Some((_, base))) if self.bases.is_as_found(part, base) => 0,
                (Some(_), _) => {
                    payload.digest.packed = None;
                    self.counters.deltas.stale += 1;
                    0
                }
            };
            self.bases.wanted.resize(frames, 0);
            self.bases.wanted[payload.buf.0 as usize] = wanted;
        }
    }
}

/// Encodes the blocks of a batch of requests, of which some are refused: as deltas, where what they replace is known.
pub(crate) fn pack_all(
    shared: &Shared,
    sight: &Sight,
    (requests, verdicts): (&mut [Request], &[Verdict]),
    how: How,
    payloads: &mut [Payload],
    found: &mut Vec<Found>,
) {
    let is_write = |request: &Request, (refused, _): &Verdict| {
        refused.is_none() && matches!(request.op, Op::Write { .. })
    };
    {
        let mut inner = shared.inner.lock();
        if inner.busy {
            // Broken down: the requests are about to be refused.
            return;
        }
        let mut rest = &*payloads;
        for (request, verdict) in requests.iter().zip(verdicts) {
            if is_write(request, verdict) {
                let (blocks, others) = rest.split_at(request.frames.len());
                inner.find_bases(request.lba, blocks, sight, found);
                rest = others;
            }
        }
    }
    let mut next = payloads.iter_mut().zip(&*found);
    for (request, verdict) in requests.iter_mut().zip(verdicts) {
        if !is_write(request, verdict) {
            continue;
        }
        for index in 0..request.frames.len() {
            let Some((payload, found)) = next.next() else {
                return;
            };
            if payload.digest.zero {
                continue;
            }
            let delta = found.base.as_ref().and_then(|(part, base)| {
                // One that is not much shorter is not worth the page that is kept for it.
                let most = usize::from(base.len) / 2;
                pack_against(
                    &mut request.frames,
                    index,
                    how.compression,
                    &base.bytes,
                    *part,
                    most,
                )
            });
            payload.digest.packed = delta.or_else(|| pack(&mut request.frames, index, how.alone()));
        }
    }
}

const _: () = assert!(BASES.get() * BLOCK_BYTES <= 64 << 20);
