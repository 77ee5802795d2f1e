//! NBD, the network block device: a server written to the public protocol specification.
//!
//! The path of a request: [`Server`] accepts and gives the connection a thread; `handshake` carries bytes for `negotiate`,
//! which answers options; then `receive` parses requests and submits their parts to the device, `session` keeps what is in
//! flight and turns completions into replies, `outbox` sends them. `split` separates partial blocks from whole ones.
//! `wire` has the protocol's numbers.
//!
//! Architecture invariant: nothing here knows more about a volume than `vellum_device::block`.

mod connections;
mod contexts;
mod end;
mod export;
mod handshake;
mod heap;
mod leftovers;
mod link;
mod listen;
mod negotiate;
mod outbox;
mod receive;
mod server;
mod session;
mod slab;
mod split;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod tls;
#[cfg(not(feature = "testing"))]
mod wire;
#[cfg(feature = "testing")]
pub mod wire;
mod words;

pub use export::{Export, ExportError};
pub use listen::{BindError, Listen, Protection};
pub use server::{CONNECTIONS_MAX, Options, Server};
pub use tls::{Fingerprint, TlsError, TlsFiles};
pub use words::Report;
