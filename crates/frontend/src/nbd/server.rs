//! The server: accepts connections and tracks them.

use super::connections::{Connections, Peer};
use super::end::End;
use super::export::{Catalogue, Export, ExportError};
use super::handshake::handshake;
use super::link::Link;
use super::listen::{BindError, Listen, Listener, Protection};
use super::receive::Receiver;
use super::session::{Memory, Session};
use super::words::{Report, Words};
use crate::changes::Changes;
use crate::finder::Finder;
use parking_lot::{Condvar, Mutex};
use rustls::ServerConfig;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// The default limit on connections.
pub const CONNECTIONS_MAX: usize = 128;
/// How long `shutdown` lets clients take their last replies.
const GRACE: Duration = Duration::from_secs(5);
/// The stack size of a connection's threads. The only recursion is in rustls.
const STACK_BYTES: usize = 512 << 10;

/// Options of a server.
#[derive(Clone)]
pub struct Options {
    /// The most connections at a time, not counting those in their handshake. More are closed at once. One address may have at
    /// most half of them, and one of several exports three quarters.
    pub connections_max: usize,
    /// For a unix socket: the group whose members may connect besides its owner.
    pub socket_group: Option<u32>,
    /// Receives a sentence for each connection that ended badly; when there are many, only for some.
    pub report: Report,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connections_max: CONNECTIONS_MAX,
            socket_group: None,
            report: Arc::new(|_| {}),
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("connections_max", &self.connections_max)
            .finish_non_exhaustive()
    }
}

/// Serves several exports on one socket. Dropping it calls [`Server::shutdown`].
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    /// Until it accepts connections.
    listener: Option<Listener>,
    acceptor: Option<JoinHandle<()>>,
    address: Option<SocketAddr>,
}

#[derive(Debug)]
struct Shared {
    catalogue: Catalogue,
    tls: Option<Arc<ServerConfig>>,
    is_tcp: bool,
    words: Words,
    memory: Memory,
    stopping: AtomicBool,
    /// An eventfd that wakes the acceptor.
    wake: OwnedFd,
    connections: Mutex<Connections>,
    ended: Condvar,
}

impl Server {
    /// Starts to listen.
    ///
    /// # Errors
    /// An error with the address or the certificates.
    pub fn bind(listen: &Listen) -> Result<Self, BindError> {
        Self::bind_with(listen, Options::default())
    }

    /// Starts to listen, with options.
    ///
    /// # Errors
    /// An error with the address or the certificates.
    pub fn bind_with(listen: &Listen, options: Options) -> Result<Self, BindError> {
        let mut server = Self::prepare(listen, options)?;
        server.open()?;
        Ok(server)
    }

    /// Starts to listen, and accepts nobody yet: clients wait until [`Server::open`], and then find all exports.
    ///
    /// # Errors
    /// An error with the address or the certificates.
    pub fn prepare(listen: &Listen, options: Options) -> Result<Self, BindError> {
        let tls = match listen {
            Listen::Tcp {
                tls: Protection::Tls(files),
                ..
            } => Some(files.load()?),
            _ => None,
        };
        let listener = Listener::bind(listen, options.socket_group)?;
        let address = listener.address;
        let refused = |error| BindError::Io {
            place: format!("{listen:?}"),
            error,
        };
        // SAFETY: the result is checked.
        let wake = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if wake < 0 {
            return Err(refused(io::Error::last_os_error()));
        }
        let shared = Arc::new(Shared {
            catalogue: Catalogue::default(),
            tls,
            is_tcp: address.is_some(),
            words: Words::new(options.report),
            memory: Memory::new(),
            stopping: AtomicBool::new(false),
            // SAFETY: a new descriptor that nothing else owns.
            wake: unsafe { OwnedFd::from_raw_fd(wake) },
            connections: Mutex::new(Connections::new(options.connections_max)),
            ended: Condvar::new(),
        });
        Ok(Self {
            shared,
            listener: Some(listener),
            acceptor: None,
            address,
        })
    }

    /// Accepts connections from now on. The second call does nothing.
    ///
    /// # Errors
    /// If the system has no thread for it.
    pub fn open(&mut self) -> Result<(), BindError> {
        let Some(listener) = self.listener.take() else {
            return Ok(());
        };
        let place = "its socket".to_owned();
        let mine = Arc::clone(&self.shared);
        let acceptor = Builder::new()
            .name("nbd-accept".into())
            .spawn(move || accept(&mine, &listener))
            .map_err(|error| BindError::Io { place, error })?;
        self.acceptor = Some(acceptor);
        Ok(())
    }

    /// The TCP address it listens on, with the port that was picked.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Adds an export. The first one is the default.
    ///
    /// # Errors
    /// If its name is taken or not allowed by the protocol.
    pub fn add(&self, export: Export) -> Result<(), ExportError> {
        self.shared.catalogue.add(export)
    }

    /// Sets the finder for names that are not listed.
    pub fn find_by(&self, finder: Finder) {
        self.shared.catalogue.find_by(finder);
    }

    /// Sets how exports are compared with earlier points.
    pub fn compare_by(&self, changes: Arc<dyn Changes>) {
        self.shared.catalogue.compare_by(changes);
    }

    /// Stops serving an export: its connections finish what is in flight and close. Returns true if it existed.
    pub fn remove(&self, name: &str) -> bool {
        let Some(export) = self.shared.catalogue.remove(name) else {
            return false;
        };
        let mut connections = self.shared.connections.lock();
        let its = Some(&export);
        connections.sessions(its).for_each(|session| session.stop());
        let deadline = Instant::now() + GRACE;
        while connections.sessions(its).next().is_some() {
            if self
                .shared
                .ended
                .wait_until(&mut connections, deadline)
                .timed_out()
            {
                connections.sessions(its).for_each(|session| session.kill());
                while connections.sessions(its).next().is_some() {
                    self.shared.ended.wait(&mut connections);
                }
            }
        }
        true
    }

    /// The number of connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections.lock().alive()
    }

    /// Stops accepting, lets requests in flight finish, and closes. A client that does not take its replies is cut off after a
    /// while. When this returns, no request is in flight.
    pub fn shutdown(&mut self) {
        self.listener = None;
        let Some(acceptor) = self.acceptor.take() else {
            return;
        };
        self.shared.stopping.store(true, Ordering::Release);
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes, as an eventfd requires.
        unsafe { libc::write(self.shared.wake.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        // It panicked or it ended; either way it no longer accepts.
        let _ = acceptor.join();
        let mut connections = self.shared.connections.lock();
        connections.cut_handshakes();
        connections
            .sessions(None)
            .for_each(|session| session.stop());
        let deadline = Instant::now() + GRACE;
        while connections.alive() > 0 {
            if self
                .shared
                .ended
                .wait_until(&mut connections, deadline)
                .timed_out()
            {
                connections
                    .sessions(None)
                    .for_each(|session| session.kill());
                while connections.alive() > 0 {
                    self.shared.ended.wait(&mut connections);
                }
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown();
    }
}

fn accept(shared: &Arc<Shared>, listener: &Listener) {
    loop {
        let poll = |fd: &OwnedFd| libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let mut polls = [poll(&listener.fd), poll(&shared.wake)];
        // SAFETY: two pollfds, alive during the call. If it is interrupted, nothing is ready.
        unsafe { libc::poll(polls.as_mut_ptr(), 2, -1) };
        if shared.stopping.load(Ordering::Acquire) {
            return;
        }
        if polls[0].revents == 0 {
            continue;
        }
        match listener.accept() {
            Ok(fd) => start(shared, fd),
            Err(e) => {
                // Out of descriptors or the like: the client stays in the backlog, so do not spin on it.
                shared
                    .words
                    .say(&format!("cannot accept a connection: {e}"));
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

/// Starts a connection's thread.
fn start(shared: &Arc<Shared>, fd: OwnedFd) {
    let Ok(copy) = fd.try_clone() else { return };
    let (fd, peer) = match shared.is_tcp {
        true => {
            let stream = TcpStream::from(fd);
            let address = stream.peer_addr().ok();
            (
                stream.into(),
                Peer::new(address.map(|address| address.ip())),
            )
        }
        false => (fd, Peer::new(None)),
    };
    let entered = shared.connections.lock().enter(peer, copy);
    let number = match entered {
        Ok(number) => number,
        Err(refused) => return shared.words.say(&format!("connection refused: {refused}")),
    };
    let mine = Arc::clone(shared);
    let spawned = Builder::new()
        .name("nbd-receive".into())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            // Also when it unwinds: a count that is never lowered would hang the shutdown.
            let _leave = Leave {
                shared: &mine,
                number,
            };
            let end = serve(&mine, number, fd);
            let words = match end {
                End::Closed => return,
                End::Io(e) => format!("connection {number} broke: {e}"),
                End::Protocol(e) => format!("connection {number} closed: {e}"),
            };
            if !mine.stopping.load(Ordering::Acquire) {
                mine.words.say(&words);
            }
        });
    if let Err(e) = spawned {
        drop(Leave { shared, number });
        shared
            .words
            .say(&format!("cannot start a thread for a connection: {e}"));
    }
}

struct Leave<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        let mut connections = self.shared.connections.lock();
        connections.leave(self.number);
        self.shared.ended.notify_all();
    }
}

/// Ends a session, also when its thread unwinds. Otherwise the client would wait forever on a connection without a server.
struct HangUp<'a>(&'a Session);

impl Drop for HangUp<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Parts given to the device may never be answered, so do not wait for them.
            self.0.abandon();
        } else {
            self.0.end();
        }
    }
}

/// Serves a connection from start to end.
fn serve(shared: &Shared, number: u64, fd: OwnedFd) -> End {
    let mut link = Link::new(fd);
    let (export, agreed) = match handshake(&mut link, &shared.catalogue, shared.tls.as_ref()) {
        Ok(agreed) => agreed,
        Err(end) => {
            link.close();
            return end;
        }
    };
    let session = Arc::new(Session::new(link, export, agreed, shared.memory.clone()));
    {
        let exports = shared.catalogue.all().len();
        let mut connections = shared.connections.lock();
        if let Err(refused) = connections.settle(number, &session, exports) {
            session.kill();
            return End::Io(io::Error::other(refused));
        }
        // Checked after the insertion, while the flags are set before the sessions are stopped: one of the two takes effect.
        if shared.stopping.load(Ordering::Acquire) || session.export.removed.load(Ordering::Acquire)
        {
            session.stop();
        }
    }
    let writer = Arc::clone(&session);
    let writer = Builder::new()
        .name("nbd-send".into())
        .stack_size(STACK_BYTES)
        .spawn(move || writer.write_leftovers());
    let hang_up = HangUp(&session);
    let end = match &writer {
        Ok(_) => Receiver::new(Arc::clone(&session)).run(),
        Err(e) => End::Io(io::Error::from(e.kind())),
    };
    drop(hang_up);
    if let Ok(writer) = writer {
        // It panicked or it ended: the connection is over either way.
        let _ = writer.join();
    }
    end
}
