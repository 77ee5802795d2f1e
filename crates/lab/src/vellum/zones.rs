//! The engine's volume on a drive with zones: each segment is a zone, which is appended to and reset when the segment is free.
//!
//! The log overwrites nothing in its segments but a summary, rarely. What it does overwrite (the superblock, the map's leaves and
//! roots, and those summaries) goes to conventional zones if the drive has any: the drive's own small page map runs them. Otherwise
//! it goes to the first zones, as a log that the host collects ([`MetaLog`]). A block that the log leaves out at a segment's end is
//! written as zeros, because a zone has no gaps.
//!
//! The log may leave a segment before its last chunks are on flash, and its summary is written after those. So several zones may be
//! partly written at a time. A write that would make one more active than the drive allows waits until another zone is full.

use super::layout::{LayoutError, area, volume};
use crate::base::{Drive, Io, PageMap, Victim, Wanted};
use crate::flash::{Shape, Zoned};
use crate::timeline::Tag;
use crate::zoned::{MetaLog, Stripe, ZoneError, ZonedDrive};
use std::collections::VecDeque;
use vellum_core::addr::{Pba, Segment};
use vellum_core::format::superblock::Superblock;

/// Where what is overwritten goes.
enum Area {
    /// To conventional zones.
    Conventional(Box<Drive>),
    /// To a log in zones.
    Log(MetaLog),
}

/// The zones that the log's heads fill, and one that a head has left, whose summary is still to be written.
const ACTIVE: u32 = 3;

/// A write to a zone.
struct Write {
    tag: Tag,
    zone: u32,
    at: u32,
    blocks: u32,
}

/// Where a block of the volume is.
enum Spot {
    /// In a segment.
    Segment(u32, u32),
    /// In the map area, by its number there.
    Area(u64),
}

/// The volume; see the module.
pub struct OnZones {
    drive: ZonedDrive,
    area: Area,
    /// The zone of the first segment.
    first_zone: u32,
    first: u64,
    segments: u32,
    segment_blocks: u32,
    /// The most zones of segments that may be active.
    active: u32,
    /// Writes that wait until a zone is full, in order.
    waiting: VecDeque<Write>,
    padded: u64,
    broken: Option<ZoneError>,
}

/// The active zones of the log of what is overwritten.
fn of_log(zoned: &Zoned) -> u32 {
    u32::from(zoned.conventional == 0)
}

impl OnZones {
    /// Lays out a volume of `logical` blocks. Returns its superblock, and the zones before those of its segments.
    ///
    /// # Errors
    /// When it does not fit.
    pub fn plan(
        shape: &Shape,
        zoned: &Zoned,
        logical: u64,
        over_permille: u32,
    ) -> Result<(Superblock, u32), LayoutError> {
        let needs = ACTIVE + of_log(zoned);
        if zoned.active < needs {
            let most = zoned.active;
            return Err(LayoutError::Active { needs, most });
        }
        let (stripe, zones) = Stripe::new(shape, zoned);
        let capacity = stripe.capacity();
        // The area's zones depend on the number of segments and reduce it: settle in a few steps.
        let mut before = 0;
        for _ in 0..4 {
            let segments = u64::from(zones.saturating_sub(before));
            let superblock = volume(segments, capacity, logical, over_permille)?;
            let needed = match zoned.conventional {
                0 => MetaLog::zones_for(area(&superblock), capacity),
                _ => 0,
            };
            if needed > before {
                before = needed;
                continue;
            }
            let most = superblock.capacity_blocks();
            return match logical > most {
                true => Err(LayoutError::Full {
                    logical,
                    most,
                    segments: superblock.segment_count(),
                    segment_blocks: capacity,
                }),
                false => Ok((superblock, before)),
            };
        }
        unreachable!("fewer segments need no larger area")
    }

    /// Returns the volume, with `area_ram` blocks of RAM for writes to conventional zones.
    ///
    /// # Errors
    /// When the map area does not fit the conventional zones.
    pub fn new(
        (superblock, before): (&Superblock, u32),
        io: &Io<'_>,
        zoned: &Zoned,
        area_ram: u64,
    ) -> Result<Self, LayoutError> {
        let shape = io.flash.shape();
        let drive = ZonedDrive::new(shape, zoned);
        let blocks = area(superblock);
        let area = match zoned.conventional {
            0 => {
                let capacity = drive.zones().limits().capacity;
                Area::Log(MetaLog::new(blocks, before, capacity))
            }
            _ => {
                let (stripe, _) = Stripe::new(shape, zoned);
                let rows = (0, stripe.first());
                let map = PageMap::new(shape, shape.dies, rows, blocks, Victim::Greedy);
                let map = map.map_err(|error| LayoutError::Conventional {
                    needs: blocks,
                    most: error.most,
                })?;
                let mut map = map.typed(io.flash.types());
                if io.flash.refresh().age_ns.is_some() {
                    map = map.telling_filled();
                }
                Area::Conventional(Box::new(Drive::new(map, shape.unit_blocks, area_ram)))
            }
        };
        Ok(Self {
            drive,
            area,
            first_zone: before,
            first: superblock.segment_start(Segment(0)).0,
            segments: superblock.segment_count(),
            segment_blocks: superblock.segment_blocks(),
            active: zoned.active - of_log(zoned),
            waiting: VecDeque::new(),
            padded: 0,
            broken: None,
        })
    }

    /// The drive.
    #[must_use]
    pub fn drive(&self) -> &ZonedDrive {
        &self.drive
    }

    /// Blocks of zeros written at the ends of segments.
    #[must_use]
    pub fn padded(&self) -> u64 {
        self.padded
    }

    /// What its map area costs beyond what is written to it: the drive's moves in conventional zones, or headers and moves.
    #[must_use]
    pub fn area_own(&self) -> u64 {
        match &self.area {
            Area::Conventional(drive) => drive.map().counts().moved,
            Area::Log(log) => {
                let (headers, moved) = log.own();
                headers + moved
            }
        }
    }

    /// The rule of the drive that it broke first, if it broke one.
    #[must_use]
    pub fn broken(&self) -> Option<ZoneError> {
        self.broken
    }

    fn keep(&mut self, result: Result<(), ZoneError>) {
        if let Err(error) = result {
            self.broken.get_or_insert(error);
        }
    }

    fn spot(&self, at: Pba) -> Spot {
        let long = u64::from(self.segment_blocks);
        match at.0.checked_sub(self.first) {
            None => Spot::Area(at.0),
            Some(from) if from >= u64::from(self.segments) * long => Spot::Area(self.first),
            Some(from) => Spot::Segment((from / long) as u32, (from % long) as u32),
        }
    }

    /// Notes that a program unit of the conventional zones is on flash.
    pub fn programmed(&mut self, io: &mut Io<'_>, unit: u64) {
        if let Area::Conventional(drive) = &mut self.area {
            drive.programmed(io, unit);
        }
    }

    /// Writes.
    pub fn write(&mut self, io: &mut Io<'_>, tag: Tag, at: Pba, blocks: u32) {
        let (index, offset) = match self.spot(at) {
            Spot::Segment(index, offset) => (index, offset),
            Spot::Area(lba) => return self.ask_area(io, tag, Wanted::durable(), (lba, blocks)),
        };
        let zone = self.first_zone + index;
        let pointer = self
            .drive
            .zones()
            .get(zone)
            .map_or(0, |(_, pointer)| pointer);
        if offset < pointer {
            // A second summary.
            let lba = self.first + 1 + u64::from(index) * u64::from(blocks);
            return self.ask_area(io, tag, Wanted::durable(), (lba, blocks));
        }
        let write = Write {
            tag,
            zone,
            at: offset,
            blocks,
        };
        let waits = self.waiting.iter().any(|earlier| earlier.zone == zone);
        match waits || (pointer == 0 && self.is_at_limit()) {
            true => self.waiting.push_back(write),
            false => self.begin(io, &write),
        }
        self.let_in(io);
    }

    /// True if no other zone may become active.
    fn is_at_limit(&self) -> bool {
        let of_area = match &self.area {
            Area::Log(log) => u32::from(log.is_active(&self.drive)),
            Area::Conventional(_) => 0,
        };
        self.drive.zones().active() - of_area >= self.active
    }

    /// Lets waiting writes go, as far as the drive allows.
    fn let_in(&mut self, io: &mut Io<'_>) {
        while let Some(first) = self.waiting.front() {
            let begun = self.drive.zones().get(first.zone);
            if begun.is_ok_and(|(_, pointer)| pointer == 0) && self.is_at_limit() {
                return;
            }
            if let Some(write) = self.waiting.pop_front() {
                self.begin(io, &write);
            }
        }
    }

    fn begin(&mut self, io: &mut Io<'_>, write: &Write) {
        let job = io.time.begin(write.tag);
        let begun = self.drive.zones().get(write.zone);
        let pointer = begun.map_or(0, |(_, pointer)| pointer);
        // A zone has no gaps.
        self.padded += u64::from(write.at - pointer);
        let whole = (pointer, write.at + write.blocks - pointer);
        let written = self.drive.write(io, write.zone, whole, Some(job));
        self.keep(written);
        io.time.end(job);
    }

    /// Reads or writes where the metadata is.
    fn ask_area(&mut self, io: &mut Io<'_>, tag: Tag, wanted: Wanted, (lba, blocks): (u64, u32)) {
        let log = match &mut self.area {
            Area::Conventional(drive) => return drive.ask(io, tag, wanted, lba, blocks.into()),
            Area::Log(log) => log,
        };
        let job = io.time.begin(tag);
        let done = match wanted {
            Wanted::Read => log.read(io, &mut self.drive, (lba, blocks), Some(job)),
            _ => log.write(io, &mut self.drive, (lba, blocks), Some(job)),
        };
        self.keep(done);
        io.time.end(job);
    }

    /// Reads.
    pub fn read(&mut self, io: &mut Io<'_>, tag: Tag, at: Pba, blocks: u32) {
        let (zone, offset) = match self.spot(at) {
            Spot::Segment(index, offset) => (self.first_zone + index, offset),
            Spot::Area(lba) => return self.ask_area(io, tag, Wanted::Read, (lba, blocks)),
        };
        let job = io.time.begin(tag);
        let read = self.drive.read(io, zone, (offset, blocks), Some(job));
        self.keep(read);
        io.time.end(job);
    }

    /// Resets the zone of a segment.
    pub fn erase(&mut self, io: &mut Io<'_>, tag: Tag, at: Pba) {
        let job = io.time.begin(tag);
        if let Spot::Segment(index, _) = self.spot(at) {
            let reset = self.drive.reset(io, self.first_zone + index, Some(job));
            self.keep(reset);
        }
        io.time.end(job);
        self.let_in(io);
    }
}
