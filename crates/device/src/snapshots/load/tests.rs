//! A list of snapshots, and rows, that are not what they should be.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::carry;
use crate::block::BlockDevice;
use crate::frames::Quota;
use crate::inspect::{check_medium, check_volume, open_to_check, recover_medium};
use crate::snapshots::tests::{open, small};
use crate::{CreateOptions, OpenError, OpenOptions, Volume};
use std::sync::Arc;
use std::time::Duration;
use vellum_core::addr::{BLOCK_BYTES, Lba, Pba};
use vellum_core::check::{Options, Problem, Report, Severity};
use vellum_core::format::history::{BLOCK_ROWS, ENTRY_BYTES, History};
use vellum_medium::{Fault, FaultMedium, Medium, MemoryMedium, Plan};

/// The first byte of an entry's stage, and of its name.
const STAGE: usize = 4;
const NAME: usize = 20;

/// A volume that has kept blocks for two snapshots, and has a clone of the first. Then `damage` writes where clients cannot.
fn damaged(damage: impl FnOnce(&Volume, History)) -> Arc<dyn Medium> {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(4000));
    let create = CreateOptions {
        logical_blocks: Some(1000),
        history: 2000,
        ..CreateOptions::default()
    };
    Volume::create(&*medium, &create).unwrap();
    let volume = open(&medium);
    for (number, name) in [(1, "one"), (2, "two")] {
        volume.take_snapshot(name, number).unwrap();
        let mut book = volume.shared.keeper.as_ref().unwrap().book();
        let newest = book.newest().unwrap();
        let plan = book.plan(newest, (0..20).map(Lba)).unwrap();
        let plan = carry::out(&volume.shared, &mut book, plan).unwrap();
        book.keep(plan);
        let fill = |block: &mut [u8]| block.fill(number as u8);
        (0..20).for_each(|lba| carry::write(&volume.shared, Lba(lba), fill).unwrap());
    }
    volume.clone_snapshot("one", "copy", 3).unwrap();
    let history = volume.shared.keeper.as_ref().unwrap().book().history();
    damage(&volume, history);
    volume.stop().unwrap();
    medium
}

/// Writes a block anew with some of its bytes changed, so that its checksum is right.
fn change(volume: &Volume, lba: Lba, edit: impl FnOnce(&mut [u8])) {
    let block = carry::read(&volume.shared, lba).unwrap().unwrap();
    carry::write(&volume.shared, lba, |out| {
        out.copy_from_slice(&block[..]);
        edit(out);
    })
    .unwrap();
}

fn quick(medium: &Arc<dyn Medium>) -> Vec<Problem> {
    check_volume(medium, Options::default()).unwrap().findings
}

/// What is wrong, which is one thing. The volume does not open for writing because of it.
fn told(medium: &Arc<dyn Medium>) -> String {
    let found = quick(medium);
    let [Problem::Snapshots(told)] = &found[..] else {
        panic!("{found:?}");
    };
    let refused = Volume::open(Arc::clone(medium), &small());
    assert!(
        matches!(&refused, Err(OpenError::Snapshots(why)) if why == told),
        "{refused:?}"
    );
    told.clone()
}

#[test]
fn a_check_reads_the_list_of_snapshots() {
    assert_eq!(quick(&damaged(|_, _| {})), []);
    let edited = |edit: fn(&mut [u8])| {
        told(&damaged(|volume, history| {
            change(volume, history.list(0), edit);
        }))
    };
    assert_eq!(
        edited(|list| list[STAGE] = 99),
        "block 0 of the list of snapshots: entry 0: list of snapshots: stage is 99, which cannot be"
    );
    assert_eq!(
        edited(|list| list.copy_within(NAME..NAME + 3, ENTRY_BYTES + NAME)),
        "block 0 of the list of snapshots: entry 1: another snapshot has the name one or the number 2 too"
    );
    assert_eq!(
        edited(|list| list[..ENTRY_BYTES].fill(0)),
        "the list of snapshots: clone copy has no snapshot: number 1 is none that a clone can have"
    );
}

/// The list and the rows are in memory as long as the volume is open. At the next opening nothing else would have them.
#[test]
fn a_scrub_writes_bad_blocks_of_the_list_and_of_rows_anew() {
    let medium = damaged(|volume, history| {
        carry::flush(&volume.shared).unwrap();
        for lba in [history.list(0), history.rows(0)] {
            let found = volume
                .shared
                .with_core(|_, inner, _| inner.core.whole_at(lba));
            flip(&*volume.shared.medium, found.flatten().unwrap().0);
        }
        // Uses each frame for something else, so that nothing written is in memory.
        let frames = volume.frames();
        drop(frames.take(Quota::Write, frames.capacity(Quota::Write)));
        let scrubbed = || {
            let ended = volume.scrub_report().ended;
            volume.scrub(0);
            while volume.scrub_report().ended == ended {
                std::thread::sleep(Duration::from_millis(2));
            }
            volume.scrub_report()
        };
        let report = scrubbed();
        assert_eq!((report.damaged, report.mended), (0, 2), "{report:?}");
        let told: Vec<_> = report.findings.iter().map(ToString::to_string).collect();
        assert!(told[0].contains("of the list of snapshots"), "{told:?}");
        assert!(told[1].contains("of the rows of what"), "{told:?}");
        let is_from_memory = |one: &String| one.contains("mended: written anew, from memory");
        assert!(told.iter().all(is_from_memory), "{told:?}");
        let report = scrubbed();
        assert_eq!((report.damaged, report.mended), (0, 0), "{report:?}");
    });
    assert_eq!(quick(&medium), []);
    assert_eq!(open(&medium).listed_snapshots().unwrap().len(), 3);
}

fn flip(medium: &dyn Medium, at: Pba) {
    let mut block = [0; BLOCK_BYTES];
    medium.read(at, &mut block).unwrap();
    block[7] ^= 1;
    medium.write(at, &block).unwrap();
}

/// Not only with the data, which is a matter of hours: what leads to it is damaged here.
#[test]
fn a_quick_check_reads_blocks_of_the_list_and_of_rows() {
    for (is_list, said) in [(true, "of the list"), (false, "of the rows")] {
        let medium = damaged(|_, _| {});
        let mut wanted = Box::new([0; BLOCK_BYTES]);
        let volume = open(&medium);
        let book = volume.shared.keeper.as_ref().unwrap().book();
        match is_list {
            true => book.encode_list(0, &mut wanted[..]),
            false => book.encode_rows(0, &mut wanted[..]),
        }
        drop(book);
        volume.stop().unwrap();
        let mut block = Box::new([0; BLOCK_BYTES]);
        for at in (0..medium.blocks()).map(Pba) {
            medium.read(at, &mut block[..]).unwrap();
            if block == wanted {
                flip(&*medium, at);
            }
        }
        let told = told(&medium);
        assert!(told.starts_with("block 0") && told.contains(said), "{told}");
    }
}

#[test]
fn a_check_tells_of_rows_that_do_not_count() {
    let set = |index: usize, row: u64| {
        let medium = damaged(|volume, history| {
            change(volume, history.rows(0), |rows| {
                rows[8 * index..][..8].copy_from_slice(&row.to_le_bytes());
            });
        });
        let report = check_volume(&medium, Options::default()).unwrap();
        open(&medium).stop().unwrap();
        assert_eq!(quick(&medium), []);
        let [found] = &report.findings[..] else {
            panic!("{:?}", report.findings);
        };
        (found.to_string(), report.worst())
    };
    let rows = "block 0 of the rows of what snapshots keep: 1 are";
    let (told, worst) = set(40, 5 << 32 | 77);
    assert!(
        told.starts_with(&format!("{rows} of no snapshot")),
        "{told}"
    );
    assert_eq!(worst, Some(Severity::Note));
    for lba in [7, 1000] {
        let (told, worst) = set(40, lba << 32 | 2);
        assert!(
            told.starts_with(rows) && told.ends_with(&format!("LBA {lba} of two")),
            "{told}"
        );
        assert_eq!(worst, Some(Severity::Damage));
    }
}

/// A volume with so many blocks of rows, all of them full.
fn with_rows(row_blocks: u64) -> Arc<FaultMedium> {
    let kept = row_blocks * BLOCK_ROWS as u64;
    let medium = Arc::new(FaultMedium::over_memory(8000, Plan::default()));
    let create = CreateOptions {
        logical_blocks: Some(kept),
        history: 1000,
        ..CreateOptions::default()
    };
    Volume::create(&*medium, &create).unwrap();
    let volume = open(&(Arc::clone(&medium) as Arc<dyn Medium>));
    volume.take_snapshot("one", 1).unwrap();
    let mut book = volume.shared.keeper.as_ref().unwrap().book();
    let newest = book.newest().unwrap();
    let plan = book.plan(newest, (0..kept).map(Lba)).unwrap();
    let plan = carry::out(&volume.shared, &mut book, plan).unwrap();
    book.keep(plan);
    drop(book);
    volume.stop().unwrap();
    medium
}

/// One after the other, the blocks of rows of 64 GiB would be 32768 waits for the medium.
#[test]
fn an_opening_reads_many_blocks_of_rows_at_once() {
    const ROW_BLOCKS: u64 = 200;
    let medium = with_rows(ROW_BLOCKS);
    let before = medium.stats().ios;
    let options = OpenOptions {
        read_only: true,
        ..small()
    };
    let shared: Arc<dyn Medium> = Arc::clone(&medium) as Arc<dyn Medium>;
    let volume = Volume::open(shared, &options).unwrap();
    let ios = medium.stats().ios - before;
    let kept = ROW_BLOCKS * BLOCK_ROWS as u64;
    assert_eq!(volume.snapshot_room().unwrap().0, kept);
    assert!(ios < ROW_BLOCKS, "{ios}");
}

/// It would be opened as far as it is whole, which reads each chunk header, and then nothing would be read.
#[test]
fn a_check_does_not_open_a_log_whose_end_cannot_be_read() {
    let medium = FaultMedium::over_memory(4000, Plan::default());
    damaged(|volume, _| {
        carry::write(&volume.shared, Lba(3), |block| block.fill(9)).unwrap();
        carry::flush(&volume.shared).unwrap();
        // What a crash leaves now.
        let mut block = [0; BLOCK_BYTES];
        for at in (0..4000).map(Pba) {
            volume.shared.medium.read(at, &mut block).unwrap();
            medium.write(at, &block).unwrap();
        }
    });
    let is_end = |&bad: &u64| {
        medium.set_plan(Plan::default().with_every(Fault::ReadError, bad..bad + 1));
        recover_medium(&medium).is_ok_and(|found| found.unread.is_some())
    };
    (0..4000).find(is_end).unwrap();
    let medium = Arc::new(medium);
    let ios = |check: &dyn Fn() -> Report| {
        let before = medium.stats().ios;
        let report = check();
        assert!(
            matches!(report.findings[..], [Problem::Unread(_)]),
            "{:?}",
            report.findings
        );
        medium.stats().ios - before
    };
    let without = ios(&|| check_medium(&*medium, Options::default()));
    let shared: Arc<dyn Medium> = Arc::clone(&medium) as Arc<dyn Medium>;
    let with = ios(&|| check_volume(&shared, Options::default()).unwrap());
    assert_eq!(with, without);
}

/// They may be many GiB.
#[test]
fn who_checks_rows_does_not_hold_them_twice() {
    let medium: Arc<dyn Medium> = with_rows(2);
    let volume = open_to_check(&medium).unwrap();
    assert_eq!(volume.snapshot_room().unwrap().0, 0);
    let named = volume.check_snapshots(&mut |wrong| panic!("{wrong}"));
    assert_eq!(named.len(), 1);
}
