//! Follows journals as they are written: what their descriptors say, which transactions are complete, and where the copy of a
//! block is that the next copy will be most like.

use crate::change::Change;
use crate::copies::Copies;
use crate::limits::{COMMITTED_PAIRS, PAIRS};
use crate::ranges::BLOCK;
use std::sync::Arc;
use vellum_core::addr::Lba;
use vellum_ext4::journal::{
    Content, Followed, Follower, Head, JournalBlock, Reader, Told, Transactions,
};

/// A journal block that has been read. Reading it needs no [`Log`], so many can be read in parallel.
#[derive(Debug)]
pub struct Entry {
    at: JournalBlock,
    content: Content,
    /// The reader that read it.
    reader: Arc<Reader>,
}

impl Entry {
    /// Reads a block. `reader` is the one that the [log](Log::reader) has now.
    #[must_use]
    pub fn read(reader: Arc<Reader>, at: JournalBlock, block: &[u8]) -> Self {
        let content = reader.read(at, block);
        Self {
            at,
            content,
            reader,
        }
    }

    /// True if it is one of the journal's own blocks.
    #[must_use]
    pub fn is_own(&self) -> bool {
        matches!(self.content, Content::Own(_))
    }
}

/// A journal whose blocks are followed.
#[derive(Debug)]
pub struct Log {
    transactions: Transactions,
    copies: Copies,
}

impl Log {
    /// Follows a journal as a scan has found it.
    #[must_use]
    pub fn new(found: &Arc<Reader>) -> Self {
        Self {
            transactions: Transactions::new(Arc::clone(found)),
            copies: Copies::default(),
        }
    }

    /// Sets how many logs of a volume are followed: they share the memory for what is remembered of them.
    pub fn share(&mut self, logs: usize) {
        self.transactions.share(logs);
    }

    /// How its blocks are read, according to its latest superblock since the scan.
    #[must_use]
    pub fn reader(&self) -> &Arc<Reader> {
        self.transactions.reader()
    }

    /// Records that a block is the journal's own and, if it is a descriptor, where the copies after it belong.
    pub fn describe(&mut self, entry: &Entry) {
        if entry.is_own() {
            self.copies.own(entry.at);
        }
        if let Content::Own(Head::Descriptor(_, copies)) = &entry.content {
            self.copies.describe(entry.reader.places(entry.at, copies));
        }
    }

    /// Records that a block is written to `lba`, which is `at` in the journal. It is then the newest copy of its home.
    pub fn write(&mut self, at: JournalBlock, lba: Lba) -> EarlierPlaces {
        match self.copies.write(at, lba) {
            Some(copied) => EarlierPlaces {
                copy: copied.before,
                home: Lba(copied.home / BLOCK),
            },
            None => EarlierPlaces::of(lba),
        }
    }

    /// Records that a block was handed to the core. If that completes a transaction, and the transaction is small, its home
    /// blocks and their copies are added to `pairs`. Nothing is added for a journal that may have moved since the scan
    /// (`is_current`), because pledged blocks are not compared. Returns false if the journal's blocks do not arrive in the
    /// order its file system sends them.
    pub fn written(
        &mut self,
        entry: Entry,
        is_current: impl FnOnce() -> bool,
        pairs: &mut Vec<(Lba, Lba)>,
    ) -> bool {
        match self
            .transactions
            .written(entry.at, entry.content, &entry.reader)
        {
            Told::Foreign(_) => return false,
            Told::Complete(complete) if complete.len() <= COMMITTED_PAIRS && is_current() => {
                let pair = |(home, place)| (Lba(home / BLOCK), Lba(place / BLOCK));
                pairs.extend(complete.into_iter().map(pair));
            }
            Told::Complete(_) | Told::Nothing => {}
        }
        true
    }

    /// Starts anew, because where journals are is changing.
    pub fn forget(&mut self) {
        self.transactions.forget();
        self.copies.clear();
    }

    /// Why its transactions are not reported; `None` if they are.
    #[must_use]
    pub fn not_replayed(&self) -> Option<&'static str> {
        if !self.reader().has_sums() {
            let why = "its journal has no checksums to check blocks against (the feature checksum_v3, \
                which the kernel sets where the file system has metadata_csum)";
            return Some(why);
        }
        let why = "blocks of its journal do not come as a file system sends them: \
            a cache between it and the volume writes back in an order of its own";
        self.transactions.has_given_up().then_some(why)
    }
}

/// Where an earlier version of a block may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlierPlaces {
    /// The previous copy in the journal.
    copy: Option<Lba>,
    /// Its home.
    pub home: Lba,
}

impl EarlierPlaces {
    /// The places for a block that is not a copy.
    #[must_use]
    pub fn of(block: Lba) -> Self {
        Self {
            copy: None,
            home: block,
        }
    }

    /// All places, the likeliest first.
    pub fn all(self) -> impl Iterator<Item = Lba> {
        self.copy.into_iter().chain([self.home])
    }
}

/// Learns home addresses from descriptors, for write-once by descriptor. What it knows is valid for one scan.
#[derive(Clone, Debug, Default)]
pub struct Followers {
    /// Each journal, and its block size.
    journals: Vec<(Follower, u32)>,
}

impl Followers {
    /// Follows journals as a scan has found them.
    #[must_use]
    pub fn new(journals: &[(Follower, u32)]) -> Self {
        let journals = journals.to_vec();
        Self { journals }
    }

    /// Reads a journal's own block in a write. Home blocks and the places of their copies are added to `pairs`.
    pub fn read(&mut self, change: &Change<'_>, index: usize, pairs: &mut Vec<(Lba, Lba)>) {
        let offset = (change.first + index as u64) * BLOCK;
        let mut journals = self.journals.iter_mut();
        let (Some(written), Some((follower, block_bytes))) = (
            change.written,
            journals.find(|(follower, _)| follower.layout().block_at(offset).is_some()),
        ) else {
            return;
        };
        let blocks = (u64::from(*block_bytes) / BLOCK) as usize;
        let mut tell = |followed| {
            if let Followed::Copy { home, place } = followed
                && pairs.len() < PAIRS
            {
                let pair = |n| (Lba(home / BLOCK + n), Lba(place / BLOCK + n));
                pairs.extend((0..blocks as u64).map(pair));
            }
        };
        if blocks == 1 {
            return follower.written(offset, written.block(index), &mut tell);
        }
        if index + blocks <= written.count() {
            let bytes: Vec<&[u8]> = (index..index + blocks)
                .map(|at| written.block(at))
                .collect();
            follower.written(offset, &bytes.concat(), &mut tell);
        }
    }
}
