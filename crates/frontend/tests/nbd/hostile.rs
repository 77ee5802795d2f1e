//! Clients that vanish, stall or send nonsense delay no other client and leave nothing behind.

use crate::client::Client;
use crate::disks::{LateDisk, Served, pattern, soon};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vellum_core::addr::Lba;
use vellum_device::block::{BlockDevice, Extent, Replies, Request};
use vellum_device::frames::FramePool;
use vellum_frontend::nbd::testing::{fuzz_options, fuzz_tls, fuzz_transmission};
use vellum_frontend::nbd::wire::{self, RequestHeader, command, option};
use vellum_frontend::testing::RamDisk;
use vellum_frontend::ublk::testing::fuzz_descriptors;

#[test]
fn vanishing_at_any_byte_releases_everything() {
    let ram = Arc::new(RamDisk::new(256, 32, 128));
    let served = Served::of(LateDisk::new(Arc::clone(&ram), Duration::from_micros(50)));
    let mut stream = Vec::new();
    for (cookie, (command, offset, length)) in [
        (command::READ, 0, 65_536),
        (command::WRITE, 4096, 65_536),
        (command::WRITE, 100, 600),
        (command::READ, 0, 4096),
    ]
    .into_iter()
    .enumerate()
    {
        stream.extend_from_slice(
            &RequestHeader {
                flags: 0,
                command,
                cookie: cookie as u64,
                offset,
                length,
            }
            .encode(),
        );
        if command == command::WRITE {
            stream.extend_from_slice(&pattern(1, length as usize));
        }
    }
    for cut in (0..stream.len())
        .step_by(1777)
        .chain([27, 28, 29, 30, 56, 57, stream.len()])
    {
        let mut client = Client::connected(&served.path(), "disk", cut % 2 == 0);
        client.stream.write_all(&stream[..cut]).unwrap();
    }
    soon("all connections end", || served.server.connections() == 0);
    assert!(ram.all_frames_free());
    assert_eq!(
        Client::connected(&served.path(), "disk", true)
            .read(0, 512)
            .len(),
        512
    );
}

#[test]
fn a_client_that_does_not_read_holds_up_nobody() {
    let ram = Arc::new(RamDisk::new(2048, 64, 64));
    let served = Served::of(Arc::clone(&ram) as _);
    let mut deaf: Vec<Client> = (0..6)
        .map(|_| Client::connected(&served.path(), "disk", true))
        .collect();
    for client in &mut deaf {
        client.stream.set_nonblocking(true).unwrap();
        let request = RequestHeader {
            flags: 0,
            command: command::READ,
            cookie: 1,
            offset: 0,
            length: 131_072,
        }
        .encode();
        // As many as the server accepts, and more.
        for _ in 0..2000 {
            let _ = client.stream.write(&request);
        }
    }
    let mut other = Client::connected(&served.path(), "disk", true);
    for turn in 0..50 {
        let bytes = pattern(turn, 65_536);
        assert_eq!(other.write(turn * 4096, &bytes), 0);
        assert!(other.read(turn * 4096, 65_536) == bytes);
    }
    drop(deaf);
    drop(other);
    soon("all connections end", || served.server.connections() == 0);
    assert!(ram.all_frames_free());
}

#[test]
fn a_client_that_stalls_inside_a_payload_holds_up_nobody() {
    let ram = Arc::new(RamDisk::new(2048, 64, 64));
    let served = Served::of(Arc::clone(&ram) as _);
    let bytes = pattern(4, 65_536);
    let mut slow: Vec<Client> = (0..8)
        .map(|_| Client::connected(&served.path(), "disk", false))
        .collect();
    for client in &mut slow {
        client.send(command::WRITE, 0, 1, 1 << 20, 65_536, &bytes[..50_000]);
    }
    let mut other = Client::connected(&served.path(), "disk", true);
    for turn in 0..20 {
        assert_eq!(other.write(turn * 65_536, &pattern(turn, 65_536)), 0);
    }
    for client in &mut slow {
        client.stream.write_all(&bytes[50_000..]).unwrap();
        assert_eq!(client.reply(0).error, 0);
    }
    assert!(other.read(1 << 20, 65_536) == bytes);
}

#[test]
fn a_client_that_drips_a_payload_holds_up_nobody() {
    let ram = Arc::new(RamDisk::new(2048, 64, 64));
    let served = Served::of(Arc::clone(&ram) as _);
    let bytes = pattern(5, 65_536);
    // More clients than can have frames at once, and none of them ever pauses.
    let mut slow: Vec<Client> = (0..8)
        .map(|_| Client::connected(&served.path(), "disk", false))
        .collect();
    for client in &mut slow {
        client.send(command::WRITE, 0, 1, 1 << 20, 65_536, &bytes[..40_000]);
    }
    let done = AtomicBool::new(false);
    let mut other = Client::connected(&served.path(), "disk", true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut sent = 40_000;
            while !done.load(Ordering::Relaxed) {
                for client in &mut slow {
                    client.stream.write_all(&bytes[sent..=sent]).unwrap();
                }
                sent += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
            for client in &mut slow {
                client.stream.write_all(&bytes[sent..]).unwrap();
                assert_eq!(client.reply(0).error, 0);
            }
        });
        let _done = OnDrop(&done);
        for turn in 0..8 {
            assert_eq!(other.write(turn * 65_536, &pattern(turn, 65_536)), 0);
        }
    });
    assert!(other.read(1 << 20, 65_536) == bytes);
}

/// Set when it is dropped, even by a failing test, so that a thread waiting for it ends.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_panic_of_the_device_closes_the_connection() {
    struct Panics(RamDisk);
    impl BlockDevice for Panics {
        fn blocks(&self) -> u64 {
            self.0.blocks()
        }
        fn read_only(&self) -> bool {
            false
        }
        fn frames(&self) -> &Arc<FramePool> {
            self.0.frames()
        }
        fn submit(&self, _: &mut Vec<Request>, _: &Arc<dyn Replies>) {
            panic!("on purpose");
        }
        fn extents(&self, lba: Lba, blocks: u64, max: usize) -> Vec<Extent> {
            self.0.extents(lba, blocks, max)
        }
    }
    let served = Served::of(Arc::new(Panics(RamDisk::new(64, 16, 16))));
    let mut client = Client::connected(&served.path(), "disk", true);
    client.send(command::READ, 0, 1, 0, 4096, &[]);
    assert!(client.is_closed());
    soon("the connection ends", || served.server.connections() == 0);
}

#[test]
fn nonsense_ends_only_its_own_connection() {
    let ram = Arc::new(RamDisk::new(64, 16, 16));
    let served = Served::of(Arc::clone(&ram) as _);
    let mut other = Client::connected(&served.path(), "disk", true);
    let mut client = Client::connected(&served.path(), "disk", true);
    client.stream.write_all(&[0x5a; 64]).unwrap();
    assert!(client.is_closed());
    let mut client = Client::connected(&served.path(), "disk", true);
    client.send(command::WRITE, 0, 1, 0, u32::MAX, &[]);
    assert!(client.is_closed());
    let mut client = Client::connected(&served.path(), "disk", true);
    client.send(command::DISC, 0, 0, 0, 0, &[]);
    assert!(client.is_closed());
    assert_eq!(other.write(0, &[1; 512]), 0);
    // A connection is closed before that is reported, so either may be the first.
    soon("two reports", || served.reports.lock().unwrap().len() == 2);
    let reports = served.reports.lock().unwrap();
    for fault in ["0x5a5a5a5a", "4294967295"] {
        assert!(
            reports.iter().any(|words| words.contains(fault)),
            "{reports:?}"
        );
    }
}

/// A small generator, so that a failure can be repeated from its number.
struct Seeded(u64);

impl Seeded {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        (0..self.next(most)).map(|_| self.next(256) as u8).collect()
    }
}

#[test]
fn seeded_options() {
    for seed in 0..3000 {
        let mut random = Seeded(seed);
        let mut data = vec![0, 0, 0, random.next(5) as u8];
        for _ in 0..random.next(300) {
            data.extend_from_slice(&wire::MAGIC_OPTION.to_be_bytes());
            data.extend_from_slice(&(random.next(13) as u32).to_be_bytes());
            let body = match random.next(4) {
                0 => random.bytes(64),
                1 => crate::client::info_data("first", &[random.next(6) as u16, 3]),
                2 => crate::client::context_data("second", &["base:allocation", "base:"]),
                _ => Vec::new(),
            };
            let length = if random.next(40) == 0 {
                random.next(1 << 32) as u32
            } else {
                body.len() as u32
            };
            data.extend_from_slice(&length.to_be_bytes());
            data.extend_from_slice(&body);
        }
        fuzz_options(&data);
    }
    // The valid sequence, to verify that the generator's words are understood.
    let mut data = vec![0, 0, 0, 3];
    data.extend_from_slice(&wire::MAGIC_OPTION.to_be_bytes());
    data.extend_from_slice(&option::LIST.to_be_bytes());
    data.extend_from_slice(&[0; 4]);
    fuzz_options(&data);
}

#[test]
fn seeded_clients_of_tls() {
    // An export by the empty name.
    let mut wanted = wire::MAGIC_OPTION.to_be_bytes().to_vec();
    wanted.extend_from_slice(&option::EXPORT_NAME.to_be_bytes());
    wanted.extend_from_slice(&[0; 4]);
    for seed in 0..300 {
        let mut random = Seeded(seed);
        // A handshake as random bytes; as a record that announces more or less than follows; or a real one, changed.
        let mut data = match random.next(4) {
            0 => vec![0],
            1 => vec![
                0,
                22,
                3,
                1,
                random.next(66) as u8,
                random.next(256) as u8,
                1,
            ],
            _ => vec![1, random.next(4) as u8],
        };
        if data[0] == 1 {
            for _ in 0..data[1] {
                let place = random.next(500) as u16;
                data.extend_from_slice(&place.to_be_bytes());
                data.push(random.next(256) as u8);
            }
            data.extend_from_slice(&wanted);
        }
        data.extend(random.bytes(400));
        fuzz_tls(&data);
    }
    assert!(!fuzz_tls(&[]));
    // Unchanged, it is a client that gets its export; so the changes above meet the whole handshake.
    assert!(fuzz_tls(&[&[1, 0], &wanted[..]].concat()));
    // The first byte of all, in which a record's kind is.
    assert!(!fuzz_tls(&[&[1, 1, 0, 0, 1], &wanted[..]].concat()));
}

#[test]
fn seeded_transmissions() {
    for seed in 0..400 {
        let mut random = Seeded(seed);
        let mut data = random.bytes(2);
        data.resize(1, seed as u8);
        for _ in 0..random.next(60) {
            let command = random.next(9) as u16;
            let flags = if random.next(3) == 0 {
                random.next(64) as u16
            } else {
                0
            };
            let offset = random.next(66 * 8) * 512
                + if random.next(4) == 0 {
                    random.next(512)
                } else {
                    0
                };
            let length = match random.next(20) {
                0 => random.next(1 << 32) as u32,
                1..5 => random.next(300_000) as u32,
                _ => random.next(20) as u32 * 512,
            };
            let cookie = random.next(1 << 40);
            data.extend_from_slice(
                &RequestHeader {
                    flags,
                    command,
                    cookie,
                    offset,
                    length,
                }
                .encode(),
            );
            if command == command::WRITE {
                data.resize(data.len() + length.min(400_000) as usize, 7);
            }
        }
        if random.next(2) == 0 {
            data.truncate(random.next(data.len() as u64 + 1) as usize);
        }
        fuzz_transmission(&data);
    }
}

#[test]
fn seeded_descriptors() {
    for seed in 0..300 {
        let mut random = Seeded(seed);
        let mut data = Vec::new();
        for _ in 0..random.next(60) {
            let operation = match random.next(12) {
                0 => random.next(1 << 32) as u32,
                n => (n as u32 % 6) | ((random.next(2) as u32) << 13),
            };
            let sectors = match random.next(20) {
                0 => random.next(1 << 32) as u32,
                _ => random.next(40) as u32,
            };
            let start = match random.next(20) {
                0 => u64::MAX / 512 - random.next(40),
                _ => random.next(16 * 8 + 2),
            };
            data.extend_from_slice(&operation.to_ne_bytes());
            data.extend_from_slice(&sectors.to_ne_bytes());
            data.extend_from_slice(&start.to_ne_bytes());
            data.extend_from_slice(&random.next(1 << 40).to_ne_bytes());
        }
        fuzz_descriptors(&data);
    }
}
