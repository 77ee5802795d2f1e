//! `vellum info`: describes a volume, even beside its server.

use crate::claim::is_served;
use crate::commands::key;
use crate::keys::Key;
use crate::outcome::{counted, out};
use crate::peek;
use crate::size::Size;
use anyhow::Result;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::format::areas::Layout;
use vellum_device::info::hex_uuid;
use vellum_medium::envelope::Envelope;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The volume.
    volume: PathBuf,
    /// As JSON.
    #[arg(long)]
    json: bool,
    /// Of an encrypted volume: ask for its passphrase. Without it, and without --key-file, only the header is shown.
    #[arg(long)]
    ask: bool,
    #[command(flatten)]
    key: Key,
}

/// Shows the description.
pub fn run(args: &Args) -> Result<()> {
    let envelope = peek::envelope_of(&args.volume)?;
    if let Some(envelope) = envelope
        .as_ref()
        .filter(|_| !args.key.is_given() && !args.ask)
    {
        return without_key(args, envelope);
    }
    let (sb, mirror_lost, format) = peek::described(&args.volume, &args.key)?;
    let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
    let uuid = hex_uuid(&sb.uuid());
    let served = is_served(&uuid);
    if args.json {
        let info = json!({
            "path": args.volume.to_string_lossy(), "uuid": uuid, "size": bytes(sb.logical_blocks()),
            "medium_size": bytes(sb.medium_blocks()), "capacity": bytes(sb.capacity_blocks()),
            "layout": sb.layout().name(), "segments": sb.segment_count(),
            "segment_size": bytes(sb.segment_blocks().into()),
            "over_provisioning_permille": sb.over_provisioning(), "life": sb.life().0,
            "mirror_lost": mirror_lost, "served": served, "encrypted": envelope.is_some(), "format": format,
        });
        writeln!(out(), "{info}")?;
        return Ok(());
    }
    let size = |blocks| Size(bytes(blocks));
    begin(args, &uuid)?;
    writeln!(out(), "  size                {}", size(sb.logical_blocks()))?;
    writeln!(out(), "  medium              {}", size(sb.medium_blocks()))?;
    writeln!(
        out(),
        "  capacity            {} of live data",
        size(sb.capacity_blocks())
    )?;
    let percent = f64::from(sb.over_provisioning()) / 10.0;
    writeln!(out(), "  over-provisioning   {percent} per cent")?;
    let layout = sb.layout().name();
    writeln!(out(), "  layout              {layout}, in format {format}")?;
    match sb.layout() {
        Layout::Log => writeln!(
            out(),
            "  segments            {} of {}",
            sb.segment_count(),
            size(sb.segment_blocks().into())
        )?,
        _ => writeln!(
            out(),
            "  tables              {} of the map, {} of counts, {} of fingerprints",
            size(sb.table_blocks()[0]),
            size(sb.table_blocks()[1]),
            size(sb.table_blocks()[2])
        )?,
    }
    let times = counted(sb.life().0, "time");
    writeln!(out(), "  opened for writing  {times}")?;
    writeln!(
        out(),
        "  served now          {}",
        if served { "yes" } else { "no" }
    )?;
    if let Some(envelope) = &envelope {
        header(envelope)?;
    }
    if mirror_lost {
        writeln!(
            out(),
            "  one of the two superblocks is damaged or older; the next `serve` repairs it"
        )?;
    }
    Ok(())
}

/// Shows what is known about an encrypted volume without its key.
fn without_key(args: &Args, envelope: &Envelope) -> Result<()> {
    let uuid = hex_uuid(&envelope.header().uuid());
    let served = is_served(&uuid);
    if args.json {
        let info = json!({
            "path": args.volume.to_string_lossy(), "uuid": uuid, "served": served, "encrypted": true,
            "key_slots": envelope.header().slots().iter().flatten().count(),
        });
        writeln!(out(), "{info}")?;
        return Ok(());
    }
    begin(args, &uuid)?;
    writeln!(
        out(),
        "  served now          {}",
        if served { "yes" } else { "no" }
    )?;
    header(envelope)?;
    writeln!(
        out(),
        "  the rest            with --key-file FILE, or a passphrase (--ask)"
    )?;
    Ok(())
}

fn begin(args: &Args, uuid: &str) -> Result<()> {
    writeln!(out(), "{}", args.volume.display())?;
    Ok(writeln!(out(), "  UUID                {uuid}")?)
}

/// Shows how it is encrypted.
fn header(envelope: &Envelope) -> Result<()> {
    let slots = envelope.header().slots().iter().flatten();
    let kinds: Vec<_> = slots.map(|slot| key::kind(slot.kind())).collect();
    writeln!(
        out(),
        "  encrypted           AES-256-XTS; key slots: {}",
        kinds.join(", ")
    )?;
    if !envelope.is_whole() {
        writeln!(
            out(),
            "  one of the two headers is damaged or older; the next `serve` repairs it"
        )?;
    }
    Ok(())
}
