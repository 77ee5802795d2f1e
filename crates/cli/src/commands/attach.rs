//! `vellum attach`: turns a volume's file into a block device, and mounts its file system if requested.

use crate::attachment::{self, Attachment, Via};
use crate::bound;
use crate::commands::journal;
use crate::keys::Key;
use crate::outcome::{out, tell, usage};
use crate::peek;
use crate::properties::{Run, Settings};
use crate::signals::Stop;
use crate::user::ServiceUser;
use crate::{ext4, host, snapshots, strangers, unfinished, views, whose};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vellum_core::format::areas::Layout;
use vellum_device::info::hex_uuid;

/// How long a server may take to examine a file system's journal.
const LOOK_PATIENCE: Duration = Duration::from_secs(15);

/// Why `journal_async_commit` is not safe on a clone.
const UNFOLLOWED_CLONE: &str = "the journal of a clone is not followed";

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The volume. VOLUME@SNAPSHOT is a snapshot of it, and can be attached while the volume is attached over FUSE. What is written
    /// to a snapshot is kept in memory, and forgotten when it is detached. VOLUME@-15m is the newest snapshot that was taken at least
    /// 15 minutes ago (s, m, h, d or w). This command then tells its name, by which it is detached. VOLUME@CLONE is a clone, and
    /// keeps what is written to it.
    volume: PathBuf,
    /// Mount the file system on it here. That of a snapshot is mounted read-only. That of a clone is mounted with the kernel's own
    /// options if none are given.
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// Make an ext4 on it first.
    #[arg(long)]
    mkfs: bool,
    /// With --mkfs: also when there is a file system already. What is in it is lost.
    #[arg(long, requires = "mkfs")]
    force: bool,
    /// Options of the mount, for this run; the same as --with mount-options=OPTIONS. If they are neither given nor among the volume's
    /// properties, an ext4 is mounted with data=journal, and also with journal_async_commit where that is safe. It is safe where the
    /// volume's layout allows it and the volume can follow the journal of the ext4. Other file systems get the kernel's own options.
    #[arg(long, short, value_name = "OPTIONS", requires = "mount")]
    options: Option<String>,
    /// How to attach it. If it is not given, this is the best way that this machine has.
    #[arg(long, value_enum)]
    via: Option<Via>,
    /// With --via nbd: its server becomes this user of the machine when all is open, and is root no more, as in `vellum serve`.
    #[arg(long, value_name = "USER")]
    user: Option<ServiceUser>,
    /// Let a shutdown end the server last. It is not killed with all other processes, so that what is mounted can be unmounted.
    /// This is for a root file system, which nobody can detach.
    #[arg(long)]
    survive_shutdown: bool,
    #[command(flatten)]
    key: Key,
    #[command(flatten)]
    run: Run,
    /// The entry that this is for.
    #[arg(skip)]
    boot: Option<String>,
}

impl Args {
    /// The arguments for a boot entry.
    pub fn at_boot(
        name: &str,
        volume: PathBuf,
        mount: Option<PathBuf>,
        via: Option<Via>,
        key_file: Option<PathBuf>,
    ) -> Self {
        Self {
            volume,
            mount,
            mkfs: false,
            force: false,
            options: None,
            via,
            user: None,
            survive_shutdown: true,
            key: Key::file(key_file),
            run: Run::default(),
            boot: Some(name.to_owned()),
        }
    }
}

/// Attaches it.
pub fn run(args: Args) -> Result<()> {
    if args.user.is_some() && args.via != Some(Via::Nbd) {
        return Err(usage(
            "--user is for --via nbd: at its end a server of ublk or fuse undoes what only root may undo",
        ));
    }
    if args.user.is_some() && args.survive_shutdown {
        return Err(usage(
            "--user and --survive-shutdown exclude each other: a shutdown spares only servers of root",
        ));
    }
    let stop = Stop::on_signals(true)?;
    match snapshots::split(&args.volume) {
        (volume, Some(asked)) => {
            let snapshot = snapshots::found(&volume, &args.key, &asked)?;
            if snapshot != asked {
                let named = views::named(&volume, &snapshot);
                tell(format_args!("@{asked} is {}", named.display()));
            }
            of_snapshot(&args, &volume, &snapshot, &stop)
        }
        (_, None) => of_volume(args, &stop),
    }
}

/// Attaches a snapshot or a clone. If the volume has a server, that server shows it.
fn of_snapshot(args: &Args, volume: &Path, snapshot: &str, stop: &Stop) -> Result<()> {
    if args.mkfs {
        return Err(usage(
            "--mkfs: a snapshot is what it is, and a clone begins as one",
        ));
    }
    let uuid = peek::uuid_of(volume)?;
    let mount = mount_of(args)?;
    let options = args.options.as_deref();
    let is_clone = snapshots::is_clone(volume, &args.key, snapshot)?;
    let options = match (is_clone, options) {
        (true, own) => ext4::options(
            Some(own.unwrap_or(ext4::OF_ANOTHER)),
            Some(UNFOLLOWED_CLONE),
        )?
        .to_owned(),
        (false, None) => "ro".to_owned(),
        (false, Some(own)) => format!("ro,{own}"),
    };
    may_attach()?;
    if whose::find_server(volume)?.is_some() {
        if args.user.is_some() {
            return Err(usage(
                "--user: the volume has a server already, which stays as it is",
            ));
        }
        let device = of_attached(
            volume,
            &uuid,
            snapshot,
            mount.as_deref(),
            (is_clone, &options),
        )?;
        return tell_of(&device, mount.as_deref());
    }
    // A missing key is reported before anything is done.
    peek::superblock_of(volume, &args.key)?;
    let shown = views::named(&canonical(volume)?, snapshot);
    let mut attachment = Attachment::begin(&uuid, &shown, via_of(args)?, stop)?;
    let held = mount.as_deref().map(attachment::held).transpose()?;
    attachment.serve(&user_of(args), args.key.handed())?;
    let device = attachment.bind()?;
    if let Some(dir) = &held {
        if is_clone {
            check_clone(&device, &shown)?;
        }
        let mounted = attachment.mount(dir, &options);
        mounted.map_err(|error| explained(error, &device, &shown, ""))?;
    }
    attachment.keep();
    tell_of(&device, mount.as_deref())
}

/// The same for a volume that has a server. A detach of the volume waits until it is mounted.
fn of_attached(
    volume: &Path,
    uuid: &str,
    snapshot: &str,
    mount: Option<&Path>,
    (is_clone, options): (bool, &str),
) -> Result<PathBuf> {
    let record = views::alone(uuid, volume, snapshot)?;
    let held = mount.map(attachment::held).transpose()?;
    let device = views::attach(&record, uuid, volume, snapshot)?;
    if is_clone && bound::is_read_only(&device) {
        views::undo(&record, uuid, snapshot)?;
        bail!(
            "{0}@{snapshot} could only be read: the server of {0} was started for a snapshot, and \
             writes nothing. Detach that snapshot first (`vellum list`)",
            volume.display()
        );
    }
    let mounted = |dir| {
        let shown = views::named(volume, snapshot);
        if is_clone {
            check_clone(&device, &shown)?;
        }
        host::mount(&device, dir, options).map_err(|error| explained(error, &device, &shown, ""))
    };
    if let Err(error) = held.as_ref().map_or(Ok(()), mounted) {
        views::undo(&record, uuid, snapshot)?;
        return Err(error);
    }
    Ok(device)
}

fn of_volume(args: Args, stop: &Stop) -> Result<()> {
    // Before the volume is looked at: then nobody else can change it afterwards.
    let is_roots = args.boot.is_some() && strangers::first_untrusted(&args.volume)?.is_none();
    let (superblock, _) = peek::superblock_of(&args.volume, &args.key)?;
    // Its server would refuse it, too, and leave a log.
    unfinished::refuse(&args.volume, &superblock)?;
    let uuid = hex_uuid(&superblock.uuid());
    let mut with = args.run.clone();
    if let Some(options) = &args.options {
        with.add(format!("mount-options={options}").parse().map_err(usage)?);
    }
    if args.mount.is_some() {
        with.mount();
    }
    let settings = Settings::of(&superblock, superblock.properties(), &with);
    settings.check(&superblock)?;
    let asked = Some(settings.mount_options.as_str()).filter(|own| !own.is_empty());
    // Who attaches may lift `nosuid` and `nodev`. The volume may not, as a stranger may have made it; unless root enabled it for the boot,
    // and root alone can have changed it since.
    let is_trusted = with.sets("mount-options") || is_roots;
    if args.mount.is_some() && !is_trusted {
        strangers::check(asked.unwrap_or_default())?;
    }
    // What is not safe in any case is refused before anything is done.
    ext4::mount_options(superblock.layout(), asked)?;
    let path = canonical(&args.volume)?;
    let mount = mount_of(&args)?;
    may_attach()?;
    let mut attachment = Attachment::begin(&uuid, &path, via_of(&args)?, stop)?;
    // A dead server of the volume itself may have left it mounted there: not any more.
    let held = mount.as_deref().map(attachment::held).transpose()?;
    let mut flags = user_of(&args);
    flags.extend(with.flags().into_iter().map(OsString::from));
    attachment.at_boot(args.boot, args.survive_shutdown);
    attachment.serve(&flags, args.key.handed())?;
    let device = attachment.bind()?;
    if args.mkfs {
        make_file_system(&device, &path, args.force)?;
    }
    if let Some(dir) = &held {
        let options = options_for(&device, &path, superblock.layout(), asked)?;
        let options = match is_trusted {
            true => options,
            false => strangers::guarded(&options),
        };
        let mounted = attachment.mount(dir, &options);
        let advice = format!(": `vellum attach {} --mkfs` makes one", path.display());
        mounted.map_err(|error| explained(error, &device, &path, &advice))?;
        if !is_trusted {
            strangers::is_guarded(host::mounted_at(&device, dir.path()), dir.path())?;
        }
    }
    attachment.keep();
    tell_of(&device, mount.as_deref())
}

/// The options to mount the volume's file system with. One flush for each commit only where that is safe.
fn options_for(device: &Path, path: &Path, layout: Layout, asked: Option<&str>) -> Result<String> {
    let own = ext4::own_options(device).with_context(|| {
        format!(
            "the beginning of {0} cannot be read (`vellum check {0}` says what is damaged, \
             `vellum rescue {0} NEW` copies the rest, `vellum serve {0} --read-only` shows it)",
            path.display()
        )
    })?;
    if own.is_none() && asked.is_none() {
        return Ok(ext4::OF_ANOTHER.to_owned());
    }
    let own = own.unwrap_or_default();
    let options = ext4::mount_options(layout, asked)?;
    if !ext4::is_async(options) && !ext4::is_async(&own) {
        return Ok(options.to_owned());
    }
    let reason = match ext4::unsafe_because(layout, options) {
        None => unordered_because(path)?,
        reason => reason,
    };
    let Some(reason) = reason else {
        return Ok(ext4::with_barriers(options).into_owned());
    };
    ext4::refuse_own(&own, &reason).with_context(|| path.display().to_string())?;
    let options = ext4::options(asked, Some(&reason))?;
    tell(format_args!(
        "mounting with {options}, without journal_async_commit: {reason}"
    ));
    Ok(options.to_owned())
}

/// Refuses to mount a clone whose ext4 asks for what is safe only where its journal is followed.
fn check_clone(device: &Path, shown: &Path) -> Result<()> {
    let own = ext4::own_options(device)?.unwrap_or_default();
    ext4::refuse_own(&own, UNFOLLOWED_CLONE).with_context(|| shown.display().to_string())
}

/// Makes an ext4. What is there already is lost only if that is meant (`force`).
fn make_file_system(device: &Path, volume: &Path, force: bool) -> Result<()> {
    if !force && ext4::holds_something(device)? {
        return Err(usage(format!(
            "--mkfs: {} has a file system already, or a partition table or the like: \
             add --force to lose it",
            volume.display()
        )));
    }
    ext4::make(device)
}

/// The error of a mount; if no file system is found there, that comes first.
fn explained(error: anyhow::Error, device: &Path, shown: &Path, advice: &str) -> anyhow::Error {
    match ext4::holds_something(device) {
        Ok(false) => error.context(format!(
            "no file system is found on {}{advice}",
            shown.display()
        )),
        _ => error,
    }
}

fn canonical(volume: &Path) -> Result<PathBuf> {
    let found = volume.canonicalize();
    found.with_context(|| format!("cannot find {}", volume.display()))
}

fn mount_of(args: &Args) -> Result<Option<PathBuf>> {
    let dir = args.mount.as_deref();
    dir.map(attachment::mount_point).transpose()
}

fn may_attach() -> Result<()> {
    if !host::is_root() {
        bail!(
            "attaching a block device needs root: use sudo, or `vellum serve --socket` with an NBD client \
             in user space"
        );
    }
    Ok(())
}

/// The server's options for its user.
fn user_of(args: &Args) -> Vec<OsString> {
    let words = args.user.iter().flat_map(|user| ["--user", user.name()]);
    words.map(OsString::from).collect()
}

fn via_of(args: &Args) -> Result<Via> {
    match args.via {
        None => Via::best(),
        Some(via) => match via.missing() {
            None => Ok(via),
            Some(missing) => bail!("cannot attach: {missing}"),
        },
    }
}

fn tell_of(device: &Path, mount: Option<&Path>) -> Result<()> {
    match mount {
        Some(dir) => writeln!(out(), "{} on {}", device.display(), dir.display())?,
        None => writeln!(out(), "{}", device.display())?,
    }
    Ok(())
}

/// Why a commit block of the file system on a volume could overtake what it commits; `None` if it cannot. Waits until the server has
/// looked.
fn unordered_because(volume: &Path) -> Result<Option<String>> {
    let mut told = None;
    let mut failed = None;
    host::eventually(LOOK_PATIENCE, || {
        match journal::ask(volume, &Value::Null) {
            Ok(journals) => told = ext4::unordered_because(&journals),
            Err(error) => failed = Some(error),
        }
        told.is_some() || failed.is_some()
    });
    match (failed, told) {
        (Some(error), _) => Err(error),
        (None, Some(reason)) => Ok(reason),
        (None, None) => Ok(Some("its journal has not been looked at yet".to_owned())),
    }
}
