//! Carries out the machines that look through what is stored: what they request, wait for and read.

use super::sweeper::Sought;
use crate::digest::crc32c;
use crate::shared::SharedVolume;
use std::borrow::Cow;
use std::time::Duration;
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::format::pack::PartTag;
use vellum_core::format::summary::{Owner, Tag};
use vellum_core::format::superblock::Superblock;
use vellum_core::seam::{Hint, Input};
use vellum_core::service::pace::{Around, Haste};
use vellum_core::service::walk::{Found, Walk};
use vellum_core::service::{Machine, Seen, Step};

/// What a machine needs to know of its surroundings.
fn around(shared: &SharedVolume) -> Around {
    let (busy, clients, uncounted) = {
        let inner = shared.inner.lock();
        let uncounted = !inner.core.is_counted();
        (inner.requests.len() > 0, inner.counters.clients, uncounted)
    };
    Around {
        busy,
        came: clients.read.requests + clients.write.requests + clients.flush.requests,
        rate: shared.sweeper.rate(),
        // Whoever waits for the next sweep does not want this one to wait.
        haste: shared.sweeper.wanted().unwrap_or_default(),
        uncounted,
    }
}

/// Runs a machine to its end; returns `false` if it was ended early. `carry_out` does whatever else it requests; it returns
/// `false` to end it.
pub(super) fn run<M: Machine>(
    shared: &SharedVolume,
    sought: Option<Sought>,
    machine: &mut M,
    mut carry_out: impl FnMut(&mut M, Step) -> bool,
) -> bool {
    let mut bytes = Vec::new();
    while !shared.sweeper.is_to_end() {
        if let Some(sought) = sought {
            shared.sweeper.is_at(sought, machine.permille());
        }
        let now = shared.now();
        let goes_on = match machine.next(now, &around(shared)) {
            Step::Wait(until) => {
                let time = until.0.saturating_sub(now.0);
                shared.sweeper.pause(Duration::from_nanos(time));
                true
            }
            Step::Ask => {
                let asked = shared.with_core(|_, inner, _| machine.ask(&inner.core));
                asked.is_some()
            }
            Step::Read { at, blocks } => {
                bytes.resize(blocks as usize * BLOCK_BYTES, 0);
                machine.read(match shared.medium.read(at, &mut bytes) {
                    Ok(()) => Seen::Bytes(&bytes),
                    Err(_) => Seen::Nothing,
                });
                true
            }
            Step::End(well) => return well,
            step => carry_out(machine, step),
        };
        if !goes_on {
            return false;
        }
    }
    false
}

/// Fills the index of contents.
pub(super) fn learn(shared: &SharedVolume, superblock: &Superblock) {
    let mut walk = Walk::new(superblock.clone(), crc32c, Haste::Beside, shared.now());
    run(shared, None, &mut walk, |walk, step| {
        let mut goes_on = step == Step::Found;
        walk.found(|at, found| {
            let told = match found {
                Found::Blocks(tags) => {
                    let tags = worth_learning(shared, tags);
                    shared.with_core(|now, inner, batch| {
                        inner.feed(now, Input::Hint(Hint::Contents { at, tags: &tags }), batch);
                    })
                }
                Found::Parts(_, parts) => {
                    let parts = parts_worth_learning(shared, parts);
                    shared.with_core(|now, inner, batch| {
                        inner.feed(now, Input::Hint(Hint::Parts { at, parts: &parts }), batch);
                    })
                }
            };
            goes_on &= told.is_some();
        });
        goes_on
    });
}

/// What the index of contents is to learn from a segment: by policy, only contents of data.
fn worth_learning<'a>(shared: &SharedVolume, tags: &'a [Tag]) -> Cow<'a, [Tag]> {
    if !shared.choices.has_semantics() {
        return Cow::Borrowed(tags);
    }
    let (_, watching) = shared.scout.watching();
    let worth = |tag: &Tag| match tag.owner {
        Owner::Lba(lba) if !watching.is_data(lba.0) => Tag {
            owner: Owner::None,
            ..*tag
        },
        _ => *tag,
    };
    tags.iter().map(worth).collect()
}

/// The same for a page of parts.
fn parts_worth_learning<'a>(shared: &SharedVolume, parts: &'a [PartTag]) -> Cow<'a, [PartTag]> {
    if !shared.choices.has_semantics() {
        return Cow::Borrowed(parts);
    }
    let (_, watching) = shared.scout.watching();
    let worth = |part: &&PartTag| watching.is_data(part.lba.0);
    parts.iter().filter(worth).copied().collect()
}
