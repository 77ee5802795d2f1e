//! Where recovery begins: two superblocks, one of which is enough, and what is refused with a reason.

#[allow(dead_code, reason = "each test uses its share")]
mod disk;

use crc32c::crc32c;
use disk::{Chunk, Disk, chunk};
use vellum_core::addr::{Generation, Life, Seq};
use vellum_core::format::FormatError;
use vellum_core::format::superblock::LogEnd;
use vellum_core::layout::Recovered;
use vellum_core::recovery::RecoveryError;

fn disk_with(chunks: &[Chunk]) -> Disk {
    let mut disk = Disk::new();
    for chunk in chunks {
        disk.write(chunk);
    }
    disk
}

/// Three chunks of one head.
fn three() -> [Chunk; 3] {
    [1, 2, 3].map(|seq| chunk(seq, 0, seq as u32 * 2 - 2, seq, &[7]))
}

#[test]
fn either_superblock_is_enough() {
    for lost in [0, 1] {
        let mut disk = disk_with(&three());
        disk.damage(disk.sb.mirrors()[lost]);
        let found = disk.recovered();
        assert_eq!((found.last_seq, found.replayed.mirror_lost), (Seq(3), true));
        disk.unreadable.insert(disk.sb.mirrors()[lost].0);
        assert_eq!(disk.recovered().last_seq, Seq(3));
        disk.damage(disk.sb.mirrors()[1 - lost]);
        assert!(matches!(disk.error(), RecoveryError::Unreadable(_)));
        disk.unreadable.clear();
        assert!(matches!(disk.error(), RecoveryError::NoSuperblock { .. }));
    }
}

#[test]
fn the_superblock_of_the_newer_life_wins() {
    for newer in [0, 1] {
        let mut disk = Disk::new();
        let mut sb = disk.sb.clone();
        sb.begin_life(LogEnd::NONE);
        disk.write_mirror(newer, &sb);
        let found = disk.recovered();
        assert_eq!(
            (found.superblock.life(), found.replayed.mirror_lost),
            (Life(1), true)
        );
    }
}

#[test]
fn a_root_older_than_one_that_was_durable_is_refused() {
    // Only the first mirror is marked when a map checkpoint is complete; the other is updated at the next opening.
    let mut disk = Disk::new();
    let mut sb = disk.sb.clone();
    sb.mark_root(Generation(2));
    disk.write_mirror(0, &sb);
    let lost = Generation(2);
    assert_eq!(disk.error(), RecoveryError::RootLost { lost });
    disk.checkpoint(2, 0, [(0, 0), (1, 0)], &[]);
    let found = disk.recovered();
    assert_eq!(
        (found.root.generation, found.replayed.mirror_lost),
        (lost, false)
    );
}

#[test]
fn a_later_version_is_named_as_such() {
    let version = FormatError::Version {
        what: "superblock",
        version: 9,
        known: vellum_core::format::VERSION,
    };
    // This holds even if the other mirror is of this version, because the newer mirror must not be overwritten.
    for newer in [&[0, 1][..], &[0], &[1]] {
        let mut disk = Disk::new();
        for &mirror in newer {
            let at = disk.sb.mirrors()[mirror];
            let block = disk.blocks.get_mut(&at.0).unwrap();
            block[8] = 9;
            seal(block);
        }
        let error = disk.error();
        let at = disk.sb.mirrors()[newer[0]];
        let expected = RecoveryError::Superblock { at, error: version };
        assert_eq!(error, expected);
        assert!(error.to_string().contains("use a newer vellum"), "{error}");
    }
}

#[test]
fn a_volume_with_a_feature_unknown_to_writers_can_still_be_read() {
    for (field, is_read) in [("incompatible", false), ("read_only_compatible", true)] {
        let mut disk = disk_with(&three());
        let fields = vellum_core::format::superblock::FIELDS;
        let field = fields.iter().find(|known| known.name == field).unwrap();
        for at in disk.sb.mirrors() {
            let block = disk.blocks.get_mut(&at.0).unwrap();
            block[field.offset + 1] = 128;
            seal(block);
        }
        let unknown = FormatError::Features {
            what: "superblock",
            bits: 128 << 8,
        };
        let (at, error) = (disk.sb.mirrors()[0], unknown);
        let refused = RecoveryError::Superblock { at, error };
        match is_read {
            true => {
                let found = disk.recovered();
                assert_eq!(found.last_seq, Seq(3));
                let mut found = Recovered::Log(Box::new(found));
                assert_eq!(found.begin_life().err(), Some(refused));
            }
            false => assert_eq!(disk.error(), refused),
        }
    }
}

/// The checksum of a block whose checksum is at bytes 12 to 16: a checksum of two checksums.
fn seal(block: &mut [u8]) {
    let parts = [
        crc32c(&block[..12]).to_le_bytes(),
        crc32c(&block[16..]).to_le_bytes(),
    ];
    let sum = crc32c(&parts.concat());
    block[12..16].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn a_medium_that_lost_its_end_is_refused() {
    let mut disk = disk_with(&three());
    disk.size -= 1;
    let error = disk.error();
    let RecoveryError::Superblock { error, .. } = error else {
        panic!("{error}");
    };
    assert!(matches!(error, FormatError::CutShort { .. }), "{error}");
}

#[test]
fn a_medium_that_grew_is_the_same_volume() {
    let mut disk = disk_with(&three());
    disk.size += 1000;
    assert_eq!(disk.recovered().last_seq, Seq(3));
}

#[test]
fn numbers_at_their_end_are_refused_not_overflowed() {
    let mut disk = Disk::new();
    for at in disk.sb.mirrors() {
        let block = disk.blocks.get_mut(&at.0).unwrap();
        let life = vellum_core::format::superblock::FIELDS;
        let life = life.iter().find(|field| field.name == "life").unwrap();
        block[life.offset..life.offset + 8].fill(0xff);
        seal(block);
    }
    assert!(matches!(disk.error(), RecoveryError::NoSuperblock { .. }));

    let mut disk = Disk::new();
    disk.checkpoint(2, u64::MAX, [(0, 0), (1, 0)], &[]);
    assert_eq!(disk.recovered().root.generation, Generation(1));

    let mut huge = chunk(1, 0, 0, 0, &[1]);
    huge.life = u64::MAX;
    assert_eq!(disk_with(&[huge]).recovered().last_seq, Seq(0));
}
