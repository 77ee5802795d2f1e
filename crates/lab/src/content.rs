//! What a block holds, without its bytes: a number that stands for them.
//!
//! Two blocks are equal when their contents are. The engine gets digests made of that number, and a comparison
//! compares the numbers, so no payload is ever generated or kept.

use crate::rng::{mix, unmix};
use smallvec::SmallVec;
use vellum_core::seam::Digest;

/// What the blocks of a request hold: most requests have one.
pub type Contents = SmallVec<[Content; 2]>;

const OWN_MASK: u64 = 0xffff;
const OWN_MARK: u64 = 0x0f57;

const ALIKE_MASK: u64 = 0xffff_ffff;
const ALIKE_MARK: u64 = 0x5ea1_a11e;
const KIND_MASK: u64 = 0xff << 32;

/// Bytes in a block.
pub const BYTES: usize = 4096;

/// What one block holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Content(pub u64);

impl Content {
    /// 4096 zeros.
    pub const ZERO: Self = Self(0);

    /// The content of the `version`th write of a run at `lba`, when nothing better is known: different from everything
    /// else.
    #[must_use]
    pub fn synthetic(seed: u64, lba: u64, version: u64) -> Self {
        Self::of(mix(seed ^ mix(lba)).wrapping_add(mix(version ^ 0x5eed)))
    }

    /// This content, marked as one of the file system's own. Models of sizes distinguish those
    /// ([`Sizes`](crate::sizes::Sizes)). One in 65,536 of all other contents looks like one.
    #[must_use]
    pub fn own(self) -> Self {
        Self(self.0 & !OWN_MASK | OWN_MARK)
    }

    /// True if it is marked so.
    #[must_use]
    pub fn is_own(self) -> bool {
        self.0 & OWN_MASK == OWN_MARK
    }

    /// The `number`th of the contents that begin with the same 64 bytes, those of `kind`, and differ after them: pages
    /// of a database, inode tables. One in four billion of all other contents looks like one.
    #[must_use]
    pub fn alike(kind: u8, number: u32) -> Self {
        Self(u64::from(number) << 40 | u64::from(kind) << 32 | ALIKE_MARK)
    }

    /// A content that stands for its first 64 bytes: unique for most contents.
    #[must_use]
    pub fn beginning(self) -> Self {
        match self.0 & ALIKE_MASK {
            ALIKE_MARK => Self(self.0 & (KIND_MASK | ALIKE_MASK)),
            _ => self,
        }
    }

    /// The content that replaces this one in a repetition of a trace. Equal contents stay equal, and none equals what
    /// another repetition wrote. Zeros stay zeros; the marks of kinds stay.
    #[must_use]
    pub fn repeated(self, repetition: u32) -> Self {
        if self == Self::ZERO || repetition == 0 {
            return self;
        }
        let kind = KIND_MASK | ALIKE_MASK;
        let salted = mix(self.0 ^ mix(u64::from(repetition)));
        match (self.0 & ALIKE_MASK, self.is_own()) {
            (ALIKE_MARK, _) => Self(self.0 & kind | salted & !kind),
            (_, true) => Self(salted).own(),
            _ => Self::of(salted),
        }
    }

    /// The content with this fingerprint in a trace.
    #[must_use]
    pub fn of(fingerprint: u64) -> Self {
        // 0 is kept for zeros.
        Self(fingerprint.max(1))
    }

    /// The checksum that stands for the block's.
    #[must_use]
    pub fn sum(self) -> u32 {
        (mix(self.0) >> 32) as u32
    }

    /// A content that has this checksum; other contents with the same checksum have other numbers.
    #[must_use]
    pub fn with_sum(sum: u32, number: u32) -> Self {
        Self(unmix(u64::from(sum) << 32 | u64::from(number)))
    }

    /// Bytes that stand for it where some must be read: eight zeros, the number, and zeros. So they do not look like a file system's own
    /// block.
    pub fn bytes(self, out: &mut [u8; BYTES]) {
        out.fill(0);
        out[8..16].copy_from_slice(&self.0.to_le_bytes());
    }

    /// Its digest for the core. The hash that proposes duplicates covers the first 64 bytes, like the paper's; a comparison decides.
    #[must_use]
    pub fn digest(self) -> Digest {
        Digest {
            sum: self.sum(),
            weak: mix(self.beginning().0 ^ 0x9e37_79b9_7f4a_7c15),
            zero: self == Self::ZERO,
            first: mix(self.0) as u32,
            packed: None,
            ..Digest::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Content;

    #[test]
    fn contents_repeat_only_within_a_repetition() {
        let plain = Content::synthetic(1, 2, 3);
        for content in [plain, plain.own(), Content::alike(7, 9)] {
            assert_eq!(content.repeated(0), content);
            assert_eq!(content.repeated(4), content.repeated(4));
            assert_ne!(content.repeated(4), content);
            assert_ne!(content.repeated(4), content.repeated(5));
            assert_eq!(content.repeated(4).is_own(), content.is_own());
        }
        let alike = Content::alike(7, 9);
        assert_eq!(alike.repeated(4).beginning(), alike.beginning());
        assert_eq!(Content::ZERO.repeated(4), Content::ZERO);
    }
}
