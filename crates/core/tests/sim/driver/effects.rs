//! Carrying out effects: each is asked for, gives its bytes away (a write), is carried out, and is answered,
//! and between any two of these anything else may happen.

use super::parts;
use super::{Driver, End, Failure, Flight, RELEASED, Stage, ensure};
use crate::sim::medium::{Broken, Cell, GARBAGE};
use vellum_core::addr::Buf;
use vellum_core::seam::{Against, Base, Effect, Fingerprint, Input, Outcome, Page};

impl Driver {
    /// Moves one effect on, chosen by chance; `false` when there is none.
    pub fn advance(&mut self) -> Result<bool, Failure> {
        let free = |flight: &Flight| !(self.holds)(&flight.effect);
        let movable = self.flights.iter().filter(|flight| free(flight)).count();
        if movable == 0 {
            return Ok(false);
        }
        self.now += self.rng.below(20_000);
        // Mostly any; often the oldest, else a long queue keeps its first for ever.
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

    /// The bytes of a write leave for the medium.
    pub(super) fn take_bytes(&mut self, index: usize) -> Result<(), Failure> {
        let mut flight = std::mem::replace(&mut self.flights[index], placeholder());
        flight.stage = Stage::Taken;
        let result = self.take(&mut flight);
        self.flights[index] = flight;
        result
    }

    fn take(&mut self, flight: &mut Flight) -> Result<(), Failure> {
        match flight.effect {
            Effect::WriteChunk { id, blocks, .. } => {
                let same = self.engine.chunk_bufs(id).eq(flight.bufs.iter().copied());
                ensure!(
                    same,
                    "the buffers of {:?} changed while it was in flight",
                    flight.effect
                );
                for &buf in &flight.bufs {
                    ensure!(
                        self.cells[buf.0 as usize] != Cell::Data(RELEASED),
                        "buffer {buf} is written and nobody holds it"
                    );
                }
                flight.cells = self.chunk_cells(id, blocks);
            }
            Effect::WriteData { id, .. } => {
                let same = self.engine.chunk_bufs(id).eq(flight.bufs.iter().copied());
                ensure!(
                    same,
                    "the buffers of {:?} changed while it was in flight",
                    flight.effect
                );
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
                self.engine.encode(id, &mut bytes);
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
        let result = self.carry(&mut flight);
        self.flights[index] = flight;
        result
    }

    fn carry(&mut self, flight: &mut Flight) -> Result<(), Failure> {
        match flight.effect {
            Effect::WriteChunk { at, .. }
            | Effect::WriteData { at, .. }
            | Effect::WriteMeta { at, .. } => {
                self.writes += 1;
                flight.end = if self.faults.write_fails_at == Some(self.writes) {
                    End::Failed
                } else if self
                    .faults
                    .full
                    .is_some_and(|(from, to)| (from..to).contains(&self.writes))
                {
                    End::Full
                } else {
                    End::Ok
                };
                for (i, cell) in flight.cells.drain(..).enumerate() {
                    if flight.end == End::Ok || self.rng.percent(50) {
                        self.medium.write(at.0 + i as u64, cell, flight.serial);
                    }
                }
            }
            Effect::Sync { .. } => {
                self.syncs += 1;
                if self.faults.sync_fails_at == Some(self.syncs) {
                    flight.end = End::Failed;
                    self.medium.sync_fails();
                } else {
                    self.medium.sync(flight.asked, &mut self.rng);
                }
            }
            Effect::Erase { at, blocks, .. } => {
                let more = u64::from(self.medium.broken == Broken::DiscardsMore);
                let end = (at.0 + u64::from(blocks) + more).min(self.medium.blocks());
                let garbage = self.engine.as_log().is_none();
                for block in at.0..end {
                    match self.rng.below(4) {
                        0 if garbage => self.spoil(block, flight.serial),
                        0 | 1 => self.medium.write(block, Cell::Blank, flight.serial),
                        _ => {}
                    }
                }
            }
            Effect::Read {
                at,
                blocks,
                request,
                first,
                ..
            } => {
                if self.read_fails(at.0, blocks) {
                    flight.end = End::Failed;
                    return Ok(());
                }
                for i in 0..blocks {
                    let block = at.0 + u64::from(i);
                    let cell = self.read_cell(block, flight);
                    self.fill(request.0, first + i, cell.token())?;
                }
            }
            Effect::Gather { at, blocks, to, .. } => {
                if self.read_fails(at.0, blocks) {
                    flight.end = End::Failed;
                    return Ok(());
                }
                for i in 0..blocks {
                    let buf = Buf(to.0 + i);
                    self.ensure_collectors(buf)?;
                    let cell = self.read_cell(at.0 + u64::from(i), flight);
                    self.cells[buf.0 as usize] = cell;
                }
            }
            Effect::GatherPart { at, slot, to, .. } => {
                if self.read_fails(at.0, 1) {
                    flight.end = End::Failed;
                    return Ok(());
                }
                self.ensure_collectors(to)?;
                let found = parts::find(
                    self.medium.tokens,
                    &self.read_cell(at.0, flight),
                    slot,
                    None,
                );
                flight.parts = vec![found];
                self.cells[to.0 as usize] = Cell::Data(found.unwrap_or(GARBAGE));
            }
            Effect::ReadMeta { at, blocks, .. } => {
                if self.read_fails(at.0, blocks) {
                    flight.end = End::Failed;
                    return Ok(());
                }
                flight.bytes = vec![0; blocks as usize * 4096];
                for (i, out) in flight.bytes.chunks_exact_mut(4096).enumerate() {
                    let block = at.0 + i as u64;
                    if self.medium.is_rotten(block) {
                        self.suspects.insert(block);
                    }
                    self.medium.read_into(block, out);
                }
            }
            Effect::Compare {
                buf,
                with: Against::Medium(at),
                ..
            } => {
                if self.read_fails(at.0, 1) {
                    flight.end = End::Failed;
                    return Ok(());
                }
                let token = self.token(buf);
                ensure!(
                    token != RELEASED,
                    "buffer {buf} is compared and nobody holds it"
                );
                flight.same = self.read_cell(at.0, flight).token() == token;
            }
            Effect::Compare {
                buf,
                with: Against::Part(Page::Medium(at), slot, base),
                ..
            } => {
                if self.read_fails(at.0, 1) {
                    flight.end = End::Failed;
                    return Ok(());
                }
                let needs = self.base_of(flight, base);
                flight.has_base = base.is_none() || needs.is_some();
                let found = parts::find(
                    self.medium.tokens,
                    &self.read_cell(at.0, flight),
                    slot,
                    needs,
                );
                flight.same = found == Some(self.token(buf));
            }
            Effect::Compare {
                buf,
                with: Against::Part(Page::Buffer(_), slot, base),
                ..
            } => {
                let needs = self.base_of(flight, base);
                if let (Some(page), Some(_)) = (&flight.page, base) {
                    flight.same =
                        parts::find(self.medium.tokens, page, slot, needs) == Some(self.token(buf));
                }
            }
            Effect::ReadParts {
                page,
                slot,
                count,
                base,
                request,
                first,
                ..
            } => {
                let needs = self.base_of(flight, base);
                flight.has_base = base.is_none() || needs.is_some();
                if let (Some(page), true) = (&flight.page, flight.base.is_none() && needs.is_some())
                {
                    flight.parts = vec![parts::find(self.medium.tokens, page, slot, needs)];
                }
                if let Page::Medium(at) = page {
                    if self.read_fails(at.0, 1) {
                        flight.end = End::Failed;
                        return Ok(());
                    }
                    let cell = self.read_cell(at.0, flight);
                    flight.parts = (slot..slot + count)
                        .map(|slot| parts::find(self.medium.tokens, &cell, slot, needs))
                        .collect();
                    // The page is whole, and what is in it cannot be decoded: what it needs is told to be at fault.
                    if self.faults.unreadable > 0 && self.rng.percent(1) {
                        self.suspects.insert(match base {
                            Some(Base::Part(Page::Medium(base), _)) => base.0,
                            _ => at.0,
                        });
                        flight.parts[0] = None;
                    }
                }
                for (index, part) in flight.parts.iter().enumerate() {
                    if let Some(token) = *part {
                        self.fill(request.0, first + index as u32, token)?;
                    }
                }
            }
            Effect::Fingerprint { buf, .. } => {
                let token = self.token(buf);
                ensure!(
                    token != RELEASED,
                    "buffer {buf} is hashed and nobody holds it"
                );
                flight.print = token.to_le_bytes();
            }
            Effect::Compare { .. }
            | Effect::CopyOut { .. }
            | Effect::ZeroOut { .. }
            | Effect::Release { .. }
            | Effect::Stored { .. }
            | Effect::GivenUp { .. }
            | Effect::Stopped => {}
        }
        Ok(())
    }

    /// What nobody needs reads as anything from now on.
    pub(super) fn spoil(&mut self, block: u64, serial: u64) {
        let garbage = Cell::Data(GARBAGE | self.rng.next() as u32);
        self.medium.write(block, garbage, serial);
    }

    /// What an overwrite will leave behind, on a medium that is told too early (none is, else).
    pub(super) fn discard_early(&mut self, lba: u64, blocks: u64) {
        for lba in lba..lba + blocks {
            if let Some(at) = self.stored.remove(&lba) {
                self.medium.writes += 1;
                self.spoil(at, self.medium.writes);
            }
        }
    }

    fn ensure_collectors(&self, buf: Buf) -> Result<(), Failure> {
        ensure!(
            self.collector.contains(&buf.0),
            "the collector reads into buffer {buf}, not its own"
        );
        let used = self
            .flights
            .iter()
            .any(|f| f.stage != Stage::Carried && f.bufs.contains(&buf));
        ensure!(
            !used,
            "the collector overwrites buffer {buf}, which is being written"
        );
        Ok(())
    }

    pub(super) fn read_fails(&mut self, at: u64, blocks: u32) -> bool {
        let fails = self.rng.below(10_000) < self.faults.unreadable;
        if fails {
            self.suspects.extend(at..at + u64::from(blocks));
        }
        fails
    }

    fn read_cell(&mut self, block: u64, flight: &mut Flight) -> Cell {
        if self.medium.is_rotten(block) {
            self.suspects.insert(block);
        }
        let cell = self.medium.read(block);
        flight.sums.push(cell.sum(self.medium.tokens));
        if self.medium.broken == Broken::ReadLies && self.rng.percent(1) {
            return Cell::Data(0x77);
        }
        cell
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
        let outcome = match (flight.end, flight.effect) {
            (End::Failed, _) => Outcome::Failed,
            (End::Full, _) => Outcome::Full,
            (End::Ok, Effect::Read { .. } | Effect::Gather { .. }) => Outcome::Sums(&flight.sums),
            (
                End::Ok,
                Effect::Compare {
                    with: Against::Part(Page::Medium(_), ..),
                    ..
                },
            ) => Outcome::Parts {
                sum: flight.sums.first().copied().unwrap_or(0),
                whole: flight.same || self.medium.broken == Broken::CompareTrusts,
                base: flight.has_base || self.medium.broken == Broken::CompareTrusts,
            },
            (End::Ok, Effect::Compare { .. }) => {
                Outcome::Same(flight.same || self.medium.broken == Broken::CompareTrusts)
            }
            (End::Ok, Effect::ReadParts { .. } | Effect::GatherPart { .. }) => Outcome::Parts {
                sum: flight.sums.first().copied().unwrap_or(0),
                whole: flight.parts.iter().all(Option::is_some),
                base: flight.has_base,
            },
            (End::Ok, Effect::Fingerprint { .. }) => {
                let mut print = [9; 16];
                if self.medium.broken != Broken::FingerprintsCollide {
                    print[..4].copy_from_slice(&flight.print);
                }
                Outcome::Fingerprint(Fingerprint(print))
            }
            (End::Ok, Effect::ReadMeta { .. }) => Outcome::Bytes(&flight.bytes),
            (End::Ok, _) => Outcome::Ok,
        };
        self.feed(Input::Done { id, outcome })
    }
}

fn placeholder() -> Flight {
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
