//! `vellum demo`.

use crate::demo::{self, Plan};
use anyhow::Result;
use std::path::PathBuf;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Where to make the volume and the plain file (about 4 GiB, gone afterwards); on a disk, not in memory.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    dir: PathBuf,
    /// How much work, in per cent.
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 100,
        value_parser = clap::value_parser!(u64).range(1..=1000)
    )]
    scale: u64,
    /// Use an NBD client in user space, as without root.
    #[arg(long)]
    user_space: bool,
}

/// Runs the demonstration.
pub fn run(args: Args) -> Result<()> {
    demo::run(&Plan {
        parent: args.dir,
        scale: args.scale * 10,
        user_space: args.user_space,
    })
}
