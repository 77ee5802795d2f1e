//! Scrubs: damage is found wherever it is, nothing else is, and what can be is mended.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "not a server: a failure is a test's"
)]

mod common;

use common::{
    Client, Random, assert_sound, block_of, create_as, open, open_packing, small, superblock_of,
    wait_for,
};
use std::sync::Arc;
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_core::check::Severity as Worst;
use vellum_core::format::areas::Layout;
use vellum_core::format::summary;
use vellum_device::pack::Compression;
use vellum_device::{OpenOptions, ScrubReport, Volume};
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

/// A volume that has been used: overwritten, discarded, some of it in parts of pages.
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

/// What a check at rest finds a scrub finds as well, and nothing else: blocks are hit anywhere.
#[test]
fn what_is_damaged_is_found_and_nothing_else() {
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
        // On a busy machine it takes more of them.
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
        volume.stop().unwrap();
        assert_sound(&*medium);
    }
}

/// Of each structure that is in memory as well, while the volume is open.
#[test]
fn what_is_in_memory_is_written_anew() {
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
        // A bit of each block that holds something: of most there is a slot that counts and one that does not.
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
        // What is written anew with the first mirror is not found any more: one root of the log, and its leaf that was dirty.
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
        // And a crash finds it whole.
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
    volume.stop().unwrap();
    assert_sound(&*medium);
}

/// A block with a copy that is not shared with it is mended from that; one without is told, with its LBA.
#[test]
fn a_block_is_mended_from_a_copy() {
    for layout in LAYOUTS {
        let medium = medium();
        create_as(&*medium, layout);
        let volume = open(&medium);
        let mut client = Client::new(&volume);
        // Contents of whole blocks: what is all of one byte says nothing.
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
        // They come by their LBAs, and which of the two copies is found first on the medium is not said.
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
        // Once it is overwritten all is well.
        client.write(11, &[9]).unwrap();
        client.flush().unwrap();
        assert!(is_clean(&scrub(&volume)));
        volume.stop().unwrap();
        assert_sound(&*medium);
    }
}

/// The same sum and other bytes: a copy is not believed by its sum.
#[test]
fn what_only_has_the_same_sum_is_no_copy() {
    let medium = medium();
    create_as(&*medium, Layout::Log);
    let volume = open(&medium);
    let mut client = Client::new(&volume);
    client.write(10, &[70]).unwrap();
    client.write(500, &[70]).unwrap();
    client.flush().unwrap();
    // Nothing is left of the one: as if it had another content with the same sum.
    let one = place_of(&*medium, &block_of(70));
    medium.write(one, &block_of(14)).unwrap();
    let report = scrub(&volume);
    assert_eq!((report.mended, report.damaged), (0, 1), "{report:?}");
    volume.stop().unwrap();
}

#[test]
fn it_goes_on_after_a_restart_where_it_was() {
    let medium = medium();
    create_as(&*medium, Layout::Log);
    let volume = open(&medium);
    let mut client = Client::new(&volume);
    let fills: Vec<u64> = (1..=200).collect();
    for lba in [0, 300, 600, 900] {
        client.write(lba, &fills).unwrap();
    }
    client.flush().unwrap();
    volume.scrub(1000);
    wait_for(&volume, "the middle", |volume| {
        volume.scrub_report().read_bytes > 400 * 4096
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
    assert!(
        report.read_bytes < 700 * 4096 && report.left_at.is_none(),
        "{report:?}"
    );
    assert_eq!(scrub(&volume).went_on_at, None);
    volume.stop().unwrap();
}
