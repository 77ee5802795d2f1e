//! A drive around the page map: RAM for writes, requests, flushes.
//!
//! A write completes when it is in RAM, and RAM has room for it unless too many units are on their way to flash. A partial unit
//! stays in RAM that survives a power cut, as a small capacitor allows. A flush waits for the units on their way, not for the
//! partial ones, and then takes the time that the device's file gives it. The engine's log on flash makes the same assumption.
//!
//! Without RAM a write completes when the units that it fills are on flash, and a flush has nothing to wait for.

use super::idle::Idle;
use super::order::{Order, Stage};
use super::pagemap::{FlashOp, PageMap};
use super::refresh::Refreshing;
use crate::flash::{Cell, Die, EraseBlock, Flash, Stream};
use crate::timeline::{Job, Tag, Timeline};
use std::collections::VecDeque;

/// The flash and the clock that the drive works with.
pub struct Io<'a> {
    /// The flash.
    pub flash: &'a mut Flash,
    /// Virtual time.
    pub time: &'a mut Timeline,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug)]
pub enum Wanted {
    /// Read.
    Read,
    /// Write.
    Write {
        /// Also makes everything written so far durable.
        fua: bool,
        /// Completes only when the units that it fills are on flash, as without RAM.
        through: bool,
        /// Where it belongs, on a drive with placement handles.
        stream: Stream,
    },
    /// Discard.
    Discard,
    /// Make everything written so far durable.
    Flush,
}

impl Wanted {
    /// A write that is durable when it is answered.
    #[must_use]
    pub fn durable() -> Self {
        Self::Write {
            fua: true,
            through: false,
            stream: Stream::default(),
        }
    }
}

struct Waiting {
    tag: Tag,
    wanted: Wanted,
    lba: u64,
    blocks: u64,
    /// The lookup that it waits for.
    look: Option<u32>,
}

/// A request that waits for map entries.
enum Look {
    Read(Tag, u64, u64),
    /// A write or a discard, in its place among those. True once its entries have been read.
    Write(bool),
    /// A free slot.
    Free,
}

/// Units on their way to flash, numbered in the order of the requests.
#[derive(Default)]
struct UnderWay {
    /// The number of the first in the queue.
    first: u64,
    ended: VecDeque<bool>,
    count: u64,
}

impl UnderWay {
    fn begin(&mut self) -> u64 {
        self.ended.push_back(false);
        self.count += 1;
        self.next() - 1
    }

    fn end(&mut self, unit: u64) {
        self.ended[(unit - self.first) as usize] = true;
        self.count -= 1;
        while self.ended.front() == Some(&true) {
            self.ended.pop_front();
            self.first += 1;
        }
    }

    /// Returns a number before which all units are on flash.
    fn oldest(&self) -> u64 {
        self.first
    }

    /// Returns the number of the next unit.
    fn next(&self) -> u64 {
        self.first + self.ended.len() as u64
    }
}

/// The drive; see the module.
pub struct Drive {
    pub(super) map: PageMap,
    ops: Vec<FlashOp>,
    unit_blocks: u64,
    ram_blocks: u64,
    under_way: UnderWay,
    waiting: VecDeque<Waiting>,
    /// Each flush waits for the units before a number.
    flushes: VecDeque<(u64, Tag)>,
    flush_ns: u64,
    stage: Option<Stage>,
    /// Lookups in flight, and the free slots among them.
    looks: Vec<Look>,
    free_looks: Vec<u32>,
    to_look: Vec<(Die, EraseBlock, Cell)>,
    idle: Option<Idle>,
    pub(super) refreshing: Option<Box<Refreshing>>,
}

impl Drive {
    /// Returns a drive over a map, with `ram_blocks` blocks of RAM for writes, or none.
    #[must_use]
    pub fn new(map: PageMap, unit_blocks: u32, ram_blocks: u64) -> Self {
        Self {
            map,
            ops: Vec::new(),
            unit_blocks: u64::from(unit_blocks),
            ram_blocks,
            under_way: UnderWay::default(),
            waiting: VecDeque::new(),
            flushes: VecDeque::new(),
            flush_ns: 0,
            stage: None,
            looks: Vec::new(),
            free_looks: Vec::new(),
            to_look: Vec::new(),
            idle: None,
            refreshing: None,
        }
    }

    /// Sets the time a flush takes in addition to its waiting, and the order of map updates.
    #[must_use]
    pub fn ordered(mut self, order: Order, flush_ns: u64) -> Self {
        assert!(
            order == Order::Off || self.ram_blocks > 0,
            "what is ordered waits in RAM"
        );
        self.flush_ns = flush_ns;
        self.stage = (order != Order::Off).then(|| Stage::new(order));
        self
    }

    /// Sets how long the host must be idle before the drive folds its cache; `None`: it folds the cache only when full.
    #[must_use]
    pub fn folding(mut self, after_ns: Option<u64>) -> Self {
        self.idle = after_ns.map(Idle::new);
        self
    }

    /// Returns when it begins to fold, unless a request arrives before.
    #[must_use]
    pub fn timeout(&self) -> Option<u64> {
        self.idle.as_ref().and_then(Idle::due)
    }

    /// Handles the timeout: folds a block of each die.
    pub fn tick(&mut self, io: &mut Io<'_>) {
        let Some(idle) = &mut self.idle else { return };
        match self.map.fold_idle() {
            true => idle.begins(),
            false => return idle.empties(),
        }
        let job = io.time.begin(Tag::Folded);
        self.carry_out(io, None, Some(job));
        io.time.end(job);
    }

    /// Records that everything it folded is on flash.
    pub fn folded(&mut self) {
        if let Some(idle) = &mut self.idle {
            idle.ended();
        }
    }

    /// Folds the whole cache.
    pub fn fold_all(&mut self, io: &mut Io<'_>) {
        while self.map.fold_idle() {
            self.carry_out(io, None, None);
        }
    }

    /// Sets where the journal is: writes to it are order-critical (OFTL §3.1).
    pub fn watch(&mut self, start: u64, blocks: u64) {
        if let Some(stage) = &mut self.stage {
            stage.watch(start, blocks);
        }
    }

    /// Returns the stage that orders map updates, if there is one.
    #[must_use]
    pub fn stage(&self) -> Option<&Stage> {
        self.stage.as_ref()
    }

    /// Returns the map.
    #[must_use]
    pub fn map(&self) -> &PageMap {
        &self.map
    }

    /// Ends preconditioning: wear is levelled from here on.
    pub fn begin_life(&mut self) {
        self.map.begin_life();
    }

    /// Reads the map entries of blocks that will be requested soon.
    pub fn look_ahead(&self, lbas: impl Iterator<Item = u64>) {
        self.map.look_ahead(lbas);
    }

    /// Returns the RAM for writes, in blocks.
    #[must_use]
    pub fn ram_blocks(&self) -> u64 {
        self.ram_blocks
    }

    /// Takes a request; `tag` is notified when it completes.
    pub fn ask(&mut self, io: &mut Io<'_>, tag: Tag, wanted: Wanted, lba: u64, blocks: u64) {
        self.take_on(io, tag, wanted, (lba, blocks));
        if self.refreshing.is_some() {
            self.renew(io);
        }
    }

    fn take_on(&mut self, io: &mut Io<'_>, tag: Tag, wanted: Wanted, (lba, blocks): (u64, u64)) {
        let read = matches!(wanted, Wanted::Read);
        if let Some(idle) = &mut self.idle {
            idle.asked(io.time.now(), !read);
        }
        let mut look = None;
        if self.map.is_paged() && blocks > 0 {
            look = self.look_up(io, (tag, read), lba, blocks);
        }
        if read {
            if look.is_none() {
                self.read(io, tag, lba, blocks);
            }
            return;
        }
        self.waiting.push_back(Waiting {
            tag,
            wanted,
            lba,
            blocks,
            look,
        });
        self.admit(io);
    }

    /// Writes if nothing takes time and nothing waits, so that the write completes at once. Returns whether it did.
    pub fn write_at_once(
        &mut self,
        io: &mut Io<'_>,
        stream: Stream,
        lba: u64,
        blocks: u64,
    ) -> bool {
        let idle = self.waiting.is_empty() && self.under_way.count == 0;
        if !io.time.is_instant() || !idle || self.map.is_paged() {
            return false;
        }
        self.map.place(stream);
        for lba in lba..lba + blocks {
            self.map.write(lba);
        }
        self.carry_out(io, None, None);
        true
    }

    /// Loads map entries into RAM. Returns the lookup to wait for, if they must be read.
    #[cold]
    fn look_up(
        &mut self,
        io: &mut Io<'_>,
        (tag, read): (Tag, bool),
        lba: u64,
        blocks: u64,
    ) -> Option<u32> {
        let mut pages = std::mem::take(&mut self.to_look);
        self.map.look_up(lba, blocks, !read, &mut pages);
        self.carry_out(io, None, None);
        let waits = !pages.is_empty() && !io.time.is_instant();
        let look = waits.then(|| {
            let look = match read {
                true => Look::Read(tag, lba, blocks),
                false => Look::Write(false),
            };
            match self.free_looks.pop() {
                Some(place) => {
                    self.looks[place as usize] = look;
                    place
                }
                None => {
                    self.looks.push(look);
                    self.looks.len() as u32 - 1
                }
            }
        });
        let job = look.map(|place| io.time.begin(Tag::Looked(place)));
        for at in pages.drain(..) {
            io.flash.read(io.time, at, 1, job);
        }
        if let Some(job) = job {
            io.time.end(job);
        }
        self.to_look = pages;
        look
    }

    /// Resumes the request whose entries are now in RAM.
    pub fn looked(&mut self, io: &mut Io<'_>, place: u32) {
        let look = &mut self.looks[place as usize];
        match *look {
            Look::Read(tag, lba, blocks) => {
                *look = Look::Free;
                self.free_looks.push(place);
                self.read(io, tag, lba, blocks);
            }
            Look::Write(_) => {
                *look = Look::Write(true);
                self.admit(io);
            }
            Look::Free => {}
        }
    }

    /// Handles a unit that is now on flash.
    pub fn programmed(&mut self, io: &mut Io<'_>, unit: u64) {
        self.under_way.end(unit);
        if let Some(stage) = &mut self.stage {
            stage.written(unit);
            if let Some((unit, die)) = stage.serial_next(unit) {
                Self::program(io, unit, (die, Cell::FIRST));
            }
        }
        let oldest = self.under_way.oldest();
        while let Some(&(until, tag)) = self.flushes.front() {
            if oldest < until {
                break;
            }
            self.flushes.pop_front();
            self.flushed(io, tag);
        }
        self.admit(io);
    }

    fn admit(&mut self, io: &mut Io<'_>) {
        while let Some(first) = self.waiting.front() {
            if let Some(place) = first.look
                && !matches!(self.looks[place as usize], Look::Write(true))
            {
                return;
            }
            let held = self.under_way.count * self.unit_blocks;
            let writes = matches!(first.wanted, Wanted::Write { through: false, .. });
            let writes = writes && self.ram_blocks > 0;
            if writes && held > 0 && held + first.blocks > self.ram_blocks {
                return;
            }
            let Some(Waiting {
                tag,
                wanted,
                lba,
                blocks,
                look,
            }) = self.waiting.pop_front()
            else {
                return;
            };
            if let Some(place) = look {
                self.looks[place as usize] = Look::Free;
                self.free_looks.push(place);
            }
            let barrier = match wanted {
                Wanted::Write {
                    fua,
                    through,
                    stream,
                } => {
                    self.map.place(stream);
                    // A write that makes everything durable waits for all units anyway.
                    let through = self.ram_blocks == 0 || (through && !fua);
                    let through = through.then(|| io.time.begin(tag));
                    for lba in lba..lba + blocks {
                        self.map.write(lba);
                        if self.stage.is_some() {
                            self.carry_out(io, Some(lba), None);
                        }
                    }
                    if self.map.is_paged() {
                        self.map.settle();
                    }
                    self.carry_out(io, None, through);
                    if let Some(through) = through {
                        io.time.end(through);
                        continue;
                    }
                    fua
                }
                Wanted::Discard => {
                    (lba..lba + blocks).for_each(|lba| self.map.forget(lba));
                    false
                }
                Wanted::Flush | Wanted::Read => true,
            };
            if barrier && self.under_way.count > 0 {
                self.flushes.push_back((self.under_way.next(), tag));
            } else if barrier {
                self.flushed(io, tag);
            } else {
                io.time.done(tag);
            }
        }
    }

    fn flushed(&self, io: &mut Io<'_>, tag: Tag) {
        match self.flush_ns {
            0 => io.time.done(tag),
            _ if io.time.is_instant() => io.time.done(tag),
            nanos => io.time.at(io.time.now() + nanos, tag),
        }
    }

    fn program(io: &mut Io<'_>, unit: u64, at: (Die, Cell)) {
        let job = io.time.begin_single(Tag::Unit(unit));
        io.flash.program(io.time, at, Some(job));
    }

    /// Sends the map's operations to the flash. `lba` was written, and is in the last unit that is programmed, if any. `through`
    /// is the job of a write that waits for the units.
    pub(super) fn carry_out(&mut self, io: &mut Io<'_>, lba: Option<u64>, through: Option<Job>) {
        self.map.take_ops(&mut self.ops);
        let instant = io.time.is_instant();
        if let (Some(stage), Some(lba), false) = (&mut self.stage, lba, instant) {
            let die = self.map.find(lba).map_or(Die(0), |place| place.at.0);
            stage.begin(lba, die);
        }
        let last = self.ops.len().wrapping_sub(1);
        for (at, op) in self.ops.drain(..).enumerate() {
            match op {
                FlashOp::Read(die, block, cell, blocks) => {
                    io.flash.read(io.time, (die, block, cell), blocks, None);
                }
                FlashOp::Erase(die, block) => {
                    if io.flash.erase(io.time, die, block, None) {
                        self.map.replaced(die, block);
                    }
                }
                FlashOp::EraseCache(die) => io.flash.erase_slc(io.time, die),
                FlashOp::Summary(die) => io.flash.summary(io.time, die, through),
                FlashOp::Copy(die) => io.flash.copy(io.time, die, None),
                FlashOp::Program(die, cell)
                    if instant || through.is_some() || self.ram_blocks == 0 =>
                {
                    io.flash.program(io.time, (die, cell), through);
                }
                FlashOp::Program(die, cell) => {
                    let unit = self.under_way.begin();
                    let goes = match &mut self.stage {
                        Some(stage) if at == last => stage.programs(unit, die),
                        _ => true,
                    };
                    if goes {
                        Self::program(io, unit, (die, cell));
                    }
                }
            }
        }
        let (flash, now) = (&mut io.flash, io.time.now());
        self.map
            .tell_filled(|die, block| flash.filled(now, die, block));
    }

    fn read(&mut self, io: &mut Io<'_>, tag: Tag, lba: u64, blocks: u64) {
        let job = io.time.begin(tag);
        let mut run = None;
        let mut count = 0;
        for lba in lba..lba + blocks {
            let at = self.map.find(lba);
            if run.is_some() && at != run {
                if let Some(place) = run {
                    io.flash.read(io.time, place.at, count, Some(job));
                }
                count = 0;
            }
            run = at;
            count += u32::from(at.is_some());
        }
        if let Some(place) = run {
            io.flash.read(io.time, place.at, count, Some(job));
        }
        io.time.end(job);
    }
}
