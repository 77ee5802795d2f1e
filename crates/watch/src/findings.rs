//! The results of a scan. Each write is checked against them: may it move a journal, and if it is a write to a journal, what does it
//! mean? Almost all writes pass with two comparisons.

use crate::change::Change;
use crate::classes::{Classes, is_own};
use crate::critical::Critical;
use crate::journals::{FileSystemStats, Plan};
use crate::ranges::BLOCK;
use crate::wants::Wants;
use std::sync::Arc;
use vellum_core::addr::Lba;
use vellum_core::seam::{Hint, Payload};
use vellum_ext4::journal::{Commits, Follower, JournalBlock, Reader, is_commit};
use vellum_ext4::{Scan, Span};

/// The results of a scan; see the module. Immutable: another scan, or other wants, make new ones.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    scan: Arc<Scan>,
    plan: Plan,
    classes: Arc<Classes>,
    critical: Arc<Critical>,
    wants: Wants,
}

/// The kind of later write that may have to be compared with this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expected {
    /// No such write.
    #[default]
    Nothing,
    /// The same block, written home: this one is in a journal.
    HomeWrite,
    /// A duplicate of it, if contents repeat at all.
    Duplicate,
}

impl Findings {
    /// Combines a scan and what was looked up for it.
    #[must_use]
    pub fn new(
        scan: Arc<Scan>,
        plan: Plan,
        classes: Arc<Classes>,
        critical: Arc<Critical>,
        wants: Wants,
    ) -> Self {
        Self {
            scan,
            plan,
            classes,
            critical,
            wants,
        }
    }

    /// The same scan with another plan. A log that the scan found empty may have begun since.
    #[must_use]
    pub fn planned(&self, mut plan: Plan, wants: Wants) -> Self {
        plan.commits
            .iter_mut()
            .for_each(|commits| commits.set_empty(false));
        Self {
            scan: Arc::clone(&self.scan),
            classes: Arc::clone(&self.classes),
            critical: Arc::clone(&self.critical),
            plan,
            wants,
        }
    }

    /// The scan.
    #[must_use]
    pub fn scan(&self) -> &Scan {
        &self.scan
    }

    /// The wants with which they were made.
    #[must_use]
    pub fn wants(&self) -> Wants {
        self.wants
    }

    /// The ranges that are never shared.
    #[must_use]
    pub fn critical(&self) -> &Arc<Critical> {
        &self.critical
    }

    /// The hint for the core about where journals are.
    #[must_use]
    pub fn hint(&self) -> Hint<'_> {
        self.plan.hint()
    }

    /// How many journal regions the core is given.
    #[must_use]
    pub fn regions(&self) -> usize {
        self.plan.regions.len()
    }

    /// True if a weak hash of blocks must be computed.
    #[must_use]
    pub fn needs_hash(&self) -> bool {
        self.plan.needs_hash()
    }

    /// Journals whose commit blocks wait for the blocks they commit.
    #[must_use]
    pub fn commits(&self) -> &[Commits] {
        &self.plan.commits
    }

    /// The sources of home addresses, and the block size of each. They change as they read.
    #[must_use]
    pub fn followers(&self) -> &[(Follower, u32)] {
        &self.plan.followers
    }

    /// Journals whose transactions are followed, as the scan found them.
    #[must_use]
    pub fn logs(&self) -> &[Arc<Reader>] {
        &self.plan.readers
    }

    /// What users see about the file systems. `why`: why transactions of one of the [logs](Self::logs) are not reported.
    pub fn file_systems(
        &self,
        why: impl Fn(usize) -> Option<&'static str>,
    ) -> Vec<FileSystemStats> {
        let mut told = self.plan.found.clone();
        for (found, aside) in told.iter_mut().zip(&self.classes.asides) {
            found.metadata_in_part.clone_from(aside);
        }
        for (found, aside) in told.iter_mut().zip(&self.critical.asides) {
            found.not_shared.clone_from(aside);
        }
        let logs = self.plan.readers.iter().enumerate();
        for (log, reader) in logs.filter(|_| self.wants.replay) {
            let of = |found: &&mut FileSystemStats| found.start == reader.home();
            if let (Some(why), Some(found)) = (why(log), told.iter_mut().find(of)) {
                found.not_replayed = Some(why.to_owned());
            }
        }
        told
    }

    /// True if these bytes overlap something that the scan depends on.
    #[must_use]
    pub fn overlaps(&self, span: Span) -> bool {
        self.scan.overlaps(span)
    }

    /// True if a change touches something that the scan saw. Cheap: most changes are far from everything watched.
    #[must_use]
    pub fn is_touched(&self, change: &Change<'_>) -> bool {
        self.scan.overlaps(change.span())
            && (change.written.is_none()
                || change
                    .by_place()
                    .any(|(at, block)| self.scan.touched(at, block)))
    }

    /// True if a change that [touches](Self::is_touched) the scan may have moved a journal.
    #[must_use]
    pub fn is_moved(&self, change: &Change<'_>) -> bool {
        change.written.is_none()
            || change
                .by_place()
                .any(|(at, block)| self.scan.moved(at, block))
    }

    /// True if a change discards or zeroes blocks of a journal. No file system does that to a log it still needs.
    #[must_use]
    pub fn empties_journal(&self, change: &Change<'_>) -> bool {
        change.written.is_none() && self.touches_journal(change.first, change.blocks)
    }

    /// Predicts a later write that must be compared with this one.
    #[must_use]
    pub fn expects(&self, change: &Change<'_>) -> Expected {
        let once = !self.plan.regions.is_empty();
        if change.written.is_none() {
            Expected::Nothing
        } else if once && self.touches_journal(change.first, change.blocks) {
            Expected::HomeWrite
        } else if self.wants.dedup {
            Expected::Duplicate
        } else {
            Expected::Nothing
        }
    }

    /// Sets the class of each block of a write.
    pub fn classify(&self, first: u64, payloads: &mut [Payload]) {
        let journal = self.touches_journal(first, payloads.len() as u64);
        for (block, payload) in (first..).zip(payloads) {
            let in_journal = journal && self.in_journal(block);
            payload.digest.class = self.classes.of(block, &payload.digest, in_journal);
        }
    }

    /// True if the contents of a block are worth an entry in the index.
    #[must_use]
    pub fn is_data(&self, block: u64) -> bool {
        !self.in_journal(block) && !self.classes.is_metadata(block)
    }

    /// Counts the commit blocks in a write. Calls `own` with the index of each block that is the journal's own.
    pub fn count_commits(
        &self,
        change: &Change<'_>,
        payloads: &[Payload],
        mut own: impl FnMut(usize),
    ) -> u64 {
        let (first, mut commits) = (change.first, 0);
        let Some(blocks) = change.written else {
            return 0;
        };
        if !self.touches_journal(first, payloads.len() as u64) {
            return 0;
        }
        for (index, payload) in payloads.iter().enumerate() {
            if is_own(&payload.digest) && self.in_journal(first + index as u64) {
                commits += u64::from(is_commit(blocks.block(index)));
                own(index);
            }
        }
        commits
    }

    /// Reports each block of a write that is in a [log](Self::logs) and must be read: its index in the write, the
    /// log, and its position in the log.
    pub fn in_logs(
        &self,
        first: u64,
        payloads: &[Payload],
        mut tell: impl FnMut(usize, usize, JournalBlock),
    ) {
        if self.plan.readers.is_empty() || !self.touches_journal(first, payloads.len() as u64) {
            return;
        }
        for (index, payload) in payloads.iter().enumerate() {
            // Copies are read only for their checksums.
            let is_read = self.wants.replay || is_own(&payload.digest);
            if let Some((log, at)) = self.log_of(first + index as u64).filter(|_| is_read) {
                tell(index, log, at);
            }
        }
    }

    /// The log that a block belongs to, and its position there.
    #[must_use]
    pub fn log_at(&self, block: Lba) -> Option<(usize, JournalBlock)> {
        let is_near = !self.plan.readers.is_empty() && self.in_journal(block.0);
        is_near.then(|| self.log_of(block.0)).flatten()
    }

    fn log_of(&self, block: u64) -> Option<(usize, JournalBlock)> {
        let mut logs = self.plan.readers.iter().enumerate();
        logs.find_map(|(log, reader)| Some((log, reader.block_at(block * BLOCK)?)))
    }

    /// True if a block is in a known journal.
    #[must_use]
    pub fn in_journal(&self, block: u64) -> bool {
        self.touches_journal(block, 1)
    }

    /// True if one of these blocks is in a known journal.
    #[must_use]
    pub fn touches_journal(&self, first: u64, blocks: u64) -> bool {
        let journals = &self.plan.journals;
        let near = journals.partition_point(|(_, after)| *after <= first);
        journals
            .get(near)
            .is_some_and(|(start, _)| *start < first + blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Blocks;
    use crate::journals::Extent;
    use vellum_core::addr::Buf;
    use vellum_core::seam::{Class, Digest};
    use vellum_ext4::journal::OWN;

    struct Written(Vec<[u8; 4096]>);

    impl Blocks for Written {
        fn count(&self) -> usize {
            self.0.len()
        }

        fn block(&self, index: usize) -> &[u8] {
            &self.0[index]
        }
    }

    fn beginning(with: &[u8]) -> [u8; 4096] {
        let mut block = [0; 4096];
        block[..with.len()].copy_from_slice(with);
        block
    }

    fn payloads(written: &Written) -> Vec<Payload> {
        let first =
            |block: &[u8; 4096]| u32::from_le_bytes([block[0], block[1], block[2], block[3]]);
        let digest = |block| Digest {
            first: first(block),
            ..Digest::default()
        };
        let payload = |block| Payload {
            buf: Buf(0),
            digest: digest(block),
        };
        written.0.iter().map(payload).collect()
    }

    /// Findings with a journal set by hand in blocks 8 to 15.
    fn findings(wants: Wants) -> Findings {
        let set = [Extent {
            start: 8 * BLOCK,
            bytes: 8 * BLOCK,
        }];
        let plan = Plan::new(&Scan::default(), &set, &wants, 100);
        let (classes, critical) = (Arc::default(), Arc::default());
        Findings::new(Arc::default(), plan, classes, critical, wants)
    }

    #[test]
    fn a_journals_own_blocks_are_found_and_its_commits_are_counted() {
        let commit = beginning(&[OWN, [0, 0, 0, 2]].concat());
        let descriptor = beginning(&[OWN, [0, 0, 0, 1]].concat());
        let written = Written(vec![commit, descriptor, beginning(b"copy"), commit]);
        let mut digested = payloads(&written);
        let found = findings(Wants::default());
        let count = |first| {
            let change = Change {
                first,
                blocks: 4,
                written: Some(&written),
            };
            let mut own = Vec::new();
            let digested = payloads(&written);
            let commits = found.count_commits(&change, &digested, |index| own.push(index));
            (commits, own)
        };
        assert_eq!(count(8), (2, vec![0, 1, 3]));
        assert_eq!(count(7), (1, vec![1, 3]), "the first is before it");
        assert_eq!(count(13), (1, vec![0, 1]), "the last is behind it");
        assert_eq!(count(16), (0, vec![]));
        found.classify(7, &mut digested);
        let classes: Vec<Class> = digested.iter().map(|it| it.digest.class).collect();
        assert_eq!(
            classes,
            [Class::Data, Class::Journal, Class::Copy, Class::Journal]
        );
    }

    #[test]
    fn the_place_of_a_write_and_the_wants_decide_if_it_may_soon_be_compared() {
        let written = Written(vec![[0; 4096]]);
        let expects = |wants, first, is_written| {
            let change = Change {
                first,
                blocks: 1,
                written: match is_written {
                    true => Some(&written as &dyn Blocks),
                    false => None,
                },
            };
            let found = findings(wants);
            (found.expects(&change), found.empties_journal(&change))
        };
        let once = Wants::default();
        let dedup = Wants {
            write_once: vellum_core::seam::WriteOnce::Off,
            dedup: true,
            ..once
        };
        assert_eq!(expects(once, 8, true), (Expected::HomeWrite, false));
        assert_eq!(expects(once, 7, true), (Expected::Nothing, false));
        assert_eq!(expects(once, 8, false), (Expected::Nothing, true));
        assert_eq!(expects(dedup, 8, true), (Expected::Duplicate, false));
        assert_eq!(expects(dedup, 16, false), (Expected::Nothing, false));
    }
}
