//! How a block is stored, by the numbers that are on the medium.

use core::fmt;

macro_rules! encodings {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $delta:literal, $text:literal;)*) => {
        /// How a block is stored. The numbers are on the medium: they are never changed or used again.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Encoding {
            $($(#[$doc])* $name = $number,)*
        }

        impl Encoding {
            /// All there are.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Whether the bytes are a difference: decoding them takes the base they were made with.
            #[must_use]
            pub fn is_delta(self) -> bool {
                match self {
                    $(Self::$name => $delta,)*
                }
            }
        }

        impl fmt::Display for Encoding {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$name => $text,)*
                })
            }
        }

        impl TryFrom<u8> for Encoding {
            type Error = UnknownEncoding;

            fn try_from(number: u8) -> Result<Self, UnknownEncoding> {
                match number {
                    $($number => Ok(Self::$name),)*
                    _ => Err(UnknownEncoding(number)),
                }
            }
        }
    };
}

encodings! {
    /// The block as one LZ4 block, without a frame.
    Lz4 = 1, false, "LZ4";
    /// The block as one zstd frame, without its magic number.
    Zstd = 2, false, "zstd";
    /// The XOR with the base, as [`runs`](crate::runs).
    DeltaRuns = 3, true, "delta as runs";
    /// As [`Encoding::Lz4`], with the base as what came before: also for what has moved within the block.
    DeltaLz4 = 4, true, "delta as LZ4";
    /// As [`Encoding::Zstd`], with the base as what came before.
    DeltaZstd = 5, true, "delta as zstd";
    /// The block as [`runs`](crate::runs): for one that is mostly zeros.
    Runs = 6, false, "runs";
}

impl Encoding {
    /// Its number on the medium.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }
}

/// A number that stands for no encoding of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no encoding has the number {0}: the record is damaged, or a later version wrote it")]
pub struct UnknownEncoding(pub u8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back() {
        let mut known = 0;
        for number in 0..=u8::MAX {
            match Encoding::try_from(number) {
                Ok(encoding) => {
                    assert_eq!(encoding.number(), number);
                    known += 1;
                }
                Err(unknown) => assert_eq!(unknown, UnknownEncoding(number)),
            }
        }
        assert_eq!(known, Encoding::ALL.len());
        // An area of zeros must not pass for something encoded.
        assert!(Encoding::try_from(0).is_err());
    }
}
