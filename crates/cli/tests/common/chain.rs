//! A Vellum device as a kernel block device: served from this process over FUSE, with a loop device on top, or over ublk.

use super::{eventually, run, text};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use vellum_frontend::fuse::{FuseExport, FuseServer};
use vellum_frontend::ublk::{Report, UblkServer};
use vellum_frontend::unaligned::ByteDevice;

/// The front end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Fuse,
    Ublk,
}

impl Way {
    /// Returns FUSE, unless `WAY=ublk`.
    pub fn asked_for() -> Self {
        match std::env::var("WAY").as_deref() {
            Ok("ublk") => Self::Ublk,
            Ok("fuse") | Err(_) => Self::Fuse,
            Ok(other) => panic!("WAY={other}: it is neither fuse nor ublk"),
        }
    }
}

/// A running device, until it is dropped or taken down.
pub struct Chain {
    server: Option<Server>,
    device: String,
}

enum Server {
    Fuse(FuseServer),
    Ublk(UblkServer),
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
            server: Some(Server::Fuse(server)),
            device,
        }
    }

    /// Serves a device over ublk, with a queue for each processor, four at most.
    pub fn ublk(device: ByteDevice) -> Self {
        let report: Report = Arc::new(|said| eprintln!("ublk: {said}"));
        let server = UblkServer::start(device, None, &report).unwrap();
        let path = server.path();
        Self {
            server: Some(Server::Ublk(server)),
            device: text(&path).to_owned(),
        }
    }

    /// Serves a device over the given front end; for FUSE, in this directory.
    pub fn by(way: Way, fuse: &Path, device: ByteDevice) -> Self {
        match way {
            Way::Fuse => Self::up(fuse, device),
            Way::Ublk => Self::ublk(device),
        }
    }

    /// Returns the path of the kernel's device.
    pub fn device(&self) -> &str {
        &self.device
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        match self.server.take() {
            Some(Server::Fuse(server)) => {
                let _ = Command::new("losetup").args(["-d", &self.device]).output();
                let _ = server.unmount();
            }
            Some(Server::Ublk(server)) => server.stop().unwrap(),
            None => {}
        }
    }
}

/// Mounts, or returns the error.
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

/// Unmounts. A process just forked by another test keeps our files open until it runs its program, so the first try may fail.
pub fn unmount(mount: &Path) {
    eventually("it is unmounted", || {
        let _ = Command::new("umount").arg(mount).output().unwrap();
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        !mounts.contains(text(mount))
    });
}
