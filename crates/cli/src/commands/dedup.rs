//! `vellum dedup`: finds data stored twice on a served volume, and stores it once.

use super::sweep::{self, Kind, core, number, percent};
use crate::outcome::{counted, out};
use crate::size::Size;
use anyhow::Result;
use serde_json::Value;
use std::io::Write;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    sweep: sweep::Args,
}

const KIND: Kind = Kind {
    command: "dedup",
    freed: ("merged_blocks", "blocks freed"),
    stopped: "the sweep was stopped before its end; the next one goes on where it was",
    show,
};

/// Starts a sweep and waits for its end.
pub fn run(args: &Args) -> Result<()> {
    KIND.run(&args.sweep)
}

fn show(args: &sweep::Args, before: &Value, now: &Value) -> Result<()> {
    if let Some(permille) = now["left_at"].as_u64() {
        writeln!(
            out(),
            "  sweep            left at {}: the next one goes on there",
            percent(permille)
        )?;
    }
    if args.status {
        writeln!(out(), "  sweeps           {}", number(now, "sweeps"))?;
    } else {
        writeln!(out(), "  blocks freed     {}", KIND.freed(before, now))?;
    }
    if let (false, Some(permille)) = (args.status || args.stop, before["left_at"].as_u64()) {
        writeln!(
            out(),
            "  went on at       {}: what was written since then is the next one's",
            percent(permille)
        )?;
    }
    writeln!(out(), "  blocks stored    {}", core(now, "live_blocks"))?;
    let saved = number(&now["space"], "saved_bytes");
    writeln!(out(), "  saved            {}", Size(saved))?;
    writeln!(out(), "  shared in line   {}", core(now, "dedup_blocks"))?;
    writeln!(out(), "  shared later     {}", core(now, "merged_blocks"))?;
    writeln!(
        out(),
        "  index            {} of {} contents",
        core(now, "index_entries"),
        core(now, "index_capacity")
    )?;
    let asked = core(now, "dedup_lookups");
    let percent = 100.0 * core(now, "dedup_blocks") as f64 / asked.max(1) as f64;
    writeln!(
        out(),
        "  found there      {percent:.1}% of {} looked up",
        counted(asked, "block")
    )?;
    writeln!(
        out(),
        "  hints wrong      {}",
        core(now, "dedup_false_hints")
    )?;
    let seconds = |key| number(&now["medium"], key) as f64 / 1e6;
    writeln!(
        out(),
        "  time             {:.3} s comparing, {:.3} s hashing",
        seconds("compare_micros"),
        seconds("fingerprint_micros")
    )?;
    Ok(())
}
