//! Whatever a client writes, everything reported lies on its volume, and memory is bounded. This covers the whole watch, from
//! the scan of a file system with false metadata to the order of its commit blocks.

use crate::ext4;
use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_core::addr::{Buf, Lba, Nanos};
use vellum_core::seam::{Digest, Hint, Payload, WriteOnce};
use vellum_ext4::journal::{JournalBlock, OWN};
use vellum_ext4::{Source, Unreadable, scan};
use vellum_watch::{
    Blocks, Change, Checked, Classes, CommitOrder, Critical, Entry, Findings, Followers, FreeSpace,
    Known, Log, Plan, Reason, Refusal, Scans, Stop, Wait, Wants,
};

const BLOCKS: u64 = 4096;
const BLOCK: usize = 4096;

struct Memory(BTreeMap<u64, Vec<u8>>);

impl Source for &Memory {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Unreadable> {
        for (index, page) in out.chunks_mut(BLOCK).enumerate() {
            match self.0.get(&(offset + (index * BLOCK) as u64)) {
                Some(bytes) => page.copy_from_slice(bytes),
                None => page.fill(0),
            }
        }
        Ok(())
    }
}

struct Written(Vec<Vec<u8>>);

impl Blocks for Written {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn block(&self, index: usize) -> &[u8] {
        &self.0[index]
    }
}

/// Source of choices: the bytes as long as there are any, and then xorshift64*.
struct Choices<'a> {
    bytes: &'a [u8],
    random: u64,
}

impl Choices<'_> {
    fn below(&mut self, n: u64) -> u64 {
        // As few bytes as `n` needs: a fuzzer changes one choice at a time.
        let wanted = if n <= 256 { 1 } else { 2 };
        if let Some((chosen, rest)) = self.bytes.split_at_checked(wanted) {
            self.bytes = rest;
            return chosen
                .iter()
                .fold(0, |all, byte| all << 8 | u64::from(*byte))
                % n;
        }
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) % n
    }
}

/// Returns a volume with some bytes changed: mostly those of the first blocks, where the structures are.
fn volume(choices: &mut Choices<'_>) -> Memory {
    let sound = match choices.below(3) {
        0 => ext4::sound(true),
        1 => ext4::sound(false),
        _ => ext4::mounted(),
    };
    let pages = sound.pages().map(|(at, bytes)| (at, bytes.to_vec()));
    let mut pages: BTreeMap<u64, Vec<u8>> = pages.collect();
    let places: Vec<u64> = pages.keys().copied().collect();
    for _ in 0..choices.below(4) {
        let at = places[choices.below(places.len() as u64) as usize];
        let within = [2048, BLOCK as u64][choices.below(2) as usize];
        let byte = choices.below(within);
        pages.get_mut(&at).unwrap()[byte as usize] = choices.below(256) as u8;
    }
    Memory(pages)
}

/// Returns blocks that look like a journal's own, or like nothing.
fn written(choices: &mut Choices<'_>, memory: &Memory) -> Written {
    let block = |choices: &mut Choices<'_>| {
        let mut block = vec![choices.below(256) as u8; BLOCK];
        if choices.below(8) == 0 {
            let pages = memory.0.values();
            block.clone_from(
                pages.collect::<Vec<_>>()[choices.below(memory.0.len() as u64) as usize],
            );
        } else if choices.below(4) != 0 {
            block[..4].copy_from_slice(&OWN);
            for at in (4..64).step_by(4) {
                let word = [0, 0, 0, choices.below(6) as u8];
                block[at..at + 4].copy_from_slice(&word);
            }
        }
        block
    };
    let count = 1 + choices.below(8);
    Written((0..count).map(|_| block(choices)).collect())
}

fn payload(block: &[u8]) -> Payload {
    Payload {
        buf: Buf(0),
        digest: Digest {
            first: u32::from_le_bytes(*block.first_chunk().unwrap()),
            ..Digest::default()
        },
    }
}

fn lie_on_the_volume(pairs: &[(Lba, Lba)]) {
    let all = pairs.iter().flat_map(|(home, place)| [home, place]);
    assert!(all.into_iter().all(|lba| lba.0 < BLOCKS), "{pairs:?}");
}

fn found(choices: &mut Choices<'_>, memory: &Memory, space: &mut FreeSpace) -> Findings {
    let scan = scan(&mut &*memory, BLOCKS);
    let wants = Wants {
        write_once: [WriteOnce::Hash, WriteOnce::Descriptor][choices.below(2) as usize],
        replay: choices.below(2) == 0,
        deltas: choices.below(2) == 0,
        dedup: true,
    };
    space.want(true);
    let number = space.given_up();
    space.follow(Known::read(&scan, &mut &*memory, BLOCKS), number);
    let classes = Classes::new(&scan, &mut &*memory, BLOCKS, true, &|| false);
    let critical = Critical::new(&scan, BLOCKS);
    let plan = Plan::new(&scan, &[], &wants, BLOCKS);
    for (what, hint) in [("critical", critical.hint()), ("journals", plan.hint())] {
        let on_volume = match hint {
            Hint::Critical { ranges } => ranges.iter().all(|(at, n)| at.0 + n <= BLOCKS),
            Hint::Journals { regions } => regions.iter().all(|it| it.start.0 + it.blocks <= BLOCKS),
            _ => false,
        };
        assert!(on_volume, "{what}: {scan:?}");
    }
    Findings::new(
        Arc::new(scan),
        plan,
        Arc::new(classes),
        Arc::new(critical),
        wants,
    )
}

/// Writes the superblock of the first journal: commit blocks are written before what they commit, from the first transaction
/// on.
fn is_asynchronous(order: &mut CommitOrder, found: &Findings, memory: &Memory) {
    let Some(at) = found
        .commits()
        .first()
        .and_then(|commits| commits.layout().place_of(JournalBlock(0)))
    else {
        return;
    };
    let mut block = memory.0.get(&at).cloned().unwrap_or(vec![0; BLOCK]);
    for (field, value) in [(0x18, 1u32), (0x1C, 1), (0x28, 4)] {
        block[field..field + 4].copy_from_slice(&value.to_be_bytes());
    }
    let payloads = [payload(&block)];
    let change = Change {
        first: at / BLOCK as u64,
        blocks: 1,
        written: Some(&Written(vec![block])),
    };
    let none: [Wait; 0] = [];
    let may_wait = |_: usize, reason: &Reason| *reason != Reason::Scan;
    let stop = order.stop(&change, &payloads, may_wait, none.iter());
    assert_eq!(stop, None);
}

/// Passes a write to the journal readers. Returns how much they report.
fn read_along(
    found: &Findings,
    logs: &mut [Log],
    followers: &mut Followers,
    change: &Change<'_>,
    payloads: &[Payload],
) -> usize {
    let mut pairs = Vec::new();
    let commits = found.count_commits(change, payloads, |index| {
        followers.read(change, index, &mut pairs);
    });
    let said = pairs.len() + commits as usize;
    if let Some(blocks) = change.written {
        found.in_logs(change.first, payloads, |index, log, at| {
            let reader = Arc::clone(logs[log].reader());
            let entry = Entry::read(reader, at, blocks.block(index));
            logs[log].describe(&entry);
            let places = logs[log].write(at, Lba(change.first + index as u64));
            assert!(places.all().all(|lba| lba.0 < BLOCKS));
            logs[log].written(entry, || true, &mut pairs);
        });
    }
    lie_on_the_volume(&pairs);
    said
}

/// Returns whether a write is stopped, and checks that it may be.
fn is_stopped(
    order: &mut CommitOrder,
    scans: &Scans,
    change: &Change<'_>,
    payloads: &[Payload],
) -> bool {
    let none: [Wait; 0] = [];
    let may_wait = |_: usize, reason: &Reason| *reason != Reason::Scan || scans.is_behind();
    let stop = order.stop(change, payloads, may_wait, none.iter());
    if let Some((index, Stop::Wait(reason))) = stop {
        assert!(index < payloads.len());
        let wait = Wait {
            since: Nanos(0),
            reason,
            is_answered: false,
            is_withheld: false,
        };
        assert!(order.deadline(&wait).is_some(), "no wait is for ever");
    }
    stop.is_some()
}

/// Runs one life of a volume, chosen by `bytes` and then `seed`. Returns how much was reported of its writes, and how many were
/// stopped.
pub fn live(bytes: &[u8], seed: u64) -> (usize, usize) {
    let mut choices = Choices {
        bytes,
        random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
    };
    let (mut space, mut scans) = (FreeSpace::default(), Scans::default());
    let memory = volume(&mut choices);
    scans.begin();
    let found = found(&mut choices, &memory, &mut space);
    scans.end(Nanos(0), |span| found.overlaps(span));
    scans.tell();
    let mut logs: Vec<Log> = found.logs().iter().map(Log::new).collect();
    let mut followers = Followers::new(found.followers());
    let mut order = CommitOrder::default();
    order.follow(found.commits(), std::iter::empty());
    is_asynchronous(&mut order, &found, &memory);
    let journals = (0..BLOCKS).filter(|block| found.in_journal(*block));
    let journals: Vec<u64> = journals.collect();
    let (mut said, mut stopped) = (0, 0);
    for turn in 0..40 {
        let blocks = written(&mut choices, &memory);
        let count = blocks.count() as u64;
        let first = match journals.is_empty() || choices.below(4) == 0 {
            true => choices.below(BLOCKS - count),
            false => journals[choices.below(journals.len() as u64) as usize].min(BLOCKS - count),
        };
        let change = Change {
            first,
            blocks: count,
            written: (choices.below(8) != 0).then_some(&blocks as &dyn Blocks),
        };
        let payloads: Vec<Payload> = blocks.0.iter().map(|block| payload(block)).collect();
        let (seen, touched) = (space.see(&change), found.is_touched(&change));
        let number = scans.number();
        said += read_along(&found, &mut logs, &mut followers, &change, &payloads);
        stopped += usize::from(is_stopped(&mut order, &scans, &change, &payloads));
        if touched {
            scans.admit();
        }
        let is_done = choices.below(8) != 0;
        let result = is_done.then_some(()).ok_or(Refusal::NoRoom);
        order.ended(Nanos(turn), &change, result);
        space.answer(seen, (first, first + count), is_done);
        let held = Checked { number, touched };
        scans.answer(Nanos(turn), held, change.span(), |span| {
            found.overlaps(span)
        });
        assert!(!touched || scans.is_behind(), "a change is never missed");
        let flush = space.flush();
        space.answer(flush, (0, 0), true);
        while let Some((at, after)) = space.take() {
            assert!(at < after && after <= BLOCKS);
        }
    }
    (said, stopped)
}
