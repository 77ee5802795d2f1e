//! The handshake on a socket: carries bytes between a [`Link`] and a [`Negotiator`].

use super::end::End;
use super::export::{Catalogue, Export};
use super::link::Link;
use super::negotiate::{Agreed, Negotiator, OPTION_DATA_MAX, Step, TlsState};
use super::wire::OPTION_BYTES;
use rustls::ServerConfig;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time a client has for its whole handshake.
const PATIENCE: Duration = Duration::from_secs(30);

/// Performs the handshake.
///
/// # Errors
/// Why there will be no transmission; `Closed` if the client wanted none.
pub fn handshake(
    link: &mut Link,
    catalogue: &Catalogue,
    tls: Option<&Arc<ServerConfig>>,
) -> Result<(Arc<Export>, Agreed), End> {
    let deadline = Instant::now() + PATIENCE;
    let state = if tls.is_some() {
        TlsState::Required
    } else {
        TlsState::Unavailable
    };
    let mut negotiator = Negotiator::new(catalogue, state);
    link.write_all(&Negotiator::greeting(), deadline)?;
    let mut flags = [0; 4];
    at_start(link.read_exact(&mut flags, deadline))?;
    negotiator.client_flags(flags)?;
    let mut data = Vec::new();
    let mut out = Vec::new();
    loop {
        let mut head = [0; OPTION_BYTES];
        at_start(link.read_exact(&mut head, deadline))?;
        let option = negotiator.header(&head)?;
        out.clear();
        let step = if option.length > OPTION_DATA_MAX {
            skip(link, option.length as usize, deadline)?;
            negotiator.too_big(option.option, &mut out)?
        } else {
            data.resize(option.length as usize, 0);
            link.read_exact(&mut data, deadline)?;
            negotiator.option(option.option, &data, &mut out)?
        };
        let sent = link.write_all(&out, deadline);
        match step {
            // The client may not wait for this reply.
            Step::Abort => return Err(End::Closed),
            Step::More => sent?,
            Step::StartTls => {
                sent?;
                let Some(config) = tls else {
                    return Err(End::Closed);
                };
                link.start_tls(Arc::clone(config), deadline)?;
                negotiator.tls_started(link.client());
            }
            Step::Transmit(export) => {
                sent?;
                let agreed = negotiator.agreed(&export);
                return Ok((export, agreed));
            }
        }
    }
}

/// A client that hangs up between messages is not reported.
fn at_start(read: std::io::Result<()>) -> Result<(), End> {
    read.map_err(|e| match e.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => End::Closed,
        _ => End::Io(e),
    })
}

fn skip(link: &Link, mut length: usize, deadline: Instant) -> Result<(), End> {
    let mut sink = [0; 4096];
    while length > 0 {
        let count = length.min(sink.len());
        link.read_exact(&mut sink[..count], deadline)?;
        length -= count;
    }
    Ok(())
}
