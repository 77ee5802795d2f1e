//! What the engine asks for, begun on the backing.

use super::{Flight, Vellum};
use crate::base::Io;
use crate::content::Content;
use crate::timeline::Tag;
use vellum_core::addr::{BLOCK_BYTES, EffectId, RequestId};
use vellum_core::seam::Effect;

impl Vellum {
    /// Begins what an effect asks for.
    pub(super) fn carry_out(&mut self, io: &mut Io<'_>, effect: Effect) {
        match effect {
            Effect::WriteChunk {
                id,
                at,
                blocks,
                durable,
            } => {
                match self.compress {
                    // The header's bytes are made by nobody: nothing here is ever damaged, so none is read.
                    false => {
                        let first = at.0 as usize + 1;
                        let blocks = self.medium[first..].iter_mut();
                        let bufs = self.engine.as_log().map(|log| log.chunk_bufs(id));
                        for (block, buf) in blocks.zip(bufs.into_iter().flatten()) {
                            *block = self.bufs[buf.0 as usize];
                        }
                    }
                    true => self.write_parts(id, at, blocks),
                }
                let tag = self.fly(id, Flight::Plain);
                self.backing.write(io, tag, at, blocks, durable);
            }
            Effect::WriteMeta {
                id,
                at,
                blocks,
                durable,
            } => {
                self.bytes.resize(blocks as usize * BLOCK_BYTES, 0);
                self.engine.encode(id, &mut self.bytes);
                self.summaries.keep(at, &self.bytes, &self.medium);
                let tag = self.fly(id, Flight::Plain);
                self.backing.write(io, tag, at, blocks, durable);
            }
            Effect::Sync { id } => {
                let tag = self.fly(id, Flight::Plain);
                self.backing.sync(io, tag);
            }
            Effect::Erase { id, at, blocks } => {
                let tag = self.fly(id, Flight::Erase { at });
                self.backing.erase(io, tag, at, blocks);
            }
            Effect::Read {
                id,
                at,
                blocks,
                request: RequestId(request),
                first,
            } => {
                let read = Flight::Read {
                    at,
                    blocks,
                    request,
                    first,
                };
                let tag = self.fly(id, read);
                self.backing.read(io, tag, at, blocks);
            }
            Effect::Gather { id, at, blocks, to } => {
                let tag = self.fly(id, Flight::Gather { at, blocks, to });
                self.backing.read(io, tag, at, blocks);
            }
            Effect::ReadMeta { id, at, blocks } => {
                let tag = self.fly(id, Flight::Meta { at, blocks });
                self.backing.read(io, tag, at, blocks);
            }
            Effect::Compare { id, buf, with } => self.compare(io, id, buf, with),
            Effect::ReadParts {
                id,
                page,
                slot,
                count,
                base,
                request,
                first,
            } => self.read_parts(io, id, page, (slot, count), (request, first), base),
            Effect::Fingerprint { id, buf } => {
                let tag = self.fly(id, Flight::Print(self.bufs[buf.0 as usize]));
                self.print(io, tag);
            }
            Effect::CopyOut {
                from,
                request,
                index,
            } => self.show(request.0, index, self.bufs[from.0 as usize]),
            Effect::ZeroOut {
                request,
                first,
                blocks,
            } => (first..first + blocks).for_each(|i| self.show(request.0, i, Content::ZERO)),
            Effect::Release { buf } => self.free.push(buf.0),
            Effect::Stored { buf, part } => self.stored(buf, part),
            Effect::GivenUp { page } => self.given_up(page),
            Effect::Stopped => {}
            Effect::WriteData { id, at, blocks } => {
                for (buf, place, _) in self.engine.chunk_places(id) {
                    self.medium[place.0 as usize] = self.bufs[buf.0 as usize];
                }
                let tag = self.fly(id, Flight::Plain);
                self.backing.write(io, tag, at, blocks, false);
            }
            Effect::GatherPart { id, at, slot, to } => self.gather_part(io, id, (at, slot), to),
        }
    }

    /// Remembers what is to be done when an effect is done, which the tag will tell.
    pub(super) fn fly(&mut self, id: EffectId, flight: Flight) -> Tag {
        let index = id.0 as usize;
        if index >= self.flights.len() {
            self.flights.resize(index + 1, Flight::None);
        }
        self.flights[index] = flight;
        Tag::Effect(id.0)
    }
}
