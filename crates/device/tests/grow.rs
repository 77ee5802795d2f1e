//! A volume that grows keeps its contents, whatever interrupts it, and has room for more.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{
    Client, Model, assert_sound, copy, create, create_as, holds, open_packing, stop_sound,
    superblock_of,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_core::format::areas::Layout;
use vellum_core::format::superblock::Superblock;
use vellum_device::block::BlockDevice;
use vellum_device::frames::Quota;
use vellum_device::pack::Compression;
use vellum_device::{GrowError, Growable, NewSize, Volume, crc32c, grow_at_rest};
use vellum_medium::{FaultMedium, Medium, MemoryMedium, Plan};

const BLOCKS: u64 = 3000;
const GROWN: u64 = 5200;

fn open(medium: &Arc<dyn Medium>) -> Arc<Volume> {
    open_packing(medium, Compression::Lz4)
}

/// Writes blocks that are stored whole, blocks that share pages, and deltas; then rewrites some of them.
fn fill(volume: &Arc<Volume>, model: &mut Model, seed: u64) {
    let mut client = Client::new(volume);
    let blocks = volume.blocks();
    for step in 0..400 {
        let lba = (step * 7919 + seed * 31) % (blocks - 4);
        let fills: Vec<u64> = (0..3).map(|n| 1 + seed + step * 3 + n).collect();
        client.write(lba, &fills).unwrap();
        model.extend((lba..).zip(fills));
        if step % 50 == 49 {
            client.flush().unwrap();
        }
    }
    client.write(blocks - 1, &[seed + 5]).unwrap();
    model.insert(blocks - 1, seed + 5);
    client.flush().unwrap();
}

/// A volume with data, and its contents. It is not stopped, so its log has to be replayed.
fn filled() -> (MemoryMedium, Model) {
    let medium: Arc<MemoryMedium> = Arc::new(MemoryMedium::new(BLOCKS));
    create(&*medium);
    let mut model = Model::new();
    let served: Arc<dyn Medium> = medium.clone();
    let volume = open(&served);
    fill(&volume, &mut model, 1);
    drop(volume);
    drop(served);
    (Arc::into_inner(medium).unwrap(), model)
}

#[test]
fn old_contents_stay_and_new_blocks_can_be_written() {
    let (small, mut model) = filled();
    let mut before: Arc<dyn Medium> = Arc::new(small);
    for blocks in [GROWN, GROWN + 700, 40_000] {
        let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(blocks));
        copy(&*before, &*medium);
        let had = superblock_of(&*medium).logical_blocks();
        let grown = grow_at_rest(&medium, NewSize::default()).unwrap();
        assert!(grown.logical_blocks() > had);
        assert_eq!(superblock_of(&*medium), grown);
        assert_sound(&*medium);
        let volume = open(&medium);
        assert_eq!(volume.blocks(), grown.logical_blocks());
        holds(&volume, &model);
        fill(&volume, &mut model, blocks);
        holds(&volume, &model);
        // As in a crash.
        drop(volume);
        let volume = open(&medium);
        holds(&volume, &model);
        stop_sound(&volume, &*medium);
        before = medium;
    }
}

/// A medium that has grown, with a volume on it that has not, stopped cleanly.
fn on_longer(small: &dyn Medium, seed: u64) -> Arc<FaultMedium> {
    let fault = Arc::new(FaultMedium::over_memory(GROWN, Plan::seeded(seed)));
    copy(small, &*fault);
    let medium: Arc<dyn Medium> = fault.clone();
    // Other tests cover its opening and its stop.
    open(&medium).stop().unwrap();
    fault
}

#[test]
fn growth_cut_short_leaves_the_old_volume_or_the_grown_one() {
    let (small, model) = filled();
    let before = superblock_of(&small).logical_blocks();
    let whole = on_longer(&small, 0);
    let idle = whole.stats().ios;
    grow_at_rest(&(whole.clone() as _), NewSize::default()).unwrap();
    // The last steps write the superblocks: the power fails after each of these, and after some of the others.
    let steps = whole.stats().ios - idle;
    let cuts = (0..steps - 20).step_by(7).chain(steps - 20..steps + 100);
    let mut outcomes = [0, 0];
    for cut_after in cuts {
        let fault = on_longer(&small, cut_after);
        let medium: Arc<dyn Medium> = fault.clone();
        fault.set_plan(Plan::seeded(cut_after).with_cut_after(cut_after));
        let result = grow_at_rest(&medium, NewSize::default());
        let was_cut = fault.is_off();
        assert_eq!(result.is_err(), was_cut, "{result:?}");
        fault.restart();
        fault.set_plan(Plan::seeded(cut_after));
        let volume = open(&medium);
        let mut model = model.clone();
        holds(&volume, &model);
        fill(&volume, &mut model, cut_after);
        outcomes[usize::from(volume.blocks() > before)] += u64::from(was_cut);
        let (size, grew) = (volume.blocks(), volume.blocks() > before);
        drop(volume);
        // If the first block is lost one day, what the last one says is right.
        let mut last = [0; BLOCK_BYTES];
        medium.read(Pba(GROWN - 1), &mut last).unwrap();
        let says = Superblock::decode(&last, GROWN, crc32c);
        assert!(says.is_ok() || !grew, "{cut_after}: {says:?}");
        if let Ok(says) = says {
            assert_eq!(says.logical_blocks(), size, "{cut_after}");
            medium.write(Pba(0), &[0; BLOCK_BYTES]).unwrap();
            holds(&open(&medium), &model);
        }
        if !was_cut {
            break;
        }
    }
    let [before, grown] = outcomes;
    assert!(before > 10 && grown > 0, "{outcomes:?}");
}

#[test]
fn clients_do_not_notice_that_it_grows() {
    const WRITERS: u64 = 3;
    let (small, _) = filled();
    let medium = Arc::new(FaultMedium::over_memory(40_000, Plan::seeded(7)));
    copy(&small, &*medium);
    let served: Arc<dyn Medium> = medium.clone();
    // It begins on a part of its medium.
    let device = Arc::new(Growable::open(Arc::clone(&served), &common::small()).unwrap());
    let first = device.blocks();
    let run = first / WRITERS;
    let stop = AtomicBool::new(false);
    let synced = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (device, stop) = (&device, &stop);
                scope.spawn(move || {
                    let mut client = Client::new(device);
                    let mut synced = Model::new();
                    let mut round = 0;
                    while !stop.load(Ordering::Relaxed) || round < 20 {
                        let lba = writer * run + round * 13 % (run - 8);
                        let fills: Vec<u64> = (1..8).map(|n| writer + round * 10 + n).collect();
                        client.write(lba, &fills).unwrap();
                        synced.extend((lba..).zip(fills));
                        let (lba, fill) = synced.iter().nth(round as usize % synced.len()).unwrap();
                        assert_eq!(client.read(*lba, 1).unwrap(), [*fill]);
                        client.flush().unwrap();
                        round += 1;
                    }
                    synced
                })
            })
            .collect();
        for blocks in [first + 500, first + 1500, first + 9000] {
            let size = NewSize {
                medium_blocks: None,
                logical_blocks: Some(blocks),
            };
            // A volume that has all of its medium cannot grow further.
            let grown = device.grow(size, &common::small());
            assert_eq!(grown.is_ok(), blocks == first + 500, "{grown:?}");
        }
        stop.store(true, Ordering::Relaxed);
        let synced = writers.into_iter().map(|writer| writer.join().unwrap());
        synced.flatten().collect::<Model>()
    });
    assert_eq!(device.blocks(), first + 500);
    drop(device);
    medium.power_cut(7);
    medium.restart();
    let volume = open(&served);
    let mut client = Client::new(&volume);
    for (lba, fill) in synced {
        assert_eq!(client.read(lba, 1).unwrap(), [fill], "LBA {lba}");
    }
    drop(volume);
    assert_sound(&*medium);
}

/// A write that has to wait for memory after the growth waits. It is not told that the volume is stopping: that was the old one.
#[test]
fn writes_wait_for_memory_after_it_has_grown() {
    let (small, _) = filled();
    let medium: Arc<dyn Medium> = on_longer(&small, 1);
    let options = vellum_device::OpenOptions::default();
    let growable = Growable::open(medium, &options).unwrap();
    growable.grow(NewSize::default(), &options).unwrap();
    let frames = growable.frames();
    let all = frames
        .take(Quota::Write, frames.capacity(Quota::Write))
        .unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| frames.take(Quota::Write, 1));
        std::thread::sleep(std::time::Duration::from_millis(50));
        drop(all);
        assert!(waits.join().unwrap().is_ok());
    });
}

#[test]
fn impossible_growth_is_refused_and_changes_nothing() {
    let (small, model) = filled();
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(GROWN));
    copy(&small, &*medium);
    let found = superblock_of(&*medium);
    for logical in [1, found.logical_blocks() - 1, u64::MAX] {
        let size = NewSize {
            logical_blocks: Some(logical),
            ..NewSize::default()
        };
        let error = grow_at_rest(&medium, size).unwrap_err();
        assert!(matches!(error, GrowError::Grow(_)), "{error}");
    }
    assert_eq!(superblock_of(&*medium), found);
    holds(&open(&medium), &model);
    let same: Arc<dyn Medium> = Arc::new(small);
    let error = grow_at_rest(&same, NewSize::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("at least"), "{error}");
    let tables: Arc<dyn Medium> = Arc::new(MemoryMedium::new(BLOCKS));
    create_as(&*tables, Layout::Shadow);
    let error = grow_at_rest(&tables, NewSize::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("vellum migrate"), "{error}");
    let nothing: Arc<dyn Medium> = Arc::new(MemoryMedium::new(BLOCKS));
    assert!(matches!(
        grow_at_rest(&nothing, NewSize::default()),
        Err(GrowError::Recovery(_))
    ));
}
