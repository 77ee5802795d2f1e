//! Which writes complete a transaction of a journal, by the rules of a volume that replays by itself (`replay=on`).
//!
//! What is told here is what such a volume would pledge, or less: the same reader follows the journals, and nothing is
//! told while what it goes by may be old ([`Classes`](crate::classes::Classes) knows).

use std::sync::Arc;
use vellum_core::addr::BLOCK_BYTES;
use vellum_ext4::Scan;
use vellum_ext4::journal::{Alignment, Reader, Told, Transactions};
use vellum_trace::Committed;
use vellum_trace::limits::COMMITTED_MAX;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// What jbd2 begins its own blocks with.
pub(crate) const JBD2_MAGIC: [u8; 4] = [0xC0, 0x3B, 0x39, 0x98];

/// The journals that are followed.
#[derive(Default)]
pub(crate) struct Logs(Vec<Transactions>);

impl Logs {
    /// Follows the journals that a scan has found; goes on with those that are what they were.
    pub fn look(&mut self, scan: &Scan) {
        let mut before = std::mem::take(&mut self.0);
        for found in &scan.file_systems {
            let Ok(journal) = &found.journal else {
                continue;
            };
            let whole = journal.alignment == Alignment::Aligned;
            if !whole || u64::from(journal.format.block_bytes) != BLOCK {
                continue;
            }
            let reader = Reader::new(journal, found.home);
            let same = before.iter().position(|log| **log.reader() == reader);
            self.0.push(match same {
                Some(at) => before.swap_remove(at),
                None => Transactions::new(Arc::new(reader)),
            });
        }
    }

    /// Something was missed, or is changing: each goes on where its superblock says that its log begins.
    pub fn forget(&mut self) {
        self.0.iter_mut().for_each(Transactions::forget);
    }

    /// A block was written; what the transaction puts home that is complete with it is added.
    pub fn written(&mut self, lba: u64, block: &[u8], committed: &mut Vec<Committed>) {
        let offset = lba * BLOCK;
        let found = self.0.iter_mut().find_map(|log| {
            let at = log.reader().block_at(offset)?;
            Some((log, at))
        });
        let Some((log, at)) = found else {
            return;
        };
        let reader = Arc::clone(log.reader());
        let Told::Complete(complete) = log.written(at, reader.read(at, block), &reader) else {
            return;
        };
        if committed.len() + complete.len() <= COMMITTED_MAX {
            committed.extend(complete.into_iter().map(|(home, place)| Committed {
                home: home / BLOCK,
                copy: place / BLOCK,
            }));
        }
    }
}
