//! What a paper states, what was measured here, and whether the two agree: one rule for all, applied to the figures.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How far ours may be from the paper's figure, as a share of that figure, to count as the same.
pub const BAND: f64 = 0.15;

/// How our result compares with what the paper states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Within [`BAND`] of the paper's figure.
    Yes,
    /// Outside it, but within it at a plausible value of one assumption that the paper does not state.
    Explained,
    /// Outside it, but with an effect in the paper's direction.
    Direction,
    /// Neither.
    No,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Yes => "yes",
            Self::Explained => "explained",
            Self::Direction => "direction",
            Self::No => "NO",
        })
    }
}

/// The least and the greatest of some figures; equal for a single figure.
pub type Range = (f64, f64);

/// The range of some values.
pub(super) fn range(values: impl IntoIterator<Item = f64>) -> Range {
    let values = values.into_iter();
    values.fold((f64::MAX, f64::MIN), |(low, high), value| {
        (low.min(value), high.max(value))
    })
}

/// A share in percent, as printed.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// A range of shares in percent, as printed.
pub(super) fn percents((low, high): Range) -> String {
    format!("{:.0} to {:.0}%", low * 100.0, high * 100.0)
}

/// A range of shares in percent.
pub(super) fn in_percent((low, high): Range) -> Range {
    (low * 100.0, high * 100.0)
}

/// What is compared: figures in the unit they are printed in.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stated {
    /// A figure of the paper, or a range of figures.
    Figures {
        /// The paper's figures.
        theirs: Range,
        /// Our figures.
        ours: Range,
        /// The figure that means no effect: a speed of 1.0 times, 0% saved. None if there is no such figure.
        none: Option<f64>,
    },
    /// A limit that the paper prints: "less than", "at most".
    AtMost {
        /// The paper's limit.
        theirs: f64,
        /// Our largest figure.
        ours: f64,
    },
    /// The paper says it in words and prints no figure.
    Words {
        /// True if the measurement agrees with the words.
        holds: bool,
    },
}

impl Stated {
    pub(super) const fn figure(theirs: f64, ours: f64) -> Self {
        Self::range((theirs, theirs), (ours, ours))
    }

    pub(super) const fn range(theirs: Range, ours: Range) -> Self {
        Self::Figures {
            theirs,
            ours,
            none: None,
        }
    }

    /// Sets the figure that means no effect; directions are judged by it.
    pub(super) const fn over(self, without: f64) -> Self {
        match self {
            Self::Figures { theirs, ours, .. } => Self::Figures {
                theirs,
                ours,
                none: Some(without),
            },
            other => other,
        }
    }

    /// Applies the rule.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match *self {
            Self::Figures { theirs, ours, none } => {
                if within(theirs, ours) {
                    Verdict::Yes
                } else if none.is_some_and(|none| same_way(theirs, ours, none)) {
                    Verdict::Direction
                } else {
                    Verdict::No
                }
            }
            Self::AtMost { theirs, ours } if ours <= theirs + BAND * theirs.abs() => Verdict::Yes,
            Self::Words { holds: true } => Verdict::Yes,
            Self::AtMost { .. } | Self::Words { holds: false } => Verdict::No,
        }
    }

    /// Our figures. Of a statement in words there are none.
    #[must_use]
    pub const fn ours(&self) -> Range {
        match *self {
            Self::Figures { ours, .. } => ours,
            Self::AtMost { ours, .. } => (ours, ours),
            Self::Words { .. } => (f64::NAN, f64::NAN),
        }
    }

    /// True if both are about the same figures of the paper.
    pub(super) fn is_of(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Figures { theirs, none, .. },
                Self::Figures {
                    theirs: others,
                    none: without,
                    ..
                },
            ) => (theirs, none) == (others, without),
            (Self::AtMost { theirs, .. }, Self::AtMost { theirs: others, .. }) => theirs == others,
            _ => false,
        }
    }

    /// True if the paper prints a figure.
    #[must_use]
    pub const fn is_figure(&self) -> bool {
        !matches!(self, Self::Words { .. })
    }
}

/// True if there are figures of ours, and all lie in the paper's range, widened by the band at each end.
fn within((low, high): Range, ours: Range) -> bool {
    ours.0 <= ours.1 && ours.0 >= low - BAND * low.abs() && ours.1 <= high + BAND * high.abs()
}

/// True if all of ours lie on the paper's side of no effect, and show at least [`BAND`] of the least effect it states.
fn same_way(theirs: Range, ours: Range, none: f64) -> bool {
    let least = |range: Range, sign: f64| {
        let (one, other) = (sign * (range.0 - none), sign * (range.1 - none));
        one.min(other)
    };
    [1.0, -1.0].into_iter().any(|sign| {
        let effect = least(theirs, sign);
        effect > 0.0 && least(ours, sign) >= BAND * effect
    })
}

/// What an experiment found: the value of one assumption at which ours is the paper's figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatchingValue {
    /// What was varied.
    pub varies: String,
    /// The value, as printed.
    pub at: String,
    /// Ours there, as printed.
    pub ours: String,
    /// True if the value is plausible.
    pub is_plausible: bool,
}

/// What a paper states, and what was measured here.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Claim {
    /// What is compared.
    pub what: String,
    /// The paper's figures, in words.
    pub theirs: String,
    /// Our figures, in words.
    pub ours: String,
    /// The figures of both.
    pub stated: Stated,
    /// The result of [`Stated::verdict`] for them, or [`Verdict::Explained`].
    pub verdict: Verdict,
    /// Why they differ, if they do.
    pub why: String,
    /// What an experiment found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<MatchingValue>,
}

impl Claim {
    pub(super) fn new(
        what: impl Into<String>,
        theirs: impl Into<String>,
        ours: impl Into<String>,
        stated: Stated,
        why: impl Into<String>,
    ) -> Self {
        Self {
            what: what.into(),
            theirs: theirs.into(),
            ours: ours.into(),
            verdict: stated.verdict(),
            stated,
            why: why.into(),
            found: None,
        }
    }

    /// The verdict that its figures and what an experiment found give it.
    #[must_use]
    pub fn judged(&self) -> Verdict {
        let explained = self.found.as_ref().is_some_and(|found| found.is_plausible);
        match self.stated.verdict() {
            Verdict::Direction | Verdict::No if explained => Verdict::Explained,
            verdict => verdict,
        }
    }

    /// Why ours differs, with what an experiment found.
    pub(super) fn reason(&self) -> String {
        let Some(found) = &self.found else {
            return self.why.clone();
        };
        let MatchingValue {
            varies, at, ours, ..
        } = found;
        match found.is_plausible {
            true => {
                format!("at {at} ours is {ours}: *{varies}*, below, with why that is plausible")
            }
            false => {
                let why = &self.why;
                format!("{why}; ours is {ours} at {at} (*{varies}*, below), which is not plausible")
            }
        }
    }

    /// A claim that the paper makes in words; if it holds there is nothing to explain.
    pub(super) fn words(
        what: impl Into<String>,
        theirs: impl Into<String>,
        ours: impl Into<String>,
        holds: bool,
    ) -> Self {
        Self::new(what, theirs, ours, Stated::Words { holds }, "")
    }

    pub(super) fn because(self, why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            ..self
        }
    }

    /// True if it is neither the same nor explained.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.verdict != Verdict::Yes && self.why.is_empty()
    }
}

/// Counts the claims by verdict, separately for those with figures and those in words. Each comes with whether it is explained alone.
#[must_use]
pub fn count<'a>(claims: impl IntoIterator<Item = (&'a Claim, bool)>) -> String {
    let (mut figures, mut words) = ([0; 4], [0; 4]);
    let mut alone = 0;
    for (claim, is_alone) in claims {
        alone += i32::from(is_alone);
        let counts = match claim.stated.is_figure() {
            true => &mut figures,
            false => &mut words,
        };
        counts[claim.verdict as usize] += 1;
    }
    let [yes, explained, direction, no] = figures;
    let said: i32 = words.iter().sum();
    format!(
        "Of {} figures that the papers state, {yes} are within {:.0}% here, {} are explained by \
         an experiment, {alone} are explained alone, {direction} have the direction, {no} have \
         neither; of {said} statements in words {} \
         hold.",
        yes + explained + direction + no,
        BAND * 100.0,
        explained - alone,
        words[0]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(theirs: f64, ours: f64, none: f64) -> Verdict {
        Stated::figure(theirs, ours).over(none).verdict()
    }

    #[test]
    fn within_the_band_is_yes_on_both_sides_and_outside_it_is_not() {
        for (ours, verdict) in [
            (100.0, Verdict::Yes),
            (85.0, Verdict::Yes),
            (115.0, Verdict::Yes),
            (84.9, Verdict::Direction),
            (115.1, Verdict::Direction),
        ] {
            assert_eq!(of(100.0, ours, 0.0), verdict, "{ours}");
        }
    }

    #[test]
    fn far_better_is_not_the_papers_figure() {
        // CSA-FS: 12 to 14% faster, and 427% here.
        let faster = Stated::range((12.0, 14.0), (427.0, 427.0)).over(0.0);
        assert_eq!(faster.verdict(), Verdict::Direction);
        // CAFTL: up to 34% more latency, and 5.3% here.
        assert_eq!(of(34.0, 5.3, 0.0), Verdict::Direction);
    }

    #[test]
    fn a_direction_is_an_effect_that_shows() {
        assert_eq!(of(110.6, 1.04, 1.0), Verdict::No);
        assert_eq!(of(110.6, 45.0, 1.0), Verdict::Direction);
        assert_eq!(of(0.6, 0.8, 1.0), Verdict::Direction);
        assert_eq!(of(0.6, 1.2, 1.0), Verdict::No);
        assert_eq!(of(23.7, -19.5, 0.0), Verdict::No);
        assert_eq!(of(10.0, 0.0, 0.0), Verdict::No);
        // Without a figure for no effect there is no direction.
        assert_eq!(Stated::figure(165.0, 635.0).verdict(), Verdict::No);
    }

    #[test]
    fn all_figures_of_a_range_count() {
        let removed = |low, high| Stated::range((38.0, 50.0), (low, high)).over(0.0);
        assert_eq!(removed(43.0, 50.0).verdict(), Verdict::Yes);
        assert_eq!(removed(32.3, 57.5).verdict(), Verdict::Yes);
        assert_eq!(removed(30.0, 48.0).verdict(), Verdict::Direction);
        assert_eq!(removed(0.0, 48.0).verdict(), Verdict::No);
        assert_eq!(removed(-5.0, 48.0).verdict(), Verdict::No);
        let (low, high) = range([]);
        assert_eq!(removed(low, high).verdict(), Verdict::No);
        // A range on both sides of no effect has no direction.
        let both = Stated::range((-7.0, 33.0), (40.0, 41.0)).over(0.0);
        assert_eq!(both.verdict(), Verdict::No);
    }

    #[test]
    fn a_limit_is_kept_or_not() {
        let limit = |ours| Stated::AtMost { theirs: 4.5, ours }.verdict();
        assert_eq!(limit(-17.0), Verdict::Yes);
        assert_eq!(limit(5.17), Verdict::Yes);
        assert_eq!(limit(5.2), Verdict::No);
    }

    #[test]
    fn a_value_that_is_no_number_meets_nothing() {
        assert_eq!(of(1.8, f64::NAN, 1.0), Verdict::No);
        let limit = Stated::AtMost {
            theirs: 1.0,
            ours: f64::NAN,
        };
        assert_eq!(limit.verdict(), Verdict::No);
        assert_eq!(of(1.8, f64::INFINITY, 1.0), Verdict::Direction);
    }

    #[test]
    fn figures_and_words_are_counted_apart() {
        let claims = [
            Claim::new("a", "2", "2", Stated::figure(2.0, 2.0), ""),
            Claim::new("b", "2", "9", Stated::figure(2.0, 9.0).over(1.0), "why"),
            Claim::words("c", "yes", "yes", true),
            Claim::words("d", "yes", "no", false),
        ];
        assert_eq!(
            count(claims.iter().map(|claim| (claim, false))),
            "Of 2 figures that the papers state, 1 are within 15% here, 0 are explained by an experiment, \
             0 are explained alone, 1 have the direction, 0 have neither; of 2 statements in words 1 hold."
        );
        assert!(claims[3].is_open() && !claims[1].is_open());
    }
}
