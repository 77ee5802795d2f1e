//! Page types: how long reading and programming a page takes depends on its position in its cells.
//!
//! A cell of three bits has a lower, a middle and an upper page, and one of four bits has four pages. Each further bit of a cell
//! takes longer to read and program. The page types of a block follow each other in the order of programming.

/// The most page types: one for each bit of a cell.
pub const TYPES_MAX: usize = 5;
/// The page types, and pages with one bit a cell.
const KINDS: usize = TYPES_MAX + 1;

/// A page's type, among the drive's types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell(u8);

impl Cell {
    /// The only type, or the first.
    pub const FIRST: Self = Self(0);
    /// One bit a cell.
    pub const SLC: Self = Self(TYPES_MAX as u8);

    /// Returns the type of program unit `unit` of a block, on a drive with `types` page types.
    #[must_use]
    pub fn of_unit(unit: u32, types: u32) -> Self {
        match types {
            0 | 1 => Self::FIRST,
            _ => Self((unit % types) as u8),
        }
    }
}

/// The page types of a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageTypes {
    /// The number of types; 0 if all pages take the same time.
    count: u32,
    times: [(u64, u64); TYPES_MAX],
}

impl PageTypes {
    /// Takes the read and program times of each type, in the order of programming. Returns `None` if there are too many.
    #[must_use]
    pub fn new(times: &[(u64, u64)]) -> Option<Self> {
        let mut types = Self {
            count: times.len() as u32,
            ..Self::default()
        };
        types.times.get_mut(..times.len())?.copy_from_slice(times);
        Some(types)
    }

    /// Returns the number of types; 0 if all pages take the same time.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the read and program time of each type.
    #[must_use]
    pub fn times(&self) -> &[(u64, u64)] {
        &self.times[..self.count as usize]
    }
}

/// A cache of blocks with one bit a cell, which a page map writes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlcCache {
    /// Erase blocks of each die, in addition to those that hold data.
    pub blocks: u32,
    /// Bits a cell of the other blocks, which therefore have that many times as many pages.
    pub bits: u32,
    /// Time from the cells to the register.
    pub read_ns: u64,
    /// Time from the register to the cells.
    pub program_ns: u64,
    /// Time to erase a block.
    pub erase_ns: u64,
    /// How long the host must be idle before the cache is folded; `None`: it is folded only when full.
    pub idle_ns: Option<u64>,
}

impl SlcCache {
    /// Returns the program units of a cache block, if the other blocks have `units`.
    #[must_use]
    pub fn units(&self, units: u32) -> u32 {
        units / self.bits
    }
}

/// Read and program times, by page type.
pub(super) struct CellTimes {
    read_ns: [u64; KINDS],
    program_ns: [u64; KINDS],
}

impl CellTimes {
    /// Builds the table. Types without times of their own take the given ones.
    pub fn new(
        (read_ns, program_ns): (u64, u64),
        types: &PageTypes,
        slc: Option<&SlcCache>,
    ) -> Self {
        let mut times = Self {
            read_ns: [read_ns; KINDS],
            program_ns: [program_ns; KINDS],
        };
        for (at, &(read, program)) in types.times().iter().enumerate() {
            (times.read_ns[at], times.program_ns[at]) = (read, program);
        }
        if let Some(slc) = slc {
            (times.read_ns[TYPES_MAX], times.program_ns[TYPES_MAX]) = (slc.read_ns, slc.program_ns);
        }
        times
    }

    pub fn read(&self, cell: Cell) -> u64 {
        self.read_ns[usize::from(cell.0)]
    }

    pub fn program(&self, cell: Cell) -> u64 {
        self.program_ns[usize::from(cell.0)]
    }
}
