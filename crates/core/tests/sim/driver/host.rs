//! The simulation as a host of the core: what each effect does to the simulated medium and to the requests in flight.

use super::parts;
use super::{Driver, End, Failure, Flight, RELEASED, Stage, ensure};
use crate::sim::medium::{Broken, Cell, GARBAGE};
use vellum_core::addr::{Buf, EffectId, RequestId, Vba};
use vellum_core::driver::{Extent, Host, Parts, To};
use vellum_core::entry::PartId;
use vellum_core::seam::{Against, BasePlace, PagePlace};

/// An immediate effect has no flight: it gets an empty one.
impl Host<Flight> for Driver {
    type Done = Result<(), Failure>;

    fn write_chunk(&mut self, flight: &mut Flight, _: EffectId, to: Extent, _: bool) -> Self::Done {
        self.put(flight, to)
    }

    fn write_data(&mut self, flight: &mut Flight, _: EffectId, to: Extent) -> Self::Done {
        self.put(flight, to)
    }

    fn write_meta(&mut self, flight: &mut Flight, _: EffectId, to: Extent, _: bool) -> Self::Done {
        self.put(flight, to)
    }

    fn sync(&mut self, flight: &mut Flight, _: EffectId) -> Self::Done {
        self.syncs += 1;
        if self.faults.sync_fails_at == Some(self.syncs) {
            flight.end = End::Failed;
            self.medium.sync_fails();
        } else {
            self.medium.sync(flight.asked, &mut self.rng);
        }
        Ok(())
    }

    fn erase(&mut self, flight: &mut Flight, _: EffectId, what: Extent) -> Self::Done {
        let more = u64::from(self.medium.broken == Broken::DiscardsMore);
        let end = (what.at.0 + u64::from(what.blocks) + more).min(self.medium.blocks());
        let garbage = self.core.as_log().is_none();
        for block in what.at.0..end {
            match self.rng.below(4) {
                0 if garbage => self.spoil(block, flight.serial),
                0 | 1 => self.medium.write(block, Cell::Blank, flight.serial),
                _ => {}
            }
        }
        Ok(())
    }

    fn read(&mut self, flight: &mut Flight, _: EffectId, from: Extent, to: To) -> Self::Done {
        if self.read_fails(from.at.0, from.blocks) {
            flight.end = End::Failed;
            return Ok(());
        }
        for i in 0..from.blocks {
            let block = from.at.0 + u64::from(i);
            match to {
                To::Request(request, first) => {
                    let cell = self.read_cell(block, flight);
                    self.fill(request.0, first + i, cell.token())?;
                }
                To::Collector(first) => {
                    let buf = Buf(first.0 + i);
                    self.ensure_collectors(buf)?;
                    self.cells[buf.0 as usize] = self.read_cell(block, flight);
                }
            }
        }
        Ok(())
    }

    fn read_parts(&mut self, flight: &mut Flight, _: EffectId, read: Parts, to: To) -> Self::Done {
        match to {
            To::Request(request, first) => self.read_for(flight, read, request, first),
            To::Collector(to) => self.gather_part(flight, read, to),
        }
    }

    fn read_meta(&mut self, flight: &mut Flight, _: EffectId, from: Extent) -> Self::Done {
        if self.read_fails(from.at.0, from.blocks) || self.summary_is_lost(from) {
            flight.end = End::Failed;
            return Ok(());
        }
        flight.bytes = vec![0; from.blocks as usize * 4096];
        for (i, out) in flight.bytes.chunks_exact_mut(4096).enumerate() {
            let block = from.at.0 + i as u64;
            if self.medium.is_rotten(block) {
                self.suspects.insert(block);
            }
            self.medium.read_into(block, out);
        }
        Ok(())
    }

    fn compare(&mut self, flight: &mut Flight, _: EffectId, buf: Buf, with: Against) -> Self::Done {
        match with {
            Against::Medium(at) => {
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
            Against::Part(PagePlace::Medium(at), slot, base) => {
                if self.read_fails(at.0, 1) {
                    flight.end = End::Failed;
                    return Ok(());
                }
                let needs = self.base_of(flight, base);
                flight.has_base = base.is_none() || needs.is_some();
                let cell = self.read_cell(at.0, flight);
                let found = parts::find(self.medium.tokens, &cell, slot, needs);
                flight.same = found == Some(self.token(buf));
            }
            Against::Part(PagePlace::Buffer(_), slot, base) => {
                let needs = self.base_of(flight, base);
                if let (Some(page), Some(_)) = (&flight.page, base) {
                    let found = parts::find(self.medium.tokens, page, slot, needs);
                    flight.same = found == Some(self.token(buf));
                }
            }
            // Compared when the effect was taken.
            Against::Buffer(_) => {}
        }
        Ok(())
    }

    fn fingerprint(&mut self, flight: &mut Flight, _: EffectId, buf: Buf) -> Self::Done {
        let token = self.token(buf);
        ensure!(
            token != RELEASED,
            "buffer {buf} is hashed and nobody holds it"
        );
        flight.print = token.to_le_bytes();
        Ok(())
    }

    fn copy_out(
        &mut self,
        _: &mut Flight,
        from: Buf,
        request: RequestId,
        index: u32,
    ) -> Self::Done {
        let token = self.token(from);
        ensure!(
            token != RELEASED,
            "CopyOut from buffer {from}, which nobody holds"
        );
        self.fill(request.0, index, token)
    }

    fn zero_out(
        &mut self,
        _: &mut Flight,
        request: RequestId,
        first: u32,
        blocks: u32,
    ) -> Self::Done {
        (first..first + blocks).try_for_each(|index| self.fill(request.0, index, 0))
    }

    fn stored(&mut self, _: &mut Flight, buf: Buf, part: PartId) -> Self::Done {
        let token = self.token(buf);
        ensure!(
            token != RELEASED,
            "part {part} is buffer {buf}, which nobody holds"
        );
        self.known.insert((part.page.0, part.slot), token);
        Ok(())
    }

    fn given_up(&mut self, _: &mut Flight, page: Vba) -> Self::Done {
        self.known.retain(|(known, _), _| *known != page.0);
        Ok(())
    }

    fn release(&mut self, _: &mut Flight, buf: Buf) -> Self::Done {
        self.take_back(buf)
    }

    fn stopped(&mut self, _: &mut Flight) -> Self::Done {
        ensure!(!self.stopped, "Stopped twice");
        self.stopped = true;
        if !self.poisoned {
            self.model.flushed(self.model.clock());
        }
        Ok(())
    }
}

impl Driver {
    /// Writes what was taken for the medium: all of it, or by chance some of it if the write fails.
    fn put(&mut self, flight: &mut Flight, to: Extent) -> Result<(), Failure> {
        self.writes += 1;
        let is_full = |(from, to): (u64, u64)| (from..to).contains(&self.writes);
        flight.end = if self.faults.write_fails_at == Some(self.writes) {
            End::Failed
        } else if self.faults.full.is_some_and(is_full) {
            End::Full
        } else {
            End::Ok
        };
        for (i, cell) in flight.cells.drain(..).enumerate() {
            if flight.end == End::Ok || self.rng.percent(50) {
                self.medium.write(to.at.0 + i as u64, cell, flight.serial);
            }
        }
        Ok(())
    }

    fn read_for(
        &mut self,
        flight: &mut Flight,
        read: Parts,
        request: RequestId,
        first: u32,
    ) -> Result<(), Failure> {
        let Parts {
            page,
            slot,
            count,
            base,
        } = read;
        let needs = self.base_of(flight, base);
        flight.has_base = base.is_none() || needs.is_some();
        if let (Some(page), true) = (&flight.page, flight.base.is_none() && needs.is_some()) {
            flight.parts = vec![parts::find(self.medium.tokens, page, slot, needs)];
        }
        if let PagePlace::Medium(at) = page {
            if self.read_fails(at.0, 1) {
                flight.end = End::Failed;
                return Ok(());
            }
            let cell = self.read_cell(at.0, flight);
            flight.parts = (slot..slot + count)
                .map(|slot| parts::find(self.medium.tokens, &cell, slot, needs))
                .collect();
            // The page is whole, but a part of it cannot be decoded. The base that it needs is blamed.
            if self.faults.unreadable > 0 && self.rng.percent(1) {
                self.suspects.insert(match base {
                    Some(BasePlace::Part(PagePlace::Medium(base), _)) => base.0,
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
        Ok(())
    }

    fn gather_part(&mut self, flight: &mut Flight, read: Parts, to: Buf) -> Result<(), Failure> {
        let PagePlace::Medium(at) = read.page else {
            return Err("the collector reads a part of a page in memory".into());
        };
        if self.read_fails(at.0, 1) {
            flight.end = End::Failed;
            return Ok(());
        }
        self.ensure_collectors(to)?;
        let cell = self.read_cell(at.0, flight);
        let found = parts::find(self.medium.tokens, &cell, read.slot, None);
        flight.parts = vec![found];
        self.cells[to.0 as usize] = Cell::Data(found.unwrap_or(GARBAGE));
        Ok(())
    }

    /// True if an operation under way has this buffer.
    pub(super) fn is_used(&self, buf: Buf) -> bool {
        let mut flights = self.flights.iter();
        flights.any(|f| f.stage != Stage::Carried && f.bufs.contains(&buf))
    }

    fn ensure_collectors(&self, buf: Buf) -> Result<(), Failure> {
        ensure!(
            self.collector.contains(&buf.0),
            "the collector reads into buffer {buf}, not its own"
        );
        ensure!(
            !self.is_used(buf),
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

    /// Summaries, and the headers that stand for a lost one, are read seldom, and what is done without them has to be tried.
    fn summary_is_lost(&mut self, from: Extent) -> bool {
        let is_one = from.at >= self.core.superblock().segments().first();
        let fails = self.faults.unreadable > 0 && is_one && self.rng.percent(40);
        if fails {
            self.suspects
                .extend(from.at.0..from.at.0 + u64::from(from.blocks));
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
}
