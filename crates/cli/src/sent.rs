//! Streams of snapshots: requested from a volume's server if it has one, or else read from the volume itself.

use crate::claim::claim;
use crate::control::Sending;
use crate::keys::Key;
use crate::{control, parts, progress, whose};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::cell::Cell;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;
use vellum_core::addr::BLOCK_BYTES;
use vellum_device::stream::{Damaged, Head, Reader, SendError, Sender, Totals};
use vellum_device::{OpenOptions, Volume};

/// Bytes written at once.
const BUFFER: usize = 1 << 20;

/// What to send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sent {
    /// The snapshot.
    pub snapshot: String,
    /// An older snapshot; only changes since then are sent. `None`: the whole snapshot.
    pub from: Option<String>,
}

impl Sent {
    /// Parses a request on a control socket.
    pub fn read(order: &Value) -> Result<Self, String> {
        let read: Result<Self, _> = serde_json::from_value(order.clone());
        read.map_err(|error| format!("\"order\" of send: {error}"))
    }

    fn sender(&self, volume: &Volume) -> Result<Sender, SendError> {
        Sender::new(volume, &self.snapshot, self.from.as_deref())
    }

    /// Prepares to send it from this served volume.
    pub fn sending(&self, volume: &Volume) -> Result<Sending, String> {
        let sender = self.sender(volume).map_err(|error| error.to_string())?;
        Ok(Box::new(move |out| {
            let sent = sender.send(out, &mut |_| true);
            sent.map(drop).map_err(|error| error.to_string())
        }))
    }
}

/// Sends it. Returns the stream's description and its totals.
pub fn send(path: &Path, key: &Key, sent: &Sent, out: &mut dyn Write) -> Result<(Head, Totals)> {
    match whose::find_server(path)? {
        Some((socket, path)) => {
            let request =
                json!({"command": "send", "volume": path.to_string_lossy(), "order": sent});
            pass_on(
                parts::Reader::new(control::request_stream(&socket, &request)?),
                out,
            )
        }
        None => at_rest(path, key, sent, out),
    }
}

fn at_rest(path: &Path, key: &Key, sent: &Sent, out: &mut dyn Write) -> Result<(Head, Totals)> {
    let claimed = claim(path, true, key)?;
    let options = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    let volume = Volume::open(Arc::from(claimed.medium), &options)?;
    let done = send_from(&volume, sent, out);
    let stopped = volume.stop();
    let told = done.with_context(|| path.display().to_string())?;
    stopped?;
    Ok(told)
}

fn send_from(
    volume: &Volume,
    sent: &Sent,
    out: &mut dyn Write,
) -> Result<(Head, Totals), SendError> {
    let sender = sent.sender(volume)?;
    let bar = progress::of_bytes("sending", sender.blocks() * BLOCK_BYTES as u64);
    let done = sender.send(BufWriter::with_capacity(BUFFER, out), &mut |looked| {
        bar.set_position(looked * BLOCK_BYTES as u64);
        true
    });
    bar.finish_and_clear();
    Ok((*sender.head(), done?.1))
}

/// Passes on a server's stream and parses it on the way, so that a truncated stream is not taken for a complete one.
fn pass_on(stream: impl Read, out: &mut dyn Write) -> Result<(Head, Totals)> {
    let mut out = BufWriter::with_capacity(BUFFER, out);
    let unwritten = Cell::new(None);
    let passed = read_all(Tee {
        from: stream,
        to: &mut out,
        unwritten: &unwritten,
    });
    // In that case the fault is not in the stream.
    match unwritten.take() {
        Some(error) => return Err(SendError::Write(error).into()),
        None => out.flush().map_err(SendError::Write)?,
    }
    Ok(passed?)
}

fn read_all(stream: impl Read) -> Result<(Head, Totals), Damaged> {
    let mut reader = Reader::new(stream)?;
    let head = *reader.head();
    let bar = progress::of_bytes("sending", head.blocks * BLOCK_BYTES as u64);
    while let Some(run) = reader.next_run()? {
        bar.set_position(run.end().0 * BLOCK_BYTES as u64);
    }
    bar.finish_and_clear();
    Ok((head, reader.totals().unwrap_or_default()))
}

/// Writes whatever is read.
struct Tee<'a, R, W> {
    from: R,
    to: W,
    /// Why writing failed.
    unwritten: &'a Cell<Option<io::Error>>,
}

impl<R: Read, W: Write> Read for Tee<'_, R, W> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(bytes)?;
        if let Err(error) = self.to.write_all(&bytes[..read]) {
            self.unwritten.set(Some(error));
            return Err(io::ErrorKind::WriteZero.into());
        }
        Ok(read)
    }
}
