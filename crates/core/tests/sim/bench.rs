//! One volume that a test drives step by step. Every read is checked against the model.

use super::driver::{Ask, CLIENT_BUFS, Driver, Failure};
use super::medium::{Broken, Medium};
use super::model::{Model, Seen};
use super::open::{self, Volume};
use super::rng::Rng;
use vellum_core::addr::Buf;
use vellum_core::engine::{Buffers, Engine, Options};
use vellum_core::layout::Recovered;
use vellum_core::seam::DedupPolicy;
use vellum_core::stats::Stats;

pub const COLLECTOR_BUFS: u32 = 96;

pub fn volume() -> Volume {
    Volume {
        medium_blocks: 1400,
        logical_blocks: None,
        segment_blocks: 64,
        over_provisioning: 280,
        layout: vellum_core::format::areas::Layout::Log,
        sums: vellum_core::format::SumKind::Xxh3,
    }
}

pub fn engine_on(medium: &mut Medium, rng: &mut Rng, cached_sums: usize) -> Engine {
    let options = Options {
        cached_sums,
        ..Options::default()
    };
    let recovered = open::open(medium, rng, false).unwrap();
    engine_of(recovered, options)
}

fn engine_of(recovered: Recovered, options: Options) -> Engine {
    let Recovered::Log(recovered) = recovered else {
        panic!("a log was made");
    };
    let buffers = Buffers {
        first: Buf(CLIENT_BUFS),
        count: COLLECTOR_BUFS,
    };
    Engine::new(*recovered, buffers, options, crc32c::crc32c)
}

fn few_sums() -> Options {
    Options {
        cached_sums: 1,
        ..Options::default()
    }
}

pub struct Bench(pub Driver);

impl Bench {
    pub fn new(seed: u64, volume: Volume, policy: DedupPolicy) -> Self {
        Self::with(seed, volume, policy, few_sums())
    }

    pub fn with(seed: u64, volume: Volume, policy: DedupPolicy, options: Options) -> Self {
        Self::opened(seed, volume, policy, options, open::open)
    }

    /// A volume whose map is all in memory: the base of a delta is always found.
    pub fn in_memory(seed: u64, volume: Volume, policy: DedupPolicy) -> Self {
        Self::opened(seed, volume, policy, few_sums(), open::open_whole)
    }

    fn opened(
        seed: u64,
        volume: Volume,
        policy: DedupPolicy,
        options: Options,
        open: fn(&mut Medium, &mut Rng, bool) -> Result<Recovered, Failure>,
    ) -> Self {
        let mut rng = Rng::new(seed);
        let (mut medium, blocks) = volume.create(Broken::No).unwrap();
        let engine = engine_of(open(&mut medium, &mut rng, false).unwrap(), options);
        let mut driver = Driver::new(engine, medium, Model::new(blocks), rng, COLLECTOR_BUFS);
        driver.start().unwrap();
        driver.deduplicate(&policy, &[]).unwrap();
        Self(driver)
    }

    pub fn stats(&self) -> Stats {
        self.0.core.stats()
    }

    pub fn ask(&mut self, ask: &Ask) {
        assert!(self.0.ask(ask).unwrap(), "there are buffers");
    }

    pub fn ask_write(&mut self, lba: u64, token: u32) {
        self.ask(&Ask::Write {
            lba,
            tokens: vec![token],
            fua: false,
        });
    }

    /// Writes, and makes the write durable.
    pub fn write(&mut self, lba: u64, token: u32) {
        self.ask_write(lba, token);
        self.flush();
    }

    pub fn flush(&mut self) {
        self.0.settle().unwrap();
        self.ask(&Ask::Flush);
        self.0.settle().unwrap();
    }

    pub fn discard(&mut self, lba: u64) {
        self.ask(&Ask::Discard {
            lba,
            blocks: 1,
            fua: false,
        });
    }

    /// Reads. The model also checks the result.
    pub fn read(&mut self, lba: u64) -> Seen {
        self.ask(&Ask::Read { lba, blocks: 1 });
        self.0.settle().unwrap();
        self.0.last_read[0]
    }

    pub fn assert_reads(&mut self, blocks: &[(u64, u32)]) {
        for &(lba, token) in blocks {
            assert_eq!(self.read(lba), Seen::Token(token), "LBA {lba}");
        }
    }

    /// Carries out every effect that is not held back.
    pub fn run(&mut self) {
        while self.0.advance().unwrap() {}
    }

    /// Releases what was held back, and carries out everything.
    pub fn release(&mut self) {
        self.0.holds = |_| false;
        self.0.settle().unwrap();
    }

    /// The blocks of the medium that hold a content.
    pub fn places(&self, token: u32) -> Vec<u64> {
        let medium = &self.0.medium;
        let all = 0..medium.blocks();
        all.filter(|&at| medium.is_data(at) && medium.read(at).token() == token)
            .collect()
    }

    pub fn end(mut self) {
        self.0.settle_shutdown().unwrap();
        open::check(&self.0.medium).unwrap();
    }
}

/// Runs `prepare` to its end, then `act` effect by effect, with a power cut after each number of steps, until `act` is complete.
pub fn crash_everywhere(
    policies: &[DedupPolicy],
    prepare: impl Fn(&mut Bench),
    act: impl Fn(&mut Bench),
) {
    let mut cuts = 0;
    for seed in 0..24 {
        for steps in 0.. {
            let policy = policies[seed as usize % policies.len()];
            let mut bench = Bench::new(seed, volume(), policy);
            prepare(&mut bench);
            bench.flush();
            act(&mut bench);
            bench.ask(&Ask::Flush);
            let through = !(0..steps).all(|_| bench.0.advance().unwrap());
            let (mut medium, mut model, ..) = bench.0.crash(true).unwrap();
            open::check(&medium).unwrap();
            let blocks = model.blocks();
            let mut rng = Rng::new(seed);
            let engine = engine_on(&mut medium, &mut rng, 8);
            model.believe_all();
            let mut after = Driver::new(engine, medium, model, rng, COLLECTOR_BUFS);
            after.start().unwrap();
            let mut seen = Vec::new();
            for lba in 0..blocks {
                after.ask(&Ask::Read { lba, blocks: 1 }).unwrap();
                after.settle().unwrap();
                seen.push(after.last_read[0]);
            }
            let judged = after.model.judge(&seen);
            judged.unwrap_or_else(|why| panic!("seed {seed}, {steps} steps: {why}"));
            cuts += 1;
            if through {
                break;
            }
        }
    }
    println!("{cuts} crashes");
    assert!(cuts > 100);
}
