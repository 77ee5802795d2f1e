//! Which figures and tables the papers' evaluations have, and what became of each here.

use super::{Evaluation, table};
use serde::Serialize;

/// A figure or table of a paper's evaluation.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Listed {
    /// Which.
    pub name: &'static str,
    /// What it shows.
    pub shows: &'static str,
    /// The name of the frame that it is run again in; none where it is not.
    pub frame: Option<&'static str>,
    /// In what the frame is less or other, or why there is none.
    pub note: &'static str,
}

impl Listed {
    pub(super) const fn run(name: &'static str, shows: &'static str, frame: &'static str) -> Self {
        Self {
            name,
            shows,
            frame: Some(frame),
            note: "",
        }
    }

    pub(super) const fn but(self, note: &'static str) -> Self {
        Self { note, ..self }
    }

    pub(super) const fn not(name: &'static str, shows: &'static str, why: &'static str) -> Self {
        Self {
            name,
            shows,
            frame: None,
            note: why,
        }
    }
}

/// All of them, as Markdown.
#[must_use]
pub fn list(evaluations: &[Evaluation]) -> String {
    let mut out = String::from("# Every figure and table of the evaluations\n\n");
    let heads = ["paper", "figure or table", "shows", "run here"];
    let rows = evaluations.iter().flat_map(|evaluation| {
        let paper = evaluation.paper.split(':').next().unwrap_or_default();
        let each = evaluation.list.iter();
        each.map(move |listed| {
            let run = match (listed.frame, listed.note) {
                (Some(frame), "") => format!("*{frame}*"),
                (Some(frame), note) => format!("*{frame}*: {note}"),
                (None, why) => format!("no: {why}"),
            };
            let [name, shows] = [listed.name, listed.shows].map(str::to_owned);
            vec![paper.to_owned(), name, shows, run]
        })
    });
    table(
        &mut out,
        &heads.map(str::to_owned),
        &rows.collect::<Vec<_>>(),
    );
    out
}
