//! How the outcomes of a few runs are given: a table, JSON, CSV, a report.

use super::setup::{print, write};
use crate::outcome::out;
use anyhow::Result;
use std::io::Write;
use std::path::PathBuf;
use vellum_lab::csv;
use vellum_lab::html::{self, Page};
use vellum_lab::outcome::Outcome;
use vellum_lab::report;

/// Arguments.
#[derive(clap::Args)]
pub struct Output {
    /// Print JSON instead of the table.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values instead of the table.
    #[arg(long)]
    csv: bool,
    /// Write a report here: one HTML file with plots to zoom, which needs no network.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Output {
    /// Gives them.
    pub fn give(
        &self,
        title: &str,
        about: &[String],
        mut warnings: Vec<String>,
        outcomes: &[Outcome],
    ) -> Result<()> {
        if outcomes.iter().any(|outcome| outcome.partial) {
            warnings.push("PARTIAL: ended before the load was; no figure is final".into());
        }
        let table = report::table(outcomes);
        if let Some(path) = &self.html {
            let page = Page {
                title: title.into(),
                about: about.to_vec(),
                warnings: warnings.clone(),
                command: std::env::args().collect::<Vec<_>>().join(" "),
            };
            write(path, &html::render(&page, outcomes, &table)?)?;
        }
        if self.json {
            writeln!(out(), "{}", serde_json::to_string_pretty(outcomes)?)?;
        } else if self.csv {
            write!(out(), "{}", csv::lines(outcomes))?;
        } else {
            print(about, &warnings, &table)?;
        }
        Ok(())
    }
}
