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
use crate::frames::Frames;
use crate::limits::{BASES, GROUP_BLOCKS};
use crate::pack::{pack, pack_against};
use crate::policy::Deltas;
use crate::scratch::{Scratch, Verdict};
use crate::shared::Shared;
use crate::sight::Sight;
use lru::LruCache;
use std::sync::Arc;
use vellum_codec::Block as Bytes;
use vellum_core::addr::{BLOCK_BYTES, Buf, Lba, Vba};
use vellum_core::engine::Earlier;
use vellum_core::entry::{MAX_PARTS, PartId};
use vellum_core::seam::{Bucket, Packed, Payload};

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
#[derive(Clone, Debug)]
pub(crate) struct Found {
    base: Option<(PartId, Base)>,
    /// Where it belongs: its own address, or that of which it is a journal's copy.
    home: Lba,
    /// It replaces something, and may be replaced again.
    replaces: bool,
    /// A journal presumably holds it, and it will not be stored at all: encoding it would be for nothing.
    is_journaled: bool,
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
            let mut this = Found {
                base: None,
                home: at,
                replaces: false,
                is_journaled: !payload.digest.zero && self.engine.expects_remap(at, payload),
            };
            if payload.digest.zero || this.is_journaled {
                found.push(this);
                continue;
            }
            let mut is_fit = false;
            let places = sight.earlier_places(at);
            this.home = places.home;
            for place in places.all() {
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

/// Computes what the core is told of each block that is written, and reads along what they say of journals.
pub(crate) fn digest_all(
    shared: &Shared,
    sight: &Arc<Sight>,
    requests: &mut [Request],
    scratch: &mut Scratch,
) {
    let how = shared.digester.how();
    let Scratch {
        payloads,
        verdicts,
        pairs,
        steps,
        found,
        ..
    } = scratch;
    for (number, (request, (refusal, _))) in requests.iter_mut().zip(&*verdicts).enumerate() {
        if refusal.is_some() || !matches!(request.op, Op::Write { .. }) {
            continue;
        }
        let first = payloads.len();
        digest_one(how, request, payloads);
        let blocks = &mut payloads[first..];
        sight.classify(request.lba.0, blocks);
        let commits = sight.read_along(request, blocks, pairs);
        shared.scout.add_commits(commits);
        sight.read_log(number, request, blocks, steps);
    }
    if how.deltas.are_made() && !payloads.is_empty() {
        let requests = (requests, verdicts.as_slice());
        pack_all(shared, sight, requests, how, payloads, found);
    }
}

fn digest_one(how: How, request: &mut Request, payloads: &mut Vec<Payload>) {
    for index in 0..request.frames.len() {
        let mut digest = how.digest(request.frames.block(index));
        if !digest.zero && !how.deltas.are_made() {
            digest.packed = pack(&mut request.frames, index, how.alone());
        }
        payloads.extend(
            request
                .frames
                .bufs()
                .nth(index)
                .map(|buf| Payload { buf, digest }),
        );
    }
}

/// Encodes the blocks of a batch of requests, of which some are refused: as deltas, where what they replace is known.
fn pack_all(
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
            if payload.digest.zero || found.is_journaled {
                continue;
            }
            let frames = &mut request.frames;
            let base = found.base.as_ref();
            let delta = base.and_then(|base| pack_as_delta(frames, index, how, base));
            payload.digest.packed = match delta {
                Some(packed) if how.deltas == Deltas::Log => Some(Packed {
                    bucket: Some(Bucket((found.home.0 / GROUP_BLOCKS) as u32)),
                    ..packed
                }),
                Some(packed) => Some(packed),
                None => pack(frames, index, how.alone()),
            };
        }
    }
}

fn pack_as_delta(
    frames: &mut Frames,
    index: usize,
    how: How,
    (part, base): &(PartId, Base),
) -> Option<Packed> {
    // One that is not much shorter is not worth the page that is kept for it.
    let most = usize::from(base.len) / 2;
    pack_against(frames, index, how.compression, &base.bytes, *part, most)
}

/// What blocks are deltas against that are to be stored anew; of each that is none, nothing.
pub(crate) struct Anew(Vec<Option<(PartId, Option<Base>)>>);

impl Anew {
    pub fn new(inner: &mut Inner, lbas: &[Lba]) -> Self {
        let base_at = |&lba: &Lba| {
            let part = inner.engine.base_at(lba)?;
            Some((part, inner.bases.blocks.get(&part.raw()).cloned()))
        };
        Self(lbas.iter().map(base_at).collect())
    }

    /// Encodes block `index`. A delta stays one, and is left where it is if the bytes of its base are not here; in a log of deltas,
    /// and where no more are made, it is merged back (CSA-FS §3.3).
    pub fn pack(&self, frames: &mut Frames, index: usize, how: How) -> Option<Packed> {
        match &self.0[index] {
            Some((part, base)) if how.deltas == Deltas::Packed => {
                let base = (*part, base.clone()?);
                pack_as_delta(frames, index, how, &base)
            }
            _ => pack(frames, index, how.alone()),
        }
    }

    /// Blocks are about to be handed to the core: deltas whose base is not what it was are left where they are.
    pub fn settle(&self, inner: &Inner, payloads: &mut [Payload]) {
        for (payload, found) in payloads.iter_mut().zip(&self.0) {
            let is_delta = payload
                .digest
                .packed
                .is_some_and(|packed| packed.base.is_some());
            let is_as_found =
                matches!(found, Some((part, Some(base))) if inner.bases.is_as_found(*part, base));
            if is_delta && !is_as_found {
                payload.digest.packed = None;
            }
        }
    }
}

const _: () = assert!(BASES.get() * BLOCK_BYTES <= 64 << 20);
