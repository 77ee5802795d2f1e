//! The device of a scenario.

use crate::flash::{self, Preset};

/// A device with a size.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    /// The kind of device.
    pub preset: Preset,
    /// Bytes of flash, rounded up to whole rounds of erase blocks; none: a size that takes seconds.
    pub capacity: Option<u64>,
    /// Over-provisioning in thousandths; none: the device's.
    pub over_provisioning: Option<u32>,
    /// Erasures that a block endures; none: the device's.
    pub erase_limit: Option<u32>,
    /// The time of a flush in a drive with a page map, besides the writes it waits for, in nanoseconds. A block device
    /// has a figure for that.
    pub flush_ns: u64,
    /// True if reads overtake programs and erasures that have not begun.
    pub read_priority: bool,
    /// Further behaviour of its flash.
    pub options: flash::Options,
}

impl Device {
    /// The default: reads overtake, and a flush takes no extra time.
    #[must_use]
    pub fn new(preset: Preset) -> Self {
        Self {
            preset,
            capacity: None,
            over_provisioning: None,
            erase_limit: None,
            flush_ns: 0,
            read_priority: true,
            options: flash::Options::default(),
        }
    }
}
