//! The engine's volume directly on flash.

use super::layout::Layout;
use crate::base::{Drive, Io, TooSmall, Wanted};
use crate::flash::{Die, EraseBlock};
use crate::timeline::Tag;
use vellum_core::addr::{Pba, Segment};

/// Where a block of the volume is.
enum Spot {
    /// In a segment.
    Segment { index: usize, offset: u32 },
    /// In the map area, by its number there.
    Area(u64),
}

/// The volume on flash; see the module.
pub struct OnFlash {
    layout: Layout,
    area: Drive,
    /// How far each segment has been written.
    filled: Vec<u32>,
    first: u64,
    segment_blocks: u64,
}

impl OnFlash {
    /// Lays out the volume, with `area_ram` blocks of RAM for the map area's writes.
    ///
    /// # Errors
    /// When the map area does not fit.
    pub fn new(layout: Layout, io: &Io<'_>, area_ram: u64) -> Result<Self, TooSmall> {
        let map = layout.area_map(io.flash.shape())?;
        let mut map = map.typed(io.flash.types());
        if io.flash.refresh().age_ns.is_some() {
            map = map.telling_filled();
        }
        let unit_blocks = io.flash.shape().unit_blocks;
        Ok(Self {
            area: Drive::new(map, unit_blocks, area_ram),
            filled: vec![0; layout.superblock.segment_count() as usize],
            first: layout.superblock.segment_start(Segment(0)).0,
            segment_blocks: u64::from(layout.superblock.segment_blocks()),
            layout,
        })
    }

    /// The map area's drive.
    pub fn area(&self) -> &Drive {
        &self.area
    }

    fn spot(&self, at: Pba) -> Spot {
        let end = self.first + self.filled.len() as u64 * self.segment_blocks;
        match at.0.checked_sub(self.first) {
            None => Spot::Area(at.0),
            Some(_) if at.0 >= end => Spot::Area(self.first),
            // A power of two; see `Layout::unit`.
            Some(from) => Spot::Segment {
                index: (from >> self.segment_blocks.trailing_zeros()) as usize,
                offset: (from & (self.segment_blocks - 1)) as u32,
            },
        }
    }

    /// Notes that a program unit of the map area is on flash.
    pub fn programmed(&mut self, io: &mut Io<'_>, unit: u64) {
        self.area.programmed(io, unit);
    }

    /// Writes.
    pub fn write(&mut self, io: &mut Io<'_>, tag: Tag, at: Pba, blocks: u32) {
        let durable = Wanted::durable();
        let (index, offset) = match self.spot(at) {
            Spot::Segment { index, offset } => (index, offset),
            Spot::Area(lba) => return self.area.ask(io, tag, durable, lba, u64::from(blocks)),
        };
        let end = offset + blocks;
        let filled = std::mem::replace(&mut self.filled[index], end);
        if offset < filled {
            // A second summary.
            self.filled[index] = filled;
            let lba = self.first + 1 + index as u64 * u64::from(blocks);
            return self.area.ask(io, tag, durable, lba, u64::from(blocks));
        }
        // A unit is programmed when its last block arrives; the last unit of a segment, when the segment ends.
        let types = io.flash.types();
        let job = io.time.begin(tag);
        for unit in self.layout.unit(filled)..self.layout.unit(end) {
            let at = (self.layout.die(index, unit), self.layout.cell(unit, types));
            io.flash.program(io.time, at, Some(job));
            let block = self.layout.block(index, unit);
            io.flash.filled(io.time.now(), at.0, block);
        }
        io.time.end(job);
    }

    /// Reads.
    pub fn read(&mut self, io: &mut Io<'_>, tag: Tag, at: Pba, blocks: u32) {
        let (index, offset) = match self.spot(at) {
            Spot::Segment { index, offset } => (index, offset),
            Spot::Area(lba) => return self.area.ask(io, tag, Wanted::Read, lba, u64::from(blocks)),
        };
        let job = io.time.begin(tag);
        let (unit_blocks, types) = (self.layout.unit_blocks, io.flash.types());
        let on_flash = self.layout.unit(self.filled[index]) * unit_blocks;
        let end = (offset + blocks).min(on_flash);
        let mut from = offset;
        while from < end {
            let unit = self.layout.unit(from);
            let to = end.min((unit + 1) * unit_blocks);
            let (die, block) = (self.layout.die(index, unit), self.layout.block(index, unit));
            let at = (die, block, self.layout.cell(unit, types));
            io.flash.read(io.time, at, to - from, Some(job));
            from = to;
        }
        io.time.end(job);
    }

    /// Erases a segment.
    pub fn erase(&mut self, io: &mut Io<'_>, tag: Tag, at: Pba) {
        let job = io.time.begin(tag);
        if let Spot::Segment { index, .. } = self.spot(at) {
            self.filled[index] = 0;
            let place = self.layout.places[index];
            let EraseBlock(first) = place.block;
            for die in place.die..place.die + self.layout.width {
                for block in first..first + self.layout.deep {
                    io.flash
                        .erase(io.time, Die(die), EraseBlock(block), Some(job));
                }
            }
        }
        io.time.end(job);
    }
}
