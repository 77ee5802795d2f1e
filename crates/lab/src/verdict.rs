//! The result of a comparison, in one sentence, with how sure it is. What is not known is not said.

use crate::outcome::Outcome;
use std::cmp::Ordering;

/// Compares the policy that writes least with the one that was run first; none without two to compare.
#[must_use]
pub fn sentence(outcomes: &[Outcome]) -> Option<String> {
    let (first, others) = outcomes.split_first()?;
    first.write_amplification.filter(|&wa| wa > 0.0)?;
    let (best, _) = others
        .iter()
        .filter_map(|outcome| Some((outcome, outcome.write_amplification?)))
        .min_by(|a, b| a.1.total_cmp(&b.1))?;
    let (with, without) = (&best.policy, &first.policy);
    Some(match told(best, first) {
        Ok(said) => format!("On this drive, with this load, {with} instead of {without}: {said}."),
        Err(why) => format!("It is not known whether {with} is better than {without}: {why}."),
    })
}

/// How long the one lasts and how much less it writes, or why that is not known.
fn told(best: &Outcome, first: &Outcome) -> Result<String, String> {
    for outcome in [best, first] {
        let policy = &outcome.policy;
        if outcome.partial {
            return Err(format!("{policy} ended before its load was"));
        }
        if outcome.sure.settled == Some(false) {
            return Err(format!("{policy} had not settled, see below"));
        }
    }
    let (Some(with), Some(without)) = (written(best), written(first)) else {
        return Err("the runs are too short to tell how sure their figures are".into());
    };
    let Some(order) = with.against(without) else {
        return Err(format!(
            "for each block of the host {} and {} are written",
            with.shown(2, ""),
            without.shown(2, "")
        ));
    };
    let lasts = match (years(best), years(first)) {
        (Some(with), Some(without)) if with.against(without).is_none() => {
            "it is not known which lasts longer, ".into()
        }
        (Some(with), Some(without)) => {
            let [with, without] = [with, without].map(|years| years.shown(1, ""));
            format!("{with} years instead of {without}, ")
        }
        _ => String::new(),
    };
    Ok(lasts + &with.percent_of(without, order))
}

/// A figure, and the bounds within which it is 19 times in 20.
#[derive(Clone, Copy)]
struct Bounded {
    low: f64,
    figure: f64,
    high: f64,
}

fn written(outcome: &Outcome) -> Option<Bounded> {
    let sure = &outcome.sure;
    Some(Bounded {
        low: sure.write_amplification_low?,
        figure: outcome.write_amplification?,
        high: sure.write_amplification_high?,
    })
}

fn years(outcome: &Outcome) -> Option<Bounded> {
    let life = outcome.life.as_ref()?;
    Some(Bounded {
        low: life.years_low?,
        figure: life.years?,
        high: life.years_high?,
    })
}

impl Bounded {
    /// Which is larger; none if the bounds of the two overlap.
    fn against(self, other: Self) -> Option<Ordering> {
        match self.high < other.low || other.high < self.low {
            true => self.figure.partial_cmp(&other.figure),
            false => None,
        }
    }

    /// The figure with its bounds, if they show at so many decimals.
    fn shown(self, decimals: usize, unit: &str) -> String {
        let [low, figure, high] =
            [self.low, self.figure, self.high].map(|value| format!("{value:.decimals$}"));
        match low == high {
            true => figure + unit,
            false => format!("{figure}{unit} ({low} to {high}{unit})"),
        }
    }

    /// By how many percent it is less or more than another one.
    fn percent_of(self, other: Self, order: Ordering) -> String {
        let off = |one: f64, other: f64| 100.0 * (one / other - 1.0).abs();
        let far = off(self.low, other.high);
        let near = off(self.high, other.low);
        let percent = Self {
            low: far.min(near),
            figure: off(self.figure, other.figure),
            high: far.max(near),
        };
        let way = if order == Ordering::Less {
            "less"
        } else {
            "more"
        };
        format!("{} {way} written", percent.shown(0, "%"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::{Die, EraseBlock, Shape, Wear};
    use crate::life::Life;
    use crate::sure::Sure;

    fn outcome(policy: &str, amplification: f64, off: f64) -> Outcome {
        Outcome {
            policy: policy.into(),
            write_amplification: Some(amplification),
            sure: Sure {
                settled: Some(true),
                drift_percent: Some(0.0),
                write_amplification_low: Some(amplification * (1.0 - off)),
                write_amplification_high: Some(amplification * (1.0 + off)),
            },
            ..Outcome::default()
        }
    }

    /// A life with erasures that make it so many years, if they are off by that much.
    fn life(years: f64, off: f64) -> Life {
        let shape = Shape {
            channels: 1,
            dies: 1,
            erase_blocks: 64,
            units: 4,
            unit_blocks: 1,
        };
        let mut wear = Wear::new(&shape);
        (0..200).for_each(|n| wear.erased(Die(0), EraseBlock(n % 64)));
        let mut life = Life::of(&wear, 1000, 1 << 20, Some(off), Some(1 << 30));
        let ratio = years / life.years.unwrap();
        for bound in [&mut life.years, &mut life.years_low, &mut life.years_high] {
            *bound = bound.map(|years| years * ratio);
        }
        life
    }

    fn said(best: &Outcome, first: &Outcome) -> String {
        sentence(&[first.clone(), best.clone()]).unwrap()
    }

    #[test]
    fn a_figure_has_its_bounds() {
        let (first, best) = (outcome("base", 4.0, 0.05), outcome("log", 2.0, 0.05));
        assert_eq!(
            said(&best, &first),
            "On this drive, with this load, log instead of base: 50% (45 to 55%) less written."
        );
        assert!(
            said(&first, &best).ends_with("base instead of log: 100% (81 to 121%) more written.")
        );
        let [first, best] =
            [first, best].map(|run| outcome(&run.policy, run.write_amplification.unwrap(), 0.0));
        assert!(said(&best, &first).ends_with(": 50% less written."));
    }

    #[test]
    fn what_had_not_settled_or_overlaps_is_not_told() {
        let (first, mut best) = (outcome("base", 4.0, 0.01), outcome("log", 2.0, 0.01));
        best.sure.settled = Some(false);
        assert_eq!(
            said(&best, &first),
            "It is not known whether log is better than base: log had not settled, see below."
        );
        best.sure.settled = Some(true);
        best.partial = true;
        assert!(said(&best, &first).contains("log ended before its load was."));
        let near = outcome("log", 3.9, 0.02);
        assert!(said(&near, &first).ends_with(
            "for each block of the host 3.90 (3.82 to 3.98) and 4.00 (3.96 to 4.04) are written."
        ));
        let mut short = outcome("log", 2.0, 0.0);
        short.sure.write_amplification_low = None;
        assert!(said(&short, &first).contains("too short to tell"));
    }

    #[test]
    fn years_that_overlap_are_not_told() {
        let (mut first, mut best) = (outcome("base", 4.0, 0.0), outcome("log", 2.0, 0.0));
        first.life = Some(life(3.0, 0.2));
        best.life = Some(life(6.0, 0.2));
        assert!(
            said(&best, &first).contains(
                ": 6.0 (5.0 to 7.5) years instead of 3.0 (2.5 to 3.8), 50% less written."
            )
        );
        best.life = Some(life(4.0, 0.2));
        assert!(said(&best, &first).contains(": it is not known which lasts longer, 50% less"));
    }
}
