//! The sizes that contents can be stored in: from a trace ([`Size`]), or by a model, because there are no bytes.
//! Models are synthetic, and labelled so wherever they appear.
//!
//! The means are measured: each block of real ext4 journals, separately through zlib -1 (SQLite 8% of a block, mail
//! 20%, source trees 28%, a git clone 36%; the file system's own blocks, 95 to 1700 bytes). The distribution around
//! those means is made up. A content has one size, whenever and wherever it is written.
//!
//! There is such a model too for the size of a block's difference from an earlier version. Of SQLite's pages 64% were
//! seen to change by little, of mail's 17%, of source trees' 1%, and overwritten data takes half of what it takes
//! alone. All of the file systems' own blocks did, by 6 to 58 bytes in the mean of each kind
//! (docs/benchmarks/encodings.md). What was measured against the last version is used for any version, however old.

use crate::content::Content;
use crate::rng::mix;
use std::num::NonZeroU16;
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::limits::LONGEST_PART;
use vellum_core::seam::Packed;

/// What was measured of one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Its size alone.
    pub packed: Option<u16>,
    /// The size of its difference from the previous content.
    pub delta: Option<u16>,
}

/// The measured sizes of each block of a write, if any.
pub type MeasuredSizes = Option<Box<[Size]>>;

/// A percentage of the contents, and the range of their sizes: from, and below.
type Class = (u32, u16, u16);

/// A model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in words.
    pub about: &'static str,
    /// The rest cannot be made smaller.
    classes: &'static [Class],
    /// The sizes of differences from a replaced block. The rest has nothing in common with it.
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

/// The file system's own blocks, under each model.
const OWN: &[Class] = &[(60, 60, 300), (30, 300, 1200), (10, 1200, 1700)];

/// Changes of the file system's own blocks, under each model.
const OWN_CHANGED: &[Class] = &[(70, 6, 20), (30, 20, 70)];

/// All models.
#[must_use]
pub fn models() -> &'static [Sizes] {
    &MODELS
}

/// The model with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Sizes> {
    MODELS.iter().find(|model| model.name == name)
}

impl Sizes {
    /// The size of a content.
    #[must_use]
    pub fn bytes(self, content: Content) -> u16 {
        let classes = match content.is_own() {
            true => OWN,
            false => self.classes,
        };
        draw(classes, mix(content.0 ^ 0x512e))
    }

    /// The size of its difference from the content it replaces.
    #[must_use]
    pub fn changed_bytes(self, base: Content, content: Content) -> u16 {
        let classes = match (base.is_own(), content.is_own()) {
            (true, true) => OWN_CHANGED,
            (false, false) => self.changed,
            // One of the two is of another kind.
            _ => &[],
        };
        draw(classes, mix(mix(base.0 ^ 0xde17a) ^ content.0))
    }
}

/// A block that can be stored in this many bytes, as the engine gets it; none if that gains nothing.
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
    fn the_means_are_the_measured_ones() {
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
    fn small_changes_are_as_frequent_as_measured() {
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
