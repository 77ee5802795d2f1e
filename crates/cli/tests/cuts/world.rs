//! The environment of a cut: a file system of the kernel, and a volume with some properties.

use std::path::Path;
use std::process::Command;
use vellum_core::format::areas::Layout;
use vellum_device::inspect::recover_medium;
use vellum_device::pack::Compression;
use vellum_device::policy::{Deltas, Policy};
use vellum_device::{CreateOptions, OpenOptions};
use vellum_medium::Medium;

/// A file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileSystem {
    pub name: &'static str,
    make: &'static [&'static str],
    pub options: &'static str,
    /// The command that checks it; the device is its last argument.
    check: &'static [&'static str],
    /// Blocks of the medium.
    pub blocks: u64,
}

const EXT4: FileSystem = FileSystem {
    name: "ext4-journal",
    make: &[
        "mkfs.ext4",
        "-q",
        "-F",
        "-b",
        "4096",
        "-E",
        "lazy_itable_init=0",
    ],
    options: "data=journal",
    check: &["e2fsck", "-fn"],
    blocks: 40 << 10,
};

pub const FILE_SYSTEMS: [FileSystem; 5] = [
    EXT4,
    FileSystem {
        name: "ext4-async",
        options: "data=journal,journal_async_commit",
        ..EXT4
    },
    FileSystem {
        name: "ext4-ordered",
        options: "data=ordered",
        ..EXT4
    },
    FileSystem {
        name: "xfs",
        make: &["mkfs.xfs", "-q", "-f"],
        options: "defaults",
        check: &["xfs_repair", "-n"],
        blocks: 104 << 10,
    },
    FileSystem {
        name: "btrfs",
        make: &["mkfs.btrfs", "-q", "-f"],
        options: "defaults",
        check: &["btrfs", "check", "--readonly"],
        blocks: 64 << 10,
    },
];

/// Runs a program in a private mount namespace, without the mounts of loop devices: btrfs's tools read each of these, and give
/// up at the first whose server is gone. Without namespaces it runs in the shared one.
const AMONG_ITS_OWN: &str = r#"
    unshare -m true 2>/dev/null || exec "$@"
    exec unshare -m sh -c '
        sed -n "s/^\/dev\/loop[0-9]* \([^ ]*\) .*/\1/p" /proc/self/mounts | xargs -r umount -l
        exec "$@"' sh "$@""#;

fn program(words: &[&str], device: &str) -> Result<(), String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let out = Command::new("sh")
        .args(["-c", AMONG_ITS_OWN, "sh"])
        .args(words)
        .arg(device)
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .output()
        .map_err(|e| format!("{}: {e}", words[0]))?;
    match out.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{words:?} ends with {:?}: {}{}",
            out.status.code(),
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        )),
    }
}

impl FileSystem {
    pub fn make(&self, device: &str) {
        program(self.make, device).unwrap();
    }

    /// Makes the kernel forget the device: of two devices with one file system a btrfs uses the newer one.
    pub fn forget(&self) {
        if self.name == "btrfs" {
            program(&["btrfs", "device", "scan"], "--forget").unwrap();
        }
    }

    /// Checks that its own check finds nothing. A process just forked by another test may hold the device for a moment.
    pub fn check(&self, device: &str) -> Result<(), String> {
        let mut found = program(self.check, device);
        for _ in 0..20 {
            if !found
                .as_ref()
                .is_err_and(|told| told.contains("resource busy"))
            {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(250));
            found = program(self.check, device);
        }
        found
    }

    /// True if this machine has its programs.
    pub fn is_here(&self) -> bool {
        let paths = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
        let has = |program: &str| {
            paths
                .iter()
                .any(|path| Path::new(path).join(program).exists())
        };
        has(self.make[0]) && has(self.check[0])
    }
}

/// Properties of a volume, and its layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Properties {
    /// As `create` and `attach --mount` set them.
    Usual,
    /// Everything on.
    All,
    /// Nothing on.
    Nothing,
    Shadow,
    Ordered,
}

impl Properties {
    pub const ALL: [Self; 5] = [
        Self::Usual,
        Self::All,
        Self::Nothing,
        Self::Shadow,
        Self::Ordered,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Usual => "usual",
            Self::All => "all",
            Self::Nothing => "nothing",
            Self::Shadow => "shadow",
            Self::Ordered => "ordered",
        }
    }

    fn layout(self) -> Layout {
        match self {
            Self::Shadow => Layout::Shadow,
            Self::Ordered => Layout::Ordered,
            _ => Layout::Log,
        }
    }

    /// True if it has snapshots.
    pub fn has_snapshots(self) -> bool {
        self.layout() == Layout::Log
    }

    /// True if it guarantees what this file system requires: without order there are no asynchronous commits.
    pub fn suits(self, file_system: &FileSystem) -> bool {
        self.layout().keeps_order() || file_system.name != "ext4-async"
    }

    pub fn create(self) -> CreateOptions {
        CreateOptions {
            layout: self.layout(),
            history: match self.has_snapshots() {
                true => 1000,
                false => 0,
            },
            ..CreateOptions::default()
        }
    }

    /// Returns the options to open the volume on a medium.
    pub fn open(self, medium: &dyn Medium) -> Result<OpenOptions, String> {
        let usual = match self.layout() {
            Layout::Log => {
                let recovered = recover_medium(medium).map_err(|e| format!("recovery: {e}"))?;
                // As `attach --mount` sets it.
                Policy {
                    replay: true,
                    ..Policy::usual(&recovered.superblock)
                }
            }
            _ => Policy::default(),
        };
        let policy = match self {
            Self::Usual => usual,
            Self::All => Policy {
                dedup: true,
                fold: true,
                freed: true,
                ..usual
            },
            Self::Nothing => Policy {
                write_once: vellum_core::seam::WriteOnce::Off,
                zero: false,
                compression: Compression::Off,
                deltas: Deltas::Off,
                replay: false,
                freed: false,
                ..usual
            },
            Self::Shadow | Self::Ordered => Policy {
                dedup: true,
                ..usual
            },
        };
        Ok(OpenOptions {
            policy,
            ..OpenOptions::default()
        })
    }
}
