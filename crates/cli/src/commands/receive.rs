//! `vellum receive`.

use crate::claim::claim;
use crate::keys::Key;
use crate::outcome::{out, tell, usage};
use crate::progress;
use crate::properties::{self, Run};
use crate::signals::Stop;
use crate::size::Size;
use crate::whose;
use anyhow::{Result, anyhow, bail};
use serde_json::json;
use std::io::{self, BufReader, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::format::FormatError;
use vellum_device::info::hex_uuid;
use vellum_device::stream::{Head, Problem, Reader, ReceiveError, Received, receive};
use vellum_device::{OpenOptions, Volume};

/// Bytes read at once.
const BUFFER: usize = 1 << 20;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  vellum create copy.vellum --size 10G              as large as the one that is sent, or larger
  vellum receive copy.vellum < monday.vls           all of a snapshot, into an empty volume
  vellum receive copy.vellum < tuesday.vls          what changed since
  vellum attach copy.vellum@tuesday --mount /mnt    to look at it, so that the next one is taken too

A stream of changes builds on the volume's newest snapshot, to which nothing may have been written since:
`vellum rollback` takes that back. Cut short or killed, give it the same stream again: what is there already
is not written again. Until all of it is there, the volume is not served.")]
pub struct Args {
    /// The volume, which nobody may serve.
    volume: PathBuf,
    /// Let a whole snapshot go over what is on the volume.
    #[arg(long)]
    force: bool,
    /// What was received, as JSON, one line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    key: Key,
}

/// Receives the stream.
pub fn run(args: &Args) -> Result<()> {
    let shown = args.volume.display();
    if io::stdin().is_terminal() {
        return Err(usage(
            "a stream does not come from a terminal: give it a file (`< FILE`) or a pipe from `vellum send`",
        ));
    }
    if whose::find_server(&args.volume)?.is_some() {
        bail!(
            "{shown} is being served: `vellum detach {shown}`, or stop its server, and then receive"
        );
    }
    let stop = Stop::on_signals(false)?;
    // Before anything is done to the volume.
    let source = BufReader::with_capacity(BUFFER, io::stdin().lock());
    let stream = Reader::new(source);
    let mut stream = stream.map_err(|damaged| match damaged.problem {
        Problem::CutShort | Problem::Format(FormatError::Magic { .. }) => anyhow!(
            "standard input is no stream that `vellum send` made, or is cut short: {damaged}"
        ),
        _ => anyhow::Error::from(damaged).context("standard input"),
    })?;
    let claimed = claim(&args.volume, false, &args.key)?;
    let options = OpenOptions {
        policy: properties::policy_of(&claimed.medium, &Run::default())?,
        receiving: true,
        copying: true,
        ..OpenOptions::default()
    };
    let volume = Volume::open(Arc::from(claimed.medium), &options)?;
    let head = *stream.head();
    let bar = progress::of_bytes("receiving", bytes(head.blocks));
    let received = receive(&volume, &mut stream, args.force, &mut |at| {
        bar.set_position(bytes(at));
        !stop.asked()
    });
    bar.finish_and_clear();
    let stopped = volume.stop_telling(|| {
        tell(format_args!(
            "{shown}: no room for what is to be written last: waiting for it"
        ));
    });
    let received = received.map_err(|error| told(args, error))?;
    stopped?;
    show(args, &head, &received)
}

/// Adds the volume's name, also to the advice.
fn told(args: &Args, error: ReceiveError) -> anyhow::Error {
    let shown = args.volume.display().to_string();
    anyhow::anyhow!("{shown}: {}", error.to_string().replace("VOLUME", &shown))
}

fn bytes(blocks: u64) -> u64 {
    blocks * BLOCK_BYTES as u64
}

fn show(args: &Args, head: &Head, received: &Received) -> Result<()> {
    let (name, totals) = (head.snapshot.name, received.totals);
    if args.json {
        let told = json!({
            "uuid": hex_uuid(&head.uuid),
            "snapshot": name.as_str(),
            "from": head.from.map(|from| from.name.as_str().to_owned()),
            "data_bytes": bytes(totals.blocks),
            "zero_bytes": bytes(totals.zeros),
            "there_bytes": bytes(received.there),
            "sum": format!("{:016x}", totals.sum),
        });
        writeln!(out(), "{told}")?;
        return Ok(());
    }
    let there = match received.there {
        0 => String::new(),
        there => format!(", {} of it there before", Size(bytes(there))),
    };
    let what = Size(bytes(totals.blocks + totals.zeros));
    writeln!(
        out(),
        "{}@{name}: {what} received{there}",
        args.volume.display()
    )?;
    Ok(())
}
