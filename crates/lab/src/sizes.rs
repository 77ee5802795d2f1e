//! In how many bytes contents can be stored: as a trace tells it ([`Size`]), or by a model, for nobody has their bytes. Models are synthetic, and labelled
//! so wherever they appear.
//!
//! The means are measured: of the blocks of real ext4 journals, each by itself through zlib -1 (SQLite 8% of a block, mail 20%, source
//! trees 28%, a git clone 36%; what the file system adds itself, 95 to 1700 bytes). How sizes lie around those means is made up.
//! A content has one size, whenever and wherever it is written.
//!
//! What a block changed by takes, as a difference to an earlier version of it, has such a model, too: of SQLite's pages 64% were seen to
//! change by little, of mail's 17, of source trees' 1, and data that are overwritten take half of what they take alone; of file systems' own blocks all did, by 6 to 58 bytes in the mean of each
//! kind (docs/benchmarks/encodings.md). However far back that version is: what is measured of a block against the last one is taken for any.

use crate::content::Content;
use crate::rng::mix;
use std::num::NonZeroU16;
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::limits::LONGEST_PART;
use vellum_core::seam::Packed;

/// What was measured of one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// The bytes that it takes by itself.
    pub packed: Option<u16>,
    /// The bytes that its difference to what was there before takes.
    pub delta: Option<u16>,
}

/// Of each block of a write, where anything was measured.
pub type Tells = Option<Box<[Size]>>;

/// So many of a hundred contents are of a size from, and below, these bytes.
type Class = (u32, u16, u16);

/// A model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// The remainder cannot be made smaller.
    classes: &'static [Class],
    /// Of a block that replaces another: as its difference to that. The remainder is not like it.
    changed: &'static [Class],
}

const MODELS: [Sizes; 6] = [
    Sizes {
        name: "random",
        about: "nothing of the application's gets smaller; what the file system writes itself does",
        classes: &[],
        changed: &[],
    },
    Sizes {
        name: "database",
        about: "pages of a database that is filled by rows alike: 8% of their bytes in the mean",
        classes: &[(80, 60, 400), (20, 400, 1200)],
        changed: &[(64, 20, 160)],
    },
    Sizes {
        name: "mail",
        about: "messages: 20% of their bytes in the mean",
        classes: &[(60, 100, 600), (30, 600, 1800), (10, 1800, 3400)],
        changed: &[(17, 40, 600)],
    },
    Sizes {
        name: "source",
        about: "source trees: 28% of their bytes in the mean",
        classes: &[(20, 100, 500), (65, 700, 1600), (15, 1600, 3200)],
        changed: &[(1, 40, 600)],
    },
    Sizes {
        name: "packages",
        about: "trees of which a quarter is compressed already: 36% of their bytes in the mean",
        classes: &[(65, 100, 800), (10, 800, 2400)],
        changed: &[],
    },
    Sizes {
        name: "media",
        about: "pictures and archives: one block in twenty gets smaller",
        classes: &[(5, 200, 3000)],
        changed: &[],
    },
];

/// What a file system writes of its own, under each model.
const OWN: &[Class] = &[(60, 60, 300), (30, 300, 1200), (10, 1200, 1700)];

/// What a file system changes of its own, under each model.
const OWN_CHANGED: &[Class] = &[(70, 6, 20), (30, 20, 70)];

/// All of them.
#[must_use]
pub fn models() -> &'static [Sizes] {
    &MODELS
}

/// The one of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Sizes> {
    MODELS.iter().find(|model| model.name == name)
}

impl Sizes {
    /// The bytes that a content takes.
    #[must_use]
    pub fn bytes(self, content: Content) -> u16 {
        let classes = match content.is_own() {
            true => OWN,
            false => self.classes,
        };
        draw(classes, mix(content.0 ^ 0x512e))
    }

    /// The bytes that its difference to what it replaces takes.
    #[must_use]
    pub fn changed_bytes(self, base: Content, content: Content) -> u16 {
        let classes = match (base.is_own(), content.is_own()) {
            (true, true) => OWN_CHANGED,
            (false, false) => self.changed,
            // One of the two is something else.
            _ => &[],
        };
        draw(classes, mix(mix(base.0 ^ 0xde17a) ^ content.0))
    }
}

/// What the engine is told of a block that can be stored in so many bytes, where it is worth telling.
#[must_use]
pub fn told(bytes: u16) -> Option<Packed> {
    if usize::from(bytes) > LONGEST_PART {
        return None;
    }
    // Nothing is decoded here, so there is one encoding.
    let encoding = 1;
    NonZeroU16::new(bytes).map(|len| Packed {
        len,
        encoding,
        base: None,
        bucket: None,
    })
}

fn draw(classes: &[Class], drawn: u64) -> u16 {
    let mut left = drawn as u32 % 100;
    for &(percent, from, below) in classes {
        match left.checked_sub(percent) {
            Some(rest) => left = rest,
            None => return from + ((drawn >> 32) % u64::from(below - from)) as u16,
        }
    }
    BLOCK_BYTES as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(model: Sizes, of: impl Fn(u64) -> Content) -> f64 {
        let sum: u64 = (0..20_000).map(|n| u64::from(model.bytes(of(n)))).sum();
        sum as f64 / 20_000.0 / BLOCK_BYTES as f64
    }

    #[test]
    fn the_means_are_those_that_were_measured() {
        for (name, wanted) in [
            ("random", 1.0),
            ("database", 0.08),
            ("mail", 0.20),
            ("source", 0.28),
            ("packages", 0.36),
        ] {
            let model = *find(name).unwrap();
            let data = mean(model, |n| Content::synthetic(1, n, 1));
            assert!((data - wanted).abs() < 0.01, "{name}: {data}");
            let own = mean(model, |n| Content::synthetic(1, n, 1).own());
            assert!(own < 0.15, "{name}: {own}");
        }
    }

    #[test]
    fn what_changes_by_little_is_as_often_as_was_measured() {
        for (name, share) in [
            ("random", 0.0),
            ("database", 0.64),
            ("mail", 0.17),
            ("source", 0.01),
        ] {
            let model = *find(name).unwrap();
            let content = |version| Content::synthetic(1, 7, version);
            let small = |n: &u64| told(model.changed_bytes(content(*n), content(n + 1))).is_some();
            let seen = (0..20_000).filter(small).count() as f64 / 20_000.0;
            assert!((seen - share).abs() < 0.01, "{name}: {seen}");
            let own = |n: u64| model.changed_bytes(content(n).own(), content(n + 1).own());
            let mean = (0..20_000).map(|n| f64::from(own(n))).sum::<f64>() / 20_000.0;
            assert!((6.0..58.0).contains(&mean), "{name}: {mean}");
        }
    }
}
