//! Where recovery begins: the superblock and the newest map checkpoint.

use super::{RecoveryError, Source};
use crate::addr::{BLOCK_BYTES, Generation, Pba};
use crate::format::root::{self, LeafSlot, RootHeader};
use crate::format::{Crc, FormatError, superblock::Superblock};
use alloc::{vec, vec::Vec};

/// Finds the newest whole superblock; `true` with it when the other mirror is damaged or older. All else that is read of a
/// volume is read after this, and so past any cache.
///
/// # Errors
/// When neither mirror is one, or one is whole and this program cannot go by it.
pub fn find_superblock(
    source: &mut dyn Source,
    medium_blocks: u64,
    crc: Crc,
) -> Result<(Superblock, bool), RecoveryError> {
    source.drop_cache()?;
    let mut block = [0; BLOCK_BYTES];
    let mut read = |at: Pba| -> Result<Superblock, RecoveryError> {
        source.read(at, &mut block)?;
        Superblock::decode(&block, medium_blocks, crc)
            .map_err(|error| RecoveryError::Superblock { at, error })
    };
    let first = read(Pba(0));
    // The medium may have grown since: then the first says where the last is.
    let last_at = first
        .as_ref()
        .map_or(medium_blocks.saturating_sub(1), |sb| sb.medium_blocks() - 1);
    let last = read(Pba(last_at));
    // Not damage: whoever wrote it knows more of the volume than the other mirror tells.
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
        (Err(first), Err(last)) => Err(neither(first, last)),
    }
}

/// What is to be said of two that are lost: of one that cannot be read nobody knows whether it is.
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

/// The newest whole root, and whether the other place holds one that is damaged (and may be newer).
pub(super) fn find_root(
    source: &mut dyn Source,
    superblock: &Superblock,
    crc: Crc,
) -> Result<(RootHeader, Vec<LeafSlot>, bool), RecoveryError> {
    let mut bytes = vec![0; superblock.root_blocks() as usize * BLOCK_BYTES];
    let mut unread = None;
    let mut read = |place: u64| {
        let lost = FormatError::Truncated {
            what: "root",
            have: 0,
            need: BLOCK_BYTES,
        };
        if let Err(error) = source.read(superblock.root_place(Generation(place)), &mut bytes) {
            unread = Some(error);
            return (Err(lost), true);
        }
        let written = bytes.iter().any(|&byte| byte != 0);
        let decoded = root::decode(&bytes, &superblock.uuid(), superblock.leaves(), crc);
        let root = decoded.and_then(|root| check_place(place, root));
        (
            root.and_then(|root| check_cursors(superblock, root)),
            written,
        )
    };
    let (first, first_written) = read(0);
    let (second, second_written) = read(1);
    let (header, slots, newer_lost) = match (first, second) {
        (Ok(first), Ok(second)) if first.0.generation > second.0.generation => {
            (first.0, first.1, false)
        }
        (Ok(_), Ok(second)) => (second.0, second.1, false),
        (Ok(first), Err(_)) => (first.0, first.1, second_written),
        (Err(_), Ok(second)) => (second.0, second.1, first_written),
        (Err(first), Err(second)) => {
            let lost = RecoveryError::NoRoot { first, second };
            return Err(unread.map_or(lost, RecoveryError::from));
        }
    };
    let lost = superblock.root_generation();
    if header.generation < lost {
        return Err(RecoveryError::RootLost { lost });
    }
    Ok((header, slots, newer_lost))
}

type Root = (RootHeader, Vec<LeafSlot>);

/// Even numbers are at the first place, odd ones at the second; the next one is written to the other.
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
