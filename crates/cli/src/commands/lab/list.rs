//! `vellum lab list`: what there is.

use anyhow::Result;
use vellum_lab::flash;
use vellum_lab::policy::NAMES;
use vellum_lab::sizes;
use vellum_lab::trace::Format;
use vellum_lab::workload;

/// Does it.
pub fn run() -> Result<()> {
    println!("devices");
    for preset in flash::presets() {
        println!(
            "  {:<14}{}\n{:16}figures: {}",
            preset.name, preset.about, "", preset.source
        );
    }
    println!("loads (synthetic)");
    for workload in workload::workloads() {
        println!("  {:<14}{}", workload.name, workload.about);
    }
    println!("sizes (synthetic)");
    for model in sizes::models() {
        println!("  {:<14}{}", model.name, model.about);
    }
    println!("policies\n  {NAMES}");
    let formats = Format::ALL.map(Format::name).join(", ");
    println!("trace formats\n  {formats}");
    Ok(())
}
