//! The superblock of a running volume, and its mirrors on the medium.
//!
//! Readers that need the place of something use it as a [`Superblock`]. A change in it is written to both mirrors, or to one if
//! that is enough, before it is reported; nothing else changes it.

mod jobs;

use crate::addr::{Generation, Pba, RequestId};
use crate::format::{Crc, superblock::Superblock};
use crate::seam::PropertiesChange;
use alloc::vec::Vec;
use core::ops::Deref;
pub(crate) use jobs::Ended;
use jobs::Mirrors;

/// The superblock of a running volume.
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
    /// A superblock whose mirrors are up to date.
    pub fn new(superblock: Superblock, crc: Crc) -> Self {
        Self {
            superblock,
            crc,
            mirrors: Mirrors::default(),
        }
    }

    /// Computes the sums of the volume's own blocks.
    #[inline]
    pub fn crc(&self) -> Crc {
        self.crc
    }

    /// Notes that this root exists, and makes a mirror record it.
    pub fn mark_root(&mut self, generation: Generation) {
        self.set_root(generation);
        self.mark();
    }

    /// Notes that this root exists; [`mark`](Self::mark) has been called already, and will record it.
    pub fn set_root(&mut self, generation: Generation) {
        self.superblock.mark_root(generation);
    }

    /// Notes that this life ends here, and has a mirror record it.
    pub fn mark_stop(&mut self) {
        self.superblock.mark_stop();
        self.mark();
    }

    /// Has a mirror written with what has changed.
    pub fn mark(&mut self) {
        self.mirrors.mark();
    }

    /// Requests a change of the properties.
    pub fn change(&mut self, id: RequestId, change: PropertiesChange<'_>) {
        self.mirrors.change(id, change);
    }

    /// Requests that one of the mirrors is written as it is.
    pub fn write_anew(&mut self, index: usize) {
        self.mirrors.write_anew(index);
    }

    /// Begins the next write if none is in flight. Returns where to write.
    pub fn begin_write(&mut self) -> Option<Pba> {
        self.mirrors.begin(&mut self.superblock)
    }

    /// Encodes what has to be written there.
    pub fn encode(&self, out: &mut [u8]) {
        self.superblock.encode(self.crc, out);
    }

    /// Notes that the write begun last is durable.
    pub fn on_written(&mut self) -> Ended {
        self.mirrors.written()
    }

    /// True if nothing is to be written, and nothing is in flight.
    pub fn is_written(&self) -> bool {
        self.mirrors.are_idle()
    }

    /// Returns all requests that wait for a change of properties. The caller refuses them, because nobody knows if it is durable.
    pub fn refuse(&mut self) -> Vec<RequestId> {
        self.mirrors.refuse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::BLOCK_BYTES;
    use crate::format::geometry::{self, SMALL};
    use crate::format::properties::{Properties, Value};

    fn some() -> Mirrored {
        Mirrored::new(geometry::plan(&SMALL).unwrap(), |bytes| {
            bytes.iter().map(|byte| u32::from(*byte)).sum()
        })
    }

    #[test]
    fn the_first_mirror_is_written_with_the_mark() {
        let mut superblock = some();
        assert!(superblock.is_written() && superblock.begin_write().is_none());
        let mut before = [0; BLOCK_BYTES];
        superblock.encode(&mut before);
        superblock.mark_root(Generation(9));
        assert!(!superblock.is_written());
        let [first, _] = superblock.mirrors();
        assert_eq!(superblock.begin_write(), Some(first));
        assert_eq!(superblock.begin_write(), None, "one mirror at a time");
        let mut marked = [0; BLOCK_BYTES];
        superblock.encode(&mut marked);
        assert_ne!(before, marked);
        assert_eq!(superblock.on_written(), Ended::Mark);
        assert!(superblock.is_written());
    }

    #[test]
    fn both_mirrors_have_new_properties_before_the_reply() {
        let mut superblock = some();
        let properties = superblock.properties().clone();
        superblock.change(RequestId(4), PropertiesChange::All(&properties));
        let [first, last] = superblock.mirrors();
        assert_eq!(superblock.begin_write(), Some(last));
        assert_eq!(superblock.on_written(), Ended::Half);
        assert_eq!(superblock.begin_write(), Some(first));
        let told = Ended::Properties(Some(RequestId(4)));
        assert_eq!(superblock.on_written(), told);
        assert!(superblock.is_written() && superblock.refuse().is_empty());
    }

    /// Properties that were requested before are not lost, although no mirror has them yet.
    #[test]
    fn the_first_clone_undoes_no_change() {
        let mut superblock = some();
        let mut chosen = Properties::default();
        chosen.set("label", Some(Value::text("x"))).unwrap();
        superblock.change(RequestId(4), PropertiesChange::All(&chosen));
        superblock.change(RequestId(5), PropertiesChange::HasClones);
        for id in [4, 5] {
            superblock.begin_write();
            assert_eq!(superblock.on_written(), Ended::Half);
            superblock.begin_write();
            let told = Ended::Properties(Some(RequestId(id)));
            assert_eq!(superblock.on_written(), told);
            assert_eq!(superblock.properties().has_clones(), id == 5);
            assert_eq!(superblock.properties().get("label"), chosen.get("label"));
        }
        assert!(superblock.is_written());
    }

    #[test]
    fn a_refused_request_gets_no_later_reply() {
        let mut superblock = some();
        let properties = superblock.properties().clone();
        superblock.change(RequestId(4), PropertiesChange::All(&properties));
        superblock.begin_write();
        superblock.change(RequestId(5), PropertiesChange::All(&properties));
        assert_eq!(superblock.refuse(), [RequestId(4), RequestId(5)]);
        assert_eq!(superblock.on_written(), Ended::Half);
        superblock.begin_write();
        assert_eq!(superblock.on_written(), Ended::Properties(None));
    }
}
