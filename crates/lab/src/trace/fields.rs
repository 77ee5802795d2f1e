//! Columns: numbers and times as traces write them, with the errors when they are not.

use super::error::Problem;
use std::str::FromStr;
use vellum_core::addr::Nanos;

/// Bytes of a sector, where a format counts in them.
pub const SECTOR_BYTES: u64 = 512;

/// The error for a column that is not valid.
pub fn wrong(field: &'static str, text: &str, need: &'static str) -> Problem {
    let text = text.chars().take(40).collect();
    Problem::Field { field, text, need }
}

/// Parses a whole number.
pub fn number<T: FromStr>(field: &'static str, text: &str) -> Result<T, Problem> {
    text.parse()
        .map_err(|_| wrong(field, text, "a whole number is needed"))
}

/// Parses a number of sectors, in bytes.
pub fn sectors(field: &'static str, text: &str) -> Result<u64, Problem> {
    number::<u64>(field, text)?
        .checked_mul(SECTOR_BYTES)
        .ok_or_else(|| wrong(field, text, "too many sectors"))
}

/// Parses a whole number of ticks of `nanos` nanoseconds.
pub fn ticks(field: &'static str, text: &str, nanos: u64) -> Result<Nanos, Problem> {
    number::<u64>(field, text)?
        .checked_mul(nanos)
        .map(Nanos)
        .ok_or_else(|| {
            wrong(
                field,
                text,
                "a time this far cannot be counted in nanoseconds",
            )
        })
}

/// A name as a number that is the same in every run (FNV-1a). A number is kept if it fits.
pub fn name_number(text: &str) -> u32 {
    text.parse().unwrap_or_else(|_| {
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        (hash ^ hash >> 32) as u32
    })
}

/// Parses a decimal fraction of a unit of `nanos` nanoseconds: exact, unlike a floating-point number.
pub fn decimal(field: &'static str, text: &str, nanos: u64) -> Result<Nanos, Problem> {
    let need = "a number like 12.345 is needed";
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || whole.is_empty() {
        return Err(wrong(field, text, need));
    }
    let mut value: u64 = number::<u64>(field, whole)?
        .checked_mul(nanos)
        .ok_or_else(|| {
            wrong(
                field,
                text,
                "a time this far cannot be counted in nanoseconds",
            )
        })?;
    let mut unit = nanos;
    for digit in fraction.bytes() {
        unit /= 10;
        value = value.saturating_add(u64::from(digit - b'0') * unit);
    }
    Ok(Nanos(value))
}
