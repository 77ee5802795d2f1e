//! Reads what leads to the data from the medium, beside the core, and checks it against its own checksums and what the core
//! knows.

#![expect(
    clippy::result_large_err,
    reason = "a finding is made once for what is damaged, and not in the way of a request"
)]

use super::report::Finding;
use crate::digest::crc32c;
use crate::limits::{SCRUB_PATIENCE, SCRUB_TRIES};
use crate::shared::SharedVolume;
use crate::source::MediumSource;
use std::time::{Duration, Instant};
use vellum_core::addr::{BLOCK_BYTES, Generation, Leaf, Pba, Segment, Seq};
use vellum_core::check::Chunks;
use vellum_core::format::areas::{DIRECTORY_ENTRIES, Layout};
use vellum_core::format::leaf::Leaves;
use vellum_core::format::root::{self, LeafSlot, RootHeader};
use vellum_core::format::slots::Slots;
use vellum_core::format::summary::{self, Owner, Tag};
use vellum_core::format::superblock::Superblock;
use vellum_core::format::table::{Edition, Kind, Link, Signer, decode_directory, sum_of_sectors};
use vellum_core::format::{FormatError, leaf, open_summary};
use vellum_core::seam::{Input, Mend, Service};
use vellum_core::service::scrub::Item;

/// How much was read, and what is wrong; `None` when the volume stops.
type Look = Option<(u64, Vec<Finding>)>;

/// See the module.
pub(super) struct Structures<'a> {
    shared: &'a SharedVolume,
    superblock: &'a Superblock,
    /// The newest root as it was read last, and its slots.
    root: Option<(Generation, Slots)>,
}

/// What the headers of a segment's chunks say.
struct Said {
    tags: Vec<Tag>,
    last_seq: Seq,
    /// Where the next chunk would be.
    end: u32,
    /// Whether the last header says that it is the last.
    is_whole: bool,
    read: u64,
}

impl<'a> Structures<'a> {
    pub fn new(shared: &'a SharedVolume, superblock: &'a Superblock) -> Self {
        Self {
            shared,
            superblock,
            root: None,
        }
    }

    fn is_log(&self) -> bool {
        self.superblock.layout() == Layout::Log
    }

    pub fn look(&mut self, item: Item) -> Look {
        match item {
            Item::Mirror(index) => self.mirror(index),
            Item::Root(index) => self.judge(|this| this.root_place(index)),
            Item::Leaf(leaf) if self.is_log() => self.leaf(leaf),
            Item::Leaf(block) => self.judge(|this| this.directory(block)),
            Item::Table(number) => self.judge(|this| this.table(number.into())),
            Item::Segment(segment) => self.segment(Segment(segment)),
            Item::Blocks(..) => Some((0, Vec::new())),
        }
    }

    fn read(&self, what: &str, at: Pba, blocks: u64) -> Result<Vec<u8>, Finding> {
        let mut bytes = vec![0; blocks as usize * BLOCK_BYTES];
        let read = self.shared.medium.read(at, &mut bytes);
        read.map(|()| bytes)
            .map_err(|error| Finding::new(what, at, error))
    }

    /// How many roots, or commits of tables, have been written; `None` inside while one is being written.
    fn quiet(&self) -> Option<Option<u64>> {
        self.shared.with_core(|_, inner, _| {
            let stats = inner.core.stats();
            inner
                .is_resting()
                .then_some(stats.map_checkpoints + stats.commits)
        })
    }

    /// Looks at something that is written in place, at a moment when it is not being written. If there is no such moment, reports
    /// nothing.
    fn judge(&mut self, look: impl Fn(&mut Self) -> Look) -> Look {
        for _ in 0..SCRUB_TRIES {
            if let Some(before) = self.quiet()? {
                let seen = look(self)?;
                if seen.1.is_empty() || self.quiet()? == Some(before) {
                    return Some(seen);
                }
                self.root = None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Some((0, Vec::new()))
    }

    fn mirror(&self, index: u32) -> Look {
        let at = self.superblock.mirrors()[index as usize];
        let ours = self
            .shared
            .with_core(|_, inner, _| inner.core.superblock().clone())?;
        let wrong = self.read("superblock", at, 1).and_then(|block| {
            let found = Superblock::decode(&block, ours.medium_blocks(), crc32c);
            let found = found.map_err(|error| Finding::new("superblock", at, error))?;
            match found.mirrors_same_life(&ours) {
                true => Ok(()),
                false => Err(Finding::new(
                    "superblock",
                    at,
                    "it is not of this life of the volume",
                )),
            }
        });
        Some((
            1,
            wrong.err().into_iter().map(Finding::second_copy).collect(),
        ))
    }

    /// Checks a copy of the root. Logs that were made before roots had second copies have two, one in each place.
    fn root_place(&mut self, index: u32) -> Look {
        let newest = self
            .shared
            .with_core(|_, inner, _| inner.core.root_generation())?;
        let sb = self.superblock;
        let has_copy = !self.is_log() || sb.root_twin(newest).is_some();
        let (place, copy) = match has_copy {
            true => (index / 2, index % 2),
            false => (index, 0),
        };
        let (at, blocks, entries) = self.roots(Generation(place.into()))[copy as usize];
        let is_newest = newest.0 & 1 == u64::from(place);
        let behind = match sb.open_summary(newest, 0) {
            Some(_) if is_newest && copy > 0 => 2 * u64::from(sb.open_summary_blocks()),
            _ => 0,
        };
        let root_bytes = blocks as usize * BLOCK_BYTES;
        let wrong = self.read("root", at, blocks + behind).and_then(|bytes| {
            let bad = |error: FormatError| Finding::new("root", at, error);
            let (bytes, behind) = bytes.split_at(root_bytes);
            match root::decode(bytes, &sb.uuid(), entries, crc32c) {
                Ok((header, _)) if header.generation == newest => {
                    self.open_summaries(&header, behind).map_err(bad)
                }
                Ok(_) if !is_newest => Ok(()),
                Ok((header, _)) => Err(Finding::new(
                    "root",
                    at,
                    format!(
                        "it is map checkpoint {}, and not {newest}",
                        header.generation
                    ),
                )),
                // No root has been written here yet.
                Err(_) if !is_newest && bytes.iter().all(|&byte| byte == 0) => Ok(()),
                Err(error) => Err(bad(error)),
            }
        });
        let wrong = wrong.err().map(|finding| match is_newest && !has_copy {
            true => finding,
            false => finding.second_copy(),
        });
        Some((blocks, wrong.into_iter().collect()))
    }

    /// Checks that what follows a root agrees with the headers that the root includes.
    fn open_summaries(&self, root: &RootHeader, behind: &[u8]) -> Result<(), FormatError> {
        let length = self.superblock.open_summary_blocks() as usize * BLOCK_BYTES;
        for (head, bytes) in (0..).zip(behind.chunks_exact(length.max(1))) {
            open_summary::decode(self.superblock, root, head, bytes, crc32c)?;
        }
        Ok(())
    }

    /// Where the copies of a root are, how long each is, and how many leaves it names.
    fn roots(&self, generation: Generation) -> Vec<(Pba, u64, u32)> {
        let sb = self.superblock;
        if self.is_log() {
            let copies = sb.root_copies(generation);
            return copies
                .map(|at| (at, u64::from(sb.root_blocks()), sb.leaves()))
                .collect();
        }
        let blocks = sb.shadow_root_blocks();
        let at = sb.shadow_root_at(generation);
        let entries = sb.directory_blocks() as u32;
        vec![(at, blocks, entries), (at.plus(blocks), blocks, entries)]
    }

    /// What the newest root on the medium says; `None` if it is not whole, which is reported elsewhere.
    fn root(&mut self, newest: Generation) -> Option<&Slots> {
        if self.root.as_ref().is_none_or(|(known, _)| *known != newest) {
            let sb = self.superblock;
            let places = self.roots(newest);
            self.root = places.into_iter().find_map(|(at, blocks, entries)| {
                let bytes = self.read("root", at, blocks).ok()?;
                let (header, slots) = root::decode(&bytes, &sb.uuid(), entries, crc32c).ok()?;
                (header.generation == newest).then(|| (newest, slots.into()))
            });
        }
        self.root.as_ref().map(|(_, slots)| slots)
    }

    /// Checks a leaf where the durable root says it is: no map checkpoint writes there before there is a newer root.
    fn leaf(&mut self, index: u32) -> Look {
        let mut read = 0;
        for _ in 0..SCRUB_TRIES {
            let newest = self
                .shared
                .with_core(|_, inner, _| inner.core.root_generation())?;
            let slot = self
                .root(newest)
                .and_then(|slots| slots.all_from(index as usize).next());
            let Some((place, expected)) = slot.and_then(LeafSlot::found) else {
                return Some((read, Vec::new()));
            };
            let at = self.superblock.leaf_slot(Leaf(index), place);
            read += 1;
            let wrong = self.read("map leaf", at, 1).and_then(|block| {
                match leaf::checksum(Leaf(index), &block, crc32c) {
                    found if found == expected => Ok(()),
                    found => Err(checksum("map leaf", at, found, expected)),
                }
            });
            let now = self
                .shared
                .with_core(|_, inner, _| inner.core.root_generation())?;
            match wrong {
                Ok(()) => return Some((read, Vec::new())),
                Err(finding) if now == newest => {
                    let is_told = self.is_told(newest, Leaf(index));
                    return Some((
                        read,
                        vec![match is_told {
                            true => finding.second_copy(),
                            false => finding,
                        }],
                    ));
                }
                Err(_) => {}
            }
        }
        Some((read, Vec::new()))
    }

    /// True if a leaf can be computed from the rest of its stripe, or is a parity.
    fn is_told(&mut self, newest: Generation, leaf: Leaf) -> bool {
        let (sb, shared) = (self.superblock, self.shared);
        let Some(slots) = self.root(newest) else {
            return false;
        };
        let leaves = Leaves {
            superblock: sb,
            slots,
            crc: crc32c,
        };
        let mut read = |at, block: &mut [u8; BLOCK_BYTES]| shared.medium.read(at, block).is_ok();
        leaf.0 >= sb.first_parity() || leaves.rebuild(leaf, &mut read).is_some()
    }

    /// What a block of the directory of shadowed tables says, and what is wrong with it.
    fn directory_block(&mut self, block: u32) -> Option<(Option<Vec<LeafSlot>>, Option<Finding>)> {
        let newest = self
            .shared
            .with_core(|_, inner, _| inner.core.root_generation())?;
        let slot = self
            .root(newest)
            .and_then(|slots| slots.all_from(block as usize).next());
        let Some((slot, expected)) = slot.and_then(LeafSlot::found) else {
            return Some((Some(Vec::new()), None));
        };
        let (block, slot) = (block.into(), slot.into());
        let at = self.superblock.directory_at(block, slot);
        let twin = self.superblock.directory_twin(block, slot);
        let what = "directory of tables";
        let look = |at: Pba| -> Result<Vec<LeafSlot>, Finding> {
            let bytes = self.read(what, at, 1)?;
            let found = crc32c(&bytes);
            if found != expected {
                return Err(checksum(what, at, found, expected));
            }
            let mut slots = Vec::new();
            let decoded = decode_directory(&bytes, &mut slots);
            decoded.map_err(|error| Finding::new(what, at, error))?;
            Ok(slots)
        };
        Some(both(what, at, look(at), twin.map(look)))
    }

    fn directory(&mut self, block: u32) -> Look {
        let (_, wrong) = self.directory_block(block)?;
        Some((1, wrong.into_iter().collect()))
    }

    /// Checks a block of tables.
    fn table(&mut self, number: u64) -> Look {
        let sb = self.superblock;
        let mut slot = None;
        let mut read = 1;
        if sb.layout() == Layout::Shadow {
            read = 2;
            let block = (number / DIRECTORY_ENTRIES) as u32;
            // What is wrong with the directory is reported for the directory itself.
            let (Some(slots), _) = self.directory_block(block)? else {
                return Some((1, Vec::new()));
            };
            let at = (number % DIRECTORY_ENTRIES) as usize;
            slot = slots.get(at).and_then(|slot| slot.found());
            if slot.is_none() {
                return Some((1, Vec::new()));
            }
        }
        let (kind, _) = sb.table_of(number)?;
        let what = kind.name();
        let in_slot = slot.map_or(0, |(slot, _)| slot).into();
        let (at, twin) = (sb.table_at(number, in_slot), sb.map_twin(number, in_slot));
        let look = |at: Pba| -> Result<Vec<u8>, Finding> {
            let bytes = self.read(what, at, 1)?;
            if let Some((_, expected)) = slot {
                let found = sum_of_sectors(&bytes, crc32c);
                if found != expected && crc32c(&bytes) != expected {
                    return Err(checksum(what, at, found, expected));
                }
            }
            decode(kind, number, &bytes, sb).map_err(|error| Finding::new(what, at, error))?;
            Ok(bytes)
        };
        read += u64::from(twin.is_some());
        let (_, wrong) = both(what, at, look(at), twin.map(look));
        let wrong = wrong.map(|finding| match kind {
            Kind::Map => finding,
            _ => finding.second_copy(),
        });
        Some((read, wrong.into_iter().collect()))
    }

    /// Checks a segment's summary, and the headers of its chunks.
    fn segment(&self, segment: Segment) -> Look {
        let (uses, in_memory) = self.shared.with_core(|_, inner, _| {
            let core = &inner.core;
            (core.is_summarised(segment), core.written_tags(segment))
        })?;
        let usable = self.superblock.usable_blocks();
        let mut read = 0;
        let mut found = Vec::new();
        let tags = match (uses, in_memory) {
            (_, Some(tags)) => Some(tags),
            (None, None) => return Some((0, found)),
            (Some(_), None) => {
                let at = self.superblock.segment_start(segment).plus(usable.into());
                let blocks = u64::from(self.superblock.segment_blocks() - usable);
                read += blocks;
                let signature = self.superblock.signature();
                let summary = self.read("summary", at, blocks).and_then(|bytes| {
                    summary::decode(&signature, segment, usable as usize, &bytes, crc32c)
                        .map_err(|error| Finding::new("summary", at, error))
                });
                summary.map_err(|finding| found.push(finding)).ok()
            }
        };
        let said = self.headers(segment);
        read += said.read;
        match &tags {
            Some(tags) => {
                // Headers name everything that the tags name, and perhaps blocks written since.
                let differs = |(said, tag): (&Tag, &Tag)| match uses {
                    Some(_) => said.sum != tag.sum,
                    None => tag.owner != Owner::None && said.sum != tag.sum,
                };
                if said.tags.iter().zip(tags).any(differs) {
                    let at = self.superblock.segment_start(segment).plus(said.end.into());
                    let why = "it is not there, or does not say what was written behind it";
                    let header = Finding::new("chunk header", at, why);
                    found.push(match uses.is_some() || self.repeats_headers() {
                        true => header.second_copy(),
                        false => header,
                    });
                }
            }
            None if said.is_whole => {
                found = found.into_iter().map(Finding::second_copy).collect();
            }
            None => {}
        }
        if !found.is_empty() {
            let now = self
                .shared
                .with_core(|_, inner, _| inner.core.is_summarised(segment))?;
            if now != uses {
                found.clear();
            }
        }
        Some((read, found))
    }

    fn headers(&self, segment: Segment) -> Said {
        let nothing = Tag {
            owner: Owner::None,
            sum: 0,
        };
        let mut source = MediumSource::new(&*self.shared.medium);
        let mut said = Said {
            tags: vec![nothing; self.superblock.usable_blocks() as usize],
            last_seq: Seq(0),
            end: 0,
            is_whole: false,
            read: 1,
        };
        let mut chunks = Chunks::new(self.superblock, segment, crc32c);
        while let Some(Ok(chunk)) = chunks.next(&mut source) {
            let first = chunk.offset as usize;
            if let (Some(own), Some(tag)) = (chunk.own, said.tags.get_mut(first)) {
                *tag = own;
            }
            let data = said.tags.iter_mut().skip(first + 1);
            data.zip(chunk.tags()).for_each(|(tag, said)| *tag = said);
            said.end = chunk.offset + 1 + chunk.header.data_blocks;
            said.last_seq = chunk.header.seq;
            said.is_whole = chunk.header.next.is_some();
            said.read += 1;
        }
        said
    }

    /// Has something written anew from what the core knows. Returns how, if it is good afterwards.
    pub fn mend(&mut self, item: Item, finding: &Finding) -> Option<String> {
        let how = match item {
            Item::Segment(_) if finding.what == "summary" => "from the headers of its chunks",
            Item::Segment(_) if self.repeats_headers() => return self.include_headers(),
            // Headers that a summary repeats are not needed; otherwise the damage is reported.
            Item::Segment(_) => return None,
            _ => "from memory",
        };
        for _ in 0..3 {
            let before = self.written()?;
            match item {
                Item::Mirror(index) => self.order(Mend::Mirror(index))?,
                Item::Root(_) => self.order(Mend::Checkpoint)?,
                Item::Leaf(leaf) => self.order(Mend::Leaf(Leaf(leaf)))?,
                Item::Table(number) => self.order(Mend::Table(number.into()))?,
                Item::Segment(segment) => self.order_summary(Segment(segment))?,
                Item::Blocks(..) => return None,
            }
            self.await_writing((!matches!(item, Item::Mirror(_))).then_some(before))?;
            self.root = None;
            let (_, found) = self.look(item)?;
            if !found.iter().any(|again| again.what == finding.what) {
                return Some(format!("written anew, {how}"));
            }
        }
        None
    }

    /// True if map checkpoints repeat the headers of open segments.
    fn repeats_headers(&self) -> bool {
        self.superblock.open_summary_blocks() > 0
    }

    /// Makes a map checkpoint, which needs no header from before it.
    fn include_headers(&self) -> Option<String> {
        let before = self.written()?;
        self.order(Mend::Checkpoint)?;
        self.await_writing(Some(before))?;
        Some("told by a map checkpoint, or by its segment's summary".into())
    }

    /// Waits until nothing is being written, and something has been written since `before`.
    fn await_writing(&self, before: Option<u64>) -> Option<()> {
        let began = Instant::now();
        while before.is_some() && self.written() == before || self.quiet()?.is_none() {
            if began.elapsed() > SCRUB_PATIENCE || self.shared.scrubber.is_to_end() {
                return None;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Some(())
    }

    fn order(&self, what: Mend<'_>) -> Option<()> {
        self.shared.with_core(|now, inner, batch| {
            inner.feed(now, Input::Service(Service::Mend(what)), batch)
        })
    }

    /// How many map checkpoints, or commits of tables, have begun.
    fn written(&self) -> Option<u64> {
        self.shared.with_core(|_, inner, _| {
            let stats = inner.core.stats();
            stats.map_checkpoints + stats.commits
        })
    }

    fn order_summary(&self, segment: Segment) -> Option<()> {
        let uses = self
            .shared
            .with_core(|_, inner, _| inner.core.is_summarised(segment))?;
        let said = self.headers(segment);
        if let (Some(uses), true) = (uses, said.is_whole) {
            self.order(Mend::Summary {
                segment,
                uses,
                tags: &said.tags,
                last_seq: said.last_seq,
            })?;
        }
        self.order(Mend::Checkpoint)
    }

    /// The tags of a segment's blocks, from memory, from its summary, or from its headers.
    pub fn tags(&self, segment: Segment) -> Option<Vec<Tag>> {
        let in_memory = self
            .shared
            .with_core(|_, inner, _| inner.core.written_tags(segment))?;
        if in_memory.is_some() {
            return in_memory;
        }
        let usable = self.superblock.usable_blocks();
        let at = self.superblock.segment_start(segment).plus(usable.into());
        let blocks = u64::from(self.superblock.segment_blocks() - usable);
        let signature = self.superblock.signature();
        let bytes = self.read("summary", at, blocks).ok()?;
        let tags = summary::decode(&signature, segment, usable as usize, &bytes, crc32c);
        Some(tags.unwrap_or_else(|_| self.headers(segment).tags))
    }

    pub fn superblock(&self) -> &Superblock {
        self.superblock
    }
}

/// What a structure with two copies says, by the copy that is good, and what is wrong with the other.
fn both<T: PartialEq>(
    what: &'static str,
    at: Pba,
    first: Result<T, Finding>,
    twin: Option<Result<T, Finding>>,
) -> (Option<T>, Option<Finding>) {
    match (first, twin) {
        (Ok(said), None) => (Some(said), None),
        (Err(bad), None | Some(Err(_))) => (None, Some(bad)),
        (Ok(said), Some(Err(bad))) | (Err(bad), Some(Ok(said))) => {
            (Some(said), Some(bad.second_copy()))
        }
        (Ok(said), Some(Ok(twin))) if said == twin => (Some(said), None),
        (Ok(said), Some(Ok(_))) => {
            let bad = Finding::new(what, at, "one of its two copies is older than the other");
            (Some(said), Some(bad.second_copy()))
        }
    }
}

fn checksum(what: &'static str, at: Pba, found: u32, expected: u32) -> Finding {
    let error = FormatError::Checksum {
        what,
        found,
        expected,
    };
    Finding::new(what, at, error)
}

fn decode(kind: Kind, number: u64, bytes: &[u8], sb: &Superblock) -> Result<(), FormatError> {
    let signer = Signer::new(sb, crc32c);
    let (_, sound) = match kind {
        Kind::Map => signer.decode::<Link>(number, bytes, &mut Vec::new()),
        Kind::Counts => signer.decode::<u16>(number, bytes, &mut Vec::new()),
        Kind::Prints => signer.decode::<u32>(number, bytes, &mut Vec::new()),
        Kind::Editions => signer.decode::<Edition>(number, bytes, &mut Vec::new()),
    };
    sound
}
