use super::super::fake::{Fake, SEGMENT, superblock};
use super::*;
use crate::addr::{Lba, Seq, Vba};
use crate::format::record::{Part, Record};
use crate::format::summary::Owner;
use alloc::vec;
use crc32c::crc32c as crc;

fn page(lba: u64) -> Vec<u8> {
    let mut page = vec![0; BLOCK_BYTES];
    let part = Record::Part {
        lba: Lba(lba),
        part: Part::default(),
    };
    pack::encode([part].iter(), &mut page);
    page
}

/// One segment has a summary, but only the first of its pages of parts is as written. The summaries of the others cannot be read.
#[test]
fn a_walk_finds_what_can_be_read_and_nothing_else() {
    let superblock = superblock();
    let usable = superblock.usable_blocks();
    let start = superblock.segment_start(Segment(0));
    let pages = [start.plus(3), start.plus(4), start.plus(9)];
    let mut tags = vec![
        Tag {
            owner: Owner::None,
            sum: 0
        };
        usable as usize
    ];
    for (at, lba) in pages.iter().zip(0..) {
        tags[(at.0 - start.0) as usize].sum = crc(&page(lba));
    }
    let mut summary = vec![0; (SEGMENT - usable) as usize * BLOCK_BYTES];
    let signature = superblock.signature();
    summary::encode(&signature, Segment(0), Seq(1), &tags, crc, &mut summary);
    let volume = Fake {
        pages: pages.map(|at| (at, Vba(at.0 as u32))).into(),
        ..Fake::default()
    };
    let mut walk = Walk::new(superblock.clone(), crc, Haste::Now, Nanos(0));
    let (mut blocks, mut parts, mut reads) = (0, Vec::new(), Vec::new());
    loop {
        match walk.next(Nanos(0), &Around::default()) {
            Step::Ask => walk.ask(&volume),
            Step::Read { at, blocks } if at == start.plus(usable.into()) => {
                assert_eq!(blocks, SEGMENT - usable);
                walk.read(Seen::Bytes(&summary));
            }
            Step::Read { at, blocks } if at.0 < start.0 + u64::from(usable) => {
                reads.push((at, blocks));
                let other = if at == pages[0] { page(77) } else { page(2) };
                let bytes = [page(0), other].concat();
                walk.read(Seen::Bytes(&bytes[..blocks as usize * BLOCK_BYTES]));
            }
            Step::Read { .. } => walk.read(Seen::Nothing),
            Step::Found => walk.found(|at, found| match found {
                Found::Blocks(tags) => blocks += tags.len(),
                Found::Parts(_, told) => parts.push((at, told[0].lba)),
            }),
            Step::End(well) => {
                assert!(well);
                break;
            }
            step => panic!("{step:?}"),
        }
    }
    assert_eq!(blocks, usable as usize);
    assert_eq!(reads, [(pages[0], 2), (pages[2], 1)]);
    // The third one holds another page.
    assert_eq!(parts, [(pages[0], Lba(0))]);
    assert_eq!(walk.permille(), 1000);
}
