//! What is written can be read; damaged traces are refused; truncated ones are read as far as they go.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

use std::io::Cursor;
use vellum_trace::limits::COMMITTED_MAX;
use vellum_trace::{
    Block, Class, Committed, Content, Entry, Header, Index, Journal, Op, Problem, Reader, Request,
    Sizes, TraceError, Writer,
};

const DISK: u64 = 1 << 20;

fn header() -> Header {
    Header {
        id: [7; 16],
        blocks: DISK,
        began: 1_700_000_000_000_000_000,
        sizes: Sizes::Lz4,
    }
}

/// A generator with the same numbers each time (`splitmix64`).
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

fn block(draw: &mut Draw) -> Block {
    let size = |draw: &mut Draw| (draw.below(2) == 0).then(|| draw.below(4097) as u16);
    Block {
        content: match draw.below(3) {
            0 => Content::Unknown,
            1 => Content::Zero,
            _ => Content::Digest(draw.next()),
        },
        packed: size(draw),
        delta: size(draw),
        class: Class::ALL[draw.below(9) as usize],
    }
}

fn entries(count: u64) -> Vec<Entry> {
    let mut draw = Draw(count);
    let mut at = 0;
    let mut one = |_| {
        let fua = draw.below(2) == 0;
        let op = match draw.below(20) {
            0 => {
                let journal = |draw: &mut Draw| Journal {
                    lba: draw.below(1000),
                    blocks: 1 + draw.below(1000),
                };
                let many = draw.below(4);
                return Entry::Journals((0..many).map(|_| journal(&mut draw)).collect());
            }
            1 => return Entry::Lost(draw.next()),
            2..6 => Op::Read,
            6 => Op::Discard { fua },
            7 => Op::WriteZeroes { fua },
            8 => Op::Flush,
            _ => Op::Write { fua },
        };
        at += draw.below(10_000_000);
        let lba = draw.below(DISK - 64);
        let blocks = 1 + draw.below(64);
        let (lba, blocks) = match op {
            Op::Flush => (0, 0),
            _ => (lba, blocks),
        };
        let told = matches!(op, Op::Write { .. }) && draw.below(8) > 0;
        let contents = match told {
            true => (0..blocks).map(|_| block(&mut draw)).collect(),
            false => Vec::new(),
        };
        let commits = matches!(op, Op::Write { .. }) && draw.below(8) == 0;
        let committed = match commits {
            true => (0..=draw.below(COMMITTED_MAX as u64))
                .map(|_| Committed {
                    home: draw.below(DISK),
                    copy: draw.below(DISK),
                })
                .collect(),
            false => Vec::new(),
        };
        Entry::Request(Request {
            at,
            op,
            lba,
            blocks,
            contents,
            committed,
        })
    };
    (0..count).map(&mut one).collect()
}

fn written(entries: &[Entry]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    for entry in entries {
        writer.push(entry).unwrap();
    }
    assert_eq!(writer.entries(), entries.len() as u64);
    writer.finish().unwrap()
}

fn read(bytes: &[u8]) -> (Vec<Entry>, Option<TraceError>, bool) {
    let mut reader = match Reader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error), false),
    };
    let mut all = Vec::new();
    let mut wrong = None;
    for entry in reader.by_ref() {
        match entry {
            Ok(entry) => all.push(entry),
            Err(error) => wrong = Some(error),
        }
    }
    assert!(reader.next().is_none());
    let whole = reader.is_whole();
    (all, wrong, whole)
}

#[test]
fn every_entry_that_is_written_is_read_back() {
    for count in [0, 1, 2, 500, 20_000] {
        let entries = entries(count);
        let bytes = written(&entries);
        let (all, wrong, whole) = read(&bytes);
        assert!(wrong.is_none(), "{wrong:?}");
        assert_eq!((all, whole), (entries, true), "{count}");
    }
    assert_eq!(*Reader::new(&written(&[])[..]).unwrap().header(), header());
}

#[test]
fn a_request_as_long_as_can_be_is_an_entry() {
    let mut draw = Draw(1);
    let long = Entry::Request(Request {
        at: u64::MAX,
        op: Op::Write { fua: true },
        lba: DISK - 65_536,
        blocks: 65_536,
        contents: (0..65_536)
            .map(|_| Block {
                content: Content::Digest(draw.next()),
                packed: Some(4096),
                delta: Some(0),
                class: Class::Journal,
            })
            .collect(),
        committed: vec![
            Committed {
                home: DISK - 1,
                copy: 0,
            };
            COMMITTED_MAX
        ],
    });
    // Small entries before it, so that it does not fit in the open frame.
    let mut all = entries(100);
    all.push(long);
    let (got, wrong, whole) = read(&written(&all));
    assert!(wrong.is_none() && whole);
    assert!(got == all);
}

#[test]
fn a_trace_that_is_cut_off_is_read_as_far_as_it_goes_and_is_not_whole() {
    let entries = entries(3000);
    let bytes = written(&entries);
    let mut draw = Draw(3);
    let mut most = 0;
    for _ in 0..300 {
        let cut = draw.below(bytes.len() as u64) as usize;
        let (all, wrong, whole) = read(&bytes[..cut]);
        assert!(!whole, "cut at {cut}");
        if cut >= 64 {
            assert!(wrong.is_none(), "cut at {cut}: {wrong:?}");
        }
        assert_eq!(all, entries[..all.len()]);
        most = most.max(all.len());
    }
    assert!(most > 2000, "{most}");
}

#[test]
fn a_flipped_bit_is_detected_and_changes_no_entry() {
    let entries = entries(400);
    let bytes = written(&entries);
    let mut draw = Draw(4);
    for _ in 0..3000 {
        let (at, bit) = (draw.below(bytes.len() as u64) as usize, draw.below(8));
        let mut bytes = bytes.clone();
        bytes[at] ^= 1 << bit;
        let (all, wrong, whole) = read(&bytes);
        assert_eq!(all, entries[..all.len()], "byte {at}");
        // Only the last bytes, which say where the index is, have no checksum.
        assert!(wrong.is_some() || !whole, "byte {at}");
    }
}

#[test]
fn hostile_payloads_are_refused_or_are_entries_within_bounds() {
    // Valid checksums over invalid bytes, which a fuzzer would take long to find.
    let mut draw = Draw(5);
    let head = 64;
    for round in 0..20_000 {
        let mut bytes = written(&entries(1 + round % 40));
        let frame = bytes[head + 8..head + 12].try_into().unwrap();
        let length = u32::from_le_bytes(frame) as usize;
        let payload = head + 40..head + 40 + length;
        for _ in 0..=draw.below(4) {
            let at = payload.start + draw.below(length as u64) as usize;
            bytes[at] = draw.next() as u8;
        }
        let seed = crc32c::crc32c(&header().id);
        let sum = crc32c::crc32c_append(seed, &bytes[payload]);
        bytes[head + 32..head + 36].copy_from_slice(&sum.to_le_bytes());
        let sum = crc32c::crc32c_append(seed, &bytes[head..head + 36]);
        bytes[head + 36..head + 40].copy_from_slice(&sum.to_le_bytes());
        let mut newest = 0;
        for entry in read(&bytes).0 {
            let Entry::Request(request) = entry else {
                continue;
            };
            assert!(request.lba + request.blocks <= DISK);
            assert!(request.at >= newest);
            assert!([0, request.blocks].contains(&(request.contents.len() as u64)));
            assert!(request.committed.len() <= COMMITTED_MAX);
            let within = |block: &Committed| block.home < DISK && block.copy < DISK;
            assert!(request.committed.iter().all(within));
            newest = request.at;
        }
    }
}

#[test]
fn errors_say_where_and_what() {
    let problem = |bytes: &[u8]| match read(bytes).1 {
        Some(TraceError::At { offset, problem }) => (offset, problem),
        other => panic!("{other:?}"),
    };
    assert_eq!(problem(b""), (0, Problem::Magic));
    assert_eq!(problem(b"VELTRACE"), (0, Problem::HeaderCut));
    assert_eq!(problem(b"938513000 4 264719032"), (0, Problem::Magic));
    let good = written(&entries(400));
    let mut later = good.clone();
    later[8] = 2;
    assert_eq!(problem(&later), (0, Problem::Version { version: 2 }));
    let mut zeros = good.clone();
    zeros[64..].fill(0);
    assert_eq!(problem(&zeros), (64, Problem::NoFrame));
    // Frames of another trace, after this one's header.
    let mut other = Writer::new(
        Vec::new(),
        &Header {
            id: [8; 16],
            ..header()
        },
    )
    .unwrap();
    other.push(&Entry::Lost(1)).unwrap();
    let mixed = [&good[..64], &other.finish().unwrap()[64..]].concat();
    assert_eq!(problem(&mixed), (64, Problem::FrameChecksum));
    let (at, behind) = problem(&[&good[..], &good[..]].concat());
    assert!(at > 64 && behind == Problem::Behind);
}

#[test]
fn reading_can_begin_at_any_place_of_the_index() {
    let entries = entries(30_000);
    let bytes = written(&entries);
    let index = Index::read(&mut Cursor::new(&bytes)).unwrap();
    assert_eq!(index.entries, 30_000);
    assert!(index.places().len() > 10, "{}", index.places().len());
    let mut reader = Reader::new(Cursor::new(&bytes)).unwrap();
    for place in [index.places()[5], index.places()[1], index.places()[9]] {
        reader.seek(place).unwrap();
        let rest: Vec<Entry> = reader.by_ref().map(Result::unwrap).collect();
        assert!(rest == entries[place.first as usize..]);
        assert!(reader.is_whole());
    }
    // Search by time: no matching entry is before that place.
    let time = |entry: &Entry| match entry {
        Entry::Request(request) => request.at,
        _ => 0,
    };
    let wanted = time(entries.iter().rfind(|e| time(e) > 0).unwrap()) / 2;
    let place = index.before(wanted).unwrap();
    let before = &entries[..place.first as usize];
    assert!(before.iter().all(|entry| time(entry) <= wanted));
    assert!(place.first > 0);
    assert_eq!(index.before(0), None);
    // Without its end it has no index.
    let cut = &bytes[..bytes.len() - 1];
    assert!(Index::read(&mut Cursor::new(cut)).is_err());
}

#[test]
fn a_full_disk_leaves_a_trace_that_can_be_read() {
    struct Full(Vec<u8>, usize);
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let room = bytes.len().min(self.1 - self.0.len());
            self.0.extend(&bytes[..room]);
            match room {
                0 => Err(std::io::ErrorKind::StorageFull.into()),
                room => Ok(room),
            }
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let entries = entries(20_000);
    let mut full = Full(Vec::new(), 300_000);
    let mut writer = Writer::new(&mut full, &header()).unwrap();
    let failed = entries.iter().find_map(|entry| writer.push(entry).err());
    assert!(matches!(failed, Some(TraceError::Io { .. })), "{failed:?}");
    drop(writer);
    let (all, wrong, whole) = read(&full.0);
    assert!(wrong.is_none() && !whole);
    assert!(all.len() > 1000 && all == entries[..all.len()]);
}

/// The example of `docs/TRACE.md`, and its tables' offsets.
#[test]
fn the_bytes_are_those_of_the_documented_example() {
    let request = |at, op, contents: Vec<Block>| {
        Entry::Request(Request {
            at,
            op,
            lba: if contents.is_empty() { 0 } else { 5 },
            blocks: contents.len() as u64,
            contents,
            committed: Vec::new(),
        })
    };
    let zero = Block {
        content: Content::Zero,
        ..Block::default()
    };
    let bytes = written(&[
        request(1, Op::Flush, Vec::new()),
        request(3, Op::Write { fua: true }, vec![zero]),
        Entry::Request(Request {
            at: 4,
            op: Op::Write { fua: false },
            lba: 5,
            blocks: 1,
            contents: vec![zero],
            committed: vec![Committed { home: 9, copy: 4 }],
        }),
    ]);
    assert_eq!(bytes[..12], *b"VELTRACE\x01\0\x40\0");
    assert_eq!(bytes[12..24], [0, 16, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[32..49], [[7; 16].as_slice(), &[1]].concat());
    let frame = &bytes[64..];
    assert_eq!(frame[..16], *b"VFRM\x01\0\0\0\x0f\0\0\0\x03\0\0\0");
    assert_eq!(frame[40..47], [0x04, 0x01, 0x19, 0x02, 0x0a, 0x01, 0x01]);
    assert_eq!(
        frame[47..55],
        [0x31, 0x01, 0x01, 0x01, 0x01, 0x01, 0x12, 0x01]
    );
    let end = &frame[55..];
    assert_eq!(end[..6], *b"VFRM\x02\0");
    assert_eq!(end[40..48], 64u64.to_le_bytes());
    assert_eq!(end[64..72], *b"VELINDEX");
    assert_eq!(end[72..], (64 + 55u64).to_le_bytes());
}
