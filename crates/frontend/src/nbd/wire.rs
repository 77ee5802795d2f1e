//! The protocol's numbers and fixed-size messages, from the public specification
//! (NetworkBlockDevice/nbd, doc/proto.md). All of it is big endian; nothing here does I/O.

/// First word from a server.
pub const MAGIC_INIT: u64 = 0x4e42_444d_4147_4943;
/// Second word from a server, and first word of each option.
pub const MAGIC_OPTION: u64 = 0x4948_4156_454f_5054;
/// First word of a reply to an option.
pub const MAGIC_OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
/// First word of a request.
pub const MAGIC_REQUEST: u32 = 0x2560_9513;
/// First word of a simple reply.
pub const MAGIC_SIMPLE: u32 = 0x6744_6698;
/// First word of a chunk of a structured reply.
pub const MAGIC_STRUCTURED: u32 = 0x668e_33ef;

/// Bytes of a request without its payload.
pub const REQUEST_BYTES: usize = 28;
/// Bytes of an option without its data.
pub const OPTION_BYTES: usize = 16;

/// The largest payload of one request, reported to clients that ask.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
/// The smallest request size reported to clients. Smaller requests are served all the same.
pub const BLOCK_BYTES_MIN: u32 = 512;
/// The preferred request size reported to clients: it avoids read-modify-write.
pub const BLOCK_BYTES_PREFERRED: u32 = 4096;

/// Flags of the handshake, the same in both directions.
pub mod handshake {
    /// Options are answered.
    pub const FIXED_NEWSTYLE: u16 = 1;
    /// The answer to EXPORT_NAME is not padded.
    pub const NO_ZEROES: u16 = 2;
}

/// Options.
pub mod option {
    /// Ends the negotiation; cannot be answered with an error.
    pub const EXPORT_NAME: u32 = 1;
    /// The client gives up.
    pub const ABORT: u32 = 2;
    /// Lists the exports.
    pub const LIST: u32 = 3;
    /// Changes to TLS.
    pub const STARTTLS: u32 = 5;
    /// Describes an export.
    pub const INFO: u32 = 6;
    /// Describes an export, then starts the transmission.
    pub const GO: u32 = 7;
    /// Requests structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// Lists the meta contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Chooses meta contexts.
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Replies to options.
pub mod reply {
    /// Done.
    pub const ACK: u32 = 1;
    /// An export's name.
    pub const SERVER: u32 = 2;
    /// Something about an export.
    pub const INFO: u32 = 3;
    /// A meta context.
    pub const META_CONTEXT: u32 = 4;
    /// Unknown option.
    pub const ERR_UNSUP: u32 = (1 << 31) + 1;
    /// Not allowed.
    pub const ERR_POLICY: u32 = (1 << 31) + 2;
    /// Malformed.
    pub const ERR_INVALID: u32 = (1 << 31) + 3;
    /// TLS is required first.
    pub const ERR_TLS_REQD: u32 = (1 << 31) + 5;
    /// No such export.
    pub const ERR_UNKNOWN: u32 = (1 << 31) + 6;
    /// Too long.
    pub const ERR_TOO_BIG: u32 = (1 << 31) + 9;
}

/// Kinds of information in INFO and GO.
pub mod info {
    /// Size and flags.
    pub const EXPORT: u16 = 0;
    /// Canonical name.
    pub const NAME: u16 = 1;
    /// Words for people.
    pub const DESCRIPTION: u16 = 2;
    /// Minimum, preferred, maximum.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Flags of an export.
pub mod export_flag {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// FLUSH is served.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// FUA is honoured.
    pub const SEND_FUA: u16 = 1 << 3;
    /// TRIM is served.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// WRITE_ZEROES is served.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// DF is honoured.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers what was acknowledged on all others.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// CACHE is served.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// FAST_ZERO is honoured.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Commands.
pub mod command {
    /// Read.
    pub const READ: u16 = 0;
    /// Write.
    pub const WRITE: u16 = 1;
    /// Goodbye.
    pub const DISC: u16 = 2;
    /// Flush.
    pub const FLUSH: u16 = 3;
    /// Discard.
    pub const TRIM: u16 = 4;
    /// Prefetch.
    pub const CACHE: u16 = 5;
    /// Zeros.
    pub const WRITE_ZEROES: u16 = 6;
    /// Reports which blocks are mapped.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of a command.
pub mod command_flag {
    /// Durable before the reply.
    pub const FUA: u16 = 1;
    /// Zeros must keep their space.
    pub const NO_HOLE: u16 = 1 << 1;
    /// The reply must be one chunk.
    pub const DF: u16 = 1 << 2;
    /// One extent only.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Fail if it is no faster than writing.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Kinds of chunk in a structured reply.
pub mod chunk {
    /// The last chunk of a reply.
    pub const FLAG_DONE: u16 = 1;
    /// Nothing.
    pub const NONE: u16 = 0;
    /// Data.
    pub const OFFSET_DATA: u16 = 1;
    /// Extents.
    pub const BLOCK_STATUS: u16 = 5;
    /// An error with words.
    pub const ERROR: u16 = (1 << 15) + 1;
}

/// The meta context that each export has.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// The extent has no space allocated, and reads as zeros.
pub const STATE_HOLE_ZERO: u32 = 3;
/// The extent has changed.
pub const DIRTY: u32 = 1;

/// The protocol's error numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// Read-only.
    Perm = 1,
    /// Damaged data or a failed medium.
    Io = 5,
    /// No memory to serve it now.
    NoMem = 12,
    /// Invalid request.
    Inval = 22,
    /// Full, or a write past the end.
    NoSpc = 28,
    /// Too large for one reply.
    Overflow = 75,
    /// Not possible faster than by writing.
    NotSup = 95,
    /// The server is shutting down.
    Shutdown = 108,
}

/// A request's fixed part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// [`command_flag`].
    pub flags: u16,
    /// [`command`].
    pub command: u16,
    /// The client's own number for it.
    pub cookie: u64,
    /// The offset in bytes.
    pub offset: u64,
    /// The length in bytes.
    pub length: u32,
}

/// Errors that end a connection at once, because the stream can no longer be understood or trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The bytes are not a request.
    #[error("request magic is {0:#010x}, not 0x25609513")]
    RequestMagic(u32),
    /// The bytes are not an option.
    #[error("option magic is {0:#018x}")]
    OptionMagic(u64),
    /// The client sets flags that are unknown here.
    #[error("unknown client flags {0:#x}")]
    ClientFlags(u32),
    /// An option is too long to be read.
    #[error("option {option} announces {length} bytes of data; at most {max} are read")]
    OptionLength {
        /// Its number.
        option: u32,
        /// The announced length.
        length: u32,
        /// The limit.
        max: u32,
    },
    /// The client sends too many options.
    #[error("more than {0} options in one handshake")]
    TooManyOptions(u32),
    /// An error for which the protocol has no reply.
    #[error("EXPORT_NAME asks for {0}, which cannot be served")]
    ExportName(String),
    /// A payload is too long to be drained.
    #[error("write of {length} bytes; at most {max} are drained")]
    PayloadLength {
        /// The announced length.
        length: u32,
        /// The limit.
        max: u32,
    },
}

/// The `N` bytes at `at`. Callers have checked the length; missing bytes become zeros.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(from) = bytes.get(at..at + N) {
        out.copy_from_slice(from);
    }
    out
}

/// A big-endian u16.
#[must_use]
pub fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(field(bytes, at))
}

/// A big-endian u32.
#[must_use]
pub fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(field(bytes, at))
}

/// A big-endian u64.
#[must_use]
pub fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(field(bytes, at))
}

impl RequestHeader {
    /// Decodes a request.
    ///
    /// # Errors
    /// If the magic number is wrong: the stream is out of step, which cannot be repaired.
    pub fn decode(bytes: &[u8; REQUEST_BYTES]) -> Result<Self, ProtocolError> {
        let magic = be32(bytes, 0);
        if magic != MAGIC_REQUEST {
            return Err(ProtocolError::RequestMagic(magic));
        }
        Ok(Self {
            flags: be16(bytes, 4),
            command: be16(bytes, 6),
            cookie: be64(bytes, 8),
            offset: be64(bytes, 16),
            length: be32(bytes, 24),
        })
    }

    /// Encodes it; for clients in tests.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut out = [0; REQUEST_BYTES];
        out[..4].copy_from_slice(&MAGIC_REQUEST.to_be_bytes());
        out[4..6].copy_from_slice(&self.flags.to_be_bytes());
        out[6..8].copy_from_slice(&self.command.to_be_bytes());
        out[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        out[16..24].copy_from_slice(&self.offset.to_be_bytes());
        out[24..].copy_from_slice(&self.length.to_be_bytes());
        out
    }
}

/// A simple reply.
#[must_use]
pub fn simple_reply(cookie: u64, error: u32) -> [u8; 16] {
    let mut out = [0; 16];
    out[..4].copy_from_slice(&MAGIC_SIMPLE.to_be_bytes());
    out[4..8].copy_from_slice(&error.to_be_bytes());
    out[8..].copy_from_slice(&cookie.to_be_bytes());
    out
}

/// The header of the only, and so last, chunk of a structured reply.
#[must_use]
pub fn chunk_head(cookie: u64, kind: u16, length: u32) -> [u8; 20] {
    head_of_chunk(cookie, kind, length, chunk::FLAG_DONE)
}

/// The header of a chunk of a structured reply, with these flags.
#[must_use]
pub fn head_of_chunk(cookie: u64, kind: u16, length: u32, flags: u16) -> [u8; 20] {
    let mut out = [0; 20];
    out[..4].copy_from_slice(&MAGIC_STRUCTURED.to_be_bytes());
    out[4..6].copy_from_slice(&flags.to_be_bytes());
    out[6..8].copy_from_slice(&kind.to_be_bytes());
    out[8..16].copy_from_slice(&cookie.to_be_bytes());
    out[16..].copy_from_slice(&length.to_be_bytes());
    out
}
