//! Background work, as small machines without I/O: what to do next, how fast, and where it is. Who carries it out tells what came of
//! it, so that each is tried out alone.
//!
//! Machines that look through all that is stored are [`Machine`]s: their host does each [`Step`] and tells. What they have to know of the
//! volume they ask it themselves ([`Answers`]), a bounded question at a time, so that the host's lock is never held for long.

pub mod copies;
#[cfg(test)]
mod fake;
pub mod fold;
pub mod pace;
pub mod running;
pub mod scrub;
pub mod sweep;
pub mod walk;

use crate::addr::{Lba, Nanos, Pba, Segment, Vba};
use crate::entry::PartId;
use crate::format::pack::PartTag;
use crate::format::summary::Tag;
use crate::index::Holder;
use alloc::vec::Vec;
use core::ops::Range;
use pace::Around;

/// What a machine's host is to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask again at this time, or when something around has changed.
    Wait(Nanos),
    /// Let it ask the volume: [`Machine::ask`].
    Ask,
    /// Read so many blocks of the medium, and tell: [`Machine::read`].
    Read {
        /// The first.
        at: Pba,
        /// How many.
        blocks: u32,
    },
    /// Something was found: [`Walk::found`](walk::Walk::found).
    Found,
    /// Read these by `Service::ReadToFold`, encode them, hand them over by `Service::Fold`, and tell:
    /// [`Fold::folded`](fold::Fold::folded).
    Fold {
        /// The first.
        lba: Lba,
        /// How many.
        blocks: u32,
    },
    /// Tell the core of a pair by `Service::Merge`, and then what came of it: [`Sweep::merged`](sweep::Sweep::merged).
    Merge {
        /// One.
        lba: Lba,
        /// Who has the other.
        of: Holder,
    },
    /// Tell the core how far it is, by `Service::Swept`.
    Keep {
        /// All checksums that are less have been seen to.
        to: u32,
        /// Whether the map checkpoint is to say so soon.
        keep: bool,
    },
    /// It is over; whether it came to its end.
    End(bool),
}

/// What was read.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// It cannot be read.
    Nothing,
    /// The blocks' bytes.
    Bytes(&'a [u8]),
    /// Of pages of parts, what their directories say: for a host that has no bytes. Nothing is in one that is not there.
    Directories(&'a [Vec<PartTag>]),
}

/// A machine that looks through what is stored.
pub trait Machine {
    /// What to do next.
    fn next(&mut self, now: Nanos, around: &Around) -> Step;
    /// At [`Step::Ask`].
    fn ask(&mut self, volume: &impl Answers);
    /// At [`Step::Read`].
    fn read(&mut self, seen: Seen<'_>);
    /// How much is done, in thousandths.
    fn permille(&self) -> u64;
}

/// What a machine asks the volume. All of it may be out of date by the next step: it proposes.
pub trait Answers {
    /// The tags of a segment whose summary is not on the medium yet.
    fn unsummarised(&self, segment: Segment) -> Option<&[Tag]>;
    /// Of the blocks from `at` on, by their tags, the pages of parts that have owners, but no more than `most_owners`; and their sums.
    fn pages_of_parts(&self, at: Pba, tags: &[Tag], most_owners: u32, out: &mut Vec<(Pba, u32)>);
    /// See `Engine::sparse_page`.
    fn sparse_page(&self, at: Pba, made_with: usize) -> Option<(Vba, u32)>;
    /// See `Engine::foldable_in`.
    fn foldable_in(
        &self,
        lbas: Range<u64>,
        wanted: impl Fn(Vba) -> bool,
        out: &mut Vec<(PartId, Lba)>,
    );
    /// See `Engine::has_room_to_fold`.
    fn has_room_to_fold(&self) -> bool;
    /// How many blocks, and parts of pages, are stored.
    fn stored(&self) -> u64;
    /// See `Engine::contents`.
    fn contents(&self, at: Pba, tags: &[Tag], out: &mut Vec<(Holder, u32)>);
    /// See `Engine::parts`.
    fn parts(&self, at: Pba, parts: &[PartTag], out: &mut Vec<(Holder, u32)>);
    /// See `Engine::owners_in`.
    fn owners_in(&self, lbas: Range<u64>, wanted: impl Fn(Vba) -> bool, out: &mut Vec<(Lba, Vba)>);
}
