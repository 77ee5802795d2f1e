//! A shorter medium for a log: the segments at its end are given up.
//!
//! The caller first has them emptied: `vacate` moves the heads out of them, and an engine that was told so
//! ([`Options::segments_end`](crate::engine::Options::segments_end)) moves their live blocks. All that is ordinary writing, so until
//! here the volume is as large as it was. Then the superblock says where the volume ends.
//!
//! The last mirror moves to the new end, into a segment that is given up. The first mirror decides. Until it is durable, the old last
//! mirror agrees with it, and both describe the volume as it was. Afterwards the new last mirror agrees with it. Nothing that the old
//! volume needs is overwritten before that. So a crash leaves the volume as it was, or shorter.

use crate::addr::{BLOCK_BYTES, Generation, Pba, Segment};
use crate::format::Crc;
use crate::format::geometry::GeometryError;
use crate::format::shortened::{medium_with, shortened};
use crate::format::superblock::Superblock;
use crate::grow::Lead;
use crate::recovery::{Recovered, Source, Unreadable};
use crate::room::Room;
use crate::size::Size;
use alloc::vec;

/// Why a volume did not get a shorter medium. It is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShortenError {
    /// Its geometry does not allow it.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The log has entries after the map checkpoint, or something has to be mended.
    #[error("the volume was not stopped cleanly: open it for writing and stop it first")]
    NotStopped,
    /// What it holds, or what it promises to its clients, needs more.
    #[error(
        "a medium of {:#}: what the volume holds, and what its clients may still write, needs at least {:#}",
        Size::of_blocks(*.blocks),
        Size::of_blocks(*.least)
    )]
    TooLittle {
        /// Blocks of the requested medium.
        blocks: u64,
        /// Blocks needed.
        least: u64,
    },
    /// Something is still in the segments that would be given up.
    #[error("{} of data are still in the part that would be given up", Size::of_blocks(*.0))]
    Holds(u64),
    /// The table of pages has an address there, of a page that nothing leads to any more.
    #[error("the table of pages still has addresses in the part that would be given up")]
    Named,
    /// A head of the log is still in one of these segments.
    #[error("the log still goes on in segment {0}, which would be given up")]
    HeadIn(Segment),
}

/// Lays out a volume on the first `medium_blocks` of its medium. It holds `live` blocks of data, wherever these are now.
///
/// # Errors
/// When that is no shorter medium, or when there is not enough room on it.
pub fn fitting(
    volume: &Superblock,
    medium_blocks: u64,
    live: u64,
) -> Result<Superblock, ShortenError> {
    let next = shortened(volume, medium_blocks);
    let fits = |segments| has_room(volume, segments, live);
    match next {
        Ok(next) if fits(next.segment_count()) => Ok(next),
        Ok(_) | Err(GeometryError::TooSmall { .. }) => Err(ShortenError::TooLittle {
            blocks: medium_blocks,
            // It may need all that it has.
            least: medium_with(volume, least_segments(volume, &fits)).min(volume.medium_blocks()),
        }),
        Err(error) => Err(error.into()),
    }
}

fn least_segments(volume: &Superblock, fits: &dyn Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (0, volume.segment_count());
    while low < high {
        let middle = low + (high - low) / 2;
        match fits(middle) {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    high
}

/// True if so many segments have room for the data and its reserve, and no promise is lost: if clients can fill all that they see now, they
/// still can; if the volume keeps its share of over-provisioning now, it still does.
fn has_room(volume: &Superblock, segments: u32, live: u64) -> bool {
    let (before, capacity) = (volume.capacity_blocks(), volume.capacity_of(segments));
    let promised = volume.logical_blocks();
    let share = |blocks: u64| blocks * 1000 / u64::from(1000 + volume.over_provisioning());
    let keeps_promise = match (promised <= share(before), promised <= before) {
        (true, _) => promised <= share(capacity),
        (false, true) => promised <= capacity,
        (false, false) => true,
    };
    let room = Room {
        live,
        capacity,
        promised,
        keeps: volume.history().kept() > 0,
    };
    keeps_promise && capacity > 0 && live <= room.for_anybody()
}

/// A volume that is about to get a shorter medium.
pub struct Shortening {
    recovered: Recovered,
    next: Superblock,
}

impl Shortening {
    /// Plans it for a volume that was stopped cleanly, and whose last segments are empty.
    ///
    /// # Errors
    /// When it cannot have that medium, or when something lies in the part that would be given up.
    pub fn new(recovered: Recovered, medium_blocks: u64) -> Result<Self, ShortenError> {
        is_at_rest(&recovered)?;
        let live = recovered.state.live();
        let next = fitting(&recovered.superblock, medium_blocks, live.total())?;
        let end = next.segment_count();
        let left = live.of_all().iter().skip(end as usize);
        let left: u64 = left.map(|&blocks| u64::from(blocks)).sum();
        if left > 0 {
            return Err(ShortenError::Holds(left));
        }
        let mut heads = recovered.heads.iter().map(|head| head.segment);
        match heads.find(|segment| segment.0 >= end) {
            Some(segment) => Err(ShortenError::HeadIn(segment)),
            None if recovered
                .state
                .shared()
                .names_from(Pba(next.segments().end())) =>
            {
                Err(ShortenError::Named)
            }
            None => Ok(Self { recovered, next }),
        }
    }

    /// Writes everything but the superblock. What the volume needs now is not overwritten. The caller syncs, and then writes the
    /// superblock.
    ///
    /// # Errors
    /// When something of the volume cannot be read.
    pub fn write(
        &self,
        source: &mut dyn Source,
        crc: Crc,
        write: &mut dyn FnMut(Pba, &[u8]),
    ) -> Result<(), Unreadable> {
        let (recovered, next) = (&self.recovered, &self.next);
        let generation = recovered.root.generation;
        if next.root_place(generation) != recovered.superblock.root_place(generation) {
            return Lead { recovered, next }.write(source, crc, write);
        }
        // The previous root may say that the log goes on in a segment that is given up. Nothing needs that root.
        let blank = vec![0; next.root_blocks() as usize * BLOCK_BYTES];
        for at in next.root_copies(Generation(generation.0 ^ 1)) {
            write(at, &blank);
        }
        Ok(())
    }

    /// Returns the superblock of the shorter volume, in a new life. The caller writes the last mirror, syncs, writes the first, syncs,
    /// and makes what is then the medium's last block a copy of it.
    #[must_use]
    pub fn finish(mut self) -> Superblock {
        self.next.begin_life(self.recovered.log_end());
        self.next.mark_root(self.recovered.root.generation);
        self.next
    }
}

/// Checks that nothing has to be replayed or mended.
pub(crate) fn is_at_rest(recovered: &Recovered) -> Result<(), ShortenError> {
    match recovered.was_stopped() && !recovered.replayed.mirror_lost {
        true => Ok(()),
        false => Err(ShortenError::NotStopped),
    }
}
