//! A Python function that separates hot from cold pages.

use crate::asked::Asked;
use pyo3::prelude::*;
use vellum_lab::base::Separate;

/// The function. It gets a page, and whether the page was hot; `None` if the host writes it.
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
