//! LZ4, through memory that is kept.

use crate::{Block, DecodeError, Encoding};
use lz4_flex::block::{
    CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size,
};
use vellum_core::addr::BLOCK_BYTES;

pub(crate) struct Lz4 {
    table: CompressTable,
    room: Vec<u8>,
}

impl Lz4 {
    pub(crate) fn new() -> Self {
        Self {
            table: CompressTable::small(),
            room: vec![0; get_maximum_output_size(BLOCK_BYTES)],
        }
    }

    pub(crate) fn encode(&mut self, block: &Block) -> Option<&[u8]> {
        let length = compress_into_with_table(block, &mut self.room, &mut self.table).ok()?;
        self.room.get(..length)
    }
}

pub(crate) fn decode(encoding: Encoding, bytes: &[u8], out: &mut Block) -> Result<(), DecodeError> {
    match decompress_into(bytes, out) {
        Ok(BLOCK_BYTES) => Ok(()),
        Ok(length) => Err(DecodeError::Short { encoding, length }),
        Err(_) => Err(DecodeError::Damaged { encoding }),
    }
}
