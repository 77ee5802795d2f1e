//! The control socket: its owner's, or a group's as well, JSON lines, one answer a line.
//!
//! `{"command":"stats"}`, `{"command":"properties"}`, `{"command":"journal"}`, `{"command":"dedup"}`, `{"command":"fold"}`,
//! `{"command":"scrub"}`, `{"command":"grow"}`, `{"command":"snapshots"}`, `{"command":"send"}`, `{"command":"hand-over"}`, `{"command":"shutdown"}`; every
//! answer has `"ok"`, and `"error"` when that is false. All but the first and the last two are of the volume at `"volume"`. Properties are changed with `"set"`, a list of changes as on the command line (`["write-once=off"]`), or
//! for this run alone with `"research"`; and journals with a `"change"`, which is `"clear"` or `{"start":BYTES,"bytes":BYTES}`. A sweep for duplicates, or for sparse pages, is begun
//! with `"sweep":"beside"` (its volume's clients) or `"now"`, and ended with `"stop"`; a scrub is begun with `"scrub":"start"`, at most
//! `"rate"` blocks a second (0: as many as it can), and ended with `"stop"`. A volume grows to `"medium_blocks"` and `"logical_blocks"`, of
//! which either may be missing. A snapshot is taken with `"order":{"take":NAME}`, and deleted with `{"delete":NAME}`; `{"diff":{"since":NAME}}`,
//! with or without `"to":NAME`, tells which bytes differ. After the answer to `{"command":"send","order":{"snapshot":NAME}}`, with or without
//! `"from":NAME`, come the bytes of a stream, in [parts](crate::parts), and nothing is answered any more. A server hands over to another one:
//! with `"order":"ask"` it tells what that has to know, and with `"now"` it gives its connection to the kernel along with the answer, and stops.

use crate::handover;
use crate::parts;
use crate::signals::Stop;
use crate::state::Process;
use crate::{host, state};
use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use vellum_device::{NewSize, Sought};
use vellum_frontend::owned_socket;

/// A request longer than this is answered with an error and the connection closed.
pub const LINE_BYTES_MAX: u64 = 4096;
/// An answer longer than this is not one of ours.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Connections served at once; more are closed at once.
const CLIENTS_MAX: usize = 16;
/// How long a client may be silent.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long whoever is sent a stream may take none of it: it may be on its way to another machine.
const SENT_PATIENCE: Duration = Duration::from_secs(3600);

/// What a server tells.
pub trait Answers: Send + Sync {
    /// Every volume with its counters.
    fn stats(&self) -> Value;
    /// The properties of a volume, after a change if there is one.
    fn properties(&self, volume: &Value, set: &Value, study: &Value) -> Result<Value, String>;
    /// How far a sweep for this is, after an order if there is one.
    fn sweep(&self, sought: Sought, volume: &Value, order: &Value) -> Result<Value, String>;
    /// How far a scrub is and what it has found, after an order if there is one.
    fn scrub(&self, volume: &Value, order: &Value, rate: &Value) -> Result<Value, String>;
    /// Makes a volume larger; what it is then.
    fn grow(&self, volume: &Value, size: NewSize) -> Result<Value, String>;
    /// The snapshots of a volume, after an order if there is one; or what differs between two of them.
    fn snapshots(&self, volume: &Value, order: &Value) -> Result<Value, String>;
    /// A snapshot, to be sent.
    fn send(&self, volume: &Value, order: &Value) -> Result<Sending, String>;
    /// What another server has to know that would go on where this one stops, or all that it needs for it.
    fn hand_over(&self, order: &Value) -> Result<HandedOver, String>;
    /// The journals of a volume, after a change if there is one.
    fn journal(&self, volume: &Value, change: &Value) -> Result<Value, String>;
}

/// What goes to another server.
pub struct HandedOver {
    /// In words.
    pub told: Value,
    /// An open file.
    pub file: Option<OwnedFd>,
    /// This server stops.
    pub ends: bool,
}

/// Writes a stream, and says why it ended early.
pub type Sending = Box<dyn FnOnce(&mut dyn Write) -> Result<(), String>>;

/// What is to be done with the answer to a line, and behind it.
#[derive(Default)]
pub enum After {
    /// The next line is read.
    #[default]
    Nothing,
    /// The server ends.
    End,
    /// A stream follows.
    Send(Sending),
    /// An open file goes along with it, and the server may end.
    HandOver(Option<OwnedFd>, bool),
}

/// How long a server that was killed may still be there, and its socket take connections.
const DYING: Duration = Duration::from_millis(500);

/// A listening control socket; its file goes with it.
pub struct ControlSocket {
    path: PathBuf,
    server: Arc<Mutex<Server>>,
}

/// Who answers, if somebody does.
enum Server {
    /// Volumes are still opened.
    Opening,
    Serving(Arc<dyn Answers>, Stop),
    Stopping,
}

impl ControlSocket {
    /// Makes the socket of the volume with this UUID ours, before anything is written to the volume; None when a server has
    /// it. Two processes at once do not both get it.
    pub fn claim(uuid: &str) -> Result<Option<Self>> {
        let _alone = state::alone()?;
        let path = state::control_socket(uuid)?;
        match is_served(&path) {
            true => Ok(None),
            false => Self::listen(&path, None).map(Some),
        }
    }

    /// From now on these answer.
    pub fn serve(&self, answers: Arc<dyn Answers>, stop: Stop) {
        *self.server.lock() = Server::Serving(answers, stop);
    }

    /// From now on nobody answers, and the volume is still ours.
    pub fn stopping(&self) {
        *self.server.lock() = Server::Stopping;
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Listens at `path`, which a dead server may have left behind, to its owner and to this group.
    pub fn listen(path: &Path, group: Option<u32>) -> Result<Self> {
        let shown = path.display();
        if path
            .symlink_metadata()
            .is_ok_and(|m| m.file_type().is_socket())
        {
            if is_answered(path) {
                bail!(
                    "a server already listens on control socket {shown}: stop it, or choose another --control"
                );
            }
            std::fs::remove_file(path)
                .with_context(|| format!("cannot remove stale control socket {shown}"))?;
        }
        let listener = owned_socket::listen_for(path, group)
            .with_context(|| format!("cannot listen on control socket {shown}"))?;
        let listener = UnixListener::from(listener);
        let clients = Arc::new(AtomicUsize::new(0));
        let server = Arc::new(Mutex::new(Server::Opening));
        let asked = Arc::clone(&server);
        std::thread::Builder::new()
            .name("control".into())
            .spawn(move || {
                for client in listener.incoming() {
                    let Ok(client) = client else {
                        // Out of descriptors, mostly: let some be closed.
                        std::thread::sleep(Duration::from_millis(100));
                        continue;
                    };
                    let one = Seat(Arc::clone(&clients));
                    if one.0.fetch_add(1, Ordering::SeqCst) >= CLIENTS_MAX {
                        continue;
                    }
                    let asked = Arc::clone(&asked);
                    let _ = std::thread::Builder::new()
                        .name("control-client".into())
                        .spawn(move || {
                            let _seat = one;
                            let _ = serve(&client, &asked);
                        });
                }
            })?;
        let path = path.to_owned();
        Ok(Self { path, server })
    }
}

/// Whether a server listens there.
pub fn is_answered(path: &Path) -> bool {
    UnixStream::connect(path).is_ok()
}

/// The process that listens there, if one does.
pub fn server_pid(path: &Path) -> Option<i32> {
    let stream = UnixStream::connect(path).ok()?;
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: an open socket, and a place of that length for what is read.
    let got = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut bytes,
        )
    };
    (got == 0).then_some(peer.pid)
}

/// Whether a server listens there, and not one that was killed and is about to let go.
pub fn is_served(path: &Path) -> bool {
    !host::eventually(DYING, || !is_answered(path))
}

/// Whether a server lives, and is not one that was killed and is about to be gone.
pub fn lives(server: Process) -> bool {
    !host::eventually(DYING, || !server.alive())
}

/// Removes what a dead server of this volume left; where one answers, it is somebody's.
pub fn clear_up(uuid: &str) {
    // Refused: nobody listens. Whoever starts is not between the two steps of that, for it is alone, too.
    let is_dead = |path: &Path| {
        UnixStream::connect(path).is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused)
    };
    if let (Ok(_alone), Ok(path)) = (state::alone(), state::control_socket(uuid))
        && is_dead(&path)
    {
        let _ = std::fs::remove_file(path);
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

struct Seat(Arc<AtomicUsize>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn serve(client: &UnixStream, server: &Mutex<Server>) -> std::io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(client);
    loop {
        let mut line = Vec::new();
        (&mut reader)
            .take(LINE_BYTES_MAX + 1)
            .read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(());
        }
        let too_long = line.len() as u64 > LINE_BYTES_MAX;
        if too_long {
            return tell(client, &refuse("the line is too long"));
        }
        let (answers, stop) = match &*server.lock() {
            Server::Serving(answers, stop) => (Arc::clone(answers), stop.clone()),
            Server::Opening => return tell(client, &refuse("it is still opening its volumes")),
            Server::Stopping => return tell(client, &refuse("it is stopping")),
        };
        let mut after = After::Nothing;
        let answer = answer(&line, &*answers, &mut after);
        let is_told = match &after {
            After::HandOver(Some(file), _) => {
                handover::send(client, format!("{answer}\n").as_bytes(), file.as_fd())
            }
            _ => tell(client, &answer),
        };
        match after {
            After::Nothing | After::HandOver(_, false) => is_told?,
            // Not before: the process may be gone faster than it answers.
            After::End | After::HandOver(_, true) => {
                stop.ask();
                is_told?;
            }
            After::Send(sending) => {
                is_told?;
                client.set_write_timeout(Some(SENT_PATIENCE))?;
                return parts::write(client, sending);
            }
        }
        if !line.ends_with(b"\n") {
            return Ok(());
        }
    }
}

fn tell(mut client: &UnixStream, answer: &Value) -> std::io::Result<()> {
    client.write_all(format!("{answer}\n").as_bytes())
}

fn refuse(error: &str) -> Value {
    json!({"ok": false, "error": error})
}

fn new_size(request: &Value) -> Result<NewSize, String> {
    let blocks = |key: &str| match &request[key] {
        Value::Null => Ok(None),
        value => value
            .as_u64()
            .map(Some)
            .ok_or(format!("{key:?} is a number of blocks")),
    };
    Ok(NewSize {
        medium_blocks: blocks("medium_blocks")?,
        logical_blocks: blocks("logical_blocks")?,
    })
}

fn told(key: &str, result: Result<Value, String>) -> Value {
    match result {
        Ok(value) => json!({"ok": true, key: value}),
        Err(error) => refuse(&error),
    }
}

/// Answers one line.
pub fn answer(line: &[u8], answers: &dyn Answers, after: &mut After) -> Value {
    let Ok(request) = serde_json::from_slice::<Value>(line) else {
        return refuse("the line is not JSON");
    };
    match request.get("command").and_then(Value::as_str) {
        Some("stats") => json!({"ok": true, "volumes": answers.stats()}),
        Some("properties") => told(
            "volume",
            answers.properties(&request["volume"], &request["set"], &request["research"]),
        ),
        Some("journal") => told(
            "journal",
            answers.journal(&request["volume"], &request["change"]),
        ),
        Some(command @ ("dedup" | "fold")) => {
            let sought = match command {
                "fold" => Sought::SparsePages,
                _ => Sought::Duplicates,
            };
            told(
                command,
                answers.sweep(sought, &request["volume"], &request["sweep"]),
            )
        }
        Some("scrub") => told(
            "scrub",
            answers.scrub(&request["volume"], &request["scrub"], &request["rate"]),
        ),
        Some("snapshots") => told(
            "snapshots",
            answers.snapshots(&request["volume"], &request["order"]),
        ),
        Some("send") => {
            let sending = answers.send(&request["volume"], &request["order"]);
            let begun = sending.map(|sending| *after = After::Send(sending));
            told("send", begun.map(|()| Value::Null))
        }
        Some("grow") => {
            let size = new_size(&request);
            told(
                "grown",
                size.and_then(|size| answers.grow(&request["volume"], size)),
            )
        }
        Some("shutdown") => {
            *after = After::End;
            json!({"ok": true})
        }
        Some("hand-over") => {
            let handed = answers.hand_over(&request["order"]);
            let handed = handed.map(|HandedOver { told, file, ends }| {
                *after = After::HandOver(file, ends);
                told
            });
            told("handed_over", handed)
        }
        Some(other) => refuse(&format!(
            "unknown command {other:?}: there are stats, properties, journal, dedup, fold, scrub, grow, \
            snapshots, send, hand-over and shutdown"
        )),
        None => refuse("no \"command\""),
    }
}

/// Asks a server.
pub fn ask(path: &Path, command: &str) -> Result<Value> {
    request(path, &json!({"command": command}))
}

/// Asks a server for one volume's counters.
pub fn stats_of_one(socket: &Path) -> Result<Value> {
    let answer = ask(socket, "stats")?;
    let stats = answer.pointer("/volumes/0/stats").cloned();
    stats.with_context(|| format!("the server on {} serves no volume", socket.display()))
}

/// Sends a server a whole request.
pub fn request(path: &Path, request: &Value) -> Result<Value> {
    request_within(path, request, PATIENCE)
}

/// The same of what may take longer.
pub fn request_within(path: &Path, request: &Value, patience: Duration) -> Result<Value> {
    let stream = sent(path, request, patience)?;
    let mut line = String::new();
    BufReader::new(&stream)
        .take(ANSWER_BYTES_MAX)
        .read_line(&mut line)
        .with_context(|| format!("no answer on control socket {}", path.display()))?;
    accepted(path, &line)
}

/// The same of what is answered with an open file.
pub fn request_with_file(
    path: &Path,
    request: &Value,
    patience: Duration,
) -> Result<(Value, Option<OwnedFd>)> {
    let stream = sent(path, request, patience)?;
    let mut first = vec![0; 64 << 10];
    let (got, file) = handover::receive(&stream, &mut first)
        .with_context(|| format!("no answer on control socket {}", path.display()))?;
    first.truncate(got);
    let rest = (&stream).take(ANSWER_BYTES_MAX);
    let mut line = String::new();
    BufReader::new((&first[..]).chain(rest)).read_line(&mut line)?;
    Ok((accepted(path, &line)?, file))
}

fn sent(path: &Path, request: &Value, patience: Duration) -> Result<UnixStream> {
    let shown = path.display();
    let stream = UnixStream::connect(path)
        .with_context(|| format!("no server answers on control socket {shown}"))?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    (&stream).write_all(format!("{request}\n").as_bytes())?;
    Ok(stream)
}

/// Sends a server a request, after which more comes; what comes, and where from.
pub fn request_stream(path: &Path, request: &Value) -> Result<BufReader<UnixStream>> {
    let stream = sent(path, request, SENT_PATIENCE)?;
    let mut stream = BufReader::with_capacity(1 << 20, stream);
    let mut line = String::new();
    (&mut stream)
        .take(ANSWER_BYTES_MAX)
        .read_line(&mut line)
        .with_context(|| format!("no answer on control socket {}", path.display()))?;
    accepted(path, &line)?;
    Ok(stream)
}

fn accepted(path: &Path, line: &str) -> Result<Value> {
    let shown = path.display();
    let answer: Value = serde_json::from_str(line)
        .with_context(|| format!("no sense on control socket {shown}"))?;
    if answer.get("ok").and_then(Value::as_bool) != Some(true) {
        bail!(
            "the server on {shown} refused: {}",
            answer.get("error").and_then(Value::as_str).unwrap_or("?")
        );
    }
    Ok(answer)
}
