//! Where the bytes come from, and how many may be read.

use crate::aside::StoodAside;
use crate::limits::{ALL_EXTENTS, EXTENTS, PAGE_BYTES, READ_BYTES};
pub use crate::unreadable::Unreadable;

/// Reads what the volume holds now, including writes that are only in its cache.
pub trait Source {
    /// Fills `out` from byte `offset` of the volume. Both are multiples of 4096, and the range is inside the volume.
    ///
    /// # Errors
    /// If the bytes cannot be read.
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Unreadable>;
}

/// Reads from a source within the volume and the budget.
pub(crate) struct Reader<'a> {
    source: &'a mut dyn Source,
    volume_bytes: u64,
    budget: u64,
    /// What the budget was.
    limit: u64,
    /// How many extents of journals may still be found.
    extents: usize,
    page: Option<(u64, Vec<u8>)>,
}

impl<'a> Reader<'a> {
    pub fn new(source: &'a mut dyn Source, volume_bytes: u64) -> Self {
        Self {
            source,
            volume_bytes,
            budget: READ_BYTES,
            limit: READ_BYTES,
            extents: ALL_EXTENTS,
            page: None,
        }
    }

    /// A reader that may read this many bytes.
    pub fn with_budget(source: &'a mut dyn Source, volume_bytes: u64, budget: u64) -> Self {
        Self {
            budget,
            limit: budget,
            ..Self::new(source, volume_bytes)
        }
    }

    /// The remaining budget.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// Lets `look` have an equal part of what may still be read and found, for one of `parts` structures with different owners. None of
    /// them can use up what the others need.
    pub fn in_part<T>(&mut self, parts: usize, look: impl FnOnce(&mut Self) -> T) -> T {
        let parts = parts.max(1);
        let (budget, extents) = (self.budget / parts as u64, self.extents / parts);
        let others = (self.budget - budget, self.extents - extents);
        (self.budget, self.extents) = (budget, extents);
        let limit = core::mem::replace(&mut self.limit, budget);
        let seen = look(self);
        self.budget += others.0;
        self.extents += others.1;
        self.limit = limit;
        seen
    }

    /// The most extents that a journal may have.
    pub fn most_extents(&self) -> usize {
        self.extents.min(EXTENTS)
    }

    /// Counts the extents of a journal that was found.
    pub fn found_extents(&mut self, extents: usize) {
        self.extents = self.extents.saturating_sub(extents);
    }

    pub fn volume_bytes(&self) -> u64 {
        self.volume_bytes
    }

    /// Reads `bytes` bytes at `offset`. The last read is cached, so adjacent structures cost one read. It still counts against
    /// the budget each time, so that a structure that leads to itself cannot be walked forever.
    pub fn read(&mut self, offset: u64, bytes: usize) -> Result<Vec<u8>, StoodAside> {
        let unreadable = Unreadable {
            offset,
            bytes: bytes as u64,
        };
        let end = offset.checked_add(bytes as u64).ok_or(unreadable)?;
        if end > self.volume_bytes {
            return Err(unreadable.into());
        }
        let page = PAGE_BYTES as u64;
        let first = offset / page * page;
        let length = (end.div_ceil(page) * page - first) as usize;
        let skipped = (offset - first) as usize;
        self.budget = self
            .budget
            .checked_sub(length as u64)
            .ok_or(StoodAside::Limit {
                what: "reading",
                limit: self.limit,
            })?;
        if let Some((at, held)) = &self.page
            && *at == first
            && held.len() >= length
        {
            return Ok(held[skipped..skipped + bytes].to_vec());
        }
        let mut held = vec![0; length];
        self.source.read(first, &mut held)?;
        let out = held[skipped..skipped + bytes].to_vec();
        self.page = Some((first, held));
        Ok(out)
    }
}
