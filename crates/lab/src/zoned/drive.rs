//! The drive: zones on flash.

use super::zones::{Limits, ZoneError, Zones};
use crate::base::Io;
use crate::flash::{Cell, Die, EraseBlock, Shape, Zoned};
use crate::timeline::Job;

/// How a zone lies on its dies: units go round them.
#[derive(Clone, Copy, Debug)]
pub struct Stripe {
    width: u32,
    deep: u32,
    /// Units of an erase block, and blocks of a unit.
    units: u32,
    unit_blocks: u32,
    /// Groups of dies, and the first erase block of the zones.
    groups: u32,
    first: u32,
}

impl Stripe {
    /// Returns the stripe of a drive whose zones begin after the conventional ones, and how many zones there are.
    #[must_use]
    pub fn new(shape: &Shape, zoned: &Zoned) -> (Self, u32) {
        let groups = (shape.dies / zoned.dies).max(1);
        // Conventional zones take whole rows: a row is a zone of each group.
        let rows = zoned.conventional.div_ceil(groups);
        let first = rows.saturating_mul(zoned.deep);
        let stripe = Self {
            width: zoned.dies,
            deep: zoned.deep,
            units: shape.units,
            unit_blocks: shape.unit_blocks,
            groups,
            first,
        };
        let rows = shape.erase_blocks.saturating_sub(first) / zoned.deep;
        (stripe, rows * groups)
    }

    /// Blocks of a zone.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.width * self.deep * self.units * self.unit_blocks
    }

    /// Erase blocks of each die that the conventional zones take.
    #[must_use]
    pub fn first(&self) -> u32 {
        self.first
    }

    /// The first die and the first erase block of a zone.
    fn place(&self, zone: u32) -> (u32, u32) {
        let (row, group) = (zone / self.groups, zone % self.groups);
        (group * self.width, self.first + row * self.deep)
    }

    /// The place of a zone's unit.
    fn unit(&self, zone: u32, unit: u32, types: u32) -> (Die, EraseBlock, Cell) {
        let (die, block) = self.place(zone);
        let (row, on) = (unit / self.width, unit % self.width);
        let cell = match types {
            1 => Cell::FIRST,
            types => Cell::of_unit(row % self.units, types),
        };
        (Die(die + on), EraseBlock(block + row / self.units), cell)
    }
}

/// The drive; see the module.
pub struct ZonedDrive {
    zones: Zones,
    stripe: Stripe,
    written: u64,
}

impl ZonedDrive {
    /// Returns an empty drive.
    #[must_use]
    pub fn new(shape: &Shape, zoned: &Zoned) -> Self {
        let (stripe, count) = Stripe::new(shape, zoned);
        let capacity = stripe.capacity();
        let least = u64::from(capacity).next_power_of_two();
        let limits = Limits {
            size: match zoned.size_bytes / vellum_core::addr::BLOCK_BYTES as u64 {
                0 => least,
                size => size,
            },
            capacity,
            open: zoned.open,
            active: zoned.active,
        };
        Self {
            zones: Zones::new(count, limits),
            stripe,
            written: 0,
        }
    }

    /// The zones' states.
    #[must_use]
    pub fn zones(&self) -> &Zones {
        &self.zones
    }

    /// Blocks written to it: all that its zones' flash gets.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Writes at a zone's write pointer. `job` ends when the units that this fills are programmed; the blocks of a unit that is
    /// not full are in RAM that survives a power cut.
    ///
    /// # Errors
    /// With the rule that this breaks; then nothing is written.
    pub fn write(
        &mut self,
        io: &mut Io<'_>,
        zone: u32,
        (at, blocks): (u32, u32),
        job: Option<Job>,
    ) -> Result<(), ZoneError> {
        self.zones.write(zone, at, blocks)?;
        self.written += u64::from(blocks);
        let (types, unit_blocks) = (io.flash.types(), self.stripe.unit_blocks);
        for unit in at / unit_blocks..(at + blocks) / unit_blocks {
            let (die, block, cell) = self.stripe.unit(zone, unit, types);
            io.flash.program(io.time, (die, cell), job);
            io.flash.filled(io.time.now(), die, block);
        }
        Ok(())
    }

    /// Reads. What is not on flash takes no time: it is in RAM, or was never written.
    ///
    /// # Errors
    /// If there is no such zone.
    pub fn read(
        &mut self,
        io: &mut Io<'_>,
        zone: u32,
        (at, blocks): (u32, u32),
        job: Option<Job>,
    ) -> Result<(), ZoneError> {
        let (_, pointer) = self.zones.get(zone)?;
        let (types, unit_blocks) = (io.flash.types(), self.stripe.unit_blocks);
        let end = (at + blocks).min(pointer / unit_blocks * unit_blocks);
        let mut from = at;
        while from < end {
            let unit = from / unit_blocks;
            let to = end.min((unit + 1) * unit_blocks);
            let place = self.stripe.unit(zone, unit, types);
            io.flash.read(io.time, place, to - from, job);
            from = to;
        }
        Ok(())
    }

    /// Makes a zone full: it is not active any more.
    ///
    /// # Errors
    /// If there is no such zone.
    pub fn finish(&mut self, zone: u32) -> Result<(), ZoneError> {
        self.zones.finish(zone)
    }

    /// Empties a zone, and erases its blocks.
    ///
    /// # Errors
    /// If there is no such zone.
    pub fn reset(&mut self, io: &mut Io<'_>, zone: u32, job: Option<Job>) -> Result<(), ZoneError> {
        self.zones.reset(zone)?;
        let (die, block) = self.stripe.place(zone);
        for die in die..die + self.stripe.width {
            for block in block..block + self.stripe.deep {
                io.flash.erase(io.time, Die(die), EraseBlock(block), job);
            }
        }
        Ok(())
    }
}
