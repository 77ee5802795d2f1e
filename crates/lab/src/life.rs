//! How long a drive lasts, and how certain that is.

use crate::flash::{Wear, Worn};
use serde::Serialize;
use vellum_core::addr::BLOCK_BYTES;

/// With fewer erasures than this, no life is given.
const ERASURES_MIN: u64 = 100;
/// The largest relative error with which a life is given.
const OFF_MAX: f64 = 0.5;

/// Erasures and what they mean.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Life {
    /// Erasures of erase blocks.
    pub erases: u64,
    /// Erase blocks.
    pub erase_blocks: u64,
    /// The mean number of erasures of a block.
    pub erases_mean: f64,
    /// The largest number of erasures of a block.
    pub erases_most: u32,
    /// The standard deviation over the blocks.
    pub erases_deviation: f64,
    /// How many erase blocks were erased how often: the first count of a class, and its blocks.
    pub histogram: Vec<(u32, u64)>,
    /// Erasures that each block endures.
    pub erase_limit: u32,
    /// What the host can write until all are worn out, if they wear evenly. None if too few were erased.
    pub endurance_bytes: Option<u64>,
    /// What the host writes per day, if known.
    pub daily_bytes: Option<u64>,
    /// The error, in percent, of the erasures per block that the host wrote: the truth is within it 19 times in 20.
    /// None if the run is too short.
    pub off_percent: Option<f64>,
    /// Years until all are worn out.
    pub years: Option<f64>,
    /// The lower bound of the years: they are within the bounds 19 times in 20.
    pub years_low: Option<f64>,
    /// The upper bound of the years.
    pub years_high: Option<f64>,
    /// How its blocks wore out, if they did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worn: Option<WornOut>,
}

/// How a drive wore, measured; [`Life`] only estimates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WornOut {
    /// Its blocks.
    #[serde(flatten)]
    pub worn: Worn,
    /// What the host had written by then, or in the run.
    pub written_bytes: u64,
}

impl WornOut {
    /// Describes it, beside the estimate.
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

    /// Years until the drive was worn out, at the host's daily writes.
    #[must_use]
    pub fn years(&self, daily_bytes: Option<u64>) -> Option<f64> {
        self.worn.ended_by?;
        let daily = daily_bytes.filter(|&daily| daily > 0)?;
        Some(self.written_bytes as f64 / daily as f64 / 365.25)
    }
}

impl Life {
    /// A life from a run's wear, and the relative error of its erasures ([`may_be_off`](crate::series::may_be_off)).
    #[must_use]
    pub fn of(
        wear: &Wear,
        erase_limit: u32,
        host_written: u64,
        off: Option<f64>,
        daily_bytes: Option<u64>,
    ) -> Self {
        let (erases, blocks) = (wear.total(), wear.blocks());
        // The count can always be off by one.
        let off = off.map(|off| off.max(1.0 / erases.max(1) as f64));
        let told = erases >= ERASURES_MIN && off.is_some_and(|off| off <= OFF_MAX);
        let budget = u128::from(blocks) * u128::from(erase_limit);
        let written = u128::from(host_written) * BLOCK_BYTES as u128;
        let endurance = (budget * written).checked_div(u128::from(erases));
        let endurance_bytes = endurance
            .filter(|_| told)
            .map(|bytes| bytes.min(u128::from(u64::MAX)) as u64);
        let years = match (endurance_bytes, daily_bytes) {
            (Some(bytes), Some(daily)) if daily > 0 => Some(bytes as f64 / daily as f64 / 365.25),
            _ => None,
        };
        let off = off.filter(|_| erases > 0);
        let within = |side: f64| Some(years? / (1.0 + side * off?));
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
            off_percent: off.map(|off| off * 100.0),
            years,
            years_low: within(1.0),
            years_high: within(-1.0),
            worn: None,
        }
    }

    /// The years in words, with their certainty.
    #[must_use]
    pub fn told_years(&self) -> String {
        match (self.years, self.years_low, self.years_high) {
            (Some(years), Some(low), Some(high)) => format!("{years:.1} ({low:.1} to {high:.1})"),
            _ => "-".into(),
        }
    }

    /// What the host can write, formatted, with its certainty.
    #[must_use]
    pub fn told_endurance(&self, bytes: impl Fn(u64) -> String) -> String {
        match (self.endurance_bytes, self.off_percent) {
            (Some(most), Some(off)) => format!("{} +-{off:.0}%", bytes(most)),
            _ => "-".into(),
        }
    }

    /// Why there is no figure, if too few blocks were erased.
    #[must_use]
    pub fn too_few(&self) -> Option<String> {
        let erases = self.erases;
        let more = "let the load run longer (--requests, --repeat), or take a smaller --capacity";
        if erases < ERASURES_MIN {
            return Some(format!(
                "{erases} erasures are too few to tell a life by, {ERASURES_MIN} is the least: {more}"
            ));
        }
        match self.off_percent {
            _ if self.endurance_bytes.is_some() => None,
            Some(off) => Some(format!(
                "no life is told: {erases} erasures came so unevenly that it may be off by {off:.0}%: {more}"
            )),
            None => Some(format!("no life is told: the run is too short: {more}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::{Die, EraseBlock, Shape};

    fn life(erases: u64, off: Option<f64>) -> Life {
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
        Life::of(&wear, 1000, 1 << 20, off, Some(1 << 30))
    }

    #[test]
    fn too_few_erasures_give_no_life() {
        for (few, says) in [
            (life(0, None), "0 erasures"),
            (life(12, Some(0.01)), "12 erasures"),
            (life(300, Some(0.6)), "off by 60%"),
            (life(300, None), "too short"),
        ] {
            assert_eq!((few.years, few.endurance_bytes), (None, None));
            assert_eq!((few.years_low, few.years_high), (None, None));
            assert!(few.too_few().unwrap().contains(says), "{few:?}");
            assert_eq!(few.told_years(), "-");
            assert_eq!(few.told_endurance(|b| b.to_string()), "-");
        }
    }

    #[test]
    fn years_have_an_interval() {
        let life = life(10_000, Some(0.25));
        let years = life.years.unwrap();
        assert_eq!(life.years_low, Some(years / 1.25));
        assert_eq!(life.years_high, Some(years / 0.75));
        assert_eq!(life.too_few(), None);
        assert!(life.told_endurance(|b| b.to_string()).ends_with(" +-25%"));
        // However evenly they occurred: the next one was never seen.
        let sure = self::life(200, Some(0.0));
        assert_eq!(sure.off_percent, Some(0.5));
    }
}
