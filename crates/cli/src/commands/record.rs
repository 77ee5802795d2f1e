//! `vellum record`: serves any file or block device and records its requests, to measure before committing to anything.

use super::serve::{self, SizesChoice, Where};
use crate::outcome::usage;
use anyhow::Result;
use std::path::PathBuf;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The file or the block device, FILE or NAME=FILE. Nothing else may use it meanwhile.
    #[arg(value_name = "FILE")]
    file: String,
    /// The trace: a new file. No byte of the data is in it.
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// The encoding whose sizes it tells: what `compress` goes by in the lab.
    #[arg(long, value_enum, value_name = "ENCODING", default_value = "lz4")]
    sizes: SizesChoice,
    /// Listen for NBD clients on this unix socket.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Mount a FUSE directory here, with the file in it.
    #[arg(long, value_name = "DIR")]
    fuse: Option<PathBuf>,
    /// Make it a block device, /dev/ublkbN; needs root and Linux 6.5.
    #[arg(long)]
    ublk: bool,
}

/// Serves and records until told to stop.
pub fn run(args: Args) -> Result<()> {
    let to = Where {
        socket: args.socket,
        fuse: args.fuse,
        ublk: args.ublk,
    };
    if to.socket.is_none() && to.fuse.is_none() && !to.ublk {
        return Err(usage(
            "say where to serve it: --socket PATH, --fuse DIR or --ublk",
        ));
    }
    serve::run(serve::Args::recording(
        args.file,
        args.output,
        args.sizes,
        to,
    ))
}
