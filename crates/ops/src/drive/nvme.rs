//! The SMART log of NVMe (log page 02h).

use crate::drive::wear::Wear;

/// The length of the log in bytes.
pub const LOG_BYTES: usize = 512;
/// "A value of 1 corresponds to 1,000 units of 512 bytes."
const UNIT_BYTES: u128 = 512_000;
const PERCENTAGE_USED: usize = 5;
const DATA_UNITS_WRITTEN: std::ops::Range<usize> = 48..64;

/// Parses the log.
///
/// # Errors
/// If its values cannot be true.
pub fn of_log(log: &[u8; LOG_BYTES]) -> Result<Wear, String> {
    let mut units = [0; 16];
    units.copy_from_slice(&log[DATA_UNITS_WRITTEN]);
    let written = u128::from_le_bytes(units).checked_mul(UNIT_BYTES);
    let written = written.and_then(|bytes| u64::try_from(bytes).ok());
    let written = written.ok_or("its SMART log says that it was written more than 16 EiB")?;
    Ok(Wear {
        used_percent: log[PERCENTAGE_USED],
        step_percent: 1,
        written_bytes: Some(written),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_says_how_much_of_a_life_is_used_and_by_what() {
        let mut log = [0; LOG_BYTES];
        log[5] = 7;
        log[48..52].copy_from_slice(&76_171_875_u32.to_le_bytes());
        let wear = of_log(&log).unwrap();
        assert_eq!((wear.used_percent, wear.step_percent), (7, 1));
        assert_eq!(wear.written_bytes, Some(39_000_000_000_000));
        log[63] = 0xff;
        assert!(of_log(&log).is_err());
    }
}
