//! For fuzzing and its tests only: the bodies of the fuzz targets.

mod tls;

pub use tls::fuzz_tls;

use super::contexts::Context;
use super::export::{Catalogue, Export};
use super::link::Link;
use super::negotiate::{Agreed, Negotiator, OPTION_DATA_MAX, OPTIONS_MAX, Step, TlsState};
use super::receive::Receiver;
use super::session::{Memory, Session};
use super::wire::OPTION_BYTES;
use crate::changes::{Changes, Since};
use crate::testing::RamDisk;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use vellum_core::addr::Lba;

/// Lets every export be compared with two points.
struct Points;

impl Changes for Points {
    fn points(&self, _: &str) -> Vec<String> {
        vec!["monday".to_owned(), "tuesday".to_owned()]
    }

    fn since(&self, _: &str, _: Option<u64>, point: &str) -> Option<Since> {
        (point == "monday").then(|| Arc::new(|_: Lba, _, _| None) as Since)
    }
}

/// Fuzz target `nbd_options`: the bytes are what a client sends after the greeting.
pub fn fuzz_options(data: &[u8]) {
    let catalogue = Catalogue::default();
    catalogue.compare_by(Arc::new(Points));
    for name in ["first", "second"] {
        // Two different names are never refused.
        let _ = catalogue
            .add(Export::new(name, Arc::new(RamDisk::new(8, 1, 1))).described("for fuzzing"));
    }
    for tls in [TlsState::Unavailable, TlsState::Required, TlsState::Active] {
        let mut negotiator = Negotiator::new(&catalogue, tls);
        let Some((flags, mut rest)) = data.split_first_chunk() else {
            return;
        };
        if negotiator.client_flags(*flags).is_err() {
            return;
        }
        let mut options = 0;
        while let Some((head, after)) = rest.split_first_chunk::<OPTION_BYTES>() {
            let Ok(header) = negotiator.header(head) else {
                break;
            };
            options += 1;
            assert!(options <= OPTIONS_MAX);
            let Some((body, after)) = after.split_at_checked(header.length as usize) else {
                break;
            };
            rest = after;
            let mut out = Vec::new();
            let step = if header.length > OPTION_DATA_MAX {
                negotiator.too_big(header.option, &mut out)
            } else {
                negotiator.option(header.option, body, &mut out)
            };
            // However hostile the option, the answer is bounded, and every option is answered.
            assert!(out.len() < 64 << 10);
            match step {
                Ok(Step::More) => assert!(out.len() >= 20),
                Ok(Step::StartTls) => negotiator.tls_started(None),
                Ok(Step::Transmit(export)) => {
                    let _ = negotiator.agreed(&export);
                    break;
                }
                Ok(Step::Abort) | Err(_) => break,
            }
        }
    }
}

/// Fuzz target `nbd_transmission`: the bytes are what a client sends after the handshake. Every request must end,
/// and all memory must be returned.
///
/// # Panics
/// If the server misbehaves.
#[expect(clippy::expect_used, reason = "for fuzzing only")]
pub fn fuzz_transmission(data: &[u8]) {
    let disk = Arc::new(RamDisk::new(64, 16, 16));
    let structured = data.first().is_some_and(|byte| byte & 1 == 1);
    let export = Export::new("", Arc::clone(&disk))
        .read_only_if(data.first().is_some_and(|byte| byte & 6 == 6));
    let (mut client, server) = UnixStream::pair().expect("a socket pair");
    let contexts = [
        Context::Allocation,
        Context::Changed(Arc::new(|_, _, _| None)),
    ];
    let contexts = contexts.into_iter().filter(|_| structured).collect();
    let agreed = Agreed {
        structured,
        contexts,
    };
    let session = Arc::new(Session::new(
        Link::new(server.into()),
        Arc::new(export),
        agreed,
        Memory::new(),
    ));
    let mut reading = client.try_clone().expect("a descriptor");
    std::thread::scope(|scope| {
        scope.spawn(|| session.write_leftovers());
        scope.spawn(|| {
            // Whatever the server sends, it must come to an end.
            let _ = std::io::copy(&mut reading, &mut std::io::sink());
        });
        scope.spawn(|| {
            Receiver::new(Arc::clone(&session)).run();
            session.end();
        });
        // The server may hang up in the middle.
        let _ = client.write_all(data.get(1..).unwrap_or_default());
        let _ = client.shutdown(std::net::Shutdown::Write);
    });
    drop(session);
    assert!(disk.all_frames_free());
}
