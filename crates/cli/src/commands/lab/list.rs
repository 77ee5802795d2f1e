//! `vellum lab list`: lists what the lab offers.

use crate::outcome::out;
use anyhow::Result;
use std::io::Write;
use vellum_lab::drives;
use vellum_lab::policy::listing;
use vellum_lab::sizes;
use vellum_lab::trace::Format;
use vellum_lab::workload;

/// Prints the list.
pub fn run() -> Result<()> {
    writeln!(out(), "drives (a file of one: vellum lab drives NAME)")?;
    for drive in drives::known() {
        writeln!(
            out(),
            "  {:<14}{}\n{:16}figures: {}",
            drive.name,
            drive.about,
            "",
            drive.source
        )?;
    }
    writeln!(out(), "loads (synthetic)")?;
    for workload in workload::workloads() {
        writeln!(out(), "  {:<14}{}", workload.name, workload.about)?;
    }
    writeln!(out(), "sizes (synthetic)")?;
    for model in sizes::models() {
        writeln!(out(), "  {:<14}{}", model.name, model.about)?;
    }
    writeln!(out(), "policies")?;
    for line in listing().lines() {
        writeln!(out(), "  {line}")?;
    }
    let formats = Format::ALL.map(Format::name).join(", ");
    writeln!(out(), "trace formats\n  {formats}")?;
    Ok(())
}
