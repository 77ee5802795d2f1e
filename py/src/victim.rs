//! A victim policy that is a Python function.

use crate::asked::Asked;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use vellum_lab::base::{Choose, Closed};

/// The function.
pub struct Victim(pub Asked);

/// Calls the function. Numbers are passed as columns, little-endian.
fn ask(function: &Bound<'_, PyAny>, closed: &[Closed]) -> PyResult<usize> {
    let py = function.py();
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
    function.call1(columns)?.extract()
}

impl Choose for Victim {
    fn choose(&mut self, closed: &[Closed]) -> usize {
        self.0.ask(|function| ask(function, closed))
    }
}
