//! Clients that do not take their replies, on sockets with small buffers: everything else waits in the session.

use super::super::receive::Receiver;
use super::super::wire::{MAGIC_SIMPLE, RequestHeader, be32, command};
use super::*;
use crate::testing::RamDisk;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::thread::{Scope, ScopedJoinHandle};

/// A session and its client.
fn connected(disk: &Arc<RamDisk>, heap: &Arc<Heap>) -> (UnixStream, Arc<Session>) {
    const LEAST: i32 = 1;
    buffered(LEAST, disk, heap)
}

/// The same, with a socket that buffers so many bytes, and a little more.
fn buffered(bytes: i32, disk: &Arc<RamDisk>, heap: &Arc<Heap>) -> (UnixStream, Arc<Session>) {
    let (client, server) = UnixStream::pair().unwrap();
    client
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    // SAFETY: an int that lives during the call.
    let set = unsafe {
        libc::setsockopt(
            server.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_SNDBUF,
            (&raw const bytes).cast(),
            size_of::<i32>() as u32,
        )
    };
    assert_eq!(set, 0);
    let export = Arc::new(Export::new("", Arc::clone(disk)));
    let link = Link::new(server.into());
    let memory = Memory {
        heap: Arc::clone(heap),
        ..Memory::new()
    };
    let session = Session::new(link, export, Agreed::default(), memory);
    (client, Arc::new(session))
}

fn serve<'scope>(
    scope: &'scope Scope<'scope, '_>,
    session: &'scope Arc<Session>,
) -> ScopedJoinHandle<'scope, ()> {
    scope.spawn(|| session.write_leftovers());
    scope.spawn(|| {
        Receiver::new(Arc::clone(session)).run();
        session.end();
    })
}

fn soon(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::yield_now();
    }
}

fn read_request(length: usize) -> [u8; 28] {
    let request = RequestHeader {
        flags: 0,
        command: command::READ,
        cookie: 1,
        offset: 0,
        length: length as u32,
    };
    request.encode()
}

/// Takes the reply to a read, and returns its error.
fn take_reply(client: &mut UnixStream, length: usize) -> u32 {
    let mut head = [0; 16];
    client.read_exact(&mut head).unwrap();
    assert_eq!(be32(&head, 0), MAGIC_SIMPLE);
    let error = be32(&head, 4);
    if error == 0 {
        client.read_exact(&mut vec![0; length]).unwrap();
    }
    error
}

fn read(client: &mut UnixStream, length: usize) -> u32 {
    client.write_all(&read_request(length)).unwrap();
    take_reply(client, length)
}

#[test]
fn a_client_that_reads_slowly_without_pause_keeps_no_frames() {
    let disk = Arc::new(RamDisk::new(1, 1, 1024));
    let (mut client, session) = connected(&disk, &Heap::new(0, Duration::ZERO));
    std::thread::scope(|scope| {
        serve(scope, &session);
        // A few more than may be in flight: what the socket buffers makes room for others.
        let requests = REQUESTS_MAX as usize + 64;
        client
            .write_all(&read_request(BLOCK_BYTES).repeat(requests))
            .unwrap();
        soon("as many as may be are in flight", || {
            session.state.lock().requests == REQUESTS_MAX
        });
        // At this pace that takes twelve seconds. A client that reads more slowly pauses.
        let mut read = 0;
        while !disk.all_frames_free() && read < requests * BLOCK_BYTES / 2 {
            client.read_exact(&mut [0; 1024]).unwrap();
            read += 1024;
            std::thread::sleep(Duration::from_millis(10));
        }
        let free = disk.all_frames_free();
        drop(client);
        assert!(free, "half was read, and frames are held");
    });
}

const KIB: usize = 1 << 10;

/// The disk for long reads: a connection may have 32 KiB in flight.
fn small_disk() -> Arc<RamDisk> {
    Arc::new(RamDisk::new(64, 1, 16))
}

/// Requests 192 KiB and leaves them unread. Returns once they are taken from the heap of 256 KiB.
fn ask_and_leave(client: &mut UnixStream, heap: &Arc<Heap>) {
    client.write_all(&read_request(192 * KIB)).unwrap();
    soon("it is taken", || heap.left() == 64 << 10);
}

#[test]
fn long_reads_of_all_connections_share_limited_memory() {
    let (disk, heap) = (
        small_disk(),
        Heap::new(256 << 10, Duration::from_millis(20)),
    );
    let (mut deaf, first) = connected(&disk, &heap);
    let (mut other, second) = connected(&disk, &heap);
    std::thread::scope(|scope| {
        serve(scope, &first);
        serve(scope, &second);
        ask_and_leave(&mut deaf, &heap);
        assert_eq!(read(&mut other, 128 * KIB), Errno::NoMem as u32);
        assert_eq!(read(&mut other, 64 * KIB), 0, "as much is left");
        assert_eq!(read(&mut other, 32 * KIB), 0, "it needs none");
        assert_eq!(take_reply(&mut deaf, 192 * KIB), 0);
        // Memory is given back a moment after its data is sent.
        soon("all is given back", || heap.left() == 256 << 10);
        assert_eq!(read(&mut other, 256 * KIB), 0);
        drop((deaf, other));
    });
}

#[test]
fn a_long_read_waits_for_memory_as_long_as_its_client_is_there() {
    let (disk, heap) = (small_disk(), Heap::new(256 << 10, Duration::from_secs(60)));
    let (mut deaf, first) = connected(&disk, &heap);
    let (mut other, second) = connected(&disk, &heap);
    let (mut gone, third) = connected(&disk, &heap);
    std::thread::scope(|scope| {
        serve(scope, &first);
        serve(scope, &second);
        let served = serve(scope, &third);
        ask_and_leave(&mut deaf, &heap);
        gone.write_all(&read_request(128 * KIB)).unwrap();
        soon("it waits", || third.state.lock().requests == 1);
        third.kill();
        soon("nobody waits for it any more", || served.is_finished());
        other.write_all(&read_request(128 * KIB)).unwrap();
        soon("it waits", || second.state.lock().requests == 1);
        assert_eq!(take_reply(&mut deaf, 192 * KIB), 0);
        assert_eq!(take_reply(&mut other, 128 * KIB), 0);
        drop((deaf, other));
    });
}

#[test]
fn untaken_replies_share_limited_memory_and_the_longest_silent_client_is_cut_off() {
    let disk = Arc::new(RamDisk::new(64, 1, 1024));
    let leftovers = Leftovers::new(64 << 10);
    let session = || {
        let (client, session) = connected(&disk, &Heap::new(0, Duration::ZERO));
        let mut session = Arc::into_inner(session).unwrap();
        session.memory.leftovers = Arc::clone(&leftovers);
        (client, Arc::new(session))
    };
    let ((mut deaf, first), (mut other, second)) = (session(), session());
    std::thread::scope(|scope| {
        serve(scope, &first);
        serve(scope, &second);
        deaf.write_all(&read_request(48 * KIB)).unwrap();
        soon("the first's reply waits", || leftovers.bytes() == 48 << 10);
        other.write_all(&read_request(48 * KIB)).unwrap();
        let mut taken = Vec::new();
        deaf.set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        soon("the first is cut off", || first.state.lock().dead);
        // It gets what its socket had buffered, and then the end.
        let _ = deaf.read_to_end(&mut taken);
        assert!(taken.len() < 48 * KIB);
        assert_eq!(take_reply(&mut other, 48 * KIB), 0);
        soon("all is given back", || leftovers.bytes() == 0);
        drop((deaf, other));
    });
}

/// The thread that answers one client's requests answers those of all others too.
#[test]
fn a_client_that_reads_as_fast_as_it_is_answered_keeps_no_thread_of_the_device() {
    let disk = Arc::new(RamDisk::new(1, 1, 16));
    let (mut client, session) = buffered(200_000, &disk, &Heap::new(0, Duration::ZERO));
    let opening = Opening {
        cookie: 1,
        kind: Kind::Plain,
        offset: 0,
        length: 0,
        cost: 0,
    };
    let (over, began) = (AtomicBool::new(false), Instant::now());
    // An answer that the receiving thread makes by itself, as for a hole.
    let answer = || {
        while !over.load(Ordering::Relaxed) && began.elapsed() < Duration::from_secs(60) {
            if let Ok(Some(slot)) = session.try_open(opening) {
                session.end_part(slot, Ok(()));
            }
        }
    };
    let flush = |_| {
        // Where there are many processors, the writer may send all the time.
        while began.elapsed() < Duration::from_secs(10) {
            let state = session.state.lock();
            if !state.sending && !state.queue.is_empty() {
                break;
            }
            drop(state);
            std::thread::yield_now();
        }
        let began = Instant::now();
        session.flush();
        began.elapsed()
    };
    std::thread::scope(|scope| {
        scope.spawn(|| session.write_leftovers());
        scope.spawn(move || std::io::copy(&mut client, &mut std::io::sink()));
        let answering = [scope.spawn(answer), scope.spawn(answer)];
        let longest = (0..20).map(flush).max();
        over.store(true, Ordering::Relaxed);
        for thread in answering {
            thread.join().unwrap();
        }
        session.flush();
        session.end();
        assert!(longest < Some(Duration::from_secs(30)), "{longest:?}");
    });
}
