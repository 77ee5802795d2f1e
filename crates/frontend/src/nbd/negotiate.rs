//! The option haggling between client and server before the transmission. Bytes in, bytes out: `handshake` reads and writes the socket.
//!
//! Bounds: an option's data is read up to [`OPTION_DATA_MAX`]. Up to [`OPTION_SKIP_MAX`] it is skipped and answered with TOO_BIG.
//! Beyond that, or after [`OPTIONS_MAX`] options, the connection ends.

use super::contexts::{CONTEXTS_MAX, Context, SINCE};
use super::export::{Catalogue, Export, STRING_BYTES_MAX};
use super::tls::Fingerprint;
use super::wire::{self, ProtocolError, be16, be32, be64, handshake, info, option, reply};
use crate::changes::Since;
use std::sync::Arc;

/// The most letters of a name in a report.
const NAME_SHOWN_MAX: usize = 64;
/// The longest option data that is examined: two strings of maximum length and some numbers.
pub const OPTION_DATA_MAX: u32 = 3 * STRING_BYTES_MAX as u32;
/// The longest option data that is skipped.
pub const OPTION_SKIP_MAX: u32 = 1 << 20;
/// The most contexts listed besides `base:allocation`, the newest first: an answer is bounded.
const LISTED_MAX: usize = 256;
/// The most options a client may send.
pub const OPTIONS_MAX: u32 = 256;

/// A client that may not use an export is not told that it exists.
const NO_SUCH: &str = "there is no such export for this client";

/// Whether a connection may, must, or need not switch to TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsState {
    /// The server has no certificate.
    Unavailable,
    /// Only STARTTLS and ABORT are served.
    Required,
    /// TLS is active.
    Active,
}

/// What to do after an option.
#[derive(Debug)]
pub enum Step {
    /// The next option.
    More,
    /// The client gave up. Send its reply, then end.
    Abort,
    /// Send the reply, then start TLS.
    StartTls,
    /// Send the reply, then start the transmission.
    Transmit(Arc<Export>),
}

/// The result of the negotiation.
#[derive(Clone, Debug, Default)]
pub struct Agreed {
    /// Structured replies are used.
    pub structured: bool,
    /// The contexts that block status reports.
    pub contexts: Vec<Context>,
}

/// The state of the negotiation.
#[derive(Debug)]
pub struct Negotiator<'a> {
    catalogue: &'a Catalogue,
    tls: TlsState,
    /// The fingerprint of the client's certificate, if it has shown one.
    client: Option<Fingerprint>,
    no_zeroes: bool,
    structured: bool,
    /// The contexts that were chosen.
    chosen: Option<Chosen>,
    options: u32,
}

/// Contexts that were chosen for an export.
#[derive(Debug)]
struct Chosen {
    /// The name that the client asked for.
    name: String,
    /// What this referred to then. By an age, that is another snapshot later.
    export: Arc<Export>,
    contexts: Vec<Context>,
}

/// The fixed part of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    /// Its number.
    pub option: u32,
    /// Bytes of data that follow.
    pub length: u32,
}

impl<'a> Negotiator<'a> {
    /// The state for a new connection.
    #[must_use]
    pub fn new(catalogue: &'a Catalogue, tls: TlsState) -> Self {
        Self {
            catalogue,
            tls,
            client: None,
            no_zeroes: false,
            structured: false,
            chosen: None,
            options: 0,
        }
    }

    /// The first bytes that the server sends.
    #[must_use]
    pub fn greeting() -> [u8; 18] {
        let mut out = [0; 18];
        out[..8].copy_from_slice(&wire::MAGIC_INIT.to_be_bytes());
        out[8..16].copy_from_slice(&wire::MAGIC_OPTION.to_be_bytes());
        out[16..]
            .copy_from_slice(&(handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES).to_be_bytes());
        out
    }

    /// Handles the first bytes that the client sends.
    ///
    /// # Errors
    /// If it sets flags that were never offered.
    pub fn client_flags(&mut self, flags: [u8; 4]) -> Result<(), ProtocolError> {
        let flags = u32::from_be_bytes(flags);
        if flags & !u32::from(handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES) != 0 {
            return Err(ProtocolError::ClientFlags(flags));
        }
        self.no_zeroes = flags & u32::from(handshake::NO_ZEROES) != 0;
        Ok(())
    }

    /// Notes that TLS has started with this client. Everything agreed in the clear is dropped, because an attacker may have sent it.
    pub fn tls_started(&mut self, client: Option<Fingerprint>) {
        self.tls = TlsState::Active;
        self.client = client;
        self.structured = false;
        self.chosen = None;
    }

    /// Parses an option's header and checks the limits.
    ///
    /// # Errors
    /// A wrong magic number, data that is too long, or too many options.
    pub fn header(
        &mut self,
        bytes: &[u8; wire::OPTION_BYTES],
    ) -> Result<OptionHeader, ProtocolError> {
        let magic = be64(bytes, 0);
        if magic != wire::MAGIC_OPTION {
            return Err(ProtocolError::OptionMagic(magic));
        }
        let header = OptionHeader {
            option: be32(bytes, 8),
            length: be32(bytes, 12),
        };
        if header.length > OPTION_SKIP_MAX {
            let OptionHeader { option, length } = header;
            return Err(ProtocolError::OptionLength {
                option,
                length,
                max: OPTION_SKIP_MAX,
            });
        }
        self.options += 1;
        if self.options > OPTIONS_MAX {
            return Err(ProtocolError::TooManyOptions(OPTIONS_MAX));
        }
        Ok(header)
    }

    /// Answers an option whose data was skipped because it is longer than [`OPTION_DATA_MAX`].
    ///
    /// # Errors
    /// For EXPORT_NAME, which has no error reply.
    pub fn too_big(&self, option: u32, out: &mut Vec<u8>) -> Result<Step, ProtocolError> {
        if option == option::EXPORT_NAME {
            return Err(ProtocolError::ExportName("a name that is too long".into()));
        }
        Ok(error(
            out,
            option,
            reply::ERR_TOO_BIG,
            "option data is too long",
        ))
    }

    /// Answers one option.
    ///
    /// # Errors
    /// Errors for which the protocol has no reply.
    pub fn option(
        &mut self,
        option: u32,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Step, ProtocolError> {
        if self.tls == TlsState::Required && !matches!(option, option::STARTTLS | option::ABORT) {
            if option == option::EXPORT_NAME {
                return Err(ProtocolError::ExportName("an export without TLS".into()));
            }
            return Ok(error(
                out,
                option,
                reply::ERR_TLS_REQD,
                "this server speaks TLS only",
            ));
        }
        match option {
            option::EXPORT_NAME => self.export_name(data, out),
            option::ABORT => {
                answer(out, option, reply::ACK, &[]);
                Ok(Step::Abort)
            }
            option::LIST => Ok(self.list(data, out)),
            option::STARTTLS => Ok(self.start_tls(data, out)),
            option::INFO | option::GO => Ok(self.info(option, data, out)),
            option::STRUCTURED_REPLY => {
                if !data.is_empty() {
                    return Ok(error(out, option, reply::ERR_INVALID, "no data expected"));
                }
                self.structured = true;
                answer(out, option, reply::ACK, &[]);
                Ok(Step::More)
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                Ok(self.meta_context(option, data, out))
            }
            _ => Ok(error(out, option, reply::ERR_UNSUP, "unknown option")),
        }
    }

    /// The result for a transmission with `export`.
    #[must_use]
    pub fn agreed(&self, export: &Export) -> Agreed {
        let chosen = self.chosen.as_ref();
        let chosen = chosen
            .filter(|chosen| self.structured && std::ptr::eq(Arc::as_ptr(&chosen.export), export));
        Agreed {
            structured: self.structured,
            contexts: chosen.map_or_else(Vec::new, |chosen| chosen.contexts.clone()),
        }
    }

    /// Finds an export. A name for which contexts were chosen refers to the same one as then: data and contexts must not be of two
    /// snapshots.
    fn find(&self, name: &str) -> Option<Arc<Export>> {
        let found = self.catalogue.find(name, self.client.as_ref())?;
        let chosen = self.chosen.as_ref();
        let chosen = chosen.filter(|chosen| {
            let are_found = [&found, &chosen.export].map(|export| export.compared().1.is_some());
            chosen.name == name && are_found == [true, true]
        });
        Some(chosen.map_or(found, |chosen| Arc::clone(&chosen.export)))
    }

    fn export_name(&self, data: &[u8], out: &mut Vec<u8>) -> Result<Step, ProtocolError> {
        let name = text(data)
            .ok_or_else(|| ProtocolError::ExportName("a name that is not text".into()))?;
        let export = self
            .find(name)
            .ok_or_else(|| ProtocolError::ExportName(shown(name)))?;
        out.extend_from_slice(&export.bytes().to_be_bytes());
        out.extend_from_slice(&export.flags(self.structured).to_be_bytes());
        if !self.no_zeroes {
            out.extend_from_slice(&[0; 124]);
        }
        Ok(Step::Transmit(export))
    }

    fn list(&self, data: &[u8], out: &mut Vec<u8>) -> Step {
        if !data.is_empty() {
            return error(out, option::LIST, reply::ERR_INVALID, "no data expected");
        }
        for export in self.catalogue.of(self.client.as_ref()) {
            let mut body = (export.name.len() as u32).to_be_bytes().to_vec();
            body.extend_from_slice(export.name.as_bytes());
            body.extend_from_slice(export.description.as_bytes());
            answer(out, option::LIST, reply::SERVER, &body);
        }
        answer(out, option::LIST, reply::ACK, &[]);
        Step::More
    }

    fn start_tls(&self, data: &[u8], out: &mut Vec<u8>) -> Step {
        if !data.is_empty() {
            return error(
                out,
                option::STARTTLS,
                reply::ERR_INVALID,
                "no data expected",
            );
        }
        match self.tls {
            TlsState::Unavailable => error(
                out,
                option::STARTTLS,
                reply::ERR_POLICY,
                "this server has no certificate",
            ),
            TlsState::Active => error(
                out,
                option::STARTTLS,
                reply::ERR_INVALID,
                "TLS is already active",
            ),
            TlsState::Required => {
                answer(out, option::STARTTLS, reply::ACK, &[]);
                Step::StartTls
            }
        }
    }

    fn info(&self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Step {
        let Some((name, wanted)) = info_request(data) else {
            return error(out, option, reply::ERR_INVALID, "malformed request");
        };
        let Some(export) = self.find(name) else {
            return error(out, option, reply::ERR_UNKNOWN, NO_SUCH);
        };
        let mut size = info::EXPORT.to_be_bytes().to_vec();
        size.extend_from_slice(&export.bytes().to_be_bytes());
        size.extend_from_slice(&export.flags(self.structured).to_be_bytes());
        answer(out, option, reply::INFO, &size);
        // Each kind once, however often it was requested, so that the answer stays small.
        let asked = |kind: u16| wanted.chunks_exact(2).any(|pair| be16(pair, 0) == kind);
        for (kind, words) in [
            (info::NAME, &export.name),
            (info::DESCRIPTION, &export.description),
        ] {
            if asked(kind) && (kind == info::NAME || !words.is_empty()) {
                let mut body = kind.to_be_bytes().to_vec();
                body.extend_from_slice(words.as_bytes());
                answer(out, option, reply::INFO, &body);
            }
        }
        // Sent even without a request, as the protocol permits: a client that heeds it avoids read-modify-write.
        let mut body = info::BLOCK_SIZE.to_be_bytes().to_vec();
        for bytes in [
            wire::BLOCK_BYTES_MIN,
            wire::BLOCK_BYTES_PREFERRED,
            wire::PAYLOAD_BYTES_MAX,
        ] {
            body.extend_from_slice(&bytes.to_be_bytes());
        }
        answer(out, option, reply::INFO, &body);
        answer(out, option, reply::ACK, &[]);
        if option == option::GO {
            Step::Transmit(export)
        } else {
            Step::More
        }
    }

    fn meta_context(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Step {
        let set = option == option::SET_META_CONTEXT;
        if set {
            // Whatever the result, the earlier choice is void.
            self.chosen = None;
        }
        if !self.structured {
            return error(
                out,
                option,
                reply::ERR_INVALID,
                "structured replies come first",
            );
        }
        let Some((name, queries)) = context_request(data) else {
            return error(out, option, reply::ERR_INVALID, "malformed request");
        };
        let Some(export) = self.find(name) else {
            return error(out, option, reply::ERR_UNKNOWN, NO_SUCH);
        };
        let named = match set {
            true => self.chosen(&export, &queries),
            false => self.listed(&export, &queries),
        };
        for (id, (context, _)) in (1u32..).zip(&named) {
            let id = if set { id } else { 0 };
            let mut body = id.to_be_bytes().to_vec();
            body.extend_from_slice(context.as_bytes());
            answer(out, option, reply::META_CONTEXT, &body);
        }
        if set {
            let contexts = named.into_iter().filter_map(|(_, context)| context);
            let contexts = contexts.collect();
            self.chosen = Some(Chosen {
                name: name.to_owned(),
                export,
                contexts,
            });
        }
        answer(out, option, reply::ACK, &[]);
        Step::More
    }

    /// The requested contexts that exist.
    fn chosen(&self, export: &Export, queries: &[&str]) -> Vec<(String, Option<Context>)> {
        let mut chosen: Vec<(String, Option<Context>)> = Vec::new();
        for query in queries {
            let is_new = chosen.iter().all(|(name, _)| name != query);
            if !is_new || chosen.len() >= CONTEXTS_MAX {
                continue;
            }
            let context = match query.strip_prefix(SINCE) {
                Some(point) => self.since(export, point).map(Context::Changed),
                None => (*query == wire::BASE_ALLOCATION).then_some(Context::Allocation),
            };
            if context.is_some() {
                chosen.push(((*query).to_owned(), context));
            }
        }
        chosen
    }

    /// The contexts whose names a query matches or is a prefix of; all of them if there are no queries.
    fn listed(&self, export: &Export, queries: &[&str]) -> Vec<(String, Option<Context>)> {
        let changes = self.catalogue.changes();
        let points = changes.map_or_else(Vec::new, |changes| changes.points(export.compared().0));
        let points = points.iter().rev().take(LISTED_MAX);
        let since = points.map(|point| format!("{SINCE}{point}"));
        let all = std::iter::once(wire::BASE_ALLOCATION.to_owned()).chain(since);
        let is_asked = |name: &String| {
            let asks = |query: &&str| {
                query == name
                    || matches!(*query, "base:" | "qemu:" | SINCE) && name.starts_with(*query)
            };
            queries.is_empty() || queries.iter().any(asks)
        };
        all.filter(is_asked).map(|name| (name, None)).collect()
    }

    fn since(&self, export: &Export, point: &str) -> Option<Since> {
        let (name, number) = export.compared();
        self.catalogue.changes()?.since(name, number, point)
    }
}

fn text(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    (text.len() <= STRING_BYTES_MAX && !text.contains('\0')).then_some(text)
}

/// Parses a string after its length, and returns the rest.
fn string(data: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = data.split_at_checked(4)?;
    let (string, rest) = rest.split_at_checked(be32(length, 0) as usize)?;
    Some((text(string)?, rest))
}

fn info_request(data: &[u8]) -> Option<(&str, &[u8])> {
    let (name, rest) = string(data)?;
    let (count, wanted) = rest.split_at_checked(2)?;
    (wanted.len() == usize::from(be16(count, 0)) * 2).then_some((name, wanted))
}

fn context_request(data: &[u8]) -> Option<(&str, Vec<&str>)> {
    let (name, rest) = string(data)?;
    let (count, mut rest) = rest.split_at_checked(4)?;
    let count = be32(count, 0) as usize;
    // Each takes at least four bytes.
    if count > rest.len() / 4 {
        return None;
    }
    let mut queries = Vec::with_capacity(count);
    for _ in 0..count {
        let (query, after) = string(rest)?;
        queries.push(query);
        rest = after;
    }
    rest.is_empty().then_some((name, queries))
}

fn answer(out: &mut Vec<u8>, option: u32, kind: u32, body: &[u8]) {
    out.extend_from_slice(&wire::MAGIC_OPTION_REPLY.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&(body.len() as u32).to_be_bytes());
    out.extend_from_slice(body);
}

fn error(out: &mut Vec<u8>, option: u32, kind: u32, words: &str) -> Step {
    answer(out, option, kind, words.as_bytes());
    Step::More
}

/// A name for a report: not all of a long one, or clients could fill a disk with them.
fn shown(name: &str) -> String {
    match name.char_indices().nth(NAME_SHOWN_MAX) {
        None => format!("{name:?}"),
        Some((end, _)) => format!("{:?}...", &name[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_that_is_not_served_is_cut_in_the_report() {
        let catalogue = Catalogue::default();
        let mut negotiation = Negotiator::new(&catalogue, TlsState::Unavailable);
        let mut told = |name: &str| {
            let asked = negotiation.option(option::EXPORT_NAME, name.as_bytes(), &mut Vec::new());
            asked.err().unwrap().to_string()
        };
        let long = told(&"\u{7f}".repeat(4096));
        assert!(long.len() < 600, "{} bytes", long.len());
        let cut = told(&"x".repeat(65));
        assert!(cut.contains(&format!("\"{}\"...", "x".repeat(64))), "{cut}");
        let whole = told(&"y".repeat(64));
        assert!(
            whole.contains(&format!("\"{}\",", "y".repeat(64))),
            "{whole}"
        );
    }
}
