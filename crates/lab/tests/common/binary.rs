//! Binary traces, written for the tests.
#![allow(dead_code, reason = "each test uses some of it")]

use vellum_trace::{
    Block, Class, Committed, Content, Entry, Header, Journal, Op, Request, Sizes, Writer,
};

/// A blktrace event: time, sector, bytes, action, and the number of payload bytes.
pub fn event(
    big: bool,
    (at, sector, bytes, action): (u64, u64, u32, u32),
    carries: u16,
) -> Vec<u8> {
    let mut out = Vec::new();
    let mut put = |value: u64, width: usize| match big {
        true => out.extend(&value.to_be_bytes()[8 - width..]),
        false => out.extend(&value.to_le_bytes()[..width]),
    };
    for (value, width) in [
        (0x6561_7407, 4),
        (1, 4),
        (at, 8),
        (sector, 8),
        (bytes.into(), 4),
        (action.into(), 4),
        (700, 4),
        (8 << 20 | 1, 4),
        (0, 4),
        (0, 2),
        (carries.into(), 2),
    ] {
        put(value, width);
    }
    out.extend(std::iter::repeat_n(7, carries.into()));
    out
}

pub const READ: u32 = 1 << 16;
pub const WRITE: u32 = 1 << 17;
pub const FLUSH: u32 = 1 << 18;
pub const NOTICE: u32 = 1 << 26;
pub const DISCARD: u32 = 1 << 29;
pub const FUA: u32 = 1 << 31;
pub const QUEUED: u32 = 1 << 20 | 1;
pub const ISSUED: u32 = 1 << 22 | 7;
pub const COMPLETED: u32 = 1 << 23 | 8;

/// A few requests.
pub fn blktrace(big: bool) -> Vec<u8> {
    let each = [
        ((0, 0, 0, NOTICE | 1), 12),
        ((1000, 80, 4096, QUEUED | WRITE), 0),
        ((2000, 80, 4096, ISSUED | WRITE), 0),
        ((3000, 80, 4096, COMPLETED | WRITE), 0),
        ((4000, 160, 8192, QUEUED | READ), 0),
        ((5000, 0, 0, QUEUED | FLUSH | WRITE), 0),
        ((6000, 800, 4096, QUEUED | WRITE | FUA), 8),
        ((7000, 8000, 1 << 20, QUEUED | WRITE | DISCARD), 0),
        // In a control group; the payload is its number.
        ((8000, 88, 4096, QUEUED | 1 << 8 | WRITE), 8),
    ];
    let one = |(fields, carries)| event(big, fields, carries);
    each.into_iter().flat_map(one).collect()
}

/// A trace in Vellum's format.
pub fn own() -> Vec<u8> {
    let header = Header {
        id: [3; 16],
        blocks: 524_288,
        began: 1,
        sizes: Sizes::Lz4,
    };
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    let entries = entries();
    entries.iter().for_each(|entry| writer.push(entry).unwrap());
    writer.finish().unwrap()
}

fn request(at: u64, op: Op, lba: u64, contents: Vec<Block>) -> Entry {
    Entry::Request(Request {
        at,
        op,
        lba,
        blocks: match op {
            Op::Flush => 0,
            _ => contents.len().max(1) as u64,
        },
        committed: match op {
            Op::Write { fua: true } => vec![Committed {
                home: 7,
                copy: lba - 2,
            }],
            _ => Vec::new(),
        },
        contents,
    })
}

fn entries() -> [Entry; 10] {
    let block = |content, packed, delta, class| Block {
        content,
        packed,
        delta,
        class,
    };
    let (digest, twin) = (Content::Digest(99), Content::Digest(1 << 63));
    let write = Op::Write { fua: false };
    [
        Entry::Journals(vec![Journal {
            lba: 300_000,
            blocks: 4096,
        }]),
        request(
            10,
            write,
            300_001,
            vec![
                block(digest, Some(1000), None, Class::Journal),
                block(Content::Zero, None, None, Class::Journal),
            ],
        ),
        request(
            20,
            Op::Write { fua: true },
            300_003,
            vec![block(twin, Some(64), Some(3), Class::Journal)],
        ),
        request(30, Op::Flush, 0, Vec::new()),
        request(
            40,
            write,
            7,
            vec![block(digest, Some(1000), Some(20), Class::InodeTable)],
        ),
        request(50, Op::Read, 7, Vec::new()),
        Entry::Lost(5),
        request(60, write, 8, Vec::new()),
        request(70, Op::Discard { fua: false }, 7, Vec::new()),
        request(80, Op::WriteZeroes { fua: false }, 8, Vec::new()),
    ]
}
