//! Sizes as people write them: `10G`, `512M`, `4096`.

use crate::addr::BLOCK_BYTES;
use alloc::format;
use alloc::string::{String, ToString as _};
use core::str::FromStr;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl Size {
    /// The size of so many blocks.
    #[must_use]
    pub const fn of_blocks(blocks: u64) -> Self {
        Self(blocks.saturating_mul(BLOCK_BYTES as u64))
    }
}

const UNITS: [(char, u32); 5] = [('K', 10), ('M', 20), ('G', 30), ('T', 40), ('P', 50)];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("{text:?} is not a size: write a whole number and K, M, G, T or P, like 10G")
        };
        let upper = text.trim().to_ascii_uppercase();
        let digits = upper.trim_end_matches(|c: char| !c.is_ascii_digit());
        let shift = match &upper[digits.len()..] {
            "" | "B" => 0,
            unit => {
                let rest = unit
                    .strip_suffix("IB")
                    .or_else(|| unit.strip_suffix('B'))
                    .unwrap_or(unit);
                UNITS
                    .iter()
                    .find(|(c, _)| rest.len() == 1 && rest.starts_with(*c))
                    .ok_or_else(wrong)?
                    .1
            }
        };
        let number: u64 = digits.parse().map_err(|_| wrong())?;
        match number.checked_shl(shift) {
            Some(bytes) if bytes >> shift == number => Ok(Self(bytes)),
            _ => Err(format!("{text:?} is more than 16 EiB")),
        }
    }
}

/// Formats bytes as [`Size`] reads them, without rounding.
#[must_use]
pub fn exact(bytes: u64) -> String {
    let unit = UNITS
        .iter()
        .rev()
        .find(|(_, shift)| bytes > 0 && bytes.trailing_zeros() >= *shift);
    match unit {
        Some((unit, shift)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// Rounded to a tenth; with `{:#}` to a tenth of the next smaller unit, for sizes that are compared.
impl core::fmt::Display for Size {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Some(at) = UNITS.iter().rposition(|(_, shift)| self.0 >> shift > 0) else {
            return write!(f, "{} B", self.0);
        };
        let (unit, shift) = UNITS[at];
        if self.0.trailing_zeros() >= shift {
            return write!(f, "{} {unit}iB", self.0 >> shift);
        }
        let (unit, shift) = UNITS[at.saturating_sub(usize::from(f.alternate()))];
        write!(f, "{:.1} {unit}iB", self.0 as f64 / (1u64 << shift) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("10G", 10 << 30),
            ("2kib", 2048),
            ("3MB", 3 << 20),
            ("1T", 1 << 40),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in [
            "",
            "G",
            "-1",
            "1.5G",
            "1X",
            "1GG",
            "10 0",
            "99999999999P",
            "18446744073709551616",
            "1é",
        ] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
        assert_eq!(Size(10 << 30).to_string(), "10 GiB");
        assert_eq!(Size((10 << 30) + (1 << 29)).to_string(), "10.5 GiB");
        assert_eq!(Size(12).to_string(), "12 B");
        let (less, more) = (Size(2_505_896 << 10), Size(2_525_588 << 10));
        assert_eq!(format!("{less} {more}"), "2.4 GiB 2.4 GiB");
        assert_eq!(format!("{less:#} {more:#}"), "2447.2 MiB 2466.4 MiB");
        assert_eq!(
            format!("{:#} {:#}", Size(10 << 30), Size(1500)),
            "10 GiB 1.5 KiB"
        );
    }
}
