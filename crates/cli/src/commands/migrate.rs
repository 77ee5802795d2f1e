//! `vellum migrate`: a volume into a new one, of another layout or geometry; offline, verified, resumable.

use crate::commands::create::LayoutChoice;
use crate::outcome::usage;
use crate::size::Size;
use crate::volume::{self, NewVolume};
use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vellum_core::addr::BLOCK_BYTES;
use vellum_device::block::BlockDevice;
use vellum_device::info::hex_uuid;
use vellum_device::{OpenOptions, Volume, migrate};
use vellum_medium::FileMedium;

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
    /// Its over-provisioning, in per cent; as the source's, if not given.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(2..=90))]
    over_provisioning: Option<u32>,
    /// How much to take of the medium; as much as the size needs, if not given.
    #[arg(long, value_name = "SIZE")]
    medium_size: Option<Size>,
    /// Write over a volume that is on the block device.
    #[arg(long)]
    force: bool,
}

/// How far a migration is, in a file beside its target.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    source: String,
    /// The source as it was: opened for writing since, it may have changed.
    life: u64,
    target: String,
    blocks_done: u64,
}

impl State {
    fn path(target: &Path) -> PathBuf {
        let mut path = target.as_os_str().to_owned();
        path.push(".migrating");
        path.into()
    }

    fn load(path: &Path) -> Result<Option<Self>> {
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        let state = serde_json::from_slice(&text);
        Ok(Some(state.with_context(|| {
            format!(
                "{} is not a migration's: remove it, and its target",
                path.display()
            )
        })?))
    }

    /// Replaces what is there, whole or not at all.
    fn save(&self, path: &Path) -> std::io::Result<()> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let beside = PathBuf::from(beside);
        let file = std::fs::File::create(&beside)?;
        serde_json::to_writer(&file, self)?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    }
}

/// Copies, compares, and says what the new one is.
pub fn run(args: &Args) -> Result<()> {
    let (superblock, _) = volume::superblock_of(&args.source)?;
    let size = superblock.logical_blocks() * BLOCK_BYTES as u64;
    let path = State::path(&args.target);
    let source = open(&args.source, true)?;
    let mut state = match State::load(&path)? {
        Some(state) => {
            let target = volume::uuid_of(&args.target)?;
            let is_ours = (state.source.as_str(), state.life, state.target.as_str())
                == (&hex_uuid(&superblock.uuid()), superblock.life().0, &target);
            if !is_ours {
                bail!(
                    "{} is of another migration, or its source has been served since: remove it and {}, and begin anew",
                    path.display(),
                    args.target.display()
                );
            }
            state
        }
        None => {
            let permille = superblock.over_provisioning();
            let new = NewVolume {
                size: Some(size),
                medium_size: args.medium_size.map(|size| size.0),
                over_provisioning: args
                    .over_provisioning
                    .map_or(permille, |percent| percent * 10),
                segment_size: None,
                preallocate: false,
                force: args.force,
                layout: args.layout.into(),
            };
            if args.target == args.source {
                return Err(usage("a migration goes into a new place"));
            }
            let info = volume::create(&args.target, &new)?;
            State {
                source: hex_uuid(&superblock.uuid()),
                life: superblock.life().0,
                target: info.uuid,
                blocks_done: 0,
            }
        }
    };
    state
        .save(&path)
        .with_context(|| path.display().to_string())?;
    let target = open(&args.target, false)?;
    let bar = bar("copying", &source);
    let copied = migrate::copy(&*source, &*target, state.blocks_done, &mut |at| {
        bar.set_position(at * BLOCK_BYTES as u64);
        state.blocks_done = at;
        state.save(&path)
    });
    bar.finish_and_clear();
    let bar = self::bar("comparing", &source);
    let compared = copied.and_then(|_| {
        migrate::verify(&*source, &*target, &mut |at| {
            bar.set_position(at * BLOCK_BYTES as u64);
        })
    });
    bar.finish_and_clear();
    target.stop()?;
    source.stop()?;
    let compared = compared?;
    std::fs::remove_file(&path).with_context(|| path.display().to_string())?;
    let info = target.info();
    println!(
        "{}: {} of {} copied and compared, layout {}, UUID {}",
        info.medium,
        Size(compared.blocks * BLOCK_BYTES as u64),
        Size(size),
        info.layout,
        info.uuid
    );
    Ok(())
}

fn open(path: &Path, read_only: bool) -> Result<Arc<Volume>> {
    let medium = FileMedium::open(path, vellum_medium::OpenOptions { read_only })?;
    let options = OpenOptions {
        read_only,
        ..OpenOptions::default()
    };
    Ok(Arc::new(Volume::open(Arc::new(medium), &options)?))
}

fn bar(what: &'static str, volume: &Arc<Volume>) -> ProgressBar {
    let bar = ProgressBar::new(volume.blocks() * BLOCK_BYTES as u64);
    if let Ok(style) = ProgressStyle::with_template(
        "{prefix} {bar:30} {binary_bytes} of {binary_total_bytes}, {eta}",
    ) {
        bar.set_style(style);
    }
    bar.set_prefix(what);
    bar
}
