//! The check of tables: compares every invariant of a volume at rest with the medium; nothing is changed.
//!
//! 1. Both superblocks are whole and equal. Every sector of every table is whole, and in its place. A damaged sector of fingerprints or
//!    counts can be restored from the map. Both copies of metadata are whole and equal; after a crash one may be older.
//! 2. Every link leads to a data block.
//! 3. No count is lower than the number of links to its block. A higher one is what a crash may leave.
//! 4. Every live block has the checksum that its links have (with `data`).

use super::recover::{Recovered, recover};
use crate::addr::{BLOCK_BYTES, Lba, Pba};
use crate::check::mirrors::check_mirrors;
use crate::check::options::Options;
use crate::check::report::{Problem, Report};
use crate::format::areas::Layout;
use crate::format::table::{Kind, sum_of_sectors};
use crate::format::{BlockSum, Crc, FormatError};
use crate::recovery::{Source, Unreadable};
use alloc::{vec, vec::Vec};

/// Blocks of one read of data.
const READ_BLOCKS: usize = 64;

/// The most damaged blocks before the check of data ends: they are kept until it is known which LBAs lead to them.
const DAMAGED_MAX: usize = 64 << 10;

/// Checks a volume of tables.
pub fn check(
    source: &mut dyn Source,
    medium_blocks: u64,
    options: Options,
    crc: Crc,
    report: &mut Report,
) {
    let recovered = match recover(source, medium_blocks, crc) {
        Ok(recovered) => recovered,
        Err(error) => return report.add(Problem::Unopenable(error)),
    };
    report.superblock = Some(recovered.superblock.clone());
    report.replayed = recovered.replayed;
    check_mirrors(source, &recovered.superblock, crc, report);
    for lost in &recovered.lost {
        report.add(match lost.kind {
            Kind::Counts => Problem::Counts(lost.error),
            Kind::Editions => Problem::Editions(lost.error),
            _ => Problem::Fingerprints(lost.error),
        });
    }
    check_twins(source, &recovered, crc, report);
    for &(at, count, links) in &recovered.too_low {
        report.add(Problem::CountTooLow { at, count, links });
    }
    if recovered.leaks > 0 {
        report.add(Problem::CountsTooHigh {
            blocks: recovered.leaks,
        });
    }
    report.shared_pages = recovered.found.shared_pages;
    report.mapped_blocks = recovered.links().count() as u64;
    if options.data {
        let damaged = Data::of(&recovered).verify(source, recovered.superblock.sum(crc), report);
        report_links(&recovered, &damaged, report);
    }
}

/// Checks both copies of metadata. Recovery reads only one of the copies of shadowed tables.
fn check_twins(source: &mut dyn Source, recovered: &Recovered, crc: Crc, report: &mut Report) {
    let superblock = &recovered.superblock;
    if superblock.layout() == Layout::Ordered {
        let blocks = recovered
            .anew
            .tables
            .iter()
            .filter(|(kind, _)| *kind == Kind::Map);
        for &(_, block) in blocks {
            let number = u64::from(block);
            let first = superblock.table_at(number, 0);
            if let Some(twin) = superblock.map_twin(number, 0) {
                report.add(match recovered.anew.damaged.contains(&block) {
                    true => Problem::Twins { first, twin },
                    false => Problem::TwinBehind { first, twin },
                });
            }
        }
        return;
    }
    if let Some(at) = recovered.anew.root {
        let first = superblock.shadow_root_at(recovered.generation);
        let other = match first == at {
            true => first.plus(superblock.shadow_root_blocks()),
            false => first,
        };
        report.add(Problem::Twins {
            first: other,
            twin: at,
        });
    }
    let mut hold = |first: Pba, twin: Option<Pba>, is_whole: &dyn Fn(&[u8]) -> bool| {
        let mut block = [0; BLOCK_BYTES];
        let Some(twin) = twin else { return };
        let mut is_bad = |at| source.read(at, &mut block).is_err() || !is_whole(&block);
        if is_bad(first) || is_bad(twin) {
            report.add(Problem::Twins { first, twin });
        }
    };
    let maps = superblock.table_blocks()[Kind::Map as usize] as usize;
    for (number, entry) in (0..).zip(recovered.slots.iter().take(maps)) {
        if let Some((slot, sum)) = entry.found() {
            let (first, twin) = (
                superblock.table_at(number, slot.into()),
                superblock.map_twin(number, slot.into()),
            );
            hold(first, twin, &|block| {
                sum_of_sectors(block, crc) == sum || crc(block) == sum
            });
        }
    }
    for (number, entry) in (0..).zip(&recovered.directory) {
        if let Some((slot, sum)) = entry.found() {
            let (first, twin) = (
                superblock.directory_at(number, slot.into()),
                superblock.directory_twin(number, slot.into()),
            );
            hold(first, twin, &|block| crc(block) == sum);
        }
    }
}

/// What data blocks should hold: little more than 4 bytes a block, in addition to the tables. The check needs no further memory,
/// whatever is linked.
struct Data<'a> {
    recovered: &'a Recovered,
    expected: Vec<u32>,
    /// Bit set: the block's links have different sums.
    disputed: Vec<u64>,
}

/// A data block whose sum is not that of its links.
struct Damaged {
    at: Pba,
    why: Result<u32, Unreadable>,
}

impl<'a> Data<'a> {
    fn of(recovered: &'a Recovered) -> Self {
        let areas = recovered.superblock.areas();
        let mut expected = vec![0; areas.data_blocks() as usize];
        for (_, at, sum) in recovered.links() {
            if let Some(index) = areas.data_index(at) {
                expected[index as usize] = sum;
            }
        }
        let mut disputed = vec![0; expected.len().div_ceil(64)];
        for (_, at, sum) in recovered.links() {
            if let Some(index) = areas.data_index(at).map(|index| index as usize)
                && expected[index] != sum
            {
                disputed[index / 64] |= 1 << (index % 64);
            }
        }
        Self {
            recovered,
            expected,
            disputed,
        }
    }

    /// Reads all linked blocks, in the medium's order and in long reads.
    fn verify(&self, source: &mut dyn Source, sum: BlockSum, report: &mut Report) -> Vec<Damaged> {
        let areas = self.recovered.superblock.areas();
        let is_linked = |index: u32| self.recovered.refs.get(index) > 0;
        let end = self.expected.len() as u32;
        let mut bytes = vec![0; READ_BLOCKS * BLOCK_BYTES];
        let mut damaged = Vec::new();
        let mut index = 0;
        while index < end && damaged.len() < DAMAGED_MAX {
            if !is_linked(index) {
                index += 1;
                continue;
            }
            let most = end.min(index + READ_BLOCKS as u32);
            let next = (index..most).find(|&next| !is_linked(next)).unwrap_or(most);
            let run = &mut bytes[..(next - index) as usize * BLOCK_BYTES];
            let whole = source.read(areas.data(index), run).is_ok();
            for (index, block) in (index..next).zip(run.chunks_exact_mut(BLOCK_BYTES)) {
                let at = areas.data(index);
                let read = match whole {
                    true => Ok(()),
                    false => source.read(at, block),
                };
                let why = read.map(|()| sum.of(block));
                if why.is_ok() {
                    report.verified_blocks += u64::from(self.recovered.refs.get(index));
                }
                let disputed = self.disputed[index as usize / 64] >> (index % 64) & 1 == 1;
                if disputed || why != Ok(self.expected[index as usize]) {
                    damaged.push(Damaged { at, why });
                }
            }
            index = next;
        }
        damaged
    }
}

/// Reports every LBA that leads to a damaged block, or to a block whose other links have another checksum.
fn report_links(recovered: &Recovered, damaged: &[Damaged], report: &mut Report) {
    for (lba, at, expected) in recovered.links() {
        let Ok(found) = damaged.binary_search_by_key(&at, |damaged| damaged.at) else {
            continue;
        };
        let lba = Lba(lba.into());
        match damaged[found].why {
            Err(error) => report.add(Problem::DataUnreadable { lba, error }),
            Ok(found) if found != expected => {
                let error = FormatError::Checksum {
                    what: "data block",
                    found,
                    expected,
                };
                report.add(Problem::Data { lba, at, error });
            }
            Ok(_) => {}
        }
    }
}
