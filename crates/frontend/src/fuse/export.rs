//! What is shown as a file.

use crate::unaligned::ByteDevice;

/// A volume to show as a file.
pub struct FuseExport {
    /// The file's name.
    pub name: String,
    /// The volume: a clone of the one its other front ends use.
    pub device: ByteDevice,
}
