//! An experiment: one assumption that a paper does not state is varied alone, to see which value of it gives the paper's
//! figure. A value explains the figure if it is plausible; nothing else does.

use super::claim::{Claim, MatchingValue, Range, Stated, Verdict};
use super::failure::PaperError;
use super::list::table;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// What is varied. It is one number: two assumptions cannot be varied together.
pub(super) struct Assumption {
    /// What the number is.
    pub varies: &'static str,
    /// The unit that follows it, if any, with its space.
    pub unit: &'static str,
    /// Its value in all other runs of the evaluation.
    pub usual: f64,
    /// The other values, rising.
    pub others: &'static [f64],
    /// The values that are plausible: from, to.
    pub plausible: Range,
    /// Why these are.
    pub because: &'static str,
}

/// A figure that an experiment is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// The claim's name.
    pub claim: String,
    /// The unit that follows its figures.
    pub unit: String,
}

/// One value, and the figures at it, in the order of the columns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The value.
    pub value: f64,
    /// What the paper states, and ours at this value.
    pub figures: Vec<Stated>,
}

impl Trial {
    /// True if ours of this column is the paper's figure of the claim.
    fn meets(&self, column: usize, claim: &Claim) -> bool {
        let figures = self.figures.get(column);
        figures.is_some_and(|f| f.is_of(&claim.stated) && f.verdict() == Verdict::Yes)
    }
}

/// An experiment; see the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// What is varied.
    pub varies: String,
    /// The unit of its values.
    pub unit: String,
    /// Its value in all other runs of the evaluation.
    pub usual: f64,
    /// The values that are plausible.
    pub plausible: Range,
    /// Why these are.
    pub because: String,
    /// The figures that are looked for.
    pub columns: Vec<Column>,
    /// The values that were tried, rising; the usual one is among them.
    pub trials: Vec<Trial>,
}

impl Experiment {
    /// Tries all values of one assumption. `run` gets only the value, so it can vary nothing else. It returns the figures in the order of
    /// `columns`, each of which is a claim's name and the unit of its figures.
    pub(super) fn vary(
        assumption: &Assumption,
        columns: &[(String, &str)],
        mut run: impl FnMut(f64) -> Result<Vec<Stated>, PaperError>,
    ) -> Result<Self, PaperError> {
        let usual = assumption.usual;
        let mut values: Vec<f64> = assumption.others.to_vec();
        values.push(usual);
        values.sort_by(f64::total_cmp);
        let trials = values.into_iter().map(|value| {
            let figures = run(value)?;
            Ok(Trial { value, figures })
        });
        let columns = columns.iter().map(|(claim, unit)| Column {
            claim: claim.clone(),
            unit: (*unit).into(),
        });
        Ok(Self {
            varies: assumption.varies.into(),
            unit: assumption.unit.into(),
            usual,
            plausible: assumption.plausible,
            because: assumption.because.into(),
            columns: columns.collect(),
            trials: trials.collect::<Result<_, PaperError>>()?,
        })
    }

    /// True if this value is plausible.
    fn allows(&self, value: f64) -> bool {
        (self.plausible.0..=self.plausible.1).contains(&value)
    }

    fn column(&self, claim: &Claim) -> Option<usize> {
        self.columns.iter().position(|c| c.claim == claim.what)
    }

    /// True if it looks for this claim's figures.
    pub(super) fn is_about(&self, claim: &Claim) -> bool {
        self.column(claim).is_some()
    }

    /// True if the usual value gives the claim's own figures: then nothing but the value differs between the trials
    /// and the runs of the claim.
    #[must_use]
    pub fn repeats(&self, claim: &Claim) -> bool {
        let usual = self.trials.iter().find(|trial| trial.value == self.usual);
        let figures = usual
            .zip(self.column(claim))
            .and_then(|(t, c)| t.figures.get(c));
        figures == Some(&claim.stated)
    }

    /// Explains a claim if it can. What is met or explained already stays as it is.
    pub(super) fn explain(&self, claim: &mut Claim) {
        if matches!(claim.verdict, Verdict::Yes | Verdict::Explained) || !claim.stated.is_figure() {
            return;
        }
        claim.found = self.find(claim).or(claim.found.take());
        claim.verdict = claim.judged();
    }

    /// The value nearest to the usual one at which ours is the paper's figure, a plausible one if there is any.
    fn find(&self, claim: &Claim) -> Option<MatchingValue> {
        let column = self.column(claim)?;
        if !self.repeats(claim) {
            return None;
        }
        let usual = self.trials.iter().position(|t| t.value == self.usual)?;
        let trials = self.trials.iter().enumerate();
        let met = trials.filter(|(_, trial)| trial.meets(column, claim));
        let (_, trial) =
            met.min_by_key(|(at, t)| (!self.allows(t.value), at.abs_diff(usual), *at))?;
        Some(MatchingValue {
            varies: self.varies.clone(),
            at: self.value(trial.value),
            ours: self.shown(column, trial),
            is_plausible: self.allows(trial.value),
        })
    }

    /// True if at the value that was found ours is the paper's figure of this claim too.
    pub(super) fn gives(&self, found: &MatchingValue, claim: &Claim) -> bool {
        let Some(column) = self.column(claim).filter(|_| self.varies == found.varies) else {
            return false;
        };
        let mut at = self
            .trials
            .iter()
            .filter(|trial| self.value(trial.value) == found.at);
        at.any(|trial| trial.meets(column, claim))
    }

    fn value(&self, value: f64) -> String {
        format!("{value}{}", self.unit)
    }

    /// Ours of a trial, as printed.
    fn shown(&self, column: usize, trial: &Trial) -> String {
        let (low, high) = trial.figures[column].ours();
        let unit = &self.columns[column].unit;
        let (low, high) = (number(low), number(high));
        match low == high {
            true => format!("{low}{unit}"),
            false => format!("{low} to {high}{unit}"),
        }
    }

    /// Prints the experiment: the assumption, then a row a value.
    pub(super) fn print(&self, out: &mut String) {
        let (from, to) = self.plausible;
        let _ = writeln!(
            out,
            "\n**Varied: {}.** Here it is {}. Plausible is {from} to {}: {}.\n",
            self.varies,
            self.value(self.usual),
            self.value(to),
            self.because
        );
        let heads = self.columns.iter().map(|column| column.claim.clone());
        let heads: Vec<String> = std::iter::once(self.varies.clone()).chain(heads).collect();
        let rows = self.trials.iter().map(|trial| {
            let value = self.value(trial.value);
            let value = match (trial.value == self.usual, self.allows(trial.value)) {
                (true, _) => format!("{value} (as above)"),
                (false, true) => value,
                (false, false) => format!("{value} (not plausible)"),
            };
            let cells = (0..self.columns.len()).map(|column| {
                let shown = self.shown(column, trial);
                match trial.figures[column].verdict() {
                    Verdict::Yes => format!("**{shown}**"),
                    _ => shown,
                }
            });
            std::iter::once(value).chain(cells).collect()
        });
        table(out, &heads, &rows.collect::<Vec<_>>());
    }
}

/// A figure with three digits that count, or all before its point.
fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 99.95 => format!("{value:.0}"),
        middle if middle >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::evaluation::Frame;
    use super::*;

    const KNOB: Assumption = Assumption {
        varies: "the weather",
        unit: " C",
        usual: 10.0,
        others: &[5.0, 20.0, 40.0],
        plausible: (5.0, 20.0),
        because: "it was spring",
    };

    fn claim(theirs: f64, ours: f64) -> Claim {
        Claim::new(
            "it grows",
            "",
            "",
            Stated::figure(theirs, ours).over(0.0),
            "why",
        )
    }

    fn tried(theirs: f64, ours: impl Fn(f64) -> f64) -> Experiment {
        let columns = [("it grows".to_owned(), "%")];
        let run = |value| Ok(vec![Stated::figure(theirs, ours(value)).over(0.0)]);
        Experiment::vary(&KNOB, &columns, run).unwrap()
    }

    fn verdict(theirs: f64, claimed: f64, ours: impl Fn(f64) -> f64) -> Verdict {
        let mut claim = claim(theirs, claimed);
        tried(theirs, ours).explain(&mut claim);
        claim.verdict
    }

    #[test]
    fn a_plausible_value_explains_and_no_other_does() {
        assert_eq!(verdict(100.0, 50.0, |v| v * 5.0), Verdict::Explained);
        // Only at 40, which is not plausible.
        assert_eq!(verdict(200.0, 50.0, |v| v * 5.0), Verdict::Direction);
        // At none.
        assert_eq!(verdict(1000.0, 50.0, |v| v * 5.0), Verdict::No);
    }

    #[test]
    fn what_is_met_is_not_explained() {
        assert_eq!(verdict(50.0, 50.0, |v| v * 5.0), Verdict::Yes);
    }

    #[test]
    fn an_experiment_in_which_something_else_differs_explains_nothing() {
        // The usual value gives 60 here, and 50 in the evaluation: another knob was turned as well.
        let also = |v: f64| v * 5.0 + 10.0;
        assert_eq!(verdict(110.0, 50.0, also), Verdict::Direction);
        assert!(!tried(110.0, also).repeats(&claim(110.0, 50.0)));
        // Another figure of the paper.
        let mut other = claim(120.0, 50.0);
        tried(100.0, |v| v * 5.0).explain(&mut other);
        assert_eq!((other.verdict, other.found), (Verdict::Direction, None));
    }

    #[test]
    fn the_nearest_value_is_named() {
        let mut claim = claim(100.0, 50.0);
        tried(100.0, |v| if v == 10.0 { 50.0 } else { 100.0 }).explain(&mut claim);
        let found = claim.found.unwrap();
        assert_eq!((found.at.as_str(), found.ours.as_str()), ("5 C", "100%"));
    }

    #[test]
    fn an_explanation_that_spoils_what_is_met_stands_alone() {
        let alone = |met: fn(f64) -> f64| {
            let other = Claim::new("it rains", "", "", Stated::figure(7.0, 7.0), "");
            let mut frame = Frame::new("a figure", "", &[]).claims([claim(100.0, 50.0), other]);
            let columns = ["it grows", "it rains"].map(|name| (name.to_owned(), "%"));
            let run = |v| {
                let grows = Stated::figure(100.0, v * 5.0).over(0.0);
                Ok(vec![grows, Stated::figure(7.0, met(v))])
            };
            frame.try_out(Experiment::vary(&KNOB, &columns, run).unwrap());
            assert_eq!(frame.claims[0].verdict, Verdict::Explained);
            assert!(!frame.is_alone(&frame.claims[1]));
            frame.is_alone(&frame.claims[0])
        };
        assert!(!alone(|_| 7.0));
        assert!(alone(|v| v * 0.7));
        // Nobody has run the other one.
        let other = Claim::new("it rains", "", "", Stated::figure(7.0, 7.0), "");
        let mut frame = Frame::new("a figure", "", &[]).claims([claim(100.0, 50.0), other]);
        frame.try_out(tried(100.0, |v| v * 5.0));
        assert!(frame.is_alone(&frame.claims[0]));
    }

    #[test]
    fn figures_have_three_digits() {
        for (value, printed) in [
            (1.234, "1.23"),
            (12.34, "12.3"),
            (123.4, "123"),
            (-5.678, "-5.68"),
        ] {
            assert_eq!(number(value), printed);
        }
    }
}
