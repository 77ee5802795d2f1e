use super::*;
use crate::addr::{BLOCK_BYTES, Lba, Life};
use crate::format::chunk::{ChunkHeader, encode};
use crate::format::geometry::{self, SMALL};
use alloc::{collections::BTreeMap, vec};
use crc32c::crc32c;

const SEGMENT: Segment = Segment(3);
const BUFS: u32 = limits::GATHER_BLOCKS;

fn some() -> Superblock {
    geometry::plan(&SMALL).unwrap()
}

/// The live blocks of [`SEGMENT`], which are all there are.
#[derive(Default)]
struct Fake {
    owners: BTreeMap<Pba, Owner>,
    /// Owners that no tag names, and that were not searched for.
    unnamed: BTreeMap<Pba, Owner>,
    has_away: bool,
}

impl Contents for Fake {
    fn live(&self, segment: Segment) -> u32 {
        assert_eq!(segment, SEGMENT);
        (self.owners.len() + self.unnamed.len()) as u32
    }

    fn owner_of(&self, pba: Pba, _: Owner) -> Option<Owner> {
        self.owners.get(&pba).copied()
    }

    fn has_away(&self) -> bool {
        self.has_away
    }
}

/// A collector without an engine, whose victim has live blocks at some offsets.
struct Bench {
    superblock: Superblock,
    collector: Collector,
    contents: Fake,
}

/// The sum of the block at an offset.
fn sum(offset: u32) -> u32 {
    900 + offset
}

fn tag(offset: u32) -> Tag {
    let (owner, sum) = (Owner::Lba(Lba(offset.into())), sum(offset));
    Tag { owner, sum }
}

impl Bench {
    fn idle(live: impl IntoIterator<Item = u32>) -> Self {
        let superblock = some();
        let mut bench = Self {
            collector: Collector::new(superblock.segment_count(), Buf(100), BUFS),
            superblock,
            contents: Fake::default(),
        };
        for offset in live {
            let at = bench.at(offset);
            bench.contents.owners.insert(at, tag(offset).owner);
        }
        bench
    }

    /// With a victim whose tags are in memory.
    fn new(live: impl IntoIterator<Item = u32>) -> Self {
        let mut bench = Self::idle(live);
        assert_eq!(bench.poll(), Some(Step::Choose));
        let tags: Vec<_> = (0..bench.superblock.usable_blocks()).map(tag).collect();
        let known = Some(&tags[..]);
        bench.collector.on_chosen(&bench.superblock, SEGMENT, known);
        assert!(bench.collector.is_collecting(SEGMENT) && !bench.collector.is_idle());
        assert_eq!(bench.collector.poll_tags(&bench.superblock), None);
        bench
    }

    fn at(&self, offset: u32) -> Pba {
        let start = self.superblock.segment_start(SEGMENT);
        start.plus(offset.into())
    }

    fn poll(&mut self) -> Option<Step> {
        self.collector.poll(&self.superblock, &self.contents)
    }

    fn poll_move(&mut self) -> Option<Place> {
        self.collector.poll_move(&self.superblock, &self.contents)
    }

    /// Expects a read of `blocks` blocks at an offset; returns it.
    fn gathers(&mut self, offset: u32, blocks: u32) -> (Pba, u32, Buf) {
        match self.poll() {
            Some(Step::Gather { at, blocks: of, to }) => {
                assert_eq!((at, of), (self.at(offset), blocks));
                (at, of, to)
            }
            other => panic!("not a read of {blocks} at {offset}: {other:?}"),
        }
    }

    /// The read ends, and all blocks are as they were written.
    fn read(&mut self, read: (Pba, u32, Buf)) {
        let first = (read.0.0 - self.at(0).0) as u32;
        let sums: Vec<_> = (first..first + read.1).map(sum).collect();
        let outcome = Outcome::Sums(&sums);
        let bad = self.collector.on_gathered(&self.superblock, read, outcome);
        assert_eq!(bad, 0);
    }

    /// Places all that was read; returns the offsets.
    fn place_all(&mut self) -> Vec<u32> {
        let mut offsets = Vec::new();
        while let Some(place) = self.poll_move() {
            assert!(self.contents.owners.remove(&place.from).is_some());
            offsets.push((place.from.0 - self.at(0).0) as u32);
        }
        offsets
    }

    fn is_done(&mut self, are_left: bool) {
        let segment = SEGMENT;
        assert_eq!(self.poll(), Some(Step::Done { segment, are_left }));
        assert!(self.collector.is_idle());
        assert_eq!(self.poll(), Some(Step::Choose));
    }
}

#[test]
fn a_victim_goes_from_choice_to_done() {
    let mut bench = Bench::new([1, 2, 3, 7]);
    let three = bench.gathers(1, 3);
    let one = bench.gathers(7, 1);
    assert_eq!((three.2, one.2), (Buf(100), Buf(103)));
    assert!(!bench.collector.has_gathered());
    assert_eq!(bench.poll(), None, "it waits for both reads");
    bench.read(one);
    assert!(!bench.collector.has_gathered(), "one read is in flight");
    let place = bench.poll_move().expect("a block was read");
    let from = bench.at(7);
    assert_eq!((place.from, place.buf, place.tag), (from, Buf(103), tag(7)));
    let (lba, sum) = (Lba(7), sum(7));
    assert_eq!(place.record(), Record::Move { lba, sum, from });
    bench.read(three);
    bench.collector.on_no_room(place);
    assert_eq!(bench.poll_move(), Some(place), "it is the next one again");
    bench.contents.owners.remove(&from);
    assert!(bench.collector.has_gathered());
    assert_eq!(bench.poll(), None, "three blocks are left");
    assert_eq!(bench.place_all(), [1, 2, 3]);
    bench.is_done(false);
}

#[test]
fn a_shared_page_is_moved_as_one() {
    let mut bench = Bench::new([5]);
    let (at, vba) = (bench.at(5), crate::addr::Vba(8));
    bench.contents.owners.insert(at, Owner::Vba(vba));
    let read = bench.gathers(5, 1);
    bench.read(read);
    let place = bench.poll_move().expect("a block was read");
    let (sum, from) = (sum(5), at);
    assert_eq!(place.record(), Record::MoveShared { vba, sum, from });
}

#[test]
fn a_whole_summary_has_all_tags() {
    let mut bench = Bench::idle([4]);
    let usable = bench.superblock.usable_blocks();
    let blocks = bench.superblock.segment_blocks() - usable;
    bench.collector.on_chosen(&bench.superblock, SEGMENT, None);
    assert_eq!(bench.poll(), None, "no tag is known");
    let read = bench.collector.poll_tags(&bench.superblock);
    assert_eq!(read, Some((bench.at(usable), blocks)));
    assert_eq!(bench.collector.poll_tags(&bench.superblock), None);
    let tags: Vec<_> = (0..usable).map(tag).collect();
    let mut bytes = vec![0; blocks as usize * BLOCK_BYTES];
    let signature = bench.superblock.signature();
    summary::encode(&signature, SEGMENT, Seq(9), &tags, crc32c, &mut bytes);
    let superblock = &bench.superblock;
    bench.collector.on_tags_read(superblock, crc32c, &bytes);
    assert_eq!(bench.collector.poll_tags(superblock), None);
    assert_eq!(bench.collector.tags(), tags);
    bench.gathers(4, 1);
}

#[test]
fn tags_that_cannot_be_read_are_searched_for_header_by_header() {
    let mut bench = Bench::idle([4]);
    let superblock = bench.superblock.clone();
    let usable = superblock.usable_blocks();
    bench.collector.on_chosen(&superblock, SEGMENT, None);
    assert!(bench.collector.poll_tags(&superblock).is_some());
    bench.collector.on_tags_read(&superblock, crc32c, &[]);
    let mut header = vec![0; BLOCK_BYTES];
    let fields = ChunkHeader {
        signature: superblock.signature(),
        seq: Seq(1),
        life: superblock.life(),
        prev_life: Life(0),
        durable: Seq(0),
        at: bench.at(2),
        root_generation: Generation(0),
        head: 0,
        data_blocks: 2,
        next: None,
    };
    let data = |offset: u32| Record::Data {
        lba: Lba(offset.into()),
        sum: sum(offset),
    };
    encode(&fields, &[data(3), data(4)], &[], crc32c, &mut header);
    let mut headers = Vec::new();
    while let Some((at, blocks)) = bench.collector.poll_tags(&superblock) {
        let offset = (at.0 - bench.at(0).0) as u32;
        assert_eq!((blocks, bench.poll()), (1, None));
        headers.push(offset);
        // The one at 2 is whole. Others, before it and behind its two blocks, are searched for block by block.
        let bytes = if offset == 2 { &header[..] } else { &[] };
        bench.collector.on_tags_read(&superblock, crc32c, bytes);
    }
    let all: Vec<_> = [0, 1, 2].into_iter().chain(5..usable - 1).collect();
    assert_eq!(headers, all);
    let tags = bench.collector.tags();
    assert_eq!((tags[3], tags[4]), (tag(3), tag(4)));
    assert_eq!((tags[2].owner, tags[5].owner), (Owner::None, Owner::None));
    let read = bench.gathers(4, 1);
    bench.read(read);
    assert_eq!(bench.place_all(), [4]);
    bench.is_done(false);
}

#[test]
fn the_cold_head_is_sealed_when_all_buffers_wait_in_it() {
    let mut bench = Bench::new(0..BUFS + 2);
    assert!(bench.collector.owns(Buf(100)) && !bench.collector.owns(Buf(99)));
    let read = bench.gathers(0, BUFS);
    assert_eq!(bench.poll(), None, "the read gives something to place");
    bench.read(read);
    assert_eq!(bench.poll(), None, "what was read is to be placed");
    assert_eq!(bench.place_all().len(), BUFS as usize);
    assert_eq!(bench.poll(), Some(Step::SealCold));
    assert!(bench.collector.spare_buf().is_none());
    for index in 0..BUFS {
        assert!(bench.collector.take_back(Buf(100 + index)));
    }
    assert!(!bench.collector.take_back(Buf(100 + BUFS)));
    let read = bench.gathers(BUFS, 2);
    bench.read(read);
    assert_eq!(bench.place_all(), [BUFS, BUFS + 1]);
    bench.is_done(false);
}

#[test]
fn a_read_takes_only_the_buffers_in_a_row_that_are_free() {
    let mut bench = Bench::new(0..9);
    // Two others lend buffers; they are not lent when fewer than half are free.
    let lent: Vec<_> = core::iter::from_fn(|| bench.collector.spare_buf()).collect();
    assert_eq!(lent.len() as u32, BUFS / 2 + 1);
    assert!(bench.collector.take_back(lent[3]));
    let first = bench.gathers(0, 9);
    assert_eq!(
        first.2,
        Buf(100 + BUFS / 2 + 1),
        "behind those that were taken last"
    );
    assert_eq!(bench.poll(), None);
}

#[test]
fn a_block_that_is_overwritten_between_its_read_and_its_move_is_dropped() {
    let mut bench = Bench::new([1, 2, 3]);
    let read = bench.gathers(1, 3);
    bench.read(read);
    let at = bench.at(2);
    bench.contents.owners.remove(&at);
    assert_eq!(bench.place_all(), [1, 3]);
    // Its buffer is free, and the other two are in the cold head's chunk.
    assert!(bench.collector.take_back(Buf(100)) && bench.collector.take_back(Buf(102)));
    bench.is_done(false);
    let free = core::iter::from_fn(|| bench.collector.spare_buf()).count();
    assert_eq!(free as u32, BUFS / 2 + 1, "all were free");
}

#[test]
fn the_whole_map_is_searched_once_for_live_blocks_that_no_tag_names() {
    for is_found in [true, false] {
        let mut bench = Bench::new([1]);
        let at = bench.at(6);
        bench.contents.unnamed.insert(at, tag(40).owner);
        let read = bench.gathers(1, 1);
        bench.read(read);
        assert_eq!(bench.place_all(), [1]);
        let (segment, left) = (SEGMENT, 1);
        assert_eq!(bench.poll(), Some(Step::Search { segment, left }));
        if is_found {
            bench.contents.owners.append(&mut bench.contents.unnamed);
            let read = bench.gathers(6, 1);
            bench.read(read);
            let place = bench.poll_move().expect("a block was read");
            assert_eq!(place.tag.owner, tag(40).owner, "not the owner in the tag");
            bench.contents.owners.clear();
        }
        bench.is_done(!is_found);
    }
}

#[test]
fn a_block_that_is_bad_stays_and_no_search_is_made_for_it() {
    let mut bench = Bench::new([1, 2]);
    let read = bench.gathers(1, 2);
    let outcome = Outcome::Sums(&[sum(1), sum(1)]);
    let bad = bench
        .collector
        .on_gathered(&bench.superblock, read, outcome);
    assert_eq!((bad, bench.place_all()), (1, vec![1]));
    bench.is_done(true);
    let mut bench = Bench::new([1, 2]);
    let read = bench.gathers(1, 2);
    let outcome = Outcome::Failed;
    let bad = bench
        .collector
        .on_gathered(&bench.superblock, read, outcome);
    assert_eq!((bad, bench.place_all()), (2, vec![]));
    bench.is_done(true);
}

#[test]
fn a_victim_waits_until_the_leaves_of_its_owners_are_in_memory() {
    let mut bench = Bench::new([1, 9, 70]);
    bench.contents.has_away = true;
    assert_eq!(bench.poll(), Some(Step::LookUp(0)));
    assert_eq!(bench.poll(), Some(Step::LookUp(0)), "nothing was reported");
    bench.collector.on_known(8);
    let one = bench.gathers(1, 1);
    assert_eq!(bench.poll(), Some(Step::LookUp(8)));
    bench.collector.on_known(64);
    let two = bench.gathers(9, 1);
    assert_eq!(bench.poll(), Some(Step::LookUp(64)));
    // All leaves are in memory, so nothing has to be looked up.
    bench.contents.has_away = false;
    let three = bench.gathers(70, 1);
    for read in [one, two, three] {
        bench.read(read);
    }
    assert_eq!(bench.place_all(), [1, 9, 70]);
    bench.is_done(false);
}

#[test]
fn a_victim_that_is_left_half_moved_gives_its_buffers_back() {
    let mut bench = Bench::new([1, 2]);
    let read = bench.gathers(1, 2);
    bench.read(read);
    assert_eq!(bench.collector.abandon(), Some(SEGMENT));
    assert_eq!(bench.collector.abandon(), None);
    assert_eq!(
        (bench.poll_move(), bench.poll()),
        (None, Some(Step::Choose))
    );
    let free = core::iter::from_fn(|| bench.collector.spare_buf()).count();
    assert_eq!(free as u32, BUFS / 2 + 1, "all were free");
}

/// Segments of which `free` are free, and these are emptied, each with its newest chunk.
fn segments(free: u32, emptied: &[u64]) -> Segments {
    let count = free + emptied.len() as u32;
    let mut segments = Segments::new(count, None);
    let live = vec![0; count as usize];
    (0..count).for_each(|index| segments.recover_one(Segment(index), Seq(0)));
    let unsummarised: Vec<_> = (free..count).map(Segment).collect();
    segments.found(true, false, &live, &unsummarised, |_| true);
    for (index, last_seq) in (free..).zip(emptied) {
        segments.on_summary_read(Segment(index), Seq(*last_seq));
    }
    segments
}

#[test]
fn emptied_segments_are_freed_sooner_when_free_ones_run_short() {
    let collector = Bench::idle([]).collector;
    let low = limits::COLLECTOR_SEGMENTS as u32 + 2;
    let press =
        |free, emptied: &[u64], look| collector.press(&segments(free, emptied), Seq(5), |_| look);
    let says = |seal, sync, checkpoint| {
        let press = Press {
            seal,
            sync,
            checkpoint,
        };
        Some(press)
    };
    let (durable, open) = ((true, [false; 2]), (false, [true, false]));
    assert_eq!(press(low, &[9], open), None, "enough are free");
    assert_eq!(press(low - 1, &[], open), None, "none is emptied");
    let none = [false; 2];
    // Their newest chunks are in the durable map checkpoint, and no chunk has to become durable.
    assert_eq!(press(low - 1, &[5], durable), says(none, false, false));
    assert_eq!(press(low - 1, &[6], durable), says(none, false, true));
    assert_eq!(press(low - 1, &[5], open), says([true, false], true, false));
    assert_eq!(
        press(low - 2, &[6, 5], open),
        says([true, false], true, true)
    );
}

#[test]
fn a_large_volume_is_not_pressed_until_enough_waits_or_few_are_free() {
    let collector = Collector::new(2048, Buf(0), BUFS);
    let open = (false, [false, true]);
    let press = |free, emptied: &[u64]| {
        let press = collector.press(&segments(free, emptied), Seq(5), |_| open);
        press.map(|press| (press.seal[1], press.sync, press.checkpoint))
    };
    assert_eq!(press(9, &[6; 4]), None);
    assert_eq!(press(5, &[6; 3]), Some((false, true, false)));
    assert_eq!(press(5, &[6; 4]), Some((false, true, true)));
    assert_eq!(press(4, &[6; 3]), Some((true, true, true)));
}

#[test]
fn the_map_checkpoint_of_when_the_last_segments_emptied_is_remembered() {
    let mut collector = Bench::idle([]).collector;
    assert_eq!(collector.on_vacated(Generation(7)), Generation(7));
    assert_eq!(collector.on_vacated(Generation(8)), Generation(7));
    assert!(collector.is_short(&segments(1, &[1])));
    assert!(
        !collector.is_short(&segments(4, &[1])),
        "one will be free soon"
    );
}
