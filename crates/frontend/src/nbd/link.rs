//! A connection's bytes: a unix or TCP socket, plain or with TLS.
//!
//! One thread receives and any thread sends. Sending never blocks: it reports what the socket does not take, and a thread with
//! time to spare waits with [`Link::wait_writable`].

use super::tls::Fingerprint;
use parking_lot::Mutex;
use rustls::{ServerConfig, ServerConnection};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most pieces of memory that one system call takes (IOV_MAX).
pub const PIECES_MAX: usize = 1024;

/// How much plain text TLS buffers before it must be sent.
const TLS_BUFFER_BYTES: usize = 256 << 10;

/// A connection.
#[derive(Debug)]
pub struct Link {
    fd: OwnedFd,
    tls: Option<Box<Mutex<ServerConnection>>>,
}

impl Link {
    /// A link without TLS.
    pub fn new(fd: OwnedFd) -> Self {
        Self { fd, tls: None }
    }

    /// Performs the TLS handshake as the server.
    ///
    /// # Errors
    /// The error of the socket or the handshake.
    pub fn start_tls(&mut self, config: Arc<ServerConfig>, deadline: Instant) -> io::Result<()> {
        let mut tls = ServerConnection::new(config).map_err(io::Error::other)?;
        tls.set_buffer_limit(Some(TLS_BUFFER_BYTES));
        let mut socket = Socket(self.fd.as_raw_fd());
        while tls.is_handshaking() || tls.wants_write() {
            if tls.wants_write() {
                match tls.write_tls(&mut socket) {
                    Ok(_) => {}
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {
                        self.wait(libc::POLLOUT, Some(left(deadline)?))?
                    }
                    Err(e) => return Err(e),
                }
                continue;
            }
            match tls.read_tls(&mut socket) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {
                    if let Err(e) = tls.process_new_packets() {
                        // The alert tells the client why; whether it arrives does not matter.
                        let _ = tls.write_tls(&mut socket);
                        return Err(io::Error::other(e));
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    self.wait(libc::POLLIN, Some(left(deadline)?))?
                }
                Err(e) => return Err(e),
            }
        }
        self.tls = Some(Box::new(Mutex::new(tls)));
        Ok(())
    }

    /// The fingerprint of the certificate that the other side has shown and proved to own.
    pub fn client(&self) -> Option<Fingerprint> {
        let tls = self.tls.as_ref()?.lock();
        tls.peer_certificates()?.first().map(Fingerprint::of)
    }

    /// Waits for bytes, and takes what is available. Zero means the end of the stream.
    ///
    /// # Errors
    /// `TimedOut` after the deadline, even if bytes are available: sending one now and then does not extend it. The socket's error.
    ///
    /// # Safety
    /// Each piece must be memory that the caller may write.
    pub unsafe fn receive(
        &self,
        pieces: &mut [libc::iovec],
        deadline: Option<Instant>,
    ) -> io::Result<usize> {
        loop {
            let patience = deadline.map(left).transpose()?;
            let got = match &self.tls {
                // SAFETY: the caller's promise.
                None => unsafe { receive_plain(self.fd.as_raw_fd(), pieces, patience.is_none()) },
                // SAFETY: the caller's promise.
                Some(tls) => unsafe { receive_tls(&mut tls.lock(), self.fd.as_raw_fd(), pieces) },
            };
            match got {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.wait(libc::POLLIN, patience)?,
                other => return other,
            }
        }
    }

    /// Like [`Link::receive`] without a deadline, but the thread polls for `awake` before it sleeps, and
    /// yields to other threads each time.
    ///
    /// # Errors
    /// The socket's error.
    ///
    /// # Safety
    /// Each piece must be memory that the caller may write.
    pub unsafe fn receive_awake(
        &self,
        pieces: &mut [libc::iovec],
        awake: Duration,
    ) -> io::Result<usize> {
        let until = Instant::now() + awake;
        loop {
            // SAFETY: the caller's promise.
            match unsafe { self.receive_now(pieces) } {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                other => return other,
            }
            if Instant::now() >= until {
                // SAFETY: the caller's promise.
                return unsafe { self.receive(pieces, None) };
            }
            std::thread::yield_now();
        }
    }

    /// Takes what is available, or returns `WouldBlock`.
    ///
    /// # Safety
    /// Each piece must be memory that the caller may write.
    unsafe fn receive_now(&self, pieces: &mut [libc::iovec]) -> io::Result<usize> {
        let fd = self.fd.as_raw_fd();
        match &self.tls {
            // SAFETY: the caller's promise.
            None => unsafe { receive_plain(fd, pieces, false) },
            // SAFETY: the caller's promise.
            Some(tls) => unsafe { receive_tls(&mut tls.lock(), fd, pieces) },
        }
    }

    /// Fills `bytes` before the deadline.
    ///
    /// # Errors
    /// `UnexpectedEof`, `TimedOut`, or the socket's error.
    pub fn read_exact(&self, mut bytes: &mut [u8], deadline: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            let mut piece = [libc::iovec {
                iov_base: bytes.as_mut_ptr().cast(),
                iov_len: bytes.len(),
            }];
            // SAFETY: the piece is `bytes`, borrowed mutably.
            let got = unsafe { self.receive(&mut piece, Some(deadline)) }?;
            if got == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            bytes = &mut bytes[got..];
        }
        Ok(())
    }

    /// Sends all before the deadline.
    ///
    /// # Errors
    /// `TimedOut`, or the socket's error.
    pub fn write_all(&self, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
        loop {
            let piece = [libc::iovec {
                iov_base: bytes.as_ptr().cast_mut().cast(),
                iov_len: bytes.len(),
            }];
            // SAFETY: the piece is `bytes`; it is only read.
            let sent = if bytes.is_empty() {
                self.flush().map(|()| 0)
            } else {
                unsafe { self.send(&piece) }
            };
            match sent {
                Ok(_) if bytes.is_empty() => return Ok(()),
                Ok(count) => bytes = &bytes[count..],
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    self.wait(libc::POLLOUT, Some(left(deadline)?))?
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Sends as much as possible without waiting: at least a byte, or returns `WouldBlock`.
    ///
    /// # Errors
    /// `WouldBlock`, or the socket's error.
    ///
    /// # Safety
    /// Each piece must be memory that the caller may read.
    pub unsafe fn send(&self, pieces: &[libc::iovec]) -> io::Result<usize> {
        let fd = self.fd.as_raw_fd();
        let Some(tls) = &self.tls else {
            // SAFETY: a zeroed msghdr is a valid one; the pieces are the caller's promise.
            return retry(|| unsafe {
                let mut message: libc::msghdr = std::mem::zeroed();
                message.msg_iov = pieces.as_ptr().cast_mut();
                message.msg_iovlen = pieces.len().min(PIECES_MAX) as _;
                libc::sendmsg(
                    fd,
                    &raw const message,
                    libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                )
            });
        };
        let mut tls = tls.lock();
        push_tls(&mut tls, fd)?;
        let mut taken = 0;
        for piece in pieces {
            // SAFETY: the caller's promise.
            let bytes =
                unsafe { std::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len) };
            // It takes less than all when its own buffer is full.
            let count = tls.writer().write(bytes)?;
            taken += count;
            if count < bytes.len() {
                break;
            }
        }
        match push_tls(&mut tls, fd) {
            Err(e) if e.kind() != ErrorKind::WouldBlock || taken == 0 => Err(e),
            _ => Ok(taken),
        }
    }

    /// Sends what TLS still holds of what [`Link::send`] took.
    ///
    /// # Errors
    /// `WouldBlock`, or the socket's error.
    pub fn flush(&self) -> io::Result<()> {
        match &self.tls {
            None => Ok(()),
            Some(tls) => push_tls(&mut tls.lock(), self.fd.as_raw_fd()),
        }
    }

    /// Waits until the socket accepts more.
    ///
    /// # Errors
    /// `TimedOut` after the deadline, even if the socket accepts more; or the system's error.
    pub fn wait_writable(&self, deadline: Instant) -> io::Result<()> {
        self.wait(libc::POLLOUT, Some(left(deadline)?))
    }

    /// Stops receiving. The receiving thread wakes with the end of the stream.
    pub fn stop_receiving(&self) {
        self.shutdown(libc::SHUT_RD);
    }

    /// Like [`Link::close`], but without a TLS alert and without waiting, for use by another connection's thread.
    pub fn cut(&self) {
        self.shutdown(libc::SHUT_RDWR);
    }

    /// Stops traffic in both directions.
    pub fn close(&self) {
        if let Some(tls) = &self.tls {
            let mut tls = tls.lock();
            tls.send_close_notify();
            // A courtesy; the connection ends in any case.
            let _ = push_tls(&mut tls, self.fd.as_raw_fd());
        }
        self.shutdown(libc::SHUT_RDWR);
    }

    fn shutdown(&self, how: i32) {
        // SAFETY: a system call on a descriptor that we own. It fails only if the peer is gone.
        unsafe { libc::shutdown(self.fd.as_raw_fd(), how) };
    }

    fn wait(&self, events: i16, patience: Option<Duration>) -> io::Result<()> {
        let mut poll = libc::pollfd {
            fd: self.fd.as_raw_fd(),
            events,
            revents: 0,
        };
        let millis = patience.map_or(-1, |p| {
            i32::try_from(p.as_millis()).unwrap_or(i32::MAX).max(1)
        });
        // SAFETY: one pollfd, alive during the call.
        match unsafe { libc::poll(&raw mut poll, 1, millis) } {
            0 => Err(ErrorKind::TimedOut.into()),
            1.. => Ok(()),
            _ => match io::Error::last_os_error() {
                e if e.kind() == ErrorKind::Interrupted => Ok(()),
                e => Err(e),
            },
        }
    }
}

/// The time left until the deadline.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(ErrorKind::TimedOut.into())
    } else {
        Ok(left)
    }
}

fn retry(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        match usize::try_from(call()) {
            Ok(count) => return Ok(count),
            Err(_) => match io::Error::last_os_error() {
                e if e.kind() == ErrorKind::Interrupted => {}
                e => return Err(e),
            },
        }
    }
}

/// # Safety
/// Each piece must be memory that the caller may write.
unsafe fn receive_plain(fd: RawFd, pieces: &mut [libc::iovec], block: bool) -> io::Result<usize> {
    // SAFETY: a zeroed msghdr is a valid one; the pieces are the caller's promise.
    retry(|| unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = pieces.as_mut_ptr();
        message.msg_iovlen = pieces.len().min(PIECES_MAX) as _;
        libc::recvmsg(
            fd,
            &raw mut message,
            if block { 0 } else { libc::MSG_DONTWAIT },
        )
    })
}

/// # Safety
/// Each piece must be memory that the caller may write.
unsafe fn receive_tls(
    tls: &mut ServerConnection,
    fd: RawFd,
    pieces: &[libc::iovec],
) -> io::Result<usize> {
    loop {
        let mut taken = 0;
        for piece in pieces {
            // SAFETY: the caller's promise.
            let bytes = unsafe {
                std::slice::from_raw_parts_mut(piece.iov_base.cast::<u8>(), piece.iov_len)
            };
            match tls.reader().read(bytes) {
                // The end of the stream, if nothing was taken before.
                Ok(0) => return Ok(taken),
                Ok(count) => {
                    taken += count;
                    if count < bytes.len() {
                        break;
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return if taken > 0 { Ok(taken) } else { Err(e) },
            }
        }
        if taken > 0 {
            return Ok(taken);
        }
        if tls.read_tls(&mut Socket(fd))? == 0 {
            return Ok(0);
        }
        tls.process_new_packets().map_err(io::Error::other)?;
    }
}

fn push_tls(tls: &mut ServerConnection, fd: RawFd) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(&mut Socket(fd))?;
    }
    Ok(())
}

/// The socket, in non-blocking use by rustls.
struct Socket(RawFd);

impl Read for Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the memory is `bytes`.
        retry(|| unsafe {
            libc::recv(
                self.0,
                bytes.as_mut_ptr().cast(),
                bytes.len(),
                libc::MSG_DONTWAIT,
            )
        })
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the memory is `bytes`.
        retry(|| unsafe { libc::send(self.0, bytes.as_ptr().cast(), bytes.len(), flags) })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
