//! How much flash a device has, and how much of it the host sees.

use super::Scenario;
use super::device::Device;
use crate::policy::Policy;
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

const MIB: u64 = 1 << 20;
/// No larger drive is tried: each try takes memory.
const CAPACITY_TRIED: u64 = 64 << 30;
/// No more over-provisioning is tried, in thousandths.
const OVER_TRIED: u32 = 900;

/// The least of either that is enough, with the other as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enough {
    /// Bytes of flash, in whole MiB.
    pub capacity: Option<u64>,
    /// Over-provisioning, in thousandths.
    pub over_provisioning: Option<u32>,
}

impl Scenario<'_> {
    /// Finds it by trying.
    #[must_use]
    pub fn enough(&self, policy: &Policy) -> Enough {
        let fits = |device: Device| Scenario { device, ..*self }.build(policy).is_ok();
        let over = self.over(policy);
        let has = self.bytes(over).div_ceil(MIB);
        let capacity = least(has, CAPACITY_TRIED / MIB, |mib| {
            let capacity = Some(mib * MIB);
            fits(Device {
                capacity,
                ..self.device
            })
        });
        // A policy's own goes before the device's.
        let is_open = policy.over_provisioning.is_none();
        let over_provisioning = least(over.into(), u64::from(OVER_TRIED), |over| {
            let over_provisioning = Some(over as u32);
            is_open
                && fits(Device {
                    over_provisioning,
                    ..self.device
                })
        });
        Enough {
            capacity: capacity.map(|mib| mib * MIB),
            over_provisioning: over_provisioning.map(|over| over as u32),
        }
    }
}

/// The least number above `low` that is enough, and at most `high`.
fn least(low: u64, high: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
    let (mut low, mut at) = (low.max(1), low.max(1));
    // A large drive takes long to make, so the first guesses are small.
    while !fits(at) {
        low = at;
        at = (2 * at).min(high);
        if low >= high {
            return None;
        }
    }
    while low + 1 < at {
        let middle = u64::midpoint(low, at);
        match fits(middle) {
            true => at = middle,
            false => low = middle,
        }
    }
    Some(at)
}
