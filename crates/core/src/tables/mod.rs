//! Tables in place: the state machine behind the same seam as [`Engine`](crate::engine::Engine), without a log.
//!
//! Upper half, which does not know how facts become durable: `write`, `read`, `twin`, `space`, `facts`. Lower
//! half: `commit`, by the order that `order` states or, of shadowed tables, under a root (`shadow`). What must
//! hold between any two calls of [`Tables::handle`]:
//!
//! 1. The image of the counts is at every moment at least what the links on the medium, and those that may be
//!    written next, add up to: it may be written at any time.
//! 2. The image of the map holds no link whose block and count are not durable; of shadowed tables that is
//!    asked of the root alone.
//! 3. A data block is free only when no image leads to it, its count is zero and nobody has it pinned; it is
//!    never written while something leads to it.
//! 4. Every LBA leads to what the newest of `running`, `committing` and the image of the map says.
//! 5. A buffer is released exactly once, after its block is on the medium or nothing leads to it.

mod check;
mod commit;
mod directory;
mod discard;
mod editions;
mod effects;
mod facts;
mod mend;
mod options;
pub mod order;
mod read;
mod recover;
mod rest;
mod shadow;
mod space;
mod stale;
mod table;
mod twin;
mod twins;
mod waiting;
mod write;

use crate::addr::{Buf, EffectId, Nanos, Pba, RequestId};
use crate::format::Crc;
use crate::format::superblock::Superblock;
use crate::format::table::{Kind, Link, Signer};
use crate::front::{Course, Outbox};
use crate::mirrors::Mirrored;
use crate::policy::{dedup::Dedup, once::Once};
use crate::reserve::Reserve;
use crate::room::Room;
use crate::seam::{Ack, Effect, Hint, Input, Outcome, Refusal, Reply, Service, Setting};
use crate::stats::Stats;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
pub use check::check;
use commit::{Commit, Group};
use editions::Editions;
pub use options::{Options, Persistence};
use order::Step;
pub use recover::{Recovered, recover};
pub use rest::rescue;
use shadow::Shadow;
use space::Space;
use table::Table;
use waiting::{Waiter, Waiting};

/// What an effect in flight was for.
enum Pending {
    /// Data blocks from `first` on, of the group of this number.
    Data {
        first: u32,
        bufs: Vec<Buf>,
        group: u64,
    },
    /// A table block.
    Table(Kind, u32),
    /// The twin of a block of the map.
    MapTwin(u32),
    /// A directory block of shadowed tables.
    Directory(u32),
    DirectoryTwin(u32),
    Root,
    /// The second copy of a root that was found alone.
    RootCopy(Pba),
    /// The superblock, with the newest root that is durable, in one of its places.
    Mirror(Pba),
    Sync,
    /// Free data blocks from `first` on.
    Discard {
        first: u32,
        blocks: u32,
    },
    Read {
        request: RequestId,
        first: u32,
        sums: Vec<u32>,
    },
    Compare {
        request: RequestId,
        index: u32,
    },
}

/// See the module.
pub struct Tables {
    superblock: Mirrored,
    signer: Signer,
    options: Options,
    course: Course,

    map: Table<Link>,
    counts: Table<u16>,
    prints: Table<u32>,
    editions: Editions,
    /// LBAs that lead to a data block now: unlike the counts, nothing that is only on its way out.
    refs: Table<u16>,
    space: Space,
    /// Blocks of data in memory: on their way, or to be.
    held: BTreeMap<u32, Buf>,
    /// Those of them that are not on their way.
    queued: BTreeSet<u32>,
    /// Data blocks that are read, written or compared, and how often.
    pins: BTreeMap<u32, u32>,
    /// Discards in flight.
    discards: u32,
    /// Where the search for fingerprints to give up goes on.
    give_up_from: u32,

    running: Group,
    committing: Option<Commit>,
    /// Newest group that is durable.
    durable: u64,
    /// Table blocks that no answer waits for, since when; and the same in that order.
    later: BTreeMap<(Kind, u32), Nanos>,
    later_order: VecDeque<(Nanos, (Kind, u32))>,
    /// Table blocks that are to be written anew, as they are.
    anew: BTreeSet<(Kind, u32)>,
    /// Whether something was written since the last sync was asked for.
    unsynced: bool,
    shadow: Option<Shadow>,
    waiters: VecDeque<Waiter>,
    waiting: VecDeque<Waiting>,
    /// Requests that have been refused while a comparison still reads their buffers.
    doomed: Vec<(Waiting, Refusal)>,
    /// Buffers that are being written.
    on_their_way: u32,
    /// Between writes, on average, and when the last came.
    gap: u64,
    last_write: Nanos,

    once: Once,
    dedup: Dedup,
    /// Where a new index is still to be filled from.
    fill_from: Option<u32>,
    reserve: Reserve,
    outbox: Outbox<Pending>,
    stats: Stats,
}

impl Tables {
    /// A volume that goes on where recovery ended. `recovered.superblock.life` must already be the new life,
    /// durable on the medium: with it, everything that recovery has read is.
    #[must_use]
    pub fn new(mut recovered: Recovered, options: Options, crc: Crc) -> Self {
        let shadow = Shadow::of(&mut recovered);
        let lost_prints = recovered.lost_blocks(Kind::Prints);
        let superblock = recovered.superblock;
        let signer = Signer::new(&superblock, crc);
        let mut tables = Self {
            space: recovered.space,
            map: recovered.map,
            counts: recovered.counts,
            prints: recovered.prints,
            editions: recovered.editions,
            refs: recovered.refs,
            signer,
            options,
            course: Course::begin(false),
            held: BTreeMap::new(),
            queued: BTreeSet::new(),
            pins: BTreeMap::new(),
            discards: 0,
            give_up_from: 0,
            running: Group::new(1),
            committing: None,
            durable: 0,
            later: BTreeMap::new(),
            later_order: VecDeque::new(),
            anew: recovered.anew.tables,
            unsynced: false,
            shadow,
            waiters: VecDeque::new(),
            waiting: VecDeque::new(),
            doomed: Vec::new(),
            on_their_way: 0,
            gap: u64::from(u32::MAX),
            last_write: Nanos(0),
            once: Once::default(),
            dedup: Dedup::default(),
            fill_from: None,
            reserve: Reserve::new(Room::default()),
            outbox: Outbox::default(),
            stats: recovered.found,
            superblock: Mirrored::new(superblock, crc),
        };
        if options.discard_blocks_min > 0 {
            tables.space.keep_stale(options.discard_blocks_min);
        }
        // Counts that were found too high are put right, and written when it costs least.
        for block in recovered.mended {
            tables.mark_later(Kind::Counts, block);
        }
        for block in recovered.anew.editions {
            tables.mark_later(Kind::Editions, block);
        }
        // Fingerprints that were lost are given up: nothing on the medium says them any more before a count goes down.
        for block in lost_prints {
            tables.mark(Step::Unprint, block);
            tables.mark_later(Kind::Prints, block);
        }
        tables.running.unprinted = recovered.unprinted;
        tables.reserve = Reserve::new(tables.room());
        tables.double(recovered.anew.root);
        tables
    }

    /// Takes one input. Afterwards take effects and replies until there are none.
    pub fn handle(&mut self, now: Nanos, input: Input<'_>) {
        self.course.on_time(now);
        match input {
            Input::Write {
                id,
                lba,
                blocks,
                ack,
            } => self.write(id, lba, blocks, ack == Ack::Durable),
            Input::Read { id, lba, blocks } => self.read(id, lba, blocks),
            Input::Flush { id } => self.flush(id),
            Input::Unmap {
                id,
                lba,
                blocks,
                zero,
                fua,
            } => self.unmap(id, lba, blocks, zero, fua),
            // A page of tables has its owners' links beside it, and none without its bytes.
            Input::Copy { id, .. } => self.outbox.reply(id, Err(Refusal::Unlinkable)),
            Input::Hint(hint) => self.hear(hint),
            Input::Set(setting) => self.set(setting),
            Input::Service(asked) => self.serve(asked),
            Input::Properties { id, properties } => self.superblock.change(id, properties.clone()),
            Input::Done { id, outcome } => self.done(id, outcome),
            Input::Tick => self.tick(),
            Input::Shutdown => self.course.stop(),
        }
        self.pump();
    }

    fn hear(&mut self, hint: Hint<'_>) {
        match hint {
            Hint::Journals { regions } => {
                self.once.watch(regions, self.superblock.logical_blocks());
            }
            Hint::Journaled { pairs } => self.once.learn_homes(pairs),
            Hint::Critical { ranges } => self.dedup.set_critical(ranges),
            // The table of fingerprints knows, and nothing is pledged: a map entry is written in place, by itself.
            Hint::Contents { .. } | Hint::Parts { .. } | Hint::Committed { .. } => {}
        }
    }

    fn set(&mut self, setting: Setting) {
        match setting {
            Setting::Dedup { policy } => self.set_dedup(policy),
            Setting::Commits { policy } => self.options.set_commits(policy),
            // Nothing is in a part of a page here.
            Setting::Deltas { .. } => {}
        }
    }

    fn serve(&mut self, asked: Service<'_>) {
        match asked {
            Service::Mend(what) => self.mend(what),
            Service::ReadToFold { id, lba, blocks } => self.read(id, lba, blocks),
            // Nothing is in a part of a page here.
            Service::Fold { blocks, .. } => {
                self.outbox.took(blocks.len());
                blocks.iter().for_each(|payload| self.release(payload.buf));
            }
            // What lies in tables was compared when it was written.
            Service::Merge { id, .. } => {
                let result = match self.course.is_poisoned() {
                    true => Err(Refusal::Poisoned),
                    false => Ok(()),
                };
                self.outbox.reply(id, result);
            }
            Service::Swept { .. } => {}
        }
    }

    /// The next thing to carry out; ask again until `None`, after every `handle` and after `new`.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.outbox.next_effect()
    }

    /// The next answer; ask again until `None`, after every `handle`.
    pub fn poll_reply(&mut self) -> Option<Reply> {
        self.outbox.next_reply()
    }

    /// When to call with [`Input::Tick`] if nothing else happens before; ask after every `handle`.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Nanos> {
        if self.course.is_poisoned() || self.course.is_stopped() {
            return None;
        }
        if self.fill_from.is_some() {
            return Some(self.course.now());
        }
        if self.outbox.holds_writes() || self.committing.is_some() {
            return self.outbox.held_due();
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

    /// Why no write is taken now, if so: until what is on the medium or under way changes, each is answered like this.
    #[must_use]
    pub fn refuses_writes(&self) -> Option<Refusal> {
        match self.course.is_poisoned() {
            true => Some(Refusal::Poisoned),
            false => self.outbox.holds_writes().then_some(Refusal::NoRoom),
        }
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
            pool_blocks: self.once.pool().blocks() as u64,
            pool_entries: self.once.pool().len() as u64,
            index_entries: self.dedup.index().len() as u64,
            index_comparisons: self.dedup.index().comparisons(),
            index_capacity: self.dedup.index().capacity() as u64,
            waiting_requests: self.waiting.len() as u64,
            poisoned: u64::from(self.course.is_poisoned()),
            ..self.stats
        }
    }

    fn done(&mut self, id: EffectId, outcome: Outcome<'_>) {
        let Some(pending) = self.outbox.get(id) else {
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
                | Pending::Mirror(_)
        );
        if writes && matches!(outcome, Outcome::Full) && !self.course.is_poisoned() {
            return self.hold_until_room(id);
        }
        let Some(pending) = self.outbox.answered(id) else {
            unreachable!("effect {id} is in flight");
        };
        if matches!(outcome, Outcome::Failed | Outcome::Full)
            && (writes || matches!(pending, Pending::Sync))
        {
            // What is durable is unknown from here on: nothing more is accepted.
            self.course.poison();
            return;
        }
        match pending {
            Pending::Data { first, bufs, group } => self.data_written(first, &bufs, group),
            Pending::Table(..)
            | Pending::MapTwin(_)
            | Pending::Directory(_)
            | Pending::DirectoryTwin(_)
            | Pending::Root
            | Pending::RootCopy(_) => self.step_ended(),
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

    /// The medium has no room: nothing is lost, but nothing new can be promised either.
    fn hold_until_room(&mut self, id: EffectId) {
        self.outbox.hold(id, self.course.now());
        while let Some(waiter) = self.waiters.pop_front() {
            self.outbox.reply(waiter.request, Err(Refusal::NoRoom));
        }
        while let Some(waiting) = self.waiting.pop_front() {
            self.refuse(waiting, Refusal::NoRoom);
        }
        for id in self.superblock.refuse() {
            self.outbox.reply(id, Err(Refusal::NoRoom));
        }
    }

    fn tick(&mut self) {
        self.fill_index();
        if !self.course.is_poisoned() {
            for id in self.outbox.held_by(self.course.now()) {
                let effect = self.write_effect(id);
                self.outbox.tell(effect);
            }
        }
    }

    /// Moves everything on that can move.
    fn pump(&mut self) {
        self.advance();
        // Nothing is under way or due that could make room for what waits.
        while self.is_stuck() {
            // What a comparison held when contents were given up can be given up by now.
            self.running.give_up_again();
            self.advance();
            if self.is_stuck()
                && let Some(waiting) = self.waiting.pop_front()
            {
                self.refuse(waiting, Refusal::Full);
                self.advance();
            }
        }
        self.discard_stale();
        self.mark_root();
        self.mark_stop();
        self.write_mirrors();
        self.stop_when_done();
    }

    /// Whether something waits for room, and nothing is on its way that could make it.
    fn is_stuck(&self) -> bool {
        !self.course.is_poisoned()
            && self.is_quiet()
            && self.group_due().is_none()
            && !self.waiting.is_empty()
    }

    fn advance(&mut self) {
        if self.course.is_poisoned() {
            return self.fail_all();
        }
        self.advance_commit();
        self.place_waiting();
        self.advance_commit();
        self.place_waiting();
    }

    fn is_quiet(&self) -> bool {
        self.outbox.is_quiet()
    }

    fn release(&mut self, buf: Buf) {
        self.outbox.release(buf);
    }

    /// Whether nothing is to be written any more, and what was is durable.
    fn is_clean(&self) -> bool {
        self.committing.is_none()
            && self.running.is_empty()
            && self.later.is_empty()
            && self.anew.is_empty()
            && self.mark_due().is_none()
            && !self.unsynced
    }

    /// The superblock says that the tables are as this life leaves them: then no link is older than it should be, whatever else
    /// is.
    fn mark_stop(&mut self) {
        let is_there = self.shadow.is_some() || self.superblock.was_stopped();
        let ends =
            self.course.is_stopping() && !self.course.is_poisoned() && !self.outbox.holds_writes();
        if ends && !is_there && self.is_clean() && self.is_quiet() {
            self.superblock.mark_stop();
        }
    }

    fn stop_when_done(&mut self) {
        if !self.course.is_stopping() {
            return;
        }
        let served = self.waiting.is_empty()
            && self.doomed.is_empty()
            && self.waiters.is_empty()
            && (self.superblock.is_written() || self.course.is_poisoned());
        // What found no room is not tried again once the volume is poisoned.
        let ended = match self.course.is_poisoned() {
            true => self.outbox.is_quiet_but_for_held(),
            false => self.is_clean() && self.is_quiet(),
        };
        if served && ended {
            self.course.on_stopped();
            self.outbox.tell(Effect::Stopped);
        }
    }
}
