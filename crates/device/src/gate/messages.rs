//! Messages to users about waits and journals.

use vellum_watch::limits::COMMIT_PATIENCE;

/// About a journal under `replay`.
pub(super) const OUT_OF_ORDER: &str = "a journal's blocks do not arrive as its file system sends them: \
    a block does not match the checksum in its descriptor. Is there a write-back cache between \
    the file system and this volume? If so, switch replay off: `vellum set VOLUME replay=off`";

/// About a commit block that is refused because of another block.
pub(super) const INCOMPLETE: &str =
    "a block that this one commits could not be written, or a commit block before it";

/// About an answered commit block that is given up.
pub(super) fn given_up(offset: u64) -> String {
    format!(
        "the journal commit block at byte {offset} was not written: a block that it commits was refused, \
         and had not come again when the commit block was read or overwritten, or the volume stopped. \
         Later commits of that journal are refused: unmount it, run e2fsck, and mount it again"
    )
}

/// About a commit block that gets ENOSPC because blocks are missing.
pub(super) fn without_room(offset: u64, missing: u32) -> String {
    format!(
        "the journal commit block at byte {offset} got ENOSPC: {missing} of the blocks it commits have not \
         come within {} s, and there was no room. Make room in the volume or below it (`vellum health` says \
         what is short), and let the client go on",
        COMMIT_PATIENCE.as_secs()
    )
}

/// About a commit block that is refused because blocks are missing.
pub(super) fn too_late(offset: u64, missing: u32) -> String {
    format!(
        "the journal commit block at byte {offset} was not written: {missing} of the blocks it \
         commits have not arrived within {} s. Look for lost requests between the file system and \
         this volume; then unmount it, run e2fsck, and mount it again",
        COMMIT_PATIENCE.as_secs()
    )
}
