//! The parts of an evaluation.

use super::claim::Claim;
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
}

impl Frame {
    pub(super) fn new(name: &str, setting: &str, columns: &[&str]) -> Self {
        Self {
            name: name.into(),
            setting: setting.into(),
            columns: columns.iter().map(ToString::to_string).collect(),
            rows: Vec::new(),
            claims: Vec::new(),
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
