//! Answers over HTTP: one request on each connection, in bounded time, by a bounded number of threads.

use crate::outcome::tell;
use crate::signals::Stop;
use anyhow::Result;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vellum_ops::http::{Answer, HEAD_BYTES_MAX, Request};

/// Connections answered at once; further ones are closed.
const CLIENTS_MAX: usize = 32;
/// How long a request may take to arrive, and its answer to be taken.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long to stop accepting when there are no descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers at this address until a signal. `path` is what the user is told to open.
pub fn serve<A>(address: SocketAddr, path: &str, answer: A) -> Result<()>
where
    A: Fn(&Request) -> Answer + Send + Sync + 'static,
{
    let stop = Stop::on_signals(true)?;
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    let answer = Arc::new(answer);
    std::thread::Builder::new()
        .name("http".into())
        .spawn(move || accept(&listener, &answer))?;
    tell(format_args!("ready: http://{address}/{path}"));
    stop.wait(None);
    Ok(())
}

fn accept<A>(listener: &TcpListener, answer: &Arc<A>)
where
    A: Fn(&Request) -> Answer + Send + Sync + 'static,
{
    for client in listener.incoming() {
        let Ok(client) = client else {
            std::thread::sleep(PAUSE);
            continue;
        };
        // Each client's thread has one, and so does the listener.
        if Arc::strong_count(answer) > CLIENTS_MAX {
            continue;
        }
        let answer = Arc::clone(answer);
        let _ = std::thread::Builder::new()
            .name("http-client".into())
            // A client that is gone, or too slow, gets no answer.
            .spawn(move || drop(talk(&client, &*answer)));
    }
}

fn talk(client: &TcpStream, answer: &impl Fn(&Request) -> Answer) -> std::io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let (answer, has_body) = match request(client, deadline)? {
        Ok(request) => (answer(&request), request.has_body()),
        Err(refusal) => (refusal, true),
    };
    let bytes = answer.bytes(has_body);
    let deadline = Instant::now() + PATIENCE;
    let mut left = bytes.as_slice();
    while !left.is_empty() {
        client.set_write_timeout(Some(until(deadline)?))?;
        let mut client = client;
        let written = client.write(left)?;
        left = &left[written..];
    }
    client.shutdown(Shutdown::Write)?;
    // Unread input would turn the close into a reset, which may overtake the answer.
    let mut rest = [0; 512];
    client.set_read_timeout(Some(PAUSE))?;
    for _ in 0..16 {
        let mut client = client;
        if client.read(&mut rest)? == 0 {
            break;
        }
    }
    Ok(())
}

fn request(mut client: &TcpStream, deadline: Instant) -> std::io::Result<Result<Request, Answer>> {
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    loop {
        client.set_read_timeout(Some(until(deadline)?))?;
        let got = client.read(&mut piece)?;
        if got == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&piece[..got]);
        debug_assert!(head.len() <= HEAD_BYTES_MAX + piece.len());
        match Request::parse(&head) {
            Ok(None) => {}
            Ok(Some(request)) => return Ok(Ok(request)),
            Err(refusal) => return Ok(Err(refusal)),
        }
    }
}

/// The time left until the deadline.
fn until(deadline: Instant) -> std::io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(std::io::ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}
