//! What a drive tells of its own wear: the SMART log of NVMe, what smartctl reads of SATA, the life time estimates of eMMC.

mod emmc;
mod nvme;
mod smartctl;
mod wear;

pub use emmc::of_estimates;
pub use nvme::{LOG_BYTES, of_log};
pub use smartctl::of_report;
pub use wear::Wear;

/// A drive that volumes lie on.
#[derive(Clone, Debug)]
pub struct Drive {
    /// As the kernel calls it.
    pub name: String,
    /// As its maker calls it.
    pub model: Option<String>,
    /// Bytes that the kernel has written to it since boot, for whomever.
    pub written_bytes: Option<u64>,
    /// What it tells, or why it does not.
    pub wear: Result<Wear, String>,
    /// Bytes that its data sheet promises to take, if somebody has looked.
    pub promised_bytes: Option<u64>,
}
