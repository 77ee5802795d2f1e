//! Which placement handle the log names with each write.
//!
//! What clients write, what the collector moves, and the map die at different times, so each has a handle. A segment's summary
//! goes to the handle of its segment: it dies with that. If a segment is as long as a reclaim unit, each begins in a new one, so that the drive frees it as a whole.

use crate::flash::Stream;
use vellum_core::addr::Pba;
use vellum_core::format::superblock::Superblock;

/// The handle of what clients write.
const CLIENTS: u8 = 0;

/// What the log knows of a drive with handles.
#[derive(Clone, Copy, Debug)]
pub struct Handles {
    /// How many there are.
    pub count: u32,
    /// Blocks of a reclaim unit: an erase block on each die.
    pub unit_blocks: u32,
}

/// The handles; see the module.
pub struct Heads {
    collector: u8,
    map: u8,
    superblock: Superblock,
    /// True if a segment is a reclaim unit.
    is_whole: bool,
    /// The handle that each segment was filled by.
    filled_by: Vec<u8>,
}

impl Heads {
    /// Returns the handles of a log on such a drive, if it names them. With two, the collector shares one with the map.
    pub fn of(superblock: &Superblock, handles: Option<Handles>) -> Option<Self> {
        let handles = handles?;
        let handle = |wanted: u32| wanted.min(handles.count.saturating_sub(1)) as u8;
        Some(Self {
            collector: handle(1),
            map: handle(2),
            filled_by: vec![CLIENTS; superblock.segment_count() as usize],
            is_whole: superblock.segment_blocks() == handles.unit_blocks,
            superblock: superblock.clone(),
        })
    }

    /// Returns where a chunk belongs, and notes by which handle its segment is filled.
    pub fn of_chunk(&mut self, at: Pba, is_cold: bool) -> Stream {
        let handle = if is_cold { self.collector } else { CLIENTS };
        let mut stream = Stream::of(handle);
        if let Some((segment, offset)) = self.superblock.segment_of(at) {
            self.filled_by[segment.0 as usize] = handle;
            stream.anew = self.is_whole && offset == 0;
        }
        stream
    }

    /// Returns where metadata belongs: with its segment if it lies in one.
    pub fn of_meta(&self, at: Pba) -> Stream {
        Stream::of(match self.superblock.segment_of(at) {
            Some((segment, _)) => self.filled_by[segment.0 as usize],
            None => self.map,
        })
    }
}
