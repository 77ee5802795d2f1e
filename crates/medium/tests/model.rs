//! Every medium compared with a plain vector: a read returns what was last written, whatever the order of submission and the
//! shape of the memory.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Memory, files, finish, run};
use proptest::prelude::*;
use std::collections::HashMap;
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_medium::envelope::{START, VolumeKey};
use vellum_medium::{
    Done, EncryptedMedium, FaultMedium, Io, Kind, Medium, MemoryMedium, Plan, Prealloc,
};

const BLOCKS: u64 = 64;

#[derive(Clone, Debug)]
enum Step {
    /// Operations on disjoint places, in flight together.
    Batch(Vec<Op>),
    Write {
        at: u64,
        blocks: u64,
        skew: usize,
    },
    Read {
        at: u64,
        blocks: u64,
        skew: usize,
    },
    Sync,
}

#[derive(Clone, Debug)]
enum Op {
    Write {
        at: u64,
        blocks: u64,
        durable: bool,
        scattered: bool,
    },
    Read {
        at: u64,
        blocks: u64,
        scattered: bool,
    },
    Discard {
        at: u64,
        blocks: u64,
    },
    Sync,
}

impl Op {
    fn range(&self) -> std::ops::Range<u64> {
        match *self {
            Self::Write { at, blocks, .. }
            | Self::Read { at, blocks, .. }
            | Self::Discard { at, blocks } => at..at + blocks,
            Self::Sync => 0..0,
        }
    }
}

fn range() -> impl Strategy<Value = (u64, u64)> {
    (0..BLOCKS).prop_flat_map(|at| (Just(at), 1..=(BLOCKS - at).min(20)))
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (range(), any::<bool>(), any::<bool>())
            .prop_map(|((at, blocks), durable, scattered)| Op::Write { at, blocks, durable, scattered }),
        4 => (range(), any::<bool>())
            .prop_map(|((at, blocks), scattered)| Op::Read { at, blocks, scattered }),
        1 => range().prop_map(|(at, blocks)| Op::Discard { at, blocks }),
        1 => Just(Op::Sync),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let skew = prop_oneof![Just(0usize), 0..BLOCK_BYTES];
    prop_oneof![
        6 => prop::collection::vec(op(), 1..12).prop_map(Step::Batch),
        1 => (range(), skew.clone()).prop_map(|((at, blocks), skew)| Step::Write { at, blocks, skew }),
        1 => (range(), skew).prop_map(|((at, blocks), skew)| Step::Read { at, blocks, skew }),
        1 => Just(Step::Sync),
    ]
}

/// Returns what a block holds after the `n`th write of the test.
fn content(n: u64, block: u64) -> [u8; BLOCK_BYTES] {
    let mut bytes = [0; BLOCK_BYTES];
    for (i, word) in bytes.chunks_exact_mut(8).enumerate() {
        let value = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ block << 32 ^ i as u64;
        word.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// What a read may return: after a discard, anything is allowed until the block is written again.
struct Model {
    blocks: Vec<Option<Box<[u8; BLOCK_BYTES]>>>,
    writes: u64,
}

impl Model {
    fn new() -> Self {
        Self {
            blocks: (0..BLOCKS)
                .map(|_| Some(Box::new([0; BLOCK_BYTES])))
                .collect(),
            writes: 0,
        }
    }

    fn check(&self, name: &str, block: u64, bytes: &[u8]) {
        if let Some(expected) = &self.blocks[block as usize] {
            assert!(
                expected[..] == *bytes,
                "{name}: block {block} is not what was written"
            );
        }
    }

    fn step(&mut self, medium: &dyn Medium, step: &Step) {
        match step {
            Step::Sync => medium.sync().unwrap(),
            &Step::Write { at, blocks, skew } => {
                self.writes += 1;
                let mut bytes = vec![0; skew + blocks as usize * BLOCK_BYTES];
                for (i, chunk) in bytes[skew..].chunks_exact_mut(BLOCK_BYTES).enumerate() {
                    let new = content(self.writes, at + i as u64);
                    chunk.copy_from_slice(&new);
                    self.blocks[at as usize + i] = Some(Box::new(new));
                }
                medium.write(Pba(at), &bytes[skew..]).unwrap();
            }
            &Step::Read { at, blocks, skew } => {
                let mut bytes = vec![0; skew + blocks as usize * BLOCK_BYTES];
                medium.read(Pba(at), &mut bytes[skew..]).unwrap();
                for (i, chunk) in bytes[skew..].chunks_exact(BLOCK_BYTES).enumerate() {
                    self.check(medium.name(), at + i as u64, chunk);
                }
            }
            Step::Batch(ops) => self.batch(medium, ops),
        }
    }

    fn batch(&mut self, medium: &dyn Medium, ops: &[Op]) {
        let mut taken: Vec<std::ops::Range<u64>> = Vec::new();
        let mut memories: HashMap<u64, (Memory, Op)> = HashMap::new();
        let mut ios = Vec::new();
        for (token, op) in ops.iter().enumerate() {
            let (token, range) = (token as u64, op.range());
            if taken
                .iter()
                .any(|t| t.start < range.end && range.start < t.end)
            {
                continue; // operations in flight together have no order
            }
            taken.push(range);
            let mut memory = Memory::new(64);
            ios.push(self.io(token, op, &mut memory));
            memories.insert(token, (memory, op.clone()));
        }
        for done in done(medium, ios) {
            let (memory, op) = memories.remove(&done.io.token).unwrap();
            self.finish(medium, &op, &memory);
        }
        assert!(memories.is_empty());
    }

    /// The operation as the medium takes it; what is written is new.
    fn io(&mut self, token: u64, op: &Op, memory: &mut Memory) -> Box<Io> {
        match *op {
            Op::Sync => Io::new(token, Kind::Sync, Pba(0)),
            Op::Discard { at, blocks } => Io::new(token, Kind::Discard { blocks }, Pba(at)),
            Op::Read {
                at,
                blocks,
                scattered: true,
            } => memory.scattered(token, Kind::Read, at, blocks as usize),
            Op::Read { at, blocks, .. } => memory.io(token, Kind::Read, at, 0, blocks as usize),
            Op::Write {
                at,
                blocks,
                durable,
                scattered,
            } => {
                self.writes += 1;
                let kind = Kind::Write { durable };
                for i in 0..blocks as usize {
                    let place = if scattered { 2 * i + 1 } else { i };
                    *memory.block_mut(place) = content(self.writes, at + i as u64);
                }
                if scattered {
                    memory.scattered(token, kind, at, blocks as usize)
                } else {
                    memory.io(token, kind, at, 0, blocks as usize)
                }
            }
        }
    }

    /// Checks what was read, and notes what was changed.
    fn finish(&mut self, medium: &dyn Medium, op: &Op, memory: &Memory) {
        match *op {
            Op::Sync => {}
            Op::Discard { at, blocks } => {
                self.blocks[at as usize..(at + blocks) as usize].fill(None);
            }
            Op::Read {
                at,
                blocks,
                scattered,
            } => {
                for i in 0..blocks as usize {
                    let place = if scattered { 2 * i + 1 } else { i };
                    self.check(medium.name(), at + i as u64, memory.block(place));
                }
            }
            Op::Write {
                at,
                blocks,
                scattered,
                ..
            } => {
                for i in 0..blocks as usize {
                    let place = if scattered { 2 * i + 1 } else { i };
                    self.blocks[at as usize + i] = Some(Box::new(*memory.block(place)));
                }
            }
        }
    }

    fn check_all(&self, medium: &dyn Medium) {
        let mut bytes = vec![0; BLOCKS as usize * BLOCK_BYTES];
        medium.read(Pba(0), &mut bytes).unwrap();
        for (block, bytes) in bytes.chunks_exact(BLOCK_BYTES).enumerate() {
            self.check(medium.name(), block as u64, bytes);
        }
    }
}

/// Checks that all return without an error. A single one is done synchronously, if possible.
#[expect(
    clippy::vec_box,
    reason = "operations change hands by pointer, as the medium wants them"
)]
fn done(medium: &dyn Medium, mut ios: Vec<Box<Io>>) -> Vec<Done> {
    if ios.len() == 1
        && let Some(io) = ios.pop()
    {
        match medium.do_now(io) {
            Ok(done) => {
                done.result.as_ref().unwrap();
                return vec![done];
            }
            Err(io) => ios.push(io),
        }
    }
    run(medium, ios)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn media_are_arrays_of_blocks(steps in prop::collection::vec(step(), 1..24), seed: u64, full: bool) {
        let folder = tempfile::tempdir().unwrap();
        let prealloc = if full { Prealloc::Full } else { Prealloc::Sparse };
        let mut media: Vec<Box<dyn Medium>> = vec![
            Box::new(MemoryMedium::new(BLOCKS)),
            Box::new(FaultMedium::over_memory(BLOCKS, Plan::seeded(seed))),
            Box::new(FaultMedium::over_memory(BLOCKS, Plan { cache_blocks_max: 5, ..Plan::seeded(seed) })),
            Box::new(FaultMedium::over_memory(BLOCKS, Plan { cache_blocks_max: 0, ..Plan::seeded(seed) })),
        ];
        for file in files(folder.path(), BLOCKS, prealloc) {
            prop_assert_eq!(file.wants_discard(), !full);
            media.push(Box::new(file));
        }
        let key = VolumeKey::random().unwrap();
        let folder = tempfile::tempdir().unwrap();
        for file in files(folder.path(), START + BLOCKS, prealloc) {
            media.push(Box::new(EncryptedMedium::new(file, &key)));
        }
        for medium in &media {
            let mut model = Model::new();
            for step in &steps {
                model.step(&**medium, step);
            }
            model.check_all(&**medium);
        }
    }
}

#[test]
fn more_pieces_than_the_system_takes_at_once() {
    let blocks = 2500;
    let folder = tempfile::tempdir().unwrap();
    for file in files(folder.path(), blocks, Prealloc::Sparse) {
        let mut memory = Memory::new(2 * blocks as usize);
        for i in 0..blocks {
            *memory.block_mut(2 * i as usize + 1) = content(1, i);
        }
        let write = memory.scattered(0, Kind::Write { durable: true }, 0, blocks as usize);
        run(&file, vec![write]);
        let mut back = Memory::new(2 * blocks as usize);
        run(
            &file,
            vec![back.scattered(0, Kind::Read, 0, blocks as usize)],
        );
        for i in 0..blocks {
            assert!(*back.block(2 * i as usize + 1) == content(1, i));
        }
    }
}

#[test]
fn an_invalid_operation_comes_back_as_an_error_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let mut media: Vec<Box<dyn Medium>> = vec![
        Box::new(MemoryMedium::new(BLOCKS)),
        Box::new(FaultMedium::over_memory(BLOCKS, Plan::default())),
    ];
    for file in files(folder.path(), BLOCKS, Prealloc::Sparse) {
        media.push(Box::new(file));
    }
    for medium in &media {
        let mut memory = Memory::new(2);
        let mut ios = vec![
            memory.io(0, Kind::Read, BLOCKS - 1, 0, 2),
            memory.io(1, Kind::Write { durable: false }, u64::MAX, 0, 1),
            Io::new(2, Kind::Discard { blocks: u64::MAX }, Pba(1)),
            Io::new(3, Kind::Read, Pba(5)), // nothing to do is no error
        ];
        medium.submit(&mut ios);
        for done in finish(&**medium, 4) {
            if done.io.token == 3 {
                done.result.unwrap();
                continue;
            }
            let e = done.result.unwrap_err();
            assert!(e.to_string().contains(medium.name()), "{e}");
            assert!(e.to_string().contains("past the medium's 64"), "{e}");
            assert!(!e.is_full());
            if done.io.token == 0 {
                assert_eq!(e.offset, (BLOCKS - 1) * BLOCK_BYTES as u64);
            }
        }
        assert!(medium.read(Pba(0), &mut [0; 100]).is_err());
        assert!(medium.write(Pba(BLOCKS), &[0; BLOCK_BYTES]).is_err());
    }
}
