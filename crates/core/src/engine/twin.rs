//! A block that is stored already: proposed, compared, and mapped as a second owner of its page.
//!
//! Policies propose: the journal's pool ([`once`](crate::policy::once)) and the index of contents ([`dedup`](super::dedup)).
//! None is trusted: the runtime compares all bytes (promise 4). A block whose comparison is in flight keeps its place in the
//! queue of writes: nothing overtakes it.

use super::parked::Unsure;
use super::verdict::{Twin, Verdict};
use super::{Engine, Pending};
use crate::addr::{Buf, Lba, Pba, RequestId, Segment, Vba};
use crate::entry::{Entry, PartId};
use crate::format::chunk::Record;
use crate::front::{Noted, refuse};
use crate::index::Holder;
use crate::log::{Head, Held, locate};
use crate::policy::{Answer, Proposer};
use crate::seam::{Against, Effect, Outcome, PagePlace, Payload};
use crate::state::Place;
use alloc::vec::Vec;

/// What happened to a block with a twin.
pub(super) enum Sharing {
    /// It is, or already was, an owner of the twin's page.
    Done,
    /// Not now.
    Wait,
    /// The twin is no longer what was compared: the block has to be written.
    No,
}

/// What a comparison has shown.
enum Compared {
    /// The twin is equal, as far as bytes can tell.
    Equal,
    Other,
    /// Equal to what was read from `page`. That is shared only if `sum` is the page's checksum.
    EqualOnMedium {
        page: Pba,
        sum: u32,
    },
    Corrupt,
    Unreadable,
}

impl Engine {
    /// True if a home write probably repeats a block of the journal, and will be remapped: then it need not be encoded. When the write
    /// arrives the bytes still decide; if they differ, the block is stored whole.
    #[must_use]
    pub fn expects_remap(&self, lba: Lba, payload: &Payload) -> bool {
        self.proposers.once().expects(lba, payload)
    }

    /// Starts a comparison for each block of a write that may be stored already. Returns an empty list if no block may be.
    pub(super) fn ask(&mut self, request: RequestId, lba: Lba, blocks: &[Payload]) -> Vec<Verdict> {
        let held = u64::from(self.front.outbox.buffers() - self.log.clients_on_their_way());
        let full = self.options.write_buffers;
        self.proposers.begin(blocks, held, full, &mut self.stats);
        Verdict::ask_for(blocks, |index, payload| {
            if self.placing.zero.takes(payload) {
                return None;
            }
            let at = lba.plus(index as u64);
            let (by, of) = self.propose(at, index, payload)?;
            let Some(place) = self.state.place_of(self.entry_of(of)) else {
                self.proposers.refuted(by, &mut self.stats);
                return None;
            };
            let print = self.decisive_print(by, of);
            let twin = Twin {
                by,
                of,
                place,
                uses: self.uses_at(place.pba),
                absorptions: self.log.absorptions_at(place.pba, place.slot),
                print,
            };
            match print {
                Some(_) => self.ask_fingerprint(request, index as u32, payload.buf),
                None => self.compare(request, index as u32, payload.buf, twin),
            }
            Some(twin)
        })
    }

    /// Returns a proposed holder of the content to be written at `lba`, and its proposer.
    fn propose(&mut self, lba: Lba, index: usize, payload: &Payload) -> Option<(Proposer, Holder)> {
        if let Some((index, journal)) = self.propose_pledged(lba) {
            return Some((Proposer::Journal(index), Holder::Lba(journal)));
        }
        let (by, of) = self
            .proposers
            .propose(lba, index, payload, &mut self.stats)?;
        self.is_sound(by, of, payload).then_some((by, of))
    }

    /// True unless a proposal is known to be of no use before anything is read. Otherwise its proposer forgets it.
    fn is_sound(&mut self, by: Proposer, of: Holder, payload: &Payload) -> bool {
        // Whether journals pay off, write-once learns from comparisons alone.
        if matches!(by, Proposer::Journal(_)) {
            return true;
        }
        if let Holder::Lba(lba) = of
            && (lba.0 >= self.state.map().blocks() || self.proposers.dedup().is_critical(lba))
        {
            self.proposers.forget(by);
            return false;
        }
        // Checks the block on the medium, if its checksum is in memory: a content that has changed needs no read.
        if let Some(pba) = self.state.physical(self.entry_of(of))
            && !self.log.holds(pba)
        {
            let (segment, offset) = locate(&self.superblock, pba);
            let sum = self.sums.sum(segment, offset);
            if sum.is_some_and(|sum| sum != payload.digest.sum) {
                self.proposers.refuted(by, &mut self.stats);
                return false;
            }
        }
        true
    }

    /// Compares a block to be written with its twin, in memory or on the medium.
    fn compare(&mut self, request: RequestId, index: u32, buf: Buf, twin: Twin) {
        let Place { pba, slot } = twin.place;
        let held = self.log.held(pba, slot);
        let (base, base_at) = match self.entry_of(twin.of) {
            Entry::Packed(page, slot) if !matches!(held, Some(Held::Block(_))) => {
                self.base_of(PartId { page, slot })
            }
            _ => (None, None),
        };
        if let Some(at) = base_at {
            self.begin_base(at);
        }
        let part = |page| Against::Part(page, slot.unwrap_or_default(), base);
        let with = match (held, slot) {
            (Some(Held::Block(buf)), _) => Against::Buffer(buf),
            (Some(Held::Page(buf)), _) => part(PagePlace::Buffer(buf)),
            (None, None) => Against::Medium(pba),
            (None, Some(_)) => part(PagePlace::Medium(pba)),
        };
        let reads = held.is_none();
        if reads {
            self.stats.compare_reads += 1;
            let (segment, _) = locate(&self.superblock, pba);
            self.segments.begin_reader(segment);
            if slot.is_some() {
                self.want_sums(segment);
            }
        }
        let pending = Pending::Compare {
            request,
            index,
            reads: reads.then_some(pba),
            base: base_at,
        };
        self.front
            .ask(pending, |id| Effect::Compare { id, buf, with });
    }

    /// Handles the end of a comparison. Unless the twin is equal the block is written, so nothing is lost. `read`: the page that was read.
    pub(super) fn compared(
        &mut self,
        request: RequestId,
        index: u32,
        read: Option<Pba>,
        outcome: Outcome<'_>,
    ) {
        if let Some(page) = read {
            self.segments.end_reader(locate(&self.superblock, page).0);
        }
        match self.finding(request, index, read, outcome) {
            Compared::Equal => self.equal(request, index),
            Compared::Other => self.answered(request, index, Answer::Other),
            Compared::EqualOnMedium { page, sum } => self.check_page(Unsure {
                request,
                index,
                page,
                sum,
            }),
            Compared::Corrupt => {
                self.stats.corrupt_blocks += 1;
                self.answered(request, index, Answer::Damaged);
            }
            Compared::Unreadable => {
                self.stats.unreadable_blocks += 1;
                self.answered(request, index, Answer::Damaged);
            }
        }
    }

    fn finding(
        &mut self,
        request: RequestId,
        index: u32,
        read: Option<Pba>,
        outcome: Outcome<'_>,
    ) -> Compared {
        match (outcome, read) {
            (Outcome::Same(false), _) => Compared::Other,
            (Outcome::Same(true), None) => Compared::Equal,
            (Outcome::Same(true), Some(page)) => match self.front.queue.asked(request, index) {
                // The bytes that were read are the block's, and so their checksum is the block's.
                Some((twin, payload)) if twin.place.slot.is_none() => Compared::EqualOnMedium {
                    page,
                    sum: payload.digest.sum,
                },
                // A part was compared with its copy in memory: nothing was read.
                _ => Compared::Equal,
            },
            // The delta's base is damaged.
            (Outcome::Parts { base: false, .. }, Some(_)) => Compared::Corrupt,
            // The page is damaged, or holds another block: only its checksum shows which.
            (
                Outcome::Parts {
                    whole: false, sum, ..
                },
                Some(page),
            ) => match self.is_damaged(page, sum) {
                true => Compared::Corrupt,
                false => Compared::Other,
            },
            (Outcome::Parts { sum, .. }, Some(page)) => Compared::EqualOnMedium { page, sum },
            _ => Compared::Unreadable,
        }
    }

    /// Handles a block that equals its twin; where fingerprints decide, the page learns its fingerprint.
    fn equal(&mut self, request: RequestId, index: u32) {
        match self.front.queue.asked(request, index) {
            Some((twin, payload))
                if twin.place.slot.is_none() && self.goes_by_fingerprint(twin.by) =>
            {
                self.ask_fingerprint(request, index, payload.buf);
            }
            _ => self.answered(request, index, Answer::Same(None)),
        }
    }

    /// True if a page that was read with this checksum is known not to be what was written.
    fn is_damaged(&mut self, page: Pba, sum: u32) -> bool {
        let (segment, offset) = locate(&self.superblock, page);
        let expected = self.sums.sum(segment, offset);
        expected.is_some_and(|expected| expected != sum)
    }

    /// Verifies a page after all of its bytes, or those of a part, compared equal. The page is shared only if the bytes that were read
    /// pass its checksum. A misdirected read returns another block's bytes, and these may be exactly the bytes to be written.
    fn check_page(&mut self, unsure: Unsure) {
        let (segment, offset) = locate(&self.superblock, unsure.page);
        let expected = self.sums.sum(segment, offset);
        if expected.is_none() {
            self.want_sums(segment);
            return self.parked.unsure.park(segment, unsure);
        }
        self.judge_page(unsure, expected);
    }

    fn judge_page(&mut self, unsure: Unsure, expected: Option<u32>) {
        let whole = expected == Some(unsure.sum);
        if !whole {
            self.stats.corrupt_blocks += u64::from(expected.is_some());
            self.stats.unreadable_blocks += u64::from(expected.is_none());
        }
        match whole {
            true => self.equal(unsure.request, unsure.index),
            false => self.answered(unsure.request, unsure.index, Answer::Damaged),
        }
    }

    /// Handles the arrival of a segment's checksums, or the failure to read them.
    pub(super) fn judge_unsure(&mut self, segment: Segment) {
        for one in self.parked.unsure.take(segment) {
            let (_, offset) = locate(&self.superblock, one.page);
            let expected = self.sums.sum(segment, offset);
            self.judge_page(one, expected);
        }
    }

    fn ask_fingerprint(&mut self, request: RequestId, index: u32, buf: Buf) {
        self.stats.dedup_fingerprints += 1;
        let pending = Pending::Fingerprint { request, index };
        self.front
            .ask(pending, |id| Effect::Fingerprint { id, buf });
    }

    /// Decides by the page's fingerprint, if that is known. Otherwise the bytes were compared already, and the page learns its
    /// fingerprint.
    pub(super) fn fingerprinted(&mut self, request: RequestId, index: u32, outcome: Outcome<'_>) {
        let print = match outcome {
            Outcome::Fingerprint(print) => Some(print),
            _ => None,
        };
        let known = self
            .front
            .queue
            .asked(request, index)
            .and_then(|(twin, _)| twin.print);
        self.stats.dedup_decided += u64::from(known.is_some());
        let answer = match known.is_none() || known == print {
            true => Answer::Same(print),
            false => Answer::Other,
        };
        self.answered(request, index, answer);
    }

    fn answered(&mut self, request: RequestId, index: u32, answer: Answer) {
        let judge = |twin| match answer {
            Answer::Same(print) => Some(Twin { print, ..twin }),
            Answer::Other | Answer::Damaged => None,
        };
        match self.front.queue.on_answer(request, index, judge) {
            Noted::Waits(twin) => {
                let by = twin.map(|twin| twin.by);
                self.proposers.learn(by, answer, &mut self.stats);
            }
            Noted::Refused(_, Some((waiting, refusal))) => {
                refuse::one(self, waiting, refusal);
            }
            Noted::Refused(_, None) => {}
        }
    }

    /// Maps a block to its twin's page.
    pub(super) fn share(&mut self, lba: Lba, twin: Twin) -> Sharing {
        let entry = self.entry_of(twin.of);
        let replaced = twin
            .absorptions
            .is_some_and(|then| !self.log.is_as_at(then));
        let moved = self.state.place_of(entry) != Some(twin.place)
            || self.uses_at(twin.place.pba) != twin.uses;
        if moved || replaced || self.state.lost_leaf().is_some() {
            return Sharing::No;
        }
        if Holder::Lba(lba) == twin.of
            || (self.state.map().get(lba) == entry
                && matches!(entry, Entry::Shared(_) | Entry::Packed(..)))
        {
            if self.is_pledged_else(lba, twin.of) {
                // Only a record ends the pledge, so the block is written.
                return Sharing::No;
            }
            // The client rewrites the block unchanged: nothing need be done.
            self.proposers.shared_by(twin.by, &mut self.stats);
            return Sharing::Done;
        }
        // One page for several deliberate copies would be a single point of failure, whichever policy proposes it. A part is never shared
        // with a critical block, because the number of the part's owners is not known.
        if self.proposers.dedup().is_critical(lba)
            && matches!(entry, Entry::Shared(_) | Entry::Packed(..))
        {
            return Sharing::No;
        }
        let pba = twin.place.pba;
        let records = match entry {
            Entry::Packed(vba, slot) => return self.share_part(lba, twin, vba, slot),
            Entry::Shared(vba) if self.state.shared().owners(vba) == u32::MAX => {
                return Sharing::No;
            }
            Entry::Shared(_) => 1,
            _ => 2,
        };
        // A link must follow what it leads to: a page that the collector has just moved may be in a chunk that has no place in
        // the order yet.
        let cold = self.log.open(Head::Cold);
        if cold.is_some_and(|chunk| chunk.holds(pba)) && !self.seal(Head::Cold, false) {
            return Sharing::Wait;
        }
        let share = |lba, vba| Record::Share { lba, vba, pba };
        let length = share(lba, Vba(0)).encoded_len();
        let Some(chunk) = self.chunk_with_room(Head::Hot, records * length, false) else {
            return Sharing::Wait;
        };
        let pledged = self.is_pledged(lba, twin.of);
        let vba = match (entry, twin.of) {
            (Entry::Shared(vba), _) => vba,
            (_, Holder::Page(_)) => return Sharing::No,
            (_, Holder::Lba(other)) => {
                let Some(vba) = self.state.number() else {
                    return Sharing::No;
                };
                self.log_link(chunk, share(other, vba), pledged);
                vba
            }
        };
        if let Some(print) = twin.print {
            self.state.set_print(vba, print);
        }
        self.log_link(chunk, share(lba, vba), pledged);
        self.proposers.shared_by(twin.by, &mut self.stats);
        Sharing::Done
    }

    /// How often the segment of a page was opened for writing.
    pub(super) fn uses_at(&self, pba: Pba) -> u32 {
        let (segment, _) = locate(&self.superblock, pba);
        self.segments.get(segment).uses
    }

    /// Returns the map entry of a holder's content.
    pub(super) fn entry_of(&self, holder: Holder) -> Entry {
        match holder {
            Holder::Lba(lba) => self.state.map().get(lba),
            // The number may have been reused for a page of parts since.
            Holder::Page(vba)
                if self.state.shared().owners(vba) > 1 && !self.state.shared().has_parts(vba) =>
            {
                Entry::Shared(vba)
            }
            Holder::Page(_) => Entry::Unmapped,
        }
    }
}
