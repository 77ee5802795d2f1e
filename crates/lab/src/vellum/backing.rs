//! What the engine's volume lies on.

use super::log::OnFlash;
use crate::base::{Drive, Io, Wanted};
use crate::blockdev::BlockDevice;
use crate::timeline::Tag;
use vellum_core::addr::Pba;

/// A medium that carries the engine's effects out.
pub enum Backing {
    /// Flash, without anything between.
    Flash(Box<OnFlash>),
    /// A drive that has a flash translation layer of its own.
    Drive(Box<Drive>),
    /// A device of which only the speed is known.
    Block(Box<BlockDevice>),
}

impl Backing {
    /// Writes; the write is durable.
    pub fn write(&mut self, io: &mut Io<'_>, tag: Tag, at: Pba, blocks: u32, durable: bool) {
        match self {
            Self::Flash(log) => log.write(io, tag, at, blocks),
            Self::Drive(drive) => {
                let wanted = Wanted::Write {
                    fua: durable,
                    through: false,
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
            Self::Drive(drive) => drive.ask(io, tag, Wanted::Read, at.0, u64::from(blocks)),
            Self::Block(device) => device.read(io.time, tag, blocks),
        }
    }

    /// Erases or discards.
    pub fn erase(&mut self, io: &mut Io<'_>, tag: Tag, at: Pba, blocks: u32) {
        match self {
            Self::Flash(log) => log.erase(io, tag, at),
            Self::Drive(drive) => drive.ask(io, tag, Wanted::Discard, at.0, u64::from(blocks)),
            Self::Block(_) => io.time.done(tag),
        }
    }

    /// Makes what was written durable.
    pub fn sync(&mut self, io: &mut Io<'_>, tag: Tag) {
        match self {
            // A write to flash is answered when it is durable.
            Self::Flash(_) => io.time.done(tag),
            Self::Drive(drive) => drive.ask(io, tag, Wanted::Flush, 0, 0),
            Self::Block(device) => device.flush(io.time, tag),
        }
    }

    /// A unit of the drive's is on flash.
    pub fn programmed(&mut self, io: &mut Io<'_>, unit: u64) {
        match self {
            Self::Flash(log) => log.programmed(io, unit),
            Self::Drive(drive) => drive.programmed(io, unit),
            Self::Block(_) => {}
        }
    }

    /// Blocks that its own translation layer wrote beyond what was asked of it, and erasures.
    #[must_use]
    pub fn own_moves(&self) -> u64 {
        match self {
            Self::Flash(log) => log.area().map().counts().moved,
            Self::Drive(drive) => {
                let counts = drive.map().counts();
                counts.moved + counts.levelled
            }
            Self::Block(_) => 0,
        }
    }
}
