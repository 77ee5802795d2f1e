//! The parts of an evaluation.

use super::claim::Claim;
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
