//! Sweeps: looks through everything that is stored, when no one else needs the medium. They look for blocks that are stored
//! twice, which is deduplication out of line (CAFTL §3.5), and for pages of parts of which little is left (`fold`).
//!
//! This module decides when one begins. The core's machines ([`Sweep`], `Fold`) decide what it does then, and a thread of its own
//! carries that out (`stored`). The summaries that they read fill the index of contents after a restart.

mod fold;
mod stored;
pub(crate) mod sweeper;

use crate::block::{Op, Request};
use crate::digest::crc32c;
use crate::frames::Frames;
use crate::memory;
use crate::shared::SharedVolume;
use std::sync::Arc;
use sweeper::{Order, Sought};
use vellum_core::addr::Lba;
use vellum_core::format::superblock::Superblock;
use vellum_core::index::Holder;
use vellum_core::seam::{Input, Service};
pub use vellum_core::service::pace::Haste;
use vellum_core::service::sweep::Sweep;
use vellum_core::service::{self, Step};

/// The thread's main loop.
pub(crate) fn run(shared: &Arc<SharedVolume>, superblock: &Superblock) {
    let sweeper = &shared.sweeper;
    let written = || shared.inner.lock().core.stats().host_blocks_written;
    let is_wanted = |sought| match sought {
        Sought::Duplicates => true,
        Sought::SparsePages => service::fold::is_wanted(shared.inner.lock().core.room()),
    };
    let is_left = shared.inner.lock().core.swept() > 0;
    let mut swept = [(!is_left).then_some(0), Some(0)];
    loop {
        match sweeper.next(swept, &written, &is_wanted) {
            Order::Stop => return,
            Order::Learn => stored::learn(shared, superblock),
            Order::Sweep(sought, haste) => {
                swept[sought as usize] = Some(written());
                let ended = match sought {
                    Sought::Duplicates => sweep(shared, superblock, haste),
                    Sought::SparsePages => fold::fold(shared, superblock, haste),
                };
                sweeper.over(sought, ended);
            }
        }
    }
}

/// Looks once through everything that is stored, or through the rest if the last sweep was not completed. Returns true if it
/// completed.
fn sweep(shared: &SharedVolume, superblock: &Superblock, haste: Haste) -> bool {
    let from = (haste, shared.inner.lock().core.swept());
    let spare = memory::available().map_or(u64::MAX, |available| available / 8);
    let mut sweep = Sweep::new(superblock.clone(), crc32c, from, spare, shared.now());
    let sought = Some(Sought::Duplicates);
    stored::run(shared, sought, &mut sweep, |sweep, step| match step {
        Step::Merge { lba, of } => merge(shared, sweep, lba, of),
        Step::Keep { to, keep } => {
            let swept = Input::Service(Service::Swept { to, keep });
            let told = shared.with_core(|now, inner, batch| inner.feed(now, swept, batch));
            told.is_some()
        }
        _ => false,
    })
}

/// Reports a pair to the core, and waits until the core has dealt with it; returns `false` when the sweep is to end.
fn merge(shared: &SharedVolume, sweep: &mut Sweep, lba: Lba, of: Holder) -> bool {
    let counted = || shared.inner.lock().core.stats();
    let before = counted();
    let request = Request::new(Op::Flush, lba, 0, Frames::default());
    let merged = shared.call(request, |now, inner, pending, batch| {
        let id = inner.requests.insert(pending);
        inner.feed(now, Input::Service(Service::Merge { id, lba, of }), batch);
    });
    sweep.merged(&before, &counted());
    merged.is_ok()
}
