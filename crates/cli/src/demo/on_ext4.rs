//! The demonstration as root: ext4, real applications, three times.

use super::content;
use super::measure::{Column, Counters, Lap};
use super::progress::Progress;
use super::table;
use crate::attachment::{self, Attachment, Via};
use crate::outcome::out;
use crate::peek;
use crate::raw::RawFile;
use crate::signals::Stop;
use crate::{ext4, host, volume};
use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vellum_frontend::held::HeldFolder;

/// Size of the volume and of the plain file.
const DISK_BYTES: u64 = 1 << 30;
/// The steps shown for each contestant.
const STEPS: u64 = 8;
/// Time for the kernel to finish what an unmount leaves behind.
const SETTLE: Duration = Duration::from_secs(10);

/// One column of the table. The volume replays committed transactions itself, like one mounted by `vellum attach --mount`.
struct Contestant {
    title: [&'static str; 2],
    raw: bool,
    /// The flags of its server.
    flags: &'static [&'static str],
    options: &'static str,
}

const CONTESTANTS: [Contestant; 3] = [
    Contestant {
        title: ["plain file", "data=ordered"],
        raw: true,
        flags: &["--raw"],
        options: "data=ordered",
    },
    Contestant {
        title: ["plain file", "data=journal"],
        raw: true,
        flags: &["--raw"],
        options: "data=journal",
    },
    Contestant {
        title: ["vellum, no option", "data=journal"],
        raw: false,
        // As with `vellum attach --mount`.
        flags: &["--mounted"],
        options: ext4::MOUNT_OPTIONS,
    },
];

/// The amount of work for each application.
struct Amounts {
    transactions: u64,
    tree_files: u64,
    mails: u64,
}

/// Runs the demonstration.
pub fn run(dir: &Path, scale: u64, stop: &Stop) -> Result<()> {
    let scaled = |n: u64| (n * scale / 1000).max(10);
    let amounts = Amounts {
        transactions: scaled(500),
        tree_files: scaled(2000),
        mails: scaled(600),
    };
    let progress = Progress::new(1 + CONTESTANTS.len() as u64 * STEPS);
    progress.step("making the sources: a git repository and a tar of a source tree");
    let sources = Sources::make(dir, &amounts, stop)?;
    let mut columns = Vec::new();
    for contestant in &CONTESTANTS {
        let one = Contest::new(contestant, dir, &progress, stop);
        let laps = Laps {
            mount: &one.mount,
            sources: &sources,
            amounts: &amounts,
            stop,
        };
        columns.push(contest(&one, &laps).with_context(|| contestant.title.join(", "))?);
    }
    drop(progress);
    writeln!(out(), "{}", table::render(&columns))?;
    writeln!(
        out(),
        "Each ran on ext4 over FUSE and a loop device, was unmounted, found clean by e2fsck -fn,"
    )?;
    writeln!(
        out(),
        "attached again by a new server, mounted, and every file's content compared."
    )?;
    if let [ordered, _, volume] = &columns[..] {
        let sentence = table::to_remember(
            ordered.counters.medium_bytes(),
            volume.counters.medium_bytes(),
        );
        writeln!(out(), "\n{sentence}")?;
    }
    Ok(())
}

/// What the applications read.
struct Sources {
    repository: PathBuf,
    tar: PathBuf,
    head: String,
}

impl Sources {
    fn make(dir: &Path, amounts: &Amounts, stop: &Stop) -> Result<Self> {
        let (tree, repository, tar) = (
            dir.join("tree"),
            dir.join("repository"),
            dir.join("tree.tar"),
        );
        content::make_tree(&tree, amounts.tree_files)?;
        tool(
            stop,
            "tar",
            &[
                "-cf".as_ref(),
                tar.as_os_str(),
                "-C".as_ref(),
                tree.as_os_str(),
                ".".as_ref(),
            ],
        )?;
        git(stop, &["init", "-q", "-b", "main"], Some(&repository))?;
        for commit in 0..10u64 {
            for n in 0..amounts.tree_files / 40 {
                let path = repository.join(content::tree_path(commit * 7 + n * 3));
                if let Some(parent) = path.parent() {
                    fs::create_dir_all(parent)?;
                }
                fs::write(
                    path,
                    content::text(commit * 1_000_000 + n, content::source_size(n)),
                )?;
            }
            git(stop, &["add", "-A"], Some(&repository))?;
            git(
                stop,
                &["commit", "-q", "-m", &format!("change {commit}")],
                Some(&repository),
            )?;
        }
        let head = git(stop, &["rev-parse", "HEAD"], Some(&repository))?;
        fs::remove_dir_all(&tree)?;
        Ok(Self {
            repository,
            tar,
            head,
        })
    }
}

/// Lets one contestant run, and compares what it has stored after another attach.
fn contest(contest: &Contest<'_>, laps: &Laps<'_>) -> Result<Column> {
    contest.make_disk()?;
    let column = contest.run(laps)?;
    let mut attachment = contest.attach()?;
    attachment.bind()?;
    attachment.mount(&contest.held()?, contest.contestant.options)?;
    laps.compare()?;
    attachment.end()?;
    let is_mounted = || host::mounts().iter().any(|m| m.target == contest.mount);
    ensure!(host::eventually(SETTLE, || !is_mounted()), "still mounted");
    fs::remove_file(&contest.disk)?;
    Ok(column)
}

/// A contestant, and where its disk is.
struct Contest<'a> {
    contestant: &'a Contestant,
    disk: PathBuf,
    mount: PathBuf,
    progress: &'a Progress,
    stop: &'a Stop,
}

impl<'a> Contest<'a> {
    fn new(contestant: &'a Contestant, dir: &Path, progress: &'a Progress, stop: &'a Stop) -> Self {
        Self {
            contestant,
            disk: dir.join(if contestant.raw { "plain" } else { "volume" }),
            mount: dir.join("mnt"),
            progress,
            stop,
        }
    }

    fn step(&self, what: &str) {
        let name = self.contestant.title.join(", ");
        self.progress.step(&format!("{name}: {what}"));
    }

    fn make_disk(&self) -> Result<()> {
        self.step("making the disk and its file system");
        fs::create_dir_all(&self.mount)?;
        if self.contestant.raw {
            RawFile::create(&self.disk, DISK_BYTES)?;
        } else {
            volume::create_for_demo(&self.disk, DISK_BYTES)?;
        }
        Ok(())
    }

    fn attach(&self) -> Result<Attachment> {
        let id = if self.contestant.raw {
            format!("demo-{}", std::process::id())
        } else {
            peek::uuid_of(&self.disk)?
        };
        let options: Vec<OsString> = self.contestant.flags.iter().map(OsString::from).collect();
        let mut attachment = Attachment::begin(&id, &self.disk, Via::Fuse, self.stop)?;
        attachment.serve(&options, None)?;
        Ok(attachment)
    }

    fn held(&self) -> Result<HeldFolder> {
        attachment::held(&attachment::mount_point(&self.mount)?)
    }

    /// Runs the applications on a new file system, unmounts it and checks it.
    fn run(&self, laps: &Laps<'_>) -> Result<Column> {
        let mut attachment = self.attach()?;
        let device = attachment.bind()?;
        ext4::make(&device)?;
        attachment.mount(&self.held()?, self.contestant.options)?;
        let control = attachment.state().control.clone();
        let control = control.context("the server has no control socket")?;
        let before = Counters::ask(&control)?;
        let mut times = Vec::new();
        for lap in laps.all() {
            self.step(&lap.name);
            times.push(timed(lap.name, lap.operations, || {
                laps.run(lap.work)?;
                sync_fs(&self.mount)
            })?);
        }
        self.step("unmount");
        // The journal's remaining contents are written home now: part of the price.
        times.push(timed("unmount".into(), 1, || {
            host::unmount(&self.mount, false)
                .with_context(|| format!("cannot unmount {}", self.mount.display()))
        })?);
        let counters = Counters::ask(&control)?.since(&before);
        self.step("e2fsck, and the contents compared after another attach");
        host::run("e2fsck", &["-f", "-n", &device.to_string_lossy()])
            .context("the file system is damaged")?;
        attachment.end()?;
        Ok(Column {
            title: self.contestant.title,
            laps: times,
            counters,
        })
    }
}

fn timed(name: String, operations: u64, work: impl FnOnce() -> Result<()>) -> Result<Lap> {
    let start = Instant::now();
    work()?;
    Ok(Lap {
        name,
        operations,
        time: start.elapsed(),
    })
}

/// One of the applications.
#[derive(Clone, Copy)]
enum Work {
    Sqlite,
    Clone,
    Tree,
    Mail,
}

/// What an application is to do.
struct Planned {
    name: String,
    operations: u64,
    work: Work,
}

struct Laps<'a> {
    mount: &'a Path,
    sources: &'a Sources,
    amounts: &'a Amounts,
    stop: &'a Stop,
}

impl Laps<'_> {
    /// In the order in which they run.
    fn all(&self) -> [Planned; 4] {
        let Amounts {
            transactions,
            tree_files,
            mails,
        } = *self.amounts;
        [
            (
                format!("SQLite, {transactions} transactions"),
                transactions,
                Work::Sqlite,
            ),
            ("git clone of a local repository".into(), 1, Work::Clone),
            (
                format!("unpack and delete {tree_files} source files"),
                tree_files,
                Work::Tree,
            ),
            (
                format!("deliver {mails} mails, each fsynced"),
                mails,
                Work::Mail,
            ),
        ]
        .map(|(name, operations, work)| Planned {
            name,
            operations,
            work,
        })
    }

    fn run(&self, work: Work) -> Result<()> {
        match work {
            Work::Sqlite => self.sqlite(),
            Work::Clone => self.clone(),
            Work::Tree => self.tree(),
            Work::Mail => self.mail(),
        }
    }

    fn sqlite(&self) -> Result<()> {
        let mut script = String::from(
            "PRAGMA journal_mode=DELETE; PRAGMA synchronous=FULL;\n\
             CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, body TEXT); CREATE INDEX i ON t (name);\n",
        );
        for n in 0..self.amounts.transactions {
            let body = content::text(n, 300);
            let body = String::from_utf8_lossy(&body);
            script += &format!(
                "BEGIN; INSERT INTO t VALUES ({n}, 'name{}', '{body}'); \
                 UPDATE t SET body = body || 'x' WHERE id = {}; COMMIT;\n",
                n * 7919 % 1000,
                n / 2
            );
        }
        let path = self.sources.tar.with_file_name("script.sql");
        fs::write(&path, script)?;
        let mut sqlite = host::command("sqlite3");
        sqlite
            .arg("-bail")
            .arg(self.mount.join("data.db"))
            .stdin(File::open(&path)?);
        host::finished(&mut sqlite, Some(self.stop))?;
        Ok(())
    }

    fn clone(&self) -> Result<()> {
        let (from, to) = (
            self.sources.repository.to_string_lossy(),
            self.mount.join("clone"),
        );
        git(
            self.stop,
            &[
                "clone",
                "-q",
                "--no-hardlinks",
                &from,
                &to.to_string_lossy(),
            ],
            None,
        )?;
        Ok(())
    }

    fn tree(&self) -> Result<()> {
        for name in ["kept", "deleted"] {
            let dir = self.mount.join(name);
            fs::create_dir(&dir)?;
            tool(
                self.stop,
                "tar",
                &[
                    "-xf".as_ref(),
                    self.sources.tar.as_os_str(),
                    "-C".as_ref(),
                    dir.as_os_str(),
                ],
            )?;
            sync_fs(self.mount)?;
        }
        Ok(fs::remove_dir_all(self.mount.join("deleted"))?)
    }

    /// Delivers mail as a mail server does: written and synced under a temporary name, renamed, the directory synced.
    fn mail(&self) -> Result<()> {
        let (tmp, new) = (self.mount.join("mail/tmp"), self.mount.join("mail/new"));
        fs::create_dir_all(&tmp)?;
        fs::create_dir_all(&new)?;
        let deliver = |from: u64| -> Result<()> {
            for n in (from..self.amounts.mails).step_by(2) {
                ensure!(!self.stop.asked(), "interrupted");
                let path = tmp.join(n.to_string());
                let mut file = File::create(&path)?;
                file.write_all(&mail(n))?;
                file.sync_all()?;
                fs::rename(&path, new.join(n.to_string()))?;
                File::open(&new)?.sync_all()?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(|| deliver(1));
            let own = deliver(0);
            own.and(
                other
                    .join()
                    .unwrap_or_else(|_| bail!("the second deliverer panicked")),
            )
        })
    }

    /// Compares everything with what it was generated from.
    fn compare(&self) -> Result<()> {
        let same = |path: PathBuf, want: Vec<u8>| -> Result<()> {
            ensure!(!self.stop.asked(), "interrupted");
            let got = fs::read(&path).with_context(|| format!("{} is lost", path.display()))?;
            ensure!(got == want, "{} has changed", path.display());
            Ok(())
        };
        let db = self.mount.join("data.db");
        let asked = "PRAGMA integrity_check; SELECT count(*), sum(length(body)) FROM t;";
        let answer = tool(
            self.stop,
            "sqlite3",
            &["-readonly".as_ref(), db.as_os_str(), asked.as_ref()],
        )?;
        let n = self.amounts.transactions;
        // Each row's 300 bytes, and one more for each transaction's update.
        ensure!(
            answer.trim() == format!("ok\n{n}|{}", n * 301),
            "the database has changed: {answer}"
        );
        let clone = self.mount.join("clone");
        git(
            self.stop,
            &["fsck", "--full", "--no-progress"],
            Some(&clone),
        )?;
        ensure!(
            git(self.stop, &["rev-parse", "HEAD"], Some(&clone))? == self.sources.head,
            "the clone has another head"
        );
        let status = git(self.stop, &["status", "--porcelain"], Some(&clone))?;
        ensure!(
            status.is_empty(),
            "the clone's files have changed: {status}"
        );
        for n in 0..self.amounts.tree_files {
            same(
                self.mount.join("kept").join(content::tree_path(n)),
                content::text(n, content::source_size(n)),
            )?;
        }
        for n in 0..self.amounts.mails {
            same(self.mount.join("mail/new").join(n.to_string()), mail(n))?;
        }
        ensure!(
            !self.mount.join("deleted").exists(),
            "the deleted tree is back"
        );
        Ok(())
    }
}

fn mail(n: u64) -> Vec<u8> {
    content::text(n ^ 0x6d61_696c, 1000 + (n * 977 % 9000) as usize)
}

fn tool(stop: &Stop, program: &str, args: &[&std::ffi::OsStr]) -> Result<String> {
    host::finished(host::command(program).args(args), Some(stop))
}

fn git(stop: &Stop, args: &[&str], inside: Option<&Path>) -> Result<String> {
    let mut command = host::command("git");
    // No user's configuration: names, hooks, signing, and the owner of the directory.
    command
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null");
    command.args([
        "-c",
        "user.name=demo",
        "-c",
        "user.email=demo@localhost",
        "-c",
        "gc.auto=0",
        "-c",
        "safe.directory=*",
    ]);
    if let Some(dir) = inside {
        fs::create_dir_all(dir)?;
        command.arg("-C").arg(dir);
    }
    host::finished(command.args(args), Some(stop))
}

/// Makes everything on a file system durable.
fn sync_fs(dir: &Path) -> Result<()> {
    use std::os::fd::AsRawFd;
    let file = File::open(dir)?;
    // SAFETY: a valid descriptor.
    match unsafe { libc::syncfs(file.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()).context("syncfs"),
    }
}
