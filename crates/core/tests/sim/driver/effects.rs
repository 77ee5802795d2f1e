//! Carrying out effects: each is emitted, gives its bytes away (a write), is carried out, and is answered. Between any two of
//! these steps anything else may happen.

use super::{Driver, End, Failure, Flight, RELEASED, Stage, ensure};
use crate::sim::medium::{Broken, Cell, GARBAGE};
use vellum_core::addr::EffectId;
use vellum_core::driver;
use vellum_core::layout::Core;
use vellum_core::seam::{Against, Effect, Fingerprint, Input, Outcome, PagePlace};

impl Driver {
    /// Moves one random effect on; `false` if there is none.
    pub fn advance(&mut self) -> Result<bool, Failure> {
        let free = |flight: &Flight| !(self.holds)(&flight.effect);
        let movable = self.flights.iter().filter(|flight| free(flight)).count();
        if movable == 0 {
            return Ok(false);
        }
        self.now += self.rng.below(20_000);
        // Mostly a random one; often the oldest, or else a long queue keeps its first forever.
        let any = self.rng.below(movable as u64) as usize;
        let oldest = self.rng.percent(40);
        let mut movable = (0..self.flights.len()).filter(|&i| free(&self.flights[i]));
        let index = match oldest {
            true => movable.min_by_key(|&i| self.flights[i].serial),
            false => movable.nth(any),
        }
        .unwrap_or(0);
        if self.flights[index].stage == Stage::Asked {
            self.take_bytes(index)?;
            if self.rng.percent(30) {
                return Ok(true);
            }
        }
        if self.flights[index].stage == Stage::Taken {
            self.carry_out(index)?;
            if self.rng.percent(50) {
                return Ok(true);
            }
        }
        self.complete(index)?;
        Ok(true)
    }

    /// Takes the bytes of a write for the medium.
    pub(super) fn take_bytes(&mut self, index: usize) -> Result<(), Failure> {
        let mut flight = std::mem::replace(&mut self.flights[index], placeholder());
        flight.stage = Stage::Taken;
        let result = self.take(&mut flight);
        self.flights[index] = flight;
        result
    }

    fn is_cold(&self, id: EffectId) -> bool {
        matches!(&self.core, Core::Log(engine) if engine.chunk_is_cold(id))
    }

    fn ensure_same_bufs(&self, id: EffectId, flight: &Flight) -> Result<(), Failure> {
        ensure!(
            self.core.chunk_bufs(id).eq(flight.bufs.iter().copied()),
            "the buffers of {:?} changed while it was in flight",
            flight.effect
        );
        Ok(())
    }

    fn take(&mut self, flight: &mut Flight) -> Result<(), Failure> {
        match flight.effect {
            Effect::WriteChunk { id, blocks, .. } => {
                self.ensure_same_bufs(id, flight)?;
                for &buf in &flight.bufs {
                    ensure!(
                        self.cells[buf.0 as usize] != Cell::Data(RELEASED),
                        "buffer {buf} is written and nobody holds it"
                    );
                }
                // What clients write and what the collector moves age differently: they stay apart.
                ensure!(
                    !self.is_cold(id)
                        || flight
                            .bufs
                            .iter()
                            .all(|buf| self.collector.contains(&buf.0)),
                    "{:?} is of the collector's head, and holds what a client wrote",
                    flight.effect
                );
                flight.cells = self.chunk_cells(id, blocks);
            }
            Effect::WriteData { id, .. } => {
                self.ensure_same_bufs(id, flight)?;
                for &buf in &flight.bufs {
                    let cell = self.cells[buf.0 as usize].clone();
                    ensure!(
                        cell != Cell::Data(RELEASED),
                        "buffer {buf} is written and nobody holds it"
                    );
                    flight.cells.push(cell);
                }
            }
            Effect::WriteMeta { id, blocks, .. } => {
                let mut bytes = vec![0; blocks as usize * 4096];
                self.core.encode(id, &mut bytes);
                flight
                    .cells
                    .extend(bytes.chunks_exact(4096).map(|b| Cell::Meta(b.into())));
            }
            _ => {}
        }
        Ok(())
    }

    fn carry_out(&mut self, index: usize) -> Result<(), Failure> {
        let mut flight = std::mem::replace(&mut self.flights[index], placeholder());
        flight.stage = Stage::Carried;
        let effect = flight.effect;
        let result = driver::carry_out(self, &mut flight, effect);
        self.flights[index] = flight;
        result
    }

    /// Makes a block that is not needed read as garbage from now on.
    pub(super) fn spoil(&mut self, block: u64, serial: u64) {
        let garbage = Cell::Data(GARBAGE | self.rng.next() as u32);
        self.medium.write(block, garbage, serial);
    }

    /// Discards what an overwrite will leave behind, before the overwrite is durable. Only a broken medium does this.
    pub(super) fn discard_early(&mut self, lba: u64, blocks: u64) {
        for lba in lba..lba + blocks {
            if let Some(at) = self.stored.remove(&lba) {
                self.medium.writes += 1;
                self.spoil(at, self.medium.writes);
            }
        }
    }

    fn complete(&mut self, index: usize) -> Result<(), Failure> {
        let flight = self.flights.swap_remove(index);
        let id = flight.id;
        let failed = flight.end == End::Failed;
        match flight.effect {
            Effect::WriteChunk {
                at,
                blocks,
                durable,
                ..
            }
            | Effect::WriteMeta {
                at,
                blocks,
                durable,
                ..
            } => {
                if flight.end == End::Ok {
                    self.medium
                        .complete(at.0, u64::from(blocks), flight.serial, durable);
                }
                self.poisoned |= failed;
            }
            Effect::WriteData { at, blocks, .. } => {
                if flight.end == End::Ok {
                    self.medium
                        .complete(at.0, u64::from(blocks), flight.serial, false);
                }
                self.poisoned |= failed;
            }
            Effect::Erase { at, blocks, .. } => {
                self.medium
                    .complete(at.0, u64::from(blocks), flight.serial, false)
            }
            Effect::Sync { .. } => self.poisoned |= failed,
            _ => {}
        }
        let outcome = flight.outcome(self.medium.broken);
        self.feed(Input::Done { id, outcome })
    }
}

impl Flight {
    /// How it ended, for the core; a broken medium lies about some.
    fn outcome(&self, broken: Broken) -> Outcome<'_> {
        match (self.end, self.effect) {
            (End::Failed, _) => Outcome::Failed,
            (End::Full, _) => Outcome::Full,
            (End::Ok, Effect::Read { .. } | Effect::Gather { .. }) => Outcome::Sums(&self.sums),
            (
                End::Ok,
                Effect::Compare {
                    with: Against::Part(PagePlace::Medium(_), ..),
                    ..
                },
            ) => Outcome::Parts {
                sum: self.sums.first().copied().unwrap_or(0),
                whole: self.same || broken == Broken::CompareTrusts,
                base: self.has_base || broken == Broken::CompareTrusts,
            },
            (End::Ok, Effect::Compare { .. }) => {
                Outcome::Same(self.same || broken == Broken::CompareTrusts)
            }
            (End::Ok, Effect::ReadParts { .. } | Effect::GatherPart { .. }) => Outcome::Parts {
                sum: self.sums.first().copied().unwrap_or(0),
                whole: self.parts.iter().all(Option::is_some),
                base: self.has_base,
            },
            (End::Ok, Effect::Fingerprint { .. }) => {
                let mut print = [9; 16];
                if broken != Broken::FingerprintsCollide {
                    print[..4].copy_from_slice(&self.print);
                }
                Outcome::Fingerprint(Fingerprint(print))
            }
            (End::Ok, Effect::ReadMeta { .. }) => Outcome::Bytes(&self.bytes),
            (End::Ok, _) => Outcome::Ok,
        }
    }
}

pub(super) fn placeholder() -> Flight {
    Flight {
        effect: Effect::Stopped,
        id: vellum_core::addr::EffectId(u32::MAX),
        stage: Stage::Carried,
        serial: 0,
        asked: 0,
        cells: Vec::new(),
        bufs: Vec::new(),
        same: false,
        print: [0; 4],
        parts: Vec::new(),
        page: None,
        base: None,
        has_base: true,
        sums: Vec::new(),
        bytes: Vec::new(),
        end: End::Ok,
    }
}
