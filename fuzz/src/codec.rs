//! Decoding any bytes as any encoding ends in a block or an error. What an encoder makes of any block, with any limit, decodes
//! to that block.

use vellum_codec::{Block, Decoder, Encoder, Encoding, Level, Method};

const METHODS: [Method; 3] = [Method::Runs, Method::Lz4, Method::Zstd(Level::DEFAULT)];

/// Repeats the bytes to fill a block, each time slightly changed.
fn block(bytes: &[u8]) -> Block {
    let mut block = [0; size_of::<Block>()];
    if !bytes.is_empty() {
        for (round, piece) in block.chunks_mut(bytes.len()).enumerate() {
            piece.copy_from_slice(&bytes[..piece.len()]);
            piece[0] ^= round as u8;
        }
    }
    block
}

/// Fuzz target `codec_decode`: the first byte is the encoding's number, the second a length; that many bytes make the base, and
/// the rest is decoded.
pub fn decode(bytes: &[u8]) {
    let Some((&[number, length], rest)) = bytes.split_first_chunk() else {
        return;
    };
    let base = block(&rest[..rest.len().min(length.into())]);
    // Every number selects an encoding, so that none is wasted; another test checks that others are refused.
    let encoding = Encoding::ALL[usize::from(number) % Encoding::ALL.len()];
    let mut decoder = Decoder::new();
    let (mut first, mut second) = ([0; size_of::<Block>()], [0xff; size_of::<Block>()]);
    let found = decoder.decode(encoding, rest, Some(&base), &mut first);
    let again = decoder.decode(encoding, rest, Some(&base), &mut second);
    assert_eq!(found, again);
    if found.is_ok() {
        // All of it was written, and nothing of its old contents shows.
        assert!(first == second);
    }
    let alone = decoder.decode(encoding, rest, None, &mut second);
    assert!(!(encoding.is_delta() && alone.is_ok()));
}

/// Fuzz target `codec_round_trip`: the first two bytes are the limit, the third says how many of the rest make the base; the
/// others make the block.
pub fn round_trip(bytes: &[u8]) {
    let Some((&[low, high, length], rest)) = bytes.split_first_chunk() else {
        return;
    };
    let limit = usize::from(u16::from_le_bytes([low, high])) % 5000;
    let (of_base, of_block) = rest.split_at(rest.len().min(length.into()));
    let base = block(of_base);
    let mut new = base;
    // In half of the cases a later version of the base, otherwise another block.
    if low & 1 == 0 {
        new[..of_block.len().min(size_of::<Block>())]
            .copy_from_slice(&of_block[..of_block.len().min(size_of::<Block>())]);
    } else {
        new = block(of_block);
    }
    let mut decoder = Decoder::new();
    for method in METHODS {
        let mut encoder = Encoder::new(method, method);
        let mut room = vec![0; limit];
        for with_base in [false, true] {
            let found = match with_base {
                true => encoder.delta(&new, &base, &mut room),
                false => encoder.compress(&new, &mut room),
            };
            let Some(found) = found else { continue };
            assert_eq!(found.encoding.is_delta(), with_base);
            let mut out = [0xa5; size_of::<Block>()];
            let base = with_base.then_some(&base);
            let back = decoder.decode(found.encoding, &room[..found.length], base, &mut out);
            assert_eq!(back, Ok(()));
            assert!(out == new);
        }
    }
}
