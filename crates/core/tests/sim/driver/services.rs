//! Folds and sweeps beside everything else in a life, run by the core's state machines with the driver as their host.

use super::{Driver, Failure, Request, ensure};
use crate::sim::medium::BLOCK;
use crate::sim::rng::Rng;
use vellum_core::addr::{Lba, Nanos, Pba, RequestId};
use vellum_core::index::Holder;
use vellum_core::seam::{Input, Service};
use vellum_core::service::fold::{self, Fold, Folded};
use vellum_core::service::pace::{Around, Haste};
use vellum_core::service::running::Running;
use vellum_core::service::sweep::Sweep;
use vellum_core::service::{Machine, Seen, Step};
use vellum_core::stats::Stats;

/// The results of services.
#[derive(Clone, Copy, Debug, Default)]
pub struct Served {
    /// Services that ran to their end.
    pub ended: u64,
    /// Rows of blocks that were folded.
    pub rows: u64,
    /// Pairs of blocks that were reported.
    pub pairs: u64,
}

/// What a service waits for.
enum Waits {
    Nothing,
    /// These blocks are read at some moment from now on.
    Read(Pba, u32),
    /// The bytes are handed over at a later moment, when the blocks may have changed. `None`: they cannot be read.
    Tell(Option<Vec<u8>>),
    /// A row of blocks to be folded.
    Row,
    /// A pair, with the statistics from before.
    Pair(Box<Stats>),
}

/// A life's services. They use a separate generator, so that seeds mean what they did before.
pub struct Services {
    rng: Rng,
    /// One step in so many is a service's; 0: there are none.
    one_in: u64,
    haste: Haste,
    rate: u32,
    running: Option<Running>,
    waits: Waits,
    /// A service's own clock: nothing here waits for it.
    now: u64,
    pub served: Served,
}

impl Services {
    pub fn new(seed: u64, are_there: bool) -> Self {
        let mut rng = Rng::new(seed ^ 0x5e2f);
        let one_in = rng.pick(&[0, 1, 2, 10]);
        Self {
            one_in: if are_there { one_in } else { 0 },
            haste: rng.pick(&[Haste::Now, Haste::Now, Haste::Beside, Haste::Idle]),
            rate: rng.pick(&[0, 0, 1000]) as u32,
            running: None,
            waits: Waits::Nothing,
            now: 1,
            served: Served::default(),
            rng,
        }
    }

    pub fn are_on(&self) -> bool {
        self.one_in > 0
    }

    /// Takes a step now and then.
    pub fn serve(&mut self, driver: &mut Driver) -> Result<(), Failure> {
        let is_turn = self.are_on() && self.rng.below(self.one_in) == 0;
        if !is_turn || !self.has_come(driver)? {
            return Ok(());
        }
        if self.running.is_none() {
            self.begin(driver);
        }
        let Some(running) = &mut self.running else {
            return Ok(());
        };
        let around = Around {
            busy: driver.open_requests() > 0,
            came: driver.counts.done,
            rate: self.rate,
            haste: Haste::Idle,
            uncounted: !driver.core.is_counted(),
        };
        match running.next(Nanos(self.now), &around) {
            Step::Wait(until) => self.now = until.0,
            Step::Ask => running.ask(&driver.core),
            Step::Read { at, blocks } => self.waits = Waits::Read(at, blocks),
            Step::Found => return Err("a service has found what is not its own".into()),
            Step::Fold { lba, blocks } => {
                self.waits = Waits::Row;
                driver.served = None;
                driver.begin_fold(lba.0, blocks.into())?;
            }
            Step::Merge { lba, of } => {
                self.waits = Waits::Pair(Box::new(driver.core.stats()));
                driver.merge_for_service(lba, of)?;
                self.served.pairs += 1;
            }
            Step::Keep { to, keep } => driver.swept(to, keep)?,
            Step::End(_) => {
                self.running = None;
                self.served.ended += 1;
            }
        }
        Ok(())
    }

    fn begin(&mut self, driver: &Driver) {
        let superblock = driver.core.superblock().clone();
        let (crc, now) = (crc32c::crc32c, Nanos(self.now));
        let is_short = fold::is_wanted(driver.core.room());
        self.running = Some(match is_short || self.rng.percent(50) {
            true => Running::Fold(Box::new(Fold::new(superblock, crc, self.haste, now))),
            false => {
                let from = (self.haste, driver.core.swept());
                Running::Sweep(Box::new(Sweep::new(superblock, crc, from, 0, now)))
            }
        });
    }

    /// Gives the service the result of its request; true if it now waits for nothing.
    fn has_come(&mut self, driver: &mut Driver) -> Result<bool, Failure> {
        match std::mem::replace(&mut self.waits, Waits::Nothing) {
            Waits::Nothing => return Ok(true),
            Waits::Read(at, blocks) => {
                self.waits = Waits::Tell(driver.read_for_service(at, blocks));
                return Ok(false);
            }
            Waits::Tell(bytes) => {
                let seen = bytes.as_deref().map_or(Seen::Nothing, Seen::Bytes);
                if let Some(running) = &mut self.running {
                    running.read(seen);
                }
            }
            Waits::Row => {
                let Some(well) = driver.served.take() else {
                    self.waits = Waits::Row;
                    return Ok(false);
                };
                // Some rows are found not to be worth it.
                let is_told = well && self.rng.percent(90) && driver.end_fold()?;
                driver.to_fold = None;
                self.served.rows += u64::from(is_told);
                if let Some(Running::Fold(fold)) = &mut self.running {
                    fold.folded(if is_told { Folded::Told } else { Folded::Stays });
                }
            }
            Waits::Pair(before) => match (driver.served.take(), &mut self.running) {
                (None, _) => {
                    self.waits = Waits::Pair(before);
                    return Ok(false);
                }
                (Some(true), Some(Running::Sweep(sweep))) => {
                    sweep.merged(&before, &driver.core.stats());
                }
                _ => self.running = None,
            },
        }
        Ok(true)
    }
}

impl Driver {
    /// The contents of the medium, whatever is being written there.
    fn read_for_service(&mut self, at: Pba, blocks: u32) -> Option<Vec<u8>> {
        if self.read_fails(at.0, blocks) {
            return None;
        }
        let mut bytes = vec![0; blocks as usize * BLOCK];
        for (at, block) in (at.0..).zip(bytes.chunks_exact_mut(BLOCK)) {
            self.medium.read_into(at, block);
        }
        Some(bytes)
    }

    fn merge_for_service(&mut self, lba: Lba, of: Holder) -> Result<(), Failure> {
        ensure!(lba.0 < self.model.blocks(), "a sweep has found LBA {lba}");
        self.served = None;
        let id = self.number();
        self.requests.insert(id, Request::Served);
        let id = RequestId(id);
        self.feed(Input::Service(Service::Merge { id, lba, of }))
    }
}
