//! The superblock of a pack, which has no data and no secret.

use super::secret::Secret;
use super::{Properties, Superblock};
use crate::addr::Seq;

impl Superblock {
    /// For a pack, which has neither data nor secret: the newest chunk whose data was whole, or was not examined.
    #[must_use]
    pub fn without_data(&self) -> Option<Seq> {
        match self.secret {
            Secret::Known(_) => None,
            Secret::Withheld { through, .. } => Some(through),
        }
    }

    /// The superblock of a pack of this volume.
    #[must_use]
    pub fn into_pack(mut self, through: Seq, signature: [u8; 16], properties: Properties) -> Self {
        self.secret = Secret::Withheld { through, signature };
        self.properties = properties;
        self
    }
}
