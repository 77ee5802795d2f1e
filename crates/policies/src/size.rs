//! Sizes as people write them: `10G`, `512M`, `4096`.

use std::fmt::{self, Display};
use std::str::FromStr;
use vellum_core::size::{self, Beside, UNITS};

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl Size {
    /// The size of so many blocks.
    #[must_use]
    pub const fn of_blocks(blocks: u64) -> Self {
        Self(size::Size::of_blocks(blocks).0)
    }

    /// This size, in words that differ from another one's in the same unit: for an error about the two.
    #[must_use]
    pub const fn beside(self, other: Self) -> Beside {
        size::Size(self.0).beside(size::Size(other.0))
    }
}

/// As the core shows it.
impl Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        size::Size(self.0).fmt(f)
    }
}

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

/// A number of things: `1 request`, `2 requests`, `2 flushes`.
#[must_use]
pub fn counted(number: u64, what: &str) -> String {
    let plural = match what.ends_with("sh") {
        _ if number == 1 => "",
        true => "es",
        false => "s",
    };
    format!("{number} {what}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_in_the_singular() {
        let told = [0, 1, 2].map(|number| counted(number, "block"));
        assert_eq!(told, ["0 blocks", "1 block", "2 blocks"]);
        let told = [1, 2].map(|number| counted(number, "flush"));
        assert_eq!(told, ["1 flush", "2 flushes"]);
    }

    #[test]
    fn sizes_are_read() {
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
        assert_eq!(
            (exact(10 << 30), exact(4097)),
            ("10G".into(), "4097".into())
        );
    }
}
