//! The check finds each kind of damage and names its place, and finds nothing on a sound volume.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "not a server: a failure is a test's"
)]

#[allow(dead_code, reason = "each test uses its share")]
mod disk;

use crc32c::crc32c;
use disk::{BLOCKS, Chunk, Disk, chunk, data};
use vellum_core::addr::{Generation, Lba, Leaf, Pba, Segment, Seq, Vba};
use vellum_core::check::{Chunks, Options, Problem, Report, Severity, check};
use vellum_core::format::chunk::Record;
use vellum_core::format::summary::Owner;
use vellum_core::format::superblock::LogEnd;
use vellum_core::recovery::RecoveryError;

const DATA: Options = Options {
    data: true,
    findings_max: 100,
};

fn run(disk: &mut Disk, options: Options) -> Report {
    check(disk, BLOCKS, options, crc32c)
}

/// Two chunks in segment 5, which is full and summarised; one in each open segment; checkpoint 2.
fn volume() -> (Disk, [Chunk; 4]) {
    let mut disk = Disk::new();
    let room = disk.sb.usable_blocks();
    let first = chunk(1, 5, 0, 0, &(100..110).collect::<Vec<_>>());
    let mut second = chunk(2, 5, 11, 10, &(0..room - 12).collect::<Vec<_>>());
    second.next = Some(0);
    let chunks = [
        first,
        second,
        chunk(3, 0, 0, 0, &[1, 2]),
        chunk(4, 1, 0, 2, &[3]),
    ];
    for chunk in &chunks {
        disk.write(chunk);
    }
    disk.write_summary(5, &[&chunks[0], &chunks[1]]);
    let mut map = vec![(0, disk.at(0, 1)), (1, disk.at(0, 2)), (2, disk.at(1, 1))];
    map.extend((3..10).map(|lba| (lba, disk.at(5, 1 + lba as u32))));
    map.extend((10..u64::from(room) - 2).map(|lba| (lba, disk.at(5, 2 + lba as u32))));
    disk.checkpoint(2, 4, [(0, 3), (1, 2)], &map);
    (disk, chunks)
}

/// The only finding of a check.
fn only(report: &Report) -> Problem {
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    report.findings[0].clone()
}

/// Only the first sector of one superblock is left: everything can be read, but only a copy into a new volume repairs it.
#[test]
fn two_damaged_superblocks_are_reported_with_the_way_to_repair_them() {
    let (mut disk, _) = volume();
    for (mirror, from) in [(0, 512), (1, 0)] {
        let at = disk.sb.mirrors()[mirror];
        disk.blocks.get_mut(&at.0).unwrap()[from..].fill(0xa5);
    }
    let report = run(&mut disk, DATA);
    assert_eq!(report.worst(), Some(Severity::Damage));
    let worst = &report.findings[0];
    assert!(matches!(worst, Problem::BothMirrors(_)), "{worst:?}");
    assert!(
        worst.to_string().contains("`vellum rescue` copies it"),
        "{worst}"
    );
    assert_eq!(report.findings.len(), 3, "{:?}", report.findings);
}

#[test]
fn a_sound_volume_has_no_findings() {
    let (mut disk, _) = volume();
    let report = run(&mut disk, DATA);
    assert_eq!(report.findings, []);
    assert!(report.is_sound() && report.worst().is_none());
    assert_eq!((report.segments, report.summaries), (3, 1));
    assert_eq!(report.mapped_blocks, u64::from(disk.sb.usable_blocks()) - 2);
    assert_eq!(report.verified_blocks, report.mapped_blocks);
    assert_eq!(run(&mut Disk::new(), DATA).findings, []);
}

#[test]
fn a_refusal_by_recovery_is_the_only_finding() {
    let (mut disk, _) = volume();
    let at = disk.sb.leaf_slot(Leaf(0), 0);
    disk.damage(at);
    let error = RecoveryError::Leaf { leaf: Leaf(0), at };
    assert_eq!(only(&run(&mut disk, DATA)), Problem::Unopenable(error));
}

#[test]
fn a_lost_copy_is_not_damage() {
    let (mut disk, _) = volume();
    let at = disk.sb.mirrors()[1];
    disk.damage(at);
    let report = run(&mut disk, DATA);
    assert!(matches!(only(&report), Problem::Mirror { at: found, .. } if found == at));
    assert_eq!(
        (report.worst(), report.is_sound()),
        (Some(Severity::Redundancy), true)
    );

    let (mut disk, _) = volume();
    disk.unreadable.insert(at.0);
    assert!(matches!(
        only(&run(&mut disk, DATA)),
        Problem::MirrorUnreadable(_)
    ));

    let (mut disk, _) = volume();
    disk.damage(disk.sb.root_place(Generation(1)));
    let report = run(&mut disk, DATA);
    assert!(matches!(only(&report), Problem::OtherRoot { .. }));
    assert_eq!(report.worst(), Some(Severity::Note));

    let (mut disk, _) = volume();
    let mut sb = disk.sb.clone();
    sb.begin_life(LogEnd::NONE);
    disk.write_mirror(0, &sb);
    assert_eq!(only(&run(&mut disk, DATA)), Problem::MirrorDiffers { at });
}

#[test]
fn a_damaged_summary_is_found() {
    let (mut disk, _) = volume();
    let at = disk.at(5, disk.sb.usable_blocks());
    disk.damage(at);
    let report = run(&mut disk, Options::default());
    assert!(
        matches!(only(&report), Problem::Summary { segment: Segment(5), at: found, .. } if found == at)
    );
    // The chunk headers say the same.
    assert_eq!(report.worst(), Some(Severity::Redundancy));
    disk.unreadable.insert(at.0);
    assert!(matches!(
        only(&run(&mut disk, DATA)),
        Problem::SummaryUnreadable { .. }
    ));
    // Without a summary, only the headers have the sums of the blocks behind them.
    disk.unreadable.insert(disk.at(5, 0).0);
    assert!(!run(&mut disk, DATA).is_sound());
    disk.unreadable.remove(&disk.at(5, 0).0);
    disk.damage(disk.at(5, 0));
    assert!(!run(&mut disk, DATA).is_sound());
}

#[test]
fn a_damaged_block_is_found_by_reading_it() {
    for (place, lba) in [((5, 20), 18), ((0, 2), 1)] {
        let (mut disk, _) = volume();
        let at = disk.at(place.0, place.1);
        disk.damage(at);
        assert_eq!(run(&mut disk, Options::default()).findings, []);
        let finding = only(&run(&mut disk, DATA));
        assert!(
            matches!(finding, Problem::Data { lba: l, at: a, .. } if l == Lba(lba) && a == at),
            "{finding}"
        );
        disk.unreadable.insert(at.0);
        let report = run(&mut disk, DATA);
        assert!(matches!(only(&report), Problem::DataUnreadable { lba: l, .. } if l == Lba(lba)));
        assert_eq!(
            report.verified_blocks,
            report.mapped_blocks - 1,
            "the neighbours of the damaged block were read"
        );
    }
}

#[test]
fn a_damaged_header_is_found_by_reading_it() {
    let (mut disk, _) = volume();
    disk.damage(disk.at(5, 11));
    let report = run(&mut disk, DATA);
    let at = disk.at(5, 12);
    assert_eq!(
        only(&report),
        Problem::HeadersDiffer {
            segment: Segment(5),
            at
        }
    );
    assert!(report.is_sound(), "the summary still says it");
}

/// Checks the volume with one entry of its map replaced.
fn with_entry(lba: u64, pba: Pba) -> Report {
    let (mut disk, _) = volume();
    disk.checkpoint(3, 4, [(0, 3), (1, 2)], &[(lba, pba)]);
    run(&mut disk, DATA)
}

#[test]
fn a_mapping_to_no_data_is_found() {
    // A header.
    let disk = Disk::new();
    let at = disk.at(5, 0);
    let report = with_entry(0, at);
    assert_eq!(report.findings[0], Problem::NotData { lba: Lba(0), at });
    assert!(!report.is_sound());
    // A block that was never written, a block before the segment's summary.
    for at in [disk.at(1, 9), disk.at(0, disk.sb.usable_blocks() - 1)] {
        let error = RecoveryError::Outside {
            what: "the map",
            at: disk.sb.leaf_slot(Leaf(0), 0),
        };
        let found = only(&with_entry(0, at));
        assert_eq!(found, Problem::Unopenable(error));
    }
}

#[test]
fn a_mapping_to_anothers_page_is_found() {
    let at = Disk::new().at(5, 4);
    let owner = Owner::Lba(Lba(3));
    assert_eq!(
        only(&with_entry(7, at)),
        Problem::Owner {
            lba: Lba(7),
            at,
            owner
        }
    );
}

#[test]
fn a_page_with_two_owners_is_found() {
    let (mut disk, _) = volume();
    let at = disk.at(5, 4);
    disk.checkpoint(3, 4, [(0, 3), (1, 2)], &[(3, at), (4, at)]);
    let first = run(&mut disk, DATA).findings.remove(0);
    assert_eq!(
        first,
        Problem::TwoOwners {
            at,
            first: Lba(3),
            second: Lba(4)
        }
    );
}

#[test]
fn shared_pages_are_sound() {
    let (mut disk, _) = volume();
    let mut share = chunk(5, 0, 3, 0, &[]);
    let pba = disk.at(5, 9);
    share.records = [8, 2]
        .map(|lba| Record::Share {
            lba: Lba(lba),
            vba: Vba(0),
            pba,
        })
        .to_vec();
    disk.write(&share);
    let report = run(&mut disk, DATA);
    assert_eq!(report.findings, []);
    assert_eq!((report.shared_pages, report.foreign_tags), (1, 1));

    // Without its first owner the page belongs to the other one, which no tag names.
    let mut discard = chunk(6, 0, 4, 0, &[]);
    discard.records = vec![Record::Discard {
        lba: Lba(8),
        blocks: 1,
    }];
    disk.write(&discard);
    let report = run(&mut disk, DATA);
    assert_eq!(report.findings, []);
    assert_eq!((report.shared_pages, report.foreign_tags), (0, 1));
}

#[test]
fn findings_past_the_limit_are_counted() {
    let (mut disk, _) = volume();
    for offset in 20..30 {
        disk.damage(disk.at(5, offset));
    }
    let report = run(
        &mut disk,
        Options {
            findings_max: 4,
            ..DATA
        },
    );
    assert_eq!((report.findings.len(), report.unlisted), (4, 6));
    assert!(!report.is_sound());
}

#[test]
fn a_segments_chunks_are_walked_to_the_end_of_its_present_use() {
    let (mut disk, chunks) = volume();
    // After segment 0's two chunks lies one of an earlier use.
    let mut stale = chunk(1, 0, 3, 0, &[66]);
    stale.life = 0;
    stale.prev_life = 0;
    disk.write(&stale);
    let seqs = |disk: &mut Disk, segment| {
        let sb = disk.sb.clone();
        let mut walk = Chunks::new(&sb, Segment(segment), crc32c);
        let mut seqs = Vec::new();
        while let Some(chunk) = walk.next(disk) {
            seqs.push(chunk.unwrap().header.seq);
        }
        seqs
    };
    assert_eq!(seqs(&mut disk, 0), [Seq(chunks[2].seq)]);
    assert_eq!(seqs(&mut disk, 5), [Seq(1), Seq(2)]);
    assert_eq!(seqs(&mut disk, 6), []);
    assert_eq!(seqs(&mut disk, u32::MAX), []);
    assert_eq!(data(3).len(), 4096);
}
