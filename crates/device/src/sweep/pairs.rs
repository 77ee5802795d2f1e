//! Pairs of blocks that may be equal: told to the core one by one, which compares and shares them.

use super::Place;
use super::pass::Pass;
use super::turn::Turn;
use crate::block::{Op, Replies, Request};
use crate::frames::Frames;
use crate::limits::{SWEEP_COLLIDING, SWEEP_OWNERS, SWEEP_PAUSE, SWEEP_SHARED, SWEEP_TRIES};
use crate::requests::OneAnswer;
use crate::shared::Shared;
use std::sync::Arc;
use vellum_core::addr::{Lba, Vba};
use vellum_core::index::Holder;
use vellum_core::seam::{Input, Service};

/// Merges whatever has one checksum; `false` when the sweep is to end.
pub(super) fn merge_all(
    shared: &Shared,
    pass: &Pass,
    turn: &mut Turn,
    place: &mut Place<'_>,
    done: impl Fn(u64),
) -> bool {
    let mut pages: Vec<(Vba, Vba)> = Vec::new();
    let mut passed = 0;
    // Contents of one checksum that are not equal: a collision must not speak for all that is like one of them.
    let mut contents: Vec<Holder> = Vec::with_capacity(SWEEP_COLLIDING);
    for same in pass.contents() {
        passed += same.len();
        if same.len() == 1 {
            continue;
        }
        let first = same[0].holder();
        contents.clear();
        contents.push(first);
        for one in &same[1..] {
            let mut is_new = true;
            if let Holder::Lba(lba) = one.holder() {
                for &of in &contents {
                    let Some(met) = merge(shared, lba, of, turn) else {
                        return false;
                    };
                    is_new = met == Met::Unequal;
                    if !is_new {
                        break;
                    }
                }
            } else if let (Holder::Page(vba), Holder::Page(of)) = (one.holder(), first) {
                pages.push((vba, of));
                if pages.len() == SWEEP_SHARED {
                    if !merge_pages(shared, &mut pages, turn) {
                        return false;
                    }
                    pages.clear();
                }
            }
            if is_new && contents.len() < SWEEP_COLLIDING {
                contents.push(one.holder());
            }
        }
        // Pages are seen to when there are many, and at the end.
        if pages.is_empty() {
            place.is(pass.behind(same[0]));
        }
        done(passed as u64 * 1000 / pass.len() as u64);
    }
    merge_pages(shared, &mut pages, turn)
}

/// Pages that have several owners each: all of the one's are to become the other's, and only the map knows who
/// they are.
fn merge_pages(shared: &Shared, pages: &mut [(Vba, Vba)], turn: &mut Turn) -> bool {
    if pages.is_empty() {
        return true;
    }
    pages.sort_unstable();
    let of = |vba: Vba| {
        let at = pages.binary_search_by_key(&vba, |(page, _)| *page).ok()?;
        Some(pages[at].1)
    };
    let mut owners = Vec::new();
    for from in (0..shared.blocks).step_by(SWEEP_OWNERS) {
        if !turn.wait(shared) {
            return false;
        }
        owners.clear();
        let range = from..from + SWEEP_OWNERS as u64;
        let asked = shared.with_core(|_, inner, _| {
            let wanted = |vba| of(vba).is_some();
            inner.engine.owners_in(range, wanted, &mut owners);
        });
        if asked.is_none() {
            return false;
        }
        for &(lba, vba) in &owners {
            if let Some(page) = of(vba)
                && merge(shared, lba, Holder::Page(page), turn).is_none()
            {
                return false;
            }
        }
    }
    true
}

/// What became of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Met {
    Merged,
    /// Both were read, and are not one content.
    Unequal,
    /// They are no pair any more, or could not be read.
    Gone,
}

/// Tells the core of a pair and waits until it has seen to it; none when the sweep is to end.
fn merge(shared: &Shared, lba: Lba, of: Holder, turn: &mut Turn) -> Option<Met> {
    let counted = || {
        let stats = shared.inner.lock().engine.stats();
        (stats.merge_reads, stats.merged_blocks, stats.merges_put_off)
    };
    if !turn.wait(shared) {
        return None;
    }
    for _ in 0..SWEEP_TRIES {
        // Nobody else tells of pairs.
        let before = counted();
        let answer = Arc::new(OneAnswer::default());
        let replies: Arc<dyn Replies> = answer.clone();
        let request = Request {
            tag: 0,
            op: Op::Flush,
            lba,
            blocks: 0,
            frames: Frames::default(),
        };
        shared.ask(request, &replies, |now, inner, pending, batch| {
            let id = inner.requests.insert(pending);
            inner.feed(now, Input::Service(Service::Merge { id, lba, of }), batch);
        });
        if answer.wait().1.is_err() {
            return None;
        }
        let (reads, merged, put_off) = counted();
        turn.spend(2 * (reads - before.0));
        if put_off == before.2 {
            return Some(match (reads > before.0, merged > before.1) {
                (_, true) => Met::Merged,
                (true, false) => Met::Unequal,
                (false, false) => Met::Gone,
            });
        }
        // The collector is at work, and has all buffers.
        shared.sweeper.pause(SWEEP_PAUSE);
    }
    Some(Met::Gone)
}
