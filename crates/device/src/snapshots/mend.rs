//! Writes blocks of the list and of rows anew, where a scrub has found them damaged: all of them are in memory.

use super::carry;
use crate::shared::SharedVolume;
use vellum_core::addr::Lba;

/// What a block says, if it is one of the list or of the rows.
pub(crate) fn role(shared: &SharedVolume, lba: Lba) -> Option<&'static str> {
    let [list, rows, _] = shared.keeper.as_ref()?.book().history().parts();
    match lba {
        lba if list.contains(&lba) => Some("list of snapshots"),
        lba if rows.contains(&lba) => Some("rows of what snapshots keep"),
        _ => None,
    }
}

/// Writes such a block anew. Returns false if it is another one, or if that fails.
pub(crate) fn rewrite(shared: &SharedVolume, lba: Lba) -> bool {
    let Some(keeper) = &shared.keeper else {
        return false;
    };
    // Under this lock memory has what the medium should have, and nothing else writes these blocks.
    let book = keeper.book();
    let [list, rows, _] = book.history().parts();
    let written = if list.contains(&lba) {
        let block = lba.0 - list.start.0;
        carry::write_whole(shared, lba, |out| book.encode_list(block, out))
    } else if rows.contains(&lba) {
        let block = lba.0 - rows.start.0;
        carry::write_whole(shared, lba, |out| book.encode_rows(block, out))
    } else {
        return false;
    };
    drop(book);
    written.and_then(|()| carry::flush(shared)).is_ok()
}
