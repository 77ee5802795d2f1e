//! Drives: by name, or as the text of a file.

use crate::errors::{self, OptionError};
use pyo3::prelude::*;
use vellum_lab::drives::{self as known, DriveFile};

/// A drive's name, its description, the source of its figures, and its file.
type Told = (String, String, String, String);

fn told(drive: &DriveFile) -> Told {
    let DriveFile {
        name,
        about,
        source,
        ..
    } = drive.clone();
    (name, about, source, drive.written())
}

/// Reads a drive's file.
pub fn read(name: &str, text: &str) -> PyResult<DriveFile> {
    DriveFile::read(name, text)
        .map_err(|error| OptionError::new_err(format!("drive {name:?}: {}", errors::told(&error))))
}

/// The drives that are known by name.
#[pyfunction]
pub fn drives() -> Vec<Told> {
    known::known().iter().map(told).collect()
}

/// Makes a drive from a name and a file's text: checks it, and writes it out.
#[pyfunction]
pub fn drive(name: &str, text: &str) -> PyResult<Told> {
    read(name, text).map(|drive| told(&drive))
}
