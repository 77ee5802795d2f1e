//! A grid: the axes of a sweep, and the points at which they cross.

use std::str::FromStr;

/// The most runs of a sweep.
pub const RUNS_MAX: usize = 100_000;

/// A parameter, and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Its name: an option of a run, without dashes.
    pub key: String,
    /// Its values, as written on a command line.
    pub values: Vec<String>,
}

/// What is wrong with a grid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GridError {
    /// The text is not an axis.
    #[error("{text:?} is not an axis: write KEY=VALUE VALUE ..., like \"op=7 15 28\"")]
    Axis {
        /// The text.
        text: String,
    },
    /// Something appears twice.
    #[error("{key} is there twice: {why}")]
    Twice {
        /// What appears twice.
        key: String,
        /// Why it may appear only once.
        why: &'static str,
    },
    /// There are too many runs.
    #[error("{runs} runs: a sweep may have {RUNS_MAX}")]
    TooMany {
        /// How many.
        runs: u128,
    },
}

impl FromStr for Axis {
    type Err = GridError;

    fn from_str(text: &str) -> Result<Self, GridError> {
        let wrong = || GridError::Axis {
            text: text.chars().take(60).collect(),
        };
        let (key, values) = text.split_once('=').ok_or_else(wrong)?;
        let key = key.trim().trim_start_matches("--");
        let values: Vec<String> = values.split_whitespace().map(str::to_owned).collect();
        let named = key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if values.is_empty() || key.is_empty() || !named {
            return Err(wrong());
        }
        let twice = (1..values.len()).find(|&at| values[..at].contains(&values[at]));
        if let Some(at) = twice {
            return Err(GridError::Twice {
                key: values[at].clone(),
                why: "a value of an axis is tried once",
            });
        }
        Ok(Self {
            key: key.to_owned(),
            values,
        })
    }
}

/// A run's parameters, in the order of the axes: name and value.
pub type Point = Vec<(String, String)>;

/// Every point of a grid, the last axis changing first.
///
/// # Errors
/// When there are too many, or an axis twice.
pub fn points(axes: &[Axis]) -> Result<Vec<Point>, GridError> {
    let twice = (1..axes.len()).find(|&at| axes[..at].iter().any(|a| a.key == axes[at].key));
    if let Some(at) = twice {
        return Err(GridError::Twice {
            key: axes[at].key.clone(),
            why: "an axis has all its values in one place",
        });
    }
    let runs = axes.iter().fold(1u128, |runs, axis| {
        runs.saturating_mul(axis.values.len() as u128)
    });
    if runs > RUNS_MAX as u128 {
        return Err(GridError::TooMany { runs });
    }
    let mut points = vec![Point::new()];
    for axis in axes {
        let with = |point: &Point, value: &String| {
            let mut point = point.clone();
            point.push((axis.key.clone(), value.clone()));
            point
        };
        points = points
            .iter()
            .flat_map(|point| axis.values.iter().map(move |value| with(point, value)))
            .collect();
    }
    Ok(points)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_combines_every_value_with_every_other() {
        let axes: Vec<Axis> = ["op=7 15", "policy=base vellum:dedup,write-once"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        let points = points(&axes).unwrap();
        let second: Vec<_> = points.iter().map(|p| p[1].1.as_str()).collect();
        assert_eq!(points.len(), 4);
        assert_eq!(second[..2], ["base", "vellum:dedup,write-once"]);
        assert_eq!(points[2][0], ("op".into(), "15".into()));
        assert_eq!(super::points(&[]).unwrap(), [Point::new()]);
    }

    #[test]
    fn an_invalid_grid_is_refused() {
        for text in ["op", "=1", "op=", "op= ", "a b=1", "op=7 7"] {
            assert!(text.parse::<Axis>().is_err(), "{text}");
        }
        let axis = |key: &str| Axis {
            key: key.into(),
            values: (0..1000).map(|n| n.to_string()).collect(),
        };
        let error = points(&[axis("a"), axis("b")]).unwrap_err();
        assert_eq!(error, GridError::TooMany { runs: 1_000_000 });
        assert!(points(&[axis("a"), axis("a")]).is_err());
    }
}
