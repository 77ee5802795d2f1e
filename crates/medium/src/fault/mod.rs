//! The fault injector: a medium that does what real ones do on a bad day.
//!
//! It wraps a pristine medium and keeps unsynced writes in a volatile cache, visible to reads, as a drive does. One seed decides
//! everything, so a failure can be reproduced.
//!
//! It may cause these faults, and no others:
//!
//! | fault | what happens | reported |
//! | --- | --- | --- |
//! | power cut | of the writes that no sync or durable write has covered, any subset stays, in any order, torn at 512-byte sectors; then every operation fails until [`restart`](FaultMedium::restart) | yes, from then on |
//! | early write-back | a full cache writes some block before any sync | no |
//! | discard | unsynced writes to the range are gone; the blocks read as zeros or as older content | no |
//! | `read_error` | a read fails, and its memory is undefined | yes |
//! | `flip_read` | one bit read is wrong, this time | no |
//! | `write_error` | a write fails; any of its sectors may have changed | yes |
//! | `full` | a write fails with ENOSPC and changes nothing | yes |
//! | `flip_write` | one bit written is wrong, permanently | no |
//! | `misdirected_write` | a write lands on other blocks; the intended blocks keep their content | no |
//! | `lost_write` | a write is reported and never happens | no |
//! | `sync_error` | a sync fails; any of the unsynced writes may be lost, any may be durable; all of them read as written until the [cache is dropped](Medium::drop_cache) or the power is cut, and no later sync writes them | yes |
//! | `lost_sync` | a sync, or the durability of a write, is reported but did not happen | no |
//!
//! So, whatever the seed, these guarantees are *kept*: a write that is durable itself, or is covered by a sync that succeeded
//! (`lost_sync` aside), stays until it is overwritten or discarded; a sector is old or new, never a mixture; blocks that were not
//! written do not change (`misdirected_write` aside).
//!
//! Operations are carried out inside `submit`, in order, so that a seed always means the same.
//!
//! If a cut needs a real kernel above, whose writes no seed decides, a [`Recorder`] records them once, and [`Cuts`] builds what
//! any number of cuts would have left.

mod cache;
mod cuts;
mod plan;
mod recorder;
mod rng;
mod tape;

pub use cache::{CutReport, SECTOR_BYTES};
pub use cuts::Cuts;
pub use plan::{Fault, Plan, PlanError, Rule};
pub use recorder::Recorder;
pub use rng::Rng;
pub use tape::{Asked, Event, Tape};

use crate::completions::Completions;
use crate::error::MediumError;
use crate::io::{Done, Io, Kind, check_bytes};
use crate::medium::Medium;
use crate::memory::MemoryMedium;
use cache::Cache;
use parking_lot::Mutex;
use std::io;
use std::time::Duration;
use vellum_core::addr::{BLOCK_BYTES, Pba};

/// A medium with faults over another one. The table in the [module](self) lists the faults.
pub struct FaultMedium {
    base: Box<dyn Medium>,
    name: String,
    completions: Completions,
    state: Mutex<State>,
}

struct State {
    plan: Plan,
    rng: Rng,
    cache: Cache,
    /// Writes that a failed sync should have made durable: the page cache considers them clean, whether or not they are on the medium.
    given_up: Cache,
    off: bool,
    full: bool,
    ios: u64,
    seen: Vec<u64>,
    stats: FaultStats,
    scratch: Vec<u8>,
}

/// Counts of what has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultStats {
    /// Reads, writes, syncs and discards.
    pub ios: u64,
    /// How often each of [`Fault::ALL`] happened.
    pub faults: [u64; Fault::ALL.len()],
    /// Power cuts.
    pub cuts: u64,
    /// What the last power cut did.
    pub last_cut: CutReport,
}

impl std::fmt::Debug for FaultMedium {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultMedium")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl FaultMedium {
    /// Adds faults over a medium that nothing else uses.
    #[must_use]
    pub fn new(base: Box<dyn Medium>, plan: Plan) -> Self {
        let name = format!("{} (with injected faults)", base.name());
        let state = State {
            rng: Rng::new(plan.seed),
            seen: vec![0; plan.rules.len()],
            plan,
            cache: Cache::default(),
            given_up: Cache::default(),
            off: false,
            full: false,
            ios: 0,
            stats: FaultStats::default(),
            scratch: Vec::new(),
        };
        Self {
            base,
            name,
            completions: Completions::default(),
            state: Mutex::new(state),
        }
    }

    /// Adds faults over blank memory.
    #[must_use]
    pub fn over_memory(blocks: u64, plan: Plan) -> Self {
        Self::new(Box::new(MemoryMedium::new(blocks)), plan)
    }

    /// Replaces the plan. Counts start again.
    pub fn set_plan(&self, plan: Plan) {
        let state = &mut *self.state.lock();
        state.rng = Rng::new(plan.seed);
        state.seen = vec![0; plan.rules.len()];
        state.ios = 0;
        state.plan = plan;
    }

    /// Makes every write fail with ENOSPC from now on, or stops that.
    pub fn set_full(&self, full: bool) {
        self.state.lock().full = full;
    }

    /// Cuts the power: unsynced writes may be lost, and every operation fails until [`restart`](Self::restart).
    pub fn power_cut(&self, seed: u64) -> CutReport {
        let state = &mut *self.state.lock();
        self.cut(state, &mut Rng::new(seed))
    }

    /// True if the power is off.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.state.lock().off
    }

    /// Restores the power for a new user. A planned cut is cancelled, and completions that were never taken are dropped: the
    /// previous user, if it still waits for them, waits for ever.
    pub fn restart(&self) {
        self.power_on();
        self.completions.clear();
    }

    /// Restores the power for the same user. A planned cut is cancelled.
    pub fn power_on(&self) {
        let state = &mut *self.state.lock();
        state.off = false;
        state.plan.cut_after = None;
    }

    /// Damages a block in place: flips one bit (counted modulo the block's bits), permanently.
    ///
    /// # Errors
    /// If the medium below fails.
    pub fn flip_bit(&self, at: Pba, bit: usize) -> Result<(), MediumError> {
        let state = &mut *self.state.lock();
        if let Some(block) = state.cache.newest_mut(at.0) {
            flip(block, bit);
            return Ok(());
        }
        let mut block = [0; BLOCK_BYTES];
        self.base.read(at, &mut block)?;
        flip(&mut block, bit);
        self.base.write(at, &block)
    }

    /// Counts of what has happened.
    #[must_use]
    pub fn stats(&self) -> FaultStats {
        self.state.lock().stats
    }

    /// Blocks that a power cut could lose now.
    #[must_use]
    pub fn volatile_blocks(&self) -> usize {
        self.state.lock().cache.len()
    }

    /// Cuts the power without losing anything: all that was written is kept.
    pub fn power_off(&self) {
        let state = &mut *self.state.lock();
        for (block, bytes) in state.cache.take_all() {
            let _ = self.base.write(Pba(block), &bytes[..]);
        }
        self.cut(state, &mut Rng::new(0));
    }

    fn cut(&self, state: &mut State, rng: &mut Rng) -> CutReport {
        let base = &self.base;
        let report = state.cache.cut(rng, |at, sectors| {
            let mut block = [0; BLOCK_BYTES];
            // A failure of the base loses this write too; later reads show it.
            if base.read(Pba(at), &mut block).is_err() {
                return;
            }
            for (old, new) in block.chunks_exact_mut(SECTOR_BYTES).zip(sectors) {
                if let Some(new) = new {
                    old.copy_from_slice(new);
                }
            }
            let _ = base.write(Pba(at), &block);
        });
        let _ = base.sync();
        state.given_up = Cache::default();
        state.off = true;
        state.stats.cuts += 1;
        state.stats.last_cut = report;
        report
    }

    /// Counts an operation and decides whether it fails: `Err` if the power is off or goes off now. In the latter case `last`
    /// runs first, because what is in flight may still reach the medium.
    fn begin(&self, state: &mut State, last: impl FnOnce(&mut State)) -> io::Result<()> {
        if !state.off {
            state.ios += 1;
            state.stats.ios += 1;
            if state.plan.cut_after.is_none_or(|after| state.ios <= after) {
                return Ok(());
            }
            last(state);
            let mut rng = Rng::new(state.rng.bits());
            self.cut(state, &mut rng);
        }
        Err(io::Error::other("the power is off"))
    }

    fn do_read(&self, at: Pba, bytes: &mut [u8]) -> io::Result<()> {
        check_bytes(at, bytes.len(), self.blocks())?;
        let state = &mut *self.state.lock();
        self.begin(state, |_| {})?;
        let fault = state.choose(plan::READ, at, bytes.len());
        if fault == Some(Fault::ReadError) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.base.read(at, bytes).map_err(|e| e.source)?;
        state.overlay(at, bytes);
        if fault == Some(Fault::FlipRead) {
            let bit = state.rng.below(bytes.len() as u64 * 8);
            flip(bytes, bit as usize);
        }
        Ok(())
    }

    fn do_write(
        &self,
        state: &mut State,
        at: Pba,
        bytes: &mut [u8],
        durable: bool,
    ) -> io::Result<()> {
        check_bytes(at, bytes.len(), self.blocks())?;
        self.begin(state, |state| state.insert(at, bytes))?;
        let (mut at, mut durable) = (at, durable);
        if state.full {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        match state.choose(plan::WRITE, at, bytes.len()) {
            Some(Fault::WriteError) => {
                self.tear(state, at, bytes);
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            Some(Fault::Full) => return Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            Some(Fault::FlipWrite) => {
                let bit = state.rng.below(bytes.len() as u64 * 8);
                flip(bytes, bit as usize);
            }
            Some(Fault::MisdirectedWrite) => {
                let places = self.blocks() - (bytes.len() / BLOCK_BYTES) as u64;
                let other = state.rng.below(places);
                // Any place except the intended one.
                at = Pba(if other >= at.0 { other + 1 } else { other }.min(places));
            }
            Some(Fault::LostWrite) => return Ok(()),
            _ => {}
        }
        // A medium that lies about a sync also lies about a durable write.
        if durable && state.choose(plan::DURABILITY, at, bytes.len()) == Some(Fault::LostSync) {
            durable = false;
        }
        if durable || state.plan.cache_blocks_max == 0 {
            let end = at.0 + (bytes.len() / BLOCK_BYTES) as u64;
            self.base.write(at, bytes).map_err(|e| e.source)?;
            state.cache.forget(at.0..end);
            state.given_up.forget(at.0..end);
            return if durable {
                self.base.sync().map_err(|e| e.source)
            } else {
                Ok(())
            };
        }
        state.insert(at, bytes);
        while state.cache.len() > state.plan.cache_blocks_max {
            let Some((block, bytes)) = state.cache.evict(&mut state.rng) else {
                break;
            };
            self.base.write(Pba(block), &*bytes).map_err(|e| e.source)?;
        }
        Ok(())
    }

    /// Lets a write fail midway: some of its sectors are new.
    fn tear(&self, state: &mut State, at: Pba, bytes: &mut [u8]) {
        let mut old = vec![0; bytes.len()];
        if self.base.read(at, &mut old).is_err() {
            return;
        }
        state.overlay(at, &mut old);
        for (new, old) in bytes
            .chunks_exact_mut(SECTOR_BYTES)
            .zip(old.chunks_exact(SECTOR_BYTES))
        {
            if state.rng.chance(1, 2) {
                new.copy_from_slice(old);
            }
        }
        state.insert(at, bytes);
    }

    fn do_sync(&self) -> io::Result<()> {
        let state = &mut *self.state.lock();
        self.begin(state, |_| {})?;
        let fault = state.choose(plan::SYNC, Pba(0), usize::MAX);
        if fault == Some(Fault::LostSync) {
            return Ok(());
        }
        for (block, bytes) in state.cache.take_all() {
            // After a failed fsync, Linux considers dirty pages clean: they read as before, and are never written.
            if fault.is_some() {
                state.given_up.insert(block, &*bytes);
            }
            if fault.is_none() || state.rng.chance(1, 2) {
                self.base.write(Pba(block), &*bytes).map_err(|e| e.source)?;
            }
        }
        self.base.sync().map_err(|e| e.source)?;
        match fault {
            Some(_) => Err(io::Error::from_raw_os_error(libc::EIO)),
            None => Ok(()),
        }
    }

    fn do_discard(&self, at: Pba, blocks: u64) -> io::Result<()> {
        let state = &mut *self.state.lock();
        self.begin(state, |_| {})?;
        state.cache.forget(at.0..at.0 + blocks);
        state.given_up.forget(at.0..at.0 + blocks);
        if state.rng.chance(1, 4) {
            return Ok(()); // older content shines through
        }
        // The base is ours alone, so the next completion belongs to this operation.
        let mut done = Vec::new();
        self.base
            .submit(&mut vec![Io::new(0, Kind::Discard { blocks }, at)]);
        while done.is_empty() {
            self.base.wait(&mut done, None);
        }
        done.into_iter()
            .try_for_each(|d| d.result.map_err(|e| e.source))
    }

    fn perform(&self, io: &Io) -> io::Result<()> {
        io.check(self.blocks())?;
        match io.kind {
            Kind::Sync => self.do_sync(),
            Kind::Discard { blocks } => self.do_discard(io.at, blocks),
            Kind::Read => {
                let mut bytes = vec![0; io.len()];
                self.do_read(io.at, &mut bytes)?;
                let mut rest = bytes.as_slice();
                for piece in io.pieces() {
                    let (part, after) = rest.split_at(piece.len);
                    // SAFETY: the piece is ours until the Io is given back.
                    unsafe { piece.bytes_mut() }.copy_from_slice(part);
                    rest = after;
                }
                Ok(())
            }
            Kind::Write { durable } => {
                let state = &mut *self.state.lock();
                let mut bytes = std::mem::take(&mut state.scratch);
                bytes.clear();
                for piece in io.pieces() {
                    // SAFETY: the piece is ours until the Io is given back, and only read.
                    bytes.extend_from_slice(unsafe { piece.bytes() });
                }
                let result = self.do_write(state, io.at, &mut bytes, durable);
                state.scratch = bytes;
                result
            }
        }
    }

    fn error(&self, operation: &'static str, at: Pba, source: io::Error) -> MediumError {
        MediumError::at(operation, &self.name, at, source)
    }
}

impl State {
    /// Lays over `bytes` what reads return in place of what the medium below has.
    fn overlay(&self, at: Pba, bytes: &mut [u8]) {
        self.given_up.overlay(at.0, bytes);
        self.cache.overlay(at.0, bytes);
    }

    /// Adds a write that is not durable yet.
    fn insert(&mut self, at: Pba, bytes: &[u8]) {
        self.given_up
            .forget(at.0..at.0 + (bytes.len() / BLOCK_BYTES) as u64);
        self.cache.insert(at.0, bytes);
    }

    /// Chooses which of these faults, if any, this operation gets: by a rule, or by chance.
    fn choose(&mut self, faults: &[Fault], at: Pba, bytes: usize) -> Option<Fault> {
        let end = at.0.saturating_add((bytes / BLOCK_BYTES) as u64);
        let mut chosen = None;
        for (rule, seen) in self.plan.rules.iter().zip(&mut self.seen) {
            let touches = rule.blocks.start < end && at.0 < rule.blocks.end;
            if !touches || !faults.contains(&rule.fault) {
                continue;
            }
            *seen += 1;
            if *seen > rule.skip && *seen - rule.skip <= rule.times && chosen.is_none() {
                chosen = Some(rule.fault);
            }
        }
        for &fault in faults {
            let rate = self.plan.rates[fault as usize];
            // Drawn even if a rule has chosen, so that a rule does not change what chance does elsewhere.
            if rate > 0 && self.rng.chance(rate, 1_000_000) {
                chosen = chosen.or(Some(fault));
            }
        }
        if let Some(fault) = chosen {
            self.stats.faults[fault as usize] += 1;
        }
        chosen
    }
}

impl Medium for FaultMedium {
    fn name(&self) -> &str {
        &self.name
    }

    fn blocks(&self) -> u64 {
        self.base.blocks()
    }

    fn wants_discard(&self) -> bool {
        self.base.wants_discard()
    }

    fn discard_blocks_min(&self) -> u32 {
        self.base.discard_blocks_min()
    }

    fn submit(&self, ios: &mut Vec<Box<Io>>) {
        self.completions.push_all(ios.drain(..).map(|io| {
            let result = self.perform(&io);
            io.done(&self.name, result)
        }));
    }

    fn do_now(&self, io: Box<Io>) -> Result<Done, Box<Io>> {
        let result = self.perform(&io);
        Ok(io.done(&self.name, result))
    }

    fn wait(&self, done: &mut Vec<Done>, timeout: Option<Duration>) {
        self.completions.wait(done, timeout);
    }

    fn wake(&self) {
        self.completions.wake();
    }

    fn read(&self, at: Pba, bytes: &mut [u8]) -> Result<(), MediumError> {
        self.do_read(at, bytes)
            .map_err(|e| self.error("read", at, e))
    }

    fn write(&self, at: Pba, bytes: &[u8]) -> Result<(), MediumError> {
        let state = &mut *self.state.lock();
        let mut copy = bytes.to_vec();
        self.do_write(state, at, &mut copy, false)
            .map_err(|e| self.error("write", at, e))
    }

    fn sync(&self) -> Result<(), MediumError> {
        self.do_sync().map_err(|e| self.error("sync", Pba(0), e))
    }

    fn drop_cache(&self) -> Result<(), MediumError> {
        self.sync()?;
        self.state.lock().given_up = Cache::default();
        self.base.drop_cache()
    }
}

fn flip(bytes: &mut [u8], bit: usize) {
    let bit = bit % (bytes.len().max(1) * 8);
    if let Some(byte) = bytes.get_mut(bit / 8) {
        *byte ^= 1 << (bit % 8);
    }
}
