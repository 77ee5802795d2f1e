//! The file system's superblock, and what follows from it.

use crate::aside::{Part, StoodAside};
use crate::checksum::{crc32c, crc32c_around};
use crate::span::{FsBlock, Span, Uuid};
use core::fmt;
use core::mem::{offset_of, size_of};
use core::ops::Range;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// The offset of a superblock in its partition.
pub const OFFSET: u64 = 1024;
/// Its size.
pub const BYTES: usize = 1024;

const MAGIC: u16 = 0xEF53;
const JOURNAL_BACKUP: u8 = 1;
const CHECKSUM_CRC32C: u8 = 1;
const LOG_BLOCK_MAX: u32 = 6;
/// In `s_feature_incompat`: the file system is mounted, or its journal must be replayed.
const NEEDS_RECOVERY: u32 = 0x4;

macro_rules! features {
    ($($(#[$doc:meta])* $word:ident $name:ident $bit:literal $text:literal),* $(,)?) => {
        impl Features {
            $($(#[$doc])* #[must_use] pub fn $name(self) -> bool {
                self.$word & $bit != 0
            })*

            const NAMES: &[(fn(Self) -> bool, &str)] = &[$((Self::$name, $text)),*];
        }
    };
}

/// The features of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// `s_feature_compat`
    pub compatible: u32,
    /// `s_feature_incompat`
    pub incompatible: u32,
    /// `s_feature_ro_compat`
    pub read_only_compatible: u32,
}

features! {
    /// It has a journal: it is an ext3 or an ext4.
    compatible has_journal 0x4 "has_journal",
    /// Backups of the superblock in two groups only.
    compatible sparse_super2 0x200 "sparse_super2",
    /// A part of its journal may hold fast commits.
    compatible fast_commit 0x400 "fast_commit",
    /// Its journal must be replayed.
    incompatible needs_recovery 0x4 "needs_recovery",
    /// It is no file system but an external journal.
    incompatible is_journal 0x8 "journal_dev",
    /// Group descriptors lie in the groups that they describe.
    incompatible meta_bg 0x10 "meta_bg",
    /// Files may have extent trees.
    incompatible extents 0x40 "extent",
    /// Block numbers of more than 32 bits.
    incompatible wide 0x80 "64bit",
    /// Bitmaps and inode tables of several groups lie together.
    incompatible flex_bg 0x200 "flex_bg",
    /// Checksums are seeded by a field and not by the UUID.
    incompatible checksum_seed 0x2000 "metadata_csum_seed",
    /// Backups of the superblock in few groups only.
    read_only_compatible sparse_super 0x1 "sparse_super",
    /// Group descriptors have a CRC-16.
    read_only_compatible group_checksums 0x10 "uninit_bg",
    /// Space is given out in clusters of blocks.
    read_only_compatible bigalloc 0x200 "bigalloc",
    /// Everything but data has a CRC32C.
    read_only_compatible metadata_checksums 0x400 "metadata_csum",
}

impl Features {
    /// All that mainline kernels mount, `journal_dev` included: filetype, recover, journal_dev, meta_bg,
    /// extents, 64bit, mmp, flex_bg, ea_inode, csum_seed, largedir, inline_data, encrypt, casefold.
    const INCOMPATIBLE: u32 = 0x3_E7DE;
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (has, name) in Self::NAMES {
            if has(*self) {
                write!(f, "{between}{name}")?;
                between = " ";
            }
        }
        Ok(())
    }
}

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Raw {
    inodes_count: U32,
    blocks_count: U32,
    _counters: [u8; 12],
    first_data_block: U32,
    log_block_size: U32,
    log_cluster_size: U32,
    blocks_per_group: U32,
    clusters_per_group: U32,
    inodes_per_group: U32,
    _times: [u8; 12],
    magic: U16,
    _state: [u8; 18],
    rev_level: U32,
    _owner: [u8; 8],
    inode_size: U16,
    _block_group_nr: U16,
    feature_compat: U32,
    feature_incompat: U32,
    feature_ro_compat: U32,
    uuid: [u8; 16],
    volume_name: [u8; 16],
    _last_mounted: [u8; 64],
    _usage: [u8; 6],
    reserved_gdt_blocks: U16,
    journal_uuid: [u8; 16],
    journal_inum: U32,
    _journal_dev: U32,
    _orphan: [u8; 21],
    jnl_backup_type: u8,
    desc_size: U16,
    _mount_options: U32,
    first_meta_bg: U32,
    _mkfs_time: U32,
    jnl_blocks: [u8; 68],
    blocks_count_hi: U32,
    _more: [u8; 32],
    log_groups_per_flex: u8,
    checksum_type: u8,
    _reserved: [u8; 2 + 0xD4],
    backup_bgs: [U32; 2],
    _encryption: [u8; 0x1C],
    checksum_seed: U32,
    _tail: [u8; 0x188],
    checksum: U32,
}

const _: () = assert!(size_of::<Raw>() == BYTES);
const _: () = assert!(offset_of!(Raw, magic) == 0x38);
const _: () = assert!(offset_of!(Raw, rev_level) == 0x4C);
const _: () = assert!(offset_of!(Raw, uuid) == 0x68);
const _: () = assert!(offset_of!(Raw, reserved_gdt_blocks) == 0xCE);
const _: () = assert!(offset_of!(Raw, jnl_backup_type) == 0xFD);
const _: () = assert!(offset_of!(Raw, jnl_blocks) == 0x10C);
const _: () = assert!(offset_of!(Raw, blocks_count_hi) == 0x150);
const _: () = assert!(offset_of!(Raw, log_groups_per_flex) == 0x174);
const _: () = assert!(offset_of!(Raw, backup_bgs) == 0x24C);
const _: () = assert!(offset_of!(Raw, checksum_seed) == 0x270);
const _: () = assert!(offset_of!(Raw, checksum) == 0x3FC);

/// The fields of a superblock that no mount, commit or statfs changes.
pub(crate) const STEADY: [Range<usize>; 10] = [
    0..0x08,
    0x14..0x2C,
    0x38..0x3A,
    0x4C..0x50,
    0x54..0x88,
    0xCE..0xE8,
    0xFD..0x108,
    0x10C..0x154,
    0x174..0x178,
    0x24C..0x274,
];

/// True if something claims to be an ext file system, valid or not.
pub(crate) fn is_one(bytes: &[u8]) -> bool {
    Raw::ref_from_prefix(bytes).is_ok_and(|(raw, _)| raw.magic.get() == MAGIC)
}

/// What can be reported about a superblock before it is trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Name {
    pub uuid: Uuid,
    pub label: String,
    pub features: Features,
}

/// Where the superblock says the journal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JournalPlace {
    Nowhere,
    Inode(u32),
    Device(Uuid),
}

/// A checked superblock. Everything computed from it is inside the partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// The bytes of the partition that the file system uses.
    pub span: Span,
    pub name: Name,
    pub block_bytes: u32,
    pub blocks: u64,
    pub inodes: u32,
    pub first_data_block: u32,
    pub blocks_per_group: u32,
    pub inodes_per_group: u32,
    pub inode_bytes: u16,
    pub descriptor_bytes: u16,
    pub first_meta_group: u32,
    pub reserved_descriptor_blocks: u16,
    pub backup_groups: [u32; 2],
    /// The seed of metadata checksums; only with `metadata_checksums`.
    pub seed: u32,
    pub journal: JournalPlace,
    /// The journal inode's `i_block`, `i_size_high` and `i_size` as last recorded.
    pub journal_backup: Option<[u8; 68]>,
}

pub(crate) fn name(bytes: &[u8]) -> Name {
    let Ok((raw, _)) = Raw::ref_from_prefix(bytes) else {
        return Name::default();
    };
    let label = raw.volume_name.split(|byte| *byte == 0).next();
    Name {
        uuid: Uuid(raw.uuid),
        label: String::from_utf8_lossy(label.unwrap_or_default()).into_owned(),
        features: Features {
            compatible: raw.feature_compat.get(),
            incompatible: raw.feature_incompat.get(),
            read_only_compatible: raw.feature_ro_compat.get(),
        },
    }
}

/// Sets `needs_recovery` in the superblock at the start of `bytes` to what `features` say. A mount sets it and an unmount clears
/// it, and neither moves anything.
pub(crate) fn set_mounted_as(features: Features, bytes: &mut [u8]) {
    // The low byte of the number contains the bit.
    let [bit, ..] = NEEDS_RECOVERY.to_le_bytes();
    if let Some(byte) = bytes.get_mut(offset_of!(Raw, feature_incompat)) {
        match features.needs_recovery() {
            true => *byte |= bit,
            false => *byte &= !bit,
        }
    }
}

/// Checks the superblock of a partition.
pub(crate) fn check(partition: Span, bytes: &[u8]) -> Result<Superblock, StoodAside> {
    let at = partition.start + OFFSET;
    let Ok((raw, _)) = Raw::ref_from_prefix(bytes) else {
        return Err(StoodAside::field(Part::Superblock, at, "s_magic", 0_u32));
    };
    let name = name(bytes);
    let features = name.features;
    let claims = Claims { at, raw, features };
    claims.is_known(bytes)?;
    let size = claims.size(partition)?;
    let mut checked = Superblock {
        span: size.span,
        block_bytes: size.block_bytes,
        blocks: size.blocks,
        first_data_block: raw.first_data_block.get(),
        inodes: raw.inodes_count.get(),
        blocks_per_group: raw.blocks_per_group.get(),
        inodes_per_group: raw.inodes_per_group.get(),
        inode_bytes: raw.inode_size.get(),
        descriptor_bytes: 32,
        first_meta_group: raw.first_meta_bg.get(),
        reserved_descriptor_blocks: raw.reserved_gdt_blocks.get(),
        backup_groups: raw.backup_bgs.map(U32::get),
        seed: match features.checksum_seed() {
            true => raw.checksum_seed.get(),
            false => crc32c(!0, &raw.uuid),
        },
        journal: JournalPlace::Nowhere,
        journal_backup: (raw.jnl_backup_type == JOURNAL_BACKUP).then_some(raw.jnl_blocks),
        name,
    };
    if features.is_journal() {
        return Ok(checked);
    }
    claims.fits_in_groups(&checked, size.ratio)?;
    if features.wide() {
        checked.descriptor_bytes = raw.desc_size.get();
    }
    claims.fills_groups(&checked)?;
    checked.journal = claims.journal_place()?;
    Ok(checked)
}

/// How large a file system is.
struct Size {
    span: Span,
    block_bytes: u32,
    blocks: u64,
    /// Blocks of a cluster.
    ratio: u64,
}

/// A superblock at `at` that nothing is known of yet.
struct Claims<'a> {
    at: u64,
    raw: &'a Raw,
    features: Features,
}

impl Claims<'_> {
    fn fault(&self, field: &'static str, found: impl Into<u64>) -> StoodAside {
        StoodAside::field(Part::Superblock, self.at, field, found)
    }

    fn ensure(&self, fine: bool, field: &'static str, found: u32) -> Result<(), StoodAside> {
        match fine {
            true => Ok(()),
            false => Err(self.fault(field, found)),
        }
    }

    /// Checks that it is a superblock, whole, of a kind that mainline kernels mount.
    fn is_known(&self, bytes: &[u8]) -> Result<(), StoodAside> {
        let (raw, at) = (self.raw, self.at);
        let part = Part::Superblock;
        self.ensure(raw.magic.get() == MAGIC, "s_magic", raw.magic.get().into())?;
        if self.features.metadata_checksums() {
            let of_type = raw.checksum_type;
            let is_crc32c = of_type == CHECKSUM_CRC32C;
            self.ensure(is_crc32c, "s_checksum_type", of_type.into())?;
            let hole = offset_of!(Raw, checksum);
            if crc32c(!0, &bytes[..hole]) != raw.checksum.get() {
                return Err(StoodAside::Checksum { part, at });
            }
        }
        let unknown = self.features.incompatible & !Features::INCOMPATIBLE;
        if unknown != 0 {
            return Err(StoodAside::Unsupported {
                part,
                at,
                field: "s_feature_incompat",
                bits: unknown,
            });
        }
        let revision = raw.rev_level.get();
        // Before revision 1 there are no features and no inode size, and so no journal.
        self.ensure(revision == 1, "s_rev_level", revision)
    }

    /// Its size, which is inside its partition.
    fn size(&self, partition: Span) -> Result<Size, StoodAside> {
        let raw = self.raw;
        let log_block = raw.log_block_size.get();
        self.ensure(log_block <= LOG_BLOCK_MAX, "s_log_block_size", log_block)?;
        let block_bytes = 1024u32 << log_block;
        let log_cluster = raw.log_cluster_size.get();
        let ratio = match self.features.bigalloc() {
            // The kernel refuses clusters of more than 2^30 bytes.
            true if (log_block..=20).contains(&log_cluster) => 1u64 << (log_cluster - log_block),
            true => return Err(self.fault("s_log_cluster_size", log_cluster)),
            false => 1,
        };
        let first = raw.first_data_block.get();
        let may_be_first = u32::from(block_bytes == 1024);
        let is_first = first == may_be_first || (first == 0 && ratio > 1);
        self.ensure(is_first, "s_first_data_block", first)?;
        let high = match self.features.wide() {
            true => raw.blocks_count_hi.get(),
            false => 0,
        };
        let blocks = u64::from(high) << 32 | u64::from(raw.blocks_count.get());
        let bytes = blocks.checked_mul(u64::from(block_bytes));
        let fits = |bytes: &u64| blocks > u64::from(first) && *bytes <= partition.bytes;
        let bytes = bytes.filter(fits);
        Ok(Size {
            span: Span::new(
                partition.start,
                bytes.ok_or_else(|| self.fault("s_blocks_count", blocks))?,
            ),
            block_bytes,
            blocks,
            ratio,
        })
    }

    /// Checks what a group of blocks has. A cluster has `ratio` blocks.
    fn fits_in_groups(&self, checked: &Superblock, ratio: u64) -> Result<(), StoodAside> {
        let bits = 8 * checked.block_bytes;
        let per_group = u64::from(checked.blocks_per_group);
        let clusters = match ratio {
            1 => checked.blocks_per_group,
            _ => self.raw.clusters_per_group.get(),
        };
        let is_bitmap = (1..=bits).contains(&clusters);
        self.ensure(is_bitmap, "s_clusters_per_group", clusters)?;
        if per_group != u64::from(clusters) * ratio {
            return Err(self.fault("s_blocks_per_group", per_group));
        }
        let inode = u32::from(checked.inode_bytes);
        let in_block = inode.is_power_of_two() && (128..=checked.block_bytes).contains(&inode);
        self.ensure(in_block, "s_inode_size", inode)?;
        let inodes = checked.inodes_per_group;
        let in_blocks = inodes.is_multiple_of(checked.block_bytes / inode);
        let is_table = (1..=bits).contains(&inodes) && in_blocks;
        self.ensure(is_table, "s_inodes_per_group", inodes)?;
        if self.features.wide() {
            let bytes = self.raw.desc_size.get();
            let is_descriptor = bytes.is_power_of_two() && (64..=1024).contains(&bytes);
            self.ensure(is_descriptor, "s_desc_size", bytes.into())?;
        }
        Ok(())
    }

    /// Checks what all groups have together.
    fn fills_groups(&self, checked: &Superblock) -> Result<(), StoodAside> {
        let groups = checked.groups();
        if u64::from(checked.inodes) != groups * u64::from(checked.inodes_per_group) {
            return Err(self.fault("s_inodes_count", checked.inodes));
        }
        let meta = checked.first_meta_group;
        let is_in = u64::from(meta) <= groups.div_ceil(checked.descriptors_per_block());
        let has_meta = self.features.meta_bg();
        self.ensure(!has_meta || is_in, "s_first_meta_bg", meta)
    }

    fn journal_place(&self) -> Result<JournalPlace, StoodAside> {
        if !self.features.has_journal() {
            return Ok(JournalPlace::Nowhere);
        }
        let (inode, uuid) = (self.raw.journal_inum.get(), Uuid(self.raw.journal_uuid));
        match (inode, uuid.is_nil()) {
            (0, false) => Ok(JournalPlace::Device(uuid)),
            (inode, true) if (1..=self.raw.inodes_count.get()).contains(&inode) => {
                Ok(JournalPlace::Inode(inode))
            }
            _ => Err(self.fault("s_journal_inum", inode)),
        }
    }
}

impl Superblock {
    /// The bytes of `count` blocks from `block`, if all are inside the file system.
    pub fn blocks_at(&self, block: FsBlock, count: u64) -> Option<Span> {
        let end = block.0.checked_add(count)?;
        let bytes = u64::from(self.block_bytes);
        (count > 0 && block.0 >= u64::from(self.first_data_block) && end <= self.blocks)
            .then(|| Span::new(self.span.start + block.0 * bytes, count * bytes))
    }

    pub fn groups(&self) -> u64 {
        (self.blocks - u64::from(self.first_data_block)).div_ceil(u64::from(self.blocks_per_group))
    }

    pub fn first_block_of(&self, group: u64) -> u64 {
        u64::from(self.first_data_block) + group * u64::from(self.blocks_per_group)
    }

    pub fn descriptors_per_block(&self) -> u64 {
        u64::from(self.block_bytes) / u64::from(self.descriptor_bytes)
    }

    /// The block that contains the superblock itself.
    pub fn own_block(&self) -> u64 {
        OFFSET / u64::from(self.block_bytes)
    }

    /// The kernel's `ext4_bg_has_super`.
    pub fn group_has_super(&self, group: u64) -> bool {
        let features = self.name.features;
        if group == 0 {
            return true;
        }
        if features.sparse_super2() {
            return self.backup_groups.iter().any(|g| u64::from(*g) == group);
        }
        if group == 1 || !features.sparse_super() {
            return true;
        }
        [3, 5, 7].iter().any(|base| {
            let mut power = *base;
            while power < group {
                power *= base;
            }
            power == group
        })
    }

    /// The checksum of a structure, seeded with the file system's seed and `numbers`.
    pub fn checksum(&self, numbers: &[u32], bytes: &[u8], hole: Range<usize>) -> u32 {
        let seed = numbers.iter().fold(self.seed, |seed, number| {
            crc32c(seed, &number.to_le_bytes())
        });
        crc32c_around(seed, bytes, hole)
    }
}
