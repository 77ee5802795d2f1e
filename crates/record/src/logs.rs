//! Which writes complete a transaction of a journal, by the rules of a volume that replays by itself (`replay=on`).
//!
//! It reports what such a volume would pledge, or less: the same reader follows the journals, and nothing is reported
//! while its input may be stale ([`Classes`](crate::classes::Classes) knows).

use std::sync::Arc;
use vellum_core::addr::BLOCK_BYTES;
use vellum_ext4::Scan;
use vellum_ext4::journal::{Alignment, Reader, Told, Transactions};
use vellum_trace::Committed;
use vellum_trace::limits::COMMITTED_MAX;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// The first bytes of jbd2's own blocks.
pub(crate) const JBD2_MAGIC: [u8; 4] = [0xC0, 0x3B, 0x39, 0x98];

/// The journals that are followed.
#[derive(Default)]
pub(crate) struct Logs(Vec<Transactions>);

impl Logs {
    /// Follows the journals that a scan has found. Journals that have not changed are followed on from where they
    /// were.
    pub fn look(&mut self, scan: &Scan) {
        let mut before = std::mem::take(&mut self.0);
        for found in &scan.file_systems {
            let Ok(journal) = &found.journal else {
                continue;
            };
            let whole = journal.alignment == Alignment::Aligned;
            // A volume does not replay what only a UUID says belongs to the file system.
            if journal.is_external || !whole || u64::from(journal.format.block_bytes) != BLOCK {
                continue;
            }
            let reader = Reader::new(journal, found.home);
            let same = before.iter().position(|log| **log.reader() == reader);
            self.0.push(match same {
                Some(at) => before.swap_remove(at),
                None => Transactions::new(Arc::new(reader)),
            });
        }
        let journals = self.0.len();
        self.0.iter_mut().for_each(|log| log.share(journals));
    }

    /// A write was missed, or a journal is changing. Each journal is followed again once its superblock says where
    /// its log begins.
    pub fn forget(&mut self) {
        self.0.iter_mut().for_each(Transactions::forget);
    }

    /// Notes a written block. Adds the blocks of the transaction that it completes, if any.
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
