//! What a tenant saw of its submission queue.

use super::percentiles::Percentiles;
use crate::sim::{Host, Sim};
use serde::Serialize;
use vellum_core::addr::BLOCK_BYTES;

/// A tenant's queue, and how fast it was served.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Queued {
    /// The number of its queue.
    pub number: u16,
    /// The class of that queue, if arbitration is weighted.
    pub class: Option<&'static str>,
    /// How long its requests waited until the controller took them. That is a part of their latency.
    pub waited: Percentiles,
    /// From its first request to its last answer.
    pub seconds: f64,
    /// Requests answered in a second of that.
    pub requests_per_second: f64,
    /// Bytes read and written in a second of that.
    pub bytes_per_second: f64,
}

impl Queued {
    /// What a tenant saw, if the drive has queues.
    pub(super) fn of(sim: &Sim, tenant: u8, host: &Host) -> Option<Self> {
        let (number, class) = sim.queue_of(tenant)?;
        let seconds = host.nanos() as f64 / 1e9;
        let rate = |count: u64| match seconds > 0.0 {
            true => count as f64 / seconds,
            false => 0.0,
        };
        Some(Self {
            number,
            class: class.map(|class| class.name()),
            waited: (&host.waited).into(),
            seconds,
            requests_per_second: rate(host.served),
            bytes_per_second: rate((host.blocks_written + host.blocks_read) * BLOCK_BYTES as u64),
        })
    }
}
