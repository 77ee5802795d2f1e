//! The control socket: for its owner, or also for a group. JSON lines, one answer a line.
//!
//! A request has `"command"`. Every answer has `"ok"`, and `"error"` if that is false. All commands but `stats`, `hand-over` and
//! `shutdown` are about the volume at `"volume"`.
//!
//! - `stats`: the counters of all volumes.
//! - `properties`: changed with `"set"`, a list of changes as on the command line (`["write-once=off"]`), or for this
//!   run alone with `"research"`.
//! - `journal`: changed with `"change"`, which is `"clear"` or `{"start":BYTES,"bytes":BYTES}`.
//! - `dedup`, `fold`: sweeps for duplicates and for sparse pages. `"sweep":"beside"` (its volume's clients) or `"now"`
//!   starts one, `"stop"` ends it.
//! - `scrub`: `"scrub":"start"` starts one, at most `"rate"` blocks a second (0: as many as it can), `"stop"` ends it.
//! - `grow`: to `"medium_blocks"` and `"logical_blocks"`, either of which may be missing.
//! - `shrink`: to `"logical_blocks"`.
//! - `snapshots`: `"order":{"take":NAME}` takes one, `{"delete":NAME}` deletes it; `{"diff":{"since":NAME}}`, with or without
//!   `"to":NAME`, lists the bytes that differ.
//! - `send`, with `"order":{"snapshot":NAME}`, with or without `"from":NAME`: after the answer the bytes of a stream follow, in
//!   [parts](crate::parts), and no further request is answered.
//! - `hand-over`, to another server: with `"order":"ask"` it reports what that server has to know; with `"now"` it passes its
//!   connection to the kernel along with the answer, and stops.
//! - `shutdown`.

use crate::handover;
use crate::parts;
use crate::signals::Stop;
use crate::state::Process;
use crate::{host, state};
use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use vellum_device::{NewSize, Sought};
use vellum_frontend::owned_socket;

/// A longer request is answered with an error, and the connection is closed.
pub const LINE_BYTES_MAX: u64 = 4096;
/// A longer answer does not come from a server of ours.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Connections served at once; further ones hear that the server is busy.
const CLIENTS_MAX: usize = 16;
/// How long a client asks a busy server again, and how often.
const BUSY_PATIENCE: Duration = Duration::from_secs(30);
const BUSY_PAUSE: Duration = Duration::from_millis(20);
/// How long a client may be silent.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a server may leave no room in its queue of connections while its process is looked for.
const QUEUE_PATIENCE: Duration = Duration::from_secs(1);
/// How long the receiver of a stream may accept none of it: the stream may be on its way to another machine.
const SENT_PATIENCE: Duration = Duration::from_secs(3600);

/// The operations behind the control socket.
pub trait Answers: Send + Sync {
    /// Returns every volume with its counters.
    fn stats(&self) -> Value;
    /// Returns the properties of a volume, after making changes, if any.
    fn properties(&self, volume: &Value, set: &Value, study: &Value) -> Result<Value, String>;
    /// Returns the progress of a sweep, after following an order, if any.
    fn sweep(&self, sought: Sought, volume: &Value, order: &Value) -> Result<Value, String>;
    /// Returns the progress of a scrub and what it has found, after following an order, if any.
    fn scrub(&self, volume: &Value, order: &Value, rate: &Value) -> Result<Value, String>;
    /// Makes a volume larger, and returns its new description.
    fn grow(&self, volume: &Value, size: NewSize) -> Result<Value, String>;
    /// Makes a volume smaller for its clients, and returns its new description.
    fn shrink(&self, volume: &Value, blocks: u64) -> Result<Value, String>;
    /// Returns the snapshots of a volume, after following an order, if any; or what differs between two of them.
    fn snapshots(&self, volume: &Value, order: &Value) -> Result<Value, String>;
    /// Prepares to send a snapshot.
    fn send(&self, volume: &Value, order: &Value) -> Result<Sending, String>;
    /// Returns what another server has to know before it takes over, or everything it needs to do so.
    fn hand_over(&self, order: &Value) -> Result<HandedOver, String>;
    /// Goes on, because what was to be passed to another server never left this one.
    fn go_on(&self);
    /// Returns the journals of a volume, after making a change, if any.
    fn journal(&self, volume: &Value, change: &Value) -> Result<Value, String>;
}

/// What is passed to another server.
pub struct HandedOver {
    /// The JSON part.
    pub told: Value,
    /// An open file.
    pub file: Option<OwnedFd>,
    /// True if this server stops.
    pub ends: bool,
}

/// Writes a stream. The error says why it ended early.
pub type Sending = Box<dyn FnOnce(&mut dyn Write) -> Result<(), String>>;

/// What to do with the answer to a line, and after it.
#[derive(Default)]
pub enum After {
    /// Read the next line.
    #[default]
    Nothing,
    /// End the server.
    End,
    /// Send a stream.
    Send(Sending),
    /// Pass an open file along with the answer; if true, the server ends.
    HandOver(Option<OwnedFd>, bool),
}

/// How long a killed server may still exist while its socket accepts connections.
const DYING: Duration = Duration::from_millis(500);

/// A listening control socket. Its file is removed with it.
pub struct ControlSocket {
    path: PathBuf,
    server: Arc<Mutex<Server>>,
}

/// What answers, if anything.
enum Server {
    /// The volumes are still being opened.
    Opening,
    Serving(Arc<dyn Answers>, Stop),
    Stopping,
}

impl ControlSocket {
    /// Claims a socket of the volume with this UUID, before anything is written to the volume. `None` if a server has the volume, or,
    /// for one that only reads, if as many as can have it do. Two processes cannot both write.
    pub fn claim(uuid: &str, read_only: bool) -> Result<Option<Self>> {
        let _alone = state::alone()?;
        let places = state::control_places(uuid)?;
        let free = match read_only {
            true => places.iter().find(|path| !is_served(path)),
            false => places
                .first()
                .filter(|_| !places.iter().any(|path| is_served(path))),
        };
        free.map(|path| Self::listen(path, None)).transpose()
    }

    /// Answers through `answers` from now on.
    pub fn serve(&self, answers: Arc<dyn Answers>, stop: Stop) {
        *self.server.lock() = Server::Serving(answers, stop);
    }

    /// Stops answering. The volume is still ours.
    pub fn stopping(&self) {
        *self.server.lock() = Server::Stopping;
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Listens at `path`, where a dead server may have left a file, for its owner and this group.
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
        let listener = owned_socket::listen(path, group)
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
                        // Usually out of descriptors: wait until some are closed.
                        std::thread::sleep(Duration::from_millis(100));
                        continue;
                    };
                    let one = Seat(Arc::clone(&clients));
                    if one.0.fetch_add(1, Ordering::SeqCst) >= CLIENTS_MAX {
                        // It fits into the socket's buffer.
                        let _ = tell(&client, &busy());
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

/// True if a server listens there. It does not wait for one whose queue is full because it is stopped.
pub fn is_answered(path: &Path) -> bool {
    path.exists() && owned_socket::is_answered(path).unwrap_or(false)
}

/// The process that listens there, if one does.
pub fn server_pid(path: &Path) -> Option<i32> {
    peer(&owned_socket::connect(path, QUEUE_PATIENCE).ok()?)
}

/// The process at the other end of a connection.
fn peer(stream: &OwnedFd) -> Option<i32> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: an open socket, and room of that length for the result.
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

/// A server that does not answer.
#[derive(Debug)]
pub struct Silent(String);

impl std::fmt::Display for Silent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Silent {}

/// Why the server behind this socket does not answer, as far as one sees, and what to do.
pub fn silence(socket: &Path) -> String {
    match server_pid(socket) {
        Some(pid) if is_stopped(pid) => {
            format!("process {pid} is stopped: `kill -CONT {pid}` lets it go on")
        }
        Some(pid) => format!("process {pid} hangs, or is opening volumes, or stopping"),
        None => "it hangs, or is opening volumes, or stopping".to_owned(),
    }
}

fn is_stopped(pid: i32) -> bool {
    Process::of(pid).is_some_and(Process::is_stopped)
}

/// The error for a request without an answer, or without a server to ask.
fn unanswered(socket: &Path, request: &Value, error: std::io::Error) -> anyhow::Error {
    let shown = socket.display();
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            let named = request["volume"].as_str().map(str::to_owned);
            let whose = named.unwrap_or(format!("control socket {shown}"));
            let why = silence(socket);
            Silent(format!("the server of {whose} does not answer: {why}")).into()
        }
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => anyhow::anyhow!(
            "the server on control socket {shown} closed the connection without an answer: it may have \
             ended just now (`vellum list`). Give the same command again"
        ),
        ErrorKind::PermissionDenied => anyhow::anyhow!(
            "control socket {shown} is another user's: give the command as that user, or with sudo"
        ),
        _ => anyhow::Error::new(error).context(format!(
            "no server answers on control socket {shown}: `vellum list` says whether it is dead, \
             and `vellum detach` cleans up after it"
        )),
    }
}

/// True if a server listens there that is not a killed one about to disappear.
pub fn is_served(path: &Path) -> bool {
    !host::eventually(DYING, || !is_answered(path))
}

/// True if a server is alive, and not a killed one about to disappear.
pub fn lives(server: Process) -> bool {
    !host::eventually(DYING, || !server.alive())
}

/// Removes the sockets that dead servers of this volume left. A socket that answers belongs to a server.
pub fn clear_up(uuid: &str) {
    // Refused means that no server listens. A starting server cannot be between bind and listen, because it holds the same lock.
    let is_dead =
        |path: &Path| path.exists() && owned_socket::is_answered(path).is_ok_and(|is| !is);
    if let (Ok(_alone), Ok(places)) = (state::alone(), state::control_places(uuid)) {
        for path in places.iter().filter(|path| is_dead(path)) {
            let _ = std::fs::remove_file(path);
        }
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
            Server::Opening => {
                return tell(client, &refuse("the server is still opening its volumes"));
            }
            Server::Stopping => return tell(client, &refuse("the server is stopping")),
        };
        let mut after = After::Nothing;
        let answer = answer(&line, &*answers, &mut after);
        let is_told = match &after {
            After::HandOver(Some(file), _) => {
                handover::send(client, format!("{answer}\n").as_bytes(), &[file.as_fd()])
            }
            _ => tell(client, &answer),
        };
        match after {
            After::Nothing | After::HandOver(_, false) => is_told?,
            // The other server is gone and got nothing. (`WriteZero`: it got the first bytes, and the connection with them.)
            After::HandOver(_, true)
                if is_told
                    .as_ref()
                    .is_err_and(|e| e.kind() != ErrorKind::WriteZero) =>
            {
                answers.go_on();
                is_told?;
            }
            // Not earlier: the process could end before it has answered.
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

/// The answer when all seats are taken. The request is not read.
fn busy() -> Value {
    json!({"ok": false, "busy": true, "error": "busy: it has too many clients: try again"})
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

fn shrink(request: &Value, answers: &dyn Answers) -> Result<Value, String> {
    let blocks = request["logical_blocks"].as_u64();
    let blocks = blocks.ok_or("\"logical_blocks\" is a number of blocks")?;
    answers.shrink(&request["volume"], blocks)
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
        Some("shrink") => told("shrunk", shrink(&request, answers)),
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
            shrink, snapshots, send, hand-over and shutdown"
        )),
        None => refuse("no \"command\""),
    }
}

/// Sends a command to a server.
pub fn ask(path: &Path, command: &str) -> Result<Value> {
    request(path, &json!({"command": command}))
}

/// Requests one volume's counters.
pub fn stats_of_one(socket: &Path) -> Result<Value> {
    let answer = ask(socket, "stats")?;
    let stats = answer.pointer("/volumes/0/stats").cloned();
    stats.with_context(|| format!("the server on {} serves no volume", socket.display()))
}

/// Sends a whole request to a server.
pub fn request(path: &Path, request: &Value) -> Result<Value> {
    request_within(path, request, PATIENCE)
}

/// Like [`request`], for requests that may take longer.
pub fn request_within(path: &Path, request: &Value, patience: Duration) -> Result<Value> {
    let answered = asked(path, request, patience, |stream| {
        let mut line = String::new();
        BufReader::new(&stream)
            .take(ANSWER_BYTES_MAX)
            .read_line(&mut line)?;
        Ok((line, ()))
    });
    Ok(answered?.0)
}

/// Like [`request`], for requests that are answered with an open file.
pub fn request_with_file(
    path: &Path,
    request: &Value,
    patience: Duration,
) -> Result<(Value, Option<OwnedFd>)> {
    asked(path, request, patience, |stream| {
        let mut first = vec![0; 64 << 10];
        let (got, files) = handover::receive(&stream, &mut first)?;
        first.truncate(got);
        let rest = (&stream).take(ANSWER_BYTES_MAX);
        let mut line = String::new();
        BufReader::new((&first[..]).chain(rest)).read_line(&mut line)?;
        Ok((line, files.into_iter().next()))
    })
}

/// Sends a request, and reads the answer's line. A busy server has not read the request, and is asked again.
fn asked<T>(
    path: &Path,
    request: &Value,
    patience: Duration,
    read: impl Fn(UnixStream) -> std::io::Result<(String, T)>,
) -> Result<(Value, T)> {
    let ends = Instant::now() + patience.min(BUSY_PATIENCE);
    loop {
        let read = read(sent(path, request, patience)?).and_then(|(line, rest)| match &*line {
            "" => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok((line, rest)),
        });
        let (line, rest) = read.map_err(|error| unanswered(path, request, error))?;
        let answer = serde_json::from_str::<Value>(&line);
        if answer.is_ok_and(|it| it["busy"] == true) && Instant::now() < ends {
            std::thread::sleep(BUSY_PAUSE);
            continue;
        }
        return Ok((accepted(path, &line)?, rest));
    }
}

fn sent(path: &Path, request: &Value, patience: Duration) -> Result<UnixStream> {
    let stream = owned_socket::connect(path, patience.min(PATIENCE))
        .map_err(|error| unanswered(path, request, error))?;
    if peer(&stream).is_some_and(is_stopped) {
        return Err(unanswered(path, request, ErrorKind::TimedOut.into()));
    }
    let stream = UnixStream::from(stream);
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    match (&stream).write_all(format!("{request}\n").as_bytes()) {
        // A busy server has answered before it closed the connection.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(stream),
    }
}

/// Sends a request that is answered with a stream. Returns the connection.
pub fn request_stream(path: &Path, request: &Value) -> Result<BufReader<UnixStream>> {
    let answered = asked(path, request, SENT_PATIENCE, |stream| {
        let mut stream = BufReader::with_capacity(1 << 20, stream);
        let mut line = String::new();
        (&mut stream).take(ANSWER_BYTES_MAX).read_line(&mut line)?;
        Ok((line, stream))
    });
    Ok(answered?.1)
}

fn accepted(path: &Path, line: &str) -> Result<Value> {
    let shown = path.display();
    let answer: Value = serde_json::from_str(line)
        .with_context(|| format!("the answer on control socket {shown} is not valid"))?;
    if answer.get("ok").and_then(Value::as_bool) != Some(true) {
        match answer.get("error").and_then(Value::as_str) {
            Some(error) => bail!("{error}"),
            None => bail!("the server on {shown} refused, and does not say why"),
        }
    }
    Ok(answer)
}
