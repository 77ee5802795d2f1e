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
use std::fs::File;
use std::io::Write;
use std::path::Path;
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
        columns.push(
            contest(title, raw, dir, scale, &progress, stop).with_context(|| title.join(" "))?,
        );
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

fn contest(
    title: [&'static str; 2],
    raw: bool,
    dir: &Path,
    scale: u64,
    progress: &Progress,
    stop: &Stop,
) -> Result<Column> {
    let disk = dir.join(if raw { "plain" } else { "volume" });
    if raw {
        RawFile::create(&disk, DISK_BYTES)?;
    } else {
        volume::create_for_demo(&disk, DISK_BYTES)?;
    }
    let server = Server::start(&disk, raw, dir)?;
    let mut client = NbdClient::connect(&dir.join("nbd"), "disk")?;
    ensure!(client.bytes() >= DISK_BYTES / 2, "the export is too small");
    let control = dir.join("control");
    let before = Counters::ask(&control)?;
    let mut laps = Vec::new();
    let patterns = patterns(scale);
    for (i, pattern) in patterns.iter().enumerate() {
        progress.step(&format!("{}: {}", title.join(" "), pattern.name));
        let start = Instant::now();
        for n in 0..pattern.operations {
            ensure!(!stop.asked(), "interrupted");
            let at = i as u64 * REGION + pattern.block(n) * BLOCK;
            client.write(at, &text(n, pattern.blocks(n) * BLOCK as usize))?;
            if pattern.flush_each {
                client.flush()?;
            }
        }
        client.flush()?;
        if pattern.trim_half {
            for n in (1..pattern.operations).step_by(2) {
                client.trim(
                    i as u64 * REGION + pattern.block(n) * BLOCK,
                    (pattern.blocks(n) as u64 * BLOCK) as u32,
                )?;
            }
            client.flush()?;
        }
        laps.push(Lap {
            name: pattern.name.into(),
            operations: pattern.operations,
            time: start.elapsed(),
        });
    }
    let counters = Counters::ask(&control)?.since(&before);
    progress.step(&format!("{}: reading back", title.join(" ")));
    drop(client);
    server.end()?;
    let server = Server::start(&disk, raw, dir)?;
    let mut client = NbdClient::connect(&dir.join("nbd"), "disk")?;
    for (i, pattern) in patterns.iter().enumerate() {
        let mut last = std::collections::BTreeMap::new();
        for n in 0..pattern.operations {
            if !(pattern.trim_half && n % 2 == 1) {
                last.insert(pattern.block(n), n);
            }
        }
        for (block, n) in last {
            ensure!(!stop.asked(), "interrupted");
            let mut got = vec![0; pattern.blocks(n) * BLOCK as usize];
            client.read(i as u64 * REGION + block * BLOCK, &mut got)?;
            ensure!(
                got == text(n, got.len()),
                "{}: write {n} at block {block} has changed",
                pattern.name
            );
        }
    }
    drop(client);
    server.end()?;
    std::fs::remove_file(&disk)?;
    Ok(Column {
        title,
        laps,
        counters,
    })
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
