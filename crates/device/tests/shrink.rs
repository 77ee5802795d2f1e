//! A volume that shrinks keeps all that lies before its new end, loses nothing behind it, and can become as large again.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{
    Client, Model, assert_sound, copy, create_as, create_keeping, holds, open, small, stop_sound,
    superblock_of,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::format::areas::Layout;
use vellum_core::shrink::ShrinkError as Core;
use vellum_device::block::{BlockDevice, BlockError};
use vellum_device::stream::{Reader, Sender, receive};
use vellum_device::{
    Extent, Growable, NewSize, OpenError, OpenOptions, ShrinkError, Volume, grow_at_rest,
    shrink_at_rest,
};
use vellum_medium::{FaultMedium, Medium, MemoryMedium, Plan};

const BLOCKS: u64 = 6000;
const SIZE: u64 = 1500;
/// The new end: not a leaf's.
const END: u64 = 1100;

fn volume() -> MemoryMedium {
    let medium = MemoryMedium::new(BLOCKS);
    create_keeping(&medium, SIZE, 2000);
    medium
}

/// Writes blocks before `end`, and some behind it that are given up again.
fn fill<D: BlockDevice>(device: &Arc<D>, model: &mut Model, seed: u64, end: u64) {
    let mut client = Client::new(device);
    for step in 0..200 {
        let lba = (step * 7919 + seed * 31) % (end - 4);
        let fills: Vec<u64> = (0..3).map(|n| 1 + seed + step * 3 + n).collect();
        client.write(lba, &fills).unwrap();
        model.extend((lba..).zip(fills));
    }
    client.write(end - 1, &[seed + 5]).unwrap();
    model.insert(end - 1, seed + 5);
    client.flush().unwrap();
}

fn give_up(volume: &Arc<Volume>) {
    let mut client = Client::new(volume);
    client.write(END, &[9, 9, 9]).unwrap();
    client.write(SIZE - 2, &[8, 8]).unwrap();
    client.discard(END, SIZE - END).unwrap();
    client.flush().unwrap();
}

fn to(blocks: u64) -> NewSize {
    NewSize {
        medium_blocks: None,
        logical_blocks: Some(blocks),
    }
}

/// A volume whose tail holds nothing, not stopped.
fn filled() -> (MemoryMedium, Model) {
    let medium = Arc::new(volume());
    let served: Arc<dyn Medium> = medium.clone();
    let (volume, mut model) = (open(&served), Model::new());
    fill(&volume, &mut model, 1, END);
    give_up(&volume);
    drop((volume, served));
    (Arc::into_inner(medium).unwrap(), model)
}

/// It has no room for another map, and needs none for the old end.
#[test]
fn a_medium_that_is_a_little_longer_gives_the_old_end_back() {
    let (medium, model) = filled();
    let longer: Arc<dyn Medium> = Arc::new(MemoryMedium::new(BLOCKS + 1));
    copy(&medium, &*longer);
    shrink_at_rest(&longer, END).unwrap();
    let error = grow_at_rest(&longer, to(SIZE + 1)).unwrap_err();
    assert!(error.to_string().contains("to grow: enlarge"), "{error}");
    let asked = NewSize {
        medium_blocks: Some(BLOCKS + 1),
        logical_blocks: Some(SIZE),
    };
    assert!(grow_at_rest(&longer, asked).is_err());
    let grown = grow_at_rest(&longer, to(SIZE)).unwrap();
    assert_eq!(grown.logical_blocks(), SIZE);
    let volume = open(&longer);
    holds(&volume, &model);
    stop_sound(&volume, &*longer);
}

#[test]
fn it_shrinks_and_becomes_as_large_again_and_larger() {
    let (medium, mut model) = filled();
    let mut longer: Arc<dyn Medium> = Arc::new(MemoryMedium::new(BLOCKS + 900));
    copy(&medium, &*longer);
    let medium: Arc<dyn Medium> = Arc::new(medium);
    let before = superblock_of(&*medium);
    let shrunk = shrink_at_rest(&medium, END).unwrap();
    assert_eq!(superblock_of(&*medium), shrunk);
    assert_eq!(shrunk.logical_blocks(), END);
    assert_eq!(shrunk.history(), before.history());
    assert_sound(&*medium);
    let volume = open(&medium);
    assert_eq!(volume.blocks(), END);
    holds(&volume, &model);
    let mut client = Client::new(&volume);
    for (lba, blocks) in [(END, 1), (END - 1, 2), (SIZE - 1, 1), (u64::MAX, 1)] {
        let error = client.read(lba, blocks).unwrap_err();
        assert!(matches!(error, BlockError::OutOfRange { .. }), "{error}");
        let error = client.discard(lba, blocks).unwrap_err();
        assert!(matches!(error, BlockError::OutOfRange { .. }), "{error}");
    }
    let error = client.write(END, &[1]).unwrap_err();
    assert!(matches!(error, BlockError::OutOfRange { .. }), "{error}");
    fill(&volume, &mut model, 50, END);
    drop((client, volume));
    // Smaller again, and then as large as it ever was: only the superblock says so.
    let error = shrink_at_rest(&medium, END - 1).unwrap_err();
    assert!(error.to_string().contains("4 KiB of data"), "{error}");
    let grown = grow_at_rest(&medium, to(SIZE - 7)).unwrap();
    assert_eq!(grown.logical_blocks(), SIZE - 7);
    let grown = grow_at_rest(&medium, to(SIZE)).unwrap();
    assert_eq!(grown.resettled(), None);
    let volume = open(&medium);
    assert_eq!(volume.blocks(), SIZE);
    holds(&volume, &model);
    fill(&volume, &mut model, 99, SIZE);
    holds(&volume, &model);
    stop_sound(&volume, &*medium);
    // A shrunk volume grows onto a longer medium as any other.
    shrink_at_rest(&longer, END).unwrap();
    let (_, model) = filled();
    for size in [END + 5, SIZE + 80] {
        let grown =
            grow_at_rest(&longer, to(size)).unwrap_or_else(|error| panic!("{size}: {error}"));
        assert_eq!(grown.logical_blocks(), size);
        let volume = open(&longer);
        holds(&volume, &model);
        stop_sound(&volume, &*longer);
        let more: Arc<dyn Medium> = Arc::new(MemoryMedium::new(longer.blocks() + 900));
        copy(&*longer, &*more);
        longer = more;
    }
}

#[test]
fn nothing_is_cut_off() {
    let (medium, model) = filled();
    let medium: Arc<dyn Medium> = Arc::new(medium);
    let found = superblock_of(&*medium);
    for end in [1, 700, END - 1] {
        let error = shrink_at_rest(&medium, end).unwrap_err();
        let ShrinkError::Shrink(Core::Holds(behind)) = error else {
            panic!("{error}");
        };
        let stored: Vec<u64> = model.range(end..).map(|(lba, _)| *lba).collect();
        assert_eq!(
            (behind.first.0, behind.blocks),
            (stored[0], stored.len() as u64)
        );
        let text = behind.to_string();
        let hint = format!("blkdiscard -f --offset {} DEVICE", end * BLOCK_BYTES as u64);
        assert!(text.contains(&hint), "{text}");
    }
    for end in [0, SIZE + 1, u64::MAX] {
        let error = shrink_at_rest(&medium, end).unwrap_err();
        assert!(
            matches!(error, ShrinkError::Shrink(Core::Geometry(_))),
            "{error}"
        );
    }
    assert_eq!(
        superblock_of(&*medium).logical_blocks(),
        found.logical_blocks()
    );
    holds(&open(&medium), &model);
    for layout in [Layout::Ordered, Layout::Shadow] {
        let tables: Arc<dyn Medium> = Arc::new(MemoryMedium::new(BLOCKS));
        create_as(&*tables, layout);
        let error = shrink_at_rest(&tables, END).unwrap_err().to_string();
        assert!(error.contains("vellum migrate"), "{error}");
    }
    let nothing: Arc<dyn Medium> = Arc::new(MemoryMedium::new(BLOCKS));
    let error = shrink_at_rest(&nothing, END).unwrap_err();
    assert!(matches!(error, ShrinkError::Recovery(_)), "{error}");
}

#[test]
fn shrinking_cut_short_leaves_the_old_end_or_the_new_one() {
    let (whole, model) = filled();
    let mut ends = BTreeMap::new();
    for cut_after in 0.. {
        let fault = Arc::new(FaultMedium::over_memory(BLOCKS, Plan::seeded(cut_after)));
        copy(&whole, &*fault);
        let medium: Arc<dyn Medium> = fault.clone();
        // Other tests cover its opening and its stop.
        open(&medium).stop().unwrap();
        fault.set_plan(Plan::seeded(cut_after).with_cut_after(cut_after));
        let result = shrink_at_rest(&medium, END);
        let was_cut = fault.is_off();
        assert_eq!(result.is_err(), was_cut, "{result:?}");
        fault.restart();
        fault.set_plan(Plan::seeded(cut_after));
        let volume = open(&medium);
        *ends.entry(volume.blocks()).or_insert(0) += 1;
        let mut model = model.clone();
        holds(&volume, &model);
        fill(&volume, &mut model, cut_after, END);
        let blocks = volume.blocks();
        drop(volume);
        // Either mirror can be lost one day.
        let mirrors = superblock_of(&*medium).mirrors();
        let lost = mirrors[cut_after as usize % 2];
        medium.write(lost, &[0; BLOCK_BYTES]).unwrap();
        let volume = open(&medium);
        assert_eq!(volume.blocks(), blocks, "{cut_after}");
        holds(&volume, &model);
        stop_sound(&volume, &*medium);
        if !was_cut {
            break;
        }
    }
    assert!(ends[&SIZE] > 5 && ends[&END] > 1, "{ends:?}");
}

#[test]
fn snapshots_and_clones_keep_their_contents() {
    let medium: Arc<dyn Medium> = Arc::new(volume());
    let (volume, mut model) = (open(&medium), Model::new());
    fill(&volume, &mut model, 1, END);
    volume.take_snapshot("empty", 1).unwrap();
    let first = model.clone();
    let mut client = Client::new(&volume);
    client.write(END + 3, &[4, 5, 6]).unwrap();
    volume.take_snapshot("full", 2).unwrap();
    volume.clone_snapshot("empty", "clone", 3).unwrap();
    let clone = Arc::new(volume.clone_at("clone").unwrap().unwrap());
    Client::new(&clone).write(END + 100, &[7]).unwrap();
    client.discard(END, SIZE - END).unwrap();
    fill(&volume, &mut model, 70, END);
    drop((client, clone));
    volume.stop().unwrap();
    let error = shrink_at_rest(&medium, END).unwrap_err();
    let ShrinkError::Kept { names, blocks } = &error else {
        panic!("{error}");
    };
    let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    assert_eq!((names, *blocks), (vec!["full", "clone"], 4));
    assert!(error.to_string().contains("16 KiB") && error.to_string().contains("`full`, `clone`"));
    let volume = open(&medium);
    assert_eq!(volume.blocks(), SIZE);
    volume.delete_snapshot("clone").unwrap();
    volume.delete_snapshot("full").unwrap();
    drop(volume);
    rows_without_data_do_no_harm(&medium, &first, model);
}

/// What is left has rows for blocks behind the end, but no data there.
fn rows_without_data_do_no_harm(medium: &Arc<dyn Medium>, first: &Model, mut model: Model) {
    shrink_at_rest(medium, END).unwrap();
    let volume = open(medium);
    volume.take_snapshot("small", 4).unwrap();
    let second = model.clone();
    fill(&volume, &mut model, 90, END);
    let all = |volume: &Arc<Volume>| {
        holds(volume, &model);
        for (name, known) in [("empty", first), ("small", &second)] {
            holds(&Arc::new(volume.seen_at(name).unwrap()), known);
        }
    };
    all(&volume);
    let changed = volume.changed_since("empty", None).unwrap();
    assert!(changed.iter().all(|(lba, blocks)| lba.0 + blocks <= END));
    let stream = |name: &str, from: Option<&str>| {
        let sender = Sender::new(&volume, name, from).unwrap();
        sender.send(Vec::new(), &mut |_| true).unwrap().0
    };
    // Into a volume of the old size, and into one of the new size.
    for size in [SIZE, END] {
        let copy: Arc<dyn Medium> = Arc::new(self::volume());
        if size == END {
            shrink_at_rest(&copy, END).unwrap();
        }
        let options = OpenOptions {
            receiving: true,
            ..small()
        };
        let copied = Arc::new(Volume::open(Arc::clone(&copy), &options).unwrap());
        for (name, from) in [("empty", None), ("small", Some("empty"))] {
            let bytes = stream(name, from);
            let mut reader = Reader::new(&bytes[..]).unwrap();
            receive(&copied, &mut reader, false, &mut |_| true).unwrap();
        }
        holds(&copied, &second);
        holds(&Arc::new(copied.seen_at("empty").unwrap()), first);
    }
    drop(volume);
    grow_at_rest(medium, to(SIZE)).unwrap();
    let volume = open(medium);
    all(&volume);
    Client::new(&volume).write(END + 3, &[3, 3, 3]).unwrap();
    for (name, known) in [("empty", first), ("small", &second)] {
        holds(&Arc::new(volume.seen_at(name).unwrap()), known);
    }
    volume.roll_back("empty").unwrap();
    holds(&volume, first);
    stop_sound(&volume, &**medium);
}

#[test]
fn it_shrinks_while_it_is_served() {
    let (before, mut model) = filled();
    let fault = Arc::new(FaultMedium::over_memory(BLOCKS, Plan::seeded(7)));
    copy(&before, &*fault);
    let medium: Arc<dyn Medium> = fault.clone();
    let device = Arc::new(Growable::open(Arc::clone(&medium), &small()).unwrap());
    fill(&device, &mut model, 3, END);
    device.volume().take_snapshot("one", 1).unwrap();
    let view = device.volume().seen_at("one").unwrap();
    let held = view.hold();
    let error = device.shrink(END, &small()).unwrap_err();
    assert!(matches!(error, ShrinkError::InUse(_)), "{error}");
    drop((view, held));
    let opened = device.volume();
    let error = device.shrink(END - 1, &small()).unwrap_err();
    assert!(
        matches!(error, ShrinkError::Shrink(Core::Holds(_))),
        "{error}"
    );
    // A journal that was named lies behind the end: the volume could not be opened again.
    let journals = vec![Extent {
        start: END * BLOCK_BYTES as u64,
        bytes: 64 * BLOCK_BYTES as u64,
    }];
    let with = OpenOptions {
        journals,
        ..small()
    };
    let error = device.shrink(END, &with).unwrap_err();
    assert!(
        matches!(error, ShrinkError::Open(OpenError::Journal(_))),
        "{error}"
    );
    assert!(
        Arc::ptr_eq(&opened, &device.volume()),
        "it was stopped for nothing"
    );
    model.extend(shrink_under_load(&device));
    assert_eq!(device.blocks(), END);
    holds(&device, &model);
    let mut client = Client::new(&device);
    let request = client.write_request(SIZE - 1, &[1], false);
    let error = client.call(request).unwrap_err();
    assert!(matches!(error, BlockError::OutOfRange { .. }), "{error}");
    client.flush().unwrap();
    device.grow(to(SIZE), &small()).unwrap();
    assert_eq!(device.blocks(), SIZE);
    holds(&device, &model);
    device.shrink(END, &small()).unwrap();
    drop((client, opened, device));
    fault.power_cut(7);
    fault.restart();
    let volume = open(&medium);
    assert_eq!(volume.blocks(), END);
    holds(&volume, &model);
    drop(volume);
    assert_sound(&*medium);
}

/// Shrinks a device while clients write before the new end and read behind it; returns what they have written.
fn shrink_under_load(device: &Arc<Growable>) -> Model {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = Model::new();
            for seed in 100.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                fill(device, &mut written, seed, END);
            }
            written
        });
        // Requests behind the new end, at any moment of it.
        let reader = scope.spawn(|| {
            let mut client = Client::new(device);
            while !stop.load(Ordering::Relaxed) {
                match client.read(SIZE - 1, 1) {
                    Ok(fills) => assert_eq!(fills, [0]),
                    Err(error) => {
                        assert!(matches!(error, BlockError::OutOfRange { .. }), "{error}")
                    }
                }
            }
        });
        let shrunk = device.shrink(END, &small());
        stop.store(true, Ordering::Relaxed);
        assert!(shrunk.is_ok(), "{shrunk:?}");
        reader.join().unwrap();
        writer.join().unwrap()
    })
}
