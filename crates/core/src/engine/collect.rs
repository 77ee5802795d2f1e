//! Carries out what the [`Collector`](crate::log::Collector) decides.

use super::residency::{AT_ONCE, Who};
use super::{Engine, Pending};
use crate::addr::{Buf, Pba, Segment};
use crate::format::summary::Owner;
use crate::log::collector::{Contents, Step};
use crate::log::{Among, HEADS, Head};
use crate::seam::{Effect, Outcome};
use crate::state::State;

impl Contents for State {
    #[inline]
    fn live(&self, segment: Segment) -> u32 {
        State::live(self).valid(segment)
    }

    #[inline]
    fn owner_of(&self, pba: Pba, tag: Owner) -> Option<Owner> {
        State::owner_of(self, pba, tag)
    }

    #[inline]
    fn has_away(&self) -> bool {
        State::has_away(self)
    }
}

impl Engine {
    pub(super) fn collect(&mut self) {
        // Before a census ends, nobody knows what is live.
        if self.state.is_redeeming() || self.state.is_in_census() {
            return;
        }
        // Once in a call is enough: a read that begins below ends only between two calls.
        self.place_moves();
        while let Some(step) = self.collector.poll(&self.superblock, &self.state)
            && self.collect_step(step)
        {}
        self.press();
        self.forget_places();
    }

    /// False if the next step has to wait.
    #[inline]
    fn collect_step(&mut self, step: Step) -> bool {
        match step {
            Step::Choose => return self.choose_victim(),
            Step::LookUp(from) => return self.look_up_owners(from),
            Step::Gather { at, blocks, to } => self.gather(at, blocks, to),
            Step::SealCold => {
                self.seal(Head::Cold, false);
                return false;
            }
            Step::Search { segment, left } => {
                self.state.find_strays(segment, left);
                self.look_at_owners();
            }
            Step::Done { segment, are_left } => {
                if are_left {
                    self.segments.quarantine(segment);
                }
                self.leave_victim(segment);
            }
        }
        true
    }

    /// True if a victim was chosen.
    fn choose_victim(&mut self) -> bool {
        if !self.front.course.is_running() && self.front.queue.is_empty() {
            return false;
        }
        let among = Among {
            superblock: &self.superblock,
            segments: &self.segments,
            live: self.state.live().of_all(),
            root_seq: self.checkpoint.durable_seq(),
            newest: self.log.last_seq(),
        };
        let is_short = self.collector.is_short(&self.segments);
        let chosen = self.options.victim.choose(is_short, &among);
        let Some(segment) = chosen.filter(|&segment| !self.sums.rewrites(segment)) else {
            return false;
        };
        self.stats.collections += 1;
        self.segments.begin_reader(segment);
        self.residency.start_again(Who::Victim);
        let known = self.sums.tags(segment);
        self.collector.on_chosen(&self.superblock, segment, known);
        self.load_tags();
        true
    }

    fn load_tags(&mut self) {
        match self.collector.poll_tags(&self.superblock) {
            Some((at, blocks)) => {
                let read = |id| Effect::ReadMeta { id, at, blocks };
                self.front.ask(Pending::Tags, read);
            }
            None => self.look_at_owners(),
        }
    }

    pub(super) fn tags_read(&mut self, outcome: Outcome<'_>) {
        let bytes = match outcome {
            Outcome::Bytes(bytes) => bytes,
            _ => &[],
        };
        let crc = self.superblock.crc();
        self.collector.on_tags_read(&self.superblock, crc, bytes);
        self.load_tags();
    }

    /// Prefetches all map entries that say which of a victim's blocks are live, before the first is needed.
    fn look_at_owners(&self) {
        let tags = self.collector.tags().iter();
        let lbas = tags.filter_map(|tag| match tag.owner {
            Owner::Lba(lba) => Some(lba),
            Owner::None | Owner::Vba(_) => None,
        });
        self.state.map().look_ahead(lbas);
    }

    /// Makes sure that the leaves are in memory that say which of a victim's next blocks are live. `false`: they are being read.
    fn look_up_owners(&mut self, from: u32) -> bool {
        let usable = self.superblock.usable_blocks();
        let end = usable.min(from + AT_ONCE as u32);
        let waits = self.victim_waits_for_leaves(from..end);
        if !waits {
            self.collector.on_known(end);
        }
        !waits
    }

    fn gather(&mut self, at: Pba, blocks: u32, to: Buf) {
        self.stats.collector_reads += u64::from(blocks);
        self.front
            .ask(Pending::Gather { at, blocks, to }, |id| Effect::Gather {
                id,
                at,
                blocks,
                to,
            });
    }

    pub(super) fn gathered(&mut self, read: (Pba, u32, Buf), outcome: Outcome<'_>) {
        let bad = self.collector.on_gathered(&self.superblock, read, outcome);
        match outcome {
            Outcome::Sums(_) => self.stats.corrupt_blocks += u64::from(bad),
            _ => self.stats.unreadable_blocks += u64::from(bad),
        }
    }

    /// Appends what was read to the cold head, as far as there is room.
    fn place_moves(&mut self) {
        while let Some(place) = self.collector.poll_move(&self.superblock, &self.state) {
            let record = place.record();
            // A move must follow the link that it moves, which may be in the other head's unsealed chunk.
            if self.is_linked_unsealed(place.from) && !self.seal(Head::Hot, false) {
                return self.collector.on_no_room(place);
            }
            let Some(chunk) = self.chunk_with_room(Head::Cold, record.encoded_len(), true) else {
                return self.collector.on_no_room(place);
            };
            self.append(chunk, record, place.tag, place.buf);
        }
    }

    fn is_linked_unsealed(&self, at: Pba) -> bool {
        let open = self.log.open(Head::Hot);
        open.is_some_and(|chunk| chunk.links_to(at))
    }

    /// Leaves a victim half moved.
    pub(super) fn abandon_victim(&mut self) {
        if let Some(segment) = self.collector.abandon() {
            self.leave_victim(segment);
        }
    }

    fn leave_victim(&mut self, segment: Segment) {
        self.segments.end_reader(segment);
        self.segments.look_again();
    }

    /// Frees emptied segments sooner if free ones run short.
    fn press(&mut self) {
        let root_seq = self.checkpoint.durable_seq();
        let press = self.collector.press(&self.segments, root_seq, |marks| {
            let in_open = HEADS.map(|head| self.log.is_in_open(head, marks));
            (self.log.are_durable(marks), in_open)
        });
        let Some(press) = press else { return };
        for head in HEADS {
            if press.seal[head as usize] {
                self.seal(head, false);
            }
        }
        if press.sync && !self.log.durability().is_all_durable() {
            self.log.want_all_durable();
        }
        self.checkpoint.due_if(press.checkpoint);
    }
}
