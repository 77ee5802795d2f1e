//! What is in flight, and the bytes that are written.

use super::{Pending, Tables};
use crate::addr::{Buf, EffectId, Pba};
use crate::format::table::Kind;
use crate::seam::Effect;

impl Tables {
    /// The buffers of a data write, in the order of its blocks.
    pub fn data_bufs(&self, id: EffectId) -> impl Iterator<Item = Buf> + '_ {
        let bufs: &[Buf] = match self.front.outbox.get(id) {
            Some(Pending::Data { bufs, .. }) => bufs,
            _ => &[],
        };
        bufs.iter().copied()
    }

    /// The buffers of a data write, each with its place.
    pub fn data_places(&self, id: EffectId) -> impl Iterator<Item = (Buf, Pba)> + '_ {
        let first = match self.front.outbox.get(id) {
            Some(Pending::Data { first, .. }) => *first,
            _ => 0,
        };
        let areas = self.superblock.areas();
        (first..)
            .zip(self.data_bufs(id))
            .map(move |(index, buf)| (buf, areas.data(index)))
    }

    /// Encodes the bytes of an [`Effect::WriteMeta`], as of now.
    pub fn encode(&mut self, id: EffectId, out: &mut [u8]) {
        match self.front.outbox.get(id) {
            Some(Pending::Table(kind, block)) => {
                let (kind, block) = (*kind, *block);
                self.encode_table(kind, block, out);
                self.note_table(kind, block, out);
            }
            Some(Pending::MapTwin(block)) => self.encode_table(Kind::Map, *block, out),
            Some(Pending::Directory(block) | Pending::DirectoryTwin(block)) => {
                let block = *block;
                self.encode_directory(block, out);
            }
            Some(Pending::Root | Pending::RootCopy(_)) => self.encode_root(out),
            Some(Pending::VoidRoot(_)) => out.fill(0),
            Some(Pending::Mirror(_)) => self.encode_mirror(out),
            _ => unreachable!("effect {id} writes no metadata"),
        }
    }

    fn encode_table(&self, kind: Kind, block: u32, out: &mut [u8]) {
        let number = self.superblock.table_number(kind, block);
        let signer = &self.signer;
        match kind {
            Kind::Map => self.map.encode(block, number, signer, out),
            Kind::Counts => self.blocks.encode_counts(block, number, signer, out),
            Kind::Prints => self.prints.encode(block, number, signer, out),
            Kind::Editions => self.map.encode_editions(block, number, signer, out),
        }
    }

    /// Starts a write of the lower half.
    pub(super) fn start_write(&mut self, pending: Pending) {
        let id = self.front.begin(pending);
        let effect = self.write_effect(id);
        self.groups.on_write();
        self.front.tell(effect);
    }

    pub(super) fn write_effect(&self, id: EffectId) -> Effect {
        let durable = false;
        let (at, blocks) = match self.front.outbox.get(id) {
            Some(Pending::Data { first, bufs, .. }) => {
                return Effect::WriteData {
                    id,
                    at: self.superblock.areas().data(*first),
                    blocks: bufs.len() as u32,
                };
            }
            Some(Pending::Table(kind, block)) => (self.table_place(*kind, *block), 1),
            Some(Pending::MapTwin(block)) => (self.map_twin_place(*block), 1),
            Some(Pending::Directory(block)) => (self.directory_place(*block), 1),
            Some(Pending::DirectoryTwin(block)) => (self.directory_twin_place(*block), 1),
            Some(Pending::RootCopy(at)) => {
                let blocks = self.superblock.shadow_root_blocks() as u32;
                return Effect::WriteMeta {
                    id,
                    at: *at,
                    blocks,
                    durable: true,
                };
            }
            Some(Pending::VoidRoot(at) | Pending::Mirror(at)) => {
                return Effect::WriteMeta {
                    id,
                    at: *at,
                    blocks: 1,
                    durable: true,
                };
            }
            Some(Pending::Root) => {
                let blocks = 2 * self.superblock.shadow_root_blocks() as u32;
                return Effect::WriteMeta {
                    id,
                    at: self.root_place(),
                    blocks,
                    durable: true,
                };
            }
            _ => unreachable!("effect {id} is a write"),
        };
        Effect::WriteMeta {
            id,
            at,
            blocks,
            durable,
        }
    }
}
