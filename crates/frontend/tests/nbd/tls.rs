//! TCP with TLS, and without it only when that is requested explicitly.

use crate::disks::pattern;
use std::collections::BTreeSet;
use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use vellum_frontend::nbd::wire::{self, option, reply};
use vellum_frontend::nbd::{BindError, Export, Fingerprint, Listen, Protection, Server, TlsFiles};
use vellum_frontend::testing::{RamDisk, skipped};

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// Creates a certificate authority, a server and a client, under the names that libnbd looks for.
fn certificates(folder: &Path) -> TlsFiles {
    signed(folder, &[]).0
}

/// Does the same with more clients. Returns the signing authority, too.
fn signed(folder: &Path, more: &[&str]) -> (TlsFiles, rcgen::Issuer<'static, rcgen::KeyPair>) {
    let key = |()| rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.key_usages = vec![
        rcgen::KeyUsagePurpose::KeyCertSign,
        rcgen::KeyUsagePurpose::CrlSign,
    ];
    let ca_key = key(());
    let ca = params.self_signed(&ca_key).unwrap();
    let issuer = rcgen::Issuer::new(params, ca_key);
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    write("ca-cert.pem", &ca.pem());
    for name in ["server", "client"].iter().chain(more) {
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params
            .subject_alt_names
            .push(rcgen::SanType::IpAddress(ANY.ip()));
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, *name);
        params.serial_number = Some(vec![name.len() as u8].into());
        let own = key(());
        let certificate = params.signed_by(&own, &issuer).unwrap();
        write(&format!("{name}-cert.pem"), &certificate.pem());
        write(&format!("{name}-key.pem"), &own.serialize_pem());
        let key = folder.join(format!("{name}-key.pem"));
        std::fs::set_permissions(key, Permissions::from_mode(0o640)).unwrap();
    }
    let files = TlsFiles {
        certificate: folder.join("server-cert.pem"),
        key: folder.join("server-key.pem"),
        client_ca: None,
        revoked: None,
    };
    (files, issuer)
}

/// Creates a folder for libnbd that contains a client's certificate.
fn of_client(folder: &Path, name: &str) -> PathBuf {
    let own = folder.join(name);
    std::fs::create_dir(&own).unwrap();
    let copy = |from: String, to: &str| std::fs::copy(folder.join(from), own.join(to)).unwrap();
    copy("ca-cert.pem".to_owned(), "ca-cert.pem");
    copy(format!("{name}-cert.pem"), "client-cert.pem");
    copy(format!("{name}-key.pem"), "client-key.pem");
    own
}

/// Returns a certificate's fingerprint, as openssl prints it.
fn fingerprint(certificate: &Path) -> Fingerprint {
    let told = Command::new("openssl")
        .args(["x509", "-noout", "-fingerprint", "-sha256", "-in"])
        .arg(certificate)
        .output()
        .unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    let (_, digits) = told.trim().split_once('=').unwrap();
    digits.parse().unwrap()
}

/// Returns what `nbdinfo` prints for an export, with the certificates in a folder.
fn asked(server: &Server, folder: &Path, export: &str) -> Result<String, String> {
    let port = server.address().unwrap().port();
    let uri = format!(
        "nbds://localhost:{port}/{export}?tls-certificates={}",
        folder.display()
    );
    let told = Command::new("nbdinfo").arg(uri).output().unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match told.status.success() {
        true => Ok(said(&told.stdout)),
        false => Err(said(&told.stderr)),
    }
}

fn has_tools(test: &str) -> bool {
    let has = |tool: &str, arg: &str| Command::new(tool).arg(arg).output().is_ok();
    let has_both = has("nbdinfo", "--version") && has("openssl", "version");
    if !has_both {
        skipped(format_args!("{test}: needs nbdinfo and openssl"));
    }
    has_both
}

#[test]
fn an_export_is_for_the_clients_that_are_named_for_it() {
    if !has_tools("an_export_is_for_the_clients_that_are_named_for_it") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (mut files, _) = signed(folder, &["another", "stranger"]);
    files.client_ca = Some(folder.join("ca-cert.pem"));
    let server = Server::bind(&Listen::Tcp {
        addr: ANY,
        tls: Protection::Tls(files),
    });
    let server = server.unwrap();
    let named = |names: &[&str]| {
        let own = names
            .iter()
            .map(|name| fingerprint(&folder.join(format!("{name}-cert.pem"))));
        own.collect::<BTreeSet<_>>()
    };
    for (name, clients) in [
        ("hers", &["client"][..]),
        ("both", &["client", "another"]),
        ("nobodys", &[]),
    ] {
        let export = Export::new(name, Arc::new(RamDisk::new(16, 16, 16)));
        server.add(export.only_for(named(clients))).unwrap();
    }
    for (client, gets) in [
        ("client", &["hers", "both"][..]),
        ("another", &["both"]),
        ("stranger", &[]),
    ] {
        let own = of_client(folder, client);
        for export in ["hers", "both", "nobodys"] {
            let told = asked(&server, &own, export);
            assert_eq!(
                told.is_ok(),
                gets.contains(&export),
                "{client} {export}: {told:?}"
            );
        }
        // It does not learn which other exports exist, and the default is its own.
        let uri = format!(
            "nbds://localhost:{}/?tls-certificates={}",
            server.address().unwrap().port(),
            own.display()
        );
        let listed = Command::new("nbdinfo")
            .args(["--list", &uri])
            .output()
            .unwrap();
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        for export in ["hers", "both", "nobodys"] {
            let named = listed.contains(&format!("export=\"{export}\""));
            assert_eq!(named, gets.contains(&export), "{client}: {listed}");
        }
        let default = asked(&server, &own, "");
        assert_eq!(default.is_ok(), !gets.is_empty(), "{client}: {default:?}");
    }
}

#[test]
fn a_revoked_client_is_refused() {
    if !has_tools("a_revoked_client_is_refused") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (mut files, issuer) = signed(folder, &["stolen-one"]);
    files.client_ca = Some(folder.join("ca-cert.pem"));
    let list = folder.join("crl.pem");
    let revoked = rcgen::RevokedCertParams {
        serial_number: vec!["stolen-one".len() as u8].into(),
        revocation_time: rcgen::date_time_ymd(2024, 1, 1),
        reason_code: None,
        invalidity_date: None,
    };
    let params = rcgen::CertificateRevocationListParams {
        this_update: rcgen::date_time_ymd(2024, 1, 1),
        next_update: rcgen::date_time_ymd(4000, 1, 1),
        crl_number: vec![1].into(),
        issuing_distribution_point: None,
        revoked_certs: vec![revoked],
        key_identifier_method: rcgen::KeyIdMethod::Sha256,
    };
    let crl = params.signed_by(&issuer).unwrap();
    std::fs::write(&list, crl.pem().unwrap()).unwrap();
    let (good, stolen) = (of_client(folder, "client"), of_client(folder, "stolen-one"));
    for (revoked, is_let_in) in [(None, true), (Some(list), false)] {
        files.revoked = revoked;
        let server = serve(Protection::Tls(files.clone()));
        asked(&server, &good, "").unwrap();
        let told = asked(&server, &stolen, "");
        assert_eq!(told.is_ok(), is_let_in, "{told:?}");
    }
    files.revoked = Some(folder.join("ca-cert.pem"));
    let tls = Protection::Tls(files);
    let refused = Server::bind(&Listen::Tcp { addr: ANY, tls }).unwrap_err();
    let words = refused.to_string();
    assert!(
        words.contains("ca-cert.pem: holds no revocation list"),
        "{words}"
    );
}

fn serve(tls: Protection) -> Server {
    let server = Server::bind(&Listen::Tcp { addr: ANY, tls }).unwrap();
    server
        .add(Export::new("", Arc::new(RamDisk::new(16_384, 512, 512))))
        .unwrap();
    server
}

fn option_verdict(stream: &mut TcpStream, option: u32) -> u32 {
    stream
        .write_all(
            &[
                &wire::MAGIC_OPTION.to_be_bytes()[..],
                &option.to_be_bytes(),
                &[0; 4],
            ]
            .concat(),
        )
        .unwrap();
    let mut head = [0; 20];
    stream.read_exact(&mut head).unwrap();
    let mut words = vec![0; wire::be32(&head, 16) as usize];
    stream.read_exact(&mut words).unwrap();
    wire::be32(&head, 12)
}

#[test]
fn nothing_is_served_before_tls() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(Protection::Tls(certificates(folder.path())));
    let mut stream = TcpStream::connect(server.address().unwrap()).unwrap();
    stream.read_exact(&mut [0; 18]).unwrap();
    stream.write_all(&[0, 0, 0, 3]).unwrap();
    assert_eq!(
        option_verdict(&mut stream, option::LIST),
        reply::ERR_TLS_REQD
    );
    assert_eq!(
        option_verdict(&mut stream, option::STRUCTURED_REPLY),
        reply::ERR_TLS_REQD
    );
    assert_eq!(option_verdict(&mut stream, option::STARTTLS), reply::ACK);
    // The client does not speak TLS: the connection ends, the server does not.
    stream.write_all(&[0x55; 64]).unwrap();
    let _ = stream.read_to_end(&mut Vec::new());
    TcpStream::connect(server.address().unwrap()).unwrap();
}

#[test]
fn a_real_client_copies_over_tls() {
    if Command::new("nbdcopy").arg("--version").output().is_err() {
        skipped("nbdcopy is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut files = certificates(folder.path());
    for client_ca in [None, Some(folder.path().join("ca-cert.pem"))] {
        files.client_ca = client_ca;
        let server = serve(Protection::Tls(files.clone()));
        let uri = format!(
            "nbds://localhost:{}/?tls-certificates={}",
            server.address().unwrap().port(),
            folder.path().display()
        );
        let from = folder.path().join("from");
        let to = folder.path().join("to");
        std::fs::write(&from, pattern(3, 64 << 20)).unwrap();
        for args in [
            [from.as_os_str(), uri.as_ref()],
            [uri.as_ref(), to.as_os_str()],
        ] {
            let done = Command::new("nbdcopy").args(args).output().unwrap();
            assert!(
                done.status.success(),
                "{}",
                String::from_utf8_lossy(&done.stderr)
            );
        }
        assert!(std::fs::read(&from).unwrap() == std::fs::read(&to).unwrap());
        if files.client_ca.is_some() {
            // A client without a certificate.
            let bare = folder.path().join("bare");
            std::fs::create_dir(&bare).unwrap();
            std::fs::copy(folder.path().join("ca-cert.pem"), bare.join("ca-cert.pem")).unwrap();
            let port = server.address().unwrap().port();
            let uri = format!(
                "nbds://localhost:{port}/?tls-certificates={}",
                bare.display()
            );
            let refused = Command::new("nbdinfo").arg(uri).output().unwrap();
            assert!(!refused.status.success());
        }
    }
}

#[test]
fn insecure_tcp_works_when_asked_for() {
    let server = serve(Protection::InsecureTcp);
    let mut stream = TcpStream::connect(server.address().unwrap()).unwrap();
    stream.read_exact(&mut [0; 18]).unwrap();
    stream.write_all(&[0, 0, 0, 3]).unwrap();
    assert_eq!(
        option_verdict(&mut stream, option::STARTTLS),
        reply::ERR_POLICY
    );
    assert_eq!(
        option_verdict(&mut stream, option::STRUCTURED_REPLY),
        reply::ACK
    );
}

#[test]
fn wrong_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let files = certificates(folder.path());
    let bind = |files: TlsFiles| match Server::bind(&Listen::Tcp {
        addr: ANY,
        tls: Protection::Tls(files),
    }) {
        Err(BindError::Tls(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let nowhere = PathBuf::from("/nowhere/cert.pem");
    assert!(
        bind(TlsFiles {
            certificate: nowhere.clone(),
            ..files.clone()
        })
        .contains("/nowhere/cert.pem: No such file")
    );
    assert!(
        bind(TlsFiles {
            key: nowhere.clone(),
            ..files.clone()
        })
        .contains("/nowhere/cert.pem")
    );
    assert!(
        bind(TlsFiles {
            client_ca: Some(nowhere),
            ..files.clone()
        })
        .contains("/nowhere/cert.pem")
    );
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "nothing").unwrap();
    assert!(
        bind(TlsFiles {
            certificate: empty,
            ..files.clone()
        })
        .contains("empty.pem: holds no certificate")
    );
    let other = folder.path().join("client-key.pem");
    assert!(
        bind(TlsFiles {
            key: other,
            ..files
        })
        .contains("certificate or key")
    );
}

#[test]
fn a_key_that_any_user_may_read_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let files = certificates(folder.path());
    let key = files.key.clone();
    for (mode, what) in [
        (0o644, "chmod o="),
        (0o604, "chmod o="),
        (0o660, "chmod g-w"),
    ] {
        std::fs::set_permissions(&key, Permissions::from_mode(mode)).unwrap();
        let tls = Protection::Tls(files.clone());
        let refused = Server::bind(&Listen::Tcp { addr: ANY, tls }).unwrap_err();
        let words = refused.to_string();
        assert!(
            words.contains("server-key.pem") && words.contains(what),
            "{mode:o}: {words}"
        );
    }
    std::fs::set_permissions(&key, Permissions::from_mode(0o640)).unwrap();
    serve(Protection::Tls(files.clone()));
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        skipped("in part: only root can give a key to somebody else");
        return;
    }
    std::os::unix::fs::chown(&key, Some(65_533), None).unwrap();
    let tls = Protection::Tls(files);
    let refused = Server::bind(&Listen::Tcp { addr: ANY, tls }).unwrap_err();
    let words = refused.to_string();
    assert!(words.contains("belongs to user 65533"), "{words}");
}
