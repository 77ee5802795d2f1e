//! Traces: read once, run often, or looked at as columns.

use crate::errors::{self, OptionError, TraceError};
use crate::watched::{tell, watched};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::path::PathBuf;
use std::sync::Arc;
use vellum_lab::progress::Watch;
use vellum_lab::replay::{ReplayError, TraceFile, of_all_processors};
use vellum_lab::trace::{Op, Traced};
use vellum_options::setup::Setup;
use vellum_options::words;

/// A trace that was read through.
#[pyclass(frozen, module = "vellum._lab")]
pub struct Trace {
    path: String,
    file: Arc<TraceFile>,
}

#[pymethods]
impl Trace {
    #[new]
    #[pyo3(signature = (path, options, progress=None))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        options: Vec<String>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let path = path.into_os_string().into_string();
        let path = path.map_err(|path| OptionError::new_err(format!("{path:?} is no UTF-8")))?;
        let words = options.into_iter().chain(["--".into(), path.clone()]);
        let setup: Setup = words::parse("vellum", words).map_err(|error| errors::option(&error))?;
        let Some((file, reading)) = setup.trace() else {
            return Err(OptionError::new_err("a trace has a path"));
        };
        let watches = [Watch::default()];
        let read = || TraceFile::read_watched(file, &reading, &watches[0]);
        let file = watched(py, &watches, || tell(&watches, progress), || Ok(()), read)?
            .map_err(|error| unread(&error))?;
        let file = Arc::new(file);
        Ok(Self { path, file })
    }

    /// The file.
    #[getter]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// True if its file has changed since it was read.
    #[getter]
    fn changed(&self) -> bool {
        self.file.unchanged().is_err()
    }

    /// Its format.
    #[getter]
    fn format(&self) -> &'static str {
        self.file.format().name()
    }

    /// Its counts, by name.
    #[getter]
    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let summary = self.file.summary();
        let out = PyDict::new(py);
        for (name, count) in [
            ("requests", summary.seen.requests),
            ("reads", summary.reads),
            ("writes", summary.writes),
            ("discards", summary.discards),
            ("flushes", summary.flushes),
            ("blocks_written", summary.blocks_written),
            ("blocks_told", summary.blocks_told),
            ("blocks_touched", self.file.blocks()),
            ("unaligned", summary.unaligned),
            ("lost", summary.seen.lost),
            ("first_ns", summary.first_at),
            ("last_ns", summary.last_at),
        ] {
            out.set_item(name, count)?;
        }
        Ok(out)
    }

    /// Its requests as columns, little-endian: time in nanoseconds, disk, operation, first byte, bytes.
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<[Bound<'py, PyBytes>; 5]> {
        // Not watched: the file was read to its end before.
        let columns = watched(
            py,
            &[],
            || Ok(()),
            || Ok(()),
            || {
                let mut columns = Columns::default();
                for traced in self.file.requests()? {
                    columns.add(&traced?);
                }
                Ok::<_, ReplayError>(columns)
            },
        )?;
        let columns = columns.map_err(|error| unread(&error))?;
        let Columns(columns) = columns;
        Ok(columns.map(|column| PyBytes::new(py, &column)))
    }
}

impl Trace {
    /// The trace that is replayed.
    pub fn file(&self) -> &Arc<TraceFile> {
        &self.file
    }
}

/// A code of `op`; the package has the list of their words.
const WRITE: u8 = 1;

#[derive(Default)]
struct Columns([Vec<u8>; 5]);

impl Columns {
    fn add(&mut self, traced: &Traced) {
        let [at, disk, op, offset, bytes] = &mut self.0;
        at.extend(traced.at.0.to_le_bytes());
        disk.extend(traced.disk.to_le_bytes());
        op.push(match traced.op {
            Op::Read => 0,
            Op::Write { fua: false } => WRITE,
            Op::Write { fua: true } => 2,
            Op::Discard { .. } => 3,
            Op::Flush => 4,
        });
        offset.extend(traced.offset.to_le_bytes());
        bytes.extend(traced.bytes.to_le_bytes());
    }
}

/// The files that the trace at this path consists of, by their names.
#[pyfunction]
pub fn files(path: PathBuf) -> Vec<PathBuf> {
    of_all_processors(&path)
}

fn unread(error: &ReplayError) -> PyErr {
    TraceError::new_err(errors::told(error))
}
