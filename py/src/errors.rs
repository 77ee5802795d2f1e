//! Errors as exceptions, in words that fit Python.

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use std::error::Error as StdError;
use vellum_options::words;

create_exception!(
    vellum,
    Error,
    PyException,
    "What the lab cannot do, and why."
);
create_exception!(
    vellum,
    OptionError,
    Error,
    "A load, drive, policy or option that does not exist, or does not go with the others."
);
create_exception!(vellum, TraceError, Error, "A trace that cannot be read.");
create_exception!(
    vellum,
    RunError,
    Error,
    "A run that cannot begin, or does not come to its end."
);

/// Adds them to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("Error", py.get_type::<Error>())?;
    module.add("OptionError", py.get_type::<OptionError>())?;
    module.add("TraceError", py.get_type::<TraceError>())?;
    module.add("RunError", py.get_type::<RunError>())
}

/// An error and its causes.
pub fn told(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let own = error.to_string();
        // Some include their cause.
        if !text.ends_with(&own) {
            text += &format!(": {own}");
        }
        cause = error.source();
    }
    words::in_python(&text)
}

/// The exception for a wrong option.
pub fn option(error: &dyn StdError) -> PyErr {
    OptionError::new_err(told(error))
}
