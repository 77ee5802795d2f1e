//! The encodings of a block, and their numbers on the medium.

use core::fmt;

macro_rules! encodings {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $delta:literal, $text:literal;)*) => {
        /// The encoding of a block. The numbers are on the medium: they are never changed or reused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Encoding {
            $($(#[$doc])* $name = $number,)*
        }

        impl Encoding {
            /// All encodings.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// True if the bytes are a difference: decoding them needs the base they were made with.
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
    /// As [`Encoding::Lz4`], with the base as the preceding data. This also finds bytes that have moved within the block.
    DeltaLz4 = 4, true, "delta as LZ4";
    /// As [`Encoding::Zstd`], with the base as the preceding data.
    DeltaZstd = 5, true, "delta as zstd";
    /// The block as [`runs`](crate::runs): for a block that is mostly zeros.
    Runs = 6, false, "runs";
}

impl Encoding {
    /// Its number on the medium.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }
}

/// A number that is not an encoding in this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no encoding has the number {0}: the record is damaged, or a later version wrote it")]
pub struct UnknownEncoding(pub u8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_an_encoding_leads_back_to_it() {
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
        // An area of zeros must not be taken for an encoded block.
        assert!(Encoding::try_from(0).is_err());
    }
}
