//! `/dev/ublk-control`: makes and removes devices by commands through io_uring.

use super::error::UblkError;
use super::ring::{Ring, pause, ring};
use super::uapi::{self, ControlCommand, ControlOp, DeviceInfo, Params};
use io_uring::{IoUring, opcode, types};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;

/// The device that makes and removes devices.
const CONTROL: &str = "/dev/ublk-control";
/// One command at a time.
const ENTRIES: u32 = 1;

/// The control device, for one thread. A server keeps it to its end: then it may open nothing.
pub struct Control {
    file: File,
    ring: Ring,
}

impl Control {
    /// Opens it, and checks that this kernel's ublk has what we use.
    pub fn open() -> Result<Self, UblkError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(CONTROL)
            .map_err(|e| match e.kind() {
                io::ErrorKind::NotFound => UblkError::NoDriver,
                io::ErrorKind::PermissionDenied => UblkError::NotAllowed,
                _ => UblkError::Node {
                    path: CONTROL.into(),
                    source: e,
                },
            })?;
        let ring = ring(&mut IoUring::builder(), ENTRIES).map_err(UblkError::Ring)?;
        let mut control = Self { file, ring };
        let wanted = uapi::F_USER_COPY | uapi::F_CMD_IOCTL_ENCODE;
        // Kernels that do not answer this are older than user copy.
        match control.features() {
            Ok(features) if features & wanted == wanted => Ok(control),
            Err(UblkError::Command { source, .. })
                if source.raw_os_error() == Some(libc::EPERM) =>
            {
                Err(UblkError::NotAllowed)
            }
            _ => Err(UblkError::TooOld),
        }
    }

    fn features(&mut self) -> Result<u64, UblkError> {
        let mut features = 0_u64;
        let mut command = ControlCommand::new(uapi::NO_DEVICE);
        command.address = (&raw mut features) as u64;
        command.len = size_of::<u64>() as u16;
        // SAFETY: eight bytes, which outlive the call.
        unsafe { self.command(ControlOp::GetFeatures, &command) }?;
        Ok(features)
    }

    /// Describes a device.
    pub fn info(&mut self, device: u32) -> Result<DeviceInfo, UblkError> {
        let mut info = DeviceInfo::default();
        let mut command = ControlCommand::new(device);
        command.address = (&raw mut info) as u64;
        command.len = size_of::<DeviceInfo>() as u16;
        // SAFETY: the structure outlives the call, and any bytes make one.
        unsafe { self.command(ControlOp::GetDevInfo, &command) }?;
        Ok(info)
    }

    /// Makes a device. The kernel chooses its number and may reduce what was requested.
    pub fn add(&mut self, mut info: DeviceInfo) -> Result<DeviceInfo, UblkError> {
        info.device = uapi::NO_DEVICE;
        let mut command = ControlCommand::new(uapi::NO_DEVICE);
        command.address = (&raw mut info) as u64;
        command.len = size_of::<DeviceInfo>() as u16;
        // SAFETY: the structure outlives the call, and any bytes make one.
        unsafe { self.command(ControlOp::AddDev, &command) }?;
        Ok(info)
    }

    /// Sets a device's limits, before it is started.
    pub fn set_params(&mut self, device: u32, params: &Params) -> Result<(), UblkError> {
        let mut command = ControlCommand::new(device);
        command.address = std::ptr::from_ref(params) as u64;
        command.len = size_of::<Params>() as u16;
        // SAFETY: the structure outlives the call, which only reads it.
        unsafe { self.command(ControlOp::SetParams, &command) }
    }

    /// Makes its block node. Returns when every queue has fetched and the partition table has been read.
    pub fn start(&mut self, device: u32) -> Result<(), UblkError> {
        let mut command = ControlCommand::new(device);
        command.data = u64::from(std::process::id());
        // SAFETY: the command carries no address.
        unsafe { self.command(ControlOp::StartDev, &command) }
    }

    /// Removes its block node, after the kernel has written what it still had.
    pub fn stop(&mut self, device: u32) -> Result<(), UblkError> {
        // SAFETY: the command carries no address.
        unsafe { self.command(ControlOp::StopDev, &ControlCommand::new(device)) }
    }

    /// Removes the device. A process that still has it open keeps a dead one, and its number.
    pub fn delete(&mut self, device: u32) -> Result<(), UblkError> {
        let command = ControlCommand::new(device);
        // SAFETY: the command carries no address.
        match unsafe { self.command(ControlOp::DelDevAsync, &command) } {
            Err(UblkError::Command { source, .. }) if is_unknown(&source) => {
                // SAFETY: the command carries no address.
                unsafe { self.command(ControlOp::DelDev, &command) }
            }
            result => result,
        }
    }

    /// Gives a command and waits for it.
    ///
    /// # Safety
    /// The memory that the command's address points at must be valid for its length, and for what the kernel does with it.
    unsafe fn command(&mut self, op: ControlOp, command: &ControlCommand) -> Result<(), UblkError> {
        let failed = |source| UblkError::Command {
            what: op.name(),
            device: command.device,
            source,
        };
        let entry = opcode::UringCmd80::new(types::Fd(self.file.as_raw_fd()), op.code())
            .cmd(command.encode())
            .build();
        // SAFETY: by this function's contract; we wait for the end below.
        unsafe { self.ring.submission().push(&entry) }
            .map_err(|e| failed(io::Error::other(e.to_string())))?;
        loop {
            if let Err(error) = self.ring.submit_and_wait(1).map(drop).or_else(pause) {
                // The entry may still be in the queue. It must not be submitted later, when the memory its address points at
                // is gone. If a server may make no ring any more, the entry fills the old one, which submits nothing.
                if let Ok(new) = ring(&mut IoUring::builder(), ENTRIES) {
                    self.ring = new;
                }
                return Err(failed(error));
            }
            if let Some(done) = self.ring.completion().next() {
                return match done.result() {
                    result if result < 0 => Err(failed(io::Error::from_raw_os_error(-result))),
                    _ => Ok(()),
                };
            }
        }
    }
}

/// True if the kernel does not know a command.
fn is_unknown(error: &std::io::Error) -> bool {
    // Its own ENOTSUPP, which is no error of the C library's: it was returned by mistake until the end of 2024.
    const ENOTSUPP: i32 = 524;
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | ENOTSUPP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_command_is_told_from_one_that_failed() {
        let is_unknown = |errno| is_unknown(&std::io::Error::from_raw_os_error(errno));
        assert!(is_unknown(libc::EOPNOTSUPP) && is_unknown(524));
        assert!(!is_unknown(libc::EBUSY) && !is_unknown(libc::EINVAL));
    }
}
