//! Sockets, exports that are added and removed, and the server's end.

use crate::client::{Client, info_data};
use crate::disks::{LateDisk, Served, soon};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vellum_device::block::{BlockDevice, BlockError};
use vellum_device::frames::Quota;
use vellum_frontend::finder::Found;
use vellum_frontend::nbd::wire::{Errno, command, option, reply};
use vellum_frontend::nbd::{BindError, Export, ExportError, Listen, Options, Server};
use vellum_frontend::testing::RamDisk;

#[test]
fn the_socket_is_private_and_goes_with_the_server() {
    let mut served = Served::empty();
    let path = served.path();
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    served.server.shutdown();
    assert!(!path.exists());
    served.server.shutdown();
}

#[test]
fn clients_wait_until_all_exports_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut server = Server::prepare(&Listen::Unix(path.clone()), Options::default()).unwrap();
    std::thread::scope(|scope| {
        let early = scope.spawn(|| Client::connected(&path, "disk", true));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!early.is_finished(), "greeted before there is an export");
        let disk = Arc::new(RamDisk::new(64, 64, 64));
        server.add(Export::new("disk", disk)).unwrap();
        server.open().unwrap();
        assert_eq!(early.join().unwrap().read(0, 4096).len(), 4096);
    });
    drop(
        Server::prepare(
            &Listen::Unix(folder.path().join("unused")),
            Options::default(),
        )
        .unwrap(),
    );
    assert!(!folder.path().join("unused").exists());
}

#[test]
fn only_a_stale_socket_is_replaced() {
    let served = Served::empty();
    let listen = Listen::Unix(served.path());
    assert!(matches!(Server::bind(&listen), Err(BindError::InUse(_))));
    Client::greeted(&served.path());

    let stale = served.folder().join("stale");
    drop(UnixListener::bind(&stale).unwrap());
    assert!(stale.exists());
    let second = Server::bind(&Listen::Unix(stale.clone())).unwrap();
    Client::greeted(&stale);
    // A file that replaced the socket must not be removed.
    std::fs::remove_file(&stale).unwrap();
    std::fs::write(&stale, "precious").unwrap();
    drop(second);
    assert_eq!(std::fs::read(&stale).unwrap(), b"precious");
    assert!(matches!(
        Server::bind(&Listen::Unix(stale)),
        Err(BindError::NotASocket(_))
    ));
    let long = served.folder().join("x".repeat(200));
    assert!(matches!(
        Server::bind(&Listen::Unix(long)),
        Err(BindError::PathTooLong(_))
    ));
    assert!(matches!(
        Server::bind(&Listen::Unix("/nowhere/at/all".into())),
        Err(BindError::NoFolder(_))
    ));
}

#[test]
fn exports_come_and_go() {
    let served = Served::empty();
    let disk = || Arc::new(RamDisk::new(8, 4, 4));
    let mut early = Client::greeted(&served.path());
    assert_eq!(
        early.verdict(option::GO, &info_data("", &[])),
        reply::ERR_UNKNOWN
    );
    served.server.add(Export::new("a", disk())).unwrap();
    assert_eq!(
        served.server.add(Export::new("a", disk())),
        Err(ExportError::Taken("a".into()))
    );
    assert_eq!(
        served.server.add(Export::new("x".repeat(5000), disk())),
        Err(ExportError::BadString)
    );
    assert_eq!(early.verdict(option::GO, &info_data("", &[])), reply::ACK);
    assert_eq!(early.read(0, 512), [0; 512]);
    served.server.add(Export::new("b", disk())).unwrap();
    let mut other = Client::connected(&served.path(), "b", true);
    assert!(served.server.remove("a"));
    assert!(early.is_closed());
    assert_eq!(other.read(0, 512), [0; 512]);
    served.server.add(Export::new("a", disk())).unwrap();
    Client::connected(&served.path(), "a", true);
}

/// Shuts a server down, and returns how long that takes.
fn shut_down(served: &mut Served) -> Duration {
    let start = Instant::now();
    served.server.shutdown();
    start.elapsed()
}

/// True if one of three shutdowns takes less than this: a busy machine may delay one of them.
fn is_once_within(limit: Duration, mut shutdown: impl FnMut() -> Duration) -> bool {
    (0..3).any(|_| shutdown() < limit)
}

#[test]
fn shutdown_finishes_what_is_in_flight() {
    let limit = Duration::from_secs(3);
    assert!(is_once_within(limit, shutdown_with_requests_in_flight));
}

fn shutdown_with_requests_in_flight() -> Duration {
    let ram = Arc::new(RamDisk::new(64, 16, 16));
    let disk = LateDisk::new(Arc::clone(&ram), Duration::from_millis(50));
    let mut served = Served::of(Arc::clone(&disk) as _);
    let mut clients = [(); 3].map(|()| settled(&served, "disk"));
    let _in_handshake = Client::greeted(&served.path());
    for client in &mut clients {
        client.send(command::WRITE, 0, 1, 0, 4096, &[7; 4096]);
        client.send(command::READ, 0, 2, 8192, 4096, &[]);
    }
    // Each client has read once before.
    soon("all are in flight", || disk.asked() == 9);
    let took = shut_down(&mut served);
    assert!(ram.all_frames_free());
    for client in &mut clients {
        let mut cookies = [client.reply(0).cookie, client.reply(0).cookie];
        cookies.sort_unstable();
        assert_eq!(cookies, [1, 2]);
        assert!(client.is_closed());
    }
    took
}

/// All memory for writes is held by requests that found no room: clients get an error, reads continue, and the server can still
/// end.
#[test]
fn a_volume_that_takes_no_writes_keeps_no_client_waiting() {
    let limit = Duration::from_secs(3);
    assert!(is_once_within(limit, shutdown_with_writes_refused));
}

fn shutdown_with_writes_refused() -> Duration {
    let ram = Arc::new(RamDisk::new(2048, 1024, 1024));
    let mut served = Served::of(Arc::clone(&ram) as _);
    let mut client = Client::connected(&served.path(), "disk", true);
    let pool = Arc::clone(ram.frames());
    let held = pool.take(Quota::Write, 1024).unwrap();
    let payload = vec![7; 3 << 20];
    client.send(command::WRITE, 0, 1, 0, 64 << 10, &payload[..64 << 10]);
    client.send(command::READ, 0, 2, 0, 4096, &[]);
    std::thread::sleep(Duration::from_millis(50));
    pool.refuse_writes(Some(BlockError::Full));
    let refused = client.reply(0);
    assert_eq!((refused.cookie, refused.error), (1, Errno::NoSpc as u32));
    assert_eq!(client.reply(4096).data, [0; 4096]);
    // Of all sizes, and in part of a block.
    for length in [100, 4096, 64 << 10, payload.len()] {
        let error = client.write(512, &payload[..length]);
        assert_eq!(error, Errno::NoSpc as u32, "{length}");
    }
    assert_eq!(client.read(0, 512), [0; 512]);
    drop(held);
    pool.refuse_writes(None);
    assert_eq!(client.write(0, &payload), 0);
    let _held = pool.take(Quota::Write, 1024).unwrap();
    pool.refuse_writes(Some(BlockError::Full));
    client.send(command::WRITE, 0, 3, 0, 4096, &payload[..4096]);
    shut_down(&mut served)
}

#[test]
fn shutdown_does_not_wait_for_a_deaf_client() {
    let limit = Duration::from_secs(9);
    assert!(is_once_within(limit, shutdown_with_a_deaf_client));
}

fn shutdown_with_a_deaf_client() -> Duration {
    let ram = Arc::new(RamDisk::new(2048, 64, 1024));
    let mut served = Served::of(Arc::clone(&ram) as _);
    let mut deaf = Client::connected(&served.path(), "disk", true);
    for cookie in 0..20 {
        deaf.send(command::READ, 0, cookie, 0, 1 << 20, &[]);
    }
    std::thread::sleep(Duration::from_millis(50));
    let took = shut_down(&mut served);
    assert!(ram.all_frames_free());
    took
}

/// Returns a client whose connection certainly has its slot: the end of a handshake is answered before the server assigns it.
fn settled(served: &Served, name: &str) -> Client {
    let mut client = Client::connected(&served.path(), name, true);
    assert_eq!(client.read(0, 4096).len(), 4096);
    client
}

#[test]
fn connections_are_counted_and_limited() {
    let served = Served::with(Options {
        connections_max: 2,
        ..Options::default()
    });
    served
        .server
        .add(Export::new("", Arc::new(RamDisk::new(8, 4, 4))))
        .unwrap();
    let first = settled(&served, "");
    let _second = settled(&served, "");
    let stream = std::os::unix::net::UnixStream::connect(served.path()).unwrap();
    let mut third = Client {
        stream,
        structured: false,
        size: 0,
        flags: 0,
    };
    assert!(third.is_closed());
    drop(first);
    soon("a place is free", || served.server.connections() == 1);
    Client::connected(&served.path(), "", true);
}

#[test]
fn peers_that_say_nothing_keep_nobody_out() {
    let served = Served::with(Options::default());
    served
        .server
        .add(Export::new("", Arc::new(RamDisk::new(8, 4, 4))))
        .unwrap();
    let start = Instant::now();
    let silent = |_| std::os::unix::net::UnixStream::connect(served.path()).unwrap();
    let silent: Vec<_> = (0..300).map(silent).collect();
    let mut client = Client::connected(&served.path(), "", true);
    assert_eq!(client.read(0, 4096).len(), 4096);
    soon("most are cut off", || served.server.connections() <= 65);
    // After half a minute each of them would have been.
    assert!(start.elapsed() < Duration::from_secs(25));
    drop(silent);
}

#[test]
fn one_export_does_not_take_all_places() {
    let served = Served::with(Options {
        connections_max: 4,
        ..Options::default()
    });
    for name in ["a", "b"] {
        served
            .server
            .add(Export::new(name, Arc::new(RamDisk::new(8, 4, 4))))
            .unwrap();
    }
    let _three = [(); 3].map(|()| settled(&served, "a"));
    assert!(Client::connected(&served.path(), "a", true).is_closed());
    let mut other = Client::connected(&served.path(), "b", true);
    assert_eq!(other.read(0, 4096).len(), 4096);
}

/// What is found by name is made anew for each client, and belongs to one volume.
#[test]
fn what_one_volume_is_asked_for_by_name_does_not_take_all_places() {
    let served = Served::with(Options {
        connections_max: 4,
        ..Options::default()
    });
    let disk = || Arc::new(RamDisk::new(8, 4, 4));
    for name in ["a", "b"] {
        served.server.add(Export::new(name, disk())).unwrap();
    }
    served.server.find_by(Arc::new(move |name: &str| {
        let (of, _) = name.split_once('@')?;
        Some(Found {
            of: of.to_owned(),
            name: name.to_owned(),
            number: 1,
            device: disk().into(),
        })
    }));
    let _three = ["a", "a@s", "a@t"].map(|name| settled(&served, name));
    assert!(Client::connected(&served.path(), "a@s", true).is_closed());
    let mut other = Client::connected(&served.path(), "b@s", true);
    assert_eq!(other.read(0, 4096).len(), 4096);
}
