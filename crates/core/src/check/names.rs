//! Checks the names in headers after the map checkpoint: each header must repeat everything that the previous chunk named (0021).

use super::chunks::Chunks;
use super::report::{Problem, Report};
use crate::addr::{Life, Pba, Segment, Seq};
use crate::format::Crc;
use crate::format::chunk::Record;
use crate::format::names::Names;
use crate::recovery::{Recovered, Source};
use alloc::collections::BTreeMap;

/// Where a chunk is, what its records name (`said`), and what its header says that the previous chunk named (`of_before`).
struct Told {
    said: Names,
    at: Pba,
    of_before: Names,
}

pub(super) fn check(source: &mut dyn Source, recovered: &Recovered, crc: Crc, report: &mut Report) {
    let superblock = &recovered.superblock;
    let behind = recovered.root.seq..=recovered.last_seq;
    let mut chunks: BTreeMap<(Seq, Life), (Life, Told)> = BTreeMap::new();
    for (index, &newest) in (0..).zip(&recovered.newest) {
        if newest <= recovered.root.seq || !superblock.has_names() {
            continue;
        }
        let mut walk = Chunks::new(superblock, Segment(index), crc);
        while let Some(Ok(chunk)) = walk.next(source) {
            let header = chunk.header;
            if !behind.contains(&header.seq) || header.seq == recovered.root.seq {
                continue;
            }
            let mut said = Names::default();
            said.take(chunk.records.iter().filter_map(Record::names));
            let told = Told {
                said,
                at: header.at,
                of_before: chunk.of_before,
            };
            chunks.insert((header.seq, header.life), (header.prev_life, told));
        }
    }
    for ((seq, _), (prev_life, told)) in &chunks {
        let before = chunks.get(&(Seq(seq.0 - 1), *prev_life));
        if before.is_some_and(|(_, before)| !told.of_before.cover(&before.said)) {
            report.add(Problem::Names { at: told.at });
        }
    }
}
