//! A log for blocks that a host overwrites, in zones of its own, on a drive that has none that may be overwritten.
//!
//! Each write appends a header block, which names the blocks behind it, and then the blocks. Where each is, is in RAM; after a crash
//! the host would read the headers. When the free zones run short, the host moves what is live in the emptiest one, and resets it.
//! The headers and the moves are what it costs that the zones cannot be overwritten.

use super::drive::ZonedDrive;
use super::zones::{State, ZoneError};
use crate::base::Io;
use crate::timeline::Job;
use std::collections::VecDeque;

const NONE: u32 = u32::MAX;
/// Zones beside those that hold the blocks: one that is being filled, and one that the collector can fill.
pub const SPARE: u32 = 2;
/// The most blocks that a header names: it has 4 bytes for each, and some for itself.
const NAMED: u32 = 1000;

/// The log; see the module.
pub struct MetaLog {
    /// Its zones are the first of the drive.
    capacity: u32,
    /// Where each block is, as zone times capacity plus its place there.
    places: Vec<u32>,
    /// What is at each place.
    owners: Vec<u32>,
    live: Vec<u32>,
    open: u32,
    free: VecDeque<u32>,
    headers: u64,
    moved: u64,
}

impl MetaLog {
    /// Returns the zones that a log of so many blocks needs, where a zone holds `capacity` of them.
    #[must_use]
    pub fn zones_for(blocks: u64, capacity: u32) -> u32 {
        // Each block may have a header of its own.
        (2 * blocks).div_ceil(u64::from(capacity)) as u32 + SPARE
    }

    /// Returns an empty log of `blocks` blocks in the first `zones` zones of a drive.
    #[must_use]
    pub fn new(blocks: u64, zones: u32, capacity: u32) -> Self {
        Self {
            capacity,
            places: vec![NONE; blocks as usize],
            owners: vec![NONE; (zones * capacity) as usize],
            live: vec![0; zones as usize],
            open: 0,
            free: (1..zones).collect(),
            headers: 0,
            moved: 0,
        }
    }

    /// True if the zone that it fills is active.
    #[must_use]
    pub fn is_active(&self, drive: &ZonedDrive) -> bool {
        let state = drive.zones().get(self.open);
        state.is_ok_and(|(state, _)| !matches!(state, State::Empty | State::Full))
    }

    /// Headers written, and blocks moved.
    #[must_use]
    pub fn own(&self) -> (u64, u64) {
        (self.headers, self.moved)
    }

    /// Writes blocks.
    ///
    /// # Errors
    /// If it breaks a rule of the drive.
    pub fn write(
        &mut self,
        io: &mut Io<'_>,
        drive: &mut ZonedDrive,
        (first, blocks): (u64, u32),
        job: Option<Job>,
    ) -> Result<(), ZoneError> {
        let lbas: Vec<u32> = (0..blocks).map(|block| first as u32 + block).collect();
        self.append(io, drive, &lbas, job)?;
        while self.free.len() < SPARE as usize - 1 {
            self.collect(io, drive, job)?;
        }
        Ok(())
    }

    /// Reads blocks.
    ///
    /// # Errors
    /// If it breaks a rule of the drive.
    pub fn read(
        &self,
        io: &mut Io<'_>,
        drive: &mut ZonedDrive,
        (first, blocks): (u64, u32),
        job: Option<Job>,
    ) -> Result<(), ZoneError> {
        for lba in first..first + u64::from(blocks) {
            if let Some(place) = self.places.get(lba as usize).filter(|&&at| at != NONE) {
                drive.read(io, place / self.capacity, (place % self.capacity, 1), job)?;
            }
        }
        Ok(())
    }

    fn append(
        &mut self,
        io: &mut Io<'_>,
        drive: &mut ZonedDrive,
        lbas: &[u32],
        job: Option<Job>,
    ) -> Result<(), ZoneError> {
        let mut rest = lbas;
        while !rest.is_empty() {
            let (_, at) = drive.zones().get(self.open)?;
            let left = self.capacity - at;
            if left < 2 {
                drive.finish(self.open)?;
                let Some(next) = self.free.pop_front() else {
                    unreachable!("a zone is kept free for the collector")
                };
                self.open = next;
                continue;
            }
            let count = (left - 1).min(NAMED).min(rest.len() as u32);
            let (now, later) = rest.split_at(count as usize);
            drive.write(io, self.open, (at, count + 1), job)?;
            self.headers += 1;
            for (place, &lba) in (self.open * self.capacity + at + 1..).zip(now) {
                self.put(lba, place);
            }
            rest = later;
        }
        Ok(())
    }

    fn put(&mut self, lba: u32, place: u32) {
        let old = std::mem::replace(&mut self.places[lba as usize], place);
        if old != NONE {
            self.live[(old / self.capacity) as usize] -= 1;
        }
        self.owners[place as usize] = lba;
        self.live[(place / self.capacity) as usize] += 1;
    }

    /// Moves what is live in the emptiest zone, and resets that.
    fn collect(
        &mut self,
        io: &mut Io<'_>,
        drive: &mut ZonedDrive,
        job: Option<Job>,
    ) -> Result<(), ZoneError> {
        let all = 0..self.live.len() as u32;
        let closed = all.filter(|zone| *zone != self.open && !self.free.contains(zone));
        let Some(victim) = closed.min_by_key(|&zone| self.live[zone as usize]) else {
            unreachable!("what is neither open nor free is full")
        };
        let places = victim * self.capacity..(victim + 1) * self.capacity;
        let is_live = |place: &u32| {
            let owner = self.owners[*place as usize];
            owner != NONE && self.places[owner as usize] == *place
        };
        let live: Vec<u32> = places.clone().filter(is_live).collect();
        for &place in &live {
            drive.read(io, victim, (place % self.capacity, 1), None)?;
        }
        let lbas: Vec<u32> = live.iter().map(|&at| self.owners[at as usize]).collect();
        self.append(io, drive, &lbas, job)?;
        self.moved += lbas.len() as u64;
        places.for_each(|place| self.owners[place as usize] = NONE);
        drive.reset(io, victim, job)?;
        self.free.push_back(victim);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::{Flash, Nand, Shape, Zoned};
    use crate::rng::Rng;
    use crate::timeline::Timeline;

    #[test]
    fn whatever_is_overwritten_is_found_and_no_rule_is_broken() {
        let shape = Shape {
            channels: 1,
            dies: 2,
            erase_blocks: 10,
            units: 16,
            unit_blocks: 2,
        };
        let zoned = Zoned {
            dies: 2,
            deep: 1,
            open: 1,
            active: 1,
            ..Zoned::default()
        };
        let nand = Nand {
            channels: 1,
            dies_per_channel: 2,
            planes: 1,
            pages_per_block: 16,
            page_bytes: 4096,
            bus_bytes_per_s: 1_000_000,
            ..Nand::default()
        };
        let mut flash = Flash::new(&nand, shape, false);
        let mut time = Timeline::default();
        time.set_instant(true);
        let mut io = Io {
            flash: &mut flash,
            time: &mut time,
        };
        let mut drive = ZonedDrive::new(&shape, &zoned);
        let capacity = drive.zones().limits().capacity;
        assert_eq!(capacity, 64);
        let zones = MetaLog::zones_for(100, capacity);
        assert_eq!(zones, 4 + SPARE);
        let mut log = MetaLog::new(100, zones, capacity);
        let mut rng = Rng::new(3);
        let mut written = [false; 100];
        let mut blocks = 0;
        for _ in 0..20_000 {
            let first = rng.below(100);
            let count = rng.below(5).min(100 - first);
            log.write(&mut io, &mut drive, (first, count as u32), None)
                .unwrap();
            (first..first + count).for_each(|lba| written[lba as usize] = true);
            blocks += count;
        }
        let mut seen = std::collections::BTreeSet::new();
        for (lba, &place) in log.places.iter().enumerate() {
            assert_eq!(place != NONE, written[lba]);
            assert!(seen.insert(place), "two blocks at {place}");
            assert_eq!(log.owners[place as usize], lba as u32);
        }
        let live: u32 = log.live.iter().sum();
        assert_eq!(live as usize, seen.len());
        let (headers, moved) = log.own();
        assert_eq!(drive.written(), blocks + headers + moved);
        assert!(moved > 0 && headers > 1000, "{headers} {moved}");
        assert_eq!(drive.zones().active_most(), 1);
    }
}
