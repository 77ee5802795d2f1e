//! A block device of ours as a kernel's: served by FUSE from this process, with a loop device on top.

use super::{eventually, run, text};
use std::path::Path;
use std::process::Command;
use vellum_frontend::fuse::{FuseExport, FuseServer};
use vellum_frontend::unaligned::ByteDevice;

/// Up until it is dropped, or taken down.
pub struct Chain {
    server: Option<FuseServer>,
    device: String,
}

impl Chain {
    /// Serves a device in this directory, which is empty.
    pub fn up(fuse: &Path, device: ByteDevice) -> Self {
        let export = FuseExport {
            name: "v".to_owned(),
            device,
        };
        let server = FuseServer::mount(fuse, vec![export]).unwrap();
        let file = fuse.join("v");
        let find = ["--find", "--show", "--direct-io=on", text(&file)];
        let device = run("losetup", &find).trim().to_owned();
        Self {
            server: Some(server),
            device,
        }
    }

    /// The kernel's device.
    pub fn device(&self) -> &str {
        &self.device
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.device]).output();
        if let Some(server) = self.server.take() {
            let _ = server.unmount();
        }
    }
}

/// Mounts, or says why not.
pub fn mount(options: &str, device: &str, at: &Path) -> Result<(), String> {
    let out = Command::new("mount")
        .args(["-o", options, device, text(at)])
        .output()
        .unwrap();
    match out.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&out.stderr).into_owned()),
    }
}

/// Unmounts. A child that another test has just forked has our open files until it runs its program: so once may be too soon.
pub fn unmount(mount: &Path) {
    eventually("it is unmounted", || {
        let _ = Command::new("umount").arg(mount).output().unwrap();
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        !mounts.contains(text(mount))
    });
}
