use super::*;
use crate::addr::{BLOCK_BYTES, Generation, Lba};
use crate::format::geometry::{self, SMALL};
use core::iter::empty;

const LIMIT: usize = 3;
const CRC: Crc = crc32c::crc32c;
const SEGMENT: Segment = Segment(3);

fn some() -> Superblock {
    geometry::plan(&SMALL).unwrap()
}

fn are_bounded(sums: &Sums) {
    assert!(sums.clock.len() <= LIMIT);
    assert!(sums.clock.len() + sums.spare_sums.len() <= LIMIT);
    assert!(sums.spare_tags.len() <= SPARE_TAGS);
}

/// The segment's summary, through chunk 6: block n has the checksum 70 + n.
fn summary(sums: &mut Sums) -> Vec<u8> {
    let superblock = some();
    let blocks = superblock.usable_blocks();
    let tag = |offset| Tag {
        owner: Owner::Lba(Lba(offset)),
        sum: 70 + offset as u32,
    };
    sums.restore(SEGMENT, (0..blocks.into()).map(tag).collect());
    let mut summary = vec![0; (superblock.segment_blocks() - blocks) as usize * BLOCK_BYTES];
    sums.encode_summary(&superblock, SEGMENT, Seq(6), CRC, &mut summary);
    sums.of.remove(&SEGMENT.0);
    summary
}

/// The header of the segment's first chunk, with these records.
fn header(seq: Seq, records: &[chunk::Record], next: Option<Segment>) -> Vec<u8> {
    let superblock = some();
    let header = chunk::ChunkHeader {
        signature: superblock.signature(),
        seq,
        life: superblock.life(),
        prev_life: superblock.life(),
        durable: Seq(0),
        at: superblock.segment_start(SEGMENT),
        root_generation: Generation(0),
        head: 0,
        data_blocks: records.len() as u32,
        next,
    };
    let mut block = vec![0; BLOCK_BYTES];
    chunk::encode(&header, records, &[], CRC, &mut block);
    block
}

/// A summary whose write was cut short may have its first sector from the segment's previous use: a newer chunk shows it.
#[test]
fn a_torn_summary_is_ignored_where_a_chunk_is_newer_than_it() {
    for (newest, judged) in [(5, Judged::Right), (6, Judged::Right), (7, Judged::Unknown)] {
        let mut sums = Sums::new(some(), LIMIT);
        let mut summary = summary(&mut sums);
        *summary.last_mut().expect("it has bytes") ^= 1;
        sums.begin_load(SEGMENT, None);
        let mut load = |offset, bytes: &[u8]| sums.on_read(SEGMENT, offset, bytes, CRC, empty());
        assert_eq!(load(None, &summary), Some(0));
        assert_eq!(load(Some(0), &header(Seq(newest), &[], None)), Some(1));
        // The header of the next chunk is lost, and so on.
        assert_eq!(load(Some(1), &[0; BLOCK_BYTES]), Some(2));
        assert_eq!(sums.sum(SEGMENT, 9), None);
        assert_eq!(sums.judge(SEGMENT, 9, 79), judged, "{newest}");
        assert_eq!(sums.judge(SEGMENT, 9, 78), Judged::Unknown);
        assert!(sums.is_loading(SEGMENT), "something could not be read");
        sums.settle(SEGMENT);
        assert!(sums.wants_load(SEGMENT), "the next read tries again");
    }
}

/// The drive may have lost a write of the summary: the headers of newer chunks decide.
#[test]
fn a_block_that_contradicts_a_summary_has_the_chunk_headers_read() {
    let superblock = some();
    let record = chunk::Record::Data {
        lba: Lba(4),
        sum: 99,
    };
    let at = superblock.segment_start(SEGMENT).plus(1);
    let start = superblock.segment_start(SEGMENT);
    for waits in [false, true] {
        for (seq, judged) in [(6, Judged::Wrong), (7, Judged::Right)] {
            let mut sums = Sums::new(superblock.clone(), LIMIT);
            let summary = summary(&mut sums);
            let usable = superblock.usable_blocks();
            let behind = superblock.segment_blocks() - usable;
            let place = sums.begin_load(SEGMENT, None);
            assert_eq!(place, (start.plus(usable.into()), behind));
            let found = [(at, &[99, 72][..])];
            let waiting = found.into_iter().filter(|_| waits);
            let next = sums.on_read(SEGMENT, None, &summary, CRC, waiting);
            assert_eq!(next, waits.then_some(0));
            if !waits {
                assert_eq!(sums.judge(SEGMENT, 2, 72), Judged::Right);
                assert_eq!(sums.judge(SEGMENT, 1, 99), Judged::Doubted);
            }
            assert!(sums.is_loading(SEGMENT));
            assert_eq!(sums.begin_load(SEGMENT, Some(0)), (start, 1));
            let header = header(Seq(seq), &[record], Some(Segment(5)));
            let next = sums.on_read(SEGMENT, Some(0), &header, CRC, found.into_iter());
            assert_eq!(next, None, "the headers are read only once");
            assert_eq!(sums.judge(SEGMENT, 1, 99), judged, "{waits} {seq}");
            assert_eq!(sums.judge(SEGMENT, 2, 72), Judged::Right);
        }
    }
}

#[test]
fn summaries_read_back_take_no_more_memory_than_the_cache_may() {
    let superblock = some();
    let blocks = superblock.usable_blocks();
    let bytes = (superblock.segment_blocks() - blocks) as usize * BLOCK_BYTES;
    let mut sums = Sums::new(superblock.clone(), LIMIT);
    for round in 0..3 {
        for segment in (0..superblock.segment_count()).map(Segment) {
            let of = |offset: u32| segment.0 << 16 | round << 10 | offset;
            let tag = |offset: u32| Tag {
                owner: Owner::Lba(Lba(offset.into())),
                sum: of(offset),
            };
            // The tags of a summary that is rewritten with the current owners.
            sums.restore(segment, (0..blocks).map(tag).collect());
            let mut summary = vec![0; bytes];
            sums.encode_summary(&superblock, segment, Seq(1), CRC, &mut summary);
            sums.summarised(segment, Seq(1));
            are_bounded(&sums);
            sums.forget(segment);
            // The checksums of a summary that a read requests.
            sums.begin_load(segment, None);
            let next = sums.on_read(segment, None, &summary, CRC, empty());
            assert_eq!(next, None);
            assert_eq!(sums.sum(segment, 7), Some(of(7)));
            are_bounded(&sums);
        }
    }
}

#[test]
fn one_summary_is_rewritten_at_a_time_until_it_is_written() {
    let mut sums = Sums::new(some(), LIMIT);
    assert!(!sums.is_rewriting());
    sums.begin_rewrite(Segment(1));
    assert!(sums.rewrites(Segment(1)) && !sums.rewrites(Segment(2)));
    sums.restore(Segment(1), Vec::new());
    sums.open(Segment(2));
    sums.summarised(Segment(2), Seq(5));
    assert!(sums.rewrites(Segment(1)));
    sums.summarised(Segment(1), Seq(6));
    assert!(!sums.is_rewriting());
    // The first was written from what a client wrote, and the other from what was read.
    assert!(!sums.doubt(Segment(2)) && sums.doubt(Segment(1)));
}
