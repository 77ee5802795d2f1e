//! Which placement handle the log names with each write.
//!
//! What clients write, what the collector moves, and the map die at different times, so each has a handle. A segment's summary
//! goes to the handle of its segment: it dies with that.

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

    /// Returns the handle of a chunk, and notes that its segment is filled by it.
    pub fn of_chunk(&mut self, at: Pba, is_cold: bool) -> u8 {
        let handle = if is_cold { self.collector } else { CLIENTS };
        if let Some((segment, _)) = self.superblock.segment_of(at) {
            self.filled_by[segment.0 as usize] = handle;
        }
        handle
    }

    /// Returns the handle of metadata: of the segment's if it lies in one.
    pub fn of_meta(&self, at: Pba) -> u8 {
        match self.superblock.segment_of(at) {
            Some((segment, _)) => self.filled_by[segment.0 as usize],
            None => self.map,
        }
    }
}
