//! The index of contents: where to look when a block is written that may be a duplicate (CAFTL §3.2).
//!
//! The index is a hint in bounded memory, never a proof. An entry names an LBA or a shared page's number, not a physical address. The map
//! knows the address, so the collector need not report its moves. If an entry's LBA has been overwritten, the checksum or the comparison
//! shows that, and the entry is removed.
//!
//! There are two indexes: `compact`, the default, and `caftl`, the paper's, for comparison; `docs/decisions/0009` has the
//! figures. Both identify a content by a hash in which 32 bits are the content's own, wherever they are.

mod caftl;
mod compact;
pub(crate) mod holder;

use crate::seam::IndexKind;
use alloc::collections::TryReserveError;
use caftl::Caftl;
use compact::Compact;
pub use holder::Holder;

/// An index.
pub enum Index {
    /// See `index/compact.rs`.
    Compact(Compact),
    /// See `index/caftl.rs`.
    Caftl(Caftl),
}

impl Default for Index {
    fn default() -> Self {
        Self::new(IndexKind::default(), 0)
    }
}

macro_rules! either {
    ($self:ident, $index:ident => $what:expr) => {
        match $self {
            Index::Compact($index) => $what,
            Index::Caftl($index) => $what,
        }
    };
}

impl Index {
    /// Makes an index in at most `bytes`; an empty one when that is too little, or when there is no memory for it.
    #[must_use]
    pub fn new(kind: IndexKind, bytes: usize) -> Self {
        let none = Self::Compact(Compact::default());
        Self::with_advice(kind, bytes, &mut |_, _| {}).unwrap_or(none)
    }

    /// The same. Calls `advise` with the address and the size of its memory before the memory is touched: the caller may want
    /// large pages there, which make a look-up miss fewer address translations.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn with_advice(
        kind: IndexKind,
        bytes: usize,
        advise: &mut dyn FnMut(*const u8, usize),
    ) -> Result<Self, TryReserveError> {
        Ok(match kind {
            IndexKind::Compact => Self::Compact(Compact::new(bytes, advise)?),
            IndexKind::Caftl(search) => Self::Caftl(Caftl::new(search, bytes)),
        })
    }

    /// True if [`Index::new`] would make the same index, as far as making it takes long.
    pub(crate) fn is_of(&self, kind: IndexKind, bytes: usize) -> bool {
        matches!((self, kind), (Self::Compact(index), IndexKind::Compact) if index.is_of(bytes))
    }

    /// How many contents it can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        either!(self, index => index.capacity())
    }

    /// How many contents it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        either!(self, index => index.len())
    }

    /// True if it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many entries hashes have been compared with so far.
    #[must_use]
    pub fn comparisons(&self) -> u64 {
        either!(self, index => index.comparisons())
    }

    /// Touches the entries of contents that will soon be looked up: that is faster for many together. Changes nothing.
    pub fn look_ahead(&self, hashes: impl Iterator<Item = u64>) {
        if let Self::Compact(index) = self {
            index.look_ahead(hashes);
        }
    }

    /// The last holder of this content.
    #[must_use]
    pub fn find(&mut self, hash: u64) -> Option<Holder> {
        either!(self, index => index.find(hash))
    }

    /// Notes that a content was met. `holder` has it now, and is one of so many owners.
    pub fn insert(&mut self, hash: u64, holder: Holder, owners: u32) {
        match self {
            Self::Compact(index) => index.insert(hash, holder),
            Self::Caftl(index) => index.insert(hash, holder, owners),
        }
    }

    /// Notes that the content has a new, single holder, if the content is in the index at all.
    pub fn moved(&mut self, hash: u64, holder: Holder) {
        either!(self, index => index.moved(hash, holder));
    }

    /// Removes a content whose hint was wrong.
    pub fn remove(&mut self, hash: u64) {
        either!(self, index => index.remove(hash));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::{Lba, Vba};
    use crate::policy::dedup::content_hash;
    use crate::seam::{CaftlSearch, EntryOrder};
    use alloc::{collections::BTreeMap, vec::Vec};
    use proptest::prelude::*;

    /// All kinds of index.
    pub(super) fn kinds() -> Vec<IndexKind> {
        let mut kinds = alloc::vec![IndexKind::Compact];
        for order in [EntryOrder::Arrival, EntryOrder::Hotness, EntryOrder::Value] {
            kinds.extend(
                [true, false]
                    .map(|range_check| IndexKind::Caftl(CaftlSearch { range_check, order })),
            );
        }
        kinds
    }

    /// The hash of a numbered content, as random as checksums are: consecutive numbers would fill all lines alike.
    pub(super) fn hash(content: u64) -> u64 {
        let mut x = content as u32;
        x = (x ^ (x >> 16)).wrapping_mul(0x85eb_ca6b);
        x = (x ^ (x >> 13)).wrapping_mul(0xc2b2_ae35);
        content_hash(x ^ (x >> 16))
    }

    #[test]
    fn an_index_without_memory_gives_no_hints() {
        for kind in kinds() {
            let mut index = Index::new(kind, 63);
            index.insert(5, Holder::Lba(Lba(1)), 1);
            index.moved(5, Holder::Lba(Lba(2)));
            index.remove(5);
            assert_eq!((index.find(5), index.capacity(), index.len()), (None, 0, 0));
        }
    }

    #[test]
    fn advice_is_asked_before_memory_is_touched_and_lines_are_cache_lines() {
        let mut told = Vec::new();
        let index = Index::with_advice(IndexKind::Compact, 10_000, &mut |at, bytes| {
            told.push((at.align_offset(64), bytes));
        })
        .unwrap();
        assert_eq!((told, index.capacity()), (alloc::vec![(0, 9984)], 1248));
        let _ = Index::with_advice(IndexKind::Compact, 63, &mut |_, _| {
            unreachable!("no memory")
        })
        .unwrap();
    }

    #[test]
    fn contents_that_fit_are_found() {
        for kind in kinds() {
            // The segments of CAFTL's store are not equally full, and a full one takes no room from the next.
            let percent = if kind == IndexKind::Compact { 90 } else { 50 };
            let mut index = Index::new(kind, 64 << 10);
            let contents = index.capacity() as u64 * percent / 100;
            for content in 0..contents {
                index.insert(hash(content), Holder::Lba(Lba(content)), 1);
            }
            let found = (0..contents)
                .filter(|&c| index.find(hash(c)) == Some(Holder::Lba(Lba(c))))
                .count() as u64;
            assert!(
                found * 100 >= contents * 99,
                "{kind:?}: {found} of {contents}"
            );
            assert!(index.comparisons() > 0);
        }
    }

    proptest! {
        #[test]
        fn a_hint_is_the_last_holder_of_its_content_or_none(
            which in 0usize..7,
            bytes in prop::sample::select(alloc::vec![576usize, 4096, 3 * 4096, 9 * 4096]),
            steps in prop::collection::vec((0u64..1500, 0u32..1000, 0..12), 1..3000)
        ) {
            let mut index = Index::new(kinds()[which], bytes);
            let mut last = BTreeMap::new();
            for (step, (content, number, kind)) in steps.into_iter().enumerate() {
                let hash = hash(content);
                let holder = match kind % 2 {
                    0 => Holder::Lba(Lba(number.into())),
                    _ => Holder::Page(Vba(number)),
                };
                match kind {
                    0 => {
                        index.remove(hash);
                        last.remove(&hash);
                    }
                    1 => {
                        let known = index.find(hash).is_some();
                        index.moved(hash, holder);
                        if known {
                            last.insert(hash, holder);
                        }
                    }
                    _ => {
                        index.insert(hash, holder, number);
                        last.insert(hash, holder);
                    }
                }
                if step % 64 != 0 {
                    continue;
                }
                let mut held = 0;
                for (&hash, &holder) in &last {
                    if let Some(found) = index.find(hash) {
                        prop_assert_eq!(found, holder);
                        held += 1;
                    }
                }
                prop_assert_eq!(held, index.len());
                prop_assert!(held <= index.capacity());
            }
        }
    }
}
