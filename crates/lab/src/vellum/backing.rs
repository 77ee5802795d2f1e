//! The medium of the engine's volume.

use super::log::OnFlash;
use super::zones::OnZones;
use crate::base::{Drive, Io, Wanted};
use crate::blockdev::BlockDevice;
use crate::flash::Stream;
use crate::timeline::Tag;
use vellum_core::addr::Pba;
use vellum_core::driver::Extent;

/// A medium that carries out the engine's effects.
pub enum Backing {
    /// Flash, directly.
    Flash(Box<OnFlash>),
    /// A drive with zones.
    Zones(Box<OnZones>),
    /// A drive with a flash translation layer.
    Drive(Box<Drive>),
    /// A device of which only the speed is known.
    Block(Box<BlockDevice>),
}

impl Backing {
    /// Writes, to a placement handle where there is one. A write with `durable` is durable when it is answered.
    pub fn write(&mut self, io: &mut Io<'_>, tag: Tag, to: Extent, durable: bool, stream: Stream) {
        let Extent { at, blocks } = to;
        match self {
            Self::Flash(log) => log.write(io, tag, at, blocks),
            Self::Zones(log) => log.write(io, tag, at, blocks),
            Self::Drive(drive) => {
                let wanted = Wanted::Write {
                    fua: durable,
                    through: false,
                    stream,
                };
                drive.ask(io, tag, wanted, at.0, u64::from(blocks));
            }
            Self::Block(device) => device.write(io.time, tag, blocks, durable),
        }
    }

    /// Reads.
    pub fn read(&mut self, io: &mut Io<'_>, tag: Tag, at: Pba, blocks: u32) {
        match self {
            Self::Flash(log) => log.read(io, tag, at, blocks),
            Self::Zones(log) => log.read(io, tag, at, blocks),
            Self::Drive(drive) => drive.ask(io, tag, Wanted::Read, at.0, u64::from(blocks)),
            Self::Block(device) => device.read(io.time, tag, blocks),
        }
    }

    /// Erases or discards.
    pub fn erase(&mut self, io: &mut Io<'_>, tag: Tag, at: Pba, blocks: u32) {
        match self {
            Self::Flash(log) => log.erase(io, tag, at),
            Self::Zones(log) => log.erase(io, tag, at),
            Self::Drive(drive) => drive.ask(io, tag, Wanted::Discard, at.0, u64::from(blocks)),
            Self::Block(_) => io.time.done(tag),
        }
    }

    /// Makes what was written durable.
    pub fn sync(&mut self, io: &mut Io<'_>, tag: Tag) {
        match self {
            // A write to flash is answered when it is durable.
            Self::Flash(_) | Self::Zones(_) => io.time.done(tag),
            Self::Drive(drive) => drive.ask(io, tag, Wanted::Flush, 0, 0),
            Self::Block(device) => device.flush(io.time, tag),
        }
    }

    /// Notes that a program unit of the drive is on flash.
    pub fn programmed(&mut self, io: &mut Io<'_>, unit: u64) {
        match self {
            Self::Flash(log) => log.programmed(io, unit),
            Self::Zones(log) => log.programmed(io, unit),
            Self::Drive(drive) => drive.programmed(io, unit),
            Self::Block(_) => {}
        }
    }

    /// Blocks that its translation layer wrote beyond what the engine wrote to it, and erasures.
    #[must_use]
    pub fn own_moves(&self) -> u64 {
        match self {
            Self::Flash(log) => log.area().map().counts().moved,
            Self::Zones(log) => log.area_own(),
            Self::Drive(drive) => {
                let counts = drive.map().counts();
                let folded = drive.map().folded().map_or(0, |cache| cache.folded);
                counts.moved + counts.levelled + counts.refreshed + folded
            }
            Self::Block(_) => 0,
        }
    }
}
