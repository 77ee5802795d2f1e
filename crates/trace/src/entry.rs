//! Entries: an entry is a request, or another fact that a reader has to know.

use crate::block::{Block, take};
use crate::error::Problem;
use crate::limits::{COMMITTED_MAX, JOURNALS_MAX, REQUEST_BLOCKS_MAX};
use crate::varint::{get, get_signed, put, put_signed};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read blocks.
    Read,
    /// Write blocks.
    Write {
        /// Durable before it is answered.
        fua: bool,
    },
    /// The content is no longer needed.
    Discard {
        /// Durable before it is answered.
        fua: bool,
    },
    /// The blocks read as zeros from now on.
    WriteZeroes {
        /// Durable before it is answered.
        fua: bool,
    },
    /// Make everything that was answered before durable.
    Flush,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Nanoseconds since the trace began.
    pub at: u64,
    /// What it does.
    pub op: Op,
    /// The first block.
    pub lba: u64,
    /// How many blocks; 0 only for a flush.
    pub blocks: u64,
    /// What a write writes, in order: one for each block, or none when nothing is known of any.
    pub contents: Vec<Block>,
    /// For a write that completes a journal's transaction: the blocks that a replay of the transaction would write
    /// home.
    pub committed: Vec<Committed>,
}

/// A block of a journal's complete transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Where it belongs.
    pub home: u64,
    /// Where its copy is in the journal.
    pub copy: u64,
}

/// Where a file system's journal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Journal {
    /// Its first block.
    pub lba: u64,
    /// How many it has.
    pub blocks: u64,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A request of the host.
    Request(Request),
    /// From here on these are the journals; they replace all that were named before.
    Journals(Vec<Journal>),
    /// This many requests are missing here: they arrived faster than they could be recorded.
    Lost(u64),
}

const READ: u8 = 0;
const WRITE: u8 = 1;
const DISCARD: u8 = 2;
const WRITE_ZEROES: u8 = 3;
const FLUSH: u8 = 4;
const JOURNALS: u8 = 5;
const LOST: u8 = 6;
const FUA: u8 = 1 << 3;
const BLOCKS_TOLD: u8 = 1 << 4;
const COMMITS: u8 = 1 << 5;

/// The state that an entry is encoded relative to. Each frame begins with a fresh state.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Context {
    /// The time of the previous request.
    pub at: u64,
    /// The block after the previous request.
    pub after: u64,
}

impl Context {
    /// Adds an entry to a frame's payload.
    pub fn encode(&mut self, entry: &Entry, out: &mut Vec<u8>) {
        let request = match entry {
            Entry::Request(request) => request,
            Entry::Journals(journals) => {
                out.push(JOURNALS);
                put(journals.len() as u64, out);
                for journal in journals {
                    put(journal.lba, out);
                    put(journal.blocks, out);
                }
                return;
            }
            Entry::Lost(count) => {
                out.push(LOST);
                return put(*count, out);
            }
        };
        let flag = |fua: bool| if fua { FUA } else { 0 };
        let told = |is_empty: bool, bit| if is_empty { 0 } else { bit };
        out.push(match request.op {
            Op::Read => READ,
            Op::Write { fua } => {
                WRITE
                    | flag(fua)
                    | told(request.contents.is_empty(), BLOCKS_TOLD)
                    | told(request.committed.is_empty(), COMMITS)
            }
            Op::Discard { fua } => DISCARD | flag(fua),
            Op::WriteZeroes { fua } => WRITE_ZEROES | flag(fua),
            Op::Flush => FLUSH,
        });
        put(request.at.saturating_sub(self.at), out);
        self.at = self.at.max(request.at);
        if request.op == Op::Flush {
            return;
        }
        put_signed(request.lba.wrapping_sub(self.after) as i64, out);
        put(request.blocks, out);
        self.after = request.lba + request.blocks;
        if matches!(request.op, Op::Write { .. }) {
            for block in &request.contents {
                block.encode(out);
            }
            if !request.committed.is_empty() {
                committed_to(&request.committed, request.lba, out);
            }
        }
    }

    /// Takes the next entry from a frame's payload, for a disk of `disk` blocks.
    pub fn decode(&mut self, from: &mut &[u8], disk: u64) -> Result<Entry, Problem> {
        let [tag] = take(from)?;
        let fua = tag & FUA != 0;
        let op = match tag & 7 {
            READ => Op::Read,
            WRITE => Op::Write { fua },
            DISCARD => Op::Discard { fua },
            WRITE_ZEROES => Op::WriteZeroes { fua },
            FLUSH => Op::Flush,
            JOURNALS if tag == JOURNALS => return journals(from, disk),
            LOST if tag == LOST => return Ok(Entry::Lost(get(from)?)),
            _ => return Err(Problem::Tag { tag }),
        };
        let flags = match op {
            Op::Read | Op::Flush => 0,
            Op::Write { .. } => FUA | BLOCKS_TOLD | COMMITS,
            Op::Discard { .. } | Op::WriteZeroes { .. } => FUA,
        };
        if tag & !7 & !flags != 0 {
            return Err(Problem::Tag { tag });
        }
        self.at = self.at.checked_add(get(from)?).ok_or(Problem::Time)?;
        let mut request = Request {
            at: self.at,
            op,
            lba: 0,
            blocks: 0,
            contents: Vec::new(),
            committed: Vec::new(),
        };
        if op == Op::Flush {
            return Ok(Entry::Request(request));
        }
        let lba = self.after.wrapping_add(get_signed(from)? as u64);
        let blocks = get(from)?;
        within(lba, blocks, disk)?;
        let bounded = matches!(op, Op::Read | Op::Write { .. });
        if blocks == 0 || (bounded && blocks > REQUEST_BLOCKS_MAX) {
            return Err(Problem::Blocks { blocks });
        }
        (request.lba, request.blocks) = (lba, blocks);
        self.after = lba + blocks;
        if tag & BLOCKS_TOLD != 0 {
            // Each block takes at least a byte: do not allocate for blocks that are not there.
            if blocks > from.len() as u64 {
                return Err(Problem::EntryCut);
            }
            let all = (0..blocks).map(|_| Block::decode(from));
            request.contents = all.collect::<Result<_, _>>()?;
        }
        if tag & COMMITS != 0 {
            request.committed = committed(from, lba, disk)?;
        }
        Ok(Entry::Request(request))
    }
}

fn journals(from: &mut &[u8], disk: u64) -> Result<Entry, Problem> {
    let count = get(from)?;
    if count > JOURNALS_MAX as u64 {
        return Err(Problem::Journals { count });
    }
    let one = |_| {
        let (lba, blocks) = (get(from)?, get(from)?);
        within(lba, blocks, disk)?;
        match blocks {
            0 => Err(Problem::Blocks { blocks }),
            _ => Ok(Journal { lba, blocks }),
        }
    };
    let all: Result<Vec<Journal>, Problem> = (0..count).map(one).collect();
    Ok(Entry::Journals(all?))
}

/// Each is encoded relative to the one before; the first relative to block 0 and to the write's first block.
fn committed_to(committed: &[Committed], lba: u64, out: &mut Vec<u8>) {
    put(committed.len() as u64, out);
    let (mut home, mut copy) = (0, lba);
    for next in committed {
        put_signed(next.home.wrapping_sub(home) as i64, out);
        put_signed(next.copy.wrapping_sub(copy) as i64, out);
        (home, copy) = (next.home, next.copy);
    }
}

fn committed(from: &mut &[u8], lba: u64, disk: u64) -> Result<Vec<Committed>, Problem> {
    let count = get(from)?;
    if count == 0 || count > COMMITTED_MAX as u64 {
        return Err(Problem::Committed { count });
    }
    let (mut home, mut copy) = (0u64, lba);
    let one = |_| {
        home = home.wrapping_add(get_signed(from)? as u64);
        copy = copy.wrapping_add(get_signed(from)? as u64);
        within(home, 1, disk)?;
        within(copy, 1, disk)?;
        Ok(Committed { home, copy })
    };
    (0..count).map(one).collect()
}

fn within(lba: u64, blocks: u64, disk: u64) -> Result<(), Problem> {
    match lba.checked_add(blocks) {
        Some(end) if end <= disk => Ok(()),
        _ => Err(Problem::Range { lba, blocks, disk }),
    }
}
