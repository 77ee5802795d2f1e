//! Admission by a Python function.

use crate::asked::Asked;
use pyo3::prelude::*;
use vellum_lab::admission::{Admit, Admitted, Arrived};

/// The function. It gets a write: its first block, its contents as numbers, the virtual time, and whether it is durable.
pub struct Admission(pub Asked);

impl Admit for Admission {
    fn admit(&mut self, write: &Arrived<'_>) -> Admitted {
        let contents: Vec<u64> = write.contents.iter().map(|content| content.0).collect();
        let write = (write.lba, contents, write.now, write.durable);
        let (buffer, dedup, pack) = self.0.ask(|function| function.call1(write)?.extract());
        Admitted {
            buffer,
            dedup,
            pack,
        }
    }
}
