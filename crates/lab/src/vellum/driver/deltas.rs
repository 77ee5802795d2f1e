//! Blocks as their difference to what they replace (CSA-FS §3.2): which bases are known, and what a trace or a model says of the difference.
//!
//! As the device has it: a block is worth keeping as a base when it replaces something, bases are kept by use, a delta is
//! at most half of what its base takes, and a copy in a journal replaces the copy before it, or else what is at home. Nobody has the bytes, so a
//! base is its content's number.
//!
//! A trace tells a block's difference to the version before it, and that may be a delta itself. Its base is then taken to be as far away as
//! all differences since together: what changed twice is counted twice, so it is never nearer than that.

use super::copies::Copies;
use super::{Asked, Flight, Vellum};
use crate::base::Io;
use crate::content::Content;
use crate::sizes::{Size, Sizes, told};
use crate::workload::NO_HOME;
use lru::LruCache;
use std::collections::HashMap;
use std::num::NonZeroUsize;
use vellum_core::addr::{BLOCK_BYTES, Buf, EffectId, Lba, Pba, RequestId, Vba};
use vellum_core::engine::Earlier;
use vellum_core::entry::{MAX_PARTS, PartId};
use vellum_core::seam::{Base, Bucket, Hint, Input, Packed, Page};

/// Whether and where blocks are stored as their difference to what they replace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deltas {
    /// They are not.
    #[default]
    Off,
    /// With all else that is small.
    Packed,
    /// In pages of their own, for each block group (CSA-FS §3.3).
    Log,
}

/// What a block takes that is its base: a run of one zero.
const SAME: u16 = 2;
/// Of ext4, with blocks of 4 KiB.
const GROUP_BLOCKS: u64 = 32 << 10;
/// Bases that the device keeps: 16 MiB of them.
const BASES: NonZeroUsize = NonZeroUsize::MIN.saturating_add((16 << 20) / BLOCK_BYTES - 1);

/// A block that may be a base: what it holds, and in how many bytes it is stored.
#[derive(Clone, Copy)]
struct Known {
    content: Content,
    bytes: u16,
}

/// What was written to a block last, where a trace tells of differences.
struct Version {
    content: Content,
    /// The part that it was stored as a difference to, and how large that is.
    since: Option<(u32, u16)>,
}

/// The bases of a volume.
pub(super) struct Bases {
    known: LruCache<u32, Known>,
    /// Looked up only: its order is chance.
    versions: HashMap<u64, Version>,
    /// Of each buffer: in how many bytes its block is stored, if that is worth keeping as a base.
    wanted: Vec<u16>,
    copies: Copies,
    /// Where deltas go.
    deltas: Deltas,
}

impl Bases {
    pub(super) fn new(deltas: Deltas) -> Self {
        Self {
            deltas,
            known: LruCache::new(BASES),
            versions: HashMap::new(),
            wanted: Vec::new(),
            copies: Copies::default(),
        }
    }

    fn want(&mut self, buf: Buf, bytes: u16) {
        let index = buf.0 as usize;
        if index >= self.wanted.len() {
            self.wanted.resize(index + 1, 0);
        }
        self.wanted[index] = bytes;
    }

    /// Where to look for an earlier version of a block that is about to be written, the likeliest place first. Blocks of zeros have none.
    fn earlier_places(&mut self, asked: &Asked, index: usize) -> impl Iterator<Item = u64> + use<> {
        let lba = asked.lba + index as u64;
        let home = asked.homes.as_ref().map(|homes| homes[index]);
        let places = match home {
            _ if asked.contents[index] == Content::ZERO => [None; 2],
            None => [None, Some(lba)],
            Some(NO_HOME) => [None; 2],
            Some(home) => [self.copies.write(lba, home), Some(home)],
        };
        places.into_iter().flatten()
    }

    /// In whose pages a delta goes of a block that belongs there.
    fn bucket(&self, home: u64) -> Option<Bucket> {
        let group = (home / GROUP_BLOCKS) as u32;
        (self.deltas == Deltas::Log).then_some(Bucket(group))
    }

    /// A block as its difference to this base, if that is worth it. `changed`: to the version before, where a trace tells it.
    fn delta(
        &self,
        (part, base): (PartId, Known),
        (lba, home): (u64, u64),
        content: Content,
        changed: Option<u16>,
        model: Option<Sizes>,
    ) -> Option<(PartId, Packed)> {
        let measured = changed.and_then(|changed| {
            let before = self.versions.get(&lba)?;
            match before.since {
                _ if before.content == base.content => Some(changed),
                Some((since, bytes)) if since == part.raw() => Some(bytes.saturating_add(changed)),
                _ => None,
            }
        });
        let bytes = measured.or_else(|| Some(model?.changed_bytes(base.content, content)))?;
        let packed = told(bytes.max(SAME))?;
        let packed = Packed {
            bucket: self.bucket(home),
            ..packed
        };
        (packed.len.get() <= base.bytes / 2).then_some((part, packed))
    }
}

/// What is done when a base has been read.
#[derive(Clone, Copy)]
pub(super) enum Then {
    /// The delta is, for a client.
    Read {
        at: Pba,
        parts: (u8, u8),
        to: (RequestId, u32),
    },
    /// The delta was in RAM, and has been shown.
    Shown(bool),
    /// The delta is, and compared with a buffer's block.
    Compare { buf: Buf, at: Pba, slot: u8 },
    /// The delta was in RAM, and has been compared.
    Compared(bool),
}

/// Where a base has to be read from.
pub(super) fn on_medium(base: Option<Base>) -> Option<Pba> {
    match base {
        Some(Base::Part(Page::Medium(at), _)) => Some(at),
        _ => None,
    }
}

impl Vellum {
    /// Tells which blocks of a journal are copies of which, before they are written; the core where it goes by that.
    pub(super) fn tell_homes(&mut self, io: &mut Io<'_>, asked: &Asked) {
        let Some(homes) = &asked.homes else {
            return;
        };
        if let Some(bases) = &mut self.bases {
            bases.copies.describe(asked.lba, homes);
        }
        if !self.descriptors {
            return;
        }
        let pairs: Vec<_> = homes
            .iter()
            .zip(asked.lba..)
            .filter(|&(&home, _)| home != NO_HOME)
            .map(|(&home, at)| (Lba(home), Lba(at)))
            .collect();
        if !pairs.is_empty() {
            self.feed(io, Input::Hint(Hint::Journaled { pairs: &pairs }));
        }
    }

    /// In how many bytes a block of a write can be stored.
    pub(super) fn pack(&mut self, asked: &Asked, index: usize, buf: Buf) -> Option<Packed> {
        if !self.compress {
            return None;
        }
        let (content, model) = (asked.contents[index], self.sizes);
        let sizes = asked.sizes.as_ref();
        let size = sizes.map_or(Size::default(), |sizes| sizes[index]);
        let bytes = size.packed.or_else(|| Some(model?.bytes(content)));
        let packs = asked.admitted.pack;
        let alone = bytes.and_then(told).filter(|_| packs);
        if let Some(bytes) = size.packed.filter(|_| self.services.are_on()) {
            self.measured.insert(content, bytes);
        }
        let (Some(bases), Some(log)) = (&mut self.bases, self.engine.as_log()) else {
            return alone;
        };
        let lba = asked.lba + index as u64;
        let mut replaces = false;
        let mut delta = None;
        let home = asked.homes.as_ref().map(|homes| homes[index]);
        let home = home.filter(|&home| home != NO_HOME).unwrap_or(lba);
        for place in bases.earlier_places(asked, index) {
            let earlier = log.earlier(Lba(place));
            replaces |= earlier != Earlier::Nothing;
            if packs
                && let Earlier::Base(part) = earlier
                && let Some(base) = bases.known.get(&part.raw()).copied()
            {
                delta = bases.delta((part, base), (lba, home), content, size.delta, model);
                break;
            }
        }
        if sizes.is_some() || !bases.versions.is_empty() {
            let since = delta.map(|(part, packed)| (part.raw(), packed.len.get()));
            bases.versions.insert(lba, Version { content, since });
        }
        if let Some((part, packed)) = delta {
            bases.want(buf, 0);
            return Some(Packed {
                base: Some(part),
                ..packed
            });
        }
        let bytes = alone.map_or(0, |packed| packed.len.get());
        bases.want(buf, u16::from(replaces) * bytes);
        alone
    }

    /// In how many bytes a block can be stored anew. A delta stays one, as long as its base is known; in a log of deltas it is merged
    /// back.
    pub(super) fn pack_anew(&self, lba: Lba, content: Content) -> Option<Packed> {
        let base = self.engine.base_at(lba).zip(self.bases.as_ref());
        if let Some((part, bases)) = base
            && bases.deltas == Deltas::Packed
        {
            let base = *bases.known.peek(&part.raw())?;
            let home = (lba.0, lba.0);
            let delta = bases.delta((part, base), home, content, None, self.sizes)?;
            return Some(Packed {
                base: Some(part),
                ..delta.1
            });
        }
        let measured = self.measured.get(&content).copied();
        told(measured.or_else(|| Some(self.sizes?.bytes(content)))?)
    }

    /// What is in this buffer is not worth being remembered as a base.
    pub(super) fn unwanted(&mut self, buf: Buf) {
        if let Some(bases) = &mut self.bases {
            bases.want(buf, 0);
        }
    }

    /// A buffer's block is this part from now on.
    pub(super) fn stored(&mut self, buf: Buf, part: PartId) {
        let content = self.bufs[buf.0 as usize];
        if let Some(bases) = &mut self.bases {
            let wanted = bases.wanted.get_mut(buf.0 as usize);
            match wanted.map_or(0, std::mem::take) {
                0 => bases.known.pop(&part.raw()),
                bytes => bases.known.put(part.raw(), Known { content, bytes }),
            };
        }
    }

    /// The parts of this page are nothing any more.
    pub(super) fn given_up(&mut self, page: Vba) {
        if let Some(bases) = self.bases.as_mut().filter(|bases| !bases.known.is_empty()) {
            for slot in 0..MAX_PARTS as u8 {
                bases.known.pop(&PartId { page, slot }.raw());
            }
        }
    }

    pub(super) fn read_base(&mut self, io: &mut Io<'_>, id: EffectId, at: Pba, then: Then) {
        let tag = self.fly(id, Flight::Base(then));
        self.backing.read(io, tag, at, 1);
    }

    /// A base has been read.
    pub(super) fn base_read(&mut self, io: &mut Io<'_>, id: EffectId, then: Then) {
        match then {
            Then::Read { at, parts, to } => {
                self.read_parts(io, id, Page::Medium(at), parts, to, None);
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
