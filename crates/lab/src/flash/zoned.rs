//! Zones: a drive that is written only in order, and moves nothing by itself (NVMe's zoned namespaces).

/// How a drive's flash is made into zones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Zoned {
    /// Dies that a zone spans: neighbours.
    pub dies: u32,
    /// Erase blocks of a zone on each of them.
    pub deep: u32,
    /// Bytes from one zone to the next, at least what a zone holds; 0: the next power of two of that.
    pub size_bytes: u64,
    /// The most zones that are open at a time.
    pub open: u32,
    /// The most zones that are open or closed, and neither empty nor full.
    pub active: u32,
    /// Zones that may be overwritten: a small page map of the drive's own runs them.
    pub conventional: u32,
}
