//! How long a drive lasts, and how sure that is.

use crate::flash::{Wear, Worn};
use serde::Serialize;
use vellum_core::addr::BLOCK_BYTES;

/// Erasures below which a life is not told.
const ERASURES_MIN: u64 = 100;
/// Of 1, by how much a life may be off that is told.
const OFF_MAX: f64 = 0.5;

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
    /// By how much, in percent, the erasures for each block that the host wrote may be off; none where the run is too short
    /// to tell. Within it 19 times in 20.
    pub off_percent: Option<f64>,
    /// Years until then.
    pub years: Option<f64>,
    /// Between so many and
    pub years_low: Option<f64>,
    /// so many they lie, 19 times in 20.
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
    /// From a run's wear, and by how much of 1 its erasures may be off ([`may_be_off`](crate::series::may_be_off)).
    #[must_use]
    pub fn of(
        wear: &Wear,
        erase_limit: u32,
        host_written: u64,
        off: Option<f64>,
        daily_bytes: Option<u64>,
    ) -> Self {
        let (erases, blocks) = (wear.total(), wear.blocks());
        // One more or less is never known.
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

    /// Years in words, with how sure they are.
    #[must_use]
    pub fn told_years(&self) -> String {
        match (self.years, self.years_low, self.years_high) {
            (Some(years), Some(low), Some(high)) => format!("{years:.1} ({low:.1} to {high:.1})"),
            _ => "-".into(),
        }
    }

    /// What the host can write, in bytes as people say them, with how sure that is.
    #[must_use]
    pub fn told_endurance(&self, bytes: impl Fn(u64) -> String) -> String {
        match (self.endurance_bytes, self.off_percent) {
            (Some(most), Some(off)) => format!("{} +-{off:.0}%", bytes(most)),
            _ => "-".into(),
        }
    }

    /// Why there is no figure, where too little was erased to tell.
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
    fn a_dozen_erasures_tell_nothing() {
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
    fn years_lie_in_an_interval_that_is_told() {
        let life = life(10_000, Some(0.25));
        let years = life.years.unwrap();
        assert_eq!(life.years_low, Some(years / 1.25));
        assert_eq!(life.years_high, Some(years / 0.75));
        assert_eq!(life.too_few(), None);
        assert!(life.told_endurance(|b| b.to_string()).ends_with(" +-25%"));
        // However evenly they came: the next one was never seen.
        let sure = self::life(200, Some(0.0));
        assert_eq!(sure.off_percent, Some(0.5));
    }
}
