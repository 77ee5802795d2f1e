//! Where the bytes come from, and how many may be asked for.

use crate::aside::StoodAside;
use crate::limits::{PAGE_BYTES, READ_BYTES};

/// A range of the volume that could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read {bytes} bytes at byte {offset}")]
pub struct Unreadable {
    /// Its first byte.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
}

/// What the volume holds at this moment, writes that are only in its cache included.
pub trait Source {
    /// Fills `out` from byte `offset` of the volume. Both are multiples of 4096, and the range lies in the
    /// volume.
    ///
    /// # Errors
    /// When the bytes cannot be had.
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Unreadable>;
}

/// A source that stays in the volume and in the budget.
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

    /// One that may read so many bytes and no more.
    pub fn with_budget(source: &'a mut dyn Source, volume_bytes: u64, budget: u64) -> Self {
        Self {
            budget,
            ..Self::new(source, volume_bytes)
        }
    }

    /// What is left to be read.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    pub fn volume_bytes(&self) -> u64 {
        self.volume_bytes
    }

    /// The `bytes` bytes at `offset`. The last read is kept: structures that lie side by side cost one. It is
    /// paid for all the same, so that a structure that leads to itself cannot be walked for ever.
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
