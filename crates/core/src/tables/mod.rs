//! Tables in place: the state machine behind the same seam as [`Engine`](crate::engine::Engine), without a log.
//!
//! There are two halves. The upper half does not know how facts become durable: `write`, `read`, `twin`, `space`, `facts`. The lower half
//! makes them durable: `commit`, in the order that `order` states or, for shadowed tables, under a root (`shadow`). What must hold
//! between any two calls of [`Tables::handle`]:
//!
//! 1. Each count in memory is at least the number of links on the medium, plus those that may be written next. So the counts may be
//!    written at any time.
//! 2. The image of the map holds no link whose block and count are not durable; for shadowed tables this is required of the root
//!    alone.
//! 3. A data block is free only when no image leads to it, its count is zero and it is not pinned; it is never written while
//!    something leads to it.
//! 4. An LBA's link is that of the running group. If that has none, it is that of the group being committed, or else that of the map in
//!    memory.
//! 5. A buffer is released exactly once, after its block is on the medium or nothing leads to it.

mod arrivals;
mod back;
mod backlog;
mod buffers;
mod check;
mod commit;
mod data_blocks;
mod directory;
mod discard;
mod editions;
mod effects;
mod facts;
mod group;
mod groups;
mod map;
mod mend;
mod options;
pub mod order;
mod pending;
mod prints;
mod read;
mod recover;
mod rest;
mod shadow;
mod space;
mod stale;
mod table;
mod twin;
mod twins;
mod verdict;
mod write;

use crate::addr::{EffectId, Nanos};
use crate::format::Crc;
use crate::format::superblock::Superblock;
use crate::format::table::{Kind, Signer};
use crate::front::{Front, admit, refuse};
use crate::mirrors::Mirrored;
use crate::policy::Proposers;
use crate::reserve::Reserve;
use crate::room::Room;
use crate::seam::{Effect, Hint, Input, Outcome, Refusal, Reply, Service, Setting};
use crate::stats::Stats;
use backlog::Backlog;
use buffers::Buffers;
pub use check::check;
use data_blocks::DataBlocks;
use groups::Groups;
use map::Map;
pub use options::{Options, Persistence};
use order::Step;
use pending::Pending;
use prints::Prints;
pub use recover::{Recovered, recover};
pub use rest::rescue;
use shadow::Shadow;
use verdict::Twin;

/// See the module.
pub struct Tables {
    superblock: Mirrored,
    signer: Signer,
    options: Options,
    front: Front<Pending, Twin>,

    map: Map,
    blocks: DataBlocks,
    prints: Prints,
    buffers: Buffers,

    groups: Groups,
    backlog: Backlog,
    shadow: Option<Shadow>,

    proposers: Proposers,
    reserve: Reserve,
    stats: Stats,
}

impl Tables {
    /// A volume that goes on where recovery ended. `recovered.superblock.life` must already be the new life, durable on the
    /// medium: then everything that recovery has read is durable, too.
    #[must_use]
    pub fn new(mut recovered: Recovered, options: Options, crc: Crc) -> Self {
        let shadow = Shadow::of(&mut recovered);
        let lost_prints = recovered.lost_blocks(Kind::Prints);
        let superblock = recovered.superblock;
        let signer = Signer::new(&superblock, crc);
        let mut tables = Self {
            map: Map::new(recovered.map, recovered.editions),
            blocks: DataBlocks::new(recovered.counts, recovered.refs, recovered.space),
            prints: Prints::new(recovered.prints),
            buffers: Buffers::default(),
            groups: Groups::new(recovered.unprinted),
            backlog: Backlog::new(recovered.anew.tables),
            shadow,
            signer,
            options,
            front: Front::of(false),
            proposers: Proposers::default(),
            reserve: Reserve::new(Room::default()),
            stats: recovered.found,
            superblock: Mirrored::new(superblock, crc),
        };
        if options.discard_blocks_min > 0 {
            tables.blocks.keep_stale(options.discard_blocks_min);
        }
        // Counts that were found too high are corrected, and written when it costs least.
        for block in recovered.mended {
            tables.mark_later(Kind::Counts, block);
        }
        for block in recovered.anew.editions {
            tables.mark_later(Kind::Editions, block);
        }
        // Lost fingerprints are given up: the medium must no longer hold them before a count goes down.
        for block in lost_prints {
            tables.mark(Step::Unprint, block);
            tables.mark_later(Kind::Prints, block);
        }
        tables.reserve = Reserve::new(tables.room());
        tables.double(recovered.anew.root, recovered.anew.void_roots);
        tables
    }

    /// Takes one input. Afterwards poll for effects and replies until there are none.
    pub fn handle(&mut self, now: Nanos, input: Input<'_>) {
        self.front.course.on_time(now);
        match input {
            Input::Write {
                id,
                lba,
                blocks,
                ack,
            } => admit::write(self, id, lba, blocks, ack),
            Input::Read { id, lba, blocks } => admit::read(self, id, lba, blocks),
            Input::Flush { id } => admit::flush(self, id),
            Input::Unmap { id, unmap } => admit::unmap(self, id, unmap),
            Input::Copy { id, copy } => admit::copy(self, id, copy),
            Input::Hint(hint) => self.hear(hint),
            Input::Set(setting) => self.set(setting),
            Input::Service(asked) => self.serve(asked),
            Input::Properties { id, change } => self.superblock.change(id, change),
            Input::Done { id, outcome } => self.done(id, outcome),
            Input::Tick => self.tick(),
            Input::Shutdown => self.front.course.stop(),
        }
        self.pump();
    }

    fn hear(&mut self, hint: Hint<'_>) {
        match hint {
            Hint::Journals { regions } => {
                let blocks = self.superblock.logical_blocks();
                self.proposers.once_mut().watch(regions, blocks);
            }
            Hint::Journaled { pairs } => self.proposers.once_mut().learn_homes(pairs),
            Hint::Critical { ranges } => self.proposers.dedup_mut().set_critical(ranges),
            // Tables need none of these hints. Contents are learned from the table of fingerprints. Nothing is pledged, because a map
            // entry is written in place.
            Hint::Contents { .. } | Hint::Parts { .. } | Hint::Committed { .. } => {}
        }
    }

    fn set(&mut self, setting: Setting) {
        match setting {
            Setting::Dedup { policy } => self.set_dedup(policy),
            Setting::Commits { policy } => self.options.set_commits(policy),
            // There are no parts of pages here.
            Setting::Deltas { .. } => {}
        }
    }

    fn serve(&mut self, asked: Service<'_>) {
        match asked {
            Service::Mend(what) => self.mend(what),
            Service::ReadToFold { id, lba, blocks } => admit::read(self, id, lba, blocks),
            // There are no parts of pages here.
            Service::Fold { blocks, .. } => {
                self.front.outbox.took(blocks.len());
                blocks.iter().for_each(|payload| self.release(payload.buf));
            }
            // Tables compare blocks when they are written, so they merge none later.
            Service::Merge { id, .. } => {
                let result = match self.front.course.is_poisoned() {
                    true => Err(Refusal::Poisoned),
                    false => Ok(()),
                };
                self.front.reply(id, result);
            }
            Service::Swept { .. } => {}
        }
    }

    /// The next effect to carry out; poll until `None`, after every `handle` and after `new`.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.front.outbox.next_effect()
    }

    /// The next answer; poll until `None`, after every `handle`.
    pub fn poll_reply(&mut self) -> Option<Reply> {
        self.front.outbox.next_reply()
    }

    /// When to call with [`Input::Tick`] if nothing else happens before; poll after every `handle`.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Nanos> {
        if self.front.course.is_poisoned() || self.front.course.is_stopped() {
            return None;
        }
        if self.prints.is_filling() {
            return Some(self.front.course.now());
        }
        if self.front.outbox.holds_writes() || self.groups.commit().is_some() {
            return self.front.outbox.held_due();
        }
        let later = self.later_due();
        [self.group_due(), later, self.discard_due(), self.mark_due()]
            .into_iter()
            .flatten()
            .min()
    }

    /// The volume's geometry and identity.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The refusal that every write gets now, if writes are refused: until the medium's state changes, or an effect in flight ends.
    #[must_use]
    pub fn refuses_writes(&self) -> Option<Refusal> {
        self.front.refuses_writes()
    }

    /// How full the volume is.
    #[must_use]
    pub fn room(&self) -> Room {
        Room {
            live: self.stats.live_blocks,
            capacity: self.superblock.capacity_blocks(),
            promised: self.superblock.logical_blocks(),
            keeps: false,
        }
    }

    /// Counters and gauges.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            capacity_blocks: self.superblock.capacity_blocks(),
            pool_blocks: self.proposers.once().pool().blocks() as u64,
            pool_entries: self.proposers.once().pool().len() as u64,
            index_entries: self.proposers.dedup().index().len() as u64,
            index_comparisons: self.proposers.dedup().index().comparisons(),
            index_capacity: self.proposers.dedup().index().capacity() as u64,
            waiting_requests: self.front.queue.requests() as u64,
            poisoned: u64::from(self.front.course.is_poisoned()),
            ..self.stats
        }
    }

    fn done(&mut self, id: EffectId, outcome: Outcome<'_>) {
        let Some(pending) = self.front.outbox.get(id) else {
            unreachable!("effect {id} was answered twice, or never asked");
        };
        let writes = matches!(
            pending,
            Pending::Data { .. }
                | Pending::Table(..)
                | Pending::MapTwin(_)
                | Pending::Directory(_)
                | Pending::DirectoryTwin(_)
                | Pending::Root
                | Pending::RootCopy(_)
                | Pending::VoidRoot(_)
                | Pending::Mirror(_)
        );
        if writes && matches!(outcome, Outcome::Full) && !self.front.course.is_poisoned() {
            return refuse::until_room(self, id);
        }
        let Some(pending) = self.front.outbox.answered(id) else {
            unreachable!("effect {id} is in flight");
        };
        if matches!(outcome, Outcome::Failed | Outcome::Full)
            && (writes || matches!(pending, Pending::Sync))
        {
            // From here on nobody knows what is durable: nothing more is accepted.
            self.front.course.poison();
            return;
        }
        match pending {
            Pending::Data { first, bufs, group } => self.data_written(first, &bufs, group),
            Pending::Table(..)
            | Pending::MapTwin(_)
            | Pending::Directory(_)
            | Pending::DirectoryTwin(_)
            | Pending::Root
            | Pending::RootCopy(_)
            | Pending::VoidRoot(_) => self.step_ended(),
            Pending::Mirror(_) => self.mirror_written(),
            Pending::Sync => self.synced(),
            Pending::Discard { first, blocks } => self.discarded(first, blocks),
            Pending::Read {
                request,
                first,
                sums,
            } => self.data_read(request, first, &sums, outcome),
            Pending::Compare { request, index } => self.compared(request, index, outcome),
        }
    }

    fn tick(&mut self) {
        self.fill_index();
        if !self.front.course.is_poisoned() {
            for id in self.front.outbox.held_by(self.front.course.now()) {
                let effect = self.write_effect(id);
                self.front.tell(effect);
            }
        }
    }

    /// Advances everything that can advance.
    fn pump(&mut self) {
        self.advance();
        // Nothing in flight or due could make room for what waits.
        while self.is_stuck() {
            // Contents that a comparison was using at the last attempt may be given up now.
            self.groups.running_mut().give_up_again();
            self.advance();
            if self.is_stuck()
                && let Some(waiting) = self.front.queue.pop()
            {
                refuse::one(self, waiting, Refusal::Full);
                self.advance();
            }
        }
        self.discard_stale();
        self.mark_root();
        self.mark_stop();
        self.write_mirrors();
        self.stop_when_done();
    }

    /// True if something waits for room, and nothing is in flight that could make it.
    fn is_stuck(&self) -> bool {
        !self.front.course.is_poisoned()
            && self.is_quiet()
            && self.group_due().is_none()
            && !self.front.queue.is_empty()
    }

    fn advance(&mut self) {
        if self.front.course.is_poisoned() {
            return refuse::all(self);
        }
        self.advance_commit();
        admit::serve_waiting(self);
        self.advance_commit();
        admit::serve_waiting(self);
    }

    fn is_quiet(&self) -> bool {
        self.front.outbox.is_quiet()
    }

    /// True if no request waits for anything.
    fn is_served(&self) -> bool {
        self.front.queue.is_served() && self.groups.waiters().is_empty()
    }

    /// True if nothing is left to write, and everything written is durable.
    fn is_clean(&self) -> bool {
        self.groups.are_clean() && self.backlog.is_empty() && self.mark_due().is_none()
    }

    /// Makes the superblock record that the tables are complete: then recovery knows that no link is older than it should be.
    fn mark_stop(&mut self) {
        let is_there = self.shadow.is_some() || self.superblock.was_stopped();
        let ends = self.front.course.is_stopping()
            && !self.front.course.is_poisoned()
            && !self.front.outbox.holds_writes();
        if ends && !is_there && self.is_clean() && self.is_quiet() {
            self.superblock.mark_stop();
        }
    }

    fn stop_when_done(&mut self) {
        if !self.front.course.is_stopping() {
            return;
        }
        let served =
            self.is_served() && (self.superblock.is_written() || self.front.course.is_poisoned());
        // Writes that found no room are not retried once the volume is poisoned.
        let ended = match self.front.course.is_poisoned() {
            true => self.front.outbox.is_quiet_but_for_held(),
            false => self.is_clean() && self.is_quiet(),
        };
        if served && ended {
            self.front.course.on_stopped();
            self.front.tell(Effect::Stopped);
        }
    }
}
