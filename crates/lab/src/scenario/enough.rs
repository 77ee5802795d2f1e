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
    /// Finds by trying what is enough for all of these policies.
    #[must_use]
    pub fn enough(&self, policies: &[Policy]) -> Enough {
        let fits = |device: Device, policy: &Policy| {
            let tried = Scenario { device, ..*self };
            let built = tried.build(policy);
            built.is_ok_and(|built| tried.holds(policy, built.logical).is_ok())
        };
        let all_fit = |device: Device| policies.iter().all(|policy| fits(device, policy));
        let overs = policies.iter().map(|policy| self.over(policy));
        let has = overs.clone().map(|over| self.bytes(over)).min();
        let capacity = least(
            has.unwrap_or(0).div_ceil(MIB),
            CAPACITY_TRIED / MIB,
            |mib| {
                let capacity = Some(mib * MIB);
                all_fit(Device {
                    capacity,
                    ..self.device
                })
            },
        );
        // A policy's own goes before the device's.
        let mut own = policies
            .iter()
            .filter(|policy| policy.over_provisioning.is_some());
        let may_help = own.all(|policy| fits(self.device, policy));
        let least_over = || {
            least(overs.min().unwrap_or(0).into(), OVER_TRIED.into(), |over| {
                let over_provisioning = Some(over as u32);
                all_fit(Device {
                    over_provisioning,
                    ..self.device
                })
            })
        };
        let over_provisioning = may_help.then(least_over).flatten();
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
