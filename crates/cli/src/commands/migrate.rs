//! `vellum migrate`: copies a volume into a new one with another layout or geometry; offline, verified, resumable.

use crate::claim::{Claimed, claim_target};
use crate::commands::create::LayoutChoice;
use crate::keys::Key;
use crate::opened;
use crate::outcome::{out, tell, usage};
use crate::peek;
use crate::progress;
use crate::properties::{self, Run};
use crate::replace;
use crate::signals::Stop;
use crate::size::Size;
use crate::smaller;
use crate::state;
use crate::unfinished::{self, By, beside, is_one_file};
use crate::volume::{self, NewVolume};
use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::format::areas::Layout;
use vellum_core::format::superblock::Superblock;
use vellum_device::block::{BlockDevice, BlockError};
use vellum_device::info::hex_uuid;
use vellum_device::migrate::{MigrateError, Migrated};
use vellum_device::policy::Policy;
use vellum_device::{OpenOptions, Volume, migrate};
use vellum_medium::Medium;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The volume; no server may have it open. It is only read.
    source: PathBuf,
    /// The new one: a file to make, or a block device to take. A migration into it that was cut short goes on.
    target: PathBuf,
    /// Its layout.
    #[arg(long, value_enum)]
    layout: LayoutChoice,
    /// What clients shall see of it; as much as of the source, if not given. Less, if nothing is behind its end: shrink the file
    /// system first.
    #[arg(long)]
    size: Option<Size>,
    /// Its over-provisioning, in per cent; as the source's, if not given.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(2..=90))]
    over_provisioning: Option<u32>,
    /// How much to take of the medium; as much as the size needs, if not given.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    medium_size: Option<Size>,
    /// Replace a file that is there, or write over what the block device holds.
    #[arg(long)]
    force: bool,
    /// Encrypt the new one, where the source is not: with --key-file, or a passphrase that is asked for twice. What is encrypted is
    /// encrypted in the new one too, and opened by the same secret.
    #[arg(long)]
    encrypt: bool,
    #[command(flatten)]
    key: Key,
    #[command(flatten)]
    run: Run,
}

/// The progress of a migration, in a file beside its target.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    source: String,
    /// The life of the source: if it was opened for writing since, it may have changed.
    life: u64,
    target: String,
    /// The options of the target. A resumed migration does not make it anew.
    asked: TargetOptions,
    blocks_done: u64,
}

/// The options that determine the target.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct TargetOptions {
    layout: String,
    size: Option<u64>,
    over_provisioning: Option<u32>,
    medium_size: Option<u64>,
}

impl TargetOptions {
    fn of(args: &Args) -> Self {
        Self {
            layout: Layout::from(args.layout).name().to_owned(),
            size: args.size.map(|size| size.0),
            over_provisioning: args.over_provisioning,
            medium_size: args.medium_size.map(|size| size.0),
        }
    }

    /// The first option that differs from before.
    fn differs(&self, now: &Self) -> Option<&'static str> {
        [
            ("--layout", self.layout != now.layout),
            ("--size", self.size != now.size),
            (
                "--over-provisioning",
                self.over_provisioning != now.over_provisioning,
            ),
            ("--medium-size", self.medium_size != now.medium_size),
        ]
        .into_iter()
        .find_map(|(name, other)| other.then_some(name))
    }
}

impl std::fmt::Display for TargetOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "--layout {}", self.layout)?;
        if let Some(bytes) = self.size {
            write!(f, " --size {bytes}")?;
        }
        if let Some(percent) = self.over_provisioning {
            write!(f, " --over-provisioning {percent}")?;
        }
        match self.medium_size {
            Some(bytes) => write!(f, " --medium-size {bytes}"),
            None => Ok(()),
        }
    }
}

/// The most bytes in a state file.
const BYTES_MAX: u64 = 64 << 10;

impl State {
    fn path(target: &Path) -> PathBuf {
        beside(target, ".migrating")
    }

    fn load(path: &Path) -> Result<Option<Self>> {
        match path.symlink_metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            // Another user's file could redirect the copy.
            Ok(found)
                if !found.is_file() || found.len() > BYTES_MAX || found.uid() != state::user() =>
            {
                bail!("{} is not a migration's: remove it", path.display())
            }
            _ => {}
        }
        let text = std::fs::read(path).with_context(|| path.display().to_string())?;
        let state = serde_json::from_slice(&text);
        Ok(Some(state.with_context(|| {
            format!(
                "{} is not a migration's: remove it, and its target",
                path.display()
            )
        })?))
    }

    fn save(&self, path: &Path) -> std::io::Result<()> {
        replace::file(path, 0o600, &serde_json::to_vec(self)?)
    }
}

/// Makes the target under its final name. `note` is called with its UUID before it gets that name, so any file with
/// that name is known to be ours.
fn make(target: &Path, new: &NewVolume, note: impl FnOnce(String) -> Result<()>) -> Result<()> {
    if std::fs::symlink_metadata(target).is_ok() {
        // A block device, or a file that `--force` replaces.
        return note(volume::create(target, new, &|| false)?.uuid);
    }
    replace::has_folder(target)?;
    let unfinished = unfinished(target);
    replace::clear(&unfinished).with_context(|| unfinished.display().to_string())?;
    note(volume::create_named(&unfinished, target, new, &|| false)?.uuid)?;
    name(target)
}

/// The path of a target while it is being made.
fn unfinished(target: &Path) -> PathBuf {
    beside(target, ".migrating.target")
}

/// Gives its name to a target that has been made and recorded. What has taken that name since stays.
fn name(target: &Path) -> Result<()> {
    let shown = target.display();
    match replace::rename(&unfinished(target), target) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => bail!(
            "something else has just been made as {shown}, and is left as it is: move it away, and give the \
             same command again"
        ),
        named => named.with_context(|| shown.to_string()),
    }
}

/// Copies, compares, and describes the new volume.
pub fn run(args: &Args) -> Result<()> {
    // Before the first thread.
    let stop = Stop::on_signals(false)?;
    migrated(args, &|| stop.asked())
}

fn migrated(args: &Args, stopped: &dyn Fn() -> bool) -> Result<()> {
    if args.encrypt && peek::envelope_of(&args.source)?.is_some() {
        return Err(usage(format!(
            "{} is encrypted already: leave out --encrypt. The new one is encrypted, too, and opened by the \
             same secret",
            args.source.display()
        )));
    }
    let plain = Key::none();
    let source_key = if args.encrypt { &plain } else { &args.key };
    let (superblock, _) = peek::superblock_of(&args.source, source_key)?;
    unfinished::refuse(&args.source, &superblock)?;
    let path = State::path(&args.target);
    let source = opened::open(&args.source, true, source_key)?;
    let source = volume_on(source, true, Policy::default());
    let source = source.and_then(undamaged);
    let source = source.map_err(|error| may_be_rescued(error, &args.source))?;
    let unmixed = source.check_unmixed();
    unmixed.with_context(|| args.source.display().to_string())?;
    let mut state = match State::load(&path)? {
        Some(state) => going_on(args, &superblock, &path, state)?,
        None => {
            let state = begun(args, &superblock, &path, &source)?;
            tell_of_snapshots(&source, args);
            state
        }
    };
    let Claimed { medium, socket } = claim_target(None, &args.target, &args.key)?;
    let policy = properties::policy_of(&medium, &args.run)?;
    let target = volume_on(medium, false, policy)?;
    if hex_uuid(&target.superblock().uuid()) != state.target {
        bail!(
            "{} was replaced just now: nothing is copied",
            args.target.display()
        );
    }
    // Copied wholly, it may have been in use, because its mark goes before its record does. Then it is only compared.
    if state.blocks_done < source.blocks().min(target.blocks()) && !unfinished::is_marked(&target) {
        bail!(
            "{} is not marked as half a copy any more: to go on would write over what is in it now. To copy \
             anew, remove {}, and add --force if {0} may be lost",
            args.target.display(),
            path.display()
        );
    }
    let compared = copied(&source, &target, &mut state, &path, stopped);
    // Otherwise what was recorded as copied is already durable, and an orderly stop could wait for room that does not exist.
    if compared.is_ok() {
        end(&target, &args.target)?;
    }
    source.stop()?;
    drop(socket);
    let blocks = source.blocks().min(target.blocks());
    let compared = compared.map_err(|error| explained(error, args, state.blocks_done, blocks))?;
    std::fs::remove_file(&path)
        .and_then(|()| replace::sync_folder(&path))
        .with_context(|| path.display().to_string())?;
    let info = target.info();
    writeln!(
        out(),
        "{}: {} of {} copied and compared, layout {}, UUID {}",
        info.medium,
        Size(compared.blocks * BLOCK_BYTES as u64),
        Size(info.logical_bytes),
        info.layout,
        info.uuid
    )?;
    Ok(())
}

/// Refuses a source of which something is lost, or in doubt: its copy would not say so.
fn undamaged(source: Arc<Volume>) -> Result<Arc<Volume>> {
    match source.damage().map(|damage| damage.findings().next()) {
        None => Ok(source),
        Some(first) => bail!(first.unwrap_or_else(|| "it is damaged".to_owned())),
    }
}

/// The error for a source that cannot be read, with what can still be done about damage.
fn may_be_rescued(error: anyhow::Error, source: &Path) -> anyhow::Error {
    error.context(format!(
        "{0} cannot be read (`vellum check {0}` says what is damaged, `vellum rescue {0} NEW` copies the \
         rest)",
        source.display()
    ))
}

/// Copies the rest, and compares all. Notes how far it is.
fn copied(
    source: &Arc<Volume>,
    target: &Arc<Volume>,
    state: &mut State,
    path: &Path,
    stopped: &dyn Fn() -> bool,
) -> Result<Migrated, MigrateError> {
    let going_on = || match stopped() {
        true => Err(MigrateError::Interrupted),
        false => Ok(()),
    };
    let bar = bar("copying", source);
    let copied = migrate::copy(&**source, &**target, state.blocks_done, &mut |at| {
        bar.set_position(at * BLOCK_BYTES as u64);
        state.blocks_done = at;
        state.save(path)?;
        going_on()
    });
    bar.finish_and_clear();
    copied?;
    let bar = self::bar("comparing", source);
    let compared = migrate::verify(&**source, &**target, &mut |at| {
        bar.set_position(at * BLOCK_BYTES as u64);
        going_on()
    });
    bar.finish_and_clear();
    compared
}

/// All is copied and compared: makes the copy a volume like others, and stops it.
fn end(target: &Volume, path: &Path) -> Result<()> {
    let shown = path.display();
    unfinished::end(target).with_context(|| {
        format!(
            "{shown}: all is copied and compared, but still marked as half a copy: give the same \
             command again"
        )
    })?;
    Ok(target.stop_telling(|| {
        tell(format_args!(
            "{shown}: no room for what is to be written last: waiting for it"
        ))
    })?)
}

/// Snapshots are not copied.
fn tell_of_snapshots(source: &Volume, args: &Args) {
    if source.listed_snapshots().is_ok_and(|all| !all.is_empty()) {
        let source = args.source.display();
        tell(format_args!(
            "{source}: its snapshots are not copied: keep {source} for as long as you want them"
        ));
    }
}

/// Resumes an interrupted migration, if it matches this one.
fn going_on(args: &Args, source: &Superblock, path: &Path, state: State) -> Result<State> {
    if std::fs::symlink_metadata(&args.target).is_err() && unfinished(&args.target).exists() {
        name(&args.target)?;
    }
    if std::fs::symlink_metadata(&args.target).is_err() {
        bail!(
            "{} is of a migration into {}, which is not there any more: remove it, and begin anew",
            path.display(),
            args.target.display()
        );
    }
    let target = peek::uuid_of(&args.target)?;
    let is_ours = (state.source.as_str(), state.life, state.target.as_str())
        == (&hex_uuid(&source.uuid()), source.life().0, &target);
    if !is_ours {
        bail!(
            "{} is of another migration, or its source has been served since: remove it and {}, and begin \
             anew",
            path.display(),
            args.target.display()
        );
    }
    let wants = args.encrypt || peek::envelope_of(&args.source)?.is_some();
    if wants != peek::envelope_of(&args.target)?.is_some() {
        bail!(
            "{} is {}encrypted, unlike what is asked for: remove it and {}, and begin anew",
            args.target.display(),
            if wants { "not " } else { "" },
            path.display()
        );
    }
    if let Some(option) = state.asked.differs(&TargetOptions::of(args)) {
        bail!(
            "{} was begun with another {option}: go on with the same options ({}), or remove it and {}, and \
             begin anew",
            args.target.display(),
            state.asked,
            path.display()
        );
    }
    Ok(state)
}

/// Starts a migration by making its target.
fn begun(args: &Args, source: &Superblock, path: &Path, volume: &Arc<Volume>) -> Result<State> {
    if args.target == args.source || is_one_file(&args.target, &args.source) {
        return Err(usage(format!(
            "{} is what is migrated: name another file or device for the copy",
            args.target.display()
        )));
    }
    let new = new_volume(args, source)?;
    if let Some(size) = args.size {
        smaller::fits(volume, size).with_context(|| args.source.display().to_string())?;
    }
    let mut state = State {
        source: hex_uuid(&source.uuid()),
        life: source.life().0,
        target: String::new(),
        asked: TargetOptions::of(args),
        blocks_done: 0,
    };
    make(&args.target, &new, |uuid| {
        state.target = uuid;
        state.save(path).with_context(|| path.display().to_string())
    })?;
    Ok(state)
}

/// The description of the target.
fn new_volume(args: &Args, source: &Superblock) -> Result<NewVolume> {
    let own = source.over_provisioning();
    Ok(NewVolume {
        size: Some(match args.size {
            Some(size) => size.0,
            None => source.logical_blocks() * BLOCK_BYTES as u64,
        }),
        medium_size: args.medium_size.map(|size| size.0),
        over_provisioning: args.over_provisioning.map_or(own, |percent| percent * 10),
        segment_size: None,
        preallocate: false,
        force: args.force,
        layout: args.layout.into(),
        history: volume::HISTORY,
        choose: Box::new(unfinished::marked(
            By::Migrate,
            properties::taken_from(source),
        )),
        secret: match args.encrypt {
            true => Some(args.key.new_secret()?),
            false => args.key.used(),
        },
    })
}

/// The error, with what is left and what can be done. If the target is full, the advice differs from that for a served volume.
fn explained(error: MigrateError, args: &Args, done: u64, blocks: u64) -> anyhow::Error {
    if matches!(error, MigrateError::Interrupted) {
        return interrupted(&args.target, Size::of_blocks(done), Size::of_blocks(blocks));
    }
    let MigrateError::Block {
        which, source, lba, ..
    } = &error
    else {
        return error.into();
    };
    match source {
        BlockError::NoRoom => {
            return anyhow::anyhow!(
                "the file system that {} is on is full, at LBA {lba}: free some there, and give the same \
                 command again",
                args.target.display()
            );
        }
        BlockError::Full => {}
        BlockError::Io(_) if *which == migrate::SOURCE => {
            return may_be_rescued(error.into(), &args.source);
        }
        _ => return error.into(),
    }
    let (target, state) = (&args.target, State::path(&args.target));
    anyhow::anyhow!(
        "the copy has no room left at LBA {lba}: remove {} and {}, and begin anew with a larger \
         --medium-size. Blocks that the source shares are written out as often as they are mapped, unless \
         the copy shares them too (--with dedup=on)",
        target.display(),
        state.display()
    )
}

fn interrupted(target: &Path, done: Size, of: Size) -> anyhow::Error {
    let (shown, state) = (target.display(), State::path(target));
    let state = state.display();
    let done = match done == of {
        true => "all is copied, and not yet compared".to_owned(),
        false => format!("{done} of {of} are copied"),
    };
    let give_up = match unfinished::is_device(target) {
        true => format!("remove {state}, and make another volume on {shown} with --force"),
        false => format!("remove {shown} and {state}"),
    };
    anyhow::anyhow!(
        "interrupted: {done}. {shown} is half a copy, and no other command takes it for a volume. \
         Give the same command again: it goes on. Or give it up: {give_up}"
    )
}

fn volume_on(medium: Box<dyn Medium>, read_only: bool, policy: Policy) -> Result<Arc<Volume>> {
    let options = OpenOptions {
        read_only,
        policy,
        copying: !read_only,
        ..OpenOptions::default()
    };
    Ok(Arc::new(Volume::open(Arc::new(medium), &options)?))
}

fn bar(what: &'static str, volume: &Arc<Volume>) -> ProgressBar {
    progress::of_bytes(what, volume.blocks() * BLOCK_BYTES as u64)
}

#[cfg(test)]
mod tests;
