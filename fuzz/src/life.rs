//! A volume that opens is also used: requests at random depth, answered from the image, and a shutdown.
//!
//! The contents of blocks are not kept: checksums are 0 here, and whether a comparison or a decoding succeeds is random, as it
//! is on a medium that something else has written.

use std::collections::HashMap;
use vellum_core::addr::{BLOCK_BYTES, Buf, EffectId, Lba, Nanos, Pba, RequestId};
use vellum_core::engine::{Buffers, Options};
use vellum_core::entry::Earlier;
use vellum_core::index::Holder;
use vellum_core::layout::{Core, Recovered};
use vellum_core::seam::{
    Ack, Against, Bucket, ChunkBlock, DedupPolicy, Digest, Effect, Fingerprint, Hint, Input,
    Outcome, Packed, PagePlace, Payload, Region, Reply, Service, Setting, Unmap, WriteOnce,
};
use vellum_core::tables::Persistence;

const COLLECTOR: Buffers = Buffers {
    first: Buf(1 << 20),
    count: 128,
};
const DEPTH: u32 = 4;
const LONGEST: u64 = 24;

/// The blocks of a medium that are not zeros.
pub type Blocks = HashMap<u64, Vec<u8>>;

struct Life<'a> {
    core: Core,
    blocks: &'a mut Blocks,
    random: u64,
    now: u64,
    flights: Vec<Effect>,
    requests: Vec<RequestId>,
    free: Vec<Buf>,
    stopped: bool,
}

/// Returns the random part of edits of eight bytes each: their fourth bytes.
pub fn chance(edits: &[u8]) -> u64 {
    edits
        .chunks_exact(8)
        .fold(0, |all, edit| all.rotate_left(8) ^ u64::from(edit[3]))
}

/// Sends `requests` requests, chosen by `random`, and shuts down.
pub fn live(mut found: Recovered, blocks: &mut Blocks, random: u64, requests: u32) {
    let Ok(superblock) = found.begin_life() else {
        return;
    };
    let mut block = vec![0; BLOCK_BYTES];
    superblock.encode(|_| 0, &mut block);
    for mirror in superblock.mirrors() {
        blocks.insert(mirror.0, block.clone());
    }
    let options = Options {
        discard: random & 1 == 0,
        cached_sums: 2,
        ..Options::default()
    };
    let mut life = Life {
        requests: (0..DEPTH).map(RequestId).collect(),
        free: (0..DEPTH * LONGEST as u32 * 64).map(Buf).collect(),
        ..Life::new(found, options, blocks, random)
    };
    life.take();
    life.choose_policies();
    for _ in 0..requests {
        match life.requests.pop() {
            Some(id) if life.below(3) > 0 => life.ask(id),
            Some(id) => {
                life.requests.push(id);
                life.advance();
            }
            None => life.advance(),
        }
    }
    life.feed(Input::Shutdown);
    while !life.stopped {
        life.advance();
    }
}

/// Reads everything left of a damaged volume; nothing may be written.
pub fn read_all(found: Recovered, blocks: &mut Blocks, random: u64) {
    let logical = found.superblock().logical_blocks();
    let options = Options {
        cached_sums: 2,
        ..Options::default()
    };
    let mut life = Life::new(found, options, blocks, random);
    life.take();
    for lba in (0..logical).step_by(LONGEST as usize) {
        let blocks = LONGEST.min(logical - lba) as u32;
        let (id, lba) = (RequestId(0), Lba(lba));
        life.feed(Input::Read { id, lba, blocks });
        while life.requests.pop().is_none() {
            life.advance();
        }
    }
}

impl<'a> Life<'a> {
    fn new(found: Recovered, options: Options, blocks: &'a mut Blocks, random: u64) -> Self {
        Life {
            core: Core::new(found, COLLECTOR, options, Persistence::Weak, |_| 0),
            blocks,
            random,
            now: 0,
            flights: Vec::new(),
            requests: Vec::new(),
            free: Vec::new(),
            stopped: false,
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        // SplitMix64's step and last multiplication.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ self.random >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 32) % limit
    }

    fn choose_policies(&mut self) {
        let blocks = self.core.superblock().logical_blocks();
        let region = Region {
            start: Lba(0),
            blocks: blocks / 8,
            homes: Lba(0),
            homes_blocks: blocks,
            rule: WriteOnce::Hash,
        };
        let policy = DedupPolicy {
            index_bytes: 1 << 12,
            ..DedupPolicy::default()
        };
        if self.below(2) == 0 {
            self.feed(Input::Hint(Hint::Journals { regions: &[region] }));
        }
        if self.below(2) == 0 {
            self.feed(Input::Set(Setting::Dedup { policy }));
        }
        let on = self.below(2) == 0;
        self.feed(Input::Set(Setting::Deltas { on }));
    }

    fn ask(&mut self, id: RequestId) {
        let logical = self.core.superblock().logical_blocks();
        let blocks = (1 + self.below(LONGEST)).min(logical);
        let lba = match self.below(2) {
            0 => Lba(0),
            _ => Lba(self.below(logical - blocks + 1)),
        };
        let other = Lba(self.below(logical));
        let fua = self.below(8) == 0;
        match self.below(16) {
            0 => self.feed(Input::Flush { id }),
            kind @ (1 | 2) => {
                let (lba, blocks) = match kind == 1 && self.below(4) == 0 {
                    true => (Lba(0), logical),
                    false => (lba, blocks),
                };
                let unmap = Unmap {
                    lba,
                    blocks,
                    fua,
                    zero: kind == 2,
                };
                self.feed(Input::Unmap { id, unmap });
            }
            3 | 4 => {
                let of = Holder::Lba(other);
                self.feed(Input::Service(Service::Merge { id, lba, of }));
            }
            5 => {
                self.requests.push(id);
                self.feed(Input::Hint(Hint::Committed {
                    pairs: &[(other, lba)],
                }));
            }
            6..10 => self.feed(Input::Read {
                id,
                lba,
                blocks: blocks as u32,
            }),
            _ => {
                let payloads: Vec<_> = (lba.0..lba.0 + blocks)
                    .filter_map(|lba| self.payload(Lba(lba)))
                    .collect();
                match payloads.is_empty() {
                    true => self.requests.push(id),
                    false => self.feed(Input::Write {
                        id,
                        lba,
                        blocks: &payloads,
                        ack: Ack::of(fua),
                    }),
                }
            }
        }
    }

    fn payload(&mut self, lba: Lba) -> Option<Payload> {
        let buf = self.free.pop()?;
        let len = 1 + self.below(3000) as u16;
        let bucket = self.below(12).checked_sub(2);
        let base = match self.core.earlier(lba) {
            Earlier::Base(part) if self.below(2) == 0 => Some(part),
            _ => None,
        };
        let packed = len.try_into().ok().map(|len| Packed {
            len,
            encoding: 1,
            base,
            bucket: bucket.map(|bucket| Bucket(bucket as u32)),
        });
        let digest = Digest {
            weak: self.below(32),
            zero: self.below(8) == 0,
            packed: packed.filter(|_| self.below(2) == 0),
            ..Digest::default()
        };
        Some(Payload { buf, digest })
    }

    fn feed(&mut self, input: Input<'_>) {
        self.now += 1 << 20;
        self.core.handle(Nanos(self.now), input);
        self.take();
    }

    fn take(&mut self) {
        while let Some(Reply { id, .. }) = self.core.poll_reply() {
            assert!(!self.requests.contains(&id), "{id} was answered twice");
            self.requests.push(id);
        }
        while let Some(effect) = self.core.poll_effect() {
            match effect {
                Effect::Release { buf } => self.free.push(buf),
                Effect::Stopped => self.stopped = true,
                Effect::CopyOut { .. }
                | Effect::ZeroOut { .. }
                | Effect::Stored { .. }
                | Effect::GivenUp { .. } => {}
                _ => self.flights.push(effect),
            }
        }
    }

    /// Runs one effect, or lets time pass.
    fn advance(&mut self) {
        if self.flights.is_empty() {
            let due = self.core.poll_timeout().map_or(0, |at| at.0);
            assert!(
                due > 0 || !self.requests.is_empty() || self.stopped,
                "nothing is under way, and a request waits"
            );
            self.now = self.now.max(due);
            return self.feed(Input::Tick);
        }
        let index = self.below(self.flights.len() as u64) as usize;
        let effect = self.flights.swap_remove(index);
        self.carry_out(effect);
    }

    fn done(&mut self, id: EffectId, outcome: Outcome<'_>) {
        self.feed(Input::Done { id, outcome });
    }

    fn put(&mut self, at: Pba, bytes: &[u8]) {
        for (at, block) in (at.0..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
            self.in_medium(Pba(at), 1);
            self.blocks.insert(at, block.to_vec());
        }
    }

    fn in_medium(&self, at: Pba, blocks: u32) {
        let end = self.core.superblock().medium_blocks();
        assert!(
            at.0 + u64::from(blocks) <= end,
            "{blocks} blocks at {at} are outside"
        );
    }

    /// Returns the result of reading a page of parts, or one of them: decoded or not.
    fn decoded(&mut self) -> Outcome<'static> {
        Outcome::Parts {
            sum: 0,
            whole: self.below(8) > 0,
            base: self.below(8) > 0,
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::WriteChunk { id, at, blocks, .. } => {
                let mut bytes = vec![0; blocks as usize * BLOCK_BYTES];
                let (header, data) = bytes.split_at_mut(BLOCK_BYTES);
                for (index, block) in data.chunks_exact_mut(BLOCK_BYTES).enumerate() {
                    if self.core.chunk_block(id, index) == ChunkBlock::Page {
                        self.core.encode_page(id, index, block, &mut |_, _, _| {});
                    }
                }
                self.core.encode_header(id, header, &mut |_, _, _| {});
                self.put(at, &bytes);
                self.done(id, Outcome::Ok);
            }
            Effect::WriteMeta { id, at, blocks, .. } => {
                let mut bytes = vec![0; blocks as usize * BLOCK_BYTES];
                self.core.encode(id, &mut bytes);
                self.put(at, &bytes);
                self.done(id, Outcome::Ok);
            }
            Effect::WriteData { id, at, blocks } | Effect::Erase { id, at, blocks } => {
                self.in_medium(at, blocks);
                self.done(id, Outcome::Ok);
            }
            Effect::Sync { id } => self.done(id, Outcome::Ok),
            Effect::Read { id, at, blocks, .. } | Effect::Gather { id, at, blocks, .. } => {
                self.in_medium(at, blocks);
                self.done(id, Outcome::Sums(&vec![0; blocks as usize]));
            }
            Effect::ReadMeta { id, at, blocks } => {
                self.in_medium(at, blocks);
                let zeros = vec![0; BLOCK_BYTES];
                let bytes: Vec<u8> = (at.0..at.0 + u64::from(blocks))
                    .flat_map(|at| self.blocks.get(&at).unwrap_or(&zeros).clone())
                    .collect();
                self.done(id, Outcome::Bytes(&bytes));
            }
            Effect::ReadParts { id, .. } | Effect::GatherPart { id, .. } => {
                let outcome = self.decoded();
                self.done(id, outcome);
            }
            Effect::Compare { id, with, .. } => {
                let outcome = match with {
                    Against::Part(PagePlace::Medium(_), ..) => self.decoded(),
                    _ => Outcome::Same(self.below(4) > 0),
                };
                self.done(id, outcome);
            }
            Effect::Fingerprint { id, .. } => {
                let print = Fingerprint([self.below(4) as u8; 16]);
                self.done(id, Outcome::Fingerprint(print));
            }
            Effect::CopyOut { .. }
            | Effect::ZeroOut { .. }
            | Effect::Stored { .. }
            | Effect::GivenUp { .. }
            | Effect::Release { .. }
            | Effect::Stopped => unreachable!("has no answer"),
        }
    }
}
