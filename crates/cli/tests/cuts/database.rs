//! SQLite, which must not lose a transaction that it has acknowledged.

use crate::common::text;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PROGRAM: &str = include_str!("database.py");

/// How it keeps its journal.
pub const MODES: [&str; 3] = ["wal", "delete", "persist"];

/// A database that was written, and when each transaction was acknowledged.
pub struct Database {
    mode: &'static str,
    seed: u64,
    acknowledged: Vec<usize>,
}

impl Database {
    /// Writes in a folder until a file `stop` lies beside it.
    pub fn write(folder: &Path, mode: &'static str, seed: u64, now: &dyn Fn() -> usize) -> Self {
        let mut child = Command::new("python3")
            .args([
                "-I",
                "-S",
                "-c",
                PROGRAM,
                "write",
                text(folder),
                mode,
                &seed.to_string(),
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let acknowledged: Vec<_> = lines
            .enumerate()
            .map(|(n, line)| {
                assert_eq!(line.unwrap(), n.to_string());
                now()
            })
            .collect();
        assert!(child.wait().unwrap().success());
        // What SQLite has not synced itself: the name of the database.
        Self {
            mode,
            seed,
            acknowledged,
        }
    }

    /// The last transaction that was acknowledged before a cut; none when the table was not yet made.
    fn last(&self, cut: usize) -> i64 {
        self.acknowledged.partition_point(|instant| *instant <= cut) as i64 - 1
    }

    /// Holds what is there after a cut against what was acknowledged; says how many transactions must be.
    pub fn check(&self, folder: &Path, cut: usize) -> Result<usize, String> {
        let last = self.last(cut);
        let out = Command::new("python3")
            .args([
                "-I",
                "-S",
                "-c",
                PROGRAM,
                "check",
                text(folder),
                &self.seed.to_string(),
                &last.to_string(),
            ])
            .output()
            .unwrap();
        match out.status.success() {
            true => Ok(last.max(0) as usize),
            false => Err(format!(
                "SQLite, {}: {}",
                self.mode,
                String::from_utf8_lossy(&out.stderr)
            )),
        }
    }
}

/// Makes its folder, durably.
pub fn folder(mount: &Path) -> PathBuf {
    let folder = mount.join("sqlite");
    fs::create_dir(&folder).unwrap();
    File::open(mount).unwrap().sync_all().unwrap();
    folder
}
