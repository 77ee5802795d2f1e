//! A grid of runs, each value of each axis with each of the others; their results; and a journal of the finished runs,
//! so that an interrupted sweep continues where it stopped.
//!
//! A run's figures depend only on its point, so a report is the same whatever the number of threads and interruptions.

mod grid;
mod journal;
mod report;
mod row;

pub use grid::{Axis, GridError, Point, RUNS_MAX, points};
pub use journal::{Journal, JournalError};
pub use report::{csv, html, table};
pub use row::PointResult;
