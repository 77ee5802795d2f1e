//! One seed: a volume, and its lives one after the other.

use super::driver::copies::Copies;
use super::driver::critical::Protects;
use super::driver::freed::GivesUp;
use super::driver::scrubs::Scrubs;
use super::driver::services::Services;
use super::driver::{CLIENT_BUFS, Driver, Failure, Faults, ensure};
use super::medium::{Broken, Medium, Rot};
use super::model::{Model, Seen};
use super::open::{self, Volume};
use super::rng::Rng;
use super::summary::Summary;
use super::{bare, client::Client, counts};
use vellum_core::addr::Buf;
use vellum_core::engine::{Buffers, Options, VictimPolicy};
use vellum_core::format::SumKind;
use vellum_core::format::areas::Layout;
use vellum_core::layout::{Core, Recovered};
use vellum_core::policy::zero::Zero;
use vellum_core::tables::{self, Persistence, Tables};

/// The number of the collector's buffers in these tests.
pub(super) const COLLECTOR_BUFS: u32 = 96;

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    PowerCut,
    Kill,
    /// A clean shutdown, and then a power cut.
    Shutdown,
}

/// What a device does on its own while it serves clients, and what a user requests.
struct Beside {
    /// How soon a census goes on. It has a separate generator, so that seeds mean what they did.
    counting: (Rng, u64),
    folding: u64,
    copies: Copies,
    services: Services,
    scrubs: Scrubs,
    gives_up: GivesUp,
    protects: Protects,
}

impl Beside {
    fn serve(&mut self, driver: &mut Driver) -> Result<(), Failure> {
        if self.counting.0.percent(self.counting.1) {
            driver.count_on()?;
        }
        match self.services.are_on() {
            true => self.services.serve(driver)?,
            false => driver.fold(self.folding)?,
        }
        self.scrubs.serve(driver)?;
        self.gives_up.serve(driver)?;
        self.protects.serve(driver)?;
        self.copies.ask(driver)
    }
}

/// Lives on one volume.
pub struct World {
    pub(super) volume: Volume,
    pub(super) logical_blocks: u64,
    /// The first blocks of these, which clients use: fewer once the volume has shrunk.
    pub(super) client_blocks: u64,
    pub(super) medium: Medium,
    pub(super) model: Model,
    pub(super) rng: Rng,
    pub(super) options: Options,
    tables: tables::Options,
    fresh: u32,
    pub(super) now: u64,
    pub(super) faults: bool,
    /// Reads have failed: segments may have been set aside half empty, which costs space.
    pub(super) worn: bool,
    /// True if the last life ended with a clean shutdown.
    pub(super) stopped: bool,
    /// True if services run in some lives.
    is_served: bool,
    /// The model before the last audit, if damage is judged: it knows what the last life did.
    pub(super) last: Option<Model>,
    pub summary: Summary,
}

impl World {
    pub fn new(seed: u64, broken: Broken, faults: bool) -> Result<Self, Failure> {
        let mut rng = Rng::new(seed);
        let volume = Volume::choose(&mut rng);
        Self::on(volume, rng, broken, faults)
    }

    /// The same for tables in place.
    pub fn of_tables(
        seed: u64,
        layout: Layout,
        broken: Broken,
        faults: bool,
    ) -> Result<Self, Failure> {
        let mut rng = Rng::new(seed);
        let volume = Volume::choose_tables(&mut rng, layout);
        let mut world = Self::on(volume, rng, broken, faults)?;
        let rng = &mut world.rng;
        world.tables = tables::Options {
            persistence: rng.pick(&[Persistence::Weak, Persistence::Weak, Persistence::Strong]),
            later_nanos: rng.pick(&[0, 1_000_000, 30_000_000_000]),
            anticipation_nanos: rng.pick(&[0, 100_000, 1_000_000]),
            commit_requests: rng.pick(&[0, 0, 1, 50]) as u32,
            group_links: rng.pick(&[1, 5, 40, 1 << 14]) as usize,
            discard_blocks_min: rng.pick(&[0, 1, 1, 4]) as u32,
            zero: Zero::new(world.options.zero),
            write_buffers: world.options.write_buffers,
        };
        world.model = world.new_model();
        Ok(world)
    }

    fn on(volume: Volume, mut rng: Rng, broken: Broken, faults: bool) -> Result<Self, Failure> {
        let (medium, logical_blocks) = volume.create(broken)?;
        let options = Options {
            victim: rng.pick(&[VictimPolicy::Greedy, VictimPolicy::CostBenefit]),
            discard: rng.percent(50),
            erase_blocks_max: rng.pick(&[0, 1, 100, 1000]),
            discard_blocks_min: 1,
            zero: rng.percent(80),
            deltas: false,
            cached_sums: rng.pick(&[1, 2, 8, 4096]),
            strays: rng.pick(&[0, 10, 4096]),
            write_buffers: rng.pick(&[0, CLIENT_BUFS, CLIENT_BUFS / 8]),
            segments_end: None,
            // By the block or as a whole; no draw, so that older seeds stay what they were.
            root_piece: [1, 2, 32][volume.medium_blocks as usize / 3 % 3],
            census_step: [1, 2, 16][volume.medium_blocks as usize / 9 % 3],
        };
        Ok(Self {
            model: Model::new(logical_blocks),
            volume,
            logical_blocks,
            client_blocks: logical_blocks,
            medium,
            rng,
            tables: tables::Options::new(&options, Persistence::Weak),
            options,
            // Lower numbers are for twins.
            fresh: 100,
            now: 1,
            faults,
            worn: false,
            stopped: false,
            is_served: false,
            last: None,
            summary: Summary::default(),
        })
    }

    /// Runs folds and sweeps in some lives.
    pub fn served(mut self) -> Self {
        self.is_served = self.volume.layout == Layout::Log;
        self
    }

    pub fn describe(&self) -> String {
        match self.volume.layout {
            Layout::Log => format!("{:?} {:?}", self.volume, self.options),
            _ => format!("{:?} {:?}", self.volume, self.tables),
        }
    }

    /// Judges by promise 3, even if the layout does not keep it.
    pub fn ask_for_order(&mut self) {
        self.model = Model::new(self.logical_blocks);
    }

    /// True if the volume is like older ones, without copies of metadata.
    pub fn is_of_before(&self) -> bool {
        match self.volume.layout {
            Layout::Log => self.volume.sums == SumKind::Crc32c,
            _ => self.volume.is_single(),
        }
    }

    pub(super) fn keeps_order(&self) -> bool {
        self.volume.layout.keeps_order()
    }

    fn new_model(&self) -> Model {
        let model = Model::new(self.logical_blocks);
        match self.keeps_order() {
            true => model,
            false => model.without_order(),
        }
    }

    pub(super) fn core(&self, recovered: Recovered) -> Core {
        let buffers = Buffers {
            first: Buf(CLIENT_BUFS),
            count: COLLECTOR_BUFS,
        };
        let crc = crc32c::crc32c;
        match recovered {
            Recovered::Tables(found) => Tables::new(*found, self.tables, crc).into(),
            log => Core::new(log, buffers, self.options, Persistence::Weak, crc),
        }
    }

    /// One life: recovery, work, an end, and an audit of what is left.
    pub fn life(&mut self) -> Result<(), Failure> {
        self.summary.lives += 1;
        self.at_rest()?;
        let recovered = open::open(&mut self.medium, &mut self.rng, true)?;
        let stored = match &recovered {
            Recovered::Tables(found) if self.medium.broken == Broken::DiscardsEarly => found
                .links()
                .map(|(lba, at, _)| (u64::from(lba), at.0))
                .collect(),
            _ => Default::default(),
        };
        let none = Medium::new(0, self.medium.tokens, Broken::No);
        let mut driver = Driver::new(
            self.core(recovered),
            std::mem::replace(&mut self.medium, none),
            std::mem::replace(&mut self.model, Model::new(0)),
            Rng::new(self.rng.next()),
            COLLECTOR_BUFS,
        );
        (driver.now, driver.early) = (self.now, self.early_answers());
        driver.stored = stored;
        let end = match self.rng.below(100) {
            0..70 => End::PowerCut,
            70..85 => End::Kill,
            _ => End::Shutdown,
        };
        let settles = self.rng.percent(30);
        driver.faults = self.choose_faults();
        self.worn |= driver.faults.unreadable > 0;
        driver.start()?;
        self.work(&mut driver)?;
        driver.medium.rot.clear();
        if settles {
            driver.settle()?;
            driver.check_critical()?;
            if !driver.poisoned
                && !self.worn
                && driver.faults.full.is_none()
                && self.rng.percent(20)
            {
                self.full_is_not_dead(&mut driver)?;
            }
        }
        if end == End::Shutdown {
            driver.settle_shutdown()?;
        }
        self.summary.add_stats(&driver.core.stats());
        self.stopped = end == End::Shutdown && !driver.poisoned;
        let (medium, model, counts, now) = driver.crash(end != End::Kill)?;
        (self.medium, self.model, self.now) = (medium, model, now);
        self.summary.count(&counts);
        self.summary.see(&self.medium);
        // A clean shutdown promises what a flush does; `judge` knows that.
        if end == End::Kill {
            // The next opening's sync makes the contents of the cache durable; until then nothing has.
            let _ = open::open(&mut self.medium, &mut self.rng, true)?;
        }
        self.audit()?;
        if self.stopped && self.faults && self.rng.percent(50) {
            self.rot_at_rest()?;
        }
        Ok(())
    }

    /// The percentage of a life's writes that are answered before the core has them. Uses a separate generator.
    fn early_answers(&self) -> u64 {
        Rng::new(self.medium.writes ^ self.now).pick(&[0, 50, 100])
    }

    fn choose_faults(&mut self) -> Faults {
        let mut faults = Faults::default();
        if !self.faults {
            return faults;
        }
        match self.rng.below(12) {
            0 => faults.unreadable = self.rng.pick(&[10, 300]),
            1 => faults.write_fails_at = Some(self.rng.range(1, 60)),
            2 => faults.sync_fails_at = Some(self.rng.range(1, 8)),
            3 | 4 => {
                let last = self.rng.pick(&[8, 60]);
                let from = self.rng.range(1, last);
                faults.full = Some((from, from + self.rng.range(1, last / 3)));
            }
            _ => {}
        }
        faults
    }

    /// Random requests, random progress.
    fn work(&mut self, driver: &mut Driver) -> Result<(), Failure> {
        let mut client = Client::new(self.client_blocks, &mut self.rng);
        let steps = match self.rng.below(10) {
            0..3 => self.rng.below(30),
            3..8 => self.rng.below(600),
            _ => self.rng.below(4000),
        };
        let eager = self.rng.range(10, 90);
        let commits = self.rng.pick(&[0, 50, 100]);
        let rots = self.faults && self.rng.percent(10);
        self.worn |= rots;
        self.choose_policies(driver, &mut client)?;
        let mut beside = self.beside(driver)?;
        let mut idle = 0;
        for _ in 0..steps {
            beside.serve(driver)?;
            if self.rng.below(40) == 0 {
                self.tell_anew(driver, &mut client)?;
            }
            let room = driver.open_requests() < client.depth && driver.free_bufs() >= 64;
            if room && self.rng.percent(eager) {
                let ask = client.ask(&mut self.rng, &mut self.fresh);
                let pairs = client.take_pairs();
                if self.rng.percent(50) {
                    driver.journaled(&pairs)?;
                    driver.ask(&ask)?;
                } else {
                    driver.ask(&ask)?;
                    driver.journaled(&pairs)?;
                }
                if self.rng.percent(commits) {
                    driver.committed(&pairs)?;
                }
                idle = 0;
            } else if driver.advance()? {
                idle = 0;
            } else if !room && driver.poisoned {
                // Writes that failed keep their buffers, so that they can be read.
                break;
            } else if !room {
                // Nothing is in flight and no room is left: only time can help.
                idle += 1;
                ensure!(idle < 1000 && driver.wait()?, "{}", driver.stalled());
            }
            if self.rng.below(1000) == 0 {
                driver.commits(client.commits(&mut self.rng))?;
                driver.tick()?;
            }
            // A medium without room makes the core wait: let time pass now and then, and end soon after.
            if driver.faults.full.is_some() && self.rng.percent(2) {
                driver.wait()?;
                if self.rng.percent(20) {
                    break;
                }
            }
            if rots && self.rng.percent(2) {
                self.rot(driver);
            }
        }
        self.give_up_tail(driver)?;
        self.summary.serve(&beside.services.served);
        self.summary.scrub(&beside.scrubs.came_to);
        self.summary.freed_dropped += driver.freed_blocks();
        Ok(())
    }

    /// Chooses what else goes on in this life.
    fn beside(&mut self, driver: &mut Driver) -> Result<Beside, Failure> {
        let folding = self.rng.pick(&[0, 0, 3, 20]);
        let (seed, is_served) = (self.rng.clone().next(), self.is_served);
        let mut die = Rng::new(self.now ^ 0xce25);
        let soon = die.pick(&[1, 10, 60]);
        let mut beside = Beside {
            counting: (die, soon),
            folding,
            copies: Copies::new(
                self.medium.writes ^ self.now,
                &self.volume,
                self.client_blocks,
            ),
            services: Services::new(seed, is_served),
            scrubs: Scrubs::new(seed, is_served),
            gives_up: GivesUp::new(seed, is_served),
            protects: Protects::new(seed, is_served),
        };
        // A segment with a bad block may be set aside.
        self.worn |= self.faults && beside.scrubs.spoil(driver);
        beside.protects.begin(driver)?;
        Ok(beside)
    }

    /// Chooses how blocks are stored in this life.
    fn choose_policies(&mut self, driver: &mut Driver, client: &mut Client) -> Result<(), Failure> {
        driver.packing = self.rng.pick(&[0, 30, 70, 100]);
        let deltas = self.rng.pick(&[0, 0, 30, 90]);
        if deltas > 0 {
            driver.make_deltas(deltas)?;
            driver.buckets = self.rng.pick(&[0, 0, 3, 20]);
        }
        driver.hashes = self.rng.pick(&[u32::MAX, u32::MAX, 100, 7]);
        driver.watch(&client.regions(&mut self.rng))?;
        let mut dedup = client.dedup(&mut self.rng);
        if driver.medium.broken == Broken::FingerprintsCollide {
            dedup = client.rely_on_fingerprints();
        }
        driver.deduplicate(&dedup, &client.critical(&mut self.rng))
    }

    /// Sends what the runtime learns with time, and what a user sets.
    fn tell_anew(&mut self, driver: &mut Driver, client: &mut Client) -> Result<(), Failure> {
        driver.contents()?;
        driver.parts()?;
        driver.watch(&client.regions(&mut self.rng))?;
        if self.rng.percent(20) {
            driver.choose()?;
        }
        Ok(())
    }

    /// Makes a block of the medium go bad.
    fn rot(&mut self, driver: &mut Driver) {
        let at = self.rng.below(driver.medium.blocks());
        if driver.medium.is_data(at) {
            let rot = Rot::any(&mut self.rng, driver.medium.blocks());
            driver.medium.rot.insert(at, rot);
        }
    }

    pub(super) fn token(&mut self) -> u32 {
        self.fresh += 1;
        self.fresh
    }

    /// Opens a copy of the medium and reads everything.
    fn read_back(
        &mut self,
        mut medium: Medium,
        suspects: &[u64],
    ) -> Result<(Vec<Seen>, Driver), Failure> {
        let recovered = open::open(&mut medium, &mut self.rng, false)?;
        self.read_found(recovered, medium, suspects)
    }

    /// Checks that what is left is what was promised. It is the truth from now on.
    pub(super) fn audit(&mut self) -> Result<(), Failure> {
        if self.rng.percent(20) {
            open::check(&self.medium)?;
        }
        // A pack has no data that could be torn.
        if self.medium.broken != Broken::TornIsWhole {
            bare::audit(&self.medium)?;
        }
        if self.medium.broken == Broken::CountsTooLow {
            counts::lower_one(&mut self.medium);
        }
        if self.volume.layout != Layout::Log {
            self.summary.leaks += counts::audit(&self.medium)?;
        }
        let found = open::recover(&self.medium, None).map_err(|e| format!("recovery: {e}"))?;
        let chosen = &mut self.model.chosen;
        chosen.judge(found.superblock().properties())?;
        let (seen, driver) = self.read_back(self.medium.clone(), &[])?;
        ensure!(
            driver.counts.corrupt + driver.counts.unreadable == 0,
            "a block cannot be read after the crash"
        );
        self.model.judge(&seen)?;
        if let Some(last) = &mut self.last {
            last.clone_from(&self.model);
        }
        self.model.rebase(&seen);
        let stats = driver.core.stats();
        self.summary.redeemed += stats.redeemed_blocks;
        // Each LBA that holds data has a page, or is one of a page's owners.
        let counted = stats.live_blocks + stats.shared_owners + stats.packed_owners;
        let held = self.model.live_at_most() + stats.shared_pages + stats.packed_pages;
        // Zeros may be stored as data, when the policy is off; a count is never too low (promise 5).
        ensure!(
            counted >= held && (counted == held || !self.options.zero),
            "{held} blocks hold data, {counted} are counted"
        );
        Ok(())
    }

    /// Promise 6: one bad block in a volume at rest is an error or makes no difference, and never gives wrong data.
    fn rot_at_rest(&mut self) -> Result<(), Failure> {
        let blocks = self.medium.blocks();
        let expected = self.model.base().to_vec();
        for _ in 0..self.rng.range(1, 4) {
            let mut medium = self.medium.clone();
            // Mostly a block that is not blank.
            let mut at = self.rng.below(blocks);
            for _ in 0..20 {
                if !medium.is_blank(at) {
                    break;
                }
                at = self.rng.below(blocks);
            }
            if self.rng.percent(10) {
                at = self.rng.below(blocks.min(8));
            }
            let rot = Rot::any(&mut self.rng, blocks);
            let was = format!("{rot:?} of block {at}");
            let whole = open::recover(&medium, None).map_err(|e| format!("recovery: {e}"))?;
            medium.rot.insert(at, rot);
            if open::recover(&medium, None).is_err() {
                ensure!(!open::is_spare(&whole, at), "{was}: not opened");
                self.summary.rot_refused += 1;
                continue;
            }
            let (seen, _) = match self.read_back(medium, &[at]) {
                Ok(result) => result,
                Err(why) => return Err(format!("{was}: {why}")),
            };
            self.summary.rot_survived += 1;
            for (lba, (seen, expected)) in seen.iter().zip(&expected).enumerate() {
                if let Seen::Token(token) = seen {
                    ensure!(
                        token == expected,
                        "{was}: LBA {lba} reads {token:#x}, not {expected:#x}"
                    );
                }
            }
        }
        Ok(())
    }
}
