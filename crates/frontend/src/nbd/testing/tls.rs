//! A hostile client on the link's TLS.
//!
//! The certificate and its key were generated for this, and nothing trusts them:
//! `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out certificate.pem -subj /CN=fuzzing
//! -days 2900000 -addext basicConstraints=critical,CA:FALSE -addext subjectAltName=DNS:localhost`.

use crate::nbd::export::{Catalogue, Export};
use crate::nbd::handshake::handshake;
use crate::nbd::link::Link;
use crate::nbd::negotiate::OPTIONS_MAX;
use crate::nbd::wire::{MAGIC_OPTION, option};
use crate::testing::RamDisk;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// What the server sends before TLS: its greeting, and its reply to STARTTLS.
const BEFORE_TLS: u64 = 18 + 20;
/// The most that the server sends for an option, and as much for TLS.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// How long the client waits for a server that may wait for the client.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long it waits for a server that must answer.
const LONG_PATIENCE: Duration = Duration::from_secs(60);

struct Configs {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

static CONFIGS: LazyLock<Configs> = LazyLock::new(configs);

#[expect(clippy::expect_used, reason = "for fuzzing only")]
fn configs() -> Configs {
    let certificate = CertificateDer::from_pem_slice(include_bytes!("certificate.pem"))
        .expect("a certificate in PEM");
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("key.pem")).expect("a key in PEM");
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).expect("a certificate");
    let provider = Arc::new(default_provider());
    let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("versions that ring has")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions that ring has")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("a key that fits the certificate");
    Configs {
        server: Arc::new(server),
        client: Arc::new(client),
    }
}

/// Fuzz target `nbd_tls`: what a client sends to a server that requires TLS. If the first byte is even, all other bytes follow the
/// request for TLS as they are. If it is odd, a real client performs the handshake, and the bytes say what of it is changed: how
/// many changes (one byte), then for each a place in the client's stream (two bytes) and what it is XORed with (one byte; 0 cuts
/// the stream there). What is left is sent inside TLS.
///
/// Returns true if the client got its export.
///
/// # Panics
/// If the server misbehaves.
#[expect(clippy::expect_used, reason = "for fuzzing only")]
pub fn fuzz_tls(data: &[u8]) -> bool {
    let catalogue = Catalogue::default();
    catalogue
        .add(Export::new("", Arc::new(RamDisk::new(8, 1, 1))))
        .expect("the only export");
    let (client, server) = UnixStream::pair().expect("a socket pair");
    let mut reading = client.try_clone().expect("a descriptor");
    let (is_real, rest) = match data.split_first() {
        Some((first, rest)) => (first & 1 == 1, rest),
        None => (false, data),
    };
    std::thread::scope(|scope| {
        let served = scope.spawn(|| {
            let mut link = Link::new(server.into());
            let ended = handshake(&mut link, &catalogue, Some(&CONFIGS.server));
            link.close();
            ended.is_ok()
        });
        let mut client = Changing::new(client);
        // The server may hang up in the middle.
        let _ = client.start(&mut reading);
        if is_real {
            let _ = client.perform(rest, &mut reading);
        } else {
            let _ = client.socket.write_all(rest);
        }
        let _ = client.socket.shutdown(Shutdown::Write);
        reading.set_read_timeout(None).expect("no timeout");
        let most = ANSWER_BYTES_MAX * u64::from(OPTIONS_MAX + 2);
        let got = io::copy(&mut reading.take(most), &mut io::sink()).unwrap_or(0);
        assert!(got < most);
        served.join().expect("the server does not panic")
    })
}

/// A client's side of the socket, which changes what is sent.
struct Changing<'a> {
    socket: UnixStream,
    changes: &'a [[u8; 3]],
    sent: usize,
}

impl<'a> Changing<'a> {
    fn new(socket: UnixStream) -> Self {
        Self {
            socket,
            changes: &[],
            sent: 0,
        }
    }

    /// Asks for TLS.
    fn start(&mut self, reading: &mut UnixStream) -> io::Result<()> {
        let mut hello = vec![0, 0, 0, 3];
        hello.extend_from_slice(&MAGIC_OPTION.to_be_bytes());
        hello.extend_from_slice(&option::STARTTLS.to_be_bytes());
        hello.extend_from_slice(&[0; 4]);
        self.socket.write_all(&hello)?;
        io::copy(&mut reading.take(BEFORE_TLS), &mut io::sink())?;
        Ok(())
    }

    /// Performs the handshake as `data` says, and sends the rest.
    fn perform(&mut self, data: &'a [u8], reading: &mut UnixStream) -> io::Result<()> {
        let (count, data) = data.split_first().unwrap_or((&0, data));
        let (changes, _) = data.as_chunks::<3>();
        self.changes = &changes[..changes.len().min(usize::from(*count))];
        let rest = &data[self.changes.len() * 3..];
        // A change may leave each side waiting for the other.
        let patience = match self.changes.is_empty() {
            true => LONG_PATIENCE,
            false => PATIENCE,
        };
        reading.set_read_timeout(Some(patience))?;
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        let mut tls =
            ClientConnection::new(Arc::clone(&CONFIGS.client), name).map_err(io::Error::other)?;
        while tls.is_handshaking() {
            while tls.wants_write() {
                tls.write_tls(self)?;
            }
            if tls.is_handshaking() {
                if tls.read_tls(reading)? == 0 {
                    return Ok(());
                }
                tls.process_new_packets().map_err(io::Error::other)?;
            }
        }
        tls.writer().write_all(rest)?;
        while tls.wants_write() {
            tls.write_tls(self)?;
        }
        Ok(())
    }
}

impl Write for Changing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut bytes = bytes.to_vec();
        for &[high, low, what] in self.changes {
            let place = usize::from(u16::from_be_bytes([high, low])).checked_sub(self.sent);
            let Some(place) = place.filter(|&place| place < bytes.len()) else {
                continue;
            };
            if what == 0 {
                self.socket.write_all(&bytes[..place])?;
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            bytes[place] ^= what;
        }
        self.socket.write_all(&bytes)?;
        self.sent += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}
