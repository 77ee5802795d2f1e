//! How much flash a device has, and how much of it the host sees.

use vellum_core::addr::BLOCK_BYTES;

/// The flash simulated by default: a run takes seconds.
pub const DEFAULT_BYTES: u64 = 4 << 30;
/// The most flash simulated: the reach of the engine's entries of 4 bytes.
pub const CAPACITY_MAX: u64 = 8 << 40;
/// Memory of the simulation per block of flash: with a page map, and with the engine and an index of contents.
const MEMORY_BYTES: (u64, u64) = (8, 22);

/// The device has more flash than is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a device of {bytes} bytes: at most {} are simulated, which takes from {} to {} of memory",
    crate::report::bytes(CAPACITY_MAX),
    crate::report::bytes(CAPACITY_MAX / BLOCK_BYTES as u64 * MEMORY_BYTES.0),
    crate::report::bytes(CAPACITY_MAX / BLOCK_BYTES as u64 * MEMORY_BYTES.1)
)]
pub struct TooLarge {
    /// Bytes of the device.
    pub bytes: u64,
}

/// Blocks that the host sees: over-provisioning is a share of those (T / U - 1).
pub(super) fn logical(physical: u64, over_permille: u32) -> u64 {
    physical * 1000 / u64::from(1000 + over_permille)
}

/// The reverse: blocks of flash for as many that the host sees.
pub(super) fn physical(logical: u64, over_permille: u32) -> u64 {
    (logical * u64::from(1000 + over_permille)).div_ceil(1000)
}

/// The least of either that is enough, with the other as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enough {
    /// Bytes of flash, in whole MiB.
    pub capacity: Option<u64>,
    /// Over-provisioning, in thousandths.
    pub over_provisioning: Option<u32>,
}
