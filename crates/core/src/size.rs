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

impl Size {
    /// This size, in words that differ from another one's in the same unit: for an error about the two.
    #[must_use]
    pub const fn beside(self, other: Self) -> Beside {
        Beside(self.0, other.0)
    }
}

/// See [`Size::beside`].
#[derive(Clone, Copy, Debug)]
pub struct Beside(u64, u64);

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
        let digits = usize::from(self.0.trailing_zeros() < shift);
        write!(
            f,
            "{:.digits$} {unit}iB",
            self.0 as f64 / (1u64 << shift) as f64
        )
    }
}

/// Rounded to a tenth of the largest unit in which the two differ, and the smaller is not a mere part.
impl core::fmt::Display for Beside {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (less, more) = (self.0.min(self.1), self.0.max(self.1));
        let tenths = |bytes: u64, shift: u32| {
            let half = (1_u128 << shift) / 2;
            (u128::from(bytes) * 10 + half) >> shift
        };
        let tells = |&&(_, shift): &&(char, u32)| {
            let is_part = less > 0 && less >> shift == 0;
            more >> shift > 0
                && !is_part
                && (tenths(less, shift) != tenths(more, shift) || less == more)
        };
        let Some((unit, shift)) = UNITS.iter().rev().find(tells) else {
            return write!(f, "{} B", self.0);
        };
        match tenths(self.0, *shift) {
            whole if whole % 10 == 0 => write!(f, "{} {unit}iB", whole / 10),
            tenths => write!(f, "{}.{} {unit}iB", tenths / 10, tenths % 10),
        }
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
        assert_eq!(format!("{:#}", Size(1217 << 20)), "1217 MiB");
        assert_eq!(
            format!("{:#} {:#}", Size(10 << 30), Size(1500)),
            "10 GiB 1.5 KiB"
        );
    }

    #[test]
    fn two_sizes_are_told_apart_in_one_unit() {
        const T: u64 = 1 << 40;
        for (one, other, told) in [
            (10 << 30, 20 << 30, "10 GiB 20 GiB"),
            (16 * T + 4096, 16 * T, "17179869188 KiB 17179869184 KiB"),
            (16 * T + (1 << 30), 16 * T, "16385 GiB 16384 GiB"),
            (17 * T, 16 * T, "17 TiB 16 TiB"),
            (1 << 30, 1 << 20, "1024 MiB 1 MiB"),
            (3 << 29, 1 << 30, "1.5 GiB 1 GiB"),
            (8193, 8192, "8193 B 8192 B"),
            (0, 5 << 20, "0 MiB 5 MiB"),
            (7 << 20, 7 << 20, "7 MiB 7 MiB"),
            (
                u64::MAX,
                u64::MAX - 1,
                "18446744073709551615 B 18446744073709551614 B",
            ),
        ] {
            let (one, other) = (Size(one), Size(other));
            assert_eq!(format!("{} {}", one.beside(other), other.beside(one)), told);
        }
    }
}
