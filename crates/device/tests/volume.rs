//! A volume against a model: reads return what was written, in order, with many clients at once, and after a stop.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Client, Random, assert_sound, block_of, create, fills, open, small, stop_sound};
use proptest::prelude::*;
use std::sync::Arc;
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_core::format::areas::Layout;
use vellum_device::block::{BlockDevice, BlockError, Op};
use vellum_device::{CreateError, CreateOptions, OpenError, OpenOptions, Volume};
use vellum_medium::{FileMedium, Medium, MemoryMedium};

const BLOCKS: u64 = 600;

#[derive(Clone, Debug)]
enum Step {
    Write(u64, Vec<u64>, bool),
    Read(u64, u64),
    Discard(u64, u64),
    Zeroes(u64, u64, bool),
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    let range = (0..BLOCKS, 1..20u64).prop_map(|(lba, blocks)| (lba, blocks.min(BLOCKS - lba)));
    let fill = prop_oneof![1 => Just(0u64), 6 => 1..u64::MAX];
    let fills = prop::collection::vec(fill, 1..12);
    let write = (0..BLOCKS, fills, prop::bool::weighted(0.1));
    prop_oneof![
        6 => write.prop_map(|(lba, mut fills, fua)| {
            fills.truncate((BLOCKS - lba) as usize);
            Step::Write(lba, fills, fua)
        }),
        4 => range.clone().prop_map(|(lba, blocks)| Step::Read(lba, blocks)),
        1 => range.clone().prop_map(|(lba, blocks)| Step::Discard(lba, blocks)),
        1 => (range, any::<bool>()).prop_map(|((lba, blocks), fua)| Step::Zeroes(lba, blocks, fua)),
        1 => Just(Step::Flush),
    ]
}

/// Submits the steps in batches, without waiting in between, and then compares each read with the model as it was at that step:
/// requests start in order, so a read sees every write before it and none after.
fn run(client: &mut Client, model: &mut [u64], batches: &[Vec<Step>]) {
    let mut expected = Vec::new();
    for batch in batches {
        let mut requests = Vec::new();
        for step in batch {
            let (request, want) = match step {
                Step::Write(lba, fills, fua) => {
                    model[*lba as usize..][..fills.len()].copy_from_slice(fills);
                    (client.write_request(*lba, fills, *fua), None)
                }
                Step::Read(lba, blocks) => {
                    let want = model[*lba as usize..][..*blocks as usize].to_vec();
                    (client.request(Op::Read, *lba, *blocks), Some(want))
                }
                Step::Discard(lba, blocks) => {
                    model[*lba as usize..][..*blocks as usize].fill(0);
                    (
                        client.request(Op::Discard { fua: false }, *lba, *blocks),
                        None,
                    )
                }
                Step::Zeroes(lba, blocks, fua) => {
                    model[*lba as usize..][..*blocks as usize].fill(0);
                    (
                        client.request(Op::WriteZeroes { fua: *fua }, *lba, *blocks),
                        None,
                    )
                }
                Step::Flush => (client.request(Op::Flush, 0, 0), None),
            };
            expected.push((request.tag, want));
            requests.push(request);
        }
        client.submit(requests);
        if expected.len() > 12 {
            settle(client, &mut expected);
        }
    }
    settle(client, &mut expected);
}

fn settle(client: &Client, expected: &mut Vec<(u64, Option<Vec<u64>>)>) {
    for (tag, want) in expected.drain(..) {
        let request = client.sink.wait(tag).unwrap();
        if let Some(want) = want {
            assert_eq!(
                fills(&request),
                want,
                "read of {}+{}",
                request.lba,
                request.blocks
            );
        }
    }
}

fn compare(client: &mut Client, model: &[u64]) {
    for (index, chunk) in model.chunks(50).enumerate() {
        assert_eq!(
            client.read(index as u64 * 50, chunk.len() as u64).unwrap(),
            chunk
        );
    }
}

fn batches() -> impl Strategy<Value = Vec<Vec<Step>>> {
    prop::collection::vec(prop::collection::vec(step(), 1..8), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn reads_are_what_was_written_before_them(first in batches(), second in batches()) {
        let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(4096));
        create(&*medium);
        let mut model = vec![0; BLOCKS as usize];
        for steps in [&first, &second] {
            let volume = open(&medium);
            let mut client = Client::new(&volume);
            compare(&mut client, &model);
            run(&mut client, &mut model, steps);
            compare(&mut client, &model);
            volume.stop().unwrap();
            stop_sound(&volume, &*medium);
        }
        let volume = open(&medium);
        prop_assert_eq!(volume.stats().recovery.chunks, 0, "a clean stop leaves nothing to replay");
        compare(&mut Client::new(&volume), &model);
    }
}

#[test]
fn a_file_holds_a_volume() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume");
    let mut model = vec![0; BLOCKS as usize];
    {
        let medium =
            FileMedium::create(&path, 4096 * 4096, vellum_medium::Prealloc::Sparse).unwrap();
        create(&medium);
    }
    for seed in 0..2u64 {
        let medium = FileMedium::open(&path, vellum_medium::OpenOptions::default()).unwrap();
        let medium: Arc<dyn Medium> = Arc::new(medium);
        let volume = open(&medium);
        let mut client = Client::new(&volume);
        compare(&mut client, &model);
        let mut random = Random(seed);
        for n in 0..300 {
            let (lba, fill) = (random.below(BLOCKS - 4), random.below(1 << 40));
            let fills = [fill, fill + 1, fill + 2, fill + 3];
            client.write(lba, &fills).unwrap();
            model[lba as usize..][..4].copy_from_slice(&fills);
            if n % 50 == 0 {
                client.flush().unwrap();
            }
        }
        compare(&mut client, &model);
        volume.stop().unwrap();
        let stats = volume.stats();
        assert!(
            stats.medium.written_bytes > 0 && stats.medium.in_flight == 0,
            "{stats:?}"
        );
    }
}

#[test]
fn many_threads_each_see_their_own() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(8192));
    create(&*medium);
    let volume = open(&medium);
    let threads: Vec<_> = (0..4u64)
        .map(|thread| {
            let volume = Arc::clone(&volume);
            std::thread::spawn(move || {
                let mut client = Client::new(&volume);
                let mut random = Random(thread);
                let first = thread * 700;
                let mut model = vec![0u64; 700];
                for round in 0..600u64 {
                    let at = random.below(690) as usize;
                    let len = 1 + random.below(10) as usize;
                    match random.below(10) {
                        0 => {
                            client.discard(first + at as u64, len as u64).unwrap();
                            model[at..at + len].fill(0);
                        }
                        1 => client.flush().unwrap(),
                        2..=5 => {
                            let read = client.read(first + at as u64, len as u64).unwrap();
                            assert_eq!(read, &model[at..at + len]);
                        }
                        _ => {
                            let fills: Vec<u64> = (0..len as u64)
                                .map(|i| (thread << 40) + (round << 8) + i + 1)
                                .collect();
                            client.write(first + at as u64, &fills).unwrap();
                            model[at..at + len].copy_from_slice(&fills);
                        }
                    }
                }
                model
            })
        })
        .collect();
    let model: Vec<u64> = threads
        .into_iter()
        .flat_map(|thread| thread.join().unwrap())
        .collect();
    volume.stop().unwrap();
    let volume = open(&medium);
    compare(&mut Client::new(&volume), &model);
}

/// The smallest buffers, requests of a quarter of them, a volume nearly full: no request waits forever.
#[test]
fn large_requests_on_small_buffers_go_through() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(4096));
    create(&*medium);
    let volume = open(&medium);
    let each = volume.blocks() / 4 / 250 * 250;
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let volume = Arc::clone(&volume);
            scope.spawn(move || {
                let mut client = Client::new(&volume);
                for round in 0..12u64 {
                    for at in (0..each).step_by(250) {
                        let fills: Vec<u64> = (1..=250).map(|n| (round << 32) + at + n).collect();
                        client.write(thread * each + at, &fills).unwrap();
                    }
                }
                for at in (0..each).step_by(250) {
                    let fills: Vec<u64> = (1..=250).map(|n| (11 << 32) + at + n).collect();
                    assert_eq!(client.read(thread * each + at, 250).unwrap(), fills);
                }
            });
        }
    });
    stop_sound(&volume, &*medium);
}

/// What was acknowledged before or during a stop is present afterwards; the rest is refused.
#[test]
fn a_stop_under_load_loses_nothing_acknowledged() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(4096));
    create(&*medium);
    for life in 1..6u64 {
        let volume = open(&medium);
        let writers: Vec<_> = (0..3u64)
            .map(|thread| {
                let volume = Arc::clone(&volume);
                std::thread::spawn(move || {
                    let mut client = Client::new(&volume);
                    for n in 1.. {
                        match client.write(thread * 100 + n % 100, &[(life << 32) + n]) {
                            Ok(()) => {}
                            Err(BlockError::Stopping) => return n - 1,
                            Err(error) => panic!("{error}"),
                        }
                    }
                    0
                })
            })
            .collect();
        std::thread::sleep(std::time::Duration::from_millis(10));
        volume.stop().unwrap();
        let written: Vec<u64> = writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect();
        drop(volume);
        let volume = open(&medium);
        let mut client = Client::new(&volume);
        for (thread, &last) in written.iter().enumerate() {
            let read = client.read(thread as u64 * 100, 100).unwrap();
            let newest = read
                .iter()
                .filter(|&&fill| fill >> 32 == life)
                .max()
                .copied();
            assert_eq!(newest.map_or(0, |fill| fill & 0xffff_ffff), last);
        }
        stop_sound(&volume, &*medium);
    }
}

#[test]
fn an_idle_volume_sleeps() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(4096));
    create(&*medium);
    let volume = open(&medium);
    let mut client = Client::new(&volume);
    for n in 1..500 {
        client.write(n, &[n]).unwrap();
    }
    client.flush().unwrap();
    // At first it may still have something to do.
    common::wait_for(&volume, "one look at the clock at most", |volume| {
        let before = volume.stats().wakeups;
        std::thread::sleep(std::time::Duration::from_millis(600));
        volume.stats().wakeups <= before + 1
    });
}

#[test]
fn bad_requests_get_their_errors() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(4096));
    create(&*medium);
    let volume = open(&medium);
    let mut client = Client::new(&volume);
    let size = volume.blocks();
    for lba in [size, size - 1, u64::MAX] {
        let refused = client.read(lba, 2);
        assert!(
            matches!(refused, Err(BlockError::OutOfRange { blocks: 2, .. })),
            "{refused:?}"
        );
        assert!(matches!(
            client.write(lba, &[1, 2]),
            Err(BlockError::OutOfRange { .. })
        ));
        assert!(matches!(
            client.discard(lba, 2),
            Err(BlockError::OutOfRange { .. })
        ));
    }
    let mut odd = client.request(Op::Read, 0, 2);
    odd.blocks = 3;
    assert!(matches!(client.call(odd), Err(BlockError::Io(_))));
    assert!(client.read(0, 0).unwrap().is_empty());
    client.write(size - 1, &[7]).unwrap();
    assert_eq!(client.read(size - 1, 1).unwrap(), [7]);
    volume.stop().unwrap();
    assert!(matches!(client.read(0, 1), Err(BlockError::Stopping)));
    assert!(matches!(client.write(0, &[1]), Err(BlockError::Stopping)));
    assert!(matches!(client.flush(), Err(BlockError::Stopping)));
}

#[test]
fn read_only_writes_nothing() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(4096));
    create(&*medium);
    let volume = open(&medium);
    Client::new(&volume).write(3, &[1, 2, 3]).unwrap();
    Client::new(&volume).flush().unwrap();
    // As after a crash: there is a log to replay, which is not written back.
    drop(volume);
    let image = |medium: &dyn Medium| {
        let mut bytes = vec![0; 4096 * 4096];
        medium.read(Pba(0), &mut bytes).unwrap();
        bytes
    };
    let before = image(&*medium);
    let options = OpenOptions {
        read_only: true,
        ..small()
    };
    let volume = Arc::new(Volume::open(Arc::clone(&medium), &options).unwrap());
    assert!(volume.read_only() && volume.stats().recovery.chunks > 0);
    let mut client = Client::new(&volume);
    assert_eq!(client.read(2, 5).unwrap(), [0, 1, 2, 3, 0]);
    assert!(matches!(client.write(3, &[9]), Err(BlockError::ReadOnly)));
    assert!(matches!(client.discard(3, 1), Err(BlockError::ReadOnly)));
    client.flush().unwrap();
    volume.stop().unwrap();
    assert!(image(&*medium) == before);
}

#[test]
fn a_medium_without_a_volume_is_named_as_such() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(4096));
    let error = Volume::open(Arc::clone(&medium), &small()).unwrap_err();
    assert!(error.to_string().contains("not a vellum volume"), "{error}");
    create(&*medium);
    let refused = Volume::create(&*medium, &CreateOptions::default());
    assert!(
        matches!(refused, Err(CreateError::Exists { .. })),
        "{refused:?}"
    );
    let other = MemoryMedium::new(4096);
    let mut ext4 = [0; BLOCK_BYTES];
    ext4[1080..1082].copy_from_slice(&[0x53, 0xef]);
    other.write(Pba(0), &ext4).unwrap();
    let options = CreateOptions::default();
    let refused = Volume::create(&other, &options);
    let offset = 1080;
    assert!(
        matches!(&refused, Err(CreateError::NotBlank { offset: at, .. }) if *at == offset),
        "{refused:?}"
    );
    let forced = CreateOptions {
        force: true,
        ..options
    };
    Volume::create(&other, &forced).unwrap();
    let tiny = Volume::create(&MemoryMedium::new(100), &CreateOptions::default());
    assert!(matches!(tiny, Err(CreateError::Geometry { .. })));
    let options = OpenOptions {
        write_frames: 1,
        ..small()
    };
    assert!(matches!(
        Volume::open(medium, &options),
        Err(OpenError::Frames { .. })
    ));
}

#[test]
fn either_mirror_is_enough_and_is_repaired() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(4096));
    create(&*medium);
    for mirror in [0, 4095] {
        medium.write(Pba(mirror), &block_of(1)).unwrap();
        let volume = open(&medium);
        assert!(volume.stats().recovery.mirror_lost);
        volume.stop().unwrap();
        let volume = open(&medium);
        assert!(!volume.stats().recovery.mirror_lost);
        volume.stop().unwrap();
    }
}

#[test]
fn extents_tell_what_is_mapped() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(4096));
    create(&*medium);
    let volume = open(&medium);
    let mut client = Client::new(&volume);
    client.write(10, &[1, 2, 3]).unwrap();
    let extents = volume.extents(vellum_core::addr::Lba(0), 20, 10);
    let seen: Vec<_> = extents
        .iter()
        .map(|extent| (extent.blocks, extent.mapped))
        .collect();
    assert_eq!(seen, [(10, false), (3, true), (7, false)]);
}

/// One piece holds the volume's lock for a moment, however large the volume is.
#[test]
fn extents_of_a_large_volume_come_in_pieces() {
    for layout in [Layout::Log, Layout::Ordered] {
        let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(1 << 19));
        let blocks = 6 << 20;
        let options = CreateOptions {
            logical_blocks: Some(blocks),
            layout,
            ..CreateOptions::default()
        };
        Volume::create(&*medium, &options).unwrap();
        let volume = open(&medium);
        let mut client = Client::new(&volume);
        client.write(blocks - 2, &[1]).unwrap();
        let (mut at, mut pieces, mut mapped) = (0, 0, Vec::new());
        while at < blocks {
            for extent in volume.extents(vellum_core::addr::Lba(at), blocks - at, 64) {
                if extent.mapped {
                    mapped.push((at, extent.blocks));
                }
                at += extent.blocks;
            }
            pieces += 1;
        }
        assert_eq!((at, mapped), (blocks, vec![(blocks - 2, 1)]));
        assert!((2..10).contains(&pieces), "{layout:?}: {pieces} pieces");
        // In tables each block of data is examined.
        for n in 0..5 {
            client.write(n * 600, &[7; 600]).unwrap();
        }
        let first = volume.extents(vellum_core::addr::Lba(0), blocks, 64)[0];
        let seen = if layout == Layout::Log { 3000 } else { 1024 };
        assert_eq!((first.blocks, first.mapped), (seen, true), "{layout:?}");
    }
}

#[test]
fn statistics_add_up_and_serialise() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(4096));
    create(&*medium);
    let volume = open(&medium);
    let mut client = Client::new(&volume);
    client.write(0, &[1, 2, 3]).unwrap();
    client.read(0, 2).unwrap();
    client.discard(1, 1).unwrap();
    client.flush().unwrap();
    volume.stop().unwrap();
    let stats = volume.stats();
    assert_eq!(
        (stats.clients.write.requests, stats.clients.write.bytes),
        (1, 3 * 4096)
    );
    assert_eq!(
        (stats.clients.read.bytes, stats.clients.flush.requests),
        (2 * 4096, 1)
    );
    let medium = stats.medium;
    let written = medium.by_cause;
    let causes = written.data_bytes
        + written.header_bytes
        + written.moved_bytes
        + written.summary_bytes
        + written.map_bytes;
    assert_eq!(medium.written_bytes, causes, "{medium:?}");
    let frames = stats.memory;
    assert_eq!(frames.write_frames, frames.write_frames_free);
    let json = serde_json::to_string(&stats).unwrap();
    let back: vellum_device::stats::VolumeStats = serde_json::from_str(&json).unwrap();
    assert_eq!(back, stats);
}

#[test]
fn discarded_space_is_not_discarded_again() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(4096));
    create(&*medium);
    let options = OpenOptions {
        discard: Some(true),
        ..small()
    };
    let open = || Arc::new(Volume::open(Arc::clone(&medium), &options).unwrap());
    let discards = |volume: &Volume| {
        volume.stop().unwrap();
        volume.stats().medium.discards
    };
    let volume = open();
    let mut client = Client::new(&volume);
    client.write(0, &[1; 64]).unwrap();
    // Nothing is known about a new one: all of it is discarded, in long runs.
    assert!((1..=4).contains(&discards(&volume)));
    drop((client, volume));
    assert_eq!(discards(&open()), 0);
    let volume = open();
    let mut client = Client::new(&volume);
    for round in 1..5 {
        for lba in (0..640).step_by(64) {
            client.write(lba, &[round; 64]).unwrap();
        }
    }
    client.flush().unwrap();
    // The blocks that it has used since.
    assert!((1..=40).contains(&discards(&volume)));
    drop((client, volume));
    let volume = open();
    let mut client = Client::new(&volume);
    assert_eq!(client.read(600, 4).unwrap(), [4; 4]);
    client.write(0, &[9]).unwrap();
    client.flush().unwrap();
    // As after a crash: it is not known what was freed before.
    drop((client, volume));
    assert!(discards(&open()) > 0);
    assert_sound(&*medium);
}
