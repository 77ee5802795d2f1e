//! The fuzz targets, over some thousands of seeded inputs each.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

#[path = "../../../fuzz/src/codec.rs"]
mod codec;

use vellum_codec::{Block, Encoder, Encoding, Level, Method};

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, below: usize) -> usize {
        (self.next() % below as u64) as usize
    }
}

/// Words, numbers and zeros.
fn text(rng: &mut Rng) -> Block {
    let mut block = [0; size_of::<Block>()];
    let mut at = 0;
    while at < block.len() {
        let word = format!("{} entry ", rng.next() % 5000);
        let end = block.len().min(at + word.len());
        block[at..end].copy_from_slice(&word.as_bytes()[..end - at]);
        at = end + rng.below(40);
    }
    block
}

#[test]
fn noise_decodes_to_a_block_or_an_error() {
    let mut rng = Rng(1);
    for _ in 0..20_000 {
        let length = 2 + rng.below(300);
        let bytes: Vec<u8> = (0..length).map(|_| rng.next() as u8).collect();
        codec::decode(&bytes);
    }
}

#[test]
fn mutated_encodings_decode_to_a_block_or_an_error() {
    let mut rng = Rng(2);
    for _ in 0..1000 {
        let (block, base) = (text(&mut rng), text(&mut rng));
        let method = match rng.below(3) {
            0 => Method::Runs,
            1 => Method::Lz4,
            _ => Method::Zstd(Level::DEFAULT),
        };
        let mut encoder = Encoder::new(method, method);
        let mut room = [0; size_of::<Block>()];
        let found = match rng.below(2) {
            0 => encoder.compress(&block, &mut room),
            _ => encoder.delta(&block, &base, &mut room),
        };
        let Some(found) = found else { continue };
        let number = Encoding::ALL
            .iter()
            .position(|&encoding| encoding == found.encoding)
            .unwrap();
        let mut bytes = vec![number as u8, 200];
        bytes.extend_from_slice(&room[..found.length]);
        for _ in 0..20 {
            let mut bytes = bytes.clone();
            for _ in 0..=rng.below(3) {
                let at = 2 + rng.below(bytes.len() - 2);
                bytes[at] = match rng.below(4) {
                    0 => 0,
                    1 => 0xff,
                    2 => bytes[at] ^ 1 << rng.below(8),
                    _ => rng.next() as u8,
                };
            }
            bytes.truncate(bytes.len() - rng.below(2) * rng.below(bytes.len() - 2));
            codec::decode(&bytes);
        }
    }
}

#[test]
fn blocks_come_back() {
    let mut rng = Rng(3);
    for _ in 0..3000 {
        let length = 3 + rng.below(1500);
        let spread = 1 + rng.below(256) as u64;
        let bytes: Vec<u8> = (0..length).map(|_| (rng.next() % spread) as u8).collect();
        codec::round_trip(&bytes);
    }
}
