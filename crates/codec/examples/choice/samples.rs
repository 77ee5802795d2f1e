//! From a log to the blocks that a device would store, what they are, and what they are a new version of.

use crate::log::{self, Record};
use anyhow::{Context, bail};
use lz4_flex::block::{compress_into, get_maximum_output_size};
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use vellum_codec::Block;
use vellum_core::addr::BLOCK_BYTES;
use vellum_ext4::journal::{Block as JournalKind, Followed, Follower, JournalFormat};
use vellum_ext4::{Allowance, Metadata, MetadataKind, Source, Unreadable, scan};

/// Data in which LZ4 finds less than a sixteenth to save.
const NOISE: usize = BLOCK_BYTES / 16 * 15;

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Descriptor,
    Commit,
    Revoke,
    JournalSuperblock,
    Superblock,
    GroupDescriptors,
    BlockBitmap,
    InodeBitmap,
    InodeTable,
    Directory,
    Extents,
    DataAgain,
    Data,
    Noise,
}

impl Kind {
    pub const ALL: [Self; 14] = [
        Self::Descriptor,
        Self::Commit,
        Self::Revoke,
        Self::JournalSuperblock,
        Self::Superblock,
        Self::GroupDescriptors,
        Self::BlockBitmap,
        Self::InodeBitmap,
        Self::InodeTable,
        Self::Directory,
        Self::Extents,
        Self::DataAgain,
        Self::Data,
        Self::Noise,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Descriptor => "jbd2 descriptor",
            Self::Commit => "jbd2 commit",
            Self::Revoke => "jbd2 revoke",
            Self::JournalSuperblock => "jbd2 superblock",
            Self::Superblock => "superblock",
            Self::GroupDescriptors => "group descriptors",
            Self::BlockBitmap => "block bitmap",
            Self::InodeBitmap => "inode bitmap",
            Self::InodeTable => "inode table",
            Self::Directory => "directory",
            Self::Extents => "extent tree",
            Self::DataAgain => "data, overwritten",
            Self::Data => "data, new",
            Self::Noise => "data, incompressible",
        }
    }

    pub fn is_data(self) -> bool {
        matches!(self, Self::DataAgain | Self::Data | Self::Noise)
    }
}

/// A block that is written and must be stored: not the checkpoint of one that is in the journal already.
pub struct Sample {
    pub kind: Kind,
    pub block: Rc<Block>,
    /// What a delta can be made against: the newest version of the home block, be it at home or in the journal;
    /// of descriptor and commit blocks the one before.
    pub base: Option<Rc<Block>>,
    /// Flushes before it.
    pub batch: u32,
}

pub struct Workload {
    pub name: String,
    pub samples: Vec<Sample>,
}

type Image = HashMap<u64, Rc<Block>>;

struct Stored<'a>(&'a Image);

impl Source for Stored<'_> {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Unreadable> {
        for (at, out) in (offset / BLOCK_BYTES as u64..).zip(out.chunks_mut(BLOCK_BYTES)) {
            match self.0.get(&at) {
                Some(block) => out.copy_from_slice(&block[..out.len()]),
                None => out.fill(0),
            }
        }
        Ok(())
    }
}

/// Calls `each` for every whole block that is written, and lays zeros into the image.
fn blocks(offset: u64, bytes: &[u8], mut each: impl FnMut(u64, Rc<Block>)) {
    let whole = bytes.chunks_exact(BLOCK_BYTES);
    for (at, chunk) in (offset / BLOCK_BYTES as u64..).zip(whole) {
        if let Ok(block) = chunk.try_into() {
            each(at, Rc::new(block));
        }
    }
}

fn zeros(image: &mut Image, offset: u64, bytes: u64) {
    let block = BLOCK_BYTES as u64;
    for at in offset / block..(offset + bytes) / block {
        image.remove(&at);
    }
}

impl Workload {
    pub fn read(name: String, path: &Path) -> anyhow::Result<Self> {
        // What lies where is read from the file system as it is at the end: it does not move.
        let mut image = Image::new();
        let mut end = 0;
        log::read(path, |record| match record {
            Record::Write { offset, bytes } => {
                end = end.max(offset + bytes.len() as u64);
                blocks(offset, &bytes, |at, block| {
                    image.insert(at, block);
                });
            }
            Record::Zeros { offset, bytes } => {
                end = end.max(offset + bytes);
                zeros(&mut image, offset, bytes);
            }
            Record::Flush => {}
        })?;
        let volume_blocks = end.div_ceil(BLOCK_BYTES as u64);
        let found = scan(&mut Stored(&image), volume_blocks);
        let Some(found) = found.file_systems.first() else {
            bail!("no file system was written");
        };
        let journal = found.journal.as_ref().ok().context("no journal")?;
        let mut places = HashMap::new();
        let mut allowance = Allowance::default();
        let metadata = Metadata::new(found, volume_blocks, &mut allowance);
        let mut metadata = metadata.context("no superblock")?;
        let mut source = Stored(&image);
        while let Some(span) = metadata.next(&mut source) {
            let span = span.ok().context("a group descriptor does not hold")?;
            let kind = match span.kind {
                MetadataKind::Superblock => Kind::Superblock,
                MetadataKind::GroupDescriptors => Kind::GroupDescriptors,
                MetadataKind::BlockBitmap => Kind::BlockBitmap,
                MetadataKind::InodeBitmap => Kind::InodeBitmap,
                MetadataKind::InodeTable => Kind::InodeTable,
            };
            let block = BLOCK_BYTES as u64;
            for at in span.span.start / block..span.span.end() / block {
                places.insert(at, kind);
            }
        }
        let mut replay = Replay {
            follower: Follower::new(journal, found.home),
            format: journal.format,
            places,
            copies: HashMap::new(),
            newest: Image::new(),
            last: HashMap::new(),
            samples: Vec::new(),
            batch: 0,
            has_begun: false,
        };
        log::read(path, |record| replay.record(record))?;
        Ok(Self {
            name,
            samples: replay.samples,
        })
    }
}

struct Replay {
    follower: Follower,
    format: JournalFormat,
    places: HashMap<u64, Kind>,
    /// Of which home block a block of the journal is a copy.
    copies: HashMap<u64, u64>,
    /// The newest version of each home block.
    newest: Image,
    /// The last of each kind of the journal's own blocks.
    last: HashMap<Kind, Rc<Block>>,
    samples: Vec<Sample>,
    batch: u32,
    /// Before the first transaction is mke2fs.
    has_begun: bool,
}

impl Replay {
    fn record(&mut self, record: Record) {
        match record {
            Record::Flush => self.batch += 1,
            Record::Zeros { offset, bytes } => zeros(&mut self.newest, offset, bytes),
            Record::Write { offset, bytes } => {
                let copies = &mut self.copies;
                self.follower.written(offset, &bytes, &mut |followed| {
                    if let Followed::Copy { home, place } = followed {
                        let block = BLOCK_BYTES as u64;
                        copies.insert(place / block, home / block);
                    }
                });
                blocks(offset, &bytes, |at, block| self.block(at, block));
            }
        }
    }

    fn block(&mut self, at: u64, block: Rc<Block>) {
        let in_journal = self.follower.layout().block_at(at * BLOCK_BYTES as u64);
        let (kind, home) = if in_journal.is_some() {
            match JournalKind::parse(&block[..], &self.format) {
                JournalKind::Descriptor(_) => (Some(Kind::Descriptor), None),
                JournalKind::Commit { .. } => (Some(Kind::Commit), None),
                JournalKind::Revoke(_) => (Some(Kind::Revoke), None),
                JournalKind::Superblock => (Some(Kind::JournalSuperblock), None),
                JournalKind::Other => (None, self.copies.remove(&at)),
            }
        } else {
            (None, Some(at))
        };
        if let Some(kind) = kind {
            self.has_begun |= kind == Kind::Descriptor;
            let base = self.last.insert(kind, Rc::clone(&block));
            self.push(kind, block, base);
        } else if let Some(home) = home {
            let base = self.newest.insert(home, Rc::clone(&block));
            if base.as_ref().is_some_and(|base| *base == block) {
                return;
            }
            let kind = match self.places.get(&home) {
                Some(&kind) => kind,
                None if is_directory(&block) => Kind::Directory,
                None if block.starts_with(&[0x0a, 0xf3]) => Kind::Extents,
                None if base.is_some() => Kind::DataAgain,
                None => Kind::Data,
            };
            self.push(kind, block, base);
        } else {
            // A copy whose descriptor is not known (escaped): stored, and of no use as a base.
            self.push(Kind::Data, block, None);
        }
    }

    fn push(&mut self, mut kind: Kind, block: Rc<Block>, base: Option<Rc<Block>>) {
        if self.has_begun {
            if kind.is_data() && is_noise(&block) {
                kind = Kind::Noise;
            }
            self.samples.push(Sample {
                kind,
                block,
                base,
                batch: self.batch,
            });
        }
    }
}

/// Whether the block is a chain of directory entries that ends where the block does.
fn is_directory(block: &Block) -> bool {
    let (mut at, mut entries) = (0, 0);
    while let Some(head) = block.get(at..at + 8) {
        let length = usize::from(u16::from_le_bytes([head[4], head[5]]));
        let (name, kind) = (usize::from(head[6]), head[7]);
        if length < 12 || length % 4 != 0 || length < 8 + name || (kind > 7 && kind != 0xde) {
            return false;
        }
        at += length;
        entries += 1;
    }
    at == BLOCK_BYTES && entries > 1
}

fn is_noise(block: &Block) -> bool {
    let mut out = [0; get_maximum_output_size(BLOCK_BYTES)];
    !matches!(compress_into(block, &mut out), Ok(length) if length <= NOISE)
}
