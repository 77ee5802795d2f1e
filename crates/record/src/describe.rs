//! Describes a block in place of its bytes.

use crate::limits::VERSIONS;
use vellum_codec::{Encoder, Level, Method};
use vellum_core::addr::BLOCK_BYTES;
use vellum_trace::{Block, Class, Content, Sizes};

type Bytes = [u8; BLOCK_BYTES];
static ZEROS: Bytes = [0; BLOCK_BYTES];
/// A block that does not fit in fewer bytes than a block is recorded as not getting smaller.
const ROOM: usize = BLOCK_BYTES - 1;

/// Describes blocks.
pub(crate) struct Describer {
    key: [u8; 32],
    encoder: Encoder,
    /// True if sizes are recorded at all.
    sized: bool,
    room: Vec<u8>,
    versions: Vec<Option<(u64, Box<Bytes>)>>,
}

impl Describer {
    pub fn new(key: [u8; 32], sizes: Sizes) -> Self {
        let method = match sizes {
            Sizes::None => Method::Off,
            Sizes::Lz4 => Method::Lz4,
            Sizes::Zstd => Method::Zstd(Level::MIN),
        };
        Self {
            key,
            encoder: Encoder::new(method, method),
            sized: sizes != Sizes::None,
            room: vec![0; ROOM],
            versions: (0..VERSIONS).map(|_| None).collect(),
        }
    }

    /// Describes `bytes`, written to `lba`. With `sizes`: also how small it gets.
    pub fn describe(&mut self, lba: u64, bytes: &Bytes, class: Class, sizes: bool) -> Block {
        let mut block = Block {
            class,
            ..Block::default()
        };
        let place = lba.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let version = &mut self.versions[place as usize % VERSIONS];
        if *bytes == ZEROS {
            block.content = Content::Zero;
            *version = None;
            return block;
        }
        block.content = Content::Digest(digest(&self.key, bytes));
        if sizes && self.sized {
            let small = |encoded: Option<vellum_codec::Encoded>| {
                encoded.map_or(BLOCK_BYTES as u16, |encoded| encoded.length as u16)
            };
            block.packed = Some(small(self.encoder.compress(bytes, &mut self.room)));
            if let Some((of, before)) = &version
                && *of == lba
            {
                block.delta = Some(small(self.encoder.delta(bytes, before, &mut self.room)));
            }
        }
        match version {
            Some((of, before)) => {
                *of = lba;
                before.copy_from_slice(bytes);
            }
            None => *version = Some((lba, Box::new(*bytes))),
        }
        block
    }

    /// Forgets the last version of a block.
    pub fn forget(&mut self, lba: u64) {
        let place = lba.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        self.versions[place as usize % VERSIONS].take_if(|(of, _)| *of == lba);
    }
}

/// The first 64 bits of BLAKE3 under a key.
fn digest(key: &[u8; 32], bytes: &Bytes) -> u64 {
    let hash = blake3::keyed_hash(key, bytes);
    let mut first = [0; 8];
    first.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_le_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_described_by_hash_and_sizes_and_never_by_its_bytes() {
        let (mut one, mut other) = (
            Describer::new([1; 32], Sizes::Lz4),
            Describer::new([2; 32], Sizes::Lz4),
        );
        let text: Bytes = core::array::from_fn(|i| b"some text "[i % 10]);
        let told = one.describe(5, &text, Class::Other, true);
        assert_eq!(
            one.describe(6, &text, Class::Other, true).content,
            told.content
        );
        assert_ne!(
            other.describe(5, &text, Class::Other, true).content,
            told.content
        );
        assert!(told.packed.unwrap() < 200 && told.delta.is_none());
        let mut changed = text;
        changed[100] ^= 1;
        let told = one.describe(5, &changed, Class::Other, true);
        assert!(told.delta.unwrap() < 20, "{told:?}");
        // Busy: only the digest. The version is still kept, as the base of the next difference.
        let told = one.describe(5, &text, Class::Other, false);
        assert_eq!((told.packed, told.delta), (None, None));
        assert!(one.describe(5, &changed, Class::Other, true).delta.unwrap() < 20);
        one.forget(5);
        assert_eq!(one.describe(5, &text, Class::Other, true).delta, None);
        let zero = one.describe(5, &ZEROS, Class::Journal, true);
        assert_eq!((zero.content, zero.packed), (Content::Zero, None));
    }

    #[test]
    fn sizes_are_those_of_the_encoder_that_was_asked_for() {
        // Random letters out of 16: half of the bits, and no repetition.
        let mut state = 1_u32;
        let letters: Bytes = core::array::from_fn(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            b'a' + (state >> 28) as u8
        });
        let size = |sizes| {
            let mut describer = Describer::new([1; 32], sizes);
            describer.describe(5, &letters, Class::Other, true).packed
        };
        assert_eq!(size(Sizes::None), None);
        assert_eq!(size(Sizes::Lz4), Some(BLOCK_BYTES as u16));
        assert!(size(Sizes::Zstd).unwrap() < 2300);
    }
}
