//! Starts the core's effects on the backing: the lab as a host of the core.

use super::Vellum;
use super::flight::Flight;
use super::hashing::is_answered;
use crate::base::Io;
use crate::content::Content;
use crate::flash::Stream;
use crate::timeline::Tag;
use vellum_core::addr::{BLOCK_BYTES, Buf, EffectId, Pba, RequestId, Vba};
use vellum_core::driver::{Extent, Host, Parts, Serves, To};
use vellum_core::entry::PartId;
use vellum_core::layout::Core;
use vellum_core::seam::{Against, Effect, Outcome, Reply};

impl Host<Io<'_>> for Vellum {
    type Done = ();

    fn write_chunk(&mut self, io: &mut Io<'_>, id: EffectId, to: Extent, durable: bool) {
        match self.compress {
            // The header's bytes are not made: nothing here is ever damaged, so no header is read.
            false => {
                let first = to.at.0 as usize + 1;
                let blocks = self.medium[first..].iter_mut();
                let bufs = self.core.as_log().map(|log| log.chunk_bufs(id));
                for (block, buf) in blocks.zip(bufs.into_iter().flatten()) {
                    *block = self.bufs[buf.0 as usize];
                }
            }
            true => self.write_parts(id, to.at, to.blocks),
        }
        let stream = self.stream_of_chunk(id, to.at);
        let tag = self.fly(id, Flight::Plain);
        self.backing.write(io, tag, to, durable, stream);
    }

    fn write_data(&mut self, io: &mut Io<'_>, id: EffectId, to: Extent) {
        for (buf, place, _) in self.core.chunk_places(id) {
            self.medium[place.0 as usize] = self.bufs[buf.0 as usize];
        }
        let tag = self.fly(id, Flight::Plain);
        self.backing.write(io, tag, to, false, Stream::default());
    }

    fn write_meta(&mut self, io: &mut Io<'_>, id: EffectId, to: Extent, durable: bool) {
        self.bytes.resize(to.blocks as usize * BLOCK_BYTES, 0);
        self.core.encode(id, &mut self.bytes);
        self.summaries.keep(to.at, &self.bytes, &self.medium);
        let heads = self.heads.as_ref();
        let stream = heads.map_or(Stream::default(), |heads| heads.of_meta(to.at));
        let tag = self.fly(id, Flight::Plain);
        self.backing.write(io, tag, to, durable, stream);
    }

    fn sync(&mut self, io: &mut Io<'_>, id: EffectId) {
        let tag = self.fly(id, Flight::Plain);
        self.backing.sync(io, tag);
    }

    fn erase(&mut self, io: &mut Io<'_>, id: EffectId, what: Extent) {
        let tag = self.fly(id, Flight::Erase { at: what.at });
        self.backing.erase(io, tag, what.at, what.blocks);
    }

    fn read(&mut self, io: &mut Io<'_>, id: EffectId, from: Extent, to: To) {
        let tag = self.fly(id, Flight::Read { from, to });
        self.backing.read(io, tag, from.at, from.blocks);
    }

    fn read_parts(&mut self, io: &mut Io<'_>, id: EffectId, parts: Parts, to: To) {
        self.start_parts(io, id, parts, to);
    }

    fn read_meta(&mut self, io: &mut Io<'_>, id: EffectId, from: Extent) {
        let tag = self.fly(id, Flight::Meta(from));
        self.backing.read(io, tag, from.at, from.blocks);
    }

    fn compare(&mut self, io: &mut Io<'_>, id: EffectId, buf: Buf, with: Against) {
        self.start_compare(io, id, buf, with);
    }

    fn fingerprint(&mut self, io: &mut Io<'_>, id: EffectId, buf: Buf) {
        let tag = self.fly(id, Flight::Print(self.bufs[buf.0 as usize]));
        self.print(io, tag);
    }

    fn copy_out(&mut self, _: &mut Io<'_>, from: Buf, request: RequestId, index: u32) {
        self.show(request.0, index, self.bufs[from.0 as usize]);
    }

    fn zero_out(&mut self, _: &mut Io<'_>, request: RequestId, first: u32, blocks: u32) {
        (first..first + blocks).for_each(|index| self.show(request.0, index, Content::ZERO));
    }

    fn stored(&mut self, _: &mut Io<'_>, buf: Buf, part: PartId) {
        if let Some(bases) = &mut self.bases {
            bases.known.stored(part, buf, || self.bufs[buf.0 as usize]);
        }
    }

    fn given_up(&mut self, _: &mut Io<'_>, page: Vba) {
        if let Some(bases) = &mut self.bases {
            bases.known.given_up(page);
        }
    }

    fn release(&mut self, _: &mut Io<'_>, buf: Buf) {
        self.free.push(buf.0);
    }

    fn stopped(&mut self, _: &mut Io<'_>) {}
}

impl Vellum {
    /// Returns where a chunk that is written at `at` belongs.
    fn stream_of_chunk(&mut self, id: EffectId, at: Pba) -> Stream {
        match (&mut self.heads, self.core.as_log()) {
            (Some(heads), Some(log)) => heads.of_chunk(at, log.chunk_is_cold(id)),
            _ => Stream::default(),
        }
    }

    /// Keeps what an effect needs when it completes; the tag names the effect.
    pub(super) fn fly(&mut self, id: EffectId, flight: Flight) -> Tag {
        let index = id.0 as usize;
        if index >= self.flights.len() {
            self.flights.resize(index + 1, Flight::None);
        }
        self.flights[index] = flight;
        Tag::Effect(id.0)
    }
}

impl Serves<Io<'_>> for Vellum {
    fn core(&mut self) -> &mut Core {
        &mut self.core
    }

    fn allows(&self, _: &Effect) -> bool {
        true
    }

    fn next_ended(&mut self) -> Option<(EffectId, Outcome<'static>)> {
        None
    }

    fn started_all(&mut self, _: &mut Io<'_>) {}

    fn reply(&mut self, io: &mut Io<'_>, reply: Reply) {
        let (id, is_ok) = (reply.id.0, reply.result.is_ok());
        self.has_ended(io.time.now(), id, is_ok);
        if self.services.take_answer(id, is_ok) || self.take_drop(id, is_ok) {
            return;
        }
        if let Some(shadow) = &mut self.shadow {
            shadow.check(id, is_ok);
        }
        // A request that was answered earlier is not answered again, unless it failed.
        if !is_answered(id) || !is_ok {
            self.answers.push_back((id, reply.result));
        }
    }
}
