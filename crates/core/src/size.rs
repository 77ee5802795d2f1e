//! Sizes in words: `10.5 GiB`.

use crate::addr::BLOCK_BYTES;

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

/// The units of sizes, the smallest first: the letter, and by how many bits it shifts a number of bytes.
pub const UNITS: [(char, u32); 5] = [('K', 10), ('M', 20), ('G', 30), ('T', 40), ('P', 50)];

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
    use alloc::format;
    use alloc::string::ToString as _;

    #[test]
    fn sizes_are_shown() {
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
