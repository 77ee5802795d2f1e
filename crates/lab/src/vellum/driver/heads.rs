//! Which placement handle the log names with each write.
//!
//! What clients write, what the collector moves, and the map die at different times, so each has a handle. A segment's summary
//! goes to the handle of its segment: it dies with that. Each segment begins in a new reclaim unit, so that the drive frees it as a whole.

use crate::flash::Stream;
use vellum_core::addr::Pba;
use vellum_core::format::superblock::Superblock;

/// The handle of what clients write.
const CLIENTS: u8 = 0;

/// The handles; see the module.
pub struct Heads {
    collector: u8,
    map: u8,
    superblock: Superblock,
    /// The handle that each segment was filled by.
    filled_by: Vec<u8>,
}

impl Heads {
    /// Returns the handles of a log on a drive that has so many. With two, the collector shares one with the map.
    pub fn new(superblock: &Superblock, handles: u32) -> Self {
        let handle = |wanted: u32| wanted.min(handles.saturating_sub(1)) as u8;
        Self {
            collector: handle(1),
            map: handle(2),
            filled_by: vec![CLIENTS; superblock.segment_count() as usize],
            superblock: superblock.clone(),
        }
    }

    /// Returns where a chunk belongs, and notes by which handle its segment is filled.
    pub fn of_chunk(&mut self, at: Pba, is_cold: bool) -> Stream {
        let handle = if is_cold { self.collector } else { CLIENTS };
        let mut stream = Stream::of(handle);
        if let Some((segment, offset)) = self.superblock.segment_of(at) {
            self.filled_by[segment.0 as usize] = handle;
            stream.anew = offset == 0;
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
