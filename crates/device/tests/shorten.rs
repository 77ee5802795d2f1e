//! A volume whose medium becomes shorter keeps its contents, whatever interrupts it, and the medium's end is free.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{
    Client, Model, assert_sound, copy, create_as, create_keeping, holds, open, open_packing,
    stop_sound, superblock_of,
};
use std::sync::Arc;
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_core::format::areas::Layout;
use vellum_core::format::superblock::Superblock;
use vellum_core::shorten::ShortenError as Core;
use vellum_device::block::BlockDevice;
use vellum_device::pack::Compression;
use vellum_device::{
    NewSize, ShortenError, Shortened, Volume, crc32c, grow_at_rest, shorten_at_rest,
};
use vellum_medium::{FaultMedium, FileMedium, Medium, MemoryMedium, OpenOptions, Plan, Prealloc};

const BLOCKS: u64 = 6000;
const SIZE: u64 = 1500;
/// A medium on which there is hardly more room than needed.
const SHORT: u64 = 3000;

/// Writes again and again, so that data is everywhere: whole blocks, pages of parts, and deltas.
fn fill(volume: &Arc<Volume>, model: &mut Model, seed: u64) {
    let mut client = Client::new(volume);
    let blocks = volume.blocks();
    for step in 0..1600 {
        let lba = (step * 7919 + seed * 31) % (blocks - 4);
        let fills: Vec<u64> = (0..3).map(|n| 1 + seed + step * 3 + n).collect();
        client.write(lba, &fills).unwrap();
        model.extend((lba..).zip(fills));
        if step % 50 == 49 {
            client.flush().unwrap();
        }
    }
    client.flush().unwrap();
}

fn open_small(medium: &Arc<dyn Medium>) -> Arc<Volume> {
    open_packing(medium, Compression::Lz4)
}

/// A volume with data everywhere, and its contents. It is not stopped.
fn filled(medium: impl Medium + 'static) -> (Arc<dyn Medium>, Model) {
    let medium: Arc<dyn Medium> = Arc::new(medium);
    create_keeping(&*medium, SIZE, 0);
    let volume = open_small(&medium);
    let mut model = Model::new();
    for seed in [1, 5000, 9000] {
        fill(&volume, &mut model, seed);
    }
    drop(volume);
    (medium, model)
}

fn shorten(medium: &Arc<dyn Medium>, blocks: u64) -> Result<Shortened, ShortenError> {
    shorten_at_rest(medium, blocks, &mut |_| {})
}

/// The fewest blocks that a volume needs, according to the error.
fn least(medium: &Arc<dyn Medium>) -> u64 {
    // The volume is recovered first.
    open(medium).stop().unwrap();
    match shorten(medium, 1).unwrap_err() {
        ShortenError::Shorten(Core::TooLittle { least, .. }) => least,
        other => panic!("{other}"),
    }
}

#[test]
fn a_file_is_cut_off_and_keeps_what_was_behind_its_new_end() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = folder.path().join("volume");
    let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
    let file = FileMedium::create(&path, bytes(BLOCKS), Prealloc::Sparse).unwrap();
    let (medium, mut model) = filled(file);
    let shortened = shorten(&medium, SHORT).unwrap();
    assert!(shortened.is_cut);
    assert_eq!(shortened.superblock.logical_blocks(), SIZE);
    drop(medium);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), bytes(SHORT));
    let file = FileMedium::open(&path, OpenOptions::default()).unwrap();
    let medium: Arc<dyn Medium> = Arc::new(file);
    assert_eq!(superblock_of(&*medium), shortened.superblock);
    assert_sound(&*medium);
    let volume = open_small(&medium);
    holds(&volume, &model);
    fill(&volume, &mut model, 77);
    // As in a crash.
    drop(volume);
    let volume = open_small(&medium);
    holds(&volume, &model);
    stop_sound(&volume, &*medium);
    // What it needs at least is enough, and then it takes the end back, and gives it back again: what leads to data moves.
    let least = least(&medium);
    assert!(least < SHORT);
    shorten(&medium, least).unwrap();
    assert_sound(&*medium);
    let longer = NewSize {
        medium_blocks: Some(BLOCKS),
        logical_blocks: Some(SIZE),
    };
    grow_at_rest(&medium, longer).unwrap();
    let volume = open_small(&medium);
    holds(&volume, &model);
    fill(&volume, &mut model, 99);
    stop_sound(&volume, &*medium);
    let wide = BLOCKS - 1;
    let error = shorten(&medium, wide).unwrap_err().to_string();
    assert!(
        error.contains("moves as a whole: choose at most"),
        "{error}"
    );
    drop(volume);
    let least = self::least(&medium);
    shorten(&medium, least + 64).unwrap();
    assert_sound(&*medium);
    let volume = open_small(&medium);
    holds(&volume, &model);
    fill(&volume, &mut model, 111);
    volume.stop().unwrap();
    holds(&open_small(&medium), &model);
    assert_sound(&*medium);
}

#[test]
fn snapshots_keep_what_they_have() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(BLOCKS));
    create_keeping(&*medium, SIZE, 500);
    let volume = open_small(&medium);
    let mut before = Model::new();
    fill(&volume, &mut before, 3);
    volume.take_snapshot("before", 1).unwrap();
    let mut model = before.clone();
    let mut client = Client::new(&volume);
    for lba in 0..400 {
        client.write(lba * 3, &[lba + 9]).unwrap();
        model.insert(lba * 3, lba + 9);
    }
    client.flush().unwrap();
    drop((client, volume));
    shorten(&medium, 3600).unwrap();
    assert_sound(&*medium);
    let volume = open_small(&medium);
    holds(&volume, &model);
    holds(&Arc::new(volume.seen_at("before").unwrap()), &before);
    drop(volume);
    assert_sound(&*medium);
}

/// A medium on which other tests have covered the opening and the stop.
fn stopped(from: &dyn Medium, seed: u64) -> Arc<FaultMedium> {
    let fault = Arc::new(FaultMedium::over_memory(BLOCKS, Plan::seeded(seed)));
    copy(from, &*fault);
    let medium: Arc<dyn Medium> = fault.clone();
    open_small(&medium).stop().unwrap();
    fault
}

#[test]
fn what_is_cut_short_leaves_the_old_volume_or_the_shorter_one() {
    let (from, model) = filled(MemoryMedium::new(BLOCKS));
    let whole = stopped(&*from, 0);
    let idle = whole.stats().ios;
    let shortened = shorten(&(whole.clone() as _), SHORT).unwrap();
    assert!(!shortened.is_cut, "it cannot become shorter itself");
    let steps = whole.stats().ios - idle;
    // The last steps write the superblocks: the power fails after each of these, and after some of the others.
    let cuts = (0..steps - 16)
        .step_by(steps as usize / 24)
        .chain(steps - 16..steps + 60);
    let mut outcomes = [0, 0];
    for cut_after in cuts {
        let fault = stopped(&*from, cut_after);
        let medium: Arc<dyn Medium> = fault.clone();
        fault.set_plan(Plan::seeded(cut_after).with_cut_after(cut_after));
        let result = shorten(&medium, SHORT);
        let was_cut = fault.is_off();
        assert_eq!(result.is_err(), was_cut, "{result:?}");
        fault.restart();
        fault.set_plan(Plan::seeded(cut_after));
        let volume = open_small(&medium);
        holds(&volume, &model);
        let blocks = volume.superblock().medium_blocks();
        drop(volume);
        assert_sound(&*medium);
        outcomes[usize::from(blocks == SHORT)] += u64::from(was_cut);
        assert!(blocks == SHORT || (blocks == BLOCKS && was_cut));
        // If the first block is lost one day, what the last one says is right.
        let mut last = [0; BLOCK_BYTES];
        medium.read(Pba(BLOCKS - 1), &mut last).unwrap();
        let says = Superblock::decode(&last, BLOCKS, crc32c).unwrap();
        assert_eq!(says.medium_blocks(), blocks, "{cut_after}");
        medium.write(Pba(0), &[0; BLOCK_BYTES]).unwrap();
        holds(&open_small(&medium), &model);
        // The same call completes it.
        let shortened = shorten(&medium, SHORT).unwrap();
        assert_eq!(shortened.superblock.medium_blocks(), SHORT);
        holds(&open_small(&medium), &model);
        if !was_cut {
            break;
        }
    }
    let [before, after] = outcomes;
    assert!(before > 10 && after > 0, "{outcomes:?}");
}

#[test]
fn what_is_impossible_is_refused_and_changes_nothing() {
    let (medium, model) = filled(MemoryMedium::new(BLOCKS));
    let least = least(&medium);
    let found = superblock_of(&*medium);
    for blocks in [0, 1, 700, least - 1] {
        let error = shorten(&medium, blocks).unwrap_err();
        let told = error.to_string();
        let is_right =
            matches!(error, ShortenError::Shorten(Core::TooLittle { least: l, .. }) if l == least);
        assert!(is_right, "{blocks}: {told}");
    }
    for blocks in [BLOCKS + 1, u64::MAX] {
        let error = shorten(&medium, blocks).unwrap_err().to_string();
        assert!(error.contains("`vellum grow` takes more"), "{error}");
    }
    assert_eq!(superblock_of(&*medium).segments(), found.segments());
    holds(&open_small(&medium), &model);
    for layout in [Layout::Ordered, Layout::Shadow] {
        let tables: Arc<dyn Medium> = Arc::new(MemoryMedium::new(BLOCKS));
        create_as(&*tables, layout);
        let error = shorten(&tables, SHORT).unwrap_err().to_string();
        assert!(error.contains("vellum migrate"), "{error}");
    }
    let nothing: Arc<dyn Medium> = Arc::new(MemoryMedium::new(BLOCKS));
    let error = shorten(&nothing, SHORT).unwrap_err();
    assert!(matches!(error, ShortenError::Recovery(_)), "{error}");
}
