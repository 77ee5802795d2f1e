//! Finds a drive that is large enough, for advice.

use super::Scenario;
use super::capacity::Enough;
use super::device::Device;
use crate::policy::Policy;

const MIB: u64 = 1 << 20;
/// No larger drive is tried: each try takes memory.
const CAPACITY_TRIED: u64 = 64 << 30;
/// No more over-provisioning is tried, in thousandths.
const OVER_TRIED: u32 = 900;

impl Scenario<'_> {
    /// Finds it by trying.
    #[must_use]
    pub fn enough(&self, policy: &Policy) -> Enough {
        let fits = |device: Device| {
            let tried = Scenario { device, ..*self };
            let built = tried.build(policy);
            built.is_ok_and(|built| tried.holds(policy, built.logical).is_ok())
        };
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
