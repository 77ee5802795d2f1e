//! Hot and cold data apart: each in its own blocks, and with its own free space.
//!
//! *Which pages are hot*: see [`super::heat`].
//!
//! *Which stream is collected*: fewest pages move if all pages of a block die at one rate (Desnoyers, "Analytic models of SSD write
//! performance", ACM TOS 2014). Still fewer move if each stream has the right share of the spare space (ibid., and Dayan, Bouganim
//! and Bonnet, "Modelling and managing SSD write-amplification", 2015). A stream moves `writes * pages / spare`, up to a factor. The sum
//! over both streams is least when their spare pages are in the ratio of `sqrt(writes * pages)`. So the collector takes a block from the
//! stream that has more spare pages than that, and chooses the block as without separation.
//!
//! Under a uniform load it does not matter which pages are called hot: a stream's writes are then proportional to its pages, and
//! so is its share.

use super::heat::{COLD, HOT, Heat, STREAMS_MOST};
use super::own::Separator;
use super::pagemap::{Frontier, PageMap, TooSmall};
use super::streams::Apart;
use super::victims::Victim;

impl PageMap {
    /// Uses a user-defined separation policy, before anything is written. The map must separate already.
    #[must_use]
    pub fn separating(mut self, separator: Separator<'_>) -> Self {
        let pages = self.logical();
        if let Some(Apart::Heat(heat)) = self.separation.as_deref_mut() {
            heat.own = Some((separator(), pages));
        }
        self
    }

    /// Separates hot from cold data. It must be called before anything else is done to the map.
    ///
    /// # Errors
    /// If the blocks do not fit in addition to what two streams need.
    pub fn separated(mut self, victim: Victim) -> Result<Self, TooSmall> {
        self.streams = STREAMS_MOST;
        // Moved pages may fill a block of each stream.
        self.reserve = self.streams as u32;
        self.separation = Some(Box::new(Apart::Heat(Heat::new(self.logical()))));
        let (logical, most) = (self.logical(), self.most());
        if logical > most {
            return Err(TooSmall { logical, most });
        }
        self.begin(victim);
        Ok(self)
    }

    /// True if hot and cold data are apart.
    #[must_use]
    pub fn is_separated(&self) -> bool {
        matches!(self.separation.as_deref(), Some(Apart::Heat(_)))
    }

    /// Returns the stream of a die that has more than its share of the spare space.
    pub(super) fn to_collect(&self, heat: &Heat, die: usize) -> usize {
        let pages = u64::from(self.pages);
        let spare = |of: &Frontier| u64::from(of.blocks) * pages - of.live;
        let share = |of: &Frontier, died: u64| (died as f64 * of.live as f64).sqrt();
        // The dead pages of its full blocks. With less than a block's worth, collecting might gain nothing.
        let dead = |of: &Frontier| {
            let active = die as u32 * self.per_die + of.active;
            let elsewhere = of.live - u64::from(self.valid[active as usize]);
            u64::from(of.blocks - 1) * pages - elsewhere
        };
        let [cold, hot] = self.frontiers(die) else {
            unreachable!("two streams have two frontiers")
        };
        let [of_cold, of_hot] = [share(cold, heat.died[COLD]), share(hot, heat.died[HOT])];
        match spare(hot) as f64 * of_cold > spare(cold) as f64 * of_hot {
            true if dead(hot) >= pages => HOT,
            false if dead(cold) < pages => HOT,
            _ => COLD,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::leveller::{Levelling, THRESHOLD};
    use super::super::own::Separate;
    use super::*;
    use crate::base::SHAPE;
    use crate::flash::{Die, PLAIN};
    use crate::rng::Rng;

    const VICTIMS: [Victim; 5] = [
        Victim::Greedy,
        Victim::Fifo,
        Victim::Choices(1),
        Victim::Choices(5),
        Victim::CostBenefit,
    ];

    fn map(logical: u64, victim: Victim) -> PageMap {
        let map = PageMap::new(&SHAPE, 2, (0, 64), logical, victim).unwrap();
        let map = map.separated(victim).unwrap();
        map.mapped(PLAIN).unwrap().drawing(7)
    }

    /// Sends nine tenths of the writes to a tenth of the volume, which changes after each third of them; some pages are
    /// discarded.
    fn drift(map: &mut PageMap, logical: u64) {
        let mut rng = Rng::new(5);
        let hot = logical / 10;
        for step in 0..90_000 {
            let first = step / 30_000 * hot;
            let lba = match rng.below(10) {
                0 => rng.below(logical),
                _ => first + rng.below(hot),
            };
            match rng.below(20) {
                0 => map.forget(lba),
                _ => map.write(lba),
            }
            map.settle();
            if step % 3000 == 0 {
                map.assert_sound();
            }
        }
        map.assert_sound();
    }

    #[test]
    fn every_block_stays_where_the_map_says_whatever_is_hot() {
        // As full as possible, and with room to spare.
        let most = map(1, Victim::Greedy).most();
        for logical in [most, most * 9 / 10] {
            for victim in VICTIMS {
                drift(&mut map(logical, victim), logical);
                let level = Levelling {
                    dynamic: true,
                    threshold: Some(THRESHOLD),
                };
                drift(&mut map(logical, victim).levelled(level), logical);
                let logical = logical - 10;
                let mut paged = map(logical, victim).paged(512).unwrap();
                drift(&mut paged, logical);
            }
        }
        let full = PageMap::new(&SHAPE, 2, (0, 64), most + 1, Victim::Greedy).unwrap();
        let logical = most + 1;
        let refused = full.separated(Victim::Greedy).err();
        assert_eq!(refused, Some(TooSmall { logical, most }));
    }

    #[test]
    fn the_same_seed_gives_the_same_commands() {
        let run = || {
            let mut map = map(3000, Victim::Choices(3));
            drift(&mut map, 3000);
            let mut ops = Vec::new();
            map.take_ops(&mut ops);
            (ops, map.counts())
        };
        assert_eq!(run(), run());
    }

    /// The built-in counts, as a user-defined policy.
    struct Counted(Heat);

    impl Separate for Counted {
        fn written(&mut self, page: u64) -> bool {
            self.0.written(page as u32) == HOT
        }

        fn moved(&mut self, page: u64, _hot: bool) -> bool {
            self.0.stream(page as u32) == HOT
        }
    }

    struct By<F>(F);

    impl<F: FnMut(u64, Option<bool>) -> bool> Separate for By<F> {
        fn written(&mut self, page: u64) -> bool {
            (self.0)(page, None)
        }

        fn moved(&mut self, page: u64, hot: bool) -> bool {
            (self.0)(page, Some(hot))
        }
    }

    #[test]
    fn a_custom_policy_with_the_same_counts_equals_the_built_in() {
        let run = |mut map: PageMap| {
            drift(&mut map, 3000);
            let mut ops = Vec::new();
            map.take_ops(&mut ops);
            (ops, map.counts())
        };
        let counted = || Box::new(Counted(Heat::new(3000))) as Box<dyn Separate>;
        let own = map(3000, Victim::Greedy).separating(&counted);
        assert!(run(own) == run(map(3000, Victim::Greedy)));
    }

    #[test]
    fn whatever_a_policy_answers_the_map_stays_sound_and_asks_only_for_host_pages() {
        let says: [fn(u64, Option<bool>) -> bool; 5] = [
            |_, _| true,
            |_, _| false,
            |page, _| page % 2 == 0,
            |_, was| was != Some(true),
            |_, was| was == Some(false),
        ];
        let most = map(1, Victim::Greedy).most();
        for say in says {
            for logical in [most, most * 9 / 10] {
                let asked = || {
                    Box::new(By(move |page, was| {
                        assert!(page < logical);
                        say(page, was)
                    })) as Box<dyn Separate>
                };
                drift(
                    &mut map(logical, Victim::Greedy).separating(&asked),
                    logical,
                );
                let logical = logical - 10;
                let paged = map(logical, Victim::Greedy).separating(&asked).paged(512);
                drift(&mut paged.unwrap(), logical);
            }
        }
    }

    #[test]
    fn a_policy_that_knows_the_hot_pages_moves_less() {
        let moved = |mut map: PageMap| {
            let mut rng = Rng::new(6);
            for _ in 0..90_000 {
                let anywhere = rng.below(2) == 0;
                map.write(rng.below(if anywhere { 3000 } else { 300 }));
                map.settle();
            }
            map.counts().moved
        };
        let knows = || Box::new(By(|page: u64, _| page < 300)) as Box<dyn Separate>;
        let wrong = || Box::new(By(|page: u64, _| page.is_multiple_of(10))) as Box<dyn Separate>;
        let knowing = moved(map(3000, Victim::Greedy).separating(&knows));
        assert!(knowing < moved(map(3000, Victim::Greedy).separating(&wrong)));
        assert!(knowing <= moved(map(3000, Victim::Greedy)) * 21 / 20);
    }

    #[test]
    fn hot_pages_are_found_and_kept_in_separate_blocks() {
        let (logical, hot) = (3000, 300);
        let mut map = map(logical, Victim::Greedy);
        (0..logical).for_each(|lba| map.write(lba));
        let mut rng = Rng::new(6);
        for _ in 0..20 * logical {
            let anywhere = rng.below(10) == 0;
            map.write(rng.below(if anywhere { logical } else { hot }));
        }
        let Some(Apart::Heat(separation)) = map.separation.as_deref() else {
            panic!("it separates")
        };
        let called_hot = |lbas: std::ops::Range<u64>| {
            let lbas = lbas.filter(|&lba| separation.stream(lba as u32) == HOT);
            lbas.count()
        };
        assert!(called_hot(0..hot) > 295);
        assert!(called_hot(hot..logical) < 30);
        let mut mixed = 0;
        for lba in 0..logical {
            let (Die(die), block, _) = map.find(lba).unwrap().at;
            let by = map.filled_by[(die * 64 + block.0) as usize];
            mixed += u32::from(usize::from(by) != separation.stream(lba as u32));
        }
        assert!(mixed < 60, "{mixed}");
    }
}
