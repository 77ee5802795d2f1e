//! LZ4's block format, alone or with the base as its external dictionary. `lz4_flex` keeps its table on the
//! stack (without its feature `alloc`), so nothing is allocated.

use crate::block::Block;
use crate::encoding::Encoding;
use crate::error::DecodeError;
use lz4_flex::block::{
    compress_into, compress_into_with_dict, decompress_into, decompress_into_with_dict,
    get_maximum_output_size,
};
use vellum_core::addr::BLOCK_BYTES;

pub(crate) struct Lz4 {
    /// `lz4_flex` needs room for the worst case, whatever the limit.
    room: Box<[u8]>,
}

impl Lz4 {
    pub(crate) fn new() -> Self {
        let room = vec![0; get_maximum_output_size(BLOCK_BYTES)].into();
        Self { room }
    }

    pub(crate) fn encode(&mut self, block: &Block, base: Option<&Block>) -> Option<&[u8]> {
        let length = match base {
            None => compress_into(block, &mut self.room),
            Some(base) => compress_into_with_dict(block, &mut self.room, base),
        };
        self.room.get(..length.ok()?)
    }
}

pub(crate) fn decode(
    encoding: Encoding,
    bytes: &[u8],
    base: Option<&Block>,
    out: &mut Block,
) -> Result<(), DecodeError> {
    let found = match base {
        None => decompress_into(bytes, out),
        Some(base) => decompress_into_with_dict(bytes, out, base),
    };
    match found {
        Ok(BLOCK_BYTES) => Ok(()),
        Ok(length) => Err(DecodeError::Short { encoding, length }),
        Err(_) => Err(DecodeError::Damaged { encoding }),
    }
}
