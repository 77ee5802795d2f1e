//! What users are told of waits and journals.

use crate::limits::COMMIT_PATIENCE;

/// Of a journal under `replay`.
pub(super) const OUT_OF_ORDER: &str = "the blocks of a journal do not come as its file system sends them: \
    what is in a copy's place has not the sum that its descriptor names. \
    Is there a cache that writes back between the file system and this volume? \
    Then switch replay off: `vellum set VOLUME replay=off`";

/// Of a commit block that is refused.
pub(super) fn too_late(offset: u64, missing: u32) -> String {
    format!(
        "the commit block of a journal at byte {offset} is not written: of what it commits \
        {missing} blocks have not come, for {} s. Look for lost requests between the file system and \
        this volume; unmount it, run e2fsck, and mount it again",
        COMMIT_PATIENCE.as_secs()
    )
}
