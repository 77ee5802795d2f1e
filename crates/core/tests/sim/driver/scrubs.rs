//! Scrubs beside everything else in a life, run by the core's state machine with the driver as its host. Answers come late. Some blocks
//! went bad before: scrubs must find them, and mend those that have a copy.
//!
//! | what must hold | how it is checked |
//! | --- | --- |
//! | no whole block is called damaged | something is bad where it is, or reads fail |
//! | a block that was bad all along, and is still mapped, is found | when a scrub has ended |
//! | a mended block is as it was | the model knows what may be read there |
//! | a bad mirror of the superblock is found and rewritten | when it is read again |

use super::{Ask, Driver, Failure, Request, SEGMENT_MAX, ensure};
use crate::sim::medium::{BLOCK, Broken, Rot};
use crate::sim::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};
use vellum_core::addr::{Lba, Nanos, Pba, RequestId, Segment};
use vellum_core::format::summary::{self, Tag};
use vellum_core::format::superblock::Superblock;
use vellum_core::seam::{Input, Mend, Refusal, Service};
use vellum_core::service::copies;
use vellum_core::service::scrub::{Item, Plan, Scrub, Seen, Step, Verdict};

/// The results of scrubs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scrubbed {
    pub ended: u64,
    /// Blocks that were called damaged.
    pub damaged: u64,
    /// Those of them that were rewritten from a copy.
    pub mended: u64,
    /// Mirrors that were rewritten.
    pub mirrors: u64,
}

/// What a scrub waits for.
enum Waits {
    Nothing,
    /// A read, with its request.
    Blocks(Lba, u32, u32),
    /// The machine gets this later.
    Tell(Item, u64, Seen),
}

/// A block that was bad when the life began.
#[derive(Clone, Copy)]
struct Bad {
    lba: u64,
    at: u64,
    bit: u16,
    /// The time by the model's clock.
    since: u64,
}

impl Bad {
    /// True if it is still bad.
    fn is_there(&self, driver: &Driver) -> bool {
        let rot = driver.medium.rot.get(&self.at);
        matches!(rot, Some(Rot::Flip(bit)) if *bit == self.bit)
            && driver.core.leads_to(Lba(self.lba), Pba(self.at))
            && !driver.model.is_changed_since(self.lba, self.since)
    }
}

/// A scrub that is under way.
struct One {
    machine: Scrub,
    /// The blocks that it must find.
    hidden: Vec<Bad>,
    found: BTreeSet<u64>,
}

/// A block to be rewritten from this copy.
struct Mends {
    lba: u64,
    at: Pba,
    token: u32,
}

/// A life's scrubs. They use a separate generator, so that seeds mean what they did before.
pub struct Scrubs {
    rng: Rng,
    /// One step in so many is a scrub's; 0: there are none.
    one_in: u64,
    rate: u32,
    one: Option<One>,
    waits: Waits,
    /// The damaged blocks of the last scrub that are left to mend.
    damaged: Vec<u64>,
    mends: Option<Mends>,
    bad: Vec<Bad>,
    now: u64,
    pub came_to: Scrubbed,
}

impl Scrubs {
    pub fn new(seed: u64, are_there: bool) -> Self {
        let mut rng = Rng::new(seed ^ 0x5c2b);
        let one_in = rng.pick(&[0, 0, 1, 3]);
        Self {
            one_in: if are_there { one_in } else { 0 },
            rate: rng.pick(&[0, 0, 1000]) as u32,
            one: None,
            waits: Waits::Nothing,
            damaged: Vec::new(),
            mends: None,
            bad: Vec::new(),
            now: 1,
            came_to: Scrubbed::default(),
            rng,
        }
    }

    /// Makes some blocks of superblocks and of needed data go bad. Returns true if it has.
    pub fn spoil(&mut self, driver: &mut Driver) -> bool {
        if self.one_in == 0 || self.rng.percent(30) {
            return false;
        }
        let places = 0..driver.medium.blocks();
        let data: Vec<u64> = places.filter(|at| driver.medium.is_data(*at)).collect();
        let mut copies = BTreeMap::new();
        for &at in &data {
            let token = driver.medium.read(at).token();
            copies.entry(token).or_insert_with(Vec::new).push(at);
        }
        // Many of these blocks have a copy.
        let twice = copies.into_values().filter(|of| of.len() > 1);
        let twice: Vec<u64> = twice.flatten().collect();
        let since = driver.model.clock();
        for _ in 0..self.rng.range(1, 60) {
            let of = match self.rng.percent(50) && !twice.is_empty() {
                true => &twice,
                false => &data,
            };
            let is_mirror = self.rng.percent(5) || of.is_empty();
            let at = match is_mirror {
                true => driver.core.superblock().mirrors()[self.rng.below(2) as usize].0,
                false => self.rng.pick(of),
            };
            let bit = self.rng.below(8 * BLOCK as u64) as u16;
            let lbas = 0..driver.model.blocks();
            let leads = lbas.filter(|lba| driver.core.leads_to(Lba(*lba), Pba(at)));
            let bad = leads.map(|lba| Bad {
                lba,
                at,
                bit,
                since,
            });
            let known = self.bad.len();
            self.bad.extend(bad);
            if is_mirror || self.bad.len() > known {
                driver.medium.rot.insert(at, Rot::Flip(bit));
            }
        }
        true
    }

    /// Takes a step now and then.
    pub fn serve(&mut self, driver: &mut Driver) -> Result<(), Failure> {
        if self.one_in == 0 || self.rng.below(self.one_in) > 0 || driver.open_requests() > 60 {
            return Ok(());
        }
        if !self.damaged.is_empty() || self.mends.is_some() {
            return self.mend(driver);
        }
        if !self.has_come(driver)? {
            return Ok(());
        }
        let busy = driver.open_requests() > 0 && self.rng.percent(50);
        let now = Nanos(self.now);
        let Some(one) = &mut self.one else {
            if self.rng.percent(5) {
                self.begin(driver);
            }
            return Ok(());
        };
        match one.machine.next(now, busy) {
            Step::Wait(until) => self.now = until.0,
            Step::End => self.end(driver)?,
            Step::Look(Item::Blocks(lba, blocks)) => {
                // Notes the place now and then, as at rest and after a whole scrub.
                let to = one.machine.place();
                if self.rng.percent(10) {
                    let keep = to != 0;
                    driver.feed(Input::Service(Service::Mend(Mend::Scrubbed { to, keep })))?;
                }
                self.waits = driver.look(lba, blocks)?;
            }
            Step::Look(item) => {
                let seen = driver.look_at(item);
                self.waits = Waits::Tell(item, 1, seen);
            }
        }
        // Some scrubs are ended early.
        if self.rng.below(2000) == 0 {
            self.one = None;
            self.waits = Waits::Nothing;
        }
        Ok(())
    }

    fn begin(&mut self, driver: &Driver) {
        let plan = Plan::of(driver.core.superblock());
        let from = driver.core.scrubbed();
        let first = u64::from(from.saturating_sub(1));
        let bad = self.bad.iter().copied();
        let hidden = bad.filter(|bad| bad.lba >= first && bad.lba < plan.blocks);
        self.one = Some(One {
            machine: Scrub::new(plan, from, self.rate, Nanos(self.now)),
            hidden: hidden.filter(|bad| bad.is_there(driver)).collect(),
            found: BTreeSet::new(),
        });
    }

    /// Gives the machine the result of its request; true if it now waits for nothing.
    fn has_come(&mut self, driver: &mut Driver) -> Result<bool, Failure> {
        match std::mem::replace(&mut self.waits, Waits::Nothing) {
            Waits::Nothing => return Ok(true),
            Waits::Blocks(lba, blocks, id) => {
                // The results of a scrub that was ended are ignored.
                let Some((_, result)) = driver.looked.take_if(|(of, _)| *of == id) else {
                    self.waits = Waits::Blocks(lba, blocks, id);
                    return Ok(false);
                };
                let item = Item::Blocks(lba, blocks);
                let Some(seen) = driver.judge_look(result)? else {
                    self.one = None;
                    return Ok(true);
                };
                self.waits = Waits::Tell(item, blocks.into(), seen);
                return Ok(false);
            }
            Waits::Tell(item, read, seen) => self.tell(driver, item, read, seen)?,
        }
        Ok(true)
    }

    fn tell(
        &mut self,
        driver: &mut Driver,
        item: Item,
        read: u64,
        seen: Seen,
    ) -> Result<(), Failure> {
        let Some(one) = &mut self.one else {
            return Ok(());
        };
        if one.machine.seen(Nanos(self.now), item, read, seen) != Verdict::Damaged {
            return Ok(());
        }
        match item {
            Item::Blocks(lba, blocks) => {
                ensure!(blocks == 1, "{blocks} blocks are called damaged as one");
                one.machine.not_mended();
                one.found.insert(lba.0);
                self.came_to.damaged += 1;
                Ok(())
            }
            Item::Mirror(index) => {
                self.came_to.mirrors += 1;
                driver.feed(Input::Service(Service::Mend(Mend::Mirror(index))))
            }
            _ => Ok(()),
        }
    }

    /// Checks that everything bad has been found, unless it is elsewhere by now.
    fn end(&mut self, driver: &mut Driver) -> Result<(), Failure> {
        let Some(one) = self.one.take() else {
            return Ok(());
        };
        self.came_to.ended += 1;
        for bad in one.hidden {
            let Bad { lba, at, .. } = bad;
            ensure!(
                one.found.contains(&lba) || !bad.is_there(driver),
                "a scrub has not found LBA {lba}, which is bad at block {at}"
            );
        }
        self.damaged = one.found.into_iter().collect();
        Ok(())
    }

    /// Rewrites a block for which the last call found a copy, or looks for a copy of the next one.
    fn mend(&mut self, driver: &mut Driver) -> Result<(), Failure> {
        if let Some(Mends { lba, at, token }) = self.mends.take() {
            if driver.poisoned || !driver.core.leads_to(Lba(lba), at) {
                return Ok(());
            }
            let now = driver.model.clock();
            ensure!(
                driver.model.may_read(lba, token, now),
                "LBA {lba} is mended with {token:#x}, which it does not hold"
            );
            let tokens = vec![token];
            let fua = false;
            self.came_to.mended += u64::from(driver.ask(&Ask::Write { lba, tokens, fua })?);
            return Ok(());
        }
        let Some(lba) = self.damaged.pop() else {
            return Ok(());
        };
        self.mends = driver.copy_of(lba);
        Ok(())
    }
}

impl Driver {
    /// Examines blocks as the device does: not where nothing is stored, and otherwise by a client's read.
    fn look(&mut self, lba: Lba, blocks: u32) -> Result<Waits, Failure> {
        let item = Item::Blocks(lba, blocks);
        let extents = self.core.extents(lba, u64::MAX >> 1, 1);
        if let Some(&(run, false)) = extents.first() {
            return Ok(Waits::Tell(item, 0, Seen::Empty(run)));
        }
        self.looked = None;
        let id = self.number();
        let request = Request::Look {
            lba: lba.0,
            asked: self.model.clock(),
            got: vec![None; blocks as usize],
        };
        self.requests.insert(id, request);
        self.feed(Input::Read {
            id: RequestId(id),
            lba,
            blocks,
        })?;
        Ok(Waits::Blocks(lba, blocks, id))
    }

    /// What a read says about its blocks; `None` if the volume does not continue.
    fn judge_look(&mut self, result: Result<(), Refusal>) -> Result<Option<Seen>, Failure> {
        if self.medium.broken == Broken::ScrubTrusts {
            return Ok(Some(Seen::Good));
        }
        if self.medium.broken == Broken::ScrubSuspects && self.rng.percent(10) {
            return self.is_bad_near(Pba(self.medium.blocks() - 1));
        }
        match result {
            Ok(()) => Ok(Some(Seen::Good)),
            Err(Refusal::Corrupt(at) | Refusal::Unreadable(at)) => self.is_bad_near(at),
            Err(_) => Ok(None),
        }
    }

    /// Checks that something is bad where a block was called damaged.
    fn is_bad_near(&self, at: Pba) -> Result<Option<Seen>, Failure> {
        let near = at.0.saturating_sub(SEGMENT_MAX)..at.0 + SEGMENT_MAX;
        ensure!(
            self.faults.unreadable > 0 || self.suspects.range(near).next().is_some(),
            "a scrub calls what is at block {at} bad, and nothing there is"
        );
        Ok(Some(Seen::Bad))
    }

    /// Examines mirrors. Other metadata is never bad during a life.
    fn look_at(&mut self, item: Item) -> Seen {
        let Item::Mirror(index) = item else {
            return Seen::Good;
        };
        let ours = self.core.superblock();
        let at = ours.mirrors()[index as usize];
        let mut block = vec![0; BLOCK];
        self.medium.read_into(at.0, &mut block);
        let found = Superblock::decode(&block, ours.medium_blocks(), crc32c::crc32c);
        match found.is_ok_and(|found| found.mirrors_same_life(ours)) {
            true => Seen::Good,
            false => Seen::Bad,
        }
    }

    /// A stored block that is a copy of what should be at `lba`.
    fn copy_of(&mut self, lba: u64) -> Option<Mends> {
        let (at, sum) = self.core.whole_at(Lba(lba))?;
        let superblock = self.core.superblock().clone();
        if !copies::are_told_apart(&superblock) {
            return None;
        }
        let mut left = vec![0; BLOCK];
        self.medium.read_into(at.0, &mut left);
        let mut content = vec![0; BLOCK];
        for segment in (0..superblock.segment_count()).map(Segment) {
            let start = superblock.segment_start(segment);
            let tags = self.tags(&superblock, segment).unwrap_or_default();
            for (tag, place) in tags.iter().zip(start.0..) {
                let Some(owner) = copies::owner(&superblock, tag) else {
                    continue;
                };
                let is_meant = tag.sum == sum || self.medium.broken == Broken::MendsByPlace;
                if !is_meant || place == at.0 || self.read_fails(place, 1) {
                    continue;
                }
                let cell = self.medium.read(place);
                self.medium.read_into(place, &mut content);
                let is_whole = cell.sum(self.medium.tokens) == tag.sum;
                if is_whole && copies::is_copy(owner, Lba(lba), Some(&left), &content) {
                    let token = cell.token();
                    return Some(Mends { lba, at, token });
                }
            }
        }
        None
    }

    /// The tags of a segment's blocks, from memory or from its summary.
    fn tags(&self, superblock: &Superblock, segment: Segment) -> Option<Vec<Tag>> {
        if let Some(tags) = self.core.written_tags(segment) {
            return Some(tags);
        }
        let usable = superblock.usable_blocks();
        let at = superblock.segment_start(segment).plus(usable.into());
        let mut bytes = vec![0; (superblock.segment_blocks() - usable) as usize * BLOCK];
        for (at, block) in (at.0..).zip(bytes.chunks_exact_mut(BLOCK)) {
            self.medium.read_into(at, block);
        }
        let (signature, crc) = (superblock.signature(), crc32c::crc32c);
        summary::decode(&signature, segment, usable as usize, &bytes, crc).ok()
    }
}
