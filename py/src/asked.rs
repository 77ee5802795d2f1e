//! A Python function that a run asks.

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The function, and its exception: a run cannot raise, so the exception is kept until it is taken.
#[derive(Clone)]
pub struct Asked(Arc<Function>);

struct Function {
    function: Py<PyAny>,
    raised: Mutex<Option<PyErr>>,
    /// The interpreter's number of the thread in which it runs; 0 if it does not.
    runs_in: AtomicU64,
}

impl Asked {
    pub fn new(function: Py<PyAny>) -> Self {
        let raised = Mutex::new(None);
        Self(Arc::new(Function {
            function,
            raised,
            runs_in: AtomicU64::new(0),
        }))
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
        let said = Python::attach(|py| {
            self.0.runs_in.store(thread(py)?, Ordering::Relaxed);
            let said = ask(self.0.function.bind(py));
            self.0.runs_in.store(0, Ordering::Relaxed);
            said
        });
        said.unwrap_or_else(|error| {
            *self.lock() = Some(error);
            R::default()
        })
    }

    /// Raises `KeyboardInterrupt` in it, if it runs. It gets there with its next step in Python.
    pub fn interrupt(&self, py: Python<'_>) -> PyResult<()> {
        // While this thread is attached, it neither ends nor begins.
        let number = self.0.runs_in.load(Ordering::Relaxed);
        if number == 0 {
            return Ok(());
        }
        let ctypes = py.import("ctypes")?;
        let thread = ctypes.call_method1("c_ulong", (number,))?;
        let what = ctypes.call_method1("py_object", (py.get_type::<PyKeyboardInterrupt>(),))?;
        let python = ctypes.getattr("pythonapi")?;
        let set = python.call_method1("PyThreadState_SetAsyncExc", (thread, what));
        set.map(|_| ())
    }
}

/// The interpreter's number of this thread.
fn thread(py: Python<'_>) -> PyResult<u64> {
    thread_local!(static NUMBER: Cell<u64> = const { Cell::new(0) });
    if NUMBER.get() == 0 {
        let number = py.import("threading")?.call_method0("get_ident")?;
        NUMBER.set(number.extract()?);
    }
    Ok(NUMBER.get())
}
