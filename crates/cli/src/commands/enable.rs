//! `vellum enable`: a volume is attached at each boot.

use crate::attachment;
use crate::attachment::Via;
use crate::boot::{Entry, Name, Tab, Target, systemd};
use crate::commands::boot;
use crate::host;
use crate::keys::Key;
use crate::outcome::{out, tell, usage};
use crate::peek;
use crate::unfinished;
use anyhow::{Context, Result, bail};
use std::ffi::CString;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use vellum_device::info::hex_uuid;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sudo vellum enable disk.vellum --mount /srv/photos --now
  sudo vellum enable /dev/sdb --name photos
  sudo vellum enable /dev/sda2 --before root     # then: update-initramfs -u, or dracut --force
  vellum boot list
  sudo vellum disable photos

What is chosen of the volume, like its mount options, is kept in it: see `vellum set`.")]
pub struct Args {
    /// The volume.
    volume: PathBuf,
    /// Mount the file system on it here.
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// How to attach it; the best way that this machine has at that time, if not given.
    #[arg(long, value_enum)]
    via: Option<Via>,
    /// Its name. Default: its label, or its file's name. The service is vellum@NAME.
    #[arg(long)]
    name: Option<Name>,
    /// What waits for it at boot. Default: multi-user for a volume on a network's file system, else local-fs.
    #[arg(long, value_enum, value_name = "TARGET")]
    before: Option<Target>,
    /// Attach it now as well.
    #[arg(long, conflicts_with = "root")]
    now: bool,
    /// Keep the entry in FOLDER/etc/vellum/volumes: of an image of a system, that is mounted there.
    #[arg(long, value_name = "FOLDER")]
    root: Option<PathBuf>,
    #[command(flatten)]
    key: Key,
}

/// Writes its entry.
pub fn run(args: &Args) -> Result<()> {
    if args.root.is_none() && !host::is_root() {
        bail!("what is attached at boot is root's to say: use sudo");
    }
    let key_file = key_file(args)?;
    let (superblock, _) = peek::superblock_of(&args.volume, &args.key)?;
    unfinished::refuse(&args.volume, &superblock)?;
    let label =
        crate::properties::Settings::of(&superblock, superblock.properties(), &Default::default())
            .label;
    let entry = Entry {
        volume: lasting_path(&args.volume)?,
        uuid: Some(hex_uuid(&superblock.uuid())),
        mount: args
            .mount
            .as_deref()
            .map(attachment::mount_point)
            .transpose()?,
        via: args.via,
        key_file,
        before: match args.before {
            Some(before) => before,
            None => target_of(&args.volume)?,
        },
    };
    let name = name_for(args, &label)?;
    // Before anything is written.
    entry.check()?;
    if let Some(root) = args.root.as_deref().filter(|root| !root.is_dir()) {
        let shown = root.display();
        return Err(usage(format!("--root {shown}: there is no such folder")));
    }
    let tab = Tab::of(args.root.as_deref());
    let runs = args.root.is_none() && systemd::runs();
    if runs {
        systemd::ensure_installed()?;
    }
    tab.add(&name, &entry)?;
    let file = tab.path(&name);
    writeln!(
        out(),
        "{name}: attached at each boot from now on ({})",
        file.display()
    )?;
    if entry.before == Target::Root {
        tell(format_args!(
            "make a new initramfs, which attaches it at each boot: `update-initramfs -u`, or `dracut \
             --force`; and boot with root= of the file system that is on the volume"
        ));
    } else if args.root.is_none() && !runs {
        tell(format_args!(
            "systemd does not run here: call `vellum boot start` when this machine boots, and \
             `vellum boot stop` before it is shut down"
        ));
    }
    if runs {
        systemd::reload()?;
    }
    match (args.now, runs) {
        (false, _) => Ok(()),
        (true, true) => systemd::order("start", &name),
        (true, false) => boot::start(&tab, &name),
    }
}

/// The file with the key, which an encrypted volume needs.
fn key_file(args: &Args) -> Result<Option<PathBuf>> {
    let file = args.key.lasting_file()?;
    if file.is_none() && peek::envelope_of(&args.volume)?.is_some() {
        return Err(usage(format!(
            "{} is encrypted, and a boot asks for no passphrase: give --key-file FILE (`vellum key add` \
             adds one). In a service of your own, LoadCredential=vellum.key:FILE replaces it",
            args.volume.display()
        )));
    }
    Ok(file)
}

/// The entry's name: as given, or like the volume's label or file.
fn name_for(args: &Args, label: &str) -> Result<Name> {
    let file = args.volume.file_name().unwrap_or_default();
    let name = args.name.clone();
    let name = name.or_else(|| Name::like(label));
    let name = name.or_else(|| Name::like(&file.to_string_lossy()));
    name.ok_or_else(|| {
        usage("neither its label nor its file's name can be its name: give --name NAME")
    })
}

/// A path by which the volume is found after a boot as well. For a block device, one that does not depend on
/// the order of device discovery.
fn lasting_path(volume: &Path) -> Result<PathBuf> {
    let found = || format!("cannot find {}", volume.display());
    let real = volume.canonicalize().with_context(found)?;
    if !real.starts_with("/dev") {
        return Ok(real);
    }
    for folder in ["/dev/disk/by-id", "/dev/disk/by-partuuid", "/dev/mapper"] {
        let links = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names: Vec<_> = links.map(|link| link.path()).collect();
        names.sort();
        let is_it = |name: &PathBuf| name.canonicalize().is_ok_and(|leads| leads == real);
        if let Some(name) = names.into_iter().find(is_it) {
            return Ok(name);
        }
    }
    tell(format_args!(
        "note: {} may have another name after a boot; if so, its service reports that, and attaches \
         nothing",
        real.display()
    ));
    Ok(real)
}

/// The target that can wait for a volume: not one before the network, if the volume needs that.
fn target_of(volume: &Path) -> Result<Target> {
    /// NFS, SMB2, CIFS, 9P, Ceph, FUSE (which may be anything), AFS.
    const REMOTE: [u32; 7] = [
        0x6969,
        0xFE53_4D42,
        0xFF53_4D42,
        0x0102_1997,
        0x00C3_6400,
        0x6573_5546,
        0x5346_414F,
    ];
    let path = CString::new(volume.as_os_str().as_bytes())?;
    // SAFETY: a valid path, and room for the answer, which is plain numbers.
    let kind = unsafe {
        let mut about = std::mem::zeroed::<libc::statfs>();
        match libc::statfs(path.as_ptr(), &raw mut about) {
            0 => about.f_type as u32,
            _ => return Err(std::io::Error::last_os_error()).context("statfs"),
        }
    };
    Ok(match REMOTE.contains(&kind) {
        true => Target::MultiUser,
        false => Target::LocalFs,
    })
}
