//! What the core is told about stored blocks: hints, which may be right, outdated or wrong.

use super::{Driver, Failure, Request, parts};
use vellum_core::addr::{Lba, Pba, RequestId, Vba};
use vellum_core::format::summary::{Owner, Tag};
use vellum_core::seam::{
    Commits, DedupPolicy, Hint, Input, PropertiesChange, Region, Service, Setting,
};

impl Driver {
    /// Announces where journals are.
    pub fn watch(&mut self, regions: &[Region]) -> Result<(), Failure> {
        let regions = self.critical.journals(regions);
        self.feed(Input::Hint(Hint::Journals { regions }))
    }

    /// Reports the contents of a descriptor block.
    pub fn journaled(&mut self, pairs: &[(Lba, Lba)]) -> Result<(), Failure> {
        self.feed(Input::Hint(Hint::Journaled { pairs }))
    }

    /// Reports a complete transaction.
    pub fn committed(&mut self, pairs: &[(Lba, Lba)]) -> Result<(), Failure> {
        for (home, journal) in pairs {
            self.freed.see(&self.medium, home.0, 1);
            self.model.pledge(home.0, journal.0);
        }
        self.feed(Input::Hint(Hint::Committed { pairs }))
    }

    /// Switches deltas on or off.
    pub fn make_deltas(&mut self, percent: u64) -> Result<(), Failure> {
        self.deltas = percent;
        self.known.clear();
        self.feed(Input::Set(Setting::Deltas { on: percent > 0 }))
    }

    /// Sets how to deduplicate, and which blocks to exclude.
    pub fn deduplicate(
        &mut self,
        policy: &DedupPolicy,
        ranges: &[(Lba, u64)],
    ) -> Result<(), Failure> {
        self.feed(Input::Set(Setting::Dedup { policy: *policy }))?;
        self.protect(ranges)
    }

    /// Reports how far a sweep is.
    pub fn swept(&mut self, to: u32, keep: bool) -> Result<(), Failure> {
        self.feed(Input::Service(Service::Swept { to, keep }))
    }

    /// Sets when to commit, for tables.
    pub fn commits(&mut self, policy: Commits) -> Result<(), Failure> {
        self.feed(Input::Set(Setting::Commits { policy }))
    }

    /// Reports what a summary may have said, now or earlier: right checksums, and those of other contents.
    pub fn contents(&mut self) -> Result<(), Failure> {
        let at = self.rng.below(self.medium.blocks());
        let end = (at + self.rng.range(1, 200)).min(self.medium.blocks());
        let mut tags = Vec::new();
        for block in at..end {
            let lba = Lba(self.rng.below(1000));
            let owner = self
                .rng
                .pick(&[Owner::None, Owner::Lba(lba), Owner::Vba(Vba(3))]);
            let sum = match self.rng.percent(30) {
                true => self.medium.read(block).sum(self.medium.tokens),
                false => self.medium.tokens.sum(self.rng.range(1, 50) as u32),
            };
            tags.push(Tag { owner, sum });
        }
        self.tell(Pba(at), &tags)
    }

    /// Reports what a page of parts may have said: the contents of one on the medium, or anything.
    pub fn parts(&mut self) -> Result<(), Failure> {
        let pages = self.medium.blocks();
        let start = self.rng.below(pages);
        for at in (start..pages).take(200) {
            let mut told = parts::directory(&self.medium, at);
            if told.is_empty() {
                continue;
            }
            if self.rng.percent(20) {
                for part in &mut told {
                    part.lba = Lba(self.rng.below(1000));
                    part.slot = self.rng.below(40) as u8;
                    part.sum = self.medium.tokens.sum(self.rng.range(1, 50) as u32);
                }
            }
            let at = Pba(at);
            self.feed(Input::Hint(Hint::Parts { at, parts: &told }))?;
        }
        Ok(())
    }

    /// Reports the contents of all pages of parts, dead ones included.
    pub fn parts_of_all(&mut self) -> Result<(), Failure> {
        for at in 0..self.medium.blocks() {
            let parts = parts::directory(&self.medium, at);
            let at = Pba(at);
            self.feed(Input::Hint(Hint::Parts { at, parts: &parts }))?;
        }
        Ok(())
    }

    /// Reports the contents of a summary.
    pub fn tell(&mut self, at: Pba, tags: &[Tag]) -> Result<(), Failure> {
        self.feed(Input::Hint(Hint::Contents { at, tags }))
    }

    /// Changes properties, whether or not a change is under way.
    pub fn choose(&mut self) -> Result<(), Failure> {
        let id = self.number();
        let (number, properties) = self.model.chosen.next();
        self.requests.insert(id, Request::Properties(number));
        self.feed(Input::Properties {
            id: RequestId(id),
            change: PropertiesChange::All(&properties),
        })
    }
}
