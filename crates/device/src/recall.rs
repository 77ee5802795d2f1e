//! After an opening nothing is known of what journals hold, and a mount may be about to replay one: it reads each block of the
//! journal and then writes it home. So what is read there is remembered as if it had just been written. The home write is then
//! found to be stored already, and takes no room: a volume that is full can be mounted.

use crate::block::Op;
use crate::classes::JBD2_MAGIC;
use crate::requests::Pending;
use crate::shared::Shared;
use vellum_core::addr::Lba;

/// A request has been carried out, and is about to be answered.
pub(crate) fn answered(shared: &Shared, Pending { request, own, .. }: &Pending) {
    if !matches!(request.op, Op::Read) || *own {
        return;
    }
    let (_, sight) = shared.scout.sight();
    let first = request.lba.0;
    if !sight.touches_journal(first, request.blocks) {
        return;
    }
    let how = shared.digester.how();
    let blocks = (0..request.frames.len()).filter(|&index| sight.in_journal(first + index as u64));
    let read: Vec<_> = blocks
        .map(|index| {
            (
                Lba(first + index as u64),
                how.digest(request.frames.block(index)),
            )
        })
        .filter(|(_, digest)| !digest.zero && digest.first != JBD2_MAGIC)
        .collect();
    let mut inner = shared.inner.lock();
    if !inner.busy {
        for (lba, digest) in read {
            inner.engine.recall(lba, digest.weak);
        }
    }
}
