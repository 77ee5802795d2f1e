//! `vellum lab shares`: how much of a trace's written data was written before.

use super::progress::reading;
use crate::outcome::{out, tell};
use anyhow::Result;
use std::io::Write;
use std::path::PathBuf;
use vellum_lab::replay::{Reading, TraceFile};
use vellum_lab::report;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The traces; their formats are found by looking at them.
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
}

impl Args {
    /// Runs the command.
    pub fn run(&self) -> Result<()> {
        writeln!(
            out(),
            "| trace | requests | flushes | blocks written | duplicates | zeros | written to | seconds |"
        )?;
        writeln!(out(), "|{}", " --- |".repeat(8))?;
        for path in &self.traces {
            let trace = reading(path, |watch| {
                TraceFile::read_watched(path, &Reading::default(), watch)
            })?;
            let shares = trace.shares(1)?;
            let summary = trace.summary();
            let name = path.file_stem().unwrap_or(path.as_os_str());
            writeln!(
                out(),
                "| {} | {} | {} | {} | {:.1}% | {:.1}% | {} | {:.1} |",
                name.to_string_lossy(),
                summary.seen.requests,
                shares.flushes,
                shares.written,
                shares.percent(),
                shares.zeros as f64 * 100.0 / shares.written.max(1) as f64,
                report::bytes(shares.touched * 4096),
                (summary.last_at - summary.first_at) as f64 / 1e9,
            )?;
            if summary.blocks_told < summary.blocks_written {
                tell(format_args!(
                    "WARNING: {}: of {} blocks it does not say what was written; they are taken to be new",
                    path.display(),
                    summary.blocks_written - summary.blocks_told
                ));
            }
        }
        Ok(())
    }
}
