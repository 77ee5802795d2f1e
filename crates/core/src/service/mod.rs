//! Background work, as small state machines without I/O. A machine decides what to do next and how fast, and knows how far it is. The
//! host carries out the steps and reports the results, so each machine can be tested alone.
//!
//! Machines that look through everything stored are [`Machine`]s: their host carries out each [`Step`] and reports. They query the volume
//! themselves ([`Answers`]), a bounded amount at a time, so the host's lock is never held for long.

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
use crate::format::pack::{PageOfParts, PartTag};
use crate::format::summary::Tag;
use crate::index::Holder;
use alloc::vec::Vec;
use core::ops::Range;
use pace::Around;

/// What a machine's host should do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Call again at this time, or when the surroundings have changed.
    Wait(Nanos),
    /// Let the machine query the volume: [`Machine::ask`].
    Ask,
    /// Read these blocks of the medium, and report: [`Machine::read`].
    Read {
        /// The first.
        at: Pba,
        /// How many.
        blocks: u32,
    },
    /// The walk found something: [`Walk::found`](walk::Walk::found).
    Found,
    /// Read these blocks by `Service::ReadToFold`, encode them, pass them on by `Service::Fold`, and report:
    /// [`Fold::folded`](fold::Fold::folded).
    Fold {
        /// The first.
        lba: Lba,
        /// How many.
        blocks: u32,
    },
    /// Give the core a pair by `Service::Merge`, and then report the result: [`Sweep::merged`](sweep::Sweep::merged).
    Merge {
        /// The one block.
        lba: Lba,
        /// The holder of the other.
        of: Holder,
    },
    /// Report the progress to the core, by `Service::Swept`.
    Keep {
        /// All lower checksums are done.
        to: u32,
        /// True if a map checkpoint should record it soon.
        keep: bool,
    },
    /// The machine has ended; true if it finished its work.
    End(bool),
}

/// What was read.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// The read failed.
    Nothing,
    /// The blocks' bytes.
    Bytes(&'a [u8]),
    /// The contents of pages' directories, for a host that has no bytes; empty for a page that is not there.
    Directories(&'a [Vec<PartTag>]),
}

/// A machine that looks through everything stored.
pub trait Machine {
    /// Returns what to do next.
    fn next(&mut self, now: Nanos, around: &Around) -> Step;
    /// Carries out [`Step::Ask`].
    fn ask(&mut self, volume: &impl Answers);
    /// Takes the result of [`Step::Read`].
    fn read(&mut self, seen: Seen<'_>);
    /// Returns how much is done, in thousandths.
    fn permille(&self) -> u64;
}

/// The queries that a machine makes of the volume. Any answer may be out of date by the next step: the machine only proposes.
pub trait Answers {
    /// Returns the tags of a segment whose summary is not on the medium yet.
    fn unsummarised(&self, segment: Segment) -> Option<&[Tag]>;
    /// Returns the pages of parts among the blocks from `at` on, by their tags, that have owners, but at most `most_owners`.
    fn pages_of_parts(&self, at: Pba, tags: &[Tag], most_owners: u32, out: &mut Vec<PageOfParts>);
    /// Returns how many owners a page of parts has, if it is worth folding: few are left of the `made_with` parts it was made with.
    fn sparse_page(&self, vba: Vba, at: Pba, made_with: usize) -> Option<u32>;
    /// Returns the LBAs that can be folded, and whose parts are in pages that `wanted` accepts.
    fn foldable_in(
        &self,
        lbas: Range<u64>,
        wanted: impl Fn(Vba) -> bool,
        out: &mut Vec<(PartId, Lba)>,
    );
    /// True if no request waits, and there is room to spare.
    fn has_room_to_fold(&self) -> bool;
    /// Returns how many blocks, and parts of pages, are stored.
    fn stored(&self) -> u64;
    /// Returns the blocks from `at` on that have an owner, and their checksums, by their segment's tags.
    fn contents(&self, at: Pba, tags: &[Tag], out: &mut Vec<(Holder, u32)>);
    /// Returns the parts of the page at `at` that their LBA still owns, and their checksums.
    fn parts(&self, at: Pba, parts: &[PartTag], out: &mut Vec<(Holder, u32)>);
    /// Returns the LBAs that own one of the shared pages that `wanted` names.
    fn owners_in(&self, lbas: Range<u64>, wanted: impl Fn(Vba) -> bool, out: &mut Vec<(Lba, Vba)>);
}
