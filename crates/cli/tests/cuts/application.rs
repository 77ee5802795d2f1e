//! Applications that must not lose a transaction that they acknowledged.

use crate::common::{skipped, text};
use crate::world::FileSystem;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// An application.
#[derive(Clone, Copy, Debug)]
pub struct Application {
    pub name: &'static str,
    program: &'static str,
    /// Its durability modes; each life uses one of them.
    pub modes: &'static [&'static str],
}

macro_rules! program {
    ($name:literal) => {
        concat!(
            include_str!("applications/common.py"),
            include_str!(concat!("applications/", $name, ".py"))
        )
    };
}

pub const APPLICATIONS: [Application; 5] = [
    Application {
        name: "sqlite",
        program: program!("sqlite"),
        modes: &["wal", "delete", "persist"],
    },
    Application {
        name: "postgresql",
        program: program!("postgresql"),
        modes: &["fdatasync", "open_datasync", "fsync"],
    },
    Application {
        name: "leveldb",
        program: program!("leveldb"),
        modes: &["snappy", "none"],
    },
    Application {
        name: "git",
        program: program!("git"),
        modes: &["loose", "packed"],
    },
    Application {
        name: "dpkg",
        program: program!("dpkg"),
        modes: &["gzip", "xz"],
    },
];

impl Application {
    /// Its program with these arguments. Debian's modules belong to Debian's Python.
    fn program(&self, words: &[&str]) -> Command {
        let debian = "/usr/bin/python3";
        let python = match Path::new(debian).exists() {
            true => debian,
            false => "python3",
        };
        let mut command = Command::new(python);
        command.args(["-I", "-c", self.program]).args(words);
        command
    }

    /// True if it loses nothing on a plain file system of this kind. On btrfs, after a cut, git may have an index or a branch
    /// without its objects (`benches/plain_git.py btrfs 16`: after 25 of 224 cuts; ext4 and XFS keep the order of the names).
    pub fn suits(&self, file_system: &FileSystem) -> bool {
        (self.name, file_system.name) != ("git", "btrfs")
    }

    /// True if it is installed; prints the reason otherwise.
    pub fn is_here(&self) -> bool {
        let out = self.program(&["here"]).output().unwrap();
        if !out.status.success() {
            let why = String::from_utf8_lossy(&out.stderr);
            skipped(format_args!("{}: {}", self.name, why.trim()));
        }
        out.status.success()
    }

    /// Starts it in a directory, and waits until it has acknowledged that it is ready.
    pub fn start(self, folder: &Path, mode: &'static str, seed: u64) -> Started {
        let mut child = self
            .program(&["write", text(folder), mode, &seed.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut started = Started {
            application: self,
            seed,
            child,
            stdout,
        };
        assert!(started.acknowledges(0), "{} does not start", self.name);
        started
    }
}

/// A running application, which makes transactions until a file `stop` appears next to its directory.
pub struct Started {
    application: Application,
    seed: u64,
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Started {
    /// Waits for an acknowledgement. Returns false once the application has ended.
    fn acknowledges(&mut self, n: usize) -> bool {
        let mut line = String::new();
        let bytes = self.stdout.read_line(&mut line).unwrap();
        assert!(bytes == 0 || line.trim() == n.to_string(), "{line}");
        bytes > 0
    }

    /// Records when each transaction is acknowledged, until it ends.
    pub fn watch(mut self, now: &dyn Fn() -> usize) -> Written {
        let mut acknowledged = vec![now()];
        while self.acknowledges(acknowledged.len()) {
            acknowledged.push(now());
        }
        assert!(self.child.wait().unwrap().success());
        Written {
            application: self.application,
            seed: self.seed,
            acknowledged,
        }
    }
}

/// What it wrote, and when each transaction was acknowledged.
pub struct Written {
    application: Application,
    seed: u64,
    acknowledged: Vec<usize>,
}

impl Written {
    /// Compares the contents after a cut with what was acknowledged. Returns how many transactions must be there.
    pub fn check(&self, folder: &Path, cut: usize) -> Result<usize, String> {
        let done = self.acknowledged.partition_point(|instant| *instant <= cut);
        // Before it is ready nothing need be there.
        let Some(last) = done.checked_sub(1) else {
            return Ok(0);
        };
        let (seed, must) = (self.seed.to_string(), last.to_string());
        let out = self
            .application
            .program(&["check", text(folder), &seed, &must])
            .output()
            .unwrap();
        match out.status.success() {
            true => Ok(last),
            false => Err(format!(
                "{}: {}",
                self.application.name,
                String::from_utf8_lossy(&out.stderr)
            )),
        }
    }
}

/// Returns its directory.
pub fn folder(mount: &Path) -> PathBuf {
    mount.join("application")
}

/// Creates its directory, durably.
pub fn make_folder(mount: &Path) -> PathBuf {
    let folder = folder(mount);
    fs::create_dir(&folder).unwrap();
    File::open(mount).unwrap().sync_all().unwrap();
    folder
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::dir;
    use std::fs::Permissions;
    use std::os::unix::fs::{FileExt, PermissionsExt};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};
    use vellum_medium::fault::Rng;

    /// Overwrites one of every 16 blocks of each file below a directory with zeros.
    fn lose(folder: &Path, rng: &mut Rng) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let kind = fs::symlink_metadata(&path).unwrap();
            if kind.is_dir() {
                lose(&path, rng);
            } else if kind.is_file() {
                let file = File::options().write(true).open(&path).unwrap();
                let first = rng.below(kind.len().div_ceil(4096).clamp(1, 16));
                for at in (first * 4096..kind.len()).step_by(16 * 4096) {
                    let length = (kind.len() - at).min(4096) as usize;
                    file.write_all_at(&vec![0; length], at).unwrap();
                }
            }
        }
    }

    /// In a directory of this machine, without a volume and without a cut.
    #[test]
    fn each_application_complains_of_lost_blocks_and_of_a_lost_transaction() {
        for application in APPLICATIONS.iter().filter(|one| one.is_here()) {
            let (dir, name) = (dir(), application.name);
            fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
            let folder = make_folder(dir.path());
            let started = application.start(&folder, application.modes[0], 7);
            let stop = dir.path().join("stop");
            // That it is ready, and each transaction.
            let seen = AtomicUsize::new(0);
            let count = || {
                seen.fetch_add(1, Ordering::SeqCst);
                1
            };
            let mut written = std::thread::scope(|scope| {
                let watch = scope.spawn(|| started.watch(&count));
                std::thread::sleep(Duration::from_millis(500));
                let began = Instant::now();
                while seen.load(Ordering::SeqCst) < 2 && began.elapsed() < Duration::from_secs(60) {
                    std::thread::sleep(Duration::from_millis(5));
                }
                fs::write(&stop, "").unwrap();
                watch.join().unwrap()
            });
            let last = written.acknowledged.len() - 1;
            assert_eq!(written.check(&folder, 1), Ok(last), "{name}");
            assert!(last > 0, "{name} made no transaction");
            written.acknowledged.push(1);
            let told = written.check(&folder, 1).unwrap_err();
            let lost = format!("transaction {} was acknowledged", last + 1);
            assert!(told.contains(&lost), "{name}: {told}");
            written.acknowledged.pop();
            lose(&folder, &mut Rng::new(7));
            let told = written.check(&folder, 1).unwrap_err();
            println!("{told}");
        }
    }
}
