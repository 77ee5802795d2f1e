//! The figures and tables of the papers' evaluations, and what became of each here; and the printing of tables.

use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// A figure or table of a paper's evaluation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// What it shows.
    pub shows: String,
    /// The name of the frame that repeats it; none if it is not repeated.
    pub frame: Option<String>,
    /// How the frame differs, or why there is none.
    pub note: String,
}

impl Listed {
    fn new(name: &str, shows: &str, frame: Option<&str>, note: &str) -> Self {
        Self {
            name: name.into(),
            shows: shows.into(),
            frame: frame.map(str::to_owned),
            note: note.into(),
        }
    }

    pub(super) fn run(name: &str, shows: &str, frame: &str) -> Self {
        Self::new(name, shows, Some(frame), "")
    }

    pub(super) fn but(mut self, note: &str) -> Self {
        self.note = note.into();
        self
    }

    pub(super) fn not(name: &str, shows: &str, why: &str) -> Self {
        Self::new(name, shows, None, why)
    }
}

/// A table, as Markdown.
pub(super) fn table(out: &mut String, heads: &[String], rows: &[Vec<String>]) {
    let _ = writeln!(out, "| {} |", heads.join(" | "));
    let _ = writeln!(out, "|{}", " --- |".repeat(heads.len()));
    for row in rows {
        let _ = writeln!(out, "| {} |", row.join(" | "));
    }
}
