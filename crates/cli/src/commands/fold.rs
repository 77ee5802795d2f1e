//! `vellum fold`: frees sparse pages of parts on a served volume.

use super::sweep::{self, Kind, core, number};
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
    command: "fold",
    freed: ("folds", "pages given up"),
    stopped: "it was stopped before its end, by hand or because no room was to spare; the next one begins \
              anew",
    show,
};

/// Folds, and waits for the end.
pub fn run(args: &Args) -> Result<()> {
    KIND.run(&args.sweep)
}

fn show(args: &sweep::Args, before: &Value, now: &Value) -> Result<()> {
    let since = |key| core(now, key).saturating_sub(core(before, key));
    if args.status {
        writeln!(out(), "  sweeps           {}", number(now, "sweeps"))?;
        writeln!(out(), "  pages given up   {}", core(now, "folds"))?;
        writeln!(out(), "  blocks folded    {}", core(now, "folded_blocks"))?;
    } else {
        writeln!(out(), "  pages given up   {}", since("folds"))?;
        writeln!(out(), "  blocks folded    {}", since("folded_blocks"))?;
    }
    let (pages, blocks) = (core(now, "packed_pages"), core(now, "packed_owners"));
    writeln!(
        out(),
        "  parts of pages   {} in {}, {:.2} pages a block",
        counted(blocks, "block"),
        counted(pages, "page"),
        pages as f64 / blocks.max(1) as f64
    )?;
    let saved = number(&now["space"], "saved_bytes");
    writeln!(out(), "  saved            {}", Size(saved))?;
    Ok(())
}
