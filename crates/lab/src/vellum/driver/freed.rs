//! Drops blocks that a file system has freed without a discard, as the device does (decision 0013). Each request is
//! looked at before the core gets it. Blocks known to be free are discarded by the volume itself.

use super::dropping::{Dropping, OURS};
use super::{Submitted, Vellum};
use crate::base::Io;
use crate::trace::Op;
use vellum_core::addr::{Lba, RequestId};
use vellum_core::seam::{Input, Unmap};
use vellum_watch::RequestSeen;

impl Vellum {
    /// What became of freed blocks, as counters; none if nothing looks for them.
    #[must_use]
    pub fn freed(&self) -> Vec<(&'static str, u64)> {
        let Some(dropping) = &self.dropping else {
            return Vec::new();
        };
        let watched = self.watching.as_ref();
        let seen = watched.and_then(|watching| watching.freed());
        let seen = seen.unwrap_or_default();
        vec![
            ("freed_blocks", dropping.blocks),
            ("freed_discards", dropping.discards),
            ("freed_cancelled_blocks", seen.cancelled),
            ("freed_bitmap_copies", seen.copies),
            ("freed_bitmaps_home", seen.homes),
        ]
    }

    /// Looks at a request that is about to be handed to the core.
    pub(super) fn see(&mut self, submitted: &Submitted) {
        let (Some(dropping), Some(watching)) = (&mut self.dropping, &mut self.watching) else {
            return;
        };
        let blocks = u64::from(submitted.blocks);
        let seen = match submitted.op {
            Op::Write { .. } => watching.see_write(&submitted.written()),
            Op::Discard { .. } => watching.see_discard(submitted.lba, blocks),
            Op::Flush => watching.see_flush(),
            Op::Read => RequestSeen::default(),
        };
        if seen.is_anything() {
            let range = (submitted.lba, submitted.lba + blocks);
            dropping.seen.insert(submitted.id, (seen, range));
        }
    }

    /// Notes that a request has been answered. True if it was one of these discards.
    pub(super) fn take_drop(&mut self, request: u32, is_done: bool) -> bool {
        let Some(dropping) = &mut self.dropping else {
            return false;
        };
        if request == OURS {
            dropping.is_open = false;
        } else if let Some((seen, blocks)) = dropping.seen.remove(&request)
            && let Some(watching) = &mut self.watching
        {
            watching.answered(seen, blocks, is_done);
        }
        request == OURS
    }

    /// Drops freed blocks, one run after the other.
    pub(super) fn drop_freed(&mut self, io: &mut Io<'_>) {
        let may_drop = |dropping: &Dropping| !(dropping.drops || dropping.is_open);
        while let Some(dropping) = self.dropping.as_mut().filter(|own| may_drop(own))
            && let Some(watching) = &mut self.watching
            && let Some((first, after)) = watching.take_freed()
        {
            let (lba, blocks) = (Lba(first), after - first);
            let extents = self.core.extents(lba, blocks, blocks as usize);
            let mapped = extents.iter().filter(|(_, mapped)| *mapped);
            let mapped: u64 = mapped.map(|(blocks, _)| blocks).sum();
            if mapped == 0 {
                continue;
            }
            dropping.blocks += mapped;
            dropping.discards += 1;
            (dropping.is_open, dropping.drops) = (true, true);
            if let Some(shadow) = &mut self.shadow {
                shadow.dropped(first, after);
            }
            let unmap = Unmap {
                lba,
                blocks,
                zero: false,
                fua: false,
            };
            let id = RequestId(OURS);
            self.feed(io, Input::Unmap { id, unmap });
            if let Some(dropping) = &mut self.dropping {
                dropping.drops = false;
            }
        }
    }
}
