//! A full volume (promise 7).

use super::driver::{Ask, Driver, Failure, Faults, ensure};
use super::medium::Broken;
use super::world::World;

impl World {
    /// Promise 7: writes until it is full, checks that all else works, makes room, and writes again.
    pub(super) fn full_is_not_dead(&mut self, driver: &mut Driver) -> Result<(), Failure> {
        let blocks = self.client_blocks;
        driver.faults = Faults::default();
        let refused = driver.counts.full;
        let span = 8.min(blocks);
        for round in 0..blocks.div_ceil(span) {
            let lba = (round * span).min(blocks - span);
            let tokens = (0..span).map(|_| self.token()).collect();
            driver.ask(&Ask::Write {
                lba,
                tokens,
                fua: false,
            })?;
            driver.settle()?;
        }
        is_full_or_has_room(driver, driver.counts.full > refused, span)?;
        if driver.medium.broken == Broken::FullIsDead {
            driver.faults.full = Some((0, u64::MAX));
        }
        must_work(
            driver,
            &Ask::Read {
                lba: 0,
                blocks: span as u32,
            },
        )?;
        must_work(driver, &Ask::Flush)?;
        // Room becomes free again, except for what is reserved for upkeep.
        let fua = self.rng.percent(50);
        must_work(
            driver,
            &Ask::Discard {
                lba: 0,
                blocks: blocks.div_ceil(2),
                fua,
            },
        )?;
        let (room, stats) = (driver.core.room(), driver.core.stats());
        // As above: in use are the blocks that the model knows of, and pages that only deltas need.
        let orphans = stats.packed_pages.saturating_sub(stats.packed_owners);
        let lba = self.rng.below(blocks - span + 1);
        if driver.model.live_at_most() + orphans + span < room.for_anybody() {
            if driver.medium.broken == Broken::RoomIsLost {
                driver.faults.full = Some((0, u64::MAX));
            }
            let tokens = (0..span).map(|_| self.token()).collect();
            must_work(
                driver,
                &Ask::Write {
                    lba,
                    tokens,
                    fua: !fua,
                },
            )?;
        }
        must_work(driver, &Ask::Flush)
    }
}

/// Checks that the volume was refused room only because it has none.
fn is_full_or_has_room(driver: &Driver, was_refused: bool, span: u64) -> Result<(), Failure> {
    let live = driver.model.live_at_most();
    let room = driver.core.room();
    if was_refused {
        let stats = driver.core.stats();
        // Pages that only deltas need are in use, but no LBA that the model knows leads to them.
        let orphans = stats.packed_pages.saturating_sub(stats.packed_owners);
        ensure!(
            live + orphans + span >= room.for_anybody(),
            "refused as full with {live} blocks in use of {room:?}: {stats:?}"
        );
    } else {
        let (capacity, stats) = (room.capacity, driver.core.stats());
        let live = live + stats.packed_pages - stats.packed_owners;
        // What clients do not write any more may be shared.
        let live = live + stats.shared_pages - stats.shared_owners;
        ensure!(
            live <= capacity,
            "{live} blocks in use of {capacity}, and nothing was refused"
        );
    }
    Ok(())
}

fn must_work(driver: &mut Driver, ask: &Ask) -> Result<(), Failure> {
    let done = driver.counts.done;
    driver.ask(ask)?;
    driver.settle()?;
    ensure!(
        driver.counts.done == done + 1,
        "{ask:?} does not work, full or just no more: {:?}",
        driver.core.stats()
    );
    Ok(())
}
