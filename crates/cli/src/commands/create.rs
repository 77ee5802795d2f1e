//! `vellum create`.

use crate::keys::Key;
use crate::outcome::{out, usage};
use crate::peek;
use crate::properties::{self, Change, Changes};
use crate::signals::Stop;
use crate::size::{self, Size};
use crate::volume::{self, NewVolume};
use anyhow::Result;
use std::io::Write;
use std::path::PathBuf;
use vellum_core::format::areas::Layout;
use vellum_core::format::properties::Properties;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  vellum create disk.vellum --size 10G
  vellum create disk.vellum --size 10G --encrypt               asks for a passphrase
  (umask 077; head -c 64 /dev/urandom >disk.key)
  vellum create disk.vellum --size 10G --encrypt --key-file disk.key

Whoever has lost all passphrases and key files of an encrypted volume has lost what is on it: see
`vellum key`.")]
pub struct Args {
    /// The file to make, or the block device to take.
    volume: PathBuf,
    /// How much clients see. A file is made large enough for it; a block device gives what it can, if this
    /// is not said.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    size: Option<Size>,
    /// How much to take of the medium; with --size, a thin volume may promise more than it has.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    medium_size: Option<Size>,
    /// Space kept from the clients, in per cent of what they see: more makes collection cheaper.
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(2..=90)
    )]
    over_provisioning: u32,
    /// Size of a segment, a power of two: a multiple of the drive's erase unit.
    #[arg(long, value_name = "SIZE", value_parser = size::segment)]
    segment_size: Option<Size>,
    /// How blocks, and what is known of them, lie on the medium.
    #[arg(long, value_enum, default_value = "log")]
    layout: LayoutChoice,
    /// How much snapshots can keep, in per cent of what clients see: what was written over, or deleted, since they were taken. It
    /// takes room when it is used, and a little of the map before; 0: no snapshots.
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = history())]
    history: u32,
    /// Properties that differ from their defaults: `vellum set --help` lists them; may be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<Changes>,
    /// Write all of the file now: it cannot run out later, and syncs are faster from the first day.
    #[arg(long)]
    preallocate: bool,
    /// Write over a file that is there, or over what a block device holds.
    #[arg(long)]
    force: bool,
    /// Encrypt it: with the key in --key-file, or a passphrase that is asked for twice.
    #[arg(long)]
    encrypt: bool,
    #[command(flatten)]
    key: Key,
}

fn history() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(0..=1000)
}

/// A layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LayoutChoice {
    /// Nothing is written in place; all that was written is there after a crash, up to some instant.
    Log,
    /// Tables in place, kept right by the order of writes alone: for drives with an FTL of their own. After a crash each
    /// block is as of an instant of its own, not before the last flush.
    Ordered,
    /// The same tables, shadowed and committed by a root.
    Shadow,
}

impl From<LayoutChoice> for Layout {
    fn from(choice: LayoutChoice) -> Self {
        match choice {
            LayoutChoice::Log => Self::Log,
            LayoutChoice::Ordered => Self::Ordered,
            LayoutChoice::Shadow => Self::Shadow,
        }
    }
}

/// Makes the volume.
pub fn run(args: Args) -> Result<()> {
    if args.segment_size.is_some() && args.layout != LayoutChoice::Log {
        return Err(usage(
            "--segment-size needs --layout log: a layout with tables has no segments",
        ));
    }
    if args.key.is_named() && !args.encrypt {
        return Err(usage("--key-file needs --encrypt"));
    }
    let changes: Vec<Change> = args.set.into_iter().flat_map(|changes| changes.0).collect();
    let new = NewVolume {
        layout: args.layout.into(),
        history: match args.layout {
            LayoutChoice::Log => args.history * 10,
            _ => 0,
        },
        size: args.size.map(|s| s.0),
        medium_size: args.medium_size.map(|s| s.0),
        over_provisioning: args.over_provisioning * 10,
        segment_size: args.segment_size.map(|s| s.0),
        preallocate: args.preallocate,
        force: args.force,
        choose: Box::new(move |superblock| {
            properties::changed(superblock, &Properties::default(), &changes)
        }),
        secret: match args.encrypt {
            true => Some(args.key.new_secret()?),
            false => None,
        },
    };
    let info = if args.preallocate {
        let stop = Stop::on_signals(false)?;
        volume::create(&args.volume, &new, &|| stop.asked())?
    } else {
        volume::create(&args.volume, &new, &|| false)?
    };
    writeln!(
        out(),
        "{}: {} on {}, layout {}, UUID {}",
        info.medium,
        Size(info.logical_bytes),
        Size(info.medium_bytes),
        info.layout,
        info.uuid
    )?;
    // systemd's key, if there is one, was not for this.
    let plain = Key::none();
    let key = if args.encrypt { &args.key } else { &plain };
    let (superblock, _) = peek::superblock_of(&args.volume, key)?;
    writeln!(out(), "{}", properties::in_a_line(&superblock))?;
    Ok(())
}
