//! Write amplifications published by others, from their simulators, for loads that have no closed form.
//!
//! SSD-iq (Haas and others, PVLDB 2025): 16 GiB in erase blocks of 8 MiB, pages of 4 KiB, greedy victims, all data in
//! the same blocks. Its zipf load has a write buffer before the flash, of 0.02% of the host's pages: the pages written
//! last stay in it, and a page overwritten there is not written to the flash. Both counts are relative to the host's
//! writes.

use super::{Comparison, UNIFORM};
use crate::base::{PageMap, TooSmall, Victim};
use crate::flash::Shape;
use crate::rng::Rng;
use crate::zipf::Exact;
use crate::zones::Zones;
use lru::LruCache;
use std::num::NonZeroUsize;

/// How far a measurement may be off, in percent.
pub const OFF_MAX: f64 = 1.0;
/// The source of the figures.
pub const SOURCE: &str = "SSD-iq";

/// Erase blocks, and pages of each.
const BLOCKS: u32 = 2048;
const PAGES: u32 = 2048;

/// The load.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Written {
    Uniform,
    /// By zones.
    Zones(&'static str),
    /// By Zipf's law.
    Zipf(f64),
}

/// A published figure, and its setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    written: Written,
    /// The host's pages as a share of all, in thousandths.
    fill: u64,
    /// True if there is a write buffer.
    buffered: bool,
    amplification: f64,
}

const fn uniform(fill: u64, amplification: f64) -> Published {
    Published {
        written: Written::Uniform,
        fill,
        buffered: false,
        amplification,
    }
}

const fn skewed(written: Written, buffered: bool, amplification: f64) -> Published {
    Published {
        written,
        fill: 875,
        buffered,
        amplification,
    }
}

/// All of them. The zipf figures without a buffer are what its published program gives without one.
pub const PUBLISHED: [Published; 12] = [
    uniform(500, 1.254),
    uniform(700, 1.873),
    uniform(800, 2.689),
    uniform(850, 3.513),
    uniform(900, 5.171),
    skewed(Written::Zones("20:80,80:20"), false, 4.515),
    skewed(Written::Zones("10:90,90:10"), false, 5.112),
    skewed(Written::Zones("5:95,95:5"), false, 5.904),
    skewed(Written::Zipf(0.8), false, 5.32),
    skewed(Written::Zipf(0.8), true, 4.878),
    skewed(Written::Zipf(1.0), false, 6.54),
    skewed(Written::Zipf(1.0), true, 3.940),
];

/// Draws pages.
enum Draw {
    Uniform,
    Zones(Zones),
    Zipf(Exact),
}

impl Draw {
    fn next(&self, rng: &mut Rng, logical: u64) -> u64 {
        match self {
            Self::Uniform => rng.below(logical),
            Self::Zones(zones) => zones.draw(rng, logical, false),
            // To a page map the place of a page does not matter, so neighbours may be equally popular.
            Self::Zipf(zipf) => zipf.draw(rng),
        }
    }
}

impl Published {
    /// Describes the load.
    fn load(&self) -> String {
        match self.written {
            Written::Uniform => UNIFORM.into(),
            Written::Zones(zones) => format!("zones {zones}"),
            Written::Zipf(skew) => format!("zipf {skew:.1}"),
        }
    }

    /// Measures it on a page map. With `parts`, everything but the pages of a block is smaller by that factor.
    ///
    /// # Errors
    /// When a part is too small.
    pub fn measured(&self, parts: u32, seed: u64) -> Result<Comparison, TooSmall> {
        let blocks = BLOCKS / parts;
        let pages = u64::from(blocks) * u64::from(PAGES);
        let logical = pages * self.fill / 1000;
        // One die; the blocks that are always free are added.
        let shape = Shape {
            channels: 1,
            dies: 1,
            erase_blocks: blocks + 1,
            units: PAGES,
            unit_blocks: 1,
        };
        let mut map = PageMap::new(&shape, 1, (0, blocks + 1), logical, Victim::Greedy)?;
        let mut writes = Writes {
            map: &mut map,
            buffer: self.buffered.then(|| LruCache::new(buffer(logical))),
        };
        (0..logical).for_each(|lba| writes.write(lba));
        let draw = match self.written {
            Written::Uniform => Draw::Uniform,
            Written::Zones(zones) => match zones.parse() {
                Ok(zones) => Draw::Zones(zones),
                Err(error) => unreachable!("{zones}: {error}"),
            },
            Written::Zipf(skew) => Draw::Zipf(Exact::new(logical, skew)),
        };
        let mut rng = Rng::new(seed);
        // Under a skewed load cold data takes long to find its place.
        let (warm, measure) = match self.written {
            Written::Uniform => (5, 3),
            _ => (16, 4),
        };
        (0..warm * logical).for_each(|_| writes.write(draw.next(&mut rng, logical)));
        let before = writes.map.counts();
        (0..measure * logical).for_each(|_| writes.write(draw.next(&mut rng, logical)));
        let after = writes.map.counts();
        let host = (measure * logical) as f64;
        let flash = (after.host - before.host) + (after.moved - before.moved);
        let alpha = map.physical() as f64 / logical as f64;
        let measured = flash as f64 / host;
        Ok(Comparison {
            policy: match self.buffered {
                true => "base, write buffer".into(),
                false => "base".into(),
            },
            load: self.load(),
            form: SOURCE,
            over_provisioning: ((alpha - 1.0) * 1000.0).round() as u32,
            pages: f64::from(PAGES),
            alpha,
            measured,
            computed: self.amplification,
            off_percent: (measured / self.amplification - 1.0) * 100.0,
            with_overhead: measured,
        })
    }
}

/// Pages of the write buffer, for these pages of the host.
fn buffer(logical: u64) -> NonZeroUsize {
    NonZeroUsize::new((logical / 5000) as usize).unwrap_or(NonZeroUsize::MIN)
}

/// A page map, with a write buffer in front if there is one.
struct Writes<'a> {
    map: &'a mut PageMap,
    buffer: Option<LruCache<u64, ()>>,
}

impl Writes<'_> {
    fn write(&mut self, lba: u64) {
        let to_flash = match &mut self.buffer {
            None => Some(lba),
            // A page that is in the buffer is overwritten there.
            Some(buffer) => match buffer.push(lba, ()) {
                Some((left, ())) if left != lba => Some(left),
                _ => None,
            },
        };
        if let Some(lba) = to_flash {
            self.map.write(lba);
            self.map.drop_ops();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A load for which both are known: of `n` pages that are written with equal probability a buffer of `b` has the
    /// next one with probability `b / n`, and what leaves it is uniform again.
    #[test]
    fn a_buffer_takes_its_share_of_a_uniform_load() {
        let plain = uniform(800, 2.689);
        let buffered = Published {
            buffered: true,
            ..plain
        };
        let [plain, buffered] = [plain, buffered].map(|row| row.measured(32, 1).unwrap());
        let logical = u64::from(BLOCKS / 32 * PAGES) * 800 / 1000;
        let share = 1.0 - buffer(logical).get() as f64 / logical as f64;
        let off = buffered.measured / (plain.measured * share) - 1.0;
        assert!(off.abs() < 0.003, "{off}: {plain:?} {buffered:?}");
    }

    #[test]
    fn a_small_drive_has_the_published_zones_nearly() {
        for row in [PUBLISHED[2], PUBLISHED[5]] {
            let row = row.measured(32, 1).unwrap();
            assert!(row.off_percent.abs() < 3.0, "{row:?}");
        }
    }
}
