//! Numbers in as few bytes as they need: seven bits a byte, low ones first. The top bit says that more follow.

use crate::block::take;
use crate::error::Problem;

pub fn put(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub fn get(from: &mut &[u8]) -> Result<u64, Problem> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let [byte] = take(from)?;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            break;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Problem::Number)
}

/// Signed numbers, so that small ones of either sign stay short.
pub fn put_signed(value: i64, out: &mut Vec<u8>) {
    put((value << 1 ^ value >> 63) as u64, out);
}

pub fn get_signed(from: &mut &[u8]) -> Result<i64, Problem> {
    let value = get(from)?;
    Ok((value >> 1) as i64 ^ -((value & 1) as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_too_long_ones_are_refused() {
        for value in [0, 1, 127, 128, 300, u64::MAX >> 1, u64::MAX] {
            let mut bytes = Vec::new();
            put(value, &mut bytes);
            assert_eq!(get(&mut bytes.as_slice()), Ok(value));
            let signed = value as i64;
            bytes.clear();
            put_signed(signed, &mut bytes);
            assert_eq!(get_signed(&mut bytes.as_slice()), Ok(signed));
        }
        let long = [0xff; 9];
        assert_eq!(get(&mut &long[..]), Err(Problem::EntryCut));
        let more = [&long[..], &[2]].concat();
        assert_eq!(get(&mut more.as_slice()), Err(Problem::Number));
    }
}
