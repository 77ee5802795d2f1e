//! The header of an encrypted medium.

use crate::key::{Secret, VolumeKey};
use crate::places::{BLOCK_BYTES, START};
use crate::raw::{CIPHER, FREE, KEY_FILE, MAGIC, PASSPHRASE, RawHeader, RawSlot, VERSION};
use crate::slot::{Cost, Kind, Slot};

use std::io;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Slots in a header.
pub const SLOTS: usize = 8;

/// Why bytes are not a header.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum HeaderError {
    /// There is no header.
    #[error("it is not encrypted by vellum")]
    Magic,
    /// The header is damaged.
    #[error("the header is damaged: its sum is wrong")]
    Sum,
    /// Written by a newer program.
    #[error("the header has version {0}, and this program knows {VERSION}: use a newer vellum")]
    Version(u32),
    /// A cipher of a newer program.
    #[error("the header names cipher {0}, and this program knows {CIPHER}: use a newer vellum")]
    Cipher(u32),
    /// The volume starts elsewhere.
    #[error("the header says that the volume begins at block {0}, and not at {START}")]
    Start(u64),
    /// A slot is invalid.
    #[error("slot {0} of the header is of no kind that this program knows: use a newer vellum")]
    Slot(usize),
    /// Trying a secret would take too long.
    #[error(
        "slot {slot} of the header asks for {memory_kib} KiB of memory, {passes} times, in {lanes} lanes: \
         that is out of bounds"
    )]
    Cost {
        /// The slot.
        slot: usize,
        /// Memory for argon2id.
        memory_kib: u32,
        /// Passes of argon2id.
        passes: u32,
        /// Lanes of argon2id.
        lanes: u32,
    },
}

/// The header of an encrypted medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    uuid: [u8; 16],
    generation: u64,
    slots: [Option<Slot>; SLOTS],
}

impl Header {
    /// A header with no slots in use.
    #[must_use]
    pub fn new(uuid: [u8; 16]) -> Self {
        Self {
            uuid,
            generation: 0,
            slots: Default::default(),
        }
    }

    /// Parses a header. Its checksum is verified before any other field is used.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(block: &[u8; BLOCK_BYTES]) -> Result<Self, HeaderError> {
        let Ok(raw) = RawHeader::ref_from_bytes(block) else {
            return Err(HeaderError::Magic);
        };
        match () {
            () if raw.magic != MAGIC => return Err(HeaderError::Magic),
            () if raw.sum != sum(block) => return Err(HeaderError::Sum),
            () if raw.version.get() != VERSION => {
                return Err(HeaderError::Version(raw.version.get()));
            }
            () if raw.cipher.get() != CIPHER => return Err(HeaderError::Cipher(raw.cipher.get())),
            () if raw.start.get() != START => return Err(HeaderError::Start(raw.start.get())),
            () => {}
        }
        let mut header = Self::new(raw.uuid);
        header.generation = raw.generation.get();
        for (index, (slot, raw)) in header.slots.iter_mut().zip(&raw.slots).enumerate() {
            *slot = parse_slot(index, raw)?;
        }
        Ok(header)
    }

    /// The header's bytes on the medium.
    #[must_use]
    pub fn bytes(&self) -> [u8; BLOCK_BYTES] {
        let mut raw = RawHeader::new_zeroed();
        raw.magic = MAGIC;
        raw.version = VERSION.into();
        raw.cipher = CIPHER.into();
        raw.uuid = self.uuid;
        raw.generation = self.generation.into();
        raw.start = START.into();
        for (raw, slot) in raw.slots.iter_mut().zip(&self.slots) {
            if let Some(slot) = slot {
                *raw = raw_slot(slot);
            }
        }
        let mut block = [0; BLOCK_BYTES];
        block.copy_from_slice(raw.as_bytes());
        let sum = sum(&block);
        block[BLOCK_BYTES - sum.len()..].copy_from_slice(&sum);
        block
    }

    /// The volume's UUID.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// How often it has been changed.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The slots, by their numbers.
    #[must_use]
    pub fn slots(&self) -> &[Option<Slot>; SLOTS] {
        &self.slots
    }

    /// Returns the slot that a secret opens, and the volume key in it.
    ///
    /// # Errors
    /// If there is not enough memory for the derivation.
    pub fn open(&self, secret: &Secret) -> io::Result<Option<(usize, VolumeKey)>> {
        for (index, slot) in self.slots.iter().enumerate() {
            if let Some(slot) = slot
                && let Some(key) = slot.open(secret)?
            {
                return Ok(Some((index, key)));
            }
        }
        Ok(None)
    }

    /// Returns the next generation of the header, with one slot changed.
    #[must_use]
    pub fn with_slot(&self, index: usize, slot: Option<Slot>) -> Self {
        let mut next = self.clone();
        if let Some(place) = next.slots.get_mut(index) {
            *place = slot;
        }
        next.generation = self.generation.saturating_add(1);
        next
    }

    /// The first empty slot.
    #[must_use]
    pub fn free_slot(&self) -> Option<usize> {
        self.slots.iter().position(Option::is_none)
    }
}

fn sum(block: &[u8; BLOCK_BYTES]) -> [u8; 32] {
    *blake3::hash(&block[..BLOCK_BYTES - 32]).as_bytes()
}

fn parse_slot(index: usize, raw: &RawSlot) -> Result<Option<Slot>, HeaderError> {
    let cost = Cost {
        memory_kib: raw.memory_kib.get(),
        passes: raw.passes.get(),
        lanes: raw.lanes.get(),
    };
    let kind = match raw.kind.get() {
        FREE => return Ok(None),
        PASSPHRASE if cost.is_bounded() => Kind::Passphrase(cost),
        PASSPHRASE => {
            return Err(HeaderError::Cost {
                slot: index,
                memory_kib: cost.memory_kib,
                passes: cost.passes,
                lanes: cost.lanes,
            });
        }
        KEY_FILE => Kind::KeyFile,
        _ => return Err(HeaderError::Slot(index)),
    };
    Ok(Some(Slot {
        kind,
        salt: raw.salt,
        wrapped: raw.wrapped,
    }))
}

fn raw_slot(slot: &Slot) -> RawSlot {
    let mut raw = RawSlot::new_zeroed();
    raw.salt = slot.salt;
    raw.wrapped = slot.wrapped;
    match slot.kind {
        Kind::KeyFile => raw.kind = KEY_FILE.into(),
        Kind::Passphrase(cost) => {
            raw.kind = PASSPHRASE.into();
            raw.memory_kib = cost.memory_kib.into();
            raw.passes = cost.passes.into();
            raw.lanes = cost.lanes.into();
        }
    }
    raw
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(byte: u8) -> Secret {
        Secret::key_file(vec![byte; 32]).unwrap()
    }

    fn resummed(mut block: [u8; BLOCK_BYTES]) -> [u8; BLOCK_BYTES] {
        let sum = sum(&block);
        block[BLOCK_BYTES - 32..].copy_from_slice(&sum);
        block
    }

    #[test]
    fn each_secret_opens_its_own_slot_and_no_other_opens_any() {
        let key = VolumeKey::random().unwrap();
        let words = Secret::passphrase(b"words".to_vec()).unwrap();
        let header = Header::new([7; 16])
            .with_slot(2, Some(Slot::new(&key, &file(1)).unwrap()))
            .with_slot(5, Some(Slot::new(&key, &words).unwrap()));
        let header = Header::parse(&header.bytes()).unwrap();
        assert_eq!((header.generation(), header.uuid()), (2, [7; 16]));
        for (secret, slot) in [(&file(1), 2), (&words, 5)] {
            let (found, opened) = header.open(secret).unwrap().unwrap();
            assert_eq!((found, opened.bytes()), (slot, key.bytes()));
        }
        assert!(header.open(&file(2)).unwrap().is_none());
        // The bytes of a passphrase, given as a key file, do not open it.
        let other = Secret::passphrase(vec![1; 32]).unwrap();
        assert!(header.open(&other).unwrap().is_none());
        let without = header.with_slot(2, None);
        assert!(without.open(&file(1)).unwrap().is_none());
    }

    #[test]
    fn a_hostile_header_takes_no_memory_and_no_time() {
        let at = |slot: usize, field: usize| 64 + slot * 256 + field * 4;
        for (memory, passes, lanes) in [
            (u32::MAX, 1, 1),
            (300 << 10, 1, 1),
            (64 << 10, u32::MAX, 1),
            (256 << 10, 5, 1),
            (64 << 10, 3, u32::MAX),
            (0, 0, 0),
            (8, 1, 16),
        ] {
            let mut block = Header::new([0; 16]).bytes();
            for (field, value) in [PASSPHRASE, memory, passes, lanes].into_iter().enumerate() {
                block[at(7, field)..][..4].copy_from_slice(&value.to_le_bytes());
            }
            let refused = Header::parse(&resummed(block)).unwrap_err();
            assert!(
                matches!(refused, HeaderError::Cost { slot: 7, .. }),
                "{refused}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let whole = Header::new([0; 16]).bytes();
        let with = |at: usize| {
            let mut block = whole;
            block[at] ^= 0x80;
            block
        };
        let parse = |block| Header::parse(&block).unwrap_err();
        assert_eq!(parse([0; BLOCK_BYTES]), HeaderError::Magic);
        assert_eq!(parse(with(0)), HeaderError::Magic);
        assert_eq!(parse(with(3000)), HeaderError::Sum);
        assert_eq!(parse(resummed(with(8))), HeaderError::Version(0x81));
        assert_eq!(parse(resummed(with(12))), HeaderError::Cipher(0x81));
        assert_eq!(parse(resummed(with(40))), HeaderError::Start(0x180));
        assert_eq!(parse(resummed(with(64 + 256))), HeaderError::Slot(1));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            noise in prop::collection::vec((0..BLOCK_BYTES, any::<u8>()), 0..64),
            resum: bool,
        ) {
            let mut block = Header::new([3; 16]).bytes();
            for (at, byte) in noise {
                block[at] = byte;
            }
            let block = if resum { resummed(block) } else { block };
            if let Ok(header) = Header::parse(&block) {
                prop_assert_eq!(Header::parse(&header.bytes()).unwrap(), header);
            }
        }
    }
}
