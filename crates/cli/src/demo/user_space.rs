//! The demonstration without root: the same counters, from an NBD client in user space.
//!
//! The client writes like the applications' file systems: small overwrites, each followed by a flush; one long stream; scattered
//! files, half of which are trimmed; appends, each followed by a flush.

use super::content::{Numbers, text};
use super::measure::{Column, Counters, Lap};
use super::progress::Progress;
use super::table;
use crate::nbd_client::NbdClient;
use crate::outcome::out;
use crate::raw::RawFile;
use crate::signals::{Stop, unblocked};
use crate::{host, volume};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const BLOCK: u64 = vellum_core::addr::BLOCK_BYTES as u64;
const DISK_BYTES: u64 = 1 << 30;
/// The size of each pattern's region.
const REGION: u64 = DISK_BYTES / 4 / 2;
const READY: Duration = Duration::from_secs(60);

/// Runs the demonstration.
pub fn run(dir: &Path, scale: u64, why: &str, stop: &Stop) -> Result<()> {
    let progress = Progress::new(2 * 5);
    let mut columns = Vec::new();
    for (title, raw) in [
        (["plain file", "over NBD"], true),
        (["vellum", "over NBD"], false),
    ] {
        let contest = Contest {
            title,
            raw,
            dir,
            disk: dir.join(if raw { "plain" } else { "volume" }),
            stop,
        };
        let column = contest.run(&patterns(scale), &progress);
        columns.push(column.with_context(|| title.join(" "))?);
    }
    drop(progress);
    writeln!(out(), "{}", table::render(&columns))?;
    writeln!(
        out(),
        "Without root's means ({why}): patterns of writes from an NBD client in user space, read back and"
    )?;
    writeln!(
        out(),
        "compared after another start of the server. As root, `vellum demo` mounts ext4 over it instead and"
    )?;
    writeln!(
        out(),
        "runs SQLite, git, tar and a mail delivery, with data=ordered and data=journal beside it."
    )?;
    Ok(())
}

/// A server, stopped when dropped.
struct Server(Child);

impl Server {
    fn start(disk: &Path, raw: bool, dir: &Path) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("serve")
            .arg("--socket")
            .arg(dir.join("nbd"))
            .arg("--control")
            .arg(dir.join("control"));
        if raw {
            command.arg("--raw");
        }
        let mut name = std::ffi::OsString::from("disk=");
        name.push(disk);
        let log = dir.join("log");
        command
            .arg(name)
            .stdin(Stdio::null())
            .stdout(File::create(&log)?)
            .stderr(File::create(dir.join("errors"))?);
        unblocked(&mut command);
        let mut server = Self(command.spawn()?);
        let mut exited = false;
        host::eventually(READY, || {
            exited = !matches!(server.0.try_wait(), Ok(None));
            exited || std::fs::read_to_string(&log).is_ok_and(|t| t.starts_with("ready: "))
        });
        if exited {
            bail!(
                "the server failed: {}",
                std::fs::read_to_string(dir.join("errors"))?.trim()
            );
        }
        Ok(server)
    }

    fn end(mut self) -> Result<()> {
        // SAFETY: our own child, not yet waited for.
        unsafe { libc::kill(self.0.id() as i32, libc::SIGTERM) };
        let status = self.0.wait()?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A contestant, and where its disk is.
struct Contest<'a> {
    title: [&'static str; 2],
    raw: bool,
    dir: &'a Path,
    disk: PathBuf,
    stop: &'a Stop,
}

impl Contest<'_> {
    /// Writes all patterns, and compares what is stored after another start of the server.
    fn run(&self, patterns: &[Pattern], progress: &Progress) -> Result<Column> {
        let step = |what: &str| progress.step(&format!("{}: {what}", self.title.join(" ")));
        if self.raw {
            RawFile::create(&self.disk, DISK_BYTES)?;
        } else {
            volume::create_for_demo(&self.disk, DISK_BYTES)?;
        }
        let (server, mut client) = self.start()?;
        ensure!(client.bytes() >= DISK_BYTES / 2, "the export is too small");
        let control = self.dir.join("control");
        let before = Counters::ask(&control)?;
        let mut laps = Vec::new();
        for (region, pattern) in (0..).zip(patterns) {
            step(pattern.name);
            let start = Instant::now();
            self.write(&mut client, region * REGION, pattern)?;
            laps.push(Lap {
                name: pattern.name.into(),
                operations: pattern.operations,
                time: start.elapsed(),
            });
        }
        let counters = Counters::ask(&control)?.since(&before);
        step("reading back");
        drop(client);
        server.end()?;
        let (server, mut client) = self.start()?;
        for (region, pattern) in (0..).zip(patterns) {
            self.compare(&mut client, region * REGION, pattern)?;
        }
        drop(client);
        server.end()?;
        std::fs::remove_file(&self.disk)?;
        Ok(Column {
            title: self.title,
            laps,
            counters,
        })
    }

    fn start(&self) -> Result<(Server, NbdClient)> {
        let server = Server::start(&self.disk, self.raw, self.dir)?;
        let client = NbdClient::connect(&self.dir.join("nbd"), "disk")?;
        Ok((server, client))
    }

    fn write(&self, client: &mut NbdClient, region: u64, pattern: &Pattern) -> Result<()> {
        for n in 0..pattern.operations {
            ensure!(!self.stop.asked(), "interrupted");
            let at = region + pattern.block(n) * BLOCK;
            client.write(at, &text(n, pattern.blocks(n) * BLOCK as usize))?;
            if pattern.flush_each {
                client.flush()?;
            }
        }
        client.flush()?;
        if pattern.trim_half {
            for n in (1..pattern.operations).step_by(2) {
                let bytes = pattern.blocks(n) as u64 * BLOCK;
                client.trim(region + pattern.block(n) * BLOCK, bytes as u32)?;
            }
            client.flush()?;
        }
        Ok(())
    }

    fn compare(&self, client: &mut NbdClient, region: u64, pattern: &Pattern) -> Result<()> {
        let mut last = BTreeMap::new();
        for n in 0..pattern.operations {
            if !(pattern.trim_half && n % 2 == 1) {
                last.insert(pattern.block(n), n);
            }
        }
        for (block, n) in last {
            ensure!(!self.stop.asked(), "interrupted");
            let mut got = vec![0; pattern.blocks(n) * BLOCK as usize];
            client.read(region + block * BLOCK, &mut got)?;
            ensure!(
                got == text(n, got.len()),
                "{}: write {n} at block {block} has changed",
                pattern.name
            );
        }
        Ok(())
    }
}

struct Pattern {
    name: &'static str,
    operations: u64,
    /// The distance between consecutive places, in blocks; 0: random among few.
    stride: u64,
    blocks_max: u64,
    flush_each: bool,
    trim_half: bool,
}

impl Pattern {
    fn block(&self, n: u64) -> u64 {
        match self.stride {
            0 => Numbers(n).next() % 64,
            stride => n * stride,
        }
    }

    fn blocks(&self, n: u64) -> usize {
        (if self.trim_half {
            Numbers(n).next() % self.blocks_max + 1
        } else {
            self.blocks_max
        }) as usize
    }
}

fn patterns(scale: u64) -> [Pattern; 4] {
    let scaled = |n: u64| (n * scale / 1000).max(10);
    [
        Pattern {
            name: "like SQLite: overwrite 4 KiB, flush",
            operations: scaled(2000),
            stride: 0,
            blocks_max: 1,
            flush_each: true,
            trim_half: false,
        },
        Pattern {
            name: "like git clone: stream of 128 KiB",
            operations: scaled(800),
            stride: 32,
            blocks_max: 32,
            flush_each: false,
            trim_half: false,
        },
        Pattern {
            name: "like a source tree: small files, half trimmed",
            operations: scaled(4000),
            stride: 4,
            blocks_max: 4,
            flush_each: false,
            trim_half: true,
        },
        Pattern {
            name: "like mail: append 8 KiB, flush",
            operations: scaled(2000),
            stride: 2,
            blocks_max: 2,
            flush_each: true,
            trim_half: false,
        },
    ]
}
