//! How long a drive lasts, and how sure that is.

use crate::flash::{Wear, Worn};
use serde::Serialize;
use vellum_core::addr::BLOCK_BYTES;

/// Erasures below which a life is not told: with fewer it may be off by more than a fifth.
const ERASURES_MIN: u64 = 100;

/// Erasures and what they mean.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Life {
    /// Erasures of erase blocks.
    pub erases: u64,
    /// Erase blocks.
    pub erase_blocks: u64,
    /// The mean number of erasures of one, and the largest.
    pub erases_mean: f64,
    /// The largest.
    pub erases_most: u32,
    /// The standard deviation over the blocks.
    pub erases_deviation: f64,
    /// How many erase blocks were erased how often: the first count of a class, and its blocks.
    pub histogram: Vec<(u32, u64)>,
    /// Erasures that each endures.
    pub erase_limit: u32,
    /// What the host could write until all are worn out, if they wear evenly. None where too few were erased to tell.
    pub endurance_bytes: Option<u64>,
    /// What the host writes a day, where that is known.
    pub daily_bytes: Option<u64>,
    /// Years until then, and between which years that lies, as far as the number of erasures can tell.
    pub years: Option<f64>,
    /// The fewest.
    pub years_low: Option<f64>,
    /// The most.
    pub years_high: Option<f64>,
    /// How its blocks wore out, where they do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worn: Option<WornOut>,
}

/// How a drive wore, measured where [`Life`] estimates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WornOut {
    /// Its blocks.
    #[serde(flatten)]
    pub worn: Worn,
    /// What the host had written by then, or in the run.
    pub written_bytes: u64,
}

impl WornOut {
    /// In words, beside what was estimated.
    #[must_use]
    pub fn told(&self, life: &Life) -> String {
        let written = self.written_bytes as f64 / 1e12;
        let Worn {
            retired,
            factory_bad,
            spares,
            spares_left,
            ..
        } = self.worn;
        let blocks = format!(
            "{retired} blocks retired, {factory_bad} bad when new, {spares_left} of {spares} spare ones left"
        );
        let Some(die) = self.worn.ended_by else {
            return format!("not worn out after {written:.4} TB written: {blocks}");
        };
        let mut out = format!(
            "worn out after {written:.4} TB written: die {die} has no spare block left; {blocks}"
        );
        if let Some(estimate) = life.endurance_bytes.filter(|&bytes| bytes > 0) {
            let share = self.written_bytes as f64 / estimate as f64 * 100.0;
            out += &format!(
                "; that is {share:.1}% of the {:.4} TB of even wear",
                estimate as f64 / 1e12
            );
        }
        out
    }

    /// Years until the drive was worn out, at what the host writes a day.
    #[must_use]
    pub fn years(&self, daily_bytes: Option<u64>) -> Option<f64> {
        self.worn.ended_by?;
        let daily = daily_bytes.filter(|&daily| daily > 0)?;
        Some(self.written_bytes as f64 / daily as f64 / 365.25)
    }
}

impl Life {
    /// From a run's wear.
    #[must_use]
    pub fn of(wear: &Wear, erase_limit: u32, host_written: u64, daily_bytes: Option<u64>) -> Self {
        let (erases, blocks) = (wear.total(), wear.blocks());
        let budget = u128::from(blocks) * u128::from(erase_limit);
        let written = u128::from(host_written) * BLOCK_BYTES as u128;
        let endurance = (budget * written).checked_div(u128::from(erases));
        let endurance_bytes = endurance
            .filter(|_| erases >= ERASURES_MIN)
            .map(|bytes| bytes.min(u128::from(u64::MAX)) as u64);
        let years = match (endurance_bytes, daily_bytes) {
            (Some(bytes), Some(daily)) if daily > 0 => Some(bytes as f64 / daily as f64 / 365.25),
            _ => None,
        };
        Self {
            erases,
            erase_blocks: blocks,
            erases_mean: erases as f64 / blocks.max(1) as f64,
            erases_most: wear.most(),
            erases_deviation: wear.deviation(),
            histogram: wear.histogram(),
            erase_limit,
            endurance_bytes,
            daily_bytes,
            years,
            years_low: years.map(|years| years / (1.0 + spread(erases))),
            years_high: years.map(|years| years / (1.0 - spread(erases))),
            worn: None,
        }
    }

    /// Years in words, with how sure they are.
    #[must_use]
    pub fn told_years(&self) -> String {
        match (self.years, self.years_low, self.years_high) {
            (Some(years), Some(low), Some(high)) => format!("{years:.1} ({low:.1} to {high:.1})"),
            _ => "-".into(),
        }
    }

    /// Why there is no figure, where the erasures are too few to tell.
    #[must_use]
    pub fn too_few(&self) -> Option<String> {
        (self.erases < ERASURES_MIN).then(|| {
            format!(
                "{} erasures are too few to tell a life by, {ERASURES_MIN} is the least: repeat the load, or take more of it",
                self.erases
            )
        })
    }
}

/// By how much, of 1, a figure may be off that was taken from so many erasures: within it 19 times in 20, if they come by
/// chance.
fn spread(erases: u64) -> f64 {
    1.96 / (erases as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::{Die, EraseBlock, Shape};

    fn life(erases: u64) -> Life {
        let shape = Shape {
            channels: 1,
            dies: 1,
            erase_blocks: 64,
            units: 4,
            unit_blocks: 1,
        };
        let mut wear = Wear::new(&shape);
        for n in 0..erases {
            wear.erased(Die(0), EraseBlock((n % 64) as u32));
        }
        Life::of(&wear, 1000, 1 << 20, Some(1 << 30))
    }

    #[test]
    fn a_dozen_erasures_tell_nothing() {
        let few = life(12);
        assert_eq!((few.years, few.endurance_bytes), (None, None));
        assert!(few.too_few().unwrap().contains("12 erasures"));
        assert_eq!(few.told_years(), "-");
    }

    #[test]
    fn more_erasures_are_more_sure() {
        let (some, more) = (life(100), life(10_000));
        let width = |life: &Life| {
            (life.years_high.unwrap() - life.years_low.unwrap()) / life.years.unwrap()
        };
        assert!(width(&some) > 0.3 && width(&more) < 0.05);
        assert!(some.years_low < some.years && some.years < some.years_high);
        assert_eq!(more.too_few(), None);
    }
}
