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

/// Makes a load one of an application that, with its kernel, takes this long for each block that it writes.
pub(super) fn working(scenario: &mut Scenario<'_>, write_ns: u64) {
    if let Load::Synthetic(load) = &mut scenario.load
        && let Pace::Closed { depth } = scenario.pace
        && write_ns > 0
    {
        load.write_ns = write_ns;
        scenario.pace = Pace::Working { depth };
    }
}
