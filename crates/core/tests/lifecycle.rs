//! The engine on a medium that does everything at once: the life of a volume when nothing fails. The crash tests are in
//! `crash.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::collections::HashMap;
use vellum_core::addr::{BLOCK_BYTES, Buf, EffectId, Lba, Nanos, Pba, RequestId};
use vellum_core::engine::{Buffers, Engine, Options};
use vellum_core::format::{self, geometry};
use vellum_core::recovery::{self, Source, Unreadable};
use vellum_core::seam::{Ack, Digest, Effect, Input, Outcome, Payload, Refusal, Unmap};

const BUFS: u32 = 1 << 20;
const ERASE_BLOCKS_MAX: u32 = 6400;

/// Whole blocks of metadata; for data only a tag, which is also its checksum.
#[derive(Clone, Default)]
struct Medium(HashMap<u64, Vec<u8>>);

const SECRET: [u8; 32] = [9; 32];

fn block(tag: u32) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_BYTES];
    bytes[..4].copy_from_slice(&tag.to_le_bytes());
    bytes
}

fn sum(block: &[u8]) -> u32 {
    let seed = u64::from_le_bytes([SECRET[0]; 8]);
    format::BlockSum::Xxh3 { seed }.of(block)
}

impl Source for Medium {
    fn read(&mut self, at: Pba, bytes: &mut [u8]) -> Result<(), Unreadable> {
        for (index, out) in bytes.chunks_exact_mut(BLOCK_BYTES).enumerate() {
            match self.0.get(&(at.0 + index as u64)) {
                Some(bytes) => out.copy_from_slice(bytes),
                None => out.fill(0),
            }
        }
        Ok(())
    }

    fn drop_cache(&mut self) -> Result<(), Unreadable> {
        Ok(())
    }
}

struct World {
    medium: Medium,
    engine: Engine,
    bufs: HashMap<u32, u32>,
    free: Vec<u32>,
    collected: HashMap<u32, u32>,
    read: Vec<u32>,
    reply: Option<Result<(), Refusal>>,
    stopped: bool,
    syncs: u64,
    /// Where segments were erased, and how many blocks at once.
    erased: Vec<(u64, u32)>,
}

impl World {
    fn create(blocks: u64, logical: Option<u64>) -> Self {
        let params = geometry::Params {
            medium_blocks: blocks,
            logical_blocks: logical,
            over_provisioning: 100,
            segment_blocks: Some(64),
            uuid: [7; 16],
            secret: SECRET,
            sums: format::SumKind::default(),
        };
        let superblock = geometry::plan(&params).unwrap();
        let mut medium = Medium::default();
        format::blank(&superblock, crc32c::crc32c, &mut |at, bytes| {
            for (index, block) in bytes.chunks_exact(BLOCK_BYTES).enumerate() {
                medium.0.insert(at.0 + index as u64, block.to_vec());
            }
        });
        Self::open(medium, blocks)
    }

    fn open(mut medium: Medium, blocks: u64) -> Self {
        let mut recovered = recovery::recover(&mut medium, blocks, crc32c::crc32c).unwrap();
        recovered.superblock.begin_life(recovered.log_end());
        let mut bytes = [0; BLOCK_BYTES];
        recovered.superblock.encode(crc32c::crc32c, &mut bytes);
        for mirror in recovered.superblock.mirrors() {
            medium.0.insert(mirror.0, bytes.to_vec());
        }
        let buffers = Buffers {
            first: Buf(BUFS),
            count: 128,
        };
        let options = Options {
            discard: true,
            erase_blocks_max: ERASE_BLOCKS_MAX,
            ..Options::default()
        };
        let engine = Engine::new(recovered, buffers, options, crc32c::crc32c);
        let mut world = Self {
            medium,
            engine,
            bufs: HashMap::new(),
            free: (0..4096).collect(),
            collected: HashMap::new(),
            read: Vec::new(),
            reply: None,
            stopped: false,
            syncs: 0,
            erased: Vec::new(),
        };
        world.run();
        world
    }

    fn tag_of(&self, buf: Buf) -> u32 {
        if buf.0 >= BUFS {
            self.collected[&buf.0]
        } else {
            self.bufs[&buf.0]
        }
    }

    fn run(&mut self) {
        loop {
            if let Some(reply) = self.engine.poll_reply() {
                self.reply = Some(reply.result);
                continue;
            }
            let Some(effect) = self.engine.poll_effect() else {
                return;
            };
            self.carry_out(effect);
        }
    }

    fn done(&mut self, id: vellum_core::addr::EffectId, outcome: Outcome<'_>) {
        self.engine.handle(Nanos(0), Input::Done { id, outcome });
    }

    fn sums(&self, at: Pba, blocks: u32) -> Vec<u32> {
        (0..u64::from(blocks))
            .map(|i| sum(&self.medium.0[&(at.0 + i)]))
            .collect()
    }

    fn tags(&self, at: Pba, blocks: u32) -> Vec<u32> {
        (0..u64::from(blocks))
            .map(|i| u32::from_le_bytes(self.medium.0[&(at.0 + i)][..4].try_into().unwrap()))
            .collect()
    }

    fn write_chunk(&mut self, id: EffectId, at: Pba, blocks: usize) {
        let mut header = vec![0; BLOCK_BYTES];
        self.engine.encode_header(id, &mut header, &mut |_, _, _| {
            unreachable!("nothing is packed")
        });
        self.medium.0.insert(at.0, header);
        let bufs = self.engine.chunk_bufs(id);
        let data: Vec<_> = bufs.map(|buf| self.tag_of(buf)).collect();
        assert_eq!(data.len() + 1, blocks);
        for (index, tag) in data.into_iter().enumerate() {
            self.medium.0.insert(at.0 + 1 + index as u64, block(tag));
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::WriteChunk { id, at, blocks, .. } => {
                self.write_chunk(id, at, blocks as usize);
                self.done(id, Outcome::Ok);
            }
            Effect::WriteMeta { id, at, blocks, .. } => {
                let mut bytes = vec![0; blocks as usize * BLOCK_BYTES];
                self.engine.encode(id, &mut bytes);
                for (index, block) in bytes.chunks_exact(BLOCK_BYTES).enumerate() {
                    self.medium.0.insert(at.0 + index as u64, block.to_vec());
                }
                self.done(id, Outcome::Ok);
            }
            Effect::Sync { id } => {
                self.syncs += 1;
                self.done(id, Outcome::Ok);
            }
            Effect::Erase { id, at, blocks } => {
                self.erased.push((at.0, blocks));
                self.done(id, Outcome::Ok);
            }
            Effect::Read {
                id,
                at,
                blocks,
                first,
                ..
            } => {
                let (tags, sums) = (self.tags(at, blocks), self.sums(at, blocks));
                self.read[first as usize..first as usize + tags.len()].copy_from_slice(&tags);
                self.done(id, Outcome::Sums(&sums));
            }
            Effect::Gather { id, at, blocks, to } => {
                for (index, tag) in self.tags(at, blocks).into_iter().enumerate() {
                    self.collected.insert(to.0 + index as u32, tag);
                }
                let sums = self.sums(at, blocks);
                self.done(id, Outcome::Sums(&sums));
            }
            Effect::ReadMeta { id, at, blocks } => {
                let mut bytes = vec![0; blocks as usize * BLOCK_BYTES];
                self.medium.read(at, &mut bytes).unwrap();
                self.done(id, Outcome::Bytes(&bytes));
            }
            Effect::CopyOut { from, index, .. } => self.read[index as usize] = self.tag_of(from),
            Effect::ZeroOut { first, blocks, .. } => {
                self.read[first as usize..(first + blocks) as usize].fill(0);
            }
            Effect::Release { buf } => {
                self.bufs.remove(&buf.0).expect("released once");
                self.free.push(buf.0);
            }
            Effect::Compare { .. } | Effect::Fingerprint { .. } => {
                unreachable!("no journal is watched")
            }
            Effect::ReadParts { .. } | Effect::GatherPart { .. } => {
                unreachable!("nothing is packed")
            }
            Effect::WriteData { .. } => unreachable!("a log writes chunks"),
            Effect::Stored { .. } | Effect::GivenUp { .. } => {
                unreachable!("no deltas are made")
            }
            Effect::Stopped => self.stopped = true,
        }
    }

    fn request(&mut self, input: Input<'_>) -> Result<(), Refusal> {
        self.reply = None;
        self.engine.handle(Nanos(0), input);
        self.run();
        self.reply.take().expect("answered")
    }

    fn write(&mut self, lba: u64, tag: u32) -> Result<(), Refusal> {
        let buf = self.free.pop().expect("a free buffer");
        self.bufs.insert(buf, tag);
        let digest = Digest {
            first: 0,
            sum: sum(&block(tag)),
            weak: 0,
            zero: tag == 0,
            packed: None,
            ..Digest::default()
        };
        let blocks = [Payload {
            buf: Buf(buf),
            digest,
        }];
        self.request(Input::Write {
            id: RequestId(0),
            lba: Lba(lba),
            blocks: &blocks,
            ack: Ack::Placed,
        })
    }

    fn read(&mut self, lba: u64, blocks: u32) -> Vec<u32> {
        self.read = vec![u32::MAX; blocks as usize];
        self.request(Input::Read {
            id: RequestId(0),
            lba: Lba(lba),
            blocks,
        })
        .unwrap();
        self.read.clone()
    }

    fn flush(&mut self) {
        self.request(Input::Flush { id: RequestId(0) }).unwrap();
    }
}

#[test]
fn a_full_volume_survives_overwrites_and_reopening() {
    let blocks = 4096;
    let mut world = World::create(blocks, None);
    let logical = world.engine.superblock().logical_blocks();
    let mut model = vec![0u32; logical as usize];
    let mut random = 1u64;
    let mut collections = 0;
    for round in 0..40_000u32 {
        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let lba = (random >> 33) % logical;
        let tag = if random.is_multiple_of(50) {
            0
        } else {
            round + 1
        };
        world.write(lba, tag).unwrap();
        model[lba as usize] = tag;
        if round % 97 == 0 {
            world.flush();
        }
        if round % 5000 == 4999 {
            if round % 10_000 == 9999 {
                world.engine.handle(Nanos(0), Input::Shutdown);
                world.run();
                assert!(world.stopped);
            } else {
                world.flush();
            }
            collections += world.engine.stats().collections;
            world = World::open(world.medium, blocks);
            assert_eq!(world.read(0, logical as u32), model, "after round {round}");
        }
    }
    assert!(collections > 100, "{collections} segments collected");
    assert_eq!(world.read(0, logical as u32), model);
}

#[test]
fn a_full_thin_volume_refuses_new_blocks_and_comes_back() {
    let mut world = World::create(2048, Some(8192));
    let mut written = 0;
    while world.write(written, written as u32 + 1) == Ok(()) {
        written += 1;
        assert!(written < 2048);
    }
    world.flush();
    assert_eq!(world.read(written - 1, 1), [written as u32]);
    assert_eq!(
        world.write(0, 99),
        Ok(()),
        "an overwrite takes no new space"
    );
    let unmap = Unmap {
        lba: Lba(100),
        blocks: 1000,
        fua: false,
        zero: false,
    };
    let id = RequestId(0);
    world.request(Input::Unmap { id, unmap }).unwrap();
    assert_eq!(world.read(500, 2), [0, 0]);
    for lba in 0..900 {
        world.write(7000 + lba, 5).unwrap();
    }
    assert_eq!(world.read(7899, 1), [5]);
}

/// Opening a large volume must not take the time of erasing each of its segments separately.
#[test]
fn segments_found_empty_are_erased_in_long_runs() {
    let blocks = 200_000;
    let runs = |world: &World| {
        let segments = u64::from(world.engine.superblock().segment_count());
        let erased = &world.erased;
        assert!(erased.iter().all(|&(_, blocks)| blocks <= ERASE_BLOCKS_MAX));
        let all: u64 = erased.iter().map(|&(_, blocks)| u64::from(blocks)).sum();
        // All but the segments that the heads and the log are in.
        assert!((segments - 8..segments).contains(&(all / 64)), "{all}");
        let free = world.engine.stats().free_segments;
        assert!(free >= segments - 8, "{free} of {segments}");
        erased.len()
    };
    let mut world = World::create(blocks, None);
    assert!(runs(&world) <= 40, "{:?}", world.erased);
    for lba in 0..100 {
        world.write(lba * 7, lba as u32 + 1).unwrap();
    }
    world.flush();
    // As after a crash.
    let mut world = World::open(world.medium.clone(), blocks);
    assert!(runs(&world) <= 44, "{:?}", world.erased);
    assert_eq!(world.read(7, 1), [2]);
    world.engine.handle(Nanos(0), Input::Shutdown);
    world.run();
    // As after a stop.
    let world = World::open(world.medium.clone(), blocks);
    assert_eq!(world.erased, []);
}

#[test]
fn a_flush_with_nothing_new_is_free() {
    let mut world = World::create(2048, None);
    world.write(3, 3).unwrap();
    world.flush();
    let stats = world.engine.stats();
    assert_eq!(
        (stats.durable_chunks, stats.syncs),
        (1, 0),
        "one durable write, no sync"
    );
    world.flush();
    assert_eq!(world.engine.stats().flushes_free, 1);
}
