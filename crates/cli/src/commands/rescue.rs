//! `vellum rescue`: copies what can be read of a damaged volume into a new one.

use crate::claim::{Claimed, claim_target};
use crate::commands::restore::{held, replaceable};
use crate::keys::Key;
use crate::opened;
use crate::outcome::{counted, out, tell, usage};
use crate::peek;
use crate::progress;
use crate::properties::{self, Run};
use crate::replace;
use crate::signals::Stop;
use crate::size::Size;
use crate::unfinished::{self, By, beside, is_device, is_one_file};
use crate::volume::{self, NewVolume};
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::{PathPersistError, TempPath};
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::format::superblock::Superblock;
use vellum_core::recovery::rescue::{LbaSet, Trust};
use vellum_device::block::{BlockDevice, BlockError};
use vellum_device::migrate::MigrateError;
use vellum_device::rescue::{self, Left, Losses, Rescued};
use vellum_device::{OpenOptions, Volume};

/// The most runs of blocks listed without `--json`.
const LISTED: usize = 100;

/// Arguments.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  vellum rescue damaged.vlm                 say what can be brought back, \
                        and what is lost\n  vellum rescue damaged.vlm new.vlm         and copy it into a new \
                        volume\n  vellum rescue --sure damaged.vlm new.vlm  only what is certain to be what \
                        was there last\n\n\
                        A new file gets its name only when the rescue is complete; a block device is served \
                        only then.\n\n\
                        Snapshots and clones are not copied: it names them, as far as their list can be \
                        read.\n\n\
                        The exit code is 1 when blocks are lost. Blocks in doubt do not count: it is 0 when \
                        there are only those."
)]
pub struct Args {
    /// The damaged volume; no server may have it open. It is only read.
    source: PathBuf,
    /// The new volume: a file to make, or a block device. Without it all is read and nothing is written.
    target: Option<PathBuf>,
    /// Leave out blocks of which only an older version may be found.
    #[arg(long)]
    sure: bool,
    /// Replace a file that is there, or write over what the block device holds.
    #[arg(long, requires = "target")]
    force: bool,
    /// As JSON, all blocks that are lost or in doubt with it.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    key: Key,
}

/// Reports what can be rescued, and rescues it.
pub fn run(args: &Args) -> Result<()> {
    let (superblock, _) = peek::superblock_of(&args.source, &args.key)?;
    let is_source = |target: &PathBuf| *target == args.source || is_one_file(target, &args.source);
    if let Some(target) = args.target.as_ref().filter(|target| is_source(target)) {
        return Err(usage(format!(
            "{} is what is rescued: name another file or device for the copy",
            target.display()
        )));
    }
    if args.target.is_some() {
        // Its copy would have no mark.
        unfinished::refuse(&args.source, &superblock)?;
    }
    let stop = Stop::on_signals(false)?;
    let medium = opened::open(&args.source, true, &args.key)?;
    let options = OpenOptions {
        read_only: true,
        trust: match args.sure {
            true => Trust::Certain,
            false => Trust::Newest,
        },
        // They are not copied. What names them reads them itself.
        without_snapshots: true,
        ..OpenOptions::default()
    };
    let bar = progress::of_time("reading what leads to data");
    let source = Volume::open(Arc::new(medium), &options);
    bar.finish_and_clear();
    let source = source?;
    let blocks = superblock.logical_blocks();
    let guessed = source.damage().map_or_else(
        || LbaSet::new(blocks),
        |damage| damage.guessed().before(blocks),
    );
    let target = args.target.as_deref();
    let rescued = match target {
        Some(target) => copy(&source, &superblock, target, args, &|| stop.asked())?,
        None => rescue(&source, None, &|| stop.asked())?,
    };
    let lost = &rescued.lost;
    let findings: Vec<String> = source.damage().iter().flat_map(|d| d.findings()).collect();
    let bar = progress::of_time("looking for the files of lost blocks");
    let losses = rescue::losses(&source, lost);
    bar.finish_and_clear();
    let left = rescue::left(&source);
    let found = RescueReport {
        findings: &findings,
        lost,
        guessed: &guessed,
        missing: &rescued.missing,
        losses: &losses,
        left: &left,
        read: rescued.blocks,
        is_copied: target.is_some(),
    };
    match args.json {
        true => found.as_json()?,
        false => found.as_text()?,
    }
    source.stop()?;
    if !lost.is_empty() {
        bail!("{} block(s) are lost", lost.len());
    }
    Ok(())
}

/// Reads everything that can be read, and copies it if there is a target.
fn rescue(
    source: &Volume,
    to: Option<&dyn BlockDevice>,
    stopped: &dyn Fn() -> bool,
) -> Result<Rescued> {
    let size = |blocks: u64| blocks * BLOCK_BYTES as u64;
    let bar = progress::of_bytes("rescuing", size(source.blocks()));
    let rescued = rescue::rescue(source, to, &mut |at| {
        bar.set_position(size(at));
        !stopped()
    });
    bar.finish_and_clear();
    Ok(rescued?)
}

/// The error of a copy. One without room does not go on, as a served volume does.
fn explained(error: anyhow::Error, target: &Path) -> anyhow::Error {
    let is_full = |found: &MigrateError| match found {
        MigrateError::Block { source, .. } => matches!(source, BlockError::NoRoom),
        _ => false,
    };
    match error.downcast_ref::<MigrateError>().is_some_and(is_full) {
        true => anyhow::anyhow!(
            "the file system that {} is on is full: free some there, and give the same command again",
            target.display()
        ),
        false => error,
    }
}

/// Copies what can be read into a new volume. A file is made beside its place, and gets its name when it is complete.
fn copy(
    source: &Volume,
    superblock: &Superblock,
    target: &Path,
    args: &Args,
    stopped: &dyn Fn() -> bool,
) -> Result<Rescued> {
    let shown = target.display();
    let to_make = |force| new_volume(superblock, &args.key, force);
    if is_device(target) {
        volume::create(target, &to_make(args.force), &|| false)?;
        return filled(source, (None, target), args, stopped).with_context(|| {
            format!("{shown} has only a part of what can be read: begin anew with --force")
        });
    }
    let _held = held(target, args.force)?;
    let refused = || format!("{shown} is not made");
    let place = beside(target, ".rescuing");
    // One that was killed may have left it; one that still runs has it locked.
    if place.symlink_metadata().is_ok_and(|left| left.is_file()) {
        replaceable(&place).with_context(refused)?;
    }
    // Without force: in somebody else's folder it may be a link to a device.
    replace::clear(&place).with_context(refused)?;
    volume::create_named(&place, target, &to_make(false), &|| false).with_context(refused)?;
    // Removed if this fails.
    let made = TempPath::try_from_path(&place).with_context(refused)?;
    let file = peek::opened(&place).with_context(refused)?;
    let rescued = filled(source, (Some(&file), target), args, stopped).with_context(refused)?;
    let named = match args.force {
        true => made.persist(target),
        false => made.persist_noclobber(target),
    };
    if let Err(PathPersistError { error, path }) = named {
        // All of it is there, so it is not removed for want of a name.
        let _ = path.keep();
        bail!(
            "{shown}: the copy is whole, but cannot be given its name ({error}): it is {}",
            place.display()
        );
    }
    replace::sync_folder(target)?;
    Ok(rescued)
}

/// What to make for the copy.
fn new_volume(superblock: &Superblock, key: &Key, force: bool) -> NewVolume {
    NewVolume {
        size: Some(superblock.logical_blocks() * BLOCK_BYTES as u64),
        medium_size: None,
        over_provisioning: superblock.over_provisioning(),
        segment_size: None,
        preallocate: false,
        force,
        layout: superblock.layout(),
        history: volume::HISTORY,
        choose: Box::new(unfinished::marked(
            By::Rescue,
            properties::taken_from(superblock),
        )),
        secret: key.used(),
    }
}

/// Copies what can be read into a volume that was just made: the one at this path, or the one that is held open.
fn filled(
    source: &Volume,
    (held, target): (Option<&File>, &Path),
    args: &Args,
    stopped: &dyn Fn() -> bool,
) -> Result<Rescued> {
    let Claimed { medium, socket } = claim_target(held, target, &args.key)?;
    let how = OpenOptions {
        policy: properties::policy_of(&medium, &Run::default())?,
        copying: true,
        ..OpenOptions::default()
    };
    let to = Volume::open(Arc::new(medium), &how)?;
    let rescued = rescue(source, Some(&to), stopped).map_err(|error| explained(error, target))?;
    unfinished::end(&to)?;
    to.stop_telling(|| {
        tell(format_args!(
            "{}: no room for what is to be written last: waiting for it",
            target.display()
        ))
    })?;
    drop(socket);
    Ok(rescued)
}

/// The report.
struct RescueReport<'a> {
    findings: &'a [String],
    lost: &'a LbaSet,
    guessed: &'a LbaSet,
    missing: &'a LbaSet,
    losses: &'a Losses,
    /// The snapshots and clones.
    left: &'a Left,
    /// Blocks that were read.
    read: u64,
    is_copied: bool,
}

impl RescueReport<'_> {
    fn as_json(&self) -> Result<()> {
        let runs = |set: &LbaSet| -> Vec<_> {
            let runs = set.runs();
            runs.map(|(lba, blocks)| json!({"lba": lba.0, "blocks": blocks}))
                .collect()
        };
        let files = self.losses.files.iter();
        let files: Vec<_> = files
            .map(|(name, blocks)| json!({"name": name, "blocks": blocks}))
            .collect();
        let left = self.left.named.iter();
        let left: Vec<_> = left
            .map(|one| json!({"name": one.name, "clone_of": one.clone_of}))
            .collect();
        let report = json!({
            "damage": self.findings,
            "lost": runs(self.lost),
            "files": files,
            "more_files": self.losses.may_be_more,
            "in_doubt": runs(self.guessed),
            "in_doubt_and_not_found": runs(self.missing),
            "snapshots_not_copied": left,
            "more_snapshots": self.left.may_be_more,
            "damage_of_snapshots": self.left.wrong,
            "read_blocks": self.read,
            "copied_blocks": self.is_copied.then_some(self.read),
        });
        Ok(writeln!(out(), "{report:#}")?)
    }

    fn as_text(&self) -> Result<()> {
        let mut out = out();
        if self.findings.is_empty() && self.left.wrong.is_empty() {
            writeln!(out, "no metadata is damaged")?;
        }
        for finding in self.findings.iter().chain(&self.left.wrong) {
            writeln!(out, "damaged: {finding}")?;
        }
        for (what, set) in [
            ("lost", self.lost),
            ("in doubt", self.guessed),
            ("in doubt, and not found", self.missing),
        ] {
            for (lba, blocks) in set.runs().take(LISTED) {
                writeln!(out, "{what}: {blocks} block(s) from LBA {lba} on")?;
            }
            if let Some(left) = set.runs().count().checked_sub(LISTED + 1) {
                let more = counted(left as u64 + 1, "more run");
                writeln!(out, "{what}: {more} (--json lists all)")?;
            }
        }
        self.name_files(&mut out)?;
        self.name_snapshots(&mut out)?;
        let size = |blocks: u64| Size(blocks * BLOCK_BYTES as u64);
        writeln!(
            out,
            "lost: {}; in doubt: {}",
            size(self.lost.len()),
            size(self.guessed.len())
        )?;
        if !self.guessed.is_empty() {
            writeln!(
                out,
                "what is in doubt has the newest version that is found; of {} nothing is found: they \
                 read as zeros, because they were never written, or are lost",
                size(self.missing.len())
            )?;
        }
        match self.is_copied {
            true => writeln!(out, "copied: {}", size(self.read))?,
            false => writeln!(
                out,
                "can be read: {}; nothing was written: name a new volume to copy into",
                size(self.read)
            )?,
        }
        Ok(())
    }

    fn name_snapshots(&self, out: &mut impl Write) -> Result<()> {
        let Left {
            named, may_be_more, ..
        } = self.left;
        for one in named {
            match &one.clone_of {
                None => writeln!(out, "not copied: snapshot {}", one.name)?,
                Some(of) => writeln!(out, "not copied: clone {}, of snapshot {of}", one.name)?,
            }
        }
        if *may_be_more {
            let what = match named.is_empty() {
                true => "snapshots and clones, if it has any",
                false => "perhaps more snapshots and clones",
            };
            writeln!(out, "not copied: {what}: not all of their list can be read")?;
        }
        if !named.is_empty() || *may_be_more {
            writeln!(out, "keep the damaged volume for as long as you want those")?;
        }
        Ok(())
    }

    fn name_files(&self, out: &mut impl Write) -> Result<()> {
        let files = &self.losses.files;
        for (file, blocks) in files.iter().take(LISTED) {
            writeln!(out, "lost: {blocks} block(s) of {file}")?;
        }
        if let Some(left) = files.len().checked_sub(LISTED + 1) {
            writeln!(
                out,
                "lost: blocks of {} (--json lists all)",
                counted(left as u64 + 1, "more file")
            )?;
        }
        if self.losses.may_be_more {
            writeln!(
                out,
                "other files may have lost blocks too: not all that names them can be read"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn an_interrupted_rescue_leaves_no_volume_and_the_old_file() {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let [from, to] = ["a", "b"].map(|name| folder.path().join(name));
        let new = NewVolume {
            over_provisioning: 70,
            history: 0,
            ..NewVolume::of(16 << 20)
        };
        volume::create(&from, &new, &|| false).unwrap();
        let mut args = Args {
            source: from.clone(),
            target: Some(to.clone()),
            sure: false,
            force: false,
            json: false,
            key: Key::none(),
        };
        let superblock = peek::superblock_of(&from, &args.key).unwrap().0;
        let medium = opened::open(&from, true, &args.key).unwrap();
        let options = OpenOptions {
            read_only: true,
            ..OpenOptions::default()
        };
        let source = Volume::open(Arc::new(medium), &options).unwrap();
        let copied = |args: &Args, stops| copy(&source, &superblock, &to, args, &|| stops);
        let names = || fs::read_dir(folder.path()).unwrap().count();

        let refused = format!("{:#}", copied(&args, true).err().unwrap());
        assert!(refused.ends_with("b is not made: interrupted"), "{refused}");
        assert_eq!(names(), 1);
        fs::write(&to, "theirs").unwrap();
        let refused = copied(&args, false).err().unwrap().to_string();
        assert!(refused.contains("--force"), "{refused}");
        args.force = true;
        assert!(copied(&args, true).is_err());
        assert_eq!(fs::read(&to).unwrap(), b"theirs");
        // A killed one leaves this.
        fs::write(beside(&to, ".rescuing"), "half a volume").unwrap();
        copied(&args, false).unwrap();
        assert_eq!(names(), 2);
        let found = peek::superblock_of(&to, &args.key).unwrap().0;
        assert!(found.properties().is_empty());
    }
}
