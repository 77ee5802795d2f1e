//! The parts of an evaluation.

use super::claim::{Claim, Verdict};
use super::experiment::Experiment;
use super::list::Listed;
use serde::{Deserialize, Serialize};

/// A table or figure of the paper.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Frame {
    /// Its name.
    pub name: String,
    /// The setting of our runs, and where it is not the paper's.
    pub setting: String,
    /// Headings.
    pub columns: Vec<String>,
    /// Rows.
    pub rows: Vec<Vec<String>>,
    /// What the paper states about it.
    pub claims: Vec<Claim>,
    /// What was varied to find why ours differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub experiments: Vec<Experiment>,
}

impl Frame {
    pub(super) fn new(name: &str, setting: &str, columns: &[&str]) -> Self {
        Self {
            name: name.into(),
            setting: setting.into(),
            columns: columns.iter().map(ToString::to_string).collect(),
            rows: Vec::new(),
            claims: Vec::new(),
            experiments: Vec::new(),
        }
    }

    pub(super) fn rows(mut self, rows: impl IntoIterator<Item = Vec<String>>) -> Self {
        self.rows.extend(rows);
        self
    }

    pub(super) fn claims(mut self, claims: impl IntoIterator<Item = Claim>) -> Self {
        self.claims.extend(claims);
        self
    }

    /// True if the value that explains this claim is not known to give the other figures of the table: those that are met, and those that the
    /// same assumption explains. What is said in words is not asked, because an experiment records figures.
    #[must_use]
    pub fn is_alone(&self, claim: &Claim) -> bool {
        let is_explained = claim.verdict == Verdict::Explained;
        let Some(found) = claim.found.as_ref().filter(|_| is_explained) else {
            return false;
        };
        let is_asked = |other: &&Claim| match other.verdict {
            Verdict::Yes => other.stated.is_figure(),
            Verdict::Explained => {
                let by = other.found.as_ref();
                by.is_some_and(|by| by.varies == found.varies)
            }
            Verdict::Direction | Verdict::No => false,
        };
        let gives = |other: &Claim| self.experiments.iter().any(|own| own.gives(found, other));
        !self.claims.iter().filter(is_asked).all(gives)
    }

    /// Adds an experiment, and what it explains.
    pub(super) fn try_out(&mut self, experiment: Experiment) {
        let claims = self.claims.iter_mut();
        claims.for_each(|claim| experiment.explain(claim));
        self.experiments.push(experiment);
    }
}

/// A paper's evaluation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Evaluation {
    /// The paper.
    pub paper: String,
    /// What was run.
    pub frames: Vec<Frame>,
    /// What was not run, and why.
    pub missing: Vec<String>,
    /// All figures and tables of the paper's evaluation.
    pub list: Vec<Listed>,
}
