//! A stream: a snapshot, or what changed between two, as bytes for a pipe. It has a head and [frames](super::frames): runs of
//! blocks by rising addresses, runs of zeros, and an end that counts them. In a whole snapshot, blocks in no frame are zeros; in
//! a stream of changes, they are unchanged.

use super::error::FormatError;
use super::field::{Field, on_disk};
use super::frames::{check_head, seal_head, value};
use super::history::{Identity, MARK_BYTES, Mark, NAME_BYTES, Name};
use crate::addr::BLOCK_BYTES;
use crate::limits::MAX_LOGICAL_BLOCKS;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

const HEAD: &str = "stream of a snapshot";
const MAGIC: [u8; 8] = *b"VELLUMST";
/// Separate from the volume's version: streams change independently of volumes.
const VERSION: u32 = 1;

/// Bytes of a head.
pub const HEAD_BYTES: usize = size_of::<RawHead>();

on_disk! {
    /// What a stream begins with.
    RawHead {
        /// "VELLUMST"
        magic: [u8; 8],
        /// version of the stream's format
        version: U32,
        /// bytes in a block
        block_bytes: U32,
        /// UUID of the volume that was read
        uuid: [u8; 16],
        /// blocks of the volume
        blocks: U64,
        /// when the snapshot was taken, in seconds since 1970
        taken: U64,
        /// the snapshot's mark
        mark: [u8; MARK_BYTES],
        /// bytes of the snapshot's name
        name_bytes: u8,
        /// 0 all of the snapshot, 1 what changed since another
        kind: u8,
        /// the snapshot's name, ASCII, then zeros
        name: [u8; NAME_BYTES],
        /// zeros
        reserved: U32,
        /// when the other one was taken; this and what follows: zeros if there is none
        from_taken: U64,
        /// the other one's mark
        from_mark: [u8; MARK_BYTES],
        /// bytes of the other one's name
        from_name_bytes: u8,
        /// zero
        from_reserved: u8,
        /// the other one's name
        from_name: [u8; NAME_BYTES],
        /// zeros
        more: U32,
        /// XXH3-64 of the bytes before it
        sum: U64,
    }
}

/// The fields of a head.
pub const FIELDS: &[Field] = RawHead::FIELDS;

/// What a stream contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// UUID of the volume that was read.
    pub uuid: [u8; 16],
    /// Blocks of the volume.
    pub blocks: u64,
    /// The snapshot.
    pub snapshot: Identity,
    /// The earlier snapshot, if the stream has only what changed since.
    pub from: Option<Identity>,
}

fn identity(
    field: &'static str,
    taken: U64,
    mark: [u8; MARK_BYTES],
    name: &[u8; NAME_BYTES],
    name_bytes: u8,
) -> Result<Identity, FormatError> {
    let read = Name::of_bytes(name, name_bytes);
    let name = read.ok_or(value(HEAD, field, name_bytes.into()))?;
    Ok(Identity {
        name,
        taken: taken.get(),
        mark: Mark(mark),
    })
}

impl Head {
    /// Encodes the head. Also returns the sum that the first frame's sum begins with.
    #[must_use]
    pub fn encode(&self) -> ([u8; HEAD_BYTES], u64) {
        let (name, name_bytes) = self.snapshot.name.padded();
        let mut raw = RawHead {
            magic: MAGIC,
            version: U32::new(VERSION),
            block_bytes: U32::new(BLOCK_BYTES as u32),
            uuid: self.uuid,
            blocks: U64::new(self.blocks),
            taken: U64::new(self.snapshot.taken),
            mark: self.snapshot.mark.0,
            name_bytes,
            kind: self.from.is_some().into(),
            name,
            reserved: U32::new(0),
            from_taken: U64::new(0),
            from_mark: [0; MARK_BYTES],
            from_name_bytes: 0,
            from_reserved: 0,
            from_name: [0; NAME_BYTES],
            more: U32::new(0),
            sum: U64::new(0),
        };
        if let Some(from) = &self.from {
            (raw.from_name, raw.from_name_bytes) = from.name.padded();
            raw.from_taken = U64::new(from.taken);
            raw.from_mark = from.mark.0;
        }
        seal_head(raw.as_bytes())
    }

    /// Decodes bytes that may be anything. Also returns the sum that the first frame's sum begins with.
    ///
    /// # Errors
    /// When they are not the head of a stream, are damaged, or are from a newer version.
    pub fn decode(bytes: &[u8; HEAD_BYTES]) -> Result<(Self, u64), FormatError> {
        let read = RawHead::read_from_bytes(bytes).ok();
        let raw = read
            .filter(|raw| raw.magic == MAGIC)
            .ok_or(FormatError::Magic { what: HEAD })?;
        let sum = check_head(HEAD, bytes, [raw.version.get(), VERSION], raw.sum.get())?;
        let (block, blocks) = (raw.block_bytes.get(), raw.blocks.get());
        if block != BLOCK_BYTES as u32 {
            return Err(value(HEAD, "block bytes", block.into()));
        }
        if blocks == 0 || blocks > MAX_LOGICAL_BLOCKS {
            return Err(value(HEAD, "blocks", blocks));
        }
        let from = match raw.kind {
            0 => None,
            1 => Some(identity(
                "name of the snapshot before it",
                raw.from_taken,
                raw.from_mark,
                &raw.from_name,
                raw.from_name_bytes,
            )?),
            kind => return Err(value(HEAD, "kind", kind.into())),
        };
        let snapshot = identity("name", raw.taken, raw.mark, &raw.name, raw.name_bytes)?;
        let head = Self {
            uuid: raw.uuid,
            blocks,
            snapshot,
            from,
        };
        Ok((head, sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use xxhash_rust::xxh3::xxh3_64_with_seed;

    fn identities() -> impl Strategy<Value = Identity> {
        let parts = (
            "[a-z0-9][a-z0-9._:+-]{0,43}",
            any::<u64>(),
            any::<[u8; 6]>(),
        );
        parts.prop_map(|(name, taken, mark)| Identity {
            name: Name::new(&name).unwrap(),
            taken,
            mark: Mark(mark),
        })
    }

    fn heads() -> impl Strategy<Value = Head> {
        let from = prop::option::of(identities());
        let parts = (
            any::<[u8; 16]>(),
            1..=MAX_LOGICAL_BLOCKS,
            identities(),
            from,
        );
        parts.prop_map(|(uuid, blocks, snapshot, from)| Head {
            uuid,
            blocks,
            snapshot,
            from,
        })
    }

    proptest! {
        #[test]
        fn a_decoded_head_is_the_encoded_one_and_a_flipped_bit_is_detected(head in heads()) {
            let (bytes, sum) = head.encode();
            prop_assert_eq!(Head::decode(&bytes), Ok((head, sum)));
            for bit in 0..HEAD_BYTES * 8 {
                let mut flipped = bytes;
                flipped[bit / 8] ^= 1 << (bit % 8);
                prop_assert!(Head::decode(&flipped).is_err(), "bit {}", bit);
            }
        }

        /// A head with any byte changed and a correct sum is refused, or read as what it then says.
        #[test]
        fn a_head_with_impossible_values_is_refused(head in heads(), place in 12..HEAD_BYTES - 8, byte: u8) {
            let (mut bytes, _) = head.encode();
            bytes[place] = byte;
            let sum = xxh3_64_with_seed(&bytes[..HEAD_BYTES - 8], 0);
            bytes[HEAD_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
            if let Ok((head, _)) = Head::decode(&bytes) {
                prop_assert!((1..=MAX_LOGICAL_BLOCKS).contains(&head.blocks));
                prop_assert_eq!(Head::decode(&head.encode().0).map(|(head, _)| head), Ok(head));
            }
        }
    }
}
