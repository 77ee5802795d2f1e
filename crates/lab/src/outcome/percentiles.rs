//! Latencies in short.

use crate::latency::Latencies;
use serde::Serialize;

/// How long one kind of request took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    /// How many requests.
    pub count: u64,
    /// Nanoseconds of virtual time, like all fields below.
    pub mean_ns: u64,
    /// Half of them took no longer.
    pub p50_ns: u64,
    /// 99 in a hundred.
    pub p99_ns: u64,
    /// 999 in a thousand.
    pub p999_ns: u64,
    /// 9999 in ten thousand.
    pub p9999_ns: u64,
    /// The longest.
    pub most_ns: u64,
}

impl From<&Latencies> for Percentiles {
    fn from(from: &Latencies) -> Self {
        Self {
            count: from.count(),
            mean_ns: from.mean(),
            p50_ns: from.percentile(50_000),
            p99_ns: from.percentile(99_000),
            p999_ns: from.percentile(99_900),
            p9999_ns: from.percentile(99_990),
            most_ns: from.most(),
        }
    }
}
