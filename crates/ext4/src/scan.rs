//! A volume's file systems and their journals.

use crate::aside::{Part, StoodAside};
use crate::inode;
use crate::journal::{self, Alignment, Journal, JournalBlock, Unaligned};
use crate::limits::PAGE_BYTES;
use crate::mapping::{self, Run};
use crate::source::{Reader, Source};
use crate::span::{Span, Uuid};
use crate::superblock::{self, Features, JournalPlace, Superblock};
use crate::table::{self, Partitioning};
use crate::watch::Watches;

const PAGE: u64 = PAGE_BYTES as u64;

/// What was found on a volume.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scan {
    /// How the volume is divided.
    pub partitioning: Partitioning,
    /// What was wrong with its partition tables, and why partitions could not be examined.
    pub table_faults: Vec<StoodAside>,
    /// Everything that claims to be ext2, ext3 or ext4.
    pub file_systems: Vec<FileSystem>,
    /// External journals whose file systems are not on the volume, or could not be told apart.
    pub journals_of_others: Vec<Journal>,
    /// Partitions that could not be read to the end: a journal that was known there may still be there.
    pub unread: Vec<Span>,
    /// Everything the scan depends on: what the file systems watch, the partition tables, and the places
    /// where a file system could appear.
    pub watch: Watches,
}

impl Scan {
    /// True if a write of `bytes` at byte `offset` requires a new scan.
    #[must_use]
    pub fn touched(&self, offset: u64, bytes: &[u8]) -> bool {
        self.watch.touched(offset, bytes)
    }

    /// True if a write that [touches](Self::touched) the scan may have moved a journal. A write that only marks a file system as
    /// mounted or unmounted has not.
    #[must_use]
    pub fn moved(&self, offset: u64, bytes: &[u8]) -> bool {
        let mut as_before = bytes.to_vec();
        let write = Span::new(offset, bytes.len() as u64);
        for found in &self.file_systems {
            let at = Span::new(
                found.partition.start + superblock::OFFSET,
                superblock::BYTES as u64,
            );
            if found.superblock.is_some() && write.contains(at) {
                let superblock = &mut as_before[(at.start - offset) as usize..];
                superblock::set_mounted_as(found.features, superblock);
            }
        }
        self.watch.touched(offset, &as_before)
    }

    /// True if something in `span` could not be read, and nothing else was found there.
    #[must_use]
    pub fn is_unread(&self, span: Span) -> bool {
        let is_there = |found: &FileSystem| !found.is_unread() && found.home.overlaps(span);
        self.unread.iter().any(|unread| unread.contains(span))
            && !self.file_systems.iter().any(is_there)
    }

    /// True if a discard of `span`, or a write of unknown bytes to it, requires a new scan.
    #[must_use]
    pub fn overlaps(&self, span: Span) -> bool {
        self.watch.overlaps(span)
    }
}

/// A file system.
#[derive(Clone, Debug, PartialEq)]
pub struct FileSystem {
    /// Its partition, or the whole volume.
    pub partition: Span,
    /// The part that the file system uses: its home blocks. The whole partition if the file system was stood aside from.
    pub home: Span,
    /// `s_uuid`
    pub uuid: Uuid,
    /// `s_volume_name`
    pub label: String,
    /// Bytes in a block; 0 if the superblock is not trusted.
    pub block_bytes: u32,
    /// The features it was made with.
    pub features: Features,
    /// Its journal, or why there is no usable one.
    pub journal: Result<Journal, NoJournal>,
    /// What this result depends on, except partition tables.
    pub watch: Watches,
    pub(crate) superblock: Option<Superblock>,
}

impl FileSystem {
    /// True if where its journal is could not be read.
    fn is_unread(&self) -> bool {
        matches!(&self.journal, Err(NoJournal::StoodAside(aside)) if aside.is_unread())
    }
}

/// Why a file system has no usable journal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoJournal {
    /// It has none: it is an ext2, or an ext4 without a journal.
    #[error("it has no journal")]
    Absent,
    /// Its journal is a device that is not on this volume.
    #[error("its journal {0} is not on this volume")]
    Elsewhere(Uuid),
    /// Something is inconsistent.
    #[error("stood aside: {0}")]
    StoodAside(#[from] StoodAside),
}

/// What a partition contains.
enum Found {
    FileSystem(Box<FileSystem>),
    Journal(Device),
}

/// An external journal.
struct Device {
    partition: Span,
    uuid: Uuid,
    journal: Result<Journal, StoodAside>,
    watch: Watches,
}

/// Finds every ext3 and ext4 file system on a volume of `volume_blocks` blocks of 4096 bytes. It always ends with a result,
/// whatever the bytes are, and reads no more than [`limits::READ_BYTES`](crate::limits::READ_BYTES).
pub fn scan(source: &mut dyn Source, volume_blocks: u64) -> Scan {
    let volume_bytes = volume_blocks.min(u64::MAX / PAGE) * PAGE;
    if volume_bytes == 0 {
        return Scan::default();
    }
    let mut reader = Reader::new(source, volume_bytes);
    let mut watch = Watches::default();
    let mut tables = table::find(&mut reader, &mut watch);
    let mut partitions = core::mem::take(&mut tables.partitions);
    partitions.push(Span::new(0, volume_bytes));
    partitions.sort_unstable();
    partitions.dedup();

    // If a table cannot be read, everything may be anywhere.
    let mut unread = match tables.faults.iter().any(StoodAside::is_unread) {
        true => vec![Span::new(0, volume_bytes)],
        false => Vec::new(),
    };
    // First all superblocks, because they tell how many file systems have to share what may be read.
    let mut superblocks = Vec::new();
    for partition in partitions {
        match find(partition, &mut reader, &mut watch) {
            Ok(found) => superblocks.extend(found.map(|bytes| (partition, bytes))),
            Err(aside) => {
                unread.push(partition);
                tables.faults.push(aside);
            }
        }
    }
    let mut file_systems = Vec::new();
    let mut devices = Vec::new();
    for (number, (partition, bytes)) in superblocks.iter().enumerate() {
        let parts = superblocks.len() - number;
        match reader.in_part(parts, |reader| look(*partition, bytes, reader, &mut watch)) {
            Found::FileSystem(found) => file_systems.push(*found),
            Found::Journal(device) => devices.push(device),
        }
    }
    let of_files = file_systems.iter().filter(|found| found.is_unread());
    unread.extend(of_files.map(|found| found.partition));
    let is_unread = |device: &&Device| matches!(&device.journal, Err(aside) if aside.is_unread());
    unread.extend(
        devices
            .iter()
            .filter(is_unread)
            .map(|device| device.partition),
    );
    let mut journals_of_others = join(&mut file_systems, devices);
    separate(&mut file_systems);
    stand_alone(&mut journals_of_others, &file_systems);
    for found in &mut file_systems {
        found.watch.sort();
        watch.append(&found.watch);
    }
    watch.sort();
    Scan {
        partitioning: tables.partitioning,
        table_faults: tables.faults,
        file_systems,
        journals_of_others,
        unread,
        watch,
    }
}

/// Finds the superblock in a partition. It is watched even if there is none, because one may appear.
fn find(
    partition: Span,
    reader: &mut Reader<'_>,
    watch: &mut Watches,
) -> Result<Option<Vec<u8>>, StoodAside> {
    let at = partition.start + superblock::OFFSET;
    let span = Span::new(at, superblock::BYTES as u64);
    if !partition.contains(span) {
        return Ok(None);
    }
    let bytes = match reader.read(at, superblock::BYTES) {
        Ok(bytes) => bytes,
        Err(aside) => {
            watch.add_unread(span);
            return Err(aside);
        }
    };
    if !superblock::is_one(&bytes) {
        watch.add(at, &bytes);
        return Ok(None);
    }
    Ok(Some(bytes))
}

/// Examines a partition with that superblock.
fn look(partition: Span, bytes: &[u8], reader: &mut Reader<'_>, watch: &mut Watches) -> Found {
    let at = partition.start + superblock::OFFSET;
    let name = superblock::name(bytes);
    let checked = superblock::check(partition, bytes);
    let mut own = Watches::default();
    own.add_steady(at, bytes, checked.is_ok(), &superblock::STEADY);
    if let Ok(sb) = &checked
        && name.features.is_journal()
    {
        let journal = external(partition, sb, reader, &mut own);
        watch.append(&own);
        return Found::Journal(Device {
            partition,
            uuid: name.uuid,
            journal,
            watch: own,
        });
    }
    let journal = match &checked {
        Err(aside) => Err(aside.clone().into()),
        Ok(sb) => match sb.journal {
            JournalPlace::Nowhere => Err(NoJournal::Absent),
            JournalPlace::Device(uuid) => Err(NoJournal::Elsewhere(uuid)),
            JournalPlace::Inode(number) => {
                internal(sb, number, reader, &mut own).map_err(NoJournal::from)
            }
        },
    };
    let superblock = checked.ok();
    Found::FileSystem(Box::new(FileSystem {
        partition,
        home: superblock.as_ref().map_or(partition, |sb| sb.span),
        uuid: name.uuid,
        label: name.label,
        block_bytes: superblock.as_ref().map_or(0, |sb| sb.block_bytes),
        features: name.features,
        journal,
        watch: own,
        superblock,
    }))
}

/// The journal in a file.
fn internal(
    sb: &Superblock,
    number: u32,
    reader: &mut Reader<'_>,
    watch: &mut Watches,
) -> Result<Journal, StoodAside> {
    let inode = inode::read(sb, number, reader, watch)?;
    let runs = mapping::map(sb, &inode, reader, watch)?;
    let unit = u64::from(sb.block_bytes);
    let at = runs.first().map_or(0, |run| run.first.0) * unit + sb.span.start;
    let own = JournalBlock(0);
    let checked = journal_superblock(at, sb.block_bytes, inode.blocks, own, reader, watch)?;
    let mut left = u64::from(checked.blocks);
    let mut extents = Vec::with_capacity(runs.len());
    for Run { first, blocks } in runs {
        let blocks = blocks.min(left);
        left -= blocks;
        if blocks > 0 {
            extents.push(Span::new(sb.span.start + first.0 * unit, blocks * unit));
        }
    }
    let alignment = match sb.block_bytes {
        small if u64::from(small) < PAGE => Alignment::Unaligned(Unaligned::BlockSize(small)),
        _ if !sb.span.start.is_multiple_of(PAGE) => {
            Alignment::Unaligned(Unaligned::Partition(sb.span))
        }
        _ => Alignment::Aligned,
    };
    Ok(Journal {
        extents,
        format: checked.format,
        is_empty: checked.is_empty,
        blocks: checked.blocks,
        fast_commit_blocks: checked.fast_commit_blocks,
        uuid: checked.uuid,
        superblock: own,
        is_external: false,
        alignment,
    })
}

/// The journal on a device. Its superblock is in the block after the place of a file system's superblock (`ext4_get_dev_journal`).
fn external(
    partition: Span,
    sb: &Superblock,
    reader: &mut Reader<'_>,
    watch: &mut Watches,
) -> Result<Journal, StoodAside> {
    let own = JournalBlock(sb.own_block() as u32 + 1);
    let unit = u64::from(sb.block_bytes);
    let at = partition.start + u64::from(own.0) * unit;
    let checked = journal_superblock(at, sb.block_bytes, sb.blocks, own, reader, watch)?;
    let alignment = match partition.start.is_multiple_of(PAGE) {
        true => Alignment::Aligned,
        false => Alignment::Unaligned(Unaligned::JournalPartition(partition)),
    };
    Ok(Journal {
        extents: vec![Span::new(partition.start, u64::from(checked.blocks) * unit)],
        format: checked.format,
        is_empty: checked.is_empty,
        blocks: checked.blocks,
        fast_commit_blocks: checked.fast_commit_blocks,
        uuid: checked.uuid,
        superblock: own,
        is_external: true,
        alignment,
    })
}

fn journal_superblock(
    at: u64,
    block_bytes: u32,
    room: u64,
    own: JournalBlock,
    reader: &mut Reader<'_>,
    watch: &mut Watches,
) -> Result<journal::Checked, StoodAside> {
    let bytes = match reader.read(at, journal::SUPERBLOCK_BYTES) {
        Ok(bytes) => bytes,
        Err(aside) => {
            watch.add_unread(Span::new(at, journal::SUPERBLOCK_BYTES as u64));
            return Err(aside);
        }
    };
    let checked = journal::check(at, &bytes, block_bytes, room, own);
    watch.add_steady(at, &bytes, checked.is_ok(), &journal::STEADY);
    checked
}

/// Gives each file system the device with its journal's UUID, if exactly one device and one file system have that UUID: a copied
/// partition has the same. Returns the other journals.
fn join(file_systems: &mut [FileSystem], devices: Vec<Device>) -> Vec<Journal> {
    let wanted: Vec<Uuid> = file_systems
        .iter()
        .filter_map(|found| match found.journal {
            Err(NoJournal::Elsewhere(uuid)) => Some(uuid),
            _ => None,
        })
        .collect();
    for found in file_systems.iter_mut() {
        let Err(NoJournal::Elsewhere(uuid)) = found.journal else {
            continue;
        };
        let mut matching = devices.iter().filter(|device| device.uuid == uuid);
        let Some(device) = matching.next() else {
            continue;
        };
        let owners = wanted.iter().filter(|wanted| **wanted == uuid).count();
        found.watch.append(&device.watch);
        found.journal = if matching.next().is_some() || owners > 1 {
            Err(StoodAside::Ambiguous { uuid }.into())
        } else {
            adopt(found, device).map_err(NoJournal::from)
        };
    }
    let journals = devices.into_iter().filter_map(|device| device.journal.ok());
    let is_adopted = |journal: &Journal| {
        let has_it = |found: &FileSystem| matches!(&found.journal, Ok(own) if own.extents == journal.extents);
        file_systems.iter().any(has_it)
    };
    journals.filter(|journal| !is_adopted(journal)).collect()
}

/// Keeps the journals that overlap neither a file system nor another journal.
fn stand_alone(journals: &mut Vec<Journal>, file_systems: &[FileSystem]) {
    let used: Vec<Span> = file_systems
        .iter()
        .flat_map(|found| {
            let external = match &found.journal {
                Ok(journal) if journal.is_external => &journal.extents[..],
                _ => &[],
            };
            external.iter().copied().chain([found.home])
        })
        .collect();
    let spans: Vec<Span> = journals
        .iter()
        .flat_map(|own| own.extents.clone())
        .collect();
    let overlaps =
        |span: &Span, others: &[Span]| others.iter().filter(|other| other.overlaps(*span)).count();
    journals.retain(|journal| {
        let is_alone = |span: &Span| overlaps(span, &used) == 0 && overlaps(span, &spans) == 1;
        journal.extents.iter().all(is_alone)
    });
}

fn adopt(found: &FileSystem, device: &Device) -> Result<Journal, StoodAside> {
    let mut journal = device.journal.clone()?;
    let size = journal.format.block_bytes;
    if size != found.block_bytes {
        return Err(StoodAside::Field {
            part: Part::JournalSuperblock,
            at: device.partition.start,
            field: "s_blocksize",
            found: size.into(),
        });
    }
    if u64::from(size) < PAGE {
        journal.alignment = Alignment::Unaligned(Unaligned::BlockSize(size));
    } else if !found.home.start.is_multiple_of(PAGE) {
        journal.alignment = Alignment::Unaligned(Unaligned::Partition(found.home));
    }
    Ok(journal)
}

/// Stands aside from journals that overlap another file system. A superblock left over from before the volume was partitioned
/// looks as valid as the new ones.
fn separate(file_systems: &mut [FileSystem]) {
    let used: Vec<(Span, Vec<Span>)> = file_systems
        .iter()
        .filter(|found| found.superblock.is_some())
        .map(|found| {
            let external = match &found.journal {
                Ok(journal) if journal.is_external => journal.extents.clone(),
                _ => Vec::new(),
            };
            (found.home, external)
        })
        .collect();
    let trusted = file_systems.iter_mut().filter(|f| f.superblock.is_some());
    for (own, found) in trusted.enumerate() {
        let clash = used.iter().enumerate().any(|(other, (home, journal))| {
            let is_other = other != own;
            (is_other && home.overlaps(found.home))
                || journal.iter().any(|span| span.overlaps(found.home))
                || used[own]
                    .1
                    .iter()
                    .any(|span| span.overlaps(*home) || (is_other && journal.contains(span)))
        });
        if clash && found.journal.is_ok() {
            found.journal = Err(StoodAside::Overlap {
                what: "a file system",
                span: found.home,
            }
            .into());
        }
    }
}
