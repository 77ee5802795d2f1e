//! A job file of fio as a load.

use std::path::Path;
use vellum_lab::fio_job::{FILE_BYTES_MAX, FioFile};

/// Arguments.
#[derive(clap::Args)]
pub struct FioArgs {
    /// A load as a job file of fio has it: jobs beside and after each other, each with its rw (trims too), bs, bssplit, size, offset, iodepth,
    /// numjobs, rwmixread, distribution, rate, thinktime, runtime and ramp time, fsync and duplicates. What is not modelled is an error.
    #[arg(long, value_name = "FILE", value_parser = read)]
    #[arg(conflicts_with_all = ["trace", "workload", "tenant", "depth", "journal_at", "repeat"])]
    #[arg(conflicts_with_all = ["same_contents", "format", "columns", "in_place"])]
    pub(crate) fio: Option<FioFile>,
}

fn read(path: &str) -> Result<FioFile, String> {
    // Python gives the text, so that a worker needs no file. A text has lines, and a path has none.
    if path.contains('\n') {
        return FioFile::read(path).map_err(|error| error.to_string());
    }
    let length = Path::new(path).metadata().map_err(|e| e.to_string())?.len();
    if length > FILE_BYTES_MAX as u64 {
        return Err(format!("it is longer than {FILE_BYTES_MAX} bytes"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    FioFile::read(&text).map_err(|error| error.to_string())
}
