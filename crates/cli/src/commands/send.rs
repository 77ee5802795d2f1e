//! `vellum send`.

use crate::keys::Key;
use crate::outcome::{bytes_out, tell, usage};
use crate::sent::{self, Sent};
use crate::snapshots;
use anyhow::Result;
use serde_json::json;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use vellum_core::addr::BLOCK_BYTES;
use vellum_device::info::hex_uuid;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  vellum send disk.vellum@monday > monday.vls                 all of it
  vellum send disk.vellum@tuesday --from monday > tuesday.vls what changed since; nothing else is read
  vellum send disk.vellum@monday | ssh host vellum receive copy.vellum

The volume may be in use: its server reads the snapshot, and its clients go on.
A stream is compressed, and not encrypted, also of an encrypted volume. One that was cut short or damaged is
refused.")]
pub struct Args {
    /// The snapshot: VOLUME@NAME; or by its age: VOLUME@-90s, @-15m, @-2h or @-1d.
    #[arg(value_name = "VOLUME@NAME")]
    snapshot: PathBuf,
    /// An older snapshot, which the receiver has, by its name or as @-1d: only what changed since is sent.
    #[arg(long, value_name = "NAME")]
    from: Option<String>,
    /// What was sent, as JSON, one line on standard error.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    key: Key,
}

/// Sends the stream.
pub fn run(args: &Args) -> Result<()> {
    let (volume, snapshot) = snapshots::of_snapshot(&args.snapshot)?;
    if io::stdout().is_terminal() {
        return Err(usage(
            "a stream is nothing for a terminal: send it to a file (`> FILE`) or into a pipe",
        ));
    }
    let named = |text: &String| snapshots::found(&volume, &args.key, text);
    let (snapshot, from) = (
        named(&snapshot)?,
        args.from.as_ref().map(named).transpose()?,
    );
    let order = Sent { snapshot, from };
    let (head, totals) = sent::send(&volume, &args.key, &order, &mut bytes_out())?;
    if args.json {
        let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
        let told = json!({
            "uuid": hex_uuid(&head.uuid),
            "snapshot": head.snapshot.name.as_str(),
            "from": head.from.map(|from| from.name.as_str().to_owned()),
            "volume_bytes": bytes(head.blocks),
            "data_bytes": bytes(totals.blocks),
            "zero_bytes": bytes(totals.zeros),
            "sum": format!("{:016x}", totals.sum),
        });
        tell(format_args!("{told}"));
    }
    Ok(())
}
