//! The superblock of a volume that runs, and its mirrors on the medium.
//!
//! Whoever wants to know where something is reads it as a [`Superblock`]. What changes in it is written to both mirrors, or to
//! one if that is enough, before anybody is told: nothing else changes it.

mod jobs;

use crate::addr::{Generation, Pba, RequestId};
use crate::format::properties::Properties;
use crate::format::{Crc, superblock::Superblock};
use alloc::vec::Vec;
use core::ops::Deref;
pub(crate) use jobs::Ended;
use jobs::Mirrors;

/// See the module.
pub(crate) struct Mirrored {
    superblock: Superblock,
    crc: Crc,
    mirrors: Mirrors,
}

impl Deref for Mirrored {
    type Target = Superblock;

    #[inline]
    fn deref(&self) -> &Superblock {
        &self.superblock
    }
}

impl Mirrored {
    /// One whose mirrors are as it is.
    pub fn new(superblock: Superblock, crc: Crc) -> Self {
        Self {
            superblock,
            crc,
            mirrors: Mirrors::default(),
        }
    }

    /// What sums of the volume's own blocks are made with.
    #[inline]
    pub fn crc(&self) -> Crc {
        self.crc
    }

    /// There is this root: a mirror is to say so.
    pub fn mark_root(&mut self, generation: Generation) {
        self.set_root(generation);
        self.mark();
    }

    /// There is this root; [`mark`](Self::mark) has been asked for, and this is what it says.
    pub fn set_root(&mut self, generation: Generation) {
        self.superblock.mark_root(generation);
    }

    /// The volume is as this life leaves it: a mirror is to say so.
    pub fn mark_stop(&mut self) {
        self.superblock.mark_stop();
        self.mark();
    }

    /// A mirror is to be written with what has changed.
    pub fn mark(&mut self) {
        self.mirrors.mark();
    }

    /// Asks for other properties.
    pub fn change(&mut self, id: RequestId, properties: Properties) {
        self.mirrors.change(id, properties);
    }

    /// Asks for one of the mirrors to be written as it is.
    pub fn write_anew(&mut self, index: usize) {
        self.mirrors.write_anew(index);
    }

    /// Begins the next write if none is under way: where.
    pub fn begin_write(&mut self) -> Option<Pba> {
        self.mirrors.begin(&mut self.superblock)
    }

    /// What is to be written there.
    pub fn encode(&self, out: &mut [u8]) {
        self.superblock.encode(self.crc, out);
    }

    /// The write that was begun last is durable.
    pub fn on_written(&mut self) -> Ended {
        self.mirrors.written()
    }

    /// Whether nothing is to be written, and nothing under way.
    pub fn is_written(&self) -> bool {
        self.mirrors.are_idle()
    }

    /// Everyone who waits for other properties, to be told that these are not known to be durable.
    pub fn refuse(&mut self) -> Vec<RequestId> {
        self.mirrors.refuse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::BLOCK_BYTES;
    use crate::format::geometry::{self, Params};

    fn some() -> Mirrored {
        let params = Params {
            medium_blocks: 1 << 14,
            logical_blocks: None,
            over_provisioning: 70,
            segment_blocks: Some(256),
            uuid: [1; 16],
            secret: [2; 32],
            sums: crate::format::SumKind::default(),
        };
        Mirrored::new(geometry::plan(&params).unwrap(), |bytes| {
            bytes.iter().map(|byte| u32::from(*byte)).sum()
        })
    }

    #[test]
    fn a_mark_is_in_what_is_written_to_the_first_mirror() {
        let mut superblock = some();
        assert!(superblock.is_written() && superblock.begin_write().is_none());
        let mut before = [0; BLOCK_BYTES];
        superblock.encode(&mut before);
        superblock.mark_root(Generation(9));
        assert!(!superblock.is_written());
        let [first, _] = superblock.mirrors();
        assert_eq!(superblock.begin_write(), Some(first));
        assert_eq!(superblock.begin_write(), None, "one at a time");
        let mut marked = [0; BLOCK_BYTES];
        superblock.encode(&mut marked);
        assert_ne!(before, marked);
        assert_eq!(superblock.on_written(), Ended::Mark);
        assert!(superblock.is_written());
    }

    #[test]
    fn properties_are_changed_in_both_before_anybody_is_told() {
        let mut superblock = some();
        let properties = superblock.properties().clone();
        superblock.change(RequestId(4), properties);
        let [first, last] = superblock.mirrors();
        assert_eq!(superblock.begin_write(), Some(last));
        assert_eq!(superblock.on_written(), Ended::Half);
        assert_eq!(superblock.begin_write(), Some(first));
        let told = Ended::Properties(Some(RequestId(4)));
        assert_eq!(superblock.on_written(), told);
        assert!(superblock.is_written() && superblock.refuse().is_empty());
    }

    #[test]
    fn who_is_refused_is_not_told_later() {
        let mut superblock = some();
        let properties = superblock.properties().clone();
        superblock.change(RequestId(4), properties.clone());
        superblock.begin_write();
        superblock.change(RequestId(5), properties);
        assert_eq!(superblock.refuse(), [RequestId(4), RequestId(5)]);
        assert_eq!(superblock.on_written(), Ended::Half);
        superblock.begin_write();
        assert_eq!(superblock.on_written(), Ended::Properties(None));
    }
}
