//! Carries out the machines that look through what is stored: what they request, wait for and read.

use super::sweeper::Sought;
use crate::digest::crc32c;
use crate::shared::Shared;
use std::time::Duration;
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::format::superblock::Superblock;
use vellum_core::seam::{Hint, Input};
use vellum_core::service::pace::{Around, Haste};
use vellum_core::service::walk::{Found, Walk};
use vellum_core::service::{Machine, Seen, Step};

/// What a machine needs to know of its surroundings.
fn around(shared: &Shared) -> Around {
    let (busy, clients, uncounted) = {
        let inner = shared.inner.lock();
        let uncounted = !inner.engine.is_counted();
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
    shared: &Shared,
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
                let asked = shared.with_core(|_, inner, _| machine.ask(&inner.engine));
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
pub(super) fn learn(shared: &Shared, superblock: &Superblock) {
    let mut walk = Walk::new(superblock.clone(), crc32c, Haste::Beside, shared.now());
    run(shared, None, &mut walk, |walk, step| {
        let mut goes_on = step == Step::Found;
        walk.found(|at, found| {
            let told = match found {
                Found::Blocks(tags) => {
                    let tags = crate::scout::thread::worth_learning(shared, tags);
                    shared.with_core(|now, inner, batch| {
                        inner.feed(now, Input::Hint(Hint::Contents { at, tags: &tags }), batch);
                    })
                }
                Found::Parts(_, parts) => {
                    let parts = crate::scout::thread::parts_worth_learning(shared, parts);
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
