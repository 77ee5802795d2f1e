//! `vellum attach`: from a volume's file to a block device, and to a mounted file system if asked.

use crate::attachment::{Attachment, Via};
use crate::outcome::usage;
use crate::policy::Policies;
use crate::signals::Stop;
use crate::size::Size;
use crate::{host, volume};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use vellum_core::format::areas::Layout;
use vellum_device::info::hex_uuid;

/// The mount options that a volume makes cheap: every write journaled, one flush a commit.
pub const MOUNT_OPTIONS: &str = "data=journal,journal_async_commit";

/// The same of a volume that does not keep the order of writes: two flushes a commit.
pub const UNORDERED_MOUNT_OPTIONS: &str = "data=journal";

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The volume.
    volume: PathBuf,
    /// Mount the file system on it here.
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// Make an ext4 on it first.
    #[arg(long)]
    mkfs: bool,
    /// With --mkfs: also when there is a file system already, whose content is lost.
    #[arg(long, requires = "mkfs")]
    force: bool,
    /// The mount's options; if not given, data=journal, and journal_async_commit where the volume's layout makes it safe.
    #[arg(long, value_name = "OPTIONS", requires = "mount")]
    options: Option<String>,
    /// How to attach it; the best way that this machine has, if not given.
    #[arg(long, value_enum)]
    via: Option<Via>,
    /// Memory for blocks in flight.
    #[arg(long, value_name = "SIZE", default_value = "64M")]
    buffer: Size,
    #[command(flatten)]
    policies: Policies,
}

/// Attaches it.
pub fn run(args: Args) -> Result<()> {
    let stop = Stop::on_signals(true)?;
    let (superblock, _) = volume::superblock_of(&args.volume)?;
    let uuid = hex_uuid(&superblock.uuid());
    let options = mount_options(superblock.layout(), args.options.as_deref())?;
    let path = args
        .volume
        .canonicalize()
        .with_context(|| format!("cannot find {}", args.volume.display()))?;
    let mount = match &args.mount {
        None => None,
        Some(dir) => {
            let dir = dir
                .canonicalize()
                .with_context(|| format!("cannot find mount point {}", dir.display()))?;
            if !dir.is_dir() {
                return Err(usage(format!("--mount {}: not a directory", dir.display())));
            }
            Some(dir)
        }
    };
    if !host::is_root() {
        bail!(
            "attaching a block device needs root: use sudo, or `vellum serve --socket` with an NBD client in user space"
        );
    }
    let via = match args.via {
        None => Via::best()?,
        Some(via) => match via.missing() {
            None => via,
            Some(missing) => bail!("cannot attach: {missing}"),
        },
    };
    let mut attachment = Attachment::begin(&uuid, &path, via, &stop)?;
    let mut flags = vec![format!("--buffer={}", args.buffer.0)];
    if mount.is_some() {
        // What is mounted replays its journal. A policy that is asked for comes later, and wins.
        flags.push("--policy=replay=on".to_owned());
    }
    flags.extend(args.policies.flags());
    let flags: Vec<OsString> = flags.into_iter().map(OsString::from).collect();
    attachment.serve(&flags)?;
    let device = attachment.bind()?;
    if args.mkfs {
        if has_ext4(&device)? && !args.force {
            return Err(usage(format!(
                "--mkfs: {} has an ext file system already: add --force to lose it",
                path.display()
            )));
        }
        make_ext4(&device)?;
    }
    if let Some(dir) = &mount {
        attachment.mount(dir, options)?;
    }
    attachment.keep();
    match mount {
        Some(dir) => println!("{} on {}", device.display(), dir.display()),
        None => println!("{}", device.display()),
    }
    Ok(())
}

/// The mount's options: one flush a commit is asked for only of a volume that keeps the order of writes (promise 3).
fn mount_options(layout: Layout, asked: Option<&str>) -> Result<&str> {
    let Some(asked) = asked else {
        return Ok(match layout.keeps_order() {
            true => MOUNT_OPTIONS,
            false => UNORDERED_MOUNT_OPTIONS,
        });
    };
    let is_unsafe = asked
        .split(',')
        .any(|option| option.trim() == "journal_async_commit");
    if is_unsafe && !layout.keeps_order() {
        return Err(usage(format!(
            "--options {asked}: journal_async_commit needs a volume that keeps the order of writes, and the layout {} does \
             not: a crash could lose the file system. Leave it out, or use the layout log or shadow",
            layout.name()
        )));
    }
    Ok(asked)
}

/// Makes an ext4 whose journal and tables are complete, so that nothing is written behind one's back later.
pub fn make_ext4(device: &Path) -> Result<()> {
    let options = [
        "-q",
        "-F",
        "-b",
        "4096",
        "-E",
        "lazy_itable_init=0,lazy_journal_init=0",
    ];
    host::run(
        "mkfs.ext4",
        &[&options[..], &[&device.to_string_lossy()]].concat(),
    )?;
    Ok(())
}

/// Whether there is a superblock of ext2, 3 or 4.
fn has_ext4(device: &Path) -> Result<bool> {
    let mut magic = [0; 2];
    let mut file =
        std::fs::File::open(device).with_context(|| format!("cannot open {}", device.display()))?;
    file.seek(SeekFrom::Start(1024 + 56))?;
    file.read_exact(&mut magic)?;
    Ok(magic == [0x53, 0xEF])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_flush_a_commit_needs_a_layout_that_keeps_the_order() {
        for layout in [Layout::Log, Layout::Shadow] {
            assert_eq!(mount_options(layout, None).unwrap(), MOUNT_OPTIONS);
            assert!(mount_options(layout, Some("ro,journal_async_commit")).is_ok());
        }
        assert_eq!(
            mount_options(Layout::Ordered, None).unwrap(),
            "data=journal"
        );
        let asked = "noatime,journal_async_commit";
        let refused = mount_options(Layout::Ordered, Some(asked)).unwrap_err();
        assert!(refused.to_string().contains("layout ordered"), "{refused}");
        assert!(mount_options(Layout::Ordered, Some("data=journal,noatime")).is_ok());
    }
}
