use super::*;
use crate::addr::Vba;
use crate::format::geometry::{SMALL, plan};
use crate::seam::Digest;
use alloc::vec;
use core::num::NonZeroU16;

const AT: Pba = Pba(100);

/// An open chunk without names.
fn chunk() -> Chunk {
    let opening = Opening {
        head: Head::Hot,
        segment: Segment(0),
        at: AT,
        ordinal: 1,
        max_data: 4,
        now: Nanos(0),
    };
    let mut chunk = Chunk::new(opening);
    chunk.open(opening, 0);
    chunk
}

fn payload(buf: u32, sum: u32) -> Payload {
    let digest = Digest {
        sum,
        ..Digest::default()
    };
    Payload {
        buf: Buf(buf),
        digest,
    }
}

fn packed(len: u16) -> Packed {
    Packed {
        len: NonZeroU16::new(len).expect("parts have bytes"),
        encoding: 2,
        bucket: None,
        base: None,
    }
}

/// The record of a part of 100 bytes.
fn part(block: u16, slot: u8) -> Record {
    let part = Part {
        block,
        slot,
        len: 100,
        ..Part::default()
    };
    Record::Part { lba: Lba(7), part }
}

#[test]
fn zeros_are_joined_to_those_before_them() {
    let mut chunk = chunk();
    assert!(!chunk.join_zeros(Lba(5), 1, false), "it has no record");
    let zeros = Record::Zero {
        lba: Lba(5),
        blocks: 1,
    };
    chunk.push_link(zeros, true);
    let bytes = chunk.record_bytes();
    assert!(chunk.join_zeros(Lba(6), 2, true));
    assert!(!chunk.delays_flush(), "all of them are pledged");
    assert!(!chunk.join_zeros(Lba(9), 1, false));
    assert!(chunk.join_zeros(Lba(8), 1, false) && chunk.delays_flush());
    let joined = Record::Zero {
        lba: Lba(5),
        blocks: 4,
    };
    assert_eq!(
        (chunk.record_bytes(), &chunk.records),
        (bytes, &vec![joined])
    );
}

#[test]
fn a_pledged_link_is_nothing_to_flush_but_leads_to_another_chunk() {
    let mut chunk = chunk();
    let share = Record::Share {
        lba: Lba(1),
        vba: Vba(2),
        pba: Pba(9),
    };
    chunk.push_link(share, true);
    assert!(chunk.links() && !chunk.delays_flush());
    assert!(chunk.links_to(Pba(9)) && !chunk.links_to(Pba(10)));
    chunk.push_link(share, false);
    assert!(chunk.delays_flush());
    chunk.push_link(share, true);
    assert!(chunk.delays_flush(), "the one before it is to be flushed");
}

#[test]
fn a_block_is_replaced_where_it_is() {
    let mut chunk = chunk();
    let record = Record::Data {
        lba: Lba(1),
        sum: 1,
    };
    let pba = chunk.push_data(record, ChunkBlock::Whole(Buf(1)));
    assert_eq!(pba, AT.plus(1));
    assert!(chunk.holds(pba) && !chunk.holds(AT) && !chunk.holds(AT.plus(2)));
    assert_eq!(chunk.replace(pba, &payload(2, 22)), Some(Buf(1)));
    assert_eq!(chunk.replace(AT.plus(2), &payload(3, 33)), None);
    let told = Record::Data {
        lba: Lba(1),
        sum: 22,
    };
    assert_eq!(chunk.records, [told]);
    assert_eq!(chunk.bufs().collect::<Vec<_>>(), [Buf(2)]);
}

#[test]
fn a_part_is_replaced_by_one_that_fits_in_its_place() {
    let mut chunk = chunk();
    chunk.push_part(part(0, 0), Buf(1));
    chunk.push_part(part(0, 1), Buf(2));
    let longer = chunk.replace_part(0, 1, &payload(3, 33), packed(101));
    let missing = chunk.replace_part(0, 2, &payload(3, 33), packed(1));
    assert_eq!((longer, missing), (None, None));
    let old = chunk.replace_part(0, 1, &payload(3, 33), packed(99));
    assert_eq!(old, Some(Buf(2)));
    let (_, told) = chunk.records[1].part().expect("it is a part's record");
    assert_eq!((told.sum, told.encoding, told.len), (33, 2, 99));
    let places: Vec<_> = chunk.places().collect();
    assert_eq!(places, [(Buf(1), AT, Some(0)), (Buf(3), AT, Some(1))]);
}

#[test]
fn parts_take_room_of_the_header_only_if_they_are_in_it() {
    let mut chunk = chunk();
    let page = Record::Pack {
        vba: Vba(1),
        sum: 0,
    };
    chunk.push_data(page, ChunkBlock::Page);
    let (room, bytes) = (chunk.room(), chunk.record_bytes());
    let record = part(1, 0).encoded_len();
    chunk.push_part(part(1, 0), Buf(1));
    chunk.push_part(part(0, 0), Buf(2));
    assert_eq!(chunk.room(), room - 2 * record - 100);
    assert_eq!(chunk.record_bytes(), bytes + 2 * record);
    assert!(matches!(
        chunk.held(AT.plus(1), Some(0)),
        Some(Held::Block(Buf(1)))
    ));
    assert!(matches!(chunk.held(AT, Some(0)), Some(Held::Block(Buf(2)))));
    chunk.set_page_sum(0, 77);
    assert!(matches!(chunk.records[0], Record::Pack { sum: 77, .. }));
}

/// What was in the memory before must not reach the medium.
#[test]
fn a_header_and_a_page_are_the_same_whatever_they_are_encoded_over() {
    let superblock = plan(&SMALL).expect("the parameters are sound");
    let mut chunk = chunk();
    let page = Record::Pack {
        vba: Vba(1),
        sum: 0,
    };
    chunk.push_data(page, ChunkBlock::Page);
    chunk.push_part(part(1, 0), Buf(1));
    chunk.push_part(part(0, 0), Buf(2));
    chunk.seal = Some(Seal {
        seq: Seq(3),
        prev_life: Life(1),
        durable: Seq(2),
        next: None,
    });
    let mut encode = |byte: u8| {
        let mut blocks = [[byte; BLOCK_BYTES]; 2];
        let put: PutPart<'_> = &mut |buf, _, out| out.fill(buf.0 as u8);
        chunk.encode_page(0, &mut blocks[1], put);
        let root = (Generation(1), crc32c::crc32c as Crc);
        chunk.encode_header(&superblock, root, &mut blocks[0], put);
        blocks
    };
    assert!(encode(0) == encode(0xa5));
}
