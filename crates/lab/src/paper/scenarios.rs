//! The scenarios that the evaluations begin from: a load on a device of this crate's own.

use crate::drives;
use crate::scenario::{Device, Load, Scenario, Synthetic};
use crate::sim::Pace;
use crate::workload::{self, Workload};

/// The load of this name.
pub(super) fn workload(name: &str) -> Workload {
    let Some(workload) = workload::find(name) else {
        unreachable!("{name}: a load of this crate's own")
    };
    *workload
}

/// A load on one of this crate's devices, new, with 32 requests open.
pub(super) fn scenario(device: &str, capacity: u64, load: Synthetic) -> Scenario<'static> {
    Scenario {
        pace: Pace::Closed { depth: 32 },
        verify: false,
        ..Scenario::new(
            Device {
                capacity: Some(capacity),
                ..Device::new(drives::own(device))
            },
            Load::Synthetic(load),
        )
    }
}
