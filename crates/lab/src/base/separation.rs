//! Hot and cold data apart: each in blocks of its own, and with free space of its own.
//!
//! *Which is which*: how often each page is written is counted, and all counts are halved now and then, so that they follow the load (Hsieh, Kuo and
//! Chang, "Efficient identification of hot data for flash memory storage systems", ACM TOS 2006; here each page has a counter, where they
//! share some by hashes). Hot is what is written more often than the mean, and not just once. A page goes where its count says when it is
//! written, and again when it is moved.
//!
//! *Whose block is collected*: where the pages of a block die alike, the fewest have to be moved (Desnoyers, "Analytic models of SSD write performance",
//! ACM TOS 2014), and fewer still when each stream has its share of the spare space (there, and Dayan, Bouganim and Bonnet, "Modelling and
//! managing SSD write-amplification", 2015). What a stream moves goes as its writes, times its pages over its spare
//! ones; the sum of that for both is least when the spare ones are as the square roots of writes times pages. So the stream that has more than that
//! gives a block, chosen as without separation.
//!
//! Where a load is uniform it does not matter which pages are called hot: a stream's writes are then as its pages, and so is its share.

use super::own::{Separate, Separator};
use super::pagemap::{Frontier, PageMap, STREAMS_MOST, TooSmall};
use super::victims::Victim;

const COLD: usize = 0;
const HOT: usize = 1;
/// RAM for each page's count.
pub const COUNT_BYTES: u64 = 1;
/// Counts are halved after so many writes for each page there is: then one of the mean's is told from one of a quarter of it.
const WINDOW: u64 = 4;

/// See the module.
pub(super) struct Separation {
    counts: Vec<u8>,
    /// Of all counts.
    sum: u64,
    /// Writes until they are halved.
    left: u64,
    /// Pages of each stream that were overwritten or given up, halved with them: where a page is now says more than where its next version
    /// goes, if the two differ.
    died: [u64; STREAMS_MOST],
    /// Who says it in place of the counts, and of how many pages: those of a map on flash are not the host's.
    own: Option<(Box<dyn Separate>, u64)>,
}

impl Separation {
    fn new(logical: u64) -> Self {
        Self {
            counts: vec![0; logical as usize],
            sum: 0,
            left: logical * WINDOW,
            died: [0; STREAMS_MOST],
            own: None,
        }
    }

    /// There are so many pages, those of a map on flash among them.
    pub fn cover(&mut self, pages: u64) {
        self.counts.resize(pages as usize, 0);
    }

    /// Where a page belongs.
    pub fn stream(&self, lba: u32) -> usize {
        let count = u64::from(self.counts[lba as usize]);
        match count > 1 && count * self.counts.len() as u64 > self.sum {
            true => HOT,
            false => COLD,
        }
    }

    /// A page is written; where it belongs.
    pub fn written(&mut self, lba: u32) -> usize {
        if self.left == 0 {
            self.halve();
        }
        self.left -= 1;
        let count = &mut self.counts[lba as usize];
        if *count < u8::MAX {
            *count += 1;
            self.sum += 1;
        }
        match &mut self.own {
            Some((own, pages)) if u64::from(lba) < *pages => of_heat(own.written(lba.into())),
            _ => self.stream(lba),
        }
    }

    /// A page of a stream is moved; where it goes.
    pub fn moved(&mut self, lba: u32, from: usize) -> usize {
        match &mut self.own {
            Some((own, pages)) if u64::from(lba) < *pages => {
                of_heat(own.moved(lba.into(), from == HOT))
            }
            _ => self.stream(lba),
        }
    }

    /// A page of a stream has died.
    pub fn died(&mut self, stream: usize) {
        self.died[stream] += 1;
    }

    #[cold]
    fn halve(&mut self) {
        self.left = self.counts.len() as u64 * WINDOW;
        self.counts.iter_mut().for_each(|count| *count /= 2);
        self.sum = self.counts.iter().map(|&count| u64::from(count)).sum();
        self.died.iter_mut().for_each(|died| *died /= 2);
    }

    /// The stream of a die that has more than its share of the spare space.
    pub fn to_collect(&self, map: &PageMap, die: usize) -> usize {
        let pages = u64::from(map.pages);
        let spare = |of: &Frontier| u64::from(of.blocks) * pages - of.live;
        let share = |of: &Frontier, died: u64| (died as f64 * of.live as f64).sqrt();
        // What has died in its full blocks. Less than a block's worth, and collecting might win nothing.
        let dead = |of: &Frontier| {
            let active = die as u32 * map.per_die + of.active;
            let elsewhere = of.live - u64::from(map.valid[active as usize]);
            u64::from(of.blocks - 1) * pages - elsewhere
        };
        let [cold, hot] = map.frontiers(die) else {
            unreachable!("two streams have two frontiers")
        };
        let [of_cold, of_hot] = [share(cold, self.died[COLD]), share(hot, self.died[HOT])];
        match spare(hot) as f64 * of_cold > spare(cold) as f64 * of_hot {
            true if dead(hot) >= pages => HOT,
            false if dead(cold) < pages => HOT,
            _ => COLD,
        }
    }
}

fn of_heat(hot: bool) -> usize {
    match hot {
        true => HOT,
        false => COLD,
    }
}

impl PageMap {
    /// The same with somebody's own word on what is hot, before anything is written; of a map that keeps it apart.
    #[must_use]
    pub fn separating(mut self, separator: Separator<'_>) -> Self {
        let pages = self.logical();
        if let Some(separation) = &mut self.separation {
            separation.own = Some((separator(), pages));
        }
        self
    }

    /// The same with hot and cold data apart, before anything else is asked of it.
    ///
    /// # Errors
    /// When the blocks do not fit beside what two streams need.
    pub fn separated(mut self, victim: Victim) -> Result<Self, TooSmall> {
        self.streams = STREAMS_MOST;
        // What is moved may fill a block of each.
        self.reserve = self.streams as u32;
        let (logical, most) = (self.logical(), self.most());
        if logical > most {
            return Err(TooSmall { logical, most });
        }
        self.separation = Some(Box::new(Separation::new(logical)));
        self.begin(victim);
        Ok(self)
    }

    /// Whether they are apart.
    #[must_use]
    pub fn is_separated(&self) -> bool {
        self.separation.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::super::levelling::{Levelling, THRESHOLD};
    use super::*;
    use crate::flash::{Die, PLAIN, Shape};
    use crate::rng::Rng;

    const SHAPE: Shape = Shape {
        channels: 1,
        dies: 2,
        erase_blocks: 64,
        units: 16,
        unit_blocks: 2,
    };
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

    /// Nine tenths of the writes to a tenth of the volume, which is another one after each third of them; some pages are given up.
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
        // As full as it can be, and with room.
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

    /// The built-in's counts, as somebody's own.
    struct Counted(Separation);

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
    fn the_same_counts_of_ones_own_are_the_built_in() {
        let run = |mut map: PageMap| {
            drift(&mut map, 3000);
            let mut ops = Vec::new();
            map.take_ops(&mut ops);
            (ops, map.counts())
        };
        let counted = || Box::new(Counted(Separation::new(3000))) as Box<dyn Separate>;
        let own = map(3000, Victim::Greedy).separating(&counted);
        assert!(run(own) == run(map(3000, Victim::Greedy)));
    }

    #[test]
    fn whatever_is_said_the_map_stays_sound_and_only_the_hosts_pages_are_asked_for() {
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
    fn who_knows_what_is_hot_moves_less() {
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
    fn what_is_hot_is_found_and_kept_in_blocks_of_its_own() {
        let (logical, hot) = (3000, 300);
        let mut map = map(logical, Victim::Greedy);
        (0..logical).for_each(|lba| map.write(lba));
        let mut rng = Rng::new(6);
        for _ in 0..20 * logical {
            let anywhere = rng.below(10) == 0;
            map.write(rng.below(if anywhere { logical } else { hot }));
        }
        let separation = map.separation.as_ref().unwrap();
        let called_hot = |lbas: std::ops::Range<u64>| {
            let lbas = lbas.filter(|&lba| separation.stream(lba as u32) == HOT);
            lbas.count()
        };
        assert!(called_hot(0..hot) > 295);
        assert!(called_hot(hot..logical) < 30);
        let mut mixed = 0;
        for lba in 0..logical {
            let (Die(die), block, _) = map.find(lba).unwrap();
            let by = map.filled_by[(die * 64 + block.0) as usize];
            mixed += u32::from(usize::from(by) != separation.stream(lba as u32));
        }
        assert!(mixed < 60, "{mixed}");
    }
}
