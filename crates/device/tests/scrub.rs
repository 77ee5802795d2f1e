//! Scrubs: damage is found wherever it is, nothing else is reported, and what can be mended is mended.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "not a server: a failure is a test's"
)]

mod common;

use common::{
    Client, Random, assert_sound, block_of, create_as, open, open_packing, small, stop_sound,
    superblock_of, wait_for,
};
use std::sync::Arc;
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_core::check::Severity as Worst;
use vellum_core::format::areas::Layout;
use vellum_core::format::summary;
use vellum_device::pack::Compression;
use vellum_device::{CreateOptions, OpenOptions, ScrubReport, Volume};
use vellum_medium::{Medium, MemoryMedium};

const BLOCKS: u64 = 4096;
const LAYOUTS: [Layout; 3] = [Layout::Log, Layout::Ordered, Layout::Shadow];

fn medium() -> Arc<dyn Medium> {
    Arc::new(MemoryMedium::new(BLOCKS))
}

fn flip(medium: &dyn Medium, at: Pba, bit: usize) {
    let mut block = [0; BLOCK_BYTES];
    medium.read(at, &mut block).unwrap();
    block[bit / 8] ^= 1 << (bit % 8);
    medium.write(at, &block).unwrap();
}

fn place_of(medium: &dyn Medium, wanted: &[u8]) -> Pba {
    let mut block = [0; BLOCK_BYTES];
    let is_there = |at: &Pba| {
        medium.read(*at, &mut block).unwrap();
        block == wanted
    };
    (0..medium.blocks()).map(Pba).find(is_there).unwrap()
}

fn scrub(volume: &Volume) -> ScrubReport {
    let ended = volume.scrub_report().ended;
    volume.scrub(0);
    wait_for(volume, "a scrub's end", |volume| {
        let report = volume.scrub_report();
        report.permille.is_none() && report.ended > ended
    });
    volume.scrub_report()
}

fn is_clean(report: &ScrubReport) -> bool {
    report.findings.is_empty() && (report.damaged, report.mended, report.second_copies) == (0, 0, 0)
}

/// A volume that has been used: overwritten, discarded, partly stored in parts of pages.
fn used(medium: &Arc<dyn Medium>, layout: Layout, seed: u64) {
    create_as(&**medium, layout);
    let mut random = Random(seed);
    for _ in 0..2 {
        let volume = match layout {
            Layout::Log => open_packing(medium, Compression::Lz4),
            _ => open(medium),
        };
        let mut client = Client::new(&volume);
        for _ in 0..60 {
            let lba = random.below(volume_blocks(&volume) - 16);
            let fills: Vec<u64> = (0..=random.below(15))
                .map(|_| 1 + random.below(900))
                .collect();
            match random.below(8) {
                0 => client.discard(lba, 8).unwrap(),
                1 => client.flush().unwrap(),
                _ => client.write(lba, &fills).unwrap(),
            }
        }
        client.flush().unwrap();
        volume.stop().unwrap();
    }
    assert_sound(&**medium);
}

fn volume_blocks(volume: &Arc<Volume>) -> u64 {
    vellum_device::block::BlockDevice::blocks(&**volume)
}

fn checked(medium: &dyn Medium) -> Option<Worst> {
    let options = vellum_core::check::Options {
        data: true,
        ..Default::default()
    };
    vellum_device::inspect::check_medium(medium, options).worst()
}

/// A scrub finds what a check at rest finds, and nothing else; the damage is anywhere.
#[test]
fn all_damage_is_found_and_nothing_else() {
    for (seed, layout) in LAYOUTS.into_iter().enumerate() {
        let medium = medium();
        used(&medium, layout, seed as u64);
        let mut random = Random(seed as u64 + 100);
        let (mut hit, mut harmless, mut refused) = (0, 0, 0);
        while hit < 25 {
            let at = Pba(random.below(BLOCKS));
            let bit = random.below(8 * BLOCK_BYTES as u64) as usize;
            flip(&*medium, at, bit);
            let worst = checked(&*medium);
            let expected = worst.is_some_and(|worst| worst > Worst::Note);
            harmless += u64::from(!expected);
            if expected || (worst.is_none() && harmless < 10) {
                hit += u64::from(expected);
                let options = OpenOptions {
                    read_only: true,
                    ..small()
                };
                match Volume::open(Arc::clone(&medium), &options) {
                    Err(_) => refused += u64::from(expected),
                    Ok(volume) => {
                        let report = scrub(&volume);
                        assert_eq!(
                            !is_clean(&report),
                            expected,
                            "{layout:?} {at} {bit}: {report:?}"
                        );
                        volume.stop().unwrap();
                    }
                }
            }
            flip(&*medium, at, bit);
        }
        assert_sound(&*medium);
        println!("{layout:?}: {hit} found, of which {refused} by opening; {harmless} mean nothing");
    }
}

#[test]
fn nothing_is_found_while_clients_work() {
    for layout in LAYOUTS {
        let medium = medium();
        create_as(&*medium, layout);
        let volume = match layout {
            Layout::Log => open_packing(&medium, Compression::Lz4),
            _ => open(&medium),
        };
        let mut client = Client::new(&volume);
        let mut random = Random(7);
        let blocks = volume_blocks(&volume);
        volume.scrub(0);
        let mut read = 0;
        // On a busy machine it takes more rounds.
        let rounds = 0..50_000u64;
        for round in rounds.take_while(|&round| round < 1500 || volume.scrub_report().ended < 3) {
            let lba = random.below(blocks - 32);
            let fills: Vec<u64> = (0..32).map(|_| 1 + random.below(5000)).collect();
            match round % 16 {
                3 => client.discard(lba, 32).unwrap(),
                7 => client.flush().unwrap(),
                _ => client.write(lba, &fills).unwrap(),
            }
            let report = volume.scrub_report();
            assert!(is_clean(&report), "{layout:?}: {report:?}");
            if report.permille.is_none() {
                read += report.read_bytes;
                volume.scrub(0);
            }
        }
        volume.halt_scrub();
        wait_for(&volume, "its end", |volume| {
            volume.scrub_report().permille.is_none()
        });
        let report = volume.scrub_report();
        assert!(is_clean(&report), "{layout:?}: {report:?}");
        let collected = volume
            .stats()
            .core
            .into_iter()
            .find(|(name, _)| *name == "collections");
        println!(
            "{layout:?}: {} scrubs, {read} bytes, {collected:?}",
            report.ended
        );
        assert!(report.ended > 2, "{layout:?}");
        stop_sound(&volume, &*medium);
    }
}

/// Damages every structure that is also in memory, while the volume is open.
#[test]
fn damaged_structures_are_rewritten_from_memory() {
    for layout in LAYOUTS {
        let medium = medium();
        used(&medium, layout, 3);
        let sb = superblock_of(&*medium);
        let volume = open(&medium);
        let mut client = Client::new(&volume);
        client.write(5, &[77]).unwrap();
        client.flush().unwrap();
        let mut random = Random(9);
        let [first, last] = sb.mirrors();
        let areas = match layout {
            Layout::Log => {
                sb.root_place(vellum_core::addr::Generation(0)).0
                    ..sb.segment_start(vellum_core::addr::Segment(0)).0
            }
            _ => 1..sb.areas().data(0).0,
        };
        let mut mended = Vec::new();
        // Flips a bit of each block that is not zero. Most have a slot that counts and one that does not.
        let mut block = [0; BLOCK_BYTES];
        for at in areas.map(Pba) {
            medium.read(at, &mut block).unwrap();
            if block.iter().any(|byte| *byte != 0) {
                flip(&*medium, at, random.below(8 * BLOCK_BYTES as u64) as usize);
            }
        }
        flip(&*medium, first, 3000);
        flip(&*medium, last, 3000);
        for _ in 0..2 {
            let report = scrub(&volume);
            assert_eq!(report.damaged, 0, "{layout:?}: {report:?}");
            mended.extend(report.findings.into_iter().map(|one| one.what));
        }
        // What is rewritten with the first mirror is not found any more: one root of the log, and its dirty leaf.
        let of = |what: &str| mended.iter().filter(|one| one.contains(what)).count();
        let tables: u64 = sb.table_blocks().iter().sum();
        let (kind, least) = match layout {
            Layout::Log => ("map leaf", sb.map_leaves() as usize - 1),
            _ => ("table", tables as usize / 2),
        };
        assert_eq!(of("superblock"), 2, "{layout:?}: {mended:?}");
        assert!(of(kind) >= least, "{layout:?}: {least} of {mended:?}");
        println!(
            "{layout:?}: {} mended, {} of them {kind}",
            mended.len(),
            of(kind)
        );
        let report = scrub(&volume);
        assert!(is_clean(&report), "{layout:?}: {report:?}");
        // And it is whole after a crash.
        drop(client);
        drop(volume);
        assert_sound(&*medium);
        let volume = open(&medium);
        let mut client = Client::new(&volume);
        assert_eq!(client.read(5, 1).unwrap(), [77]);
        volume.stop().unwrap();
    }
}

#[test]
fn a_summary_is_written_anew_from_headers() {
    let medium = medium();
    used(&medium, Layout::Log, 5);
    let sb = superblock_of(&*medium);
    let volume = open(&medium);
    let usable = u64::from(sb.usable_blocks());
    let summaries = (0..sb.segment_count())
        .map(|s| sb.segment_start(vellum_core::addr::Segment(s)).plus(usable));
    let mut block = [0; BLOCK_BYTES];
    for at in summaries {
        medium.read(at, &mut block).unwrap();
        if summary::looks_like_one(&block) {
            flip(&*medium, at, 999);
        }
    }
    let report = scrub(&volume);
    assert!(report.mended > 2 && report.damaged == 0, "{report:?}");
    assert!(
        report
            .findings
            .iter()
            .all(|finding| finding.what == "summary")
    );
    assert!(is_clean(&scrub(&volume)));
    stop_sound(&volume, &*medium);
}

/// A block with a separate copy is mended from that; one without is reported, with its LBA.
#[test]
fn a_block_is_mended_from_a_copy() {
    for layout in LAYOUTS {
        let medium = medium();
        create_as(&*medium, layout);
        let volume = open(&medium);
        let mut client = Client::new(&volume);
        // Contents of whole blocks: a block of one repeated byte proves nothing.
        client.write(10, &[70, 7, 21]).unwrap();
        client.write(500, &[70]).unwrap();
        client.flush().unwrap();
        let one = place_of(&*medium, &block_of(70));
        let other = place_of(&*medium, &block_of(7));
        flip(&*medium, one, 77);
        flip(&*medium, other, 78);
        let report = scrub(&volume);
        assert_eq!(
            (report.mended, report.damaged),
            (1, 1),
            "{layout:?}: {report:?}"
        );
        // Findings are in order of LBAs, and it is not specified which of the two copies is found first on the medium.
        let (mended, damaged) = match &report.findings[..] {
            [mended, damaged] if mended.mended.is_some() => (mended, damaged),
            [damaged, mended] => (mended, damaged),
            _ => panic!("{report:?}"),
        };
        assert!(
            mended.lba == Some(10) || mended.lba == Some(500),
            "{mended:?}"
        );
        assert!(mended.mended.is_some());
        assert_eq!(
            (damaged.lba, damaged.at, &damaged.mended),
            (Some(11), other.0, &None)
        );
        assert_eq!(client.read(10, 1).unwrap(), [70]);
        assert_eq!(client.read(500, 1).unwrap(), [70]);
        assert!(client.read(11, 1).is_err());
        // After an overwrite everything is whole.
        client.write(11, &[9]).unwrap();
        client.flush().unwrap();
        assert!(is_clean(&scrub(&volume)));
        stop_sound(&volume, &*medium);
    }
}

/// Blocks that only a snapshot holds are read too.
#[test]
fn blocks_kept_by_snapshots_are_scrubbed() {
    let medium = medium();
    let options = CreateOptions {
        segment_blocks: Some(64),
        history: 1000,
        ..CreateOptions::default()
    };
    Volume::create(&*medium, &options).unwrap();
    let volume = open(&medium);
    let mut client = Client::new(&volume);
    client.write(0, &[1]).unwrap();
    volume.take_snapshot("s", 1).unwrap();
    client.write(0, &[2]).unwrap();
    client.flush().unwrap();
    volume.stop().unwrap();
    drop((client, volume));
    flip(&*medium, place_of(&*medium, &block_of(1)), 9);
    let volume = open(&medium);
    let report = scrub(&volume);
    assert_eq!(report.damaged, 1, "{report:?}");
    let what = &report.findings[0].what;
    assert!(what.ends_with("of a snapshot or a clone"), "{what}");
    volume.stop().unwrap();
}

/// On a read-only volume the core begins what it may not write. That does not keep a scrub from looking.
#[test]
fn second_copies_of_a_read_only_volume_are_looked_at() {
    let medium = medium();
    used(&medium, Layout::Ordered, 5);
    let twin = superblock_of(&*medium).map_twin(0, 0).unwrap();
    flip(&*medium, twin, 100);
    let options = OpenOptions {
        read_only: true,
        ..small()
    };
    let volume = Arc::new(Volume::open(Arc::clone(&medium), &options).unwrap());
    let report = scrub(&volume);
    assert!(!is_clean(&report), "{report:?}");
}

/// The same sum but other bytes: a sum alone does not make a copy.
#[test]
fn a_block_with_only_the_same_sum_is_no_copy() {
    let medium = medium();
    create_as(&*medium, Layout::Log);
    let volume = open(&medium);
    let mut client = Client::new(&volume);
    client.write(10, &[70]).unwrap();
    client.write(500, &[70]).unwrap();
    client.flush().unwrap();
    // Nothing is left of the first block, as if it had had other contents with the same sum.
    let one = place_of(&*medium, &block_of(70));
    medium.write(one, &block_of(14)).unwrap();
    let report = scrub(&volume);
    assert_eq!((report.mended, report.damaged), (0, 1), "{report:?}");
    volume.stop().unwrap();
}

#[test]
fn a_scrub_goes_on_where_it_was_after_a_restart() {
    let medium = medium();
    create_as(&*medium, Layout::Log);
    let volume = open(&medium);
    let mut client = Client::new(&volume);
    let fills: Vec<u64> = (1..=200).collect();
    for lba in [0, 300, 600, 900] {
        client.write(lba, &fills).unwrap();
    }
    client.flush().unwrap();
    // The whole scrub would take ten seconds.
    volume.scrub(100);
    wait_for(&volume, "some of it", |volume| {
        volume.scrub_report().read_bytes > 200 * 4096
    });
    volume.halt_scrub();
    wait_for(&volume, "a stop", |volume| {
        volume.scrub_report().halted == 1
    });
    let left_at = volume.scrub_report().left_at.unwrap();
    volume.stop().unwrap();
    let volume = open(&medium);
    assert_eq!(volume.scrub_report().left_at, Some(left_at));
    let report = scrub(&volume);
    assert_eq!(report.went_on_at, Some(left_at));
    assert_eq!(report.left_at, None, "{report:?}");
    let whole = scrub(&volume);
    assert_eq!(whole.went_on_at, None);
    assert!(
        report.read_bytes + 100 * 4096 < whole.read_bytes,
        "{report:?} {whole:?}"
    );
    volume.stop().unwrap();
}
