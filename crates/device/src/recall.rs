//! After an opening, memory holds nothing of what journals contain, and a mount may be about to replay one: it reads each block
//! of the journal and then writes it home. So what is read there is remembered as if it had just been written. The home write is
//! then found to be stored already, and takes no room: a full volume can be mounted.

use crate::block::Op;
use crate::digest::Digester;
use crate::drive::Inner;
use crate::requests::Pending;
use crate::scout::Scout;
use parking_lot::Mutex;
use vellum_core::addr::Lba;
use vellum_watch::is_own;

/// Notes that a request has been carried out, and is about to be answered.
pub(crate) fn answered(
    Pending { request, own, .. }: &Pending,
    scout: &Scout,
    digester: &Digester,
    inner: &Mutex<Inner>,
) {
    if !matches!(request.op, Op::Read) || *own {
        return;
    }
    let (_, watching) = scout.watching();
    let first = request.lba.0;
    if !watching.touches_journal(first, request.blocks) {
        return;
    }
    let how = digester.how();
    let blocks =
        (0..request.frames.len()).filter(|&index| watching.in_journal(first + index as u64));
    let read: Vec<_> = blocks
        .map(|index| {
            (
                Lba(first + index as u64),
                how.digest(request.frames.block(index)),
            )
        })
        .filter(|(_, digest)| !digest.zero && !is_own(digest))
        .collect();
    let mut inner = inner.lock();
    if !inner.has_broken_down() {
        for (lba, digest) in read {
            inner.core.recall(lba, digest.weak);
        }
    }
}
