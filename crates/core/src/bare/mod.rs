//! A volume without its data: all that leads to data, for who looks for what went wrong, and nothing of what clients wrote.
//!
//! A block is taken only when it proves to be a structure of the volume: by its checksum, its place, and its signature or UUID. One that
//! does not may be anybody's bytes. Of what is taken, parts of clients' blocks that ride in chunk headers are zeroed. The secret stays
//! behind: sums say which blocks are equal, and not what they are. So does the signature of a log: whoever knows it can write, as a
//! client, blocks that look like chunk headers. Everything is signed anew. Sectors of tables are not: they count at their own places alone.

mod log;
mod parts;
mod tables;

pub use parts::{Part, Put};

use crate::addr::{BLOCK_BYTES, Seq};
use crate::format::areas::Layout;
use crate::format::properties::Properties;
use crate::format::{Crc, superblock::Superblock};
use crate::recovery::Source;

/// How a volume is packed.
pub struct Choice {
    /// The newest chunk whose data is whole.
    pub through: Seq,
    /// What a log is signed with anew.
    pub signature: [u8; 16],
    /// What may be told of its properties.
    pub properties: Properties,
}

/// Gives all that leads to data.
pub fn bare(
    source: &mut dyn Source,
    superblock: &Superblock,
    choice: Choice,
    crc: Crc,
    put: Put<'_>,
) {
    let signature = match superblock.layout() {
        Layout::Log => choice.signature,
        Layout::Ordered | Layout::Shadow => superblock.signature(),
    };
    let pack = superblock.clone();
    let pack = pack.into_pack(choice.through, signature, choice.properties);
    let mut block = [0; BLOCK_BYTES];
    pack.encode(crc, &mut block);
    let [first, last] = superblock.mirrors();
    put(first, Part::Whole(&block));
    match superblock.layout() {
        Layout::Log => log::bare(source, superblock, signature, crc, put),
        Layout::Ordered | Layout::Shadow => tables::bare(source, superblock, crc, put),
    }
    put(last, Part::Whole(&block));
}
