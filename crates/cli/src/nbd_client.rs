//! A small NBD client, used by `demo` without root, and by the tests as their raw writer.
//!
//! One request at a time over a unix socket, simple replies.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

const OPTION_MAGIC: u64 = 0x4948_4156_454F_5054;
const SERVER_MAGIC: u64 = 0x4E42_444D_4147_4943;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const EXPORT_NAME: u32 = 1;

/// A connection to one export.
pub struct NbdClient {
    stream: UnixStream,
    bytes: u64,
    cookie: u64,
}

fn broken(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the NBD server sent {what}"),
    )
}

impl NbdClient {
    /// Connects to an export by name.
    pub fn connect(socket: &Path, export: &str) -> io::Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        let mut hello = [0; 18];
        stream.read_exact(&mut hello)?;
        let (magics, flags) = hello.split_at(16);
        if magics != [SERVER_MAGIC.to_be_bytes(), OPTION_MAGIC.to_be_bytes()].concat() {
            return Err(broken("no greeting"));
        }
        // Both of the server's handshake flags: fixed newstyle, no padding of zeros.
        let mut message = u32::from(u16::from_be_bytes([flags[0], flags[1]]) & 3)
            .to_be_bytes()
            .to_vec();
        message.extend(OPTION_MAGIC.to_be_bytes());
        message.extend(EXPORT_NAME.to_be_bytes());
        message.extend((export.len() as u32).to_be_bytes());
        message.extend(export.as_bytes());
        stream.write_all(&message)?;
        let mut answer = [0; 10];
        stream.read_exact(&mut answer)?;
        if flags[1] & 2 == 0 {
            stream.read_exact(&mut [0; 124])?;
        }
        let [size @ .., _, _] = answer;
        Ok(Self {
            stream,
            bytes: u64::from_be_bytes(size),
            cookie: 0,
        })
    }

    /// The export's size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn ask(
        &mut self,
        command: u16,
        offset: u64,
        len: u32,
        data: &[u8],
        into: &mut [u8],
    ) -> io::Result<()> {
        self.cookie += 1;
        let mut message = Vec::with_capacity(28 + data.len());
        message.extend(REQUEST_MAGIC.to_be_bytes());
        message.extend(0u16.to_be_bytes());
        message.extend(command.to_be_bytes());
        message.extend(self.cookie.to_be_bytes());
        message.extend(offset.to_be_bytes());
        message.extend(len.to_be_bytes());
        message.extend(data);
        self.stream.write_all(&message)?;
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        let [m0, m1, m2, m3, e0, e1, e2, e3, cookie @ ..] = reply;
        if u32::from_be_bytes([m0, m1, m2, m3]) != REPLY_MAGIC
            || u64::from_be_bytes(cookie) != self.cookie
        {
            return Err(broken("a reply that is none"));
        }
        match u32::from_be_bytes([e0, e1, e2, e3]) {
            0 => self.stream.read_exact(into),
            errno => Err(io::Error::from_raw_os_error(errno as i32)),
        }
    }

    /// Reads bytes.
    pub fn read(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.ask(0, offset, into.len() as u32, &[], into)
    }

    /// Writes bytes.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.ask(1, offset, data.len() as u32, data, &mut [])
    }

    /// Makes everything acknowledged durable.
    pub fn flush(&mut self) -> io::Result<()> {
        self.ask(3, 0, 0, &[], &mut [])
    }

    /// Discards bytes.
    pub fn trim(&mut self, offset: u64, len: u32) -> io::Result<()> {
        self.ask(4, offset, len, &[], &mut [])
    }
}
