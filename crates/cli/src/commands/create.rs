//! `vellum create`.

use crate::size::Size;
use crate::volume::{self, NewVolume};
use anyhow::Result;
use std::path::PathBuf;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The file to make, or the block device to take.
    volume: PathBuf,
    /// How much clients see. A file is made large enough for it; a block device gives what it can, if this
    /// is not said.
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// How much to take of the medium; with --size, a thin volume may promise more than it has.
    #[arg(long, value_name = "SIZE")]
    medium_size: Option<Size>,
    /// Space kept from the clients, in per cent of what they see: more makes collection cheaper.
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=90))]
    over_provisioning: u32,
    /// Size of a segment, a power of two: a multiple of the drive's erase unit.
    #[arg(long, value_name = "SIZE")]
    segment_size: Option<Size>,
    /// Write all of the file now: it cannot run out later, and syncs are faster from the first day.
    #[arg(long)]
    preallocate: bool,
    /// Write over a file, or over a volume on a block device, that is there.
    #[arg(long)]
    force: bool,
}

/// Makes it.
pub fn run(args: Args) -> Result<()> {
    let new = NewVolume {
        size: args.size.map(|s| s.0),
        medium_size: args.medium_size.map(|s| s.0),
        over_provisioning: args.over_provisioning * 10,
        segment_size: args.segment_size.map(|s| s.0),
        preallocate: args.preallocate,
        force: args.force,
    };
    let info = volume::create(&args.volume, &new)?;
    println!(
        "{}: {} on {}, UUID {}",
        info.medium,
        Size(info.logical_bytes),
        Size(info.medium_bytes),
        info.uuid
    );
    Ok(())
}
