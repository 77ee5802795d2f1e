//! A victim policy that is a Python function.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Arc, Mutex, PoisonError};
use vellum_lab::base::{Choose, Closed};

/// The function, and what it raised: no run can raise, so it is kept until somebody looks.
#[derive(Clone)]
pub struct Victim(Arc<Asked>);

struct Asked {
    function: Py<PyAny>,
    raised: Mutex<Option<PyErr>>,
}

impl Victim {
    pub fn new(function: Py<PyAny>) -> Self {
        let raised = Mutex::new(None);
        Self(Arc::new(Asked { function, raised }))
    }

    /// What it has raised, once.
    pub fn raised(&self) -> PyResult<()> {
        let raised = self
            .0
            .raised
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        raised.map_or(Ok(()), Err)
    }

    /// Asks it. Numbers cross as columns, little-endian.
    fn ask(&self, py: Python<'_>, closed: &[Closed]) -> PyResult<usize> {
        let column = |of: &dyn Fn(&Closed) -> u64| {
            let bytes: Vec<u8> = closed
                .iter()
                .flat_map(|block| of(block).to_le_bytes())
                .collect();
            PyBytes::new(py, &bytes)
        };
        let pages = closed.first().map_or(0, |block| block.pages);
        let columns = (
            column(&|block| block.block.into()),
            column(&|block| block.valid.into()),
            column(&|block| block.age),
            pages,
        );
        self.0.function.bind(py).call1(columns)?.extract()
    }
}

impl Choose for Victim {
    fn choose(&mut self, closed: &[Closed]) -> usize {
        let lock = || self.0.raised.lock().unwrap_or_else(PoisonError::into_inner);
        // The run is about to be ended.
        if lock().is_some() {
            return 0;
        }
        Python::attach(|py| self.ask(py, closed)).unwrap_or_else(|error| {
            *lock() = Some(error);
            0
        })
    }
}
