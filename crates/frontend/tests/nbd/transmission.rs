//! Commands and their errors.

use crate::client::Client;
use crate::disks::{LateDisk, Served, pattern, soon};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use vellum_device::block::BlockDevice;
use vellum_frontend::nbd::Export;
use vellum_frontend::nbd::wire::{Errno, command, command_flag as flag};
use vellum_frontend::testing::RamDisk;

const BLOCKS: u64 = 16384;

fn disk() -> (Served, Arc<RamDisk>) {
    let disk = Arc::new(RamDisk::new(BLOCKS, 512, 512));
    (Served::of(Arc::clone(&disk) as _), disk)
}

/// A volume must know, because a commit block may wait for what it never gets.
#[test]
fn a_write_without_memory_is_refused_and_the_disk_is_told() {
    let disk = Arc::new(RamDisk::new(BLOCKS, 64, 64));
    let served = Served::of(Arc::clone(&disk) as _);
    let mut client = Client::connected(&served.path(), "disk", true);
    let held = disk.without_memory().unwrap();
    let nothing = Errno::NoSpc as u32;
    for (offset, length) in [(8192, 8192), (32 << 12, 64 << 10), (512, 512)] {
        assert_eq!(client.write(offset, &pattern(1, length)), nothing);
    }
    assert_eq!(*disk.refused.lock(), [(2, 2), (32, 16), (0, 1)]);
    disk.frames().refuse_writes(None);
    drop(held);
    assert_eq!(client.write(8192, &pattern(1, 8192)), 0);
    assert_eq!(client.read(0, 8192), [0; 8192]);
}

#[test]
fn what_was_written_is_read_at_every_size_and_place() {
    for late in [false, true] {
        let ram = Arc::new(RamDisk::new(BLOCKS, 256, 256));
        let served = if late {
            Served::of(LateDisk::new(Arc::clone(&ram), Duration::ZERO))
        } else {
            Served::of(Arc::clone(&ram) as _)
        };
        for structured in [false, true] {
            let mut client = Client::connected(&served.path(), "disk", structured);
            let mut model = client.read(0, 9 << 20);
            let places = [0, 1, 511, 512, 4095, 4096, 4097, 8192, 100_000, 1 << 20];
            let sizes = [
                1,
                511,
                512,
                4096,
                4097,
                8192,
                12_288,
                32_767,
                32_768,
                65_536,
                131_072,
                262_145,
                5 << 20,
            ];
            for (turn, (&place, &size)) in places
                .iter()
                .flat_map(|p| sizes.iter().map(move |s| (p, s)))
                .enumerate()
            {
                let bytes = pattern(turn as u64 + u64::from(structured), size);
                assert_eq!(client.write(place as u64, &bytes), 0);
                model[place..place + size].copy_from_slice(&bytes);
                let from = place.saturating_sub(700);
                let got = client.read(from as u64, (size + 1400) as u32);
                assert!(got == model[from..from + size + 1400], "{size} at {place}");
            }
            assert!(client.read(0, 9 << 20) == model);
        }
        drop(served);
        assert!(ram.all_frames_free());
    }
}

#[test]
fn many_requests_in_one_packet_are_each_answered() {
    let (served, _) = disk();
    let mut client = Client::connected(&served.path(), "disk", true);
    let mut sender = Client {
        stream: client.stream.try_clone().unwrap(),
        structured: true,
        size: 0,
        flags: 0,
    };
    let thread = std::thread::spawn(move || {
        for cookie in 0..2000u64 {
            let length = [512u32, 4096, 16_384, 40_000][cookie as usize % 4];
            sender.send(
                command::WRITE,
                0,
                cookie,
                cookie * 4096,
                length,
                &pattern(cookie, length as usize),
            );
        }
    });
    let mut seen = vec![false; 2000];
    for _ in 0..2000 {
        let reply = client.reply(0);
        assert_eq!(reply.error, 0);
        assert!(!std::mem::replace(&mut seen[reply.cookie as usize], true));
    }
    thread.join().unwrap();
    assert_eq!(client.read(1999 * 4096, 40_000), pattern(1999, 40_000));
}

#[test]
fn flush_fua_trim_and_zeroes() {
    let (served, disk) = disk();
    let mut client = Client::connected(&served.path(), "disk", true);
    assert_eq!(client.write(0, &pattern(1, 40_960)), 0);
    assert_eq!(disk.flushes.load(Ordering::Relaxed), 0);
    assert_eq!(client.call(command::FLUSH, 0, 0, 0, &[]), 0);
    assert_eq!(
        client.call(
            command::WRITE,
            flag::FUA,
            0,
            512,
            &pattern(1, 40_960)[..512]
        ),
        0
    );
    assert_eq!(
        client.call(
            command::WRITE,
            flag::FUA,
            4096,
            4096,
            &pattern(1, 40_960)[4096..8192]
        ),
        0
    );
    assert_eq!(disk.flushes.load(Ordering::Relaxed), 3);
    // A trim affects whole blocks only.
    assert_eq!(client.call(command::TRIM, 0, 4000, 8288, &[]), 0);
    let mut model = pattern(1, 40_960);
    model[4096..12_288].fill(0);
    assert!(client.read(0, 40_960) == model);
    assert_eq!(client.call(command::TRIM, 0, 100, 200, &[]), 0);
    // Zeros are exact to the byte.
    assert_eq!(
        client.call(command::WRITE_ZEROES, flag::NO_HOLE, 15_000, 10_001, &[]),
        0
    );
    model[15_000..25_001].fill(0);
    assert!(client.read(0, 40_960) == model);
    assert_eq!(
        client.call(command::WRITE_ZEROES, flag::FAST_ZERO, 512, 4096, &[]),
        95
    );
    assert_eq!(
        client.call(
            command::WRITE_ZEROES,
            flag::FAST_ZERO | flag::FUA,
            0,
            8192,
            &[]
        ),
        0
    );
    assert_eq!(
        client.call(command::WRITE_ZEROES, 0, 0, (BLOCKS * 4096) as u32, &[]),
        0,
        "longer than a payload"
    );
    assert_eq!(client.call(command::CACHE, 0, 0, 1 << 20, &[]), 0);
}

#[test]
fn block_status_tells_holes() {
    let (served, _) = disk();
    let mut client = Client::connected(&served.path(), "disk", true);
    assert_eq!(client.write(8192, &[1; 8192]), 0);
    assert_eq!(
        client.status(0, 0, 32_768),
        [(8192, 3), (8192, 0), (16_384, 3)]
    );
    assert_eq!(client.status(flag::REQ_ONE, 0, 32_768), [(8192, 3)]);
    assert_eq!(client.status(0, 4608, 4608), [(3584, 3), (1024, 0)]);
    assert_eq!(client.status(0, 12_288, 512), [(512, 0)]);
    assert_eq!(client.call(command::BLOCK_STATUS, 0, 0, 0, &[]), 22);
    for block in 0..3000 {
        assert_eq!(client.write(block * 8192, &[1; 512]), 0);
    }
    assert_eq!(client.status(0, 0, 3000 * 8192).len(), 1024, "bounded");
    let mut simple = Client::connected(&served.path(), "disk", false);
    assert_eq!(
        simple.call(command::BLOCK_STATUS, 0, 0, 512, &[]),
        22,
        "was not negotiated"
    );
}

#[test]
fn each_error_has_its_number() {
    let (served, disk) = disk();
    let disk_ro = Arc::new(RamDisk::new(8, 4, 4));
    served
        .server
        .add(Export::new("ro", disk_ro).read_only_if(true))
        .unwrap();
    let end = BLOCKS * 4096;
    for structured in [false, true] {
        let mut client = Client::connected(&served.path(), "disk", structured);
        // Past the end: the specification requires ENOSPC for writes, EINVAL for the rest.
        for (offset, length) in [
            (end, 512),
            (end - 512, 1024),
            (u64::MAX - 100, 512),
            (u64::MAX, 512),
        ] {
            assert_eq!(client.call(command::READ, 0, offset, length, &[]), 22);
            assert_eq!(client.call(command::TRIM, 0, offset, length, &[]), 22);
            assert_eq!(client.call(command::CACHE, 0, offset, length, &[]), 22);
            assert_eq!(
                client.call(command::WRITE_ZEROES, 0, offset, length, &[]),
                28
            );
            assert_eq!(client.write(offset, &vec![1; length as usize]), 28);
        }
        assert_eq!(client.write(end - 1000, &[1; 100_000]), 28);
        assert_eq!(client.call(command::READ, 0, 0, (32 << 20) + 1, &[]), 75);
        assert_eq!(client.write(0, &vec![1; (32 << 20) + 1]), 22);
        assert_eq!(client.call(4711, 0, 0, 0, &[]), 22);
        assert_eq!(client.call(command::READ, 1 << 9, 0, 512, &[]), 22);
        assert_eq!(
            client.call(command::READ, flag::DF, 0, 512, &[]),
            if structured { 0 } else { 22 }
        );
        assert_eq!(client.call(command::FLUSH, 0, 512, 0, &[]), 22);
        assert_eq!(client.call(command::READ, 0, 0, 0, &[]), 0);
        assert_eq!(client.write(0, &[]), 0);

        disk.bad.store(3, Ordering::Relaxed);
        assert_eq!(client.call(command::READ, 0, 0, 65_536, &[]), 5);
        assert_eq!(
            client.write(3 * 4096 + 512, &[1; 512]),
            5,
            "read-modify-write of a bad block"
        );
        disk.bad.store(u64::MAX, Ordering::Relaxed);
        disk.room.store(1, Ordering::Relaxed);
        assert_eq!(client.write(1 << 20, &[1; 65_536]), 28);
        disk.room.store(u64::MAX, Ordering::Relaxed);

        let mut read_only = Client::connected(&served.path(), "ro", structured);
        assert_eq!(read_only.write(0, &[1; 512]), 1);
        assert_eq!(read_only.call(command::TRIM, 0, 0, 4096, &[]), 1);
        assert_eq!(read_only.call(command::WRITE_ZEROES, 0, 0, 4096, &[]), 1);
        assert_eq!(read_only.call(command::FLUSH, 0, 0, 0, &[]), 0);
        assert_eq!(read_only.read(0, 512), [0; 512]);
    }
    let mut client = Client::connected(&served.path(), "disk", true);
    disk.bad.store(3, Ordering::Relaxed);
    client.send(command::READ, 0, 1, 3 * 4096, 512, &[]);
    assert_eq!(client.reply(0).words, "block 3 is bad");
    soon("all frames come home", || disk.all_frames_free());
}

#[test]
fn requests_larger_than_the_pool_are_split() {
    for structured in [false, true] {
        let ram = Arc::new(RamDisk::new(BLOCKS, 4, 4));
        let served = Served::of(LateDisk::new(Arc::clone(&ram), Duration::ZERO));
        let mut client = Client::connected(&served.path(), "disk", structured);
        let bytes = pattern(9, 4 << 20);
        assert_eq!(client.write(0, &bytes), 0);
        assert!(client.read(0, 4 << 20) == bytes);
        assert_eq!(client.write(777, &bytes[..1 << 20]), 0);
        assert!(client.read(777, 1 << 20) == bytes[..1 << 20]);
        drop(served);
        assert!(ram.all_frames_free());
    }
}
