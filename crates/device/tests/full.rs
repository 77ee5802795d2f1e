//! Full is not dead (promise 7): volumes without space, and media without room.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod common;

use common::{Client, copy, create, open, small};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vellum_core::format::areas::Layout;
use vellum_device::block::{BlockDevice, BlockError, Op};
use vellum_device::frames::Quota;
use vellum_device::{
    CreateOptions, GrowError, Growable, NewSize, OpenOptions, ShrinkError, Volume,
};
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

/// A volume in use on a part of a medium that may become full.
fn served(options: &OpenOptions) -> (Arc<FaultMedium>, Arc<Growable>, Client<Growable>) {
    let small = MemoryMedium::new(16_000);
    create(&small);
    let medium = Arc::new(FaultMedium::over_memory(20_000, Plan::default()));
    copy(&small, &*medium);
    let device = Arc::new(Growable::open(medium.clone(), options).unwrap());
    let mut client = Client::new(&device);
    client.write(8000, &[1]).unwrap();
    client.flush().unwrap();
    // A test that would wait for ever fails then.
    let in_the_end = Arc::clone(&medium);
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(30));
        in_the_end.set_full(false);
    });
    (medium, device, client)
}

/// It would wait for room while everybody waits for it.
#[test]
fn a_volume_without_room_below_keeps_its_size() {
    let (medium, device, mut client) = served(&small());
    let run = device.frames().capacity(Quota::Write) as u64 / 4;
    let values: Vec<u64> = (1..=run).collect();
    medium.set_full(true);
    let taken = (0..8).find(|taken| client.write(taken * run, &values).is_err());
    let taken = taken.expect("the buffer has no more");
    let began = Instant::now();
    let grown = device.grow(NewSize::default(), &small());
    assert!(matches!(grown, Err(GrowError::NoRoom)), "{grown:?}");
    let shrunk = device.shrink(device.blocks() - 10, &small());
    assert!(matches!(shrunk, Err(ShrinkError::NoRoom)), "{shrunk:?}");
    assert_eq!(client.read(8000, 1).unwrap(), [1]);
    assert!(began.elapsed() < Duration::from_secs(5), "it waited");
    medium.set_full(false);
    while client.write(taken * run, &values).is_err() {
        assert!(began.elapsed() < Duration::from_secs(60), "no room");
        std::thread::sleep(Duration::from_millis(20));
    }
    client.flush().unwrap();
    let before = device.blocks();
    device.grow(NewSize::default(), &small()).unwrap();
    assert!(device.blocks() > before);
    for part in 0..=taken {
        assert_eq!(client.read(part * run, run).unwrap(), values);
    }
}

#[test]
fn a_volume_that_waits_for_room_to_get_its_new_size_says_so() {
    let full = Arc::new(parking_lot::Mutex::new(None::<Arc<FaultMedium>>));
    let found = Arc::clone(&full);
    let options = OpenOptions {
        on_event: Some(Arc::new(move |event| {
            if event.kind == "resize"
                && let Some(medium) = found.lock().take()
            {
                medium.set_full(false);
            }
        })),
        ..small()
    };
    let (medium, device, mut client) = served(&options);
    *full.lock() = Some(Arc::clone(&medium));
    client.write(9000, &[2]).unwrap();
    medium.set_full(true);
    device.grow(NewSize::default(), &options).unwrap();
    assert!(full.lock().is_none(), "it did not wait");
    assert_eq!(client.read(9000, 1).unwrap(), [2]);
}
