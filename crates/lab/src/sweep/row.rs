//! The result of one run of a sweep.

use super::grid::Point;
use crate::csv::cells;
use crate::outcome::Outcome;
use serde::{Deserialize, Serialize};

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PointResult {
    /// Its point.
    pub point: Point,
    /// Its figures, by name; none if it could not be run.
    pub figures: Vec<(String, String)>,
    /// Why it could not be run.
    pub error: Option<String>,
}

impl PointResult {
    /// The result of a finished run.
    #[must_use]
    pub fn of(point: Point, outcome: &Outcome) -> Self {
        Self {
            point,
            figures: cells(outcome),
            error: None,
        }
    }

    /// The result of a point that could not be run.
    #[must_use]
    pub fn failed(point: Point, error: String) -> Self {
        Self {
            point,
            figures: Vec::new(),
            error: Some(error),
        }
    }

    /// A figure, if it has it.
    #[must_use]
    pub fn figure(&self, name: &str) -> Option<&str> {
        let found = self.figures.iter().find(|(of, _)| of == name);
        found
            .map(|(_, cell)| cell.as_str())
            .filter(|cell| !cell.is_empty())
    }
}
