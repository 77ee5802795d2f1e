//! A bit for each block of a group.

use core::ops::Range;

const WORDS: usize = 512;

/// The most blocks in a group: as many as a bitmap of 4096 bytes has bits.
pub(super) const BITS: u64 = WORDS as u64 * 64;

/// A set of a group's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bits(Box<[u64; WORDS]>);

impl Bits {
    pub fn none() -> Self {
        Self(Box::new([0; WORDS]))
    }

    /// Reads a block bitmap, in which set means used. `None` if it is not 4096 bytes.
    pub fn read(bitmap: &[u8]) -> Option<Self> {
        let (words, []) = bitmap.as_chunks::<8>() else {
            return None;
        };
        if words.len() != WORDS {
            return None;
        }
        let mut bits = Self::none();
        for (to, from) in bits.0.iter_mut().zip(words) {
            *to = u64::from_le_bytes(*from);
        }
        Some(bits)
    }

    pub fn is_bitmap(&self, bitmap: &[u8]) -> bool {
        let (words, rest) = bitmap.as_chunks::<8>();
        words.len() == WORDS
            && rest.is_empty()
            && self
                .0
                .iter()
                .zip(words)
                .all(|(own, other)| own.to_le_bytes() == *other)
    }

    pub fn clear(&mut self) {
        self.0.fill(0);
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    pub fn set(&mut self, range: Range<u64>) {
        each_word(range, |word, mask| self.0[word] |= mask);
    }

    /// Removes a range. Returns how many blocks were in it.
    pub fn unset(&mut self, range: Range<u64>) -> u64 {
        let mut gone = 0;
        each_word(range, |word, mask| {
            gone += u64::from((self.0[word] & mask).count_ones());
            self.0[word] &= !mask;
        });
        gone
    }

    pub fn has_all(&self, range: Range<u64>) -> bool {
        let mut all = true;
        each_word(range, |word, mask| all &= self.0[word] & mask == mask);
        all
    }

    /// Removes all blocks of `other`.
    pub fn without(&mut self, other: &Self) {
        for (own, other) in self.0.iter_mut().zip(other.0.iter()) {
            *own &= !other;
        }
    }

    pub fn join(&mut self, other: &Self) {
        for (own, other) in self.0.iter_mut().zip(other.0.iter()) {
            *own |= other;
        }
    }

    /// All blocks that are not in it.
    pub fn others(&self) -> Self {
        let mut out = Self::none();
        for (to, from) in out.0.iter_mut().zip(self.0.iter()) {
            *to = !from;
        }
        out
    }

    /// Removes its first run, of at most `most` blocks.
    pub fn take_run(&mut self, most: u64) -> Option<Range<u64>> {
        let word = self.0.iter().position(|word| *word != 0)?;
        let first = word as u64 * 64 + u64::from(self.0[word].trailing_zeros());
        let mut end = first;
        while end < BITS && end - first < most && self.has_all(end..end + 1) {
            // A word at a time where all its bits are set, because a free group is one run.
            end += match end.is_multiple_of(64) && self.0[(end / 64) as usize] == u64::MAX {
                true => 64.min(most - (end - first)),
                false => 1,
            };
        }
        self.unset(first..end);
        Some(first..end)
    }
}

/// Calls `each` with each word that the range touches, and the range's bits in it. Bits past the end are skipped.
fn each_word(range: Range<u64>, mut each: impl FnMut(usize, u64)) {
    let end = range.end.min(BITS);
    let mut at = range.start;
    while at < end {
        let (word, low) = ((at / 64) as usize, at % 64);
        let count = (64 - low).min(end - at);
        let mask = (u64::MAX >> (64 - count)) << low;
        each(word, mask);
        at += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_what_single_bits_make() {
        for range in [
            0..1,
            63..65,
            5..200,
            64..128,
            32_700..32_768,
            32_760..40_000,
            9..9,
        ] {
            let (mut whole, mut single) = (Bits::none(), Bits::none());
            whole.set(range.clone());
            for bit in range.clone() {
                single.set(bit..bit + 1);
            }
            assert_eq!(whole, single);
            let within = range.start..range.end.min(BITS);
            assert!(whole.has_all(within.clone()));
            assert_eq!(whole.count(), within.end - within.start);
            let mut taken = whole.clone();
            assert_eq!(
                taken.take_run(u64::MAX),
                (!within.is_empty()).then_some(within.clone())
            );
            assert!(taken.is_empty());
            assert_eq!(whole.unset(range), within.end - within.start);
            assert!(whole.is_empty());
        }
    }

    #[test]
    fn runs_are_taken_in_order_and_in_parts() {
        let mut bits = Bits::none();
        bits.set(10..300);
        bits.set(301..302);
        assert_eq!(bits.take_run(200), Some(10..210));
        assert_eq!(bits.take_run(200), Some(210..300));
        assert_eq!(bits.take_run(200), Some(301..302));
        assert_eq!(bits.take_run(200), None);
    }

    #[test]
    fn a_bitmap_is_read_as_the_kernel_writes_it() {
        let mut bitmap = vec![0; 4096];
        bitmap[0] = 0b101;
        bitmap[4095] = 0x80;
        let bits = Bits::read(&bitmap).unwrap();
        assert!(bits.has_all(0..1) && bits.has_all(2..3) && bits.has_all(32_767..32_768));
        assert_eq!(bits.count(), 3);
        assert!(bits.is_bitmap(&bitmap));
        bitmap[9] = 1;
        assert!(!bits.is_bitmap(&bitmap));
        assert!(Bits::read(&bitmap[1..]).is_none());
    }
}
