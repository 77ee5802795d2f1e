//! Cheap tests that predict whether an encoding is worth its time.

use crate::block::Block;
use vellum_core::addr::BLOCK_BYTES;

/// The distance between sampled bytes. It is odd, so that in an array of words every byte of a word is sampled in turn.
const STRIDE: usize = 7;
/// With fewer samples that are not zero, the test does not decide.
const SAMPLES_MIN: u32 = 64;

/// True if all byte values except zero are about equally frequent, as in encrypted or compressed data. An entropy coder then
/// finds nothing beyond what a search for repetitions finds.
///
/// The sum of the squared counts is 2 to the minus (Rényi) entropy, scaled: for `n` random bytes it is `n + n(n - 1) / 255`. If
/// its second part is a third larger, there are some 7.6 bits in a byte.
pub(crate) fn is_flat(block: &Block) -> bool {
    // Four tables, because a processor cannot increment one place twice at a time.
    let mut counts = [[0_u16; 256]; 4];
    for four in block.chunks_exact(4 * STRIDE) {
        for (lane, counts) in counts.iter_mut().enumerate() {
            counts[usize::from(four[lane * STRIDE])] += 1;
        }
    }
    let [a, b, c, d] = &counts;
    let (mut samples, mut squares) = (0, 0);
    for value in 1..256 {
        let count = u32::from(a[value] + b[value] + c[value] + d[value]);
        samples += count;
        squares += count * count;
    }
    samples >= SAMPLES_MIN && squares - samples < samples * (samples - 1) / 192
}

const WORD: usize = size_of::<u64>();
/// Sampled places in a block, and the distance between them.
const PLACES: usize = 32;
const APART: usize = BLOCK_BYTES / PLACES;
/// At least one in this many places that are not zeros must be in the base.
const RARE: usize = 8;
/// The table has twice as many entries as the base has words.
const TABLE_BITS: u32 = 10;

/// True if the block shares something with its base, wherever it has moved to. If not, a search finds nothing, in the time it
/// takes to compress several blocks by themselves.
///
/// At each place it tests as many windows as a word has bytes: one of them is an aligned word of the base, if the
/// bytes there come from the base.
pub(crate) fn is_like(block: &Block, base: &Block) -> bool {
    let mut table = [0_u16; 1 << TABLE_BITS];
    for at in (0..BLOCK_BYTES).step_by(WORD) {
        table[slot(word(base, at))] = at as u16;
    }
    let is_in_base = |word_here: u64| {
        let at = usize::from(table[slot(word_here)]);
        word_here != 0 && word(base, at) == word_here
    };
    let (mut looked, mut found) = (0, 0);
    for place in (0..BLOCK_BYTES).step_by(APART) {
        if word(block, place) == 0 {
            continue;
        }
        looked += 1;
        found += usize::from((place..place + WORD).any(|at| is_in_base(word(block, at))));
        if found * RARE >= PLACES {
            return true;
        }
    }
    found * RARE >= looked
}

fn slot(word: u64) -> usize {
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - TABLE_BITS)) as usize
}

fn word(block: &Block, at: usize) -> u64 {
    let mut bytes = [0; WORD];
    bytes.copy_from_slice(&block[at..at + WORD]);
    u64::from_le_bytes(bytes)
}

const _: () = assert!(BLOCK_BYTES <= 1 << u16::BITS && APART >= 2 * WORD);

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(mut state: u64) -> Block {
        let mut noise: Block = [0; BLOCK_BYTES];
        for byte in &mut noise {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            *byte = (state >> 56) as u8;
        }
        noise
    }

    #[test]
    fn noise_is_flat_and_text_is_not() {
        let noise = noise(1);
        assert!(is_flat(&noise));
        // Six bits to a byte, as in base 64.
        assert!(!is_flat(&noise.map(|byte| b' ' + byte % 64)));
        assert!(!is_flat(&[0; BLOCK_BYTES]));
    }

    #[test]
    fn noise_is_flat_whatever_lies_between_and_however_its_words_are_made() {
        let mut half = noise(1);
        half.chunks_mut(512).for_each(|part| part[200..].fill(0));
        assert!(is_flat(&half));
        // The lowest byte of each word is a multiple of 8, as a test program makes them.
        let mut words = noise(2);
        words.iter_mut().step_by(WORD).for_each(|byte| *byte &= !7);
        assert!(is_flat(&words));
        let mut text = noise(3).map(|byte| b' ' + byte % 64);
        text.chunks_mut(512).for_each(|part| part[100..].fill(0));
        assert!(!is_flat(&text));
    }

    #[test]
    fn a_block_resembles_its_earlier_version_and_no_other_block() {
        let base = noise(1);
        assert!(is_like(&base, &base));
        assert!(!is_like(&noise(2), &base));
        // Bytes are inserted in front, or a third is replaced.
        for shift in [1, 5, 8, 100] {
            let mut moved = noise(2);
            moved[shift..].copy_from_slice(&base[..BLOCK_BYTES - shift]);
            assert!(is_like(&moved, &base), "moved by {shift}");
        }
        let mut third = base;
        third[1000..2400].copy_from_slice(&noise(2)[1000..2400]);
        assert!(is_like(&third, &base));
        // A block of zeros is not like anything, and a block with hardly anything else is not judged.
        let mut zeros = [0; BLOCK_BYTES];
        assert!(is_like(&zeros, &base) && is_like(&base, &base));
        zeros[4000..].copy_from_slice(&base[4000..]);
        assert!(is_like(&zeros, &base));
        zeros[..1000].copy_from_slice(&noise(2)[..1000]);
        assert!(!is_like(&zeros, &noise(3)));
    }
}
