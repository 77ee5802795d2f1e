//! Placement handles: a host says which of its writes belong together (NVMe's flexible data placement).

/// What a host says with a write about where it belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// The handle.
    pub handle: u8,
    /// True if the handle's reclaim unit is to end here, unless less than half of it is written (NVMe: a reclaim unit handle update,
    /// by a host that looks at what is left of the unit). So what is freed together is in one unit.
    pub anew: bool,
}

impl Stream {
    /// Returns the stream of a handle.
    #[must_use]
    pub fn of(handle: u8) -> Self {
        Self {
            handle,
            anew: false,
        }
    }
}

/// The most handles of a drive.
pub const HANDLES_MAX: u32 = 16;

/// The handles of a drive. What is written to one of them is apart from what is written to the others: in the words of NVMe, each
/// reclaim unit handle fills a reclaim unit of its own, here an erase block on each die.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// How many there are.
    pub handles: u32,
    /// True if what the collector moves shares blocks, whatever handle it was written to (NVMe: initially isolated). Otherwise it
    /// stays with what is written to its handle (persistently isolated).
    pub initially: bool,
}
