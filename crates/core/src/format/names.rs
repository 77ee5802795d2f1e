//! Names: the LBAs that a chunk changes. The next chunk's header repeats them (0021).
//!
//! If a header is lost, its chunk's records are lost, and so is the list of LBAs that they change. The names in the next header bound the
//! damage: an LBA that is not named there is unchanged. Blocks that a chunk moves are not named, because their contents are the same in
//! both places.
//!
//! On the medium: runs, by rising LBAs. Each begins with a number: twice the blocks between the end of the previous run and the start of
//! this one, plus one if the run is longer than a block; in that case its length less two follows. Numbers have seven bits a byte, the
//! low ones first; the top bit says that more follow. If there is no room for all runs, runs that lie close together are joined. Then the
//! names may cover LBAs that the chunk does not change, but they never leave one out.

use crate::addr::Lba;
use alloc::vec::Vec;

/// The most bytes that names take of a header. If the LBAs of a full chunk are all far apart, a fifth of them are joined to fit.
pub const NAMES_ROOM: usize = 640;

/// Bytes that names always have room for: one run, wherever it is.
pub const NAMES_LEAST: usize = 20;

/// LBAs in runs, which rise and do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    runs: Vec<(Lba, u64)>,
}

impl Names {
    /// Takes these runs, in any order, reusing the allocation.
    pub fn take(&mut self, runs: impl Iterator<Item = (Lba, u64)>) {
        self.runs.clear();
        for (lba, blocks) in runs {
            match self.runs.last_mut() {
                // Most loads are in order, and leave nothing to sort.
                Some((first, length)) if first.0.saturating_add(*length) == lba.0 => {
                    *length = length.saturating_add(blocks);
                }
                _ => self.runs.push((lba, blocks)),
            }
        }
        // Where several runs begin together, `join` keeps the longest, whatever their order.
        self.runs.sort_unstable_by_key(|(lba, _)| lba.0);
        self.join(0);
    }

    /// The runs, in order.
    pub fn runs(&self) -> impl Iterator<Item = (Lba, u64)> + '_ {
        self.runs.iter().copied()
    }

    /// True if these include all of `others`.
    #[must_use]
    pub fn cover(&self, others: &Self) -> bool {
        others.runs().all(|(lba, blocks)| {
            let after = self.runs.partition_point(|(first, _)| *first <= lba);
            let run = after.checked_sub(1).map(|index| self.runs[index]);
            run.is_some_and(|(first, length)| {
                lba.0.saturating_add(blocks) <= first.0.saturating_add(length)
            })
        })
    }

    /// Joins runs that are at most `gap` blocks apart.
    fn join(&mut self, gap: u64) {
        self.runs.dedup_by(|next, before| {
            let end = before.0.0.saturating_add(before.1);
            let is_near = next.0.0 <= end.saturating_add(gap);
            if is_near {
                let end = end.max(next.0.0.saturating_add(next.1));
                before.1 = end - before.0.0;
            }
            is_near
        });
    }

    /// The bytes that they take.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        self.numbers().map(number_len).sum()
    }

    /// Joins runs until they take at most `room` bytes, which is [`NAMES_LEAST`] or more. Returns how many bytes they take.
    pub fn fit(&mut self, room: usize) -> usize {
        debug_assert!(room >= NAMES_LEAST);
        let mut gap = 1;
        loop {
            let len = self.encoded_len();
            if len <= room {
                return len;
            }
            self.join(gap);
            gap = gap.saturating_mul(2);
        }
    }

    /// Writes them to the beginning of `out`.
    pub fn encode(&self, out: &mut [u8]) {
        let mut at = 0;
        for number in self.numbers() {
            at += put_number(number, &mut out[at..]);
        }
    }

    fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        let mut end = 0;
        self.runs.iter().flat_map(move |&(lba, blocks)| {
            let gap = lba.0 - end;
            end = lba.0 + blocks;
            let longer = (blocks > 1).then(|| blocks - 2);
            core::iter::once(gap << 1 | u64::from(blocks > 1)).chain(longer)
        })
    }

    /// Decodes exactly these bytes; `None` if they end within a number, or a number or an LBA is too large.
    #[must_use]
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        let mut names = Self::default();
        let mut end = 0u64;
        while !bytes.is_empty() {
            let first = take_number(&mut bytes)?;
            let blocks = match first & 1 {
                0 => 1,
                _ => take_number(&mut bytes)?.saturating_add(2),
            };
            let lba = end.checked_add(first >> 1)?;
            end = lba.checked_add(blocks).filter(|end| *end <= LAST)?;
            names.runs.push((Lba(lba), blocks));
        }
        Some(names)
    }
}

/// No LBA is larger.
const LAST: u64 = 1 << 56;

fn number_len(number: u64) -> usize {
    let bits = u64::BITS - (number | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

fn put_number(mut number: u64, out: &mut [u8]) -> usize {
    let len = number_len(number);
    for (index, byte) in out[..len].iter_mut().enumerate() {
        *byte = number as u8 & 0x7f | if index + 1 < len { 0x80 } else { 0 };
        number >>= 7;
    }
    len
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..63).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec;
    use proptest::prelude::*;

    fn said(runs: &[(u64, u64)]) -> impl Iterator<Item = (Lba, u64)> {
        runs.iter().map(|&(lba, blocks)| (Lba(lba), blocks))
    }

    fn encoded(names: &mut Names, room: usize) -> Vec<u8> {
        let mut bytes = vec![0; names.fit(room)];
        names.encode(&mut bytes);
        bytes
    }

    #[test]
    fn one_run_always_fits() {
        let mut names = Names::default();
        names.take(said(&[(0, 1), (1 << 40, 5), (LAST - 9, 9)]));
        let bytes = encoded(&mut names, NAMES_LEAST);
        let read: Vec<_> = Names::decode(&bytes).unwrap().runs().collect();
        assert_eq!(read.first().unwrap().0, Lba(0));
        let (lba, blocks) = *read.last().unwrap();
        assert_eq!(lba.0 + blocks, LAST);
    }

    #[test]
    fn names_that_are_cut_short_or_too_large_are_refused() {
        assert!(Names::decode(&[0x80]).is_none());
        assert!(Names::decode(&[1]).is_none(), "a length is missing");
        assert!(Names::decode(&[0xff; 12]).is_none());
        assert!(
            Names::decode(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0]).is_none()
        );
        assert_eq!(Names::decode(&[]).unwrap(), Names::default());
    }

    proptest! {
        #[test]
        fn joined_names_still_cover_every_lba(
            runs in prop::collection::vec((0u64..1 << 30, 1u64..40), 0..300),
            room in NAMES_LEAST..NAMES_ROOM,
        ) {
            let mut names = Names::default();
            names.take(said(&runs));
            let exact: BTreeSet<u64> = runs.iter().flat_map(|&(lba, blocks)| lba..lba + blocks).collect();
            prop_assert_eq!(names.runs().map(|(_, blocks)| blocks).sum::<u64>(), exact.len() as u64);
            let bytes = encoded(&mut names, room);
            prop_assert!(bytes.len() <= room);
            let read = Names::decode(&bytes).unwrap();
            prop_assert_eq!(&read, &names);
            prop_assert!(read.cover(&names));
            prop_assert_eq!(exact.is_empty(), Names::default().cover(&names));
            for lba in exact {
                prop_assert!(read.runs().any(|(first, blocks)| (first.0..first.0 + blocks).contains(&lba)));
            }
        }

        #[test]
        fn any_bytes_are_names_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Some(names) = Names::decode(&bytes) {
                let runs: Vec<_> = names.runs().collect();
                prop_assert!(runs.iter().all(|(lba, blocks)| lba.0 + blocks <= LAST));
            }
        }
    }
}
