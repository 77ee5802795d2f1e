//! Division by a constant, without a division: each write of a page map needs three.

/// A divisor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Divisor {
    by: u32,
    /// 2^64 divided by it, rounded down.
    inverse: u64,
}

impl Divisor {
    /// Takes a divisor; 0 counts as 1.
    pub fn new(by: u32) -> Self {
        let by = by.max(1);
        Self {
            by,
            inverse: u64::MAX / u64::from(by),
        }
    }

    /// Returns the quotient and the remainder.
    pub fn split(self, number: u32) -> (u32, u32) {
        // Too small by one at most, because the inverse is too small by less than one.
        let quotient = ((u128::from(self.inverse) * u128::from(number)) >> 64) as u32;
        let left = number - quotient * self.by;
        match left >= self.by {
            true => (quotient + 1, left - self.by),
            false => (quotient, left),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_divides() {
        let some = [
            1,
            2,
            3,
            7,
            64,
            255,
            256,
            1012,
            65_537,
            u32::MAX - 1,
            u32::MAX,
        ];
        for by in some {
            let near = some
                .iter()
                .flat_map(|&n| [n - 1, n, n / 2, n.saturating_mul(by)]);
            for number in near.chain([0]) {
                assert_eq!(Divisor::new(by).split(number), (number / by, number % by));
            }
        }
    }
}
