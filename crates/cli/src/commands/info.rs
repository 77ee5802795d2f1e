//! `vellum info`: what a volume is; also beside a server.

use crate::claim::is_served;
use crate::outcome::out;
use crate::size::Size;
use crate::volume;
use anyhow::Result;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::format::areas::Layout;
use vellum_device::info::hex_uuid;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The volume.
    volume: PathBuf,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// Shows it.
pub fn run(args: &Args) -> Result<()> {
    let (sb, mirror_lost) = volume::superblock_of(&args.volume)?;
    let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
    let uuid = hex_uuid(&sb.uuid());
    let served = is_served(&uuid);
    if args.json {
        let info = json!({
            "path": args.volume, "uuid": uuid, "size": bytes(sb.logical_blocks()),
            "medium_size": bytes(sb.medium_blocks()), "capacity": bytes(sb.capacity_blocks()),
            "layout": sb.layout().name(), "segment_size": bytes(sb.segment_blocks().into()), "segments": sb.segment_count(),
            "over_provisioning_permille": sb.over_provisioning(), "life": sb.life().0,
            "mirror_lost": mirror_lost, "served": served,
        });
        writeln!(out(), "{info}")?;
        return Ok(());
    }
    let size = |blocks| Size(bytes(blocks));
    writeln!(out(), "{}", args.volume.display())?;
    writeln!(out(), "  UUID                {uuid}")?;
    writeln!(out(), "  size                {}", size(sb.logical_blocks()))?;
    writeln!(out(), "  medium              {}", size(sb.medium_blocks()))?;
    writeln!(
        out(),
        "  capacity            {} of live data",
        size(sb.capacity_blocks())
    )?;
    writeln!(
        out(),
        "  over-provisioning   {} per cent",
        f64::from(sb.over_provisioning()) / 10.0
    )?;
    writeln!(out(), "  layout              {}", sb.layout().name())?;
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
    writeln!(out(), "  opened for writing  {} times", sb.life())?;
    writeln!(
        out(),
        "  served now          {}",
        if served { "yes" } else { "no" }
    )?;
    if mirror_lost {
        writeln!(
            out(),
            "  one of the two superblocks is damaged or older; the next `serve` repairs it"
        )?;
    }
    Ok(())
}
