//! Takes the core's outputs: checks that every effect and every reply is allowed.

use super::effects::placeholder;
use super::parts;
use super::{
    Driver, EFFECTS_MAX, End, Failure, Flight, RELEASED, Request, SEGMENT_MAX, Stage, ensure,
};
use crate::sim::model::Seen;
use vellum_core::addr::{Buf, EffectId, RequestId};
use vellum_core::driver;
use vellum_core::seam::{Against, ChunkBlock, Effect, PagePlace, Refusal, Reply};

impl Driver {
    pub(super) fn take_effect(&mut self, effect: Effect) -> Result<(), Failure> {
        if self.trace {
            eprintln!("{} < {effect:?}", self.now);
        }
        self.counts.effects += 1;
        let Some(id) = effect.id() else {
            return driver::carry_out(self, &mut placeholder(), effect);
        };
        ensure!(
            self.flights.iter().all(|f| f.id != id),
            "effect id {id} given out twice"
        );
        ensure!(
            self.flights.len() < EFFECTS_MAX,
            "{EFFECTS_MAX} effects in flight"
        );
        let bufs = self.bufs_of(id, &effect)?;
        let needs = match effect {
            Effect::ReadParts { base, .. }
            | Effect::Compare {
                with: Against::Part(_, _, base),
                ..
            } => base,
            _ => None,
        };
        let base = self.base_in_memory(needs);
        let same = self.compare_in_memory(&effect, base)?;
        let parts = self.parts_in_memory(&effect, base);
        self.medium.writes += 1;
        let flight = Flight {
            effect,
            id,
            stage: Stage::Asked,
            serial: self.medium.writes,
            asked: self.medium.stamp(),
            cells: Vec::new(),
            bufs,
            same,
            print: [0; 4],
            parts,
            page: page_in_memory(&effect).map(|page| self.cells[page.0 as usize].clone()),
            base,
            has_base: true,
            sums: Vec::new(),
            bytes: Vec::new(),
            end: End::Ok,
        };
        self.check_overlap(&flight)?;
        self.flights.push(flight);
        Ok(())
    }

    /// The buffers that an effect is written from or compares.
    fn bufs_of(&self, id: EffectId, effect: &Effect) -> Result<Vec<Buf>, Failure> {
        Ok(match *effect {
            Effect::WriteChunk { blocks, .. } => {
                let bufs: Vec<Buf> = self.core.chunk_bufs(id).collect();
                let whole = (0..blocks as usize - 1)
                    .filter(|&index| self.core.chunk_block(id, index) != ChunkBlock::Page)
                    .count();
                ensure!(
                    whole <= bufs.len(),
                    "chunk of {blocks} blocks with {} buffers",
                    bufs.len()
                );
                bufs
            }
            Effect::WriteData { blocks, .. } => {
                let bufs: Vec<Buf> = self.core.chunk_bufs(id).collect();
                ensure!(
                    bufs.len() == blocks as usize,
                    "{effect:?} with {} buffers",
                    bufs.len()
                );
                bufs
            }
            // The buffer is held while it is compared.
            Effect::Compare { buf, .. } | Effect::Fingerprint { buf, .. } => vec![buf],
            _ => Vec::new(),
        })
    }

    /// The result of a comparison of blocks in memory: they are as they are now.
    fn compare_in_memory(&self, effect: &Effect, base: Option<u32>) -> Result<bool, Failure> {
        Ok(match *effect {
            Effect::Compare {
                buf,
                with: Against::Buffer(other),
                ..
            } => {
                let [token, other] = [buf, other].map(|buf| self.token(buf));
                ensure!(
                    token != RELEASED && other != RELEASED,
                    "{effect:?} with a buffer that nobody holds"
                );
                token == other
            }
            Effect::Compare {
                buf,
                with: Against::Part(PagePlace::Buffer(page), slot, _),
                ..
            } => {
                parts::find(self.medium.tokens, &self.cells[page.0 as usize], slot, base)
                    == Some(self.token(buf))
            }
            _ => false,
        })
    }

    /// The parts of a page in memory that an effect reads, as they are now.
    fn parts_in_memory(&mut self, effect: &Effect, base: Option<u32>) -> Vec<Option<u32>> {
        let mut parts: Vec<_> = match *effect {
            Effect::ReadParts {
                page: PagePlace::Buffer(page),
                slot,
                count,
                ..
            } => (slot..slot + count)
                .map(|slot| {
                    parts::find(self.medium.tokens, &self.cells[page.0 as usize], slot, base)
                })
                .collect(),
            _ => Vec::new(),
        };
        // The page is whole, and the collector is moving it, but a part of it cannot be decoded.
        if let Effect::ReadParts {
            page: PagePlace::Buffer(page),
            ..
        } = *effect
            && self.faults.unreadable > 0
            && let Some(at) = self.goes_to(page)
            && self.rng.percent(50)
        {
            self.suspects.insert(at);
            parts[0] = None;
        }
        parts
    }

    /// The place that a buffer of the collector's is being written to, if any.
    fn goes_to(&self, buf: Buf) -> Option<u64> {
        self.flights.iter().find_map(|flight| match flight.effect {
            Effect::WriteChunk { at, .. } => {
                let index = flight.bufs.iter().position(|held| *held == buf)?;
                Some(at.0 + 1 + index as u64)
            }
            _ => None,
        })
    }

    /// Checks that no write overlaps another access to the same blocks: their order would be random.
    fn check_overlap(&self, new: &Flight) -> Result<(), Failure> {
        for (at, blocks, writes) in new.ranges() {
            ensure!(
                blocks > 0 && at + blocks <= self.medium.blocks(),
                "{:?} is outside of the medium",
                new.effect
            );
            for other in &self.flights {
                for (from, count, wrote) in other.ranges() {
                    let meet = at < from + count && from < at + blocks;
                    ensure!(
                        !(meet && (writes || wrote)),
                        "{:?} while {:?} is in flight",
                        new.effect,
                        other.effect
                    );
                }
            }
        }
        Ok(())
    }

    pub(super) fn fill(&mut self, request: u32, index: u32, token: u32) -> Result<(), Failure> {
        let Some(Request::Read { got, .. } | Request::Look { got, .. } | Request::Fold { got, .. }) =
            self.requests.get_mut(&request)
        else {
            return Err(format!(
                "data for request {request}, which is not a read in flight"
            ));
        };
        ensure!(
            (index as usize) < got.len(),
            "block {index} of a read of {}",
            got.len()
        );
        got[index as usize] = Some(token);
        Ok(())
    }

    /// The result of the last request, if it ended within its own `handle`.
    pub fn answered_at_once(&self) -> Option<Result<(), Refusal>> {
        self.last_result
    }

    /// Checks that a request may end with this result.
    fn judge(&mut self, request: &Request, result: Result<(), Refusal>) -> Result<(), Failure> {
        match result {
            Ok(()) => self.counts.done += 1,
            Err(refusal @ (Refusal::Full | Refusal::NoRoom)) => {
                self.counts.full += 1;
                ensure!(!request.reads(), "a read refused: {refusal}");
                let is_space = refusal == Refusal::Full;
                let full_flush = is_space && matches!(request, Request::Flush { .. });
                ensure!(!full_flush, "a flush refused: {refusal}");
                ensure!(
                    is_space || self.faults.full.is_some(),
                    "the medium is not full: {refusal}"
                );
            }
            Err(Refusal::Corrupt(pba)) => {
                self.counts.corrupt += 1;
                ensure!(request.reads(), "corrupt block {pba} reported for a write");
                // A bad header or summary makes its segment's other blocks unverifiable.
                let near = pba.0.saturating_sub(SEGMENT_MAX)..pba.0 + SEGMENT_MAX;
                ensure!(
                    self.suspects.range(near).next().is_some(),
                    "block {pba} reported corrupt, and is not"
                );
            }
            Err(Refusal::Unreadable(pba)) => {
                self.counts.unreadable += 1;
                // Nor can blocks be verified if their checksums cannot be read.
                let near = pba.0.saturating_sub(SEGMENT_MAX)..pba.0 + SEGMENT_MAX;
                ensure!(
                    self.suspects.range(near).next().is_some(),
                    "block {pba} reported unreadable, and is not"
                );
            }
            Err(Refusal::Poisoned) => {
                self.counts.poisoned += 1;
                ensure!(self.poisoned, "refused as poisoned, and nothing has failed");
            }
            Err(Refusal::OutOfRange) => return Err("refused as out of range".into()),
            Err(Refusal::Unlinkable) => {
                let is_change = matches!(request, Request::Change { .. });
                ensure!(is_change, "no copy, and refused as one");
            }
        }
        Ok(())
    }

    pub(super) fn take_reply(&mut self, reply: Reply) -> Result<(), Failure> {
        if self.trace {
            eprintln!("{} < {reply:?}", self.now);
        }
        let RequestId(id) = reply.id;
        let at_once = self.asking == Some(id);
        let Some(request) = self.requests.remove(&id) else {
            return Err(format!(
                "request {id} answered twice, or never asked: {:?}",
                reply.result
            ));
        };
        if at_once {
            self.last_result = Some(reply.result);
        }
        self.judge(&request, reply.result)?;
        match request {
            Request::Answered { op } => self.kept(op, reply.result)?,
            Request::Change { op } => {
                self.critical.answered(reply.result.is_ok());
                self.model.end(op, reply.result.is_ok(), at_once);
            }
            Request::Flush { asked } if reply.result.is_ok() => self.model.flushed(asked),
            Request::Properties(number) if reply.result.is_ok() => {
                self.model.chosen.acknowledge(number);
            }
            Request::Flush { .. } | Request::Merge | Request::Properties(_) => {}
            Request::Read { lba, asked, got } => {
                self.last_read.clear();
                for (lba, got) in (lba..).zip(got) {
                    if reply.result.is_err() {
                        self.last_read.push(Seen::Unknown);
                        continue;
                    }
                    let Some(token) = got else {
                        return Err(format!("LBA {lba} read without data"));
                    };
                    self.last_read.push(Seen::Token(token));
                    self.model.check_read(lba, token, asked)?;
                }
            }
            Request::Look { lba, asked, got } => {
                self.looked = Some((id, reply.result));
                for (lba, got) in (lba..).zip(got) {
                    if reply.result.is_ok() {
                        let Some(token) = got else {
                            return Err(format!("LBA {lba} read without data"));
                        };
                        self.model.check_read(lba, token, asked)?;
                    }
                }
            }
            Request::Served => self.served = Some(reply.result.is_ok()),
            Request::Fold { lba, asked, got } => {
                self.served = Some(reply.result.is_ok());
                if reply.result.is_ok() {
                    self.read_to_fold(lba, asked, got)?;
                }
            }
        }
        Ok(())
    }
}

/// The buffer with the page from which a delta is requested.
fn page_in_memory(effect: &Effect) -> Option<Buf> {
    match *effect {
        Effect::ReadParts {
            page: PagePlace::Buffer(page),
            base: Some(_),
            ..
        }
        | Effect::Compare {
            with: Against::Part(PagePlace::Buffer(page), _, Some(_)),
            ..
        } => Some(page),
        _ => None,
    }
}
