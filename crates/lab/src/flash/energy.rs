//! Counts of flash operations, and the energy they took: a fixed amount for each page read or programmed, and for each block
//! erased.
//!
//! That covers the cells and what drives them. A drive's controller, its RAM and its link take more, whatever the flash does.

use serde::Serialize;

/// Counts of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Units sensed.
    pub reads: u64,
    /// Pages of those, each as often as it was tried.
    pub pages_read: u64,
    /// Units programmed.
    pub programs: u64,
    /// Blocks erased.
    pub erases: u64,
    /// Blocks of the SLC cache erased: they take energy, and do not wear out here.
    pub erases_slc: u64,
}

/// Energy of each operation, in nanojoules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Energy {
    /// To read a page from its cells.
    pub read_nj: u64,
    /// To program one.
    pub program_nj: u64,
    /// To erase a block.
    pub erase_nj: u64,
}

/// Energy taken, in joules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Taken {
    /// By reads, including those of the collector and of read-modify-write.
    pub reads_j: f64,
    /// By programs.
    pub programs_j: f64,
    /// By erasures.
    pub erases_j: f64,
}

impl Taken {
    /// Returns the sum.
    #[must_use]
    pub fn all(&self) -> f64 {
        self.reads_j + self.programs_j + self.erases_j
    }
}

impl Energy {
    /// Returns the energy of these operations, on dies whose `planes` planes work together.
    #[must_use]
    pub fn taken(&self, counts: &Counts, planes: u32) -> Taken {
        let joules = |times: u64, nanojoules: u64| times as f64 * nanojoules as f64 / 1e9;
        let planes = u64::from(planes);
        Taken {
            reads_j: joules(counts.pages_read, self.read_nj),
            programs_j: joules(counts.programs * planes, self.program_nj),
            erases_j: joules((counts.erases + counts.erases_slc) * planes, self.erase_nj),
        }
    }
}
