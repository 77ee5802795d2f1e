//! A volume without its data, for a reader who investigates what went wrong: everything that leads to data, and nothing that clients
//! wrote.
//!
//! A block is taken only if it proves to be a structure of the volume, by its checksum, its place, and its signature or UUID. Any other
//! block may hold a client's bytes. Parts of clients' blocks that are stored in chunk headers are zeroed. The secret is left out: sums
//! show which blocks are equal, but not what they hold. The signature of a log is left out too: a client that knows it can write blocks
//! that look like chunk headers. So everything is signed anew, except for sectors of tables, because these are valid only in their own
//! places.

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
    /// The new signature of a log.
    pub signature: [u8; 16],
    /// The properties that may be disclosed.
    pub properties: Properties,
}

/// Passes everything that leads to data to `put`.
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
