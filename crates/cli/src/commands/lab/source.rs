//! Reads traces from a file, or from standard input. The latter is kept in a temporary file, because a trace is read more than once.

use super::progress;
use anyhow::{Context, Result, bail};
use std::io::{IsTerminal, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vellum_lab::replay::{Reading, TraceFile};
use vellum_lab::tenants::Tenants;
use vellum_options::setup::{Ready, Setup};

/// Reads everything that a run needs.
pub fn ready(setup: &Setup) -> Result<Ready> {
    let read = |(path, reading): (&Path, Reading)| self::read(path, &reading);
    let trace = setup.trace().map(read).transpose()?.map(Arc::new);
    Ok(setup.ready_with(trace, tenants(setup)?))
}

/// Reads the tenants' traces, each file once.
fn tenants(setup: &Setup) -> Result<Option<Arc<Tenants>>> {
    let reading = setup.reading();
    let mut known: Vec<(&Path, Arc<TraceFile>)> = Vec::new();
    let mut all = Vec::new();
    for (name, path) in setup.tenants() {
        let trace = match known.iter().find(|(of, _)| *of == path) {
            Some((_, trace)) => Arc::clone(trace),
            None => Arc::new(read(path, &reading).with_context(|| format!("tenant {name}"))?),
        };
        known.push((path, Arc::clone(&trace)));
        all.push((name, trace));
    }
    Ok(vellum_options::tenants::tenants(all)?)
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
    // Without a name, so nothing is left behind, however this ends.
    let mut kept = tempfile::tempfile().context("no temporary file (TMPDIR says where)")?;
    let bytes = std::io::copy(&mut input, &mut kept);
    if bytes.context("it cannot be kept in a temporary file")? == 0 {
        bail!("it is empty: there is no request in it");
    }
    kept.seek(SeekFrom::Start(0))?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", kept.as_raw_fd()));
    // Each run opens it again, until the process ends.
    std::mem::forget(kept);
    read_file(&path, reading)
}
