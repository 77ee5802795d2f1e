//! The block that has a content.

use crate::addr::{Lba, Vba};

/// The holder of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The last LBA that it was written to.
    Lba(Lba),
    /// A shared page.
    Page(Vba),
}
