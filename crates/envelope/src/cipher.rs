//! Encrypts and decrypts blocks.

use crate::key::VolumeKey;
use crate::places::BLOCK_BYTES;
use aes::Aes256;
use aes::cipher::{Array, KeyInit};
use xts_mode::{Xts128, get_tweak_default};

/// AES-256-XTS over blocks of 4 KiB. The tweak is the block's number in the volume.
pub struct Cipher(Xts128<Aes256>);

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cipher")
    }
}

impl Cipher {
    /// Makes a cipher with a volume's key.
    #[must_use]
    pub fn new(key: &VolumeKey) -> Self {
        let [data, tweak] = key.halves();
        let cipher = |half: &[u8; 32]| Aes256::new(&Array(*half));
        Self(Xts128::new(cipher(data), cipher(tweak)))
    }

    /// Encrypts whole blocks, starting at block `at`.
    pub fn encrypt(&self, at: u64, blocks: &mut [u8]) {
        self.0
            .encrypt_area(blocks, BLOCK_BYTES, at.into(), get_tweak_default);
    }

    /// Decrypts whole blocks. A block of zeros stays zeros: it was never written, or it was discarded. A block that encrypts to
    /// zeros is not to be expected: one of 2^32768 does.
    pub fn decrypt(&self, at: u64, blocks: &mut [u8]) {
        for (at, block) in (at..).zip(blocks.chunks_exact_mut(BLOCK_BYTES)) {
            if block.iter().any(|&byte| byte != 0) {
                self.0.decrypt_sector(block, get_tweak_default(at.into()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let digit = |byte: u8| (byte as char).to_digit(16).unwrap() as u8;
        digits
            .chunks(2)
            .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
            .collect()
    }

    /// IEEE 1619-2007, vector 10, whose unit is 512 bytes. The first two cipher blocks of 16 bytes do not depend on the unit's length.
    #[test]
    fn it_matches_the_standards_test_vector() {
        let key = hex(
            "2718281828459045235360287471352662497757247093699959574966967627\
             3141592653589793238462643383279502884197169399375105820974944592",
        );
        let cipher = Cipher::new(&VolumeKey::from_bytes(&key.try_into().unwrap()));
        let mut block: Vec<u8> = (0..BLOCK_BYTES).map(|i| i as u8).collect();
        let plain = block.clone();
        cipher.encrypt(0xff, &mut block);
        let said = hex("1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b");
        assert_eq!(block[..32], said);
        cipher.decrypt(0xff, &mut block);
        assert_eq!(block, plain);
    }

    #[test]
    fn each_block_has_its_own_tweak_and_zeros_stay() {
        let cipher = Cipher::new(&VolumeKey::random().unwrap());
        let plain = vec![7; 3 * BLOCK_BYTES];
        let mut blocks = plain.clone();
        cipher.encrypt(5, &mut blocks);
        assert_ne!(blocks[..BLOCK_BYTES], blocks[BLOCK_BYTES..2 * BLOCK_BYTES]);
        let mut second = blocks[BLOCK_BYTES..2 * BLOCK_BYTES].to_vec();
        cipher.decrypt(6, &mut second);
        assert_eq!(second, plain[..BLOCK_BYTES]);
        blocks[..BLOCK_BYTES].fill(0);
        cipher.decrypt(5, &mut blocks);
        assert_eq!(blocks[..BLOCK_BYTES], [0; BLOCK_BYTES]);
        assert_eq!(blocks[BLOCK_BYTES..], plain[BLOCK_BYTES..]);
        let mut zeros = vec![0; BLOCK_BYTES];
        cipher.encrypt(0, &mut zeros);
        assert_ne!(zeros, [0; BLOCK_BYTES], "zeros that are written are hidden");
    }
}
