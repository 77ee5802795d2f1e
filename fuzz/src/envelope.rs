//! The header of an encrypted medium: any bytes are read as they would be written, or refused; and no secret opens a forged
//! slot.

use vellum_envelope::{BLOCK_BYTES, Header, Kind, Secret};

/// The sum is at the end of a block.
const SUM_BYTES: usize = 32;

/// Reads the bytes as a header, with its sum corrected, so that the code after the check is reached.
pub fn read(bytes: &[u8]) {
    let mut block = [0; BLOCK_BYTES];
    let length = bytes.len().min(BLOCK_BYTES);
    block[..length].copy_from_slice(&bytes[..length]);
    check(&block);
    let sum = blake3::hash(&block[..BLOCK_BYTES - SUM_BYTES]);
    block[BLOCK_BYTES - SUM_BYTES..].copy_from_slice(sum.as_bytes());
    check(&block);
}

fn check(block: &[u8; BLOCK_BYTES]) {
    let Ok(header) = Header::parse(block) else {
        return;
    };
    assert_eq!(Header::parse(&header.bytes()).as_ref(), Ok(&header));
    for slot in header.slots().iter().flatten() {
        match slot.kind() {
            Kind::Passphrase(cost) => assert!(cost.memory_kib <= 256 << 10),
            Kind::KeyFile => {
                let secret = Secret::key_file(vec![0; 32]).unwrap();
                assert!(slot.open(&secret).unwrap().is_none());
            }
        }
    }
}
