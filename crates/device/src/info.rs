//! What a volume is, for people and programs.

use serde::{Deserialize, Serialize};
use std::fmt::Write;
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::format::superblock::Superblock;

/// A volume's identity and geometry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeInfo {
    /// The medium's name.
    pub medium: String,
    /// The volume's UUID.
    pub uuid: String,
    /// Bytes that clients see.
    pub logical_bytes: u64,
    /// Bytes of the medium.
    pub medium_bytes: u64,
    /// Bytes of data that may be live at once.
    pub capacity_bytes: u64,
    /// How blocks and their metadata lie on the medium.
    pub layout: String,
    /// Bytes in a segment.
    pub segment_bytes: u64,
    /// Segments.
    pub segments: u32,
    /// Over-provisioning requested at creation, in thousandths.
    pub over_provisioning: u32,
    /// How often it has been opened for writing.
    pub life: u64,
    /// Whether this opening is read-only.
    pub read_only: bool,
}

impl VolumeInfo {
    pub(crate) fn new(medium: &str, superblock: &Superblock, read_only: bool) -> Self {
        let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
        Self {
            medium: medium.to_owned(),
            uuid: hex_uuid(&superblock.uuid()),
            logical_bytes: bytes(superblock.logical_blocks()),
            medium_bytes: bytes(superblock.medium_blocks()),
            capacity_bytes: bytes(superblock.capacity_blocks()),
            layout: superblock.layout().name().to_owned(),
            segment_bytes: bytes(superblock.segment_blocks().into()),
            segments: superblock.segment_count(),
            over_provisioning: superblock.over_provisioning(),
            life: superblock.life().0,
            read_only,
        }
    }
}

/// A UUID in its usual form.
#[must_use]
pub fn hex_uuid(uuid: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn uuids_read_as_usual() {
        let uuid: [u8; 16] = std::array::from_fn(|i| i as u8 * 0x11);
        assert_eq!(
            super::hex_uuid(&uuid),
            "00112233-4455-6677-8899-aabbccddeeff"
        );
    }
}
