//! Why a volume cannot be served by ublk.

use super::uapi;
use std::io;
use std::path::PathBuf;

/// Why a volume cannot be served by ublk.
#[derive(Debug, thiserror::Error)]
pub enum UblkError {
    /// The kernel has no driver.
    #[error(
        "there is no /dev/ublk-control: the kernel has no ublk, or its module is not loaded \
         (modprobe ublk_drv)"
    )]
    NoDriver,
    /// The caller is not root.
    #[error("making ublk devices needs root")]
    NotAllowed,
    /// The kernel lacks user copy.
    #[error("this kernel's ublk has no user copy: it takes Linux 6.5 or newer")]
    TooOld,
    /// io_uring is forbidden, or lacks a needed feature.
    #[error("cannot set up io_uring for ublk: {0}; is it forbidden (kernel.io_uring_disabled)?")]
    Ring(#[source] io::Error),
    /// A device node cannot be used.
    #[error("cannot open {}: {source}", path.display())]
    Node {
        /// The node.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A queue cannot be served.
    #[error("cannot serve a queue of ublk device {device}: {source}")]
    Queue {
        /// The device.
        device: u32,
        /// The system's error.
        source: io::Error,
    },
    /// A command failed.
    #[error("cannot {what} ublk device {}: {source}", Shown(*device))]
    Command {
        /// What the command does.
        what: &'static str,
        /// The device.
        device: u32,
        /// The system's error.
        source: io::Error,
    },
}

/// A device's number, if it has one yet.
struct Shown(u32);

impl std::fmt::Display for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            uapi::NO_DEVICE => f.write_str("(new)"),
            number => write!(f, "{number}"),
        }
    }
}
