//! A client that sends exactly what the test wants, right or wrong.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use vellum_frontend::nbd::wire::{self, RequestHeader, option, reply};

pub struct Client {
    pub stream: UnixStream,
    pub structured: bool,
    pub size: u64,
    pub flags: u16,
}

/// A reply to an option: its kind and data.
pub type Answer = (u32, Vec<u8>);

#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    pub cookie: u64,
    pub error: u32,
    pub words: String,
    pub data: Vec<u8>,
}

pub fn string(text: &str) -> Vec<u8> {
    let mut out = (text.len() as u32).to_be_bytes().to_vec();
    out.extend_from_slice(text.as_bytes());
    out
}

/// The data of INFO and GO.
pub fn info_data(name: &str, wanted: &[u16]) -> Vec<u8> {
    let mut data = string(name);
    data.extend_from_slice(&(wanted.len() as u16).to_be_bytes());
    wanted
        .iter()
        .for_each(|kind| data.extend_from_slice(&kind.to_be_bytes()));
    data
}

/// The data of LIST_META_CONTEXT and SET_META_CONTEXT.
pub fn context_data(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = string(name);
    data.extend_from_slice(&(queries.len() as u32).to_be_bytes());
    queries
        .iter()
        .for_each(|query| data.extend_from_slice(&string(query)));
    data
}

impl Client {
    /// Connects, and exchanges greeting and flags.
    pub fn greeted(path: &Path) -> Self {
        Self::greeted_on(UnixStream::connect(path).unwrap())
    }

    pub fn greeted_on(mut stream: UnixStream) -> Self {
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        assert_eq!(wire::be64(&greeting, 0), wire::MAGIC_INIT);
        assert_eq!(wire::be64(&greeting, 8), wire::MAGIC_OPTION);
        assert_eq!(wire::be16(&greeting, 16), 3);
        stream.write_all(&3u32.to_be_bytes()).unwrap();
        Self {
            stream,
            structured: false,
            size: 0,
            flags: 0,
        }
    }

    /// Connects, up to the transmission phase.
    pub fn connected(path: &Path, name: &str, structured: bool) -> Self {
        let mut client = Self::greeted(path);
        if structured {
            assert_eq!(
                client
                    .option(option::STRUCTURED_REPLY, &[])
                    .last()
                    .unwrap()
                    .0,
                reply::ACK
            );
            client.structured = true;
            let answers = client.option(
                option::SET_META_CONTEXT,
                &context_data(name, &["base:allocation"]),
            );
            assert_eq!(answers[0].0, reply::META_CONTEXT);
        }
        let answers = client.option(option::GO, &info_data(name, &[]));
        assert_eq!(answers.last().unwrap().0, reply::ACK);
        let export = answers
            .iter()
            .find(|a| a.0 == reply::INFO && a.1[..2] == [0, 0])
            .unwrap();
        client.size = wire::be64(&export.1, 2);
        client.flags = wire::be16(&export.1, 10);
        client
    }

    pub fn send_option(&mut self, option: u32, data: &[u8]) {
        let mut out = wire::MAGIC_OPTION.to_be_bytes().to_vec();
        out.extend_from_slice(&option.to_be_bytes());
        out.extend_from_slice(&(data.len() as u32).to_be_bytes());
        out.extend_from_slice(data);
        self.stream.write_all(&out).unwrap();
    }

    pub fn answer(&mut self, option: u32) -> Answer {
        let mut head = [0; 20];
        self.stream.read_exact(&mut head).unwrap();
        assert_eq!(wire::be64(&head, 0), wire::MAGIC_OPTION_REPLY);
        assert_eq!(wire::be32(&head, 8), option);
        let mut data = vec![0; wire::be32(&head, 16) as usize];
        self.stream.read_exact(&mut data).unwrap();
        (wire::be32(&head, 12), data)
    }

    /// Sends an option and takes all its replies.
    pub fn option(&mut self, option: u32, data: &[u8]) -> Vec<Answer> {
        self.send_option(option, data);
        let mut answers = Vec::new();
        loop {
            let answer = self.answer(option);
            let last = answer.0 == reply::ACK || answer.0 >> 31 == 1;
            answers.push(answer);
            if last {
                return answers;
            }
        }
    }

    /// Returns the kind of an option's last reply.
    pub fn verdict(&mut self, option: u32, data: &[u8]) -> u32 {
        self.option(option, data).last().unwrap().0
    }

    pub fn send(
        &mut self,
        command: u16,
        flags: u16,
        cookie: u64,
        offset: u64,
        length: u32,
        payload: &[u8],
    ) {
        let mut out = RequestHeader {
            flags,
            command,
            cookie,
            offset,
            length,
        }
        .encode()
        .to_vec();
        out.extend_from_slice(payload);
        self.stream.write_all(&out).unwrap();
    }

    /// Takes one reply; `read` is the length of data that a simple one carries.
    pub fn reply(&mut self, read: usize) -> Reply {
        let mut magic = [0; 4];
        self.stream.read_exact(&mut magic).unwrap();
        if u32::from_be_bytes(magic) == wire::MAGIC_SIMPLE {
            let mut head = [0; 12];
            self.stream.read_exact(&mut head).unwrap();
            let error = wire::be32(&head, 0);
            let mut data = vec![0; if error == 0 { read } else { 0 }];
            self.stream.read_exact(&mut data).unwrap();
            assert!(
                !self.structured || read == 0,
                "a read is answered with chunks"
            );
            return Reply {
                cookie: wire::be64(&head, 4),
                error,
                words: String::new(),
                data,
            };
        }
        assert_eq!(u32::from_be_bytes(magic), wire::MAGIC_STRUCTURED);
        assert!(self.structured);
        let mut head = [0; 16];
        self.stream.read_exact(&mut head).unwrap();
        assert_eq!(wire::be16(&head, 0), wire::chunk::FLAG_DONE);
        let mut body = vec![0; wire::be32(&head, 12) as usize];
        self.stream.read_exact(&mut body).unwrap();
        let cookie = wire::be64(&head, 4);
        match wire::be16(&head, 2) {
            wire::chunk::ERROR => {
                let words = String::from_utf8(body[6..].to_vec()).unwrap();
                assert_eq!(words.len(), usize::from(wire::be16(&body, 4)));
                Reply {
                    cookie,
                    error: wire::be32(&body, 0),
                    words,
                    data: Vec::new(),
                }
            }
            wire::chunk::OFFSET_DATA => Reply {
                cookie,
                error: 0,
                words: String::new(),
                data: body[8..].to_vec(),
            },
            _ => Reply {
                cookie,
                error: 0,
                words: String::new(),
                data: body,
            },
        }
    }

    /// Sends one request. Returns its reply's error.
    pub fn call(
        &mut self,
        command: u16,
        flags: u16,
        offset: u64,
        length: u32,
        payload: &[u8],
    ) -> u32 {
        self.send(command, flags, 77, offset, length, payload);
        let read = if command == wire::command::READ {
            length as usize
        } else {
            0
        };
        let reply = self.reply(read);
        assert_eq!(reply.cookie, 77);
        reply.error
    }

    pub fn write(&mut self, offset: u64, payload: &[u8]) -> u32 {
        self.call(
            wire::command::WRITE,
            0,
            offset,
            payload.len() as u32,
            payload,
        )
    }

    pub fn read(&mut self, offset: u64, length: u32) -> Vec<u8> {
        self.send(wire::command::READ, 0, 5, offset, length, &[]);
        let reply = self.reply(length as usize);
        assert_eq!((reply.cookie, reply.error), (5, 0), "{}", reply.words);
        reply.data
    }

    /// Returns the extents of block status, as (bytes, state).
    pub fn status(&mut self, flags: u16, offset: u64, length: u32) -> Vec<(u32, u32)> {
        self.send(wire::command::BLOCK_STATUS, flags, 6, offset, length, &[]);
        let reply = self.reply(0);
        assert_eq!((reply.cookie, reply.error), (6, 0));
        assert_eq!(wire::be32(&reply.data, 0), 1);
        reply.data[4..]
            .chunks_exact(8)
            .map(|pair| (wire::be32(pair, 0), wire::be32(pair, 4)))
            .collect()
    }

    /// True if the server closed the connection without sending anything more.
    pub fn is_closed(&mut self) -> bool {
        match self.stream.read(&mut [0; 16]) {
            Ok(count) => count == 0,
            Err(e) => e.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}
