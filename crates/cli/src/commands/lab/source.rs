//! Where a trace is read from: a file, or standard input, which is kept in a file as long as it is needed, for a trace is read more than once.

use super::progress;
use anyhow::{Context, Result, bail};
use std::io::{IsTerminal, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vellum_lab::replay::{Reading, TraceFile};
use vellum_options::setup::{Ready, Setup};

/// Reads all that a run needs.
pub fn ready(setup: &Setup) -> Result<Ready> {
    Ok(setup.ready_with(trace(setup)?.map(Arc::new)))
}

/// Reads the trace, if it is one.
pub fn trace(setup: &Setup) -> Result<Option<TraceFile>> {
    let read = |(path, reading): (&Path, Reading)| self::read(path, &reading);
    setup.trace().map(read).transpose()
}

fn read(path: &Path, reading: &Reading) -> Result<TraceFile> {
    match path == Path::new("-") {
        true => read_input(reading).context("standard input"),
        false => read_file(path, reading),
    }
}

fn read_file(path: &Path, reading: &Reading) -> Result<TraceFile> {
    let read = |watch: &_| TraceFile::read_watched(path, reading, watch);
    Ok(progress::reading(path, read)?)
}

fn read_input(reading: &Reading) -> Result<TraceFile> {
    let mut input = std::io::stdin().lock();
    if input.is_terminal() {
        bail!("a trace is wanted there, not a terminal");
    }
    // Without a name: nothing is left behind, however this ends.
    let mut kept = tempfile::tempfile().context("no temporary file (TMPDIR says where)")?;
    std::io::copy(&mut input, &mut kept).context("it cannot be kept in a temporary file")?;
    kept.seek(SeekFrom::Start(0))?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", kept.as_raw_fd()));
    // Each run opens it again, to the end of the process.
    std::mem::forget(kept);
    read_file(&path, reading)
}
