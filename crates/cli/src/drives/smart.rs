//! SMART: for NVMe through the kernel, for other drives through smartctl, if that is installed.

use crate::host;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use vellum_ops::drive::{LOG_BYTES, Wear, of_log, of_report};

/// The kernel's `nvme_admin_cmd`.
#[repr(C)]
#[derive(Default)]
struct AdminCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    words_2: [u32; 2],
    metadata: u64,
    data: u64,
    metadata_bytes: u32,
    data_bytes: u32,
    words_10: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

const _: () = assert!(size_of::<AdminCommand>() == 72);

/// `_IOWR('N', 0x41, struct nvme_admin_cmd)`
const NVME_IOCTL_ADMIN_CMD: u64 = 0xc048_4e41;
const GET_LOG_PAGE: u8 = 0x02;
const SMART: u32 = 0x02;
const ALL_NAMESPACES: u32 = u32::MAX;
const TIMEOUT_MS: u32 = 1000;

/// Returns a drive's reported wear.
///
/// # Errors
/// Why it is not known.
pub fn wear(name: &str) -> Result<Wear, String> {
    if name.starts_with("nvme") {
        return of_log(&log(name)?);
    }
    // Other devices have nothing below them that wears, or nothing that can be queried this way.
    let is_asked = name.starts_with("sd") && !name.starts_with("sdio");
    if !is_asked {
        return Err(format!(
            "{name} is a kind of drive that does not tell its wear"
        ));
    }
    if !host::has("smartctl") {
        return Err(format!(
            "{name} is asked by smartctl, which is not installed (smartmontools)"
        ));
    }
    let mut command = host::command("smartctl");
    let device = Path::new("/dev").join(name);
    // A sleeping drive is not woken. The exit code reports the drive's health, among other things.
    let asked = command
        .args(["--json", "--nocheck=standby", "--log=devstat", "--info"])
        .arg(device);
    let said = asked
        .output()
        .map_err(|error| format!("smartctl cannot be run: {error}"))?;
    of_report(&String::from_utf8_lossy(&said.stdout)).map_err(|why| format!("{name}: {why}"))
}

fn log(name: &str) -> Result<[u8; LOG_BYTES], String> {
    let device = Path::new("/dev").join(name);
    let refused = |error: std::io::Error| format!("{name} cannot be asked for its wear: {error}");
    let file = File::open(&device).map_err(refused)?;
    let mut log = [0_u8; LOG_BYTES];
    let mut command = AdminCommand {
        opcode: GET_LOG_PAGE,
        namespace: ALL_NAMESPACES,
        data: log.as_mut_ptr() as u64,
        data_bytes: LOG_BYTES as u32,
        timeout_ms: TIMEOUT_MS,
        ..AdminCommand::default()
    };
    // In words of four bytes, minus one.
    command.words_10[0] = ((LOG_BYTES as u32 / 4 - 1) << 16) | SMART;
    // SAFETY: the command has the kernel's layout, and `log` is as long as it says and outlives the call.
    match unsafe {
        libc::ioctl(
            file.as_raw_fd(),
            NVME_IOCTL_ADMIN_CMD as _,
            &raw mut command,
        )
    } {
        0 => Ok(log),
        ..0 => Err(refused(std::io::Error::last_os_error())),
        status => Err(format!("{name} refuses its SMART log: status {status:#x}")),
    }
}
