//! The layout of the ext3 and ext4 file systems on a volume: bytes in, layout out, no I/O.
//!
//! [`scan`] finds the file systems of a volume and their journals; [`Scan::touched`] says which writes require a new scan.
//! [`journal`] reads the journal's own blocks: which of them is a copy of which home block. [`Metadata`] walks what mke2fs put at
//! fixed places; [`Dynamic`] walks what its inodes lead to: directories, extent trees, indirect blocks. [`freed`] follows which
//! blocks a mounted file system frees; [`files`] finds the files that blocks belong to.
//!
//! Everything here was written by a client, so everything is treated as hostile: each field is checked before it is used, the work is
//! bounded by [`limits`], and inconsistent structures are not used. If a file system is not used, it is listed with the reason
//! ([`StoodAside`]).
//!
//! The format is that of the Linux kernel (`Documentation/filesystems/ext4`, `fs/ext4`, `fs/jbd2`). If a check is stricter than the
//! kernel's, its comment says so.
#![forbid(unsafe_code)]

mod allowance;
mod aside;
mod checksum;
mod dynamic;
pub mod files;
pub mod freed;
mod group;
mod inode;
pub mod journal;
pub mod limits;
pub mod made;
mod mapping;
mod metadata;
mod scan;
mod source;
mod span;
mod superblock;
mod table;
mod tree;
mod unreadable;
mod watch;

pub use allowance::Allowance;
pub use aside::{Part, StoodAside};
pub use dynamic::{Dynamic, DynamicKind, DynamicSpan};
pub use group::may_be_descriptors;
pub use inode::JOURNAL_INODE;
pub use metadata::{Metadata, MetadataKind, MetadataSpan};
pub use scan::{FileSystem, NoJournal, Scan, scan};
pub use source::{Source, Unreadable};
pub use span::{FsBlock, Span, Uuid};
pub use superblock::Features;
pub use table::Partitioning;
pub use watch::{Watch, Watches};
