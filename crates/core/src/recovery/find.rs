//! Finds where recovery begins: the superblock and the newest map checkpoint.

use super::error::RecoveryError;
use super::source::{Source, Unreadable};
use crate::addr::{BLOCK_BYTES, Generation, Pba};
use crate::format::root::{self, FreeSegments, LeafSlot, RootHeader};
use crate::format::{Crc, FormatError, open_summary, superblock::Superblock};
use alloc::{vec, vec::Vec};

/// Finds the newest whole superblock. Returns `true` with it if the other mirror is damaged or older. Everything else of a volume is read
/// after this, so no read comes from a cache.
///
/// # Errors
/// When neither mirror is whole, or one is whole and this program cannot use it.
pub fn find_superblock(
    source: &mut dyn Source,
    medium_blocks: u64,
    crc: Crc,
) -> Result<(Superblock, bool), RecoveryError> {
    source.drop_cache()?;
    let mut places = Places {
        source,
        medium_blocks,
        crc,
    };
    let first = places.read(Pba(0));
    let last = match &first {
        Ok(first) => places.last_beside(first),
        Err(_) => places.last_alone(),
    };
    // A superblock of a newer version is not damage. The program that wrote it knows more about the volume than the other mirror says.
    for mirror in [&first, &last] {
        if let Err(error @ RecoveryError::Superblock { error: of, .. }) = mirror
            && of.is_newer()
        {
            return Err(*error);
        }
    }
    match (first, last) {
        (Ok(mut first), Ok(last)) if first.mirrors_same_life(&last) => {
            first.mark_root(last.root_generation());
            first.take_newer_properties(&last);
            Ok((first, false))
        }
        (Ok(first), Ok(last)) if first.uuid() == last.uuid() && last.life() > first.life() => {
            Ok((last, true))
        }
        (Ok(first), _) => Ok((first, true)),
        (Err(_), Ok(last)) => Ok((last, true)),
        (Err(first), Err(last)) => {
            let newest = places.newest_head();
            newest
                .map(|head| (head, true))
                .ok_or_else(|| neither(first, last))
        }
    }
}

/// Where superblocks may be.
struct Places<'a> {
    source: &'a mut dyn Source,
    medium_blocks: u64,
    crc: Crc,
}

impl Places<'_> {
    /// The readable rest of the newer of two torn superblocks.
    fn newest_head(&mut self) -> Option<Superblock> {
        let end = Pba(self.medium_blocks.saturating_sub(1));
        let places = [Some(Pba(0)), Some(end), self.told_by_the_first()];
        let heads = places.into_iter().flatten();
        let heads = heads.filter_map(|at| self.head(at));
        heads.max_by_key(Superblock::life)
    }

    /// The readable rest of a torn superblock.
    fn head(&mut self, at: Pba) -> Option<Superblock> {
        let mut block = [0; BLOCK_BYTES];
        self.source.read(at, &mut block).ok()?;
        Superblock::decode_head(&block, self.medium_blocks, self.crc).ok()
    }

    /// The readable rest of a torn superblock, if it is at least `lives` lives newer than the first mirror. Each life writes the first
    /// mirror before the last. So in that case the first mirror is stale, and must not describe the volume.
    fn newer_head(&mut self, at: Pba, first: &Superblock, lives: u64) -> Option<Superblock> {
        let least = first.life().0 + lives;
        let head = self.head(at)?;
        (head.uuid() == first.uuid() && head.life().0 >= least).then_some(head)
    }

    fn read(&mut self, at: Pba) -> Result<Superblock, RecoveryError> {
        let mut block = [0; BLOCK_BYTES];
        self.source.read(at, &mut block)?;
        Superblock::decode(&block, self.medium_blocks, self.crc)
            .map_err(|error| RecoveryError::Superblock { at, error })
    }

    /// The last mirror, given the first. The medium may be longer than the volume. Or the volume has grown, and the first mirror
    /// is stale because its write was lost.
    fn last_beside(&mut self, first: &Superblock) -> Result<Superblock, RecoveryError> {
        let (there, end) = (first.mirrors()[1], Pba(self.medium_blocks - 1));
        if there != end
            && let Ok(grown) = self.read(end)
            && grown.uuid() == first.uuid()
            && grown.life() > first.life()
        {
            return Ok(grown);
        }
        // An interrupted growth leaves a superblock of the next life there; then the first mirror is right.
        if there != end
            && let Some(head) = self.newer_head(end, first, 2)
        {
            return Ok(head);
        }
        self.read(there)
            .or_else(|error| self.newer_head(there, first, 1).ok_or(error))
    }

    /// The last mirror, when the first is lost: usually in the medium's last block. If the medium is longer than the volume, that block
    /// may hold a copy that says where the mirror is. If the first mirror was torn, its rest may say so too. Neither is trusted for more
    /// than the place.
    fn last_alone(&mut self) -> Result<Superblock, RecoveryError> {
        let end = Pba(self.medium_blocks.saturating_sub(1));
        let at_end = self.read(end);
        let place = match &at_end {
            Ok(copy) => Some(copy.mirrors()[1]),
            Err(_) => self.told_by_the_first(),
        };
        match place {
            Some(at) if at != end => self.read(at),
            _ => at_end,
        }
    }

    fn told_by_the_first(&mut self) -> Option<Pba> {
        let mut block = [0; BLOCK_BYTES];
        self.source.read(Pba(0), &mut block).ok()?;
        Superblock::last_mirror_in(&block).filter(|at| at.0 < self.medium_blocks)
    }
}

/// The error for two lost superblocks. If one of them cannot be read, it may still be whole.
fn neither(first: RecoveryError, last: RecoveryError) -> RecoveryError {
    use RecoveryError::{NoSuperblock, Superblock};
    match (first, last) {
        (Superblock { error, at }, Superblock { error: other, .. }) => match error {
            FormatError::CutShort { .. } => Superblock { at, error },
            first => NoSuperblock { first, last: other },
        },
        (Superblock { .. }, unreadable) | (unreadable, _) => unreadable,
    }
}

/// The map checkpoint to begin from.
pub(super) struct Newest {
    pub header: RootHeader,
    pub slots: Vec<LeafSlot>,
    pub free: FreeSegments,
    /// Whether something else is damaged that may be a newer checkpoint.
    pub newer_lost: bool,
    /// Whether a copy of it is missing.
    pub is_alone: bool,
}

/// The contents of one of the root's two places.
struct Place {
    /// The newest whole root there.
    newest: Result<Root, FormatError>,
    /// Whether one of the copies differs from it.
    is_alone: bool,
    /// Whether a copy is damaged, and not blank.
    damaged: bool,
}

/// Finds the newest whole root.
///
/// If a root has only one whole copy, its write may have been cut short. Everything that the previous root needs is kept until the
/// superblock records the new root. Until then the previous root counts, because a single lost block could destroy the new one later.
pub(super) fn find_root(
    source: &mut dyn Source,
    superblock: &Superblock,
    crc: Crc,
) -> Result<Newest, RecoveryError> {
    let mut unread = None;
    let [first, second] = [0, 1].map(|place| {
        let copies = superblock.root_copies(Generation(place));
        let copies = copies.map(|at| read_root(source, superblock, crc, place, at, &mut unread));
        Place::of(copies.collect())
    });
    let lost = superblock.root_generation();
    let generation = |place: &Place| {
        let newest = place.newest.as_ref().ok();
        newest.map(|(header, ..)| header.generation)
    };
    let (newer, older) = match generation(&first) > generation(&second) {
        true => (first, second),
        false => (second, first),
    };
    let is_cut_short = newer.is_alone && generation(&newer) > Some(lost);
    let older_counts = !older.is_alone || generation(&older) <= Some(lost);
    let (place, other) = match is_cut_short && older.newest.is_ok() && older_counts {
        true => (older, newer),
        false => (newer, older),
    };
    match (place.newest, other.newest) {
        (Ok((header, ..)), _) if header.generation < lost => {
            Err(unread.map_or(RecoveryError::RootLost { lost }, RecoveryError::from))
        }
        (Ok((header, slots, free)), _) => Ok(Newest {
            header,
            slots,
            free,
            newer_lost: other.damaged || is_cut_short,
            is_alone: place.is_alone,
        }),
        (Err(second), Err(first)) => {
            let lost = RecoveryError::NoRoot { first, second };
            Err(unread.map_or(lost, RecoveryError::from))
        }
        (Err(_), Ok(_)) => unreachable!("one that is whole is newer than none"),
    }
}

impl Place {
    fn of(copies: Vec<(Result<Root, FormatError>, bool)>) -> Self {
        let written = |(root, written): &(Result<Root, _>, bool)| root.is_err() && *written;
        let damaged = copies.iter().any(written);
        let mut copies = copies.into_iter().map(|(root, _)| root);
        let mut place = Self {
            newest: copies.next().unwrap_or(Err(NOT_READ)),
            is_alone: false,
            damaged,
        };
        for copy in copies {
            // A copy with the same number may be from before a crash between the writes of the two copies.
            place.is_alone = place.newest != copy || copy.is_err();
            let generation =
                |root: &Result<Root, _>| root.as_ref().ok().map(|root| root.0.generation);
            if generation(&copy) > generation(&place.newest) {
                place.newest = copy;
            }
        }
        place
    }
}

const NOT_READ: FormatError = FormatError::Truncated {
    what: "root",
    have: 0,
    need: BLOCK_BYTES,
};

/// The root at `at`, and whether anything was written there.
fn read_root(
    source: &mut dyn Source,
    superblock: &Superblock,
    crc: Crc,
    place: u64,
    at: Pba,
    unread: &mut Option<Unreadable>,
) -> (Result<Root, FormatError>, bool) {
    let length = superblock.root_blocks() as usize * BLOCK_BYTES;
    let mut bytes = match superblock.root_twin(Generation(place)) == Some(at) {
        true => vec![0; superblock.twin_blocks() as usize * BLOCK_BYTES],
        false => vec![0; length],
    };
    if let Err(error) = source.read(at, &mut bytes) {
        *unread = Some(error);
        return (Err(NOT_READ), true);
    }
    let (bytes, behind) = bytes.split_at(length);
    let written = bytes.iter().any(|&byte| byte != 0);
    let decoded = root::decode(bytes, &superblock.uuid(), superblock.leaves(), crc);
    let free = FreeSegments::of_root(bytes, superblock.leaves());
    let root = decoded.map(|(header, slots)| (header, slots, free));
    let root = root.and_then(|root| check_place(place, root));
    let root = root.and_then(|root| check_cursors(superblock, root));
    let root = root.and_then(|root| check_open_summaries(superblock, root, behind, crc));
    (root, written)
}

type Root = (RootHeader, Vec<LeafSlot>, FreeSegments);

/// Roots with even numbers are in the first place, those with odd numbers in the second, so two successive roots never share a place.
fn check_place(place: u64, root: Root) -> Result<Root, FormatError> {
    let value = root.0.generation.0;
    match value & 1 == place {
        true => Ok(root),
        false => Err(FormatError::Value {
            what: "root",
            field: "generation",
            value,
        }),
    }
}

/// If a copy's open summaries are not whole, its write may have been cut short.
fn check_open_summaries(
    superblock: &Superblock,
    root: Root,
    behind: &[u8],
    crc: Crc,
) -> Result<Root, FormatError> {
    let length = superblock.open_summary_blocks() as usize * BLOCK_BYTES;
    for (head, bytes) in (0..2).zip(behind.chunks_exact(length.max(1))) {
        open_summary::decode(superblock, &root.0, head, bytes, crc)?;
    }
    Ok(root)
}

fn check_cursors(superblock: &Superblock, root: Root) -> Result<Root, FormatError> {
    let [hot, cold] = root.0.cursors;
    for cursor in [hot, cold] {
        if cursor.segment.0 >= superblock.segment_count()
            || cursor.offset > superblock.usable_blocks() - 2
        {
            return Err(FormatError::Value {
                what: "root",
                field: "cursor",
                value: cursor.segment.0.into(),
            });
        }
    }
    if hot.segment == cold.segment {
        return Err(FormatError::Value {
            what: "root",
            field: "cursor",
            value: hot.segment.0.into(),
        });
    }
    Ok(root)
}
