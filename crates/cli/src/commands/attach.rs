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

/// The mount options that a volume makes cheap: every write journaled, one flush a commit.
pub const MOUNT_OPTIONS: &str = "data=journal,journal_async_commit";

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
    /// The mount's options.
    #[arg(long, value_name = "OPTIONS", requires = "mount", default_value = MOUNT_OPTIONS)]
    options: String,
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
    let uuid = volume::uuid_of(&args.volume)?;
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
        attachment.mount(dir, &args.options)?;
    }
    attachment.keep();
    match mount {
        Some(dir) => println!("{} on {}", device.display(), dir.display()),
        None => println!("{}", device.display()),
    }
    Ok(())
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
