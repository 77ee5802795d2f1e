//! Where the bytes come from, and how many may be read.

use crate::aside::StoodAside;
use crate::limits::{PAGE_BYTES, READ_BYTES};
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
    page: Option<(u64, Vec<u8>)>,
}

impl<'a> Reader<'a> {
    pub fn new(source: &'a mut dyn Source, volume_bytes: u64) -> Self {
        Self {
            source,
            volume_bytes,
            budget: READ_BYTES,
            page: None,
        }
    }

    /// A reader that may read this many bytes.
    pub fn with_budget(source: &'a mut dyn Source, volume_bytes: u64, budget: u64) -> Self {
        Self {
            budget,
            ..Self::new(source, volume_bytes)
        }
    }

    /// The remaining budget.
    pub fn budget(&self) -> u64 {
        self.budget
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
                limit: READ_BYTES,
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
