//! Hot and cold told apart by a Python function.

use crate::asked::Asked;
use pyo3::prelude::*;
use vellum_lab::base::Separate;

/// The function, of a page and where it was: nowhere when the host writes it.
pub struct Hot(pub Asked);

impl Hot {
    fn ask(&self, page: u64, was: Option<bool>) -> bool {
        self.0
            .ask(|function| function.call1((page, was))?.extract())
    }
}

impl Separate for Hot {
    fn written(&mut self, page: u64) -> bool {
        self.ask(page, None)
    }

    fn moved(&mut self, page: u64, hot: bool) -> bool {
        self.ask(page, Some(hot))
    }
}
