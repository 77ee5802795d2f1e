//! Sends a snapshot as a stream: all of it, or what changed since another. Nothing else is read.

use super::totals::Totals;
use super::writer::Writer;
use crate::block::BlockDevice;
use crate::migrate::{MigrateError, REQUEST_BLOCKS, Side};
use crate::snapshots::{Seen, SnapshotError};
use crate::volume::Volume;
use std::any::Any;
use std::io::{self, Write};
use vellum_core::addr::Lba;
use vellum_core::format::history::Name;
use vellum_core::format::stream::Head;

/// Runs that are requested at a time.
const EXTENTS: usize = 64;

/// Why there is no stream.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// An error of a snapshot.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The changes would begin at a snapshot that is not older.
    #[error("{from} was not taken before {snapshot}: changes are sent since an older snapshot")]
    Order {
        /// The one given as the older.
        from: Name,
        /// The one to be sent.
        snapshot: Name,
    },
    /// A block cannot be read.
    #[error("the snapshot cannot be sent: {0}")]
    Read(#[from] MigrateError),
    /// The stream cannot be written.
    #[error("the stream cannot be written: {0}")]
    Write(#[from] io::Error),
    /// The caller ended it.
    #[error("interrupted")]
    Interrupted,
}

type Held = Option<Box<dyn Any + Send + Sync>>;

/// What is to be sent.
pub struct Sender {
    seen: Seen,
    /// Keeps the snapshot from being deleted while it is sent.
    _held: Held,
    head: Head,
    runs: Vec<(Lba, u64)>,
}

impl Sender {
    /// Sends a snapshot, or what changed since one that was taken before it.
    ///
    /// # Errors
    /// When one of them does not exist, or `from` is not the older one.
    pub fn new(volume: &Volume, snapshot: &str, from: Option<&str>) -> Result<Self, SendError> {
        let seen = volume.seen_at(snapshot)?;
        let _held = seen.hold();
        let (number, identity) = volume.identity(snapshot)?;
        let mut head = Head {
            uuid: volume.superblock.uuid(),
            blocks: seen.blocks(),
            snapshot: identity,
            from: None,
        };
        let Some(from) = from else {
            let runs = vec![(Lba(0), head.blocks)];
            return Ok(Self {
                seen,
                _held,
                head,
                runs,
            });
        };
        let (older, before) = volume.identity(from)?;
        if older >= number {
            return Err(SendError::Order {
                from: before.name,
                snapshot: identity.name,
            });
        }
        head.from = Some(before);
        let runs = volume.changed_since(from, Some(snapshot))?;
        // Meanwhile another snapshot may have got that name. No number is given twice.
        let is = |name: &str, number| volume.identity(name).is_ok_and(|(now, _)| now == number);
        if !is(from, older) || !is(snapshot, number) || seen.number() != number.0 {
            return Err(SnapshotError::Leaves.into());
        }
        Ok(Self {
            seen,
            _held,
            head,
            runs,
        })
    }

    /// The stream's head.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// How many blocks are looked at.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.runs.iter().map(|(_, blocks)| blocks).sum()
    }

    /// Sends it. Calls `report` with the number of blocks looked at, and ends when that returns `false`.
    ///
    /// # Errors
    /// When a block cannot be read, the stream cannot be written, or `report` ends it. Then the stream has no end, and no
    /// receiver takes it for whole.
    pub fn send<W: Write>(
        &self,
        out: W,
        report: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(W, Totals), SendError> {
        let mut writer = Writer::new(out, &self.head)?;
        let side = Side::new(&self.seen, "the snapshot");
        let mut looked = 0;
        for &(first, blocks) in &self.runs {
            let (mut at, end) = (first.0, first.0 + blocks);
            while at < end {
                for extent in self.seen.extents(Lba(at), end - at, EXTENTS) {
                    let until = (at + extent.blocks).min(end);
                    if !extent.mapped {
                        writer.zeros(Lba(at), until - at)?;
                        at = until;
                    }
                    while at < until {
                        let blocks = (until - at).min(REQUEST_BLOCKS);
                        let content = side.read(at, blocks)?;
                        for index in 0..blocks {
                            let block = content.block(index as usize);
                            writer.block(Lba(at + index), block)?;
                        }
                        at += blocks;
                        if !report(looked + at - first.0) {
                            return Err(SendError::Interrupted);
                        }
                    }
                }
            }
            looked += blocks;
        }
        Ok(writer.end()?)
    }
}
