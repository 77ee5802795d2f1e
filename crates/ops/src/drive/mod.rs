//! What a drive reports about its own wear: the SMART log of NVMe, smartctl's report for SATA, the life time estimates of eMMC.

mod emmc;
mod nvme;
mod smartctl;
mod wear;

pub use emmc::of_estimates;
pub use nvme::{LOG_BYTES, of_log};
pub use smartctl::of_report;
pub use wear::Wear;

/// A drive that volumes are on.
#[derive(Clone, Debug)]
pub struct Drive {
    /// The kernel's name for it.
    pub name: String,
    /// Its maker's name for it.
    pub model: Option<String>,
    /// Bytes that the kernel has written to it since boot, whoever wrote them.
    pub written_bytes: Option<u64>,
    /// Its wear, or why it is not known.
    pub wear: Result<Wear, String>,
    /// The bytes that its data sheet promises it can take, if a user has given them.
    pub promised_bytes: Option<u64>,
}
