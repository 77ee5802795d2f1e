//! What is encoded decodes to itself. Damaged data decode to an error or a block, and never panic.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

use proptest::prelude::*;
use vellum_codec::{Block, DecodeError, Decoder, Encoder, Encoding, Level, Method};
use vellum_core::addr::BLOCK_BYTES;

const METHODS: [Method; 4] = [
    Method::Runs,
    Method::Lz4,
    Method::Zstd(Level::MIN),
    Method::Zstd(Level::MAX),
];

/// A block made of zeros, fills, noise, text and repetitions of any length, like real blocks.
fn block() -> impl Strategy<Value = Box<Block>> {
    let piece = prop_oneof![
        (1..3000_usize).prop_map(|zeros| vec![0; zeros]),
        (1..600_usize, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]),
        proptest::collection::vec(any::<u8>(), 1..40),
        proptest::collection::vec(any::<u8>(), 1000..4096),
        "[a-z ]{1,400}".prop_map(String::into_bytes),
        (proptest::collection::vec(any::<u8>(), 1..20), 1..60_usize)
            .prop_map(|(bytes, times)| bytes.repeat(times)),
    ];
    proptest::collection::vec(piece, 0..24).prop_map(|pieces| {
        let mut block = Box::new([0; BLOCK_BYTES]);
        let bytes = pieces.into_iter().flatten();
        block
            .iter_mut()
            .zip(bytes)
            .for_each(|(to, from)| *to = from);
        block
    })
}

/// A later version of a block.
fn changed(base: &Block, changes: &[(usize, Vec<u8>)]) -> Box<Block> {
    let mut block = Box::new(*base);
    for (at, bytes) in changes {
        for (to, from) in block[*at..].iter_mut().zip(bytes) {
            *to = *from;
        }
    }
    block
}

fn changes() -> impl Strategy<Value = Vec<(usize, Vec<u8>)>> {
    let change = (
        0..BLOCK_BYTES,
        proptest::collection::vec(any::<u8>(), 1..200),
    );
    proptest::collection::vec(change, 0..12)
}

fn decoded(
    encoding: Encoding,
    bytes: &[u8],
    base: Option<&Block>,
) -> Result<Box<Block>, DecodeError> {
    let mut out = Box::new([0xa5; BLOCK_BYTES]);
    Decoder::new().decode(encoding, bytes, base, &mut out)?;
    Ok(out)
}

proptest! {
    #[test]
    fn whole_blocks_come_back(block in block(), room in 0..=BLOCK_BYTES) {
        for method in METHODS {
            let mut encoder = Encoder::new(method, Method::Off);
            let mut out = vec![0; BLOCK_BYTES];
            let full = encoder.compress(&block, &mut out);
            if let Some(full) = full {
                prop_assert!(!full.encoding.is_delta());
                prop_assert_eq!(&decoded(full.encoding, &out[..full.length], None).unwrap(), &block);
            }
            // With less room the result is the same or nothing.
            let mut out = vec![0; room];
            let limited = encoder.compress(&block, &mut out);
            match (full, limited) {
                (Some(full), Some(limited)) => {
                    prop_assert_eq!(full, limited);
                    prop_assert_eq!(&decoded(full.encoding, &out[..full.length], None).unwrap(), &block);
                }
                (Some(full), None) => prop_assert!(full.length > room),
                (None, limited) => prop_assert_eq!(limited, None),
            }
        }
    }

    #[test]
    fn differences_come_back(base in block(), changes in changes()) {
        let block = changed(&base, &changes);
        for method in METHODS {
            let mut encoder = Encoder::new(Method::Off, method);
            let mut out = vec![0; BLOCK_BYTES];
            if let Some(found) = encoder.delta(&block, &base, &mut out) {
                prop_assert!(found.encoding.is_delta());
                let bytes = &out[..found.length];
                prop_assert_eq!(&decoded(found.encoding, bytes, Some(&base)).unwrap(), &block);
                prop_assert_eq!(
                    decoded(found.encoding, bytes, None),
                    Err(DecodeError::NoBase { encoding: found.encoding })
                );
            } else {
                prop_assert!(changes.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() > 1000);
            }
        }
    }

    /// What an encoder remembers of earlier blocks must not change the result.
    #[test]
    fn a_used_encoder_gives_the_same_result_as_a_new_one(blocks in proptest::collection::vec(block(), 2..5)) {
        for method in METHODS {
            let mut used = Encoder::new(method, method);
            for pair in blocks.windows(2) {
                let mut one = vec![0; BLOCK_BYTES];
                let mut two = vec![0; BLOCK_BYTES];
                let mut fresh = Encoder::new(method, method);
                let a = used.compress(&pair[1], &mut one);
                let b = fresh.compress(&pair[1], &mut two);
                prop_assert_eq!(a, b);
                if let Some(found) = a {
                    prop_assert_eq!(&one[..found.length], &two[..found.length]);
                }
                let a = used.delta(&pair[1], &pair[0], &mut one);
                let b = fresh.delta(&pair[1], &pair[0], &mut two);
                prop_assert_eq!(a, b);
                if let Some(found) = a {
                    prop_assert_eq!(&one[..found.length], &two[..found.length]);
                }
            }
        }
    }

    #[test]
    fn damage_is_an_error_or_a_block(
        base in block(),
        changes in changes(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0..8_u8), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let block = changed(&base, &changes);
        let mut decoder = Decoder::new();
        for method in METHODS {
            let mut encoder = Encoder::new(method, method);
            for delta in [false, true] {
                let mut out = vec![0; BLOCK_BYTES];
                let found = if delta {
                    encoder.delta(&block, &base, &mut out)
                } else {
                    encoder.compress(&block, &mut out)
                };
                let Some(found) = found else { continue };
                let mut bytes = out[..found.length].to_vec();
                if !bytes.is_empty() {
                    for (at, bit) in &flips {
                        let at = at.index(bytes.len());
                        bytes[at] ^= 1 << bit;
                    }
                }
                let mut room = [0; BLOCK_BYTES];
                for bytes in [&bytes[..], &bytes[..cut.index(bytes.len() + 1)]] {
                    for &encoding in Encoding::ALL {
                        let _ = decoder.decode(encoding, bytes, Some(&base), &mut room);
                    }
                }
                // The decoder still works.
                decoder
                    .decode(found.encoding, &out[..found.length], Some(&base), &mut room)
                    .unwrap();
                prop_assert_eq!(&room, &*block);
            }
        }
    }

    #[test]
    fn noise_is_an_error_or_a_block(
        bytes in proptest::collection::vec(any::<u8>(), 0..5000),
        base in block(),
    ) {
        for &encoding in Encoding::ALL {
            let found = decoded(encoding, &bytes, Some(&base));
            if bytes.len() > BLOCK_BYTES {
                let length = bytes.len();
                prop_assert_eq!(found, Err(DecodeError::TooLong { encoding, length }));
            }
        }
    }
}

/// An encoding that is cut short must not decode to a block, if it states a length.
#[test]
fn less_than_a_block_is_an_error() {
    let text: Vec<u8> = (0..800_u32)
        .flat_map(|n| format!("{} ", n * n).into_bytes())
        .collect();
    let block: Box<Block> = Box::new(text[..BLOCK_BYTES].try_into().unwrap());
    for method in [Method::Lz4, Method::Zstd(Level::MIN)] {
        let mut out = [0; BLOCK_BYTES];
        let found = Encoder::new(method, Method::Off)
            .compress(&block, &mut out)
            .unwrap();
        for cut in 0..found.length {
            let found = decoded(found.encoding, &out[..cut], None);
            assert!(found.is_err(), "{method:?} cut to {cut} bytes");
        }
    }
}

#[test]
fn a_block_that_is_its_base_takes_nothing() {
    let block = Box::new([7; BLOCK_BYTES]);
    let mut encoder = Encoder::new(Method::Lz4, Method::Lz4);
    let found = encoder.delta(&block, &block, &mut []).unwrap();
    assert_eq!((found.encoding, found.length), (Encoding::DeltaRuns, 0));
    let found = encoder.compress(&[0; BLOCK_BYTES], &mut []).unwrap();
    assert_eq!((found.encoding, found.length), (Encoding::Runs, 0));
}

/// More room than a block must not yield more than a block.
#[test]
fn a_result_is_never_more_than_a_block() {
    // Runs and gaps alternate: the worst case for runs.
    let mut block = [1; BLOCK_BYTES];
    let mut state = 1_u32;
    for (at, byte) in block.iter_mut().enumerate() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = if at % 32 < 2 {
            0
        } else {
            (state >> 24) as u8 | 1
        };
    }
    for method in METHODS {
        let mut out = [0; 2 * BLOCK_BYTES];
        let mut encoder = Encoder::new(method, method);
        for found in [
            encoder.compress(&block, &mut out),
            encoder.delta(&block, &[0; BLOCK_BYTES], &mut out),
        ] {
            assert!(found.is_none_or(|found| found.length <= BLOCK_BYTES));
        }
    }
}

/// zstd mistakes a base that begins like one of its dictionaries for a dictionary. Whatever the result, it is not the
/// wrong block.
#[test]
fn a_base_that_looks_like_a_dictionary() {
    let mut base = [0; BLOCK_BYTES];
    let mut state = 1_u32;
    for byte in &mut base {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = b'a' + (state >> 24) as u8 % 16;
    }
    base[..4].copy_from_slice(&0xEC30_A437_u32.to_le_bytes());
    let mut block = base;
    block[..2000].rotate_left(7);
    for method in METHODS {
        let mut out = [0; BLOCK_BYTES];
        let mut encoder = Encoder::new(Method::Off, method);
        if let Some(found) = encoder.delta(&block, &base, &mut out) {
            let back = decoded(found.encoding, &out[..found.length], Some(&base)).unwrap();
            assert_eq!(*back, block, "{method:?}");
        }
    }
}

#[test]
fn an_encoder_that_is_off_encodes_nothing() {
    let mut encoder = Encoder::new(Method::Off, Method::Off);
    let mut out = [0; BLOCK_BYTES];
    assert_eq!(encoder.compress(&[0; BLOCK_BYTES], &mut out), None);
    assert_eq!(
        encoder.delta(&[0; BLOCK_BYTES], &[0; BLOCK_BYTES], &mut out),
        None
    );
    encoder.set(Method::Lz4, Method::Off);
    assert!(encoder.compress(&[0; BLOCK_BYTES], &mut out).is_some());
}
