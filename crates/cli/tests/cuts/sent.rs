//! What a client itself wrote to its journal: whether each copy matched its tag when it was sent.
//!
//! The kernel changes a page of a file while the journal writes it (seen with Linux 6.18.44, also on a plain loop device:
//! `benches/journal_truncate.py`). In `data=journal` jbd2 computes the checksum of a page, and then writes the page itself. A
//! `truncate` to a length within that page zeros its end at once, without waiting for the journal. Then what reaches the device
//! does not match its tag, and after a power cut the kernel does not mount the file system: "Invalid checksum recovering data
//! block". No device can prevent that. So it is not counted as a fault of Vellum if all of this is proven: the copy was in the
//! journal as it was sent, its end is zeros, and with a page that the file had before in its place, the sum is the tag's.

use crc32c::crc32c_append;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use vellum_core::addr::Lba;
use vellum_device::block::{BlockDevice, Extent, Op, Replies, Request};
use vellum_device::frames::FramePool;
use vellum_ext4::journal::{JournalBlock, Layout};
use vellum_ext4::{Source, Unreadable, scan};

const BLOCK: usize = 4096;
const MAGIC: u32 = 0xC03B_3998;
const DESCRIPTOR: u32 = 1;
const COMMIT: u32 = 2;
const REVOKE: u32 = 5;
const ESCAPED: u32 = 1;
const SAME_UUID: u32 = 2;
const LAST: u32 = 8;
/// The feature of tags with 32 bits of checksum, v3.
const SUMS: u32 = 0x10;

type Block = Arc<[u8; BLOCK]>;

/// Returns the number at an offset of a block.
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(*bytes[at..].first_chunk().unwrap())
}

/// The format that a journal's superblock describes.
#[derive(Clone, Copy)]
struct Format {
    first: u32,
    end: u32,
    uuid: [u8; 16],
}

/// A copy that a descriptor names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tag {
    sequence: u32,
    home: u32,
    at: u32,
    is_escaped: bool,
    sum: u32,
}

/// A copy that does not match its tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    tag: Tag,
    block: Block,
}

impl Format {
    /// Returns `None` before the kernel has mounted the journal, because it chooses the checksums then.
    fn read(superblock: &[u8]) -> Option<Self> {
        let is_one = word(superblock, 0) == MAGIC && word(superblock, 0x28) & SUMS != 0;
        is_one.then(|| Self {
            first: word(superblock, 0x14),
            end: word(superblock, 0x10),
            uuid: *superblock[0x30..].first_chunk().unwrap(),
        })
    }

    fn after(&self, block: u32) -> u32 {
        match block + 1 < self.end {
            true => block + 1,
            false => self.first,
        }
    }

    /// Computes what `jbd2_block_tag_csum_set` does; the kernel's sums are not inverted at their ends.
    fn sum(&self, sequence: u32, block: &[u8]) -> u32 {
        let seed = crc32c_append(0, &self.uuid);
        !crc32c_append(crc32c_append(seed, &sequence.to_be_bytes()), block)
    }

    fn tags(&self, at: u32, block: &[u8]) -> Vec<Tag> {
        let (mut tags, mut place, mut from) = (Vec::new(), at, 12);
        while from + 16 <= BLOCK - 4 {
            let flags = word(block, from + 4);
            place = self.after(place);
            tags.push(Tag {
                sequence: word(block, 8),
                home: word(block, from),
                at: place,
                is_escaped: flags & ESCAPED != 0,
                sum: word(block, from + 12),
            });
            from += 16 + if flags & SAME_UUID == 0 { 16 } else { 0 };
            if flags & LAST != 0 {
                break;
            }
        }
        tags
    }

    fn wrong(&self, tag: &Tag, block: &Block) -> Option<Wrong> {
        let is_wrong = self.sum(tag.sequence, &**block) != tag.sum;
        is_wrong.then(|| Wrong {
            tag: tag.clone(),
            block: Arc::clone(block),
        })
    }
}

/// What was sent to a journal.
#[derive(Default)]
pub struct Sent {
    layout: Option<Layout>,
    format: Option<Format>,
    /// The last version sent of each block.
    blocks: HashMap<u32, Block>,
    /// The tags of the transaction being written.
    open: Vec<Tag>,
    /// Tags that were compared with their copies.
    pub tags: u64,
    pub wrong: Vec<Wrong>,
}

impl Sent {
    /// Sets where the journal is; called before its file system is mounted.
    pub fn follow(&mut self, journal: Option<Layout>) {
        self.layout = journal;
    }

    fn write(&mut self, lba: u64, bytes: &[u8]) {
        let Some(layout) = &self.layout else { return };
        let Some(JournalBlock(at)) = layout.block_at(lba * BLOCK as u64) else {
            return;
        };
        if at == 0 {
            self.format = Format::read(bytes);
            return;
        }
        self.blocks
            .insert(at, Arc::new(*bytes.first_chunk().unwrap()));
        let Some(format) = self.format else {
            return;
        };
        if word(bytes, 0) != MAGIC {
            return;
        }
        // A commit block may arrive before what it commits, but nothing of the next transaction does.
        let sequence = word(bytes, 8);
        if self.open.first().is_some_and(|tag| tag.sequence < sequence) {
            self.end();
        }
        if word(bytes, 4) == DESCRIPTOR {
            self.open.extend(format.tags(at, bytes));
        }
    }

    /// Handles the end of a transaction: all of it has been sent.
    pub fn end(&mut self) {
        let Some(format) = &self.format else { return };
        for tag in self.open.drain(..) {
            self.tags += 1;
            let block = self.blocks.get(&tag.at);
            self.wrong
                .extend(block.and_then(|block| format.wrong(&tag, block)));
        }
    }

    /// Explains why the kernel does not mount what a cut left on this device, if the kernel caused it; `pages` are all versions
    /// of all files' pages.
    pub fn explains(&self, device: &str, pages: &[Arc<[u8; BLOCK]>]) -> Option<String> {
        let (layout, format) = (self.layout.as_ref()?, self.format.as_ref()?);
        let found = replayed(device, layout)?;
        let is_known = |wrong: &Wrong| self.wrong.contains(wrong) && wrong.was_cut(format, pages);
        let all = !found.is_empty() && found.iter().all(is_known);
        all.then(|| {
            let told = found.iter().map(|wrong| {
                let Tag { sequence, home, .. } = wrong.tag;
                format!("tag {home} of transaction {sequence} did not match when it was sent")
            });
            told.collect::<Vec<_>>().join("; ")
        })
    }

    /// Returns how many of the wrong copies a truncated page explains.
    pub fn explained(&self, pages: &[Arc<[u8; BLOCK]>]) -> usize {
        let Some(format) = &self.format else { return 0 };
        let wrong = self.wrong.iter();
        wrong.filter(|wrong| wrong.was_cut(format, pages)).count()
    }
}

impl Wrong {
    /// True if it is a page of a file whose end was zeroed after its checksum was computed.
    fn was_cut(&self, format: &Format, pages: &[Arc<[u8; BLOCK]>]) -> bool {
        let length = self.block.iter().rposition(|byte| *byte != 0);
        let length = length.map_or(0, |last| last + 1);
        // The first four bytes of an escaped copy are zeros in the journal.
        let from = if self.tag.is_escaped { 4 } else { 0 };
        let kept = from..length.max(from);
        pages.iter().any(|page| {
            if page[kept.clone()] != self.block[kept.clone()] {
                return false;
            }
            let mut page = **page;
            page[..from].fill(0);
            format.sum(self.tag.sequence, &page) == self.tag.sum
        })
    }
}

/// Returns where the journal is, if there is one.
pub fn layout(device: &str) -> Option<Layout> {
    struct Bytes(File);
    impl Source for Bytes {
        fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Unreadable> {
            let bytes = out.len() as u64;
            let read = self.0.read_exact_at(out, offset);
            read.map_err(|_| Unreadable { offset, bytes })
        }
    }
    let mut file = File::open(device).unwrap();
    let bytes = std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0)).unwrap();
    let found = scan(&mut Bytes(file), bytes / BLOCK as u64);
    let journal = found.file_systems.first()?.journal.as_ref().ok()?;
    Some(Layout::new(&journal.extents, BLOCK as u32))
}

/// Returns the copies that replay finds wrong: those of complete transactions.
fn replayed(device: &str, layout: &Layout) -> Option<Vec<Wrong>> {
    let file = File::open(device).ok()?;
    let read = |at: u32| {
        let mut block = [0; BLOCK];
        let place = layout.place_of(JournalBlock(at))?;
        file.read_exact_at(&mut block, place).ok()?;
        Some(Arc::new(block))
    };
    let superblock = read(0)?;
    let format = Format::read(&*superblock)?;
    let (mut sequence, mut at) = (word(&*superblock, 0x18), word(&*superblock, 0x1C));
    let (mut all, mut open) = (Vec::new(), Vec::new());
    // An empty log begins nowhere; a log with more blocks than there are is invalid.
    for _ in 0..format.end {
        let block = read(at)?;
        if at == 0 || word(&*block, 0) != MAGIC || word(&*block, 8) != sequence {
            break;
        }
        match word(&*block, 4) {
            DESCRIPTOR => {
                for tag in format.tags(at, &*block) {
                    at = tag.at;
                    open.extend(format.wrong(&tag, &read(at)?));
                }
            }
            COMMIT => {
                all.append(&mut open);
                sequence += 1;
            }
            REVOKE => {}
            _ => break,
        }
        at = format.after(at);
    }
    Some(all)
}

/// A volume, and what was sent to its journal.
pub struct Tap {
    pub device: Arc<dyn BlockDevice>,
    pub sent: Arc<Mutex<Sent>>,
}

impl BlockDevice for Tap {
    fn blocks(&self) -> u64 {
        self.device.blocks()
    }

    fn read_only(&self) -> bool {
        self.device.read_only()
    }

    fn frames(&self) -> &Arc<FramePool> {
        self.device.frames()
    }

    fn submit(&self, requests: &mut Vec<Request>, replies: &Arc<dyn Replies>) {
        let mut sent = self.sent.lock();
        for request in &*requests {
            if matches!(request.op, Op::Write { .. }) {
                for n in 0..request.frames.len() {
                    sent.write(request.lba.0 + n as u64, request.frames.block(n));
                }
            }
        }
        drop(sent);
        self.device.submit(requests, replies);
    }

    fn extents(&self, lba: Lba, blocks: u64, max: usize) -> Vec<Extent> {
        self.device.extents(lba, blocks, max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_ext4::Span;

    const FORMAT: Format = Format {
        first: 1,
        end: 8,
        uuid: [9; 16],
    };

    fn own(kind: u32, words: &[(usize, u32)]) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        let head = [(0, MAGIC), (4, kind), (8, 5)];
        for (at, word) in head.iter().chain(words) {
            block[*at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        block
    }

    /// Returns a journal whose transaction 5 has one copy, with a tag for `named`, and `copy` in its place.
    fn journal(named: &[u8; BLOCK], copy: &[u8; BLOCK]) -> Vec<[u8; BLOCK]> {
        let mut superblock = own(
            4,
            &[(0x10, 8), (0x14, 1), (0x18, 5), (0x1C, 1), (0x28, SUMS)],
        );
        superblock[0x30..0x40].fill(9);
        let tag = [(12, 77), (16, SAME_UUID | LAST), (24, FORMAT.sum(5, named))];
        vec![superblock, own(DESCRIPTOR, &tag), *copy, own(COMMIT, &[])]
    }

    fn told(sent: &[[u8; BLOCK]], there: &[[u8; BLOCK]], page: [u8; BLOCK]) -> Option<String> {
        let mut journal = Sent::default();
        journal.follow(Some(Layout::new(&[Span::new(0, 8 << 12)], BLOCK as u32)));
        for (n, block) in sent.iter().enumerate() {
            journal.write(n as u64, block);
        }
        journal.end();
        assert_eq!(journal.tags, 1);
        let mut bytes = there.concat();
        bytes.resize(8 << 12, 0);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        journal.explains(file.path().to_str().unwrap(), &[Arc::new(page)])
    }

    #[test]
    fn only_a_copy_that_was_sent_wrong_is_the_kernels_fault() {
        let page = [7; BLOCK];
        let (mut cut, mut other) = (page, page);
        cut[1000..].fill(0);
        other[1000] = 0;
        let (right, wrong) = (journal(&page, &page), journal(&page, &cut));
        let say = "tag 77 of transaction 5 did not match when it was sent";
        assert_eq!(told(&wrong, &wrong, page).as_deref(), Some(say));
        // It was right when it was sent; nothing is wrong; something else is there than was sent.
        assert_eq!(told(&right, &wrong, page), None);
        assert_eq!(told(&right, &right, page), None);
        assert_eq!(told(&wrong, &journal(&page, &other), page), None);
        // No file had the page; its end was not zeroed.
        assert_eq!(told(&wrong, &wrong, [8; BLOCK]), None);
        let odd = journal(&page, &other);
        assert_eq!(told(&odd, &odd, page), None);
        // An incomplete transaction is not replayed.
        assert_eq!(told(&wrong, &wrong[..3], page), None);
    }
}
