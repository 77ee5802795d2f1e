//! Output formats for figures: a table, JSON, CSV, a report.

use crate::outcome::out;
use crate::replace;
use anyhow::{Context, Result};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use vellum_lab::csv;
use vellum_lab::html::{self, Preface};
use vellum_lab::outcome::Outcome;
use vellum_lab::report;
use vellum_lab::svg::Plot;

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

/// Arguments, of what has a course.
#[derive(clap::Args)]
pub struct Course {
    /// Write how the runs went here, as comma-separated values: a line for each of some hundred steps, with every counter. Python's
    /// `steps.to_parquet` writes Parquet.
    #[arg(long, value_name = "FILE")]
    steps: Option<PathBuf>,
}

impl Course {
    /// Writes the outcomes, if wanted.
    pub fn give(&self, outcomes: &[Outcome]) -> Result<()> {
        match &self.steps {
            Some(path) => write(path, &csv::steps(outcomes)),
            None => Ok(()),
        }
    }
}

/// Figures in each output format; as JSON they are serialized themselves.
pub trait Figures: Serialize {
    /// What is missing, if not everything was done.
    fn partial(&self) -> Option<String>;
    /// The table for people.
    fn table(&self) -> String;
    /// As CSV, with a heading.
    fn csv(&self) -> String;
    /// As one HTML file.
    fn html(&self, preface: &Preface) -> Result<String>;
}

impl Figures for Vec<Outcome> {
    fn partial(&self) -> Option<String> {
        let ended = self.iter().any(|outcome| outcome.partial);
        ended.then(|| "PARTIAL: ended before the load was; no figure is final".into())
    }

    fn table(&self) -> String {
        report::table(self)
    }

    fn csv(&self) -> String {
        csv::lines(self)
    }

    fn html(&self, preface: &Preface) -> Result<String> {
        Ok(html::render(preface, self, &self.table())?)
    }
}

impl Output {
    /// Prints or writes the figures.
    pub fn give(
        &self,
        title: &str,
        about: Vec<String>,
        mut warnings: Vec<String>,
        figures: &impl Figures,
    ) -> Result<()> {
        warnings.extend(figures.partial());
        let preface = Preface {
            title: title.into(),
            lead: None,
            about,
            warnings,
            command: std::env::args().collect::<Vec<_>>().join(" "),
        };
        if let Some(path) = &self.html {
            write(path, &figures.html(&preface)?)?;
        }
        if self.json {
            writeln!(out(), "{}", serde_json::to_string_pretty(figures)?)?;
        } else if self.csv {
            write!(out(), "{}", figures.csv())?;
        } else {
            print(&preface.about, &preface.warnings, &figures.table())?;
        }
        Ok(())
    }
}

/// Prints a table after the notes that a reader needs.
pub fn print(about: &[String], warnings: &[String], table: &str) -> Result<()> {
    let mut out = out();
    for line in about {
        writeln!(out, "{line}")?;
    }
    for line in warnings {
        writeln!(out, "WARNING: {line}")?;
    }
    Ok(write!(out, "{table}")?)
}

pub fn save(path: &Path, plot: &Plot) -> Result<()> {
    write(path, &plot.render())
}

/// Replaces a report. If the path is not a file (a terminal, a pipe), it is written to directly: nothing may take its place.
pub fn write(path: &Path, text: &str) -> Result<()> {
    let name = || path.display().to_string();
    if path.metadata().is_ok_and(|there| !there.is_file()) {
        return std::fs::write(path, text).with_context(name);
    }
    replace::file(path, 0o644, text.as_bytes()).with_context(name)
}
