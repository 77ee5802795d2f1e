//! Full is not dead (promise 7): volumes without space, and media without room.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod common;

use common::{Client, create, open, small};
use std::sync::Arc;
use vellum_core::format::areas::Layout;
use vellum_device::block::{BlockDevice, BlockError, Op};
use vellum_device::frames::Quota;
use vellum_device::{CreateOptions, Volume};
use vellum_medium::{FaultMedium, Medium, MemoryMedium, Plan};

#[test]
fn a_full_volume_refuses_writes_and_comes_back() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(3000));
    // Thin: it promises more than there is.
    let options = vellum_device::CreateOptions {
        segment_blocks: Some(64),
        logical_blocks: Some(8000),
        ..Default::default()
    };
    Volume::create(&*medium, &options).unwrap();
    let volume = open(&medium);
    let mut client = Client::new(&volume);
    let mut written = 0;
    let full = loop {
        match client.write(written, &[written + 1]) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 3000);
    };
    assert!(matches!(full, BlockError::Full), "{full}");
    assert!(written > 1500, "{written}");
    client.flush().unwrap();
    for lba in 0..written {
        assert_eq!(client.read(lba, 1).unwrap(), [lba + 1]);
    }
    // The present blocks can be overwritten, and space becomes free again.
    for lba in 0..200 {
        client.write(lba, &[lba + 1_000_000]).unwrap();
    }
    client.discard(0, 200).unwrap();
    for lba in 7000..7100 {
        client.write(lba, &[lba]).unwrap();
    }
    volume.stop().unwrap();
    drop(client);
    drop(volume);
    let volume = open(&medium);
    let mut client = Client::new(&volume);
    assert_eq!(client.read(199, 2).unwrap(), [0, 201]);
    assert_eq!(client.read(7099, 2).unwrap(), [7099, 0]);
}

#[test]
fn a_full_medium_is_waited_for() {
    let medium = Arc::new(FaultMedium::over_memory(3000, Plan::default()));
    create(&*medium);
    let as_medium: Arc<dyn Medium> = medium.clone();
    let volume = open(&as_medium);
    let mut client = Client::new(&volume);
    client.write(1, &[11]).unwrap();
    medium.set_full(true);
    let flush = client.request(Op::Flush, 0, 0);
    let tag = client.submit(vec![flush])[0];
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(client.read(1, 1).unwrap(), [11]);
    medium.set_full(false);
    // Either answer is right; what matters is that the volume lives and has lost nothing.
    let _ = client.sink.wait(tag);
    let began = std::time::Instant::now();
    while client.write(2, &[22]).is_err() {
        assert!(began.elapsed().as_secs() < 60, "room is found again");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    client.flush().unwrap();
    assert!(!volume.stats().poisoned);
    drop(client);
    drop(volume);
    let volume = open(&as_medium);
    assert_eq!(Client::new(&volume).read(1, 2).unwrap(), [11, 22]);
}

/// Writes that wait for room hold the whole write buffer: further writes are refused with that reason, however often it happens.
#[test]
fn a_full_medium_that_holds_the_write_buffer_refuses_and_serves_reads() {
    for layout in [Layout::Log, Layout::Ordered, Layout::Shadow] {
        let medium = Arc::new(FaultMedium::over_memory(16_000, Plan::default()));
        let options = CreateOptions {
            layout,
            ..CreateOptions::default()
        };
        Volume::create(&*medium, &options).unwrap();
        let as_medium: Arc<dyn Medium> = medium.clone();
        let volume = Arc::new(Volume::open(as_medium.clone(), &small()).unwrap());
        let mut client = Client::new(&volume);
        let capacity = volume.frames().capacity(Quota::Write) as u64;
        let run = capacity / 4;
        let values: Vec<u64> = (1..=run).collect();
        for spell in 0..3 {
            client.write(8000, &[spell + 1]).unwrap();
            client.flush().unwrap();
            medium.set_full(true);
            let mut taken = 0;
            let refused = loop {
                match client.write(taken * run, &values) {
                    Ok(()) => taken += 1,
                    Err(error) => break error,
                }
                assert!(taken < 8, "{layout:?}: the buffer has no more");
            };
            assert!(
                matches!(refused, BlockError::NoRoom),
                "{layout:?}: {refused}"
            );
            for _ in 0..8 {
                assert!(matches!(client.write(0, &values), Err(BlockError::NoRoom)));
                assert!(matches!(client.write(0, &[5]), Err(BlockError::NoRoom)));
            }
            assert_eq!(client.read(8000, 1).unwrap(), [spell + 1], "{layout:?}");
            medium.set_full(false);
            let began = std::time::Instant::now();
            while client.write(taken * run, &values).is_err() {
                assert!(began.elapsed().as_secs() < 60, "room is found again");
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            client.flush().unwrap();
            for part in 0..=taken {
                assert_eq!(client.read(part * run, run).unwrap(), values, "{layout:?}");
            }
        }
        volume.stop().unwrap();
    }
}

#[test]
fn a_stop_that_waits_for_room_says_so_and_ends_when_there_is_some() {
    for layout in [Layout::Log, Layout::Ordered, Layout::Shadow] {
        let medium = Arc::new(FaultMedium::over_memory(3000, Plan::default()));
        let options = CreateOptions {
            layout,
            ..CreateOptions::default()
        };
        Volume::create(&*medium, &options).unwrap();
        let as_medium: Arc<dyn Medium> = medium.clone();
        let volume = open(&as_medium);
        let mut client = Client::new(&volume);
        client.write(1, &[11]).unwrap();
        medium.set_full(true);
        drop(client);
        let mut told = 0;
        let waits = || {
            told += 1;
            medium.set_full(false);
        };
        volume.stop_telling(waits).unwrap();
        assert_eq!(told, 1, "{layout:?}");
        drop(volume);
        let volume = open(&as_medium);
        assert_eq!(Client::new(&volume).read(1, 1).unwrap(), [11]);
    }
}
