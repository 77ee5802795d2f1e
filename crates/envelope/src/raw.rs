//! The header's bytes.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(crate) const MAGIC: [u8; 8] = *b"VELLUMEN";
pub(crate) const VERSION: u32 = 1;
/// AES-256-XTS, blocks of 4 KiB.
pub(crate) const CIPHER: u32 = 1;

pub(crate) const FREE: u32 = 0;
pub(crate) const PASSPHRASE: u32 = 1;
pub(crate) const KEY_FILE: u32 = 2;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawSlot {
    /// 0 nothing, 1 a passphrase by argon2id, 2 a key file by BLAKE3
    pub(crate) kind: U32,
    /// of argon2id: memory in KiB, passes, lanes
    pub(crate) memory_kib: U32,
    pub(crate) passes: U32,
    pub(crate) lanes: U32,
    pub(crate) salt: [u8; 32],
    pub(crate) wrapped: [u8; 72],
    pub(crate) zeros: [u8; 136],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawHeader {
    /// "VELLUMEN"
    pub(crate) magic: [u8; 8],
    pub(crate) version: U32,
    /// 1: AES-256-XTS, blocks of 4 KiB
    pub(crate) cipher: U32,
    /// the volume's UUID, so that its server is found without the key
    pub(crate) uuid: [u8; 16],
    /// how often the slots were changed: of two whole copies, the one with more counts
    pub(crate) generation: U64,
    /// first block of the volume
    pub(crate) start: U64,
    pub(crate) zeros: [u8; 16],
    pub(crate) slots: [RawSlot; 8],
    pub(crate) rest: [u8; 1952],
    /// BLAKE3 of all before it: shows damage, but not who wrote it
    pub(crate) sum: [u8; 32],
}

const _: () = assert!(size_of::<RawSlot>() == 256);
const _: () = assert!(size_of::<RawHeader>() == crate::places::BLOCK_BYTES);
