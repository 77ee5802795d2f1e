//! A rescue of volumes that were written by hand: what it believes, and what it does not.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "not a server: a failure is a test's"
)]

#[allow(dead_code, reason = "each test uses its share")]
mod disk;

use crc32c::crc32c;
use disk::{BLOCKS, Chunk, Disk, chunk, sum};
use vellum_core::addr::Lba;
use vellum_core::entry::Entry;
use vellum_core::format::chunk::Record;
use vellum_core::recovery::rescue::{Trust, rescue};

/// A block that LBA 5 wrote belongs to LBA 6: the two shared it. A chunk is lost, so that all LBAs are in doubt. The segment's summary
/// was rewritten since, and names its owner.
#[test]
fn a_summary_that_names_the_owner_of_now_confirms_a_guess() {
    let written = chunk(1, 0, 0, 5, &[10]);
    let (right, wrong) = (sum(&written.data[0]), 7);
    for (lba, sum, is_there) in [
        (5, right, true),
        (6, right, true),
        (7, right, false),
        (6, wrong, false),
    ] {
        let told = Chunk {
            records: vec![Record::Data { lba: Lba(lba), sum }],
            ..written.clone()
        };
        let mut disk = Disk::new();
        disk.write(&written);
        disk.write_summary(0, &[&told]);
        disk.checkpoint(2, 1, [(2, 0), (1, 0)], &[(6, disk.at(0, 1))]);
        let mut last = chunk(3, 1, 0, 9, &[30]);
        (last.root, last.durable) = (2, 2);
        disk.write(&last);
        let rescued = rescue(&mut disk, BLOCKS, crc32c, Trust::Newest).unwrap();
        let expected = match is_there {
            true => Entry::Plain(disk.at(0, 1)),
            false => Entry::Unmapped,
        };
        assert_eq!(
            rescued.recovered.state.map().get(Lba(6)),
            expected,
            "LBA {lba}"
        );
        assert_eq!(rescued.loss.guessed.contains(Lba(6)), is_there);
        assert_eq!(rescued.loss.lost.contains(Lba(6)), !is_there);
    }
}
