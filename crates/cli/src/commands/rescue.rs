//! `vellum rescue`: copies what can be read of a damaged volume into a new one.

use crate::claim::{Claimed, claim};
use crate::keys::Key;
use crate::opened;
use crate::outcome::{out, tell, usage};
use crate::peek;
use crate::progress;
use crate::properties::{self, Run};
use crate::size::Size;
use crate::volume::{self, NewVolume};
use anyhow::{Result, bail};
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::format::superblock::Superblock;
use vellum_core::recovery::rescue::{LbaSet, Trust};
use vellum_device::block::BlockDevice;
use vellum_device::rescue::{self, Losses, Rescued};
use vellum_device::{OpenOptions, Volume};

/// The most runs of blocks listed without `--json`.
const LISTED: usize = 100;

/// Arguments.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  vellum rescue damaged.vlm                 say what can be brought back, and what is lost\n  \
    vellum rescue damaged.vlm new.vlm         and copy it into a new volume\n  \
    vellum rescue --sure damaged.vlm new.vlm  only what is certain to be what was there last\n\n\
    The exit code is 0 when nothing is lost, and 1 otherwise."
)]
pub struct Args {
    /// The damaged volume; no server may have it open. It is only read.
    source: PathBuf,
    /// The new volume: a file to make. Without it all is read and nothing is written.
    target: Option<PathBuf>,
    /// Leave out blocks of which only an older version may be found.
    #[arg(long)]
    sure: bool,
    /// As JSON, all blocks that are lost or in doubt with it.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    key: Key,
}

/// Reports what can be rescued, and rescues it.
pub fn run(args: &Args) -> Result<()> {
    let (superblock, _) = peek::superblock_of(&args.source, &args.key)?;
    if args.target.as_ref() == Some(&args.source) {
        return Err(usage("a rescue goes into a new place"));
    }
    let medium = opened::open(&args.source, true, &args.key)?;
    let options = OpenOptions {
        read_only: true,
        trust: match args.sure {
            true => Trust::Certain,
            false => Trust::Newest,
        },
        ..OpenOptions::default()
    };
    let source = Volume::open(Arc::new(medium), &options)?;
    let blocks = superblock.logical_blocks();
    let guessed = source.damage().map_or_else(
        || LbaSet::new(blocks),
        |damage| damage.guessed().before(blocks),
    );
    let target = args.target.as_deref();
    let rescued = match target {
        Some(target) => copy(&source, &superblock, target, &args.key)?,
        None => rescue(&source, None)?,
    };
    let lost = &rescued.lost;
    let findings: Vec<String> = source.damage().iter().flat_map(|d| d.findings()).collect();
    let losses = rescue::losses(&source, lost);
    let found = Found {
        findings: &findings,
        lost,
        guessed: &guessed,
        losses: &losses,
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
fn rescue(source: &Volume, to: Option<&dyn BlockDevice>) -> Result<Rescued> {
    let size = |blocks: u64| blocks * BLOCK_BYTES as u64;
    let bar = progress::of_bytes("rescuing", size(source.blocks()));
    let rescued = rescue::rescue(source, to, &mut |at| bar.set_position(size(at)))?;
    bar.finish_and_clear();
    Ok(rescued)
}

/// Copies what can be read into a new volume.
fn copy(source: &Volume, superblock: &Superblock, target: &Path, key: &Key) -> Result<Rescued> {
    let new = NewVolume {
        size: Some(superblock.logical_blocks() * BLOCK_BYTES as u64),
        medium_size: None,
        over_provisioning: superblock.over_provisioning(),
        segment_size: None,
        preallocate: false,
        force: false,
        layout: superblock.layout(),
        history: volume::HISTORY,
        choose: Box::new(properties::taken_from(superblock)),
        secret: key.used(),
    };
    volume::create(target, &new, &|| false)?;
    let Claimed { medium, socket } = claim(target, false, key)?;
    let how = OpenOptions {
        policy: properties::policy_of(&medium, &Run::default())?,
        ..OpenOptions::default()
    };
    let to = Volume::open(Arc::new(medium), &how)?;
    let rescued = rescue(source, Some(&to))?;
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
struct Found<'a> {
    findings: &'a [String],
    lost: &'a LbaSet,
    guessed: &'a LbaSet,
    losses: &'a Losses,
    /// Blocks that were read.
    read: u64,
    is_copied: bool,
}

impl Found<'_> {
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
        let report = json!({
            "damage": self.findings,
            "lost": runs(self.lost),
            "files": files,
            "more_files": self.losses.may_be_more,
            "in_doubt": runs(self.guessed),
            "read_blocks": self.read,
            "copied_blocks": self.is_copied.then_some(self.read),
        });
        Ok(writeln!(out(), "{report:#}")?)
    }

    fn as_text(&self) -> Result<()> {
        let mut out = out();
        if self.findings.is_empty() {
            writeln!(out, "no metadata is damaged")?;
        }
        for finding in self.findings {
            writeln!(out, "damaged: {finding}")?;
        }
        for (what, set) in [
            ("lost", self.lost),
            ("in doubt, the newest version that is found", self.guessed),
        ] {
            for (lba, blocks) in set.runs().take(LISTED) {
                writeln!(out, "{what}: {blocks} block(s) from LBA {lba} on")?;
            }
            if let Some(left) = set.runs().count().checked_sub(LISTED + 1) {
                writeln!(out, "{what}: {} more runs (--json lists all)", left + 1)?;
            }
        }
        self.name_files(&mut out)?;
        let size = |blocks: u64| Size(blocks * BLOCK_BYTES as u64);
        writeln!(
            out,
            "lost: {}; in doubt: {}",
            size(self.lost.len()),
            size(self.guessed.len())
        )?;
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

    fn name_files(&self, out: &mut impl Write) -> Result<()> {
        let files = &self.losses.files;
        for (file, blocks) in files.iter().take(LISTED) {
            writeln!(out, "lost: {blocks} block(s) of {file}")?;
        }
        if let Some(left) = files.len().checked_sub(LISTED + 1) {
            writeln!(
                out,
                "lost: blocks of {} more files (--json lists all)",
                left + 1
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
