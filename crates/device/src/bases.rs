//! What is looked up about a block before it is encoded.
//!
//! Under the volume's lock the bases that are kept are what is stored. A delta is made without the lock; before it is handed to the
//! core, its base is checked again.

use std::sync::Arc;
use vellum_codec::Block as Bytes;
use vellum_core::addr::Lba;
use vellum_core::entry::PartId;
use vellum_watch::{Bases, Found};

/// A block that may be a base.
pub(crate) type Base = vellum_watch::Base<Arc<Bytes>>;

/// What was found for a block that is about to be encoded.
#[derive(Clone, Debug)]
pub(crate) struct BaseLookup {
    pub found: Found<Arc<Bytes>>,
    /// Where it belongs: its own address or, for a journal's copy, the address of the block it is a copy of.
    pub home: Lba,
    /// True if a journal presumably holds it already. It will not be stored, so encoding it would be wasted work.
    pub is_journaled: bool,
}

/// True if a part is still the base that was found.
pub(crate) fn is_as_found(bases: &Bases<Arc<Bytes>>, part: PartId, found: &Base) -> bool {
    let known = bases.peek(part);
    known.is_some_and(|known| Arc::ptr_eq(&known.block, &found.block))
}
