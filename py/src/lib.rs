//! The lab for Python: the native part of `vellum`, the package beside this crate.
//!
//! A run here is a run of `vellum lab run`: the same options, read by the same code, and the same figures. Figures are passed as the text
//! that the command prints (JSON, CSV), so each has one name everywhere. A trace's requests, which may be many, are passed as columns of
//! bytes. The package makes arrays of both.
#![forbid(unsafe_code)]

mod admit;
mod asked;
mod drives;
mod errors;
mod hot;
mod own;
mod run;
mod trace;
mod victim;
mod watched;

use pyo3::prelude::*;
use vellum_lab::fio_job::FioFile;
use vellum_lab::policy::listing;
use vellum_lab::workload;
use vellum_options::setup::Setup;
use vellum_options::words;

/// The options of a run: name, whether it takes a value, help.
#[pyfunction]
fn options() -> Vec<(String, bool, String)> {
    let told = words::list::<Setup>().into_iter();
    told.map(|told| (told.name, told.takes_value, words::in_python(&told.help)))
        .collect()
}

/// The loads that are known by name: name, what it is.
#[pyfunction]
fn workloads() -> Vec<(String, String)> {
    let loads = workload::workloads().iter();
    loads
        .map(|load| (load.name.into(), load.about.into()))
        .collect()
}

/// The valid names of policies, in words.
#[pyfunction]
fn policies() -> String {
    listing()
}

/// Reads the text of a job file of fio: the name of its first job, and the options in it that do not change its requests.
#[pyfunction]
fn jobs(text: &str) -> PyResult<(String, Vec<String>)> {
    let file = FioFile::read(text);
    let file = file.map_err(|error| errors::OptionError::new_err(errors::told(&error)))?;
    Ok((file.name().into(), file.passed_over().into()))
}

/// See the crate.
#[pymodule]
fn _lab(module: &Bound<'_, PyModule>) -> PyResult<()> {
    errors::add(module)?;
    module.add_class::<trace::Trace>()?;
    module.add_function(wrap_pyfunction!(trace::files, module)?)?;
    module.add_function(wrap_pyfunction!(options, module)?)?;
    module.add_function(wrap_pyfunction!(workloads, module)?)?;
    module.add_function(wrap_pyfunction!(policies, module)?)?;
    module.add_function(wrap_pyfunction!(jobs, module)?)?;
    module.add_function(wrap_pyfunction!(drives::drives, module)?)?;
    module.add_function(wrap_pyfunction!(drives::drive, module)?)?;
    module.add_function(wrap_pyfunction!(run::check, module)?)?;
    module.add_function(wrap_pyfunction!(run::run, module)?)
}
