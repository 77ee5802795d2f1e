//! What each layout writes for deduplicated writes: OrderMergeDedup's figures 2 and 3 on loads with its duplicate
//! shares, in virtual time. The same every time.
//!
//!     cargo run --release -p vellum-core --example layouts
//!
//! The loads are synthetic; their share of duplicates, and how much they write to, are the paper's. Times are of a drive that takes 100 us for a
//! write or a read and 10 us more for each block, and 1 ms for a sync.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a measurement: what goes wrong ends it"
)]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use vellum_core::addr::{Buf, EffectId, Lba, Nanos, Pba, RequestId};
use vellum_core::engine::{Buffers, Engine, Options};
use vellum_core::format::areas::Layout;
use vellum_core::format::geometry::{Params, plan, plan_tables};
use vellum_core::format::{blank, superblock::Superblock};
use vellum_core::layout::{Core, Recovered, recover};
use vellum_core::recovery::{Source, Unreadable};
use vellum_core::seam::{Against, Block, Dedup, Digest, Effect, Input, Outcome, Payload};
use vellum_core::tables::{self, Persistence, Tables};

const BUFS: u32 = 4096;
const MEDIUM_BLOCKS: u64 = 200_000;
const LOGICAL_BLOCKS: u64 = 100_000;

/// A load.
struct Load {
    name: &'static str,
    /// Of the blocks written, in percent: have a content that was written before.
    duplicates: u64,
    requests: u32,
    /// Blocks of a request.
    blocks: u32,
    /// Blocks of the volume that it writes to: as much as the paper's takes (§4.4), a volume's size at most.
    span: u64,
    /// In percent: goes on where the last one ended.
    sequential: u64,
    flush_every: u32,
    /// Between two requests.
    gap_us: u64,
}

const LOADS: [Load; 6] = [
    Load {
        name: "index update",
        duplicates: 23,
        requests: 4000,
        blocks: 8,
        span: 43000,
        sequential: 90,
        flush_every: 400,
        gap_us: 300,
    },
    Load {
        name: "installation",
        duplicates: 30,
        requests: 6000,
        blocks: 4,
        span: 35000,
        sequential: 70,
        flush_every: 60,
        gap_us: 200,
    },
    Load {
        name: "web browsing",
        duplicates: 73,
        requests: 3000,
        blocks: 1,
        span: 2800,
        sequential: 40,
        flush_every: 40,
        gap_us: 3000,
    },
    Load {
        name: "camera frames",
        duplicates: 27,
        requests: 4000,
        blocks: 2,
        span: 3300,
        sequential: 95,
        flush_every: 200,
        gap_us: 2000,
    },
    Load {
        name: "sort of files",
        duplicates: 55,
        requests: 3000,
        blocks: 16,
        span: 20000,
        sequential: 85,
        flush_every: 500,
        gap_us: 250,
    },
    Load {
        name: "database",
        duplicates: 24,
        requests: 8000,
        blocks: 2,
        span: 95000,
        sequential: 30,
        flush_every: 200,
        gap_us: 150,
    },
];

/// What is compared.
struct Config {
    name: &'static str,
    layout: Layout,
    later: bool,
    anticipation: bool,
}

const CONFIGS: [Config; 5] = [
    Config {
        name: "shadow",
        layout: Layout::Shadow,
        later: true,
        anticipation: false,
    },
    Config {
        name: "ordered",
        layout: Layout::Ordered,
        later: false,
        anticipation: false,
    },
    Config {
        name: "+ merging",
        layout: Layout::Ordered,
        later: true,
        anticipation: false,
    },
    Config {
        name: "+ anticipation",
        layout: Layout::Ordered,
        later: true,
        anticipation: true,
    },
    Config {
        name: "log",
        layout: Layout::Log,
        later: true,
        anticipation: false,
    },
];

struct Rng(u64);

impl Rng {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// A write of a load.
struct Write {
    lba: u64,
    contents: Vec<u32>,
}

fn writes(load: &Load) -> Vec<Write> {
    let mut rng = Rng(7);
    let (mut next, mut at) = (1, 0);
    let mut out = Vec::new();
    for _ in 0..load.requests {
        if !rng.percent(load.sequential) {
            at = rng.below(load.span);
        }
        at %= load.span;
        let contents = (0..load.blocks)
            .map(|_| match next > 1 && rng.percent(load.duplicates) {
                true => 1 + rng.below(next - 1) as u32,
                false => {
                    next += 1;
                    (next - 1) as u32
                }
            })
            .collect();
        out.push(Write { lba: at, contents });
        at += u64::from(load.blocks);
    }
    out
}

/// Metadata is kept as bytes, data as contents.
#[derive(Default)]
struct Medium {
    bytes: BTreeMap<u64, Vec<u8>>,
    data: BTreeMap<u64, u32>,
}

impl Source for Medium {
    fn read(&mut self, at: Pba, out: &mut [u8]) -> Result<(), Unreadable> {
        for (block, out) in (at.0..).zip(out.chunks_exact_mut(4096)) {
            match self.bytes.get(&block) {
                Some(bytes) => out.copy_from_slice(bytes),
                None => out.fill(0),
            }
        }
        Ok(())
    }
}

/// An effect that ends, or the next request.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Done(u32),
    Same(u32, bool),
}

struct Run {
    core: Core,
    medium: Medium,
    bufs: Vec<u32>,
    free: Vec<u32>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    serial: u64,
    now: u64,
    written: u64,
    answered: u64,
    latency: u64,
    asked: BTreeMap<u32, u64>,
}

fn superblock(layout: Layout) -> Superblock {
    let params = Params {
        medium_blocks: MEDIUM_BLOCKS,
        logical_blocks: Some(LOGICAL_BLOCKS),
        over_provisioning: 100,
        segment_blocks: None,
        uuid: [1; 16],
        secret: [2; 32],
    };
    match layout {
        Layout::Log => plan(&params),
        tables => plan_tables(&params, tables),
    }
    .unwrap()
}

impl Run {
    fn new(config: &Config, persistence: Persistence) -> Self {
        let mut medium = Medium::default();
        blank(
            &superblock(config.layout),
            crc32c::crc32c,
            &mut |at, bytes| {
                for (block, bytes) in (at.0..).zip(bytes.chunks_exact(4096)) {
                    medium.bytes.insert(block, bytes.to_vec());
                }
            },
        );
        let mut recovered = recover(&mut medium, MEDIUM_BLOCKS, crc32c::crc32c).unwrap();
        recovered.begin_life();
        let shared = Options::default();
        let core: Core = match recovered {
            Recovered::Log(found) => {
                let buffers = Buffers {
                    first: Buf(BUFS),
                    count: 96,
                };
                Engine::new(*found, buffers, shared, crc32c::crc32c).into()
            }
            Recovered::Tables(found) => {
                let all = tables::Options::new(&shared, persistence);
                let options = tables::Options {
                    later_nanos: if config.later { all.later_nanos } else { 0 },
                    anticipation_nanos: if config.anticipation {
                        all.anticipation_nanos
                    } else {
                        0
                    },
                    ..all
                };
                Tables::new(*found, options, crc32c::crc32c).into()
            }
        };
        let mut run = Self {
            core,
            medium,
            bufs: vec![0; BUFS as usize + 96],
            free: (0..BUFS).collect(),
            events: BinaryHeap::new(),
            serial: 0,
            now: 1,
            written: 0,
            answered: 0,
            latency: 0,
            asked: BTreeMap::new(),
        };
        let policy = Dedup {
            index_bytes: 16 << 20,
            ..Dedup::default()
        };
        run.feed(Input::Dedup { policy });
        run
    }

    fn feed(&mut self, input: Input<'_>) {
        self.core.handle(Nanos(self.now * 1000), input);
        loop {
            while let Some(effect) = self.core.poll_effect() {
                self.start(effect);
            }
            let Some(reply) = self.core.poll_reply() else {
                break;
            };
            reply.result.unwrap();
            self.answered += 1;
            let asked = self.asked.remove(&reply.id.0).unwrap();
            self.latency += self.now - asked;
        }
    }

    fn later(&mut self, us: u64, event: Event) {
        self.serial += 1;
        self.events
            .push(Reverse((self.now + us, self.serial, event)));
    }

    fn write(&mut self, id: EffectId, blocks: u32) {
        self.written += u64::from(blocks);
        self.later(100 + 10 * u64::from(blocks), Event::Done(id.0));
    }

    fn start(&mut self, effect: Effect) {
        match effect {
            Effect::WriteChunk { id, at, blocks, .. } => {
                for index in 0..blocks as usize - 1 {
                    if let Block::Whole(buf) = self.core.chunk_block(id, index) {
                        self.medium
                            .data
                            .insert(at.0 + 1 + index as u64, self.bufs[buf.0 as usize]);
                    }
                }
                self.write(id, blocks);
            }
            Effect::WriteData { id, at, blocks } => {
                let bufs: Vec<Buf> = self.core.chunk_bufs(id).collect();
                for (block, buf) in (at.0..).zip(bufs) {
                    self.medium.data.insert(block, self.bufs[buf.0 as usize]);
                }
                self.write(id, blocks);
            }
            Effect::WriteMeta { id, blocks, .. } => {
                let mut bytes = vec![0; blocks as usize * 4096];
                self.core.encode(id, &mut bytes);
                self.write(id, blocks);
            }
            Effect::Sync { id } => self.later(1000, Event::Done(id.0)),
            Effect::Erase { id, .. } => self.later(100, Event::Done(id.0)),
            Effect::Compare { id, buf, with } => {
                let content = self.bufs[buf.0 as usize];
                let (us, other) = match with {
                    Against::Medium(at) => (110, self.medium.data.get(&at.0).copied()),
                    Against::Buffer(buf) => (1, Some(self.bufs[buf.0 as usize])),
                    Against::Part(..) => unreachable!("nothing is stored in parts"),
                };
                self.later(us, Event::Same(id.0, other == Some(content)));
            }
            Effect::Release { buf } => self.free.push(buf.0),
            Effect::Stopped => {}
            other => unreachable!("writes alone never ask for {other:?}"),
        }
    }

    /// Lets time pass until `until`, or until nothing happens any more before it.
    fn pass(&mut self, until: u64) {
        loop {
            let event = self.events.peek().map(|Reverse((at, ..))| *at);
            let due = self
                .core
                .poll_timeout()
                .map(|at| at.0.div_ceil(1000).max(self.now));
            let next = [event, due].into_iter().flatten().min();
            let Some(at) = next.filter(|at| *at <= until) else {
                break;
            };
            self.now = self.now.max(at);
            if event == Some(at) {
                let Reverse((_, _, event)) = self.events.pop().unwrap();
                let (id, outcome) = match event {
                    Event::Done(id) => (id, Outcome::Ok),
                    Event::Same(id, same) => (id, Outcome::Same(same)),
                };
                self.feed(Input::Done {
                    id: EffectId(id),
                    outcome,
                });
            } else {
                self.feed(Input::Tick);
            }
        }
        self.now = self.now.max(until);
    }

    fn settle(&mut self) {
        while !self.asked.is_empty() {
            self.pass(self.now + 100);
        }
    }
}

/// Blocks written, and the mean time of a request in microseconds.
fn measure(load: &Load, config: &Config, persistence: Persistence) -> (u64, u64) {
    let strong = persistence == Persistence::Strong;
    let mut run = Run::new(config, persistence);
    let mut ids: VecDeque<u32> = (0..64).collect();
    for (number, write) in writes(load).into_iter().enumerate() {
        let started = run.now;
        // At most so many at once: then it waits, as an application does.
        while run.asked.len() >= 16 || run.free.len() < 64 {
            run.pass(run.now + 20);
        }
        let mut payloads = Vec::new();
        for content in write.contents {
            let buf = run.free.pop().unwrap();
            run.bufs[buf as usize] = content;
            let digest = Digest {
                crc: content.wrapping_mul(0x9e37_79b1),
                first: content,
                ..Digest::default()
            };
            payloads.push(Payload {
                buf: Buf(buf),
                digest,
            });
        }
        let mut ask = |run: &mut Run| {
            let id = ids.pop_front().unwrap();
            ids.push_back(id);
            run.asked.insert(id, run.now);
            RequestId(id)
        };
        let id = ask(&mut run);
        run.feed(Input::Write {
            id,
            lba: Lba(write.lba),
            blocks: &payloads,
            fua: strong && config.layout == Layout::Log,
        });
        if (number as u32 + 1).is_multiple_of(load.flush_every) {
            let id = ask(&mut run);
            run.feed(Input::Flush { id });
            run.settle();
        }
        run.pass(started + load.gap_us);
    }
    run.settle();
    let id = RequestId(63);
    run.asked.insert(63, run.now);
    run.feed(Input::Flush { id });
    run.settle();
    // What was held back is written as well: nothing is saved by not counting it.
    run.feed(Input::Shutdown);
    run.pass(run.now + 60_000_000);
    (run.written, run.latency / run.answered)
}

fn main() {
    for persistence in [Persistence::Weak, Persistence::Strong] {
        println!(
            "\n{persistence:?} persistence: blocks written, in per cent of the blocks that clients wrote (mean time of a request, us)\n"
        );
        print!("| load | duplicates | ideal |");
        CONFIGS
            .iter()
            .for_each(|config| print!(" {} |", config.name));
        println!("\n| --- | --- | --- |{}", " --- |".repeat(CONFIGS.len()));
        for load in &LOADS {
            let writes = writes(load);
            let all: Vec<u32> = writes
                .iter()
                .flat_map(|w| w.contents.iter().copied())
                .collect();
            let host = all.len() as u64;
            let unique = all.iter().max().copied().unwrap_or_default();
            let percent = |blocks: u64| blocks as f64 * 100.0 / host as f64;
            let ideal = percent(unique.into());
            print!("| {} | {:.0}% | {ideal:.1} |", load.name, 100.0 - ideal);
            for config in &CONFIGS {
                let (written, us) = measure(load, config, persistence);
                print!(" {:.1} ({us}) |", percent(written));
            }
            println!();
        }
    }
}
