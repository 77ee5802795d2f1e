//! A Python function that a run asks.

use pyo3::prelude::*;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The function, and its exception: a run cannot raise, so the exception is kept until it is taken.
#[derive(Clone)]
pub struct Asked(Arc<Function>);

struct Function {
    function: Py<PyAny>,
    raised: Mutex<Option<PyErr>>,
}

impl Asked {
    pub fn new(function: Py<PyAny>) -> Self {
        let raised = Mutex::new(None);
        Self(Arc::new(Function { function, raised }))
    }

    fn lock(&self) -> MutexGuard<'_, Option<PyErr>> {
        self.0.raised.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Raises the function's exception, once.
    pub fn raised(&self) -> PyResult<()> {
        self.lock().take().map_or(Ok(()), Err)
    }

    /// Calls it. Once it has raised, answers with a default: the run is about to be ended.
    pub fn ask<R: Default>(&self, ask: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<R>) -> R {
        if self.lock().is_some() {
            return R::default();
        }
        let said = Python::attach(|py| ask(self.0.function.bind(py)));
        said.unwrap_or_else(|error| {
            *self.lock() = Some(error);
            R::default()
        })
    }
}
