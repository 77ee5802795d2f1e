//! User-defined policies.
//!
//! A victim policy sees the closed blocks of one die (and stream) each time one must be collected. It is called far less often
//! than pages are written, so it may be slow. A separation policy is called for each page that is written or moved.

/// A closed block, as a victim policy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Its number on its die.
    pub block: u32,
    /// Its valid pages, which must be moved.
    pub valid: u32,
    /// All its pages.
    pub pages: u32,
    /// Pages that died on the die since the block was filled, or since one of its own pages died.
    pub age: u64,
}

/// Chooses which block is collected next. Each die and stream has its own instance.
pub trait Choose {
    /// Returns the index in `closed` of the block to collect. There is at least one block. Blocks without a dead page, which
    /// would free nothing, are left out unless there are no others. An index past the end counts as the last.
    fn choose(&mut self, closed: &[Closed]) -> usize;
}

/// Decides which pages written by the host are hot. Each map has its own instance.
pub trait Separate {
    /// Called when the host writes a page. Returns true if the page is hot: hot pages are kept apart from the others.
    fn written(&mut self, page: u64) -> bool;

    /// Called when the collector moves a page; `hot` says which part it moves from. Returns true if the page is hot now.
    fn moved(&mut self, page: u64, hot: bool) -> bool;
}

/// Creates a separation policy.
pub type Separator<'a> = &'a (dyn Fn() -> Box<dyn Separate> + Sync);

/// Creates victim policies, one after the other.
pub type Chooser<'a> = &'a (dyn Fn() -> Box<dyn Choose> + Sync);

/// The closed blocks of one die, for a user-defined victim policy.
pub(super) struct Own {
    chooser: Box<dyn Choose>,
    pages: u32,
    closed: Vec<u32>,
    /// When each block changed last, in pages that died since the start.
    changed: Vec<u64>,
    clock: u64,
    offered: Vec<Closed>,
}

impl Own {
    pub fn new(chooser: Box<dyn Choose>, blocks: u32, pages: u32) -> Self {
        Self {
            chooser,
            pages,
            closed: Vec::new(),
            changed: vec![0; blocks as usize],
            clock: 0,
            offered: Vec::new(),
        }
    }

    pub fn close(&mut self, block: u32) {
        self.closed.push(block);
        self.changed[block as usize] = self.clock;
    }

    pub fn died(&mut self, block: u32) {
        self.clock += 1;
        self.changed[block as usize] = self.clock;
    }

    pub fn remove(&mut self, block: u32) {
        self.closed.retain(|&other| other != block);
    }

    pub fn take(&mut self, valid: impl Fn(u32) -> u32) -> Option<u32> {
        let closed = self.closed.iter().map(|&block| Closed {
            block,
            valid: valid(block),
            pages: self.pages,
            age: self.clock - self.changed[block as usize],
        });
        self.offered.clear();
        self.offered.extend(closed);
        if self.offered.iter().any(|block| block.valid < block.pages) {
            self.offered.retain(|block| block.valid < block.pages);
        }
        let last = self.offered.len().checked_sub(1)?;
        let Closed { block, .. } = self.offered[self.chooser.choose(&self.offered).min(last)];
        self.remove(block);
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{PageMap, Victim};
    use super::{Choose, Closed};
    use crate::base::SHAPE;
    use crate::rng::Rng;

    struct By<F>(F);

    impl<F: FnMut(&[Closed]) -> usize> Choose for By<F> {
        fn choose(&mut self, closed: &[Closed]) -> usize {
            (self.0)(closed)
        }
    }

    fn moved(map: PageMap) -> u64 {
        let (mut map, mut rng) = (map, Rng::new(5));
        for _ in 0..60_000 {
            // Half of the writes go to a tenth.
            let among = if rng.below(2) == 0 { 340 } else { 3400 };
            map.write(rng.below(among));
            map.settle();
        }
        map.assert_sound();
        map.counts().moved
    }

    fn map(victim: Victim) -> PageMap {
        PageMap::new(&SHAPE, 2, (0, 64), 3400, victim).unwrap()
    }

    fn fewest(closed: &[Closed]) -> usize {
        let fewest = closed
            .iter()
            .enumerate()
            .min_by_key(|(_, block)| (block.valid, block.block));
        fewest.unwrap().0
    }

    #[test]
    fn a_custom_greedy_policy_equals_the_built_in() {
        let own = map(Victim::Fifo).choosing(&|| Box::new(By(fewest)));
        assert_eq!(moved(own), moved(map(Victim::Greedy)));
    }

    #[test]
    fn a_custom_cost_benefit_policy_nearly_equals_the_built_in() {
        let best = |closed: &[Closed]| {
            let worth = |block: &Closed| {
                let (pages, live) = (f64::from(block.pages), f64::from(block.valid));
                (pages - live) * (block.age + 1) as f64 / (2.0 * live).max(0.5)
            };
            let worths = closed.iter().map(worth).enumerate();
            worths.max_by(|(_, a), (_, b)| a.total_cmp(b)).unwrap().0
        };
        let (own, built_in) = (
            moved(map(Victim::Greedy).choosing(&|| Box::new(By(best)))),
            moved(map(Victim::CostBenefit)),
        );
        // Ties are broken differently.
        assert!(own.abs_diff(built_in) * 50 < built_in, "{own} {built_in}");
    }

    #[test]
    fn whatever_a_policy_answers_the_map_stays_sound() {
        for place in [0, 7, usize::MAX] {
            let worst = map(Victim::Greedy).choosing(&|| Box::new(By(move |_: &[Closed]| place)));
            assert!(moved(worst) > moved(map(Victim::Greedy)));
        }
        let separated = map(Victim::Greedy).separated(Victim::Greedy).unwrap();
        moved(separated.choosing(&|| Box::new(By(fewest))));
    }
}
