//! Encodes the blocks of a batch of writes, as deltas where the blocks they replace are known.

use crate::bases::{Base, BaseLookup, is_as_found};
use crate::block::{Op, Request};
use crate::digest::How;
use crate::drive::Inner;
use crate::frames::Frames;
use crate::pack::{pack, pack_against};
use crate::policy::Deltas;
use crate::scratch::{Scratch, Verdict};
use crate::shared::SharedVolume;
use crate::watching::Watching;
use std::sync::Arc;
use vellum_core::addr::Lba;
use vellum_core::entry::PartId;
use vellum_core::seam::{Packed, Payload};
use vellum_watch::{Found, bucket};

impl Inner {
    /// Looks up what each block of a write replaces, and appends the results to `found`.
    fn find_bases(
        &mut self,
        lba: Lba,
        payloads: &[Payload],
        watching: &Watching,
        found: &mut Vec<BaseLookup>,
    ) {
        for (at, payload) in (lba.0..).map(Lba).zip(payloads) {
            let mut this = BaseLookup {
                found: Found::default(),
                home: at,
                is_journaled: !payload.digest.zero && self.core.expects_remap(at, payload),
            };
            if !(payload.digest.zero || this.is_journaled) {
                let places = watching.earlier_places(at);
                this.home = places.home;
                this.found = self.bases.find(places, |place| self.core.earlier(place));
                let counters = &mut self.counters.deltas;
                match this.found.base {
                    Some(_) => counters.hits += 1,
                    None if this.found.is_fit => counters.misses += 1,
                    None => counters.unfit += u64::from(this.found.replaces),
                }
            }
            found.push(this);
        }
    }

    /// Prepares blocks for the core. A delta whose base has changed becomes a block that is stored whole. A block that is worth
    /// keeping as a base is marked, to be remembered once the core has stored it.
    pub fn settle_bases(&mut self, payloads: &mut [Payload], found: &[BaseLookup]) {
        for (payload, BaseLookup { found, .. }) in payloads.iter_mut().zip(found) {
            let base = payload.digest.packed.and_then(|packed| packed.base);
            self.counters.deltas.long += u64::from(found.base.is_some() && base.is_none());
            let Some(packed) = payload.digest.packed else {
                continue;
            };
            let wanted = match (packed.base, &found.base) {
                (None, _) => u16::from(found.replaces) * packed.len.get(),
                (Some(part), Some((_, base))) if is_as_found(&self.bases, part, base) => 0,
                (Some(_), _) => {
                    payload.digest.packed = None;
                    self.counters.deltas.stale += 1;
                    0
                }
            };
            self.bases.want(payload.buf, wanted);
        }
    }
}

/// Computes the digests of all written blocks, and reads what the blocks say about journals.
pub(crate) fn digest_all(
    shared: &SharedVolume,
    watching: &Arc<Watching>,
    requests: &mut [Request],
    scratch: &mut Scratch,
) {
    let how = shared.digester.how();
    let Scratch {
        payloads,
        verdicts,
        pairs,
        entries,
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
        watching.classify(request.lba.0, blocks);
        let commits = watching.read_along(request, blocks, pairs);
        shared.scout.add_commits(commits);
        watching.read_log(number, request, blocks, entries);
    }
    if how.deltas.are_made() && !payloads.is_empty() {
        let requests = (requests, verdicts.as_slice());
        pack_all(shared, watching, requests, how, payloads, found);
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

/// Encodes the blocks of those requests of a batch that are not refused: as deltas, where the block they replace is known.
fn pack_all(
    shared: &SharedVolume,
    watching: &Watching,
    (requests, verdicts): (&mut [Request], &[Verdict]),
    how: How,
    payloads: &mut [Payload],
    found: &mut Vec<BaseLookup>,
) {
    let is_write = |request: &Request, (refused, _): &Verdict| {
        refused.is_none() && matches!(request.op, Op::Write { .. })
    };
    {
        let mut inner = shared.inner.lock();
        if inner.has_broken_down() {
            // The volume has broken down: the requests are about to be refused.
            return;
        }
        let mut rest = &*payloads;
        for (request, verdict) in requests.iter().zip(verdicts) {
            if is_write(request, verdict) {
                let (blocks, others) = rest.split_at(request.frames.len());
                inner.find_bases(request.lba, blocks, watching, found);
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
            let Some((payload, lookup)) = next.next() else {
                return;
            };
            if payload.digest.zero || lookup.is_journaled {
                continue;
            }
            let frames = &mut request.frames;
            let base = lookup.found.base.as_ref();
            let delta = base.and_then(|base| pack_as_delta(frames, index, how, base));
            payload.digest.packed = match delta {
                Some(packed) if how.deltas == Deltas::Log => Some(Packed {
                    bucket: Some(bucket(lookup.home)),
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
    let most = base.longest_delta().into();
    pack_against(frames, index, how.compression, &base.block, *part, most)
}

/// The bases of blocks that are to be stored anew, with the bytes of those in memory; `None` for a block that is not a delta.
pub(crate) struct Anew(Vec<Option<(PartId, Option<Base>)>>);

impl Anew {
    pub fn new(inner: &mut Inner, lbas: &[Lba]) -> Self {
        let base_at = |&lba: &Lba| {
            let part = inner.core.base_at(lba)?;
            Some((part, inner.bases.get(part)))
        };
        Self(lbas.iter().map(base_at).collect())
    }

    /// Encodes block `index`. A delta stays a delta, and stays where it is if the bytes of its base are not in memory. In a log
    /// of deltas, and where no more deltas are made, it is merged back (CSA-FS §3.3).
    pub fn pack(&self, frames: &mut Frames, index: usize, how: How) -> Option<Packed> {
        match &self.0[index] {
            Some((part, base)) if how.deltas == Deltas::Packed => {
                let base = (*part, base.clone()?);
                pack_as_delta(frames, index, how, &base)
            }
            _ => pack(frames, index, how.alone()),
        }
    }

    /// Prepares blocks for the core: a delta whose base has changed stays where it is.
    pub fn settle(&self, inner: &Inner, payloads: &mut [Payload]) {
        for (payload, found) in payloads.iter_mut().zip(&self.0) {
            let is_delta = payload
                .digest
                .packed
                .is_some_and(|packed| packed.base.is_some());
            let is_as_found =
                matches!(found, Some((part, Some(base))) if is_as_found(&inner.bases, *part, base));
            if is_delta && !is_as_found {
                payload.digest.packed = None;
            }
        }
    }
}
