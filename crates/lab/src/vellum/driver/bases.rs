//! Keeps bases, and makes and reads differences from them.

use super::deltas::Version;
use super::flight::{Flight, Then};
use super::{Submitted, Vellum};
use crate::base::Io;
use crate::content::Content;
use crate::sizes::{Size, told};
use vellum_core::addr::{Buf, EffectId, Lba, Pba};
use vellum_core::seam::{BasePlace, Packed, PagePlace};
use vellum_policies::words::Deltas;
use vellum_watch::{EarlierPlaces, Found};

/// Where a base must be read from, if it is on the medium.
pub(super) fn on_medium(base: Option<BasePlace>) -> Option<Pba> {
    match base {
        Some(BasePlace::Part(PagePlace::Medium(at), _)) => Some(at),
        _ => None,
    }
}

impl Vellum {
    /// The size that a block of a write can be stored in.
    pub(super) fn pack(&mut self, submitted: &Submitted, index: usize, buf: Buf) -> Option<Packed> {
        if !self.compress {
            return None;
        }
        let (content, model) = (submitted.contents[index], self.sizes);
        let sizes = submitted.sizes.as_ref();
        let size = sizes.map_or(Size::default(), |sizes| sizes[index]);
        let bytes = size.packed.or_else(|| Some(model?.bytes(content)));
        let packs = submitted.admitted.pack;
        let alone = bytes.and_then(told).filter(|_| packs);
        if let Some(bytes) = size.packed.filter(|_| self.services.are_on()) {
            self.measured.insert(content, bytes);
        }
        let (Some(bases), Some(log)) = (&mut self.bases, self.core.as_log()) else {
            return alone;
        };
        let lba = submitted.lba + index as u64;
        // Blocks of zeros have no delta. Neither have the journal's own blocks: they replace unrelated content, which
        // no model of changes describes, and the device would find that there is nothing to gain.
        let is_own = submitted.written().is_journals(index);
        let has_none = content == Content::ZERO || is_own;
        let places = (!has_none).then(|| match &mut self.watching {
            Some(watching) => watching.earlier_places(Lba(lba)),
            None => EarlierPlaces::of(Lba(lba)),
        });
        let places = places.filter(|_| packs);
        let found = places.map_or_else(Found::default, |places| {
            bases.known.find(places, |place| log.earlier(place))
        });
        let home = places.map_or(Lba(lba), |places| places.home);
        let delta = found
            .base
            .and_then(|base| bases.delta(base, (lba, home), content, size.delta, model));
        if sizes.is_some() || !bases.versions.is_empty() {
            let since = delta.and_then(|packed| Some((packed.base?.raw(), packed.len.get())));
            bases.versions.insert(lba, Version { content, since });
        }
        let wanted = alone.filter(|_| found.replaces && delta.is_none());
        bases
            .known
            .want(buf, wanted.map_or(0, |packed| packed.len.get()));
        delta.or(alone)
    }

    /// The size that a block can be stored in anew. A delta stays one while its base is known; in a log of deltas it
    /// is merged with its base.
    pub(super) fn pack_anew(&self, lba: Lba, content: Content) -> Option<Packed> {
        let base = self.core.base_at(lba).zip(self.bases.as_ref());
        if let Some((part, bases)) = base
            && bases.deltas == Deltas::Packed
        {
            let base = *bases.known.peek(part)?;
            return bases.delta((part, base), (lba.0, lba), content, None, self.sizes);
        }
        let measured = self.measured.get(&content).copied();
        told(measured.or_else(|| Some(self.sizes?.bytes(content)))?)
    }

    /// Notes that this buffer's block is not worth keeping as a base.
    pub(super) fn unwanted(&mut self, buf: Buf) {
        if let Some(bases) = &mut self.bases {
            bases.known.want(buf, 0);
        }
    }

    pub(super) fn read_base(&mut self, io: &mut Io<'_>, id: EffectId, at: Pba, then: Then) {
        let tag = self.fly(id, Flight::Base(then));
        self.backing.read(io, tag, at, 1);
    }

    /// Continues after a base has been read.
    pub(super) fn base_read(&mut self, io: &mut Io<'_>, id: EffectId, then: Then) {
        match then {
            Then::Read { at, parts, to } => {
                let (slot, count) = parts;
                let tag = self.fly(
                    id,
                    Flight::Parts {
                        at,
                        slot,
                        count,
                        to,
                    },
                );
                self.backing.read(io, tag, at, 1);
            }
            Then::Compare { buf, at, slot } => {
                let slot = Some(slot);
                let tag = self.fly(id, Flight::Compare { buf, at, slot });
                self.backing.read(io, tag, at, 1);
            }
            Then::Shown(whole) => {
                let tag = self.fly(id, Flight::PartsShown(whole));
                io.time.done(tag);
            }
            Then::Compared(same) => {
                let tag = self.fly(id, Flight::Compared(same));
                io.time.done(tag);
            }
        }
    }
}
