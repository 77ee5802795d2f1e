//! How a connection ends.

use super::session::Gone;
use super::wire::ProtocolError;
use std::io;

/// Why a connection ended.
#[derive(Debug)]
pub enum End {
    /// The client said goodbye or hung up between requests, or the server stops.
    Closed,
    /// The socket failed, or the client vanished inside a request.
    Io(io::Error),
    /// The client violated the protocol.
    Protocol(ProtocolError),
}

impl From<Gone> for End {
    fn from(_: Gone) -> Self {
        Self::Closed
    }
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<ProtocolError> for End {
    fn from(error: ProtocolError) -> Self {
        Self::Protocol(error)
    }
}
