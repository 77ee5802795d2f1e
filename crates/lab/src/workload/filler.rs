//! The contents that a load writes.

use crate::content::Content;
use crate::rng::{Rng, mix};
use crate::zipf::Zipf;

/// YCSB's constant, also used for contents that repeat.
pub(super) const SKEW: f64 = 0.99;

/// Which contents repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// One of a hundredth as many contents as the volume has blocks, by popularity.
    Popular,
    /// Those of an earlier request, mostly a recent one: the logarithm of the distance is uniform. A request's blocks
    /// repeat together.
    Soon,
}

/// Draws contents.
pub(crate) struct Filler {
    zeros: u64,
    duplicates: u64,
    again: Again,
    seed: u64,
    /// The popularity of the contents that repeat.
    popular: Option<Zipf>,
}

impl Filler {
    /// A filler with these percentages of zeros and duplicates, for a volume of this many blocks.
    pub fn new((zeros, duplicates): (u32, u32), again: Again, (blocks, seed): (u64, u64)) -> Self {
        Self {
            zeros: zeros.into(),
            duplicates: duplicates.into(),
            again,
            seed,
            popular: (duplicates > 0 && again == Again::Popular)
                .then(|| Zipf::new((blocks / 100).max(1), SKEW)),
        }
    }

    /// The contents of the `number`th write, from `lba` on.
    pub fn each(
        &self,
        rng: &mut Rng,
        (lba, blocks): (u64, u32),
        number: u64,
    ) -> impl Iterator<Item = Content> {
        (0..blocks.into()).map(move |index| self.content(rng, lba, index, number))
    }

    /// The content of one of its blocks.
    fn content(&self, rng: &mut Rng, lba: u64, index: u64, number: u64) -> Content {
        let known = self.zeros + self.duplicates;
        let drawn = match known {
            0 => 100,
            _ => rng.below(100),
        };
        if drawn < self.zeros {
            return Content::ZERO;
        }
        match &self.popular {
            Some(popular) if drawn < known => Content::of(mix(popular.draw(rng) ^ mix(self.seed))),
            _ if self.again == Again::Soon => self.soon(number, index),
            _ => Content::synthetic(self.seed, lba + index, number),
        }
    }

    /// A block of the `number`th write where contents repeat soon: a new content, or that of an earlier write.
    fn soon(&self, mut number: u64, index: u64) -> Content {
        loop {
            let drawn = mix(self.seed ^ mix(number ^ 0xd0b1e));
            if number == 0 || drawn % 100 >= self.duplicates {
                return Content::synthetic(self.seed, u64::MAX - index, number);
            }
            let unit = (mix(drawn) >> 11) as f64 / (1u64 << 53) as f64;
            let back = (number as f64).powf(unit) as u64;
            number -= back.clamp(1, number);
        }
    }
}
