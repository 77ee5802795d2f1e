//! Whether a block is worth the time of an entropy coder.

use crate::Block;

/// Every so many bytes one is looked at.
const STRIDE: usize = 8;
const SAMPLES: u32 = (size_of::<Block>() / STRIDE) as u32;

/// Whether all byte values come about equally often, as in what is encrypted or compressed already.
///
/// The sum of the squared counts is 2 to the minus (Rényi) entropy, scaled: of 512 bytes that are random it is
/// 1534, give or take 45, and below four times the samples there are more than 7.4 bits in a byte.
pub(crate) fn is_flat(block: &Block) -> bool {
    let mut counts = [0_u32; 256];
    for &byte in block.iter().step_by(STRIDE) {
        counts[usize::from(byte)] += 1;
    }
    counts.iter().map(|count| count * count).sum::<u32>() < 4 * SAMPLES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_flat_and_text_is_not() {
        let mut state = 1_u64;
        let mut noise: Block = [0; size_of::<Block>()];
        for byte in &mut noise {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            *byte = (state >> 56) as u8;
        }
        assert!(is_flat(&noise));
        // Six bits to a byte, as in base 64.
        assert!(!is_flat(&noise.map(|byte| b' ' + byte % 64)));
        assert!(!is_flat(&[0; size_of::<Block>()]));
    }
}
