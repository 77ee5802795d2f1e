//! The checksums of these formats.

/// The kernel's `crc32c(seed, bytes)`: the plain register, without presetting or inverting it.
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

/// The same over `bytes` with `hole` counted as zeros, for a checksum field inside the range it covers.
pub fn crc32c_around(seed: u32, bytes: &[u8], hole: core::ops::Range<usize>) -> u32 {
    const ZEROS: [u8; 8] = [0; 8];
    let (before, rest) = bytes.split_at(hole.start.min(bytes.len()));
    let (within, after) = rest.split_at(hole.len().min(rest.len()));
    let seed = crc32c(seed, before);
    let seed = within
        .chunks(ZEROS.len())
        .fold(seed, |seed, part| crc32c(seed, &ZEROS[..part.len()]));
    crc32c(seed, after)
}

/// CRC-32 as GPT and zip define it, computed bit by bit: a scan only needs some KiB.
pub fn crc32(bytes: &[u8]) -> u32 {
    !reflected(!0, bytes, 0xEDB8_8320)
}

/// The kernel's `crc16(seed, bytes)`, used for group descriptors before metadata_csum.
pub fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    reflected(seed.into(), bytes, 0xA001) as u16
}

fn reflected(seed: u32, bytes: &[u8], polynomial: u32) -> u32 {
    bytes.iter().fold(seed, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (polynomial & (crc & 1).wrapping_neg())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check values from the catalogue of CRCs.
    #[test]
    fn known_answers() {
        let text = b"123456789";
        assert_eq!(!crc32c(!0, text), 0xE306_9283);
        assert_eq!(crc32(text), 0xCBF4_3926);
        assert_eq!(crc16(0, text), 0xBB3D);
        let mut holed = *b"123456789abcdef";
        holed[2..11].fill(0);
        assert_eq!(
            crc32c_around(7, b"123456789abcdef", 2..11),
            crc32c(7, &holed)
        );
    }
}
