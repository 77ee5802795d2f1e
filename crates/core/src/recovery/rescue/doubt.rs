//! What is uncertain about a damaged log, and how the readable parts settle it.

use super::super::headers::Found;
use super::super::replay::Replay;
use super::super::{Recovered, RecoveryError, Source, find};
use super::lbas::LbaSet;
use super::loss::{Loss, Rescued, Trust};
use super::scan::{Scan, Spot};
use crate::addr::{BLOCK_BYTES, Lba, Leaf, Life, Pba, Segment, Seq, Vba};
use crate::entry::{Entry, LEAF_ENTRIES};
use crate::format::chunk::Record;
use crate::format::root::{Cursor, LeafSlot, RootHeader};
use crate::format::{Crc, superblock::Superblock};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::{vec, vec::Vec};

/// LBAs that a leaf maps.
const LBAS_OF_LEAF: u64 = LEAF_ENTRIES as u64;

/// The LBAs, numbers and chunks about which something is uncertain.
pub(super) struct Doubt {
    /// LBAs whose state is not known.
    pub unknown: LbaSet,
    /// Those among them about which the map says nothing, because their leaf is lost.
    pub blank: LbaSet,
    /// Lost leaves of the table of shared pages.
    pub numbers: BTreeSet<u32>,
    pub deltas_lost: bool,
    pub root_lost: bool,
    /// LBAs whose newest known version has been overwritten.
    pub gone: LbaSet,
    /// The first chunk that is missing.
    pub missing: Option<Seq>,
    /// Places of headers that cannot be read, each with whether its head may have gone on to another block that cannot be read.
    unread: BTreeMap<Pba, bool>,
    /// If a chunk is missing: page numbers that it cannot have given to another page. These were in use then, or were given to a page
    /// after it.
    pub known: Option<BTreeSet<Vba>>,
    /// Those among them whose place is certain: a later record names it, or the page had been written before.
    pub placed: BTreeSet<Vba>,
    pub loss: Loss,
}

impl Doubt {
    pub fn new(superblock: &Superblock) -> Self {
        let blocks = superblock.mapped_blocks();
        Self {
            unknown: LbaSet::new(blocks),
            blank: LbaSet::new(blocks),
            numbers: BTreeSet::new(),
            deltas_lost: false,
            root_lost: false,
            gone: LbaSet::new(blocks),
            missing: None,
            unread: BTreeMap::new(),
            known: None,
            placed: BTreeSet::new(),
            loss: Loss::none(blocks),
        }
    }

    pub fn is_any(&self) -> bool {
        self.deltas_lost || !self.numbers.is_empty() || !self.unknown.is_empty()
    }

    /// The map checkpoint to begin from. If the newest is lost: an empty one, with everything in doubt.
    pub fn find_root(
        &mut self,
        source: &mut dyn Source,
        superblock: &Superblock,
        crc: Crc,
        scan: &Scan,
    ) -> (RootHeader, Vec<LeafSlot>) {
        let newest = scan.root_generation;
        let found = find::find_root(source, superblock, crc).and_then(|root| {
            match root.header.generation < newest {
                true => Err(RecoveryError::RootLost { lost: newest }),
                false => Ok((root.header, root.slots)),
            }
        });
        found.unwrap_or_else(|error| {
            self.loss.note(error);
            self.root_lost = true;
            self.unknown.insert_all();
            self.blank.insert_all();
            self.numbers.extend(0..superblock.shared_leaves());
            self.deltas_lost = true;
            let root = RootHeader {
                uuid: superblock.uuid(),
                generation: newest,
                seq: Seq(0),
                life: Life(0),
                durable: Seq(0),
                cursors: nowhere(superblock),
                swept: 0,
                scrubbed: 0,
            };
            (root, vec![LeafSlot::Absent; superblock.leaves() as usize])
        })
    }

    pub fn load_leaves(&mut self, replay: &mut Replay<'_>) {
        let [maps, shared] = [
            replay.superblock.map_leaves(),
            replay.superblock.shared_leaves(),
        ];
        for index in 0..replay.superblock.first_parity() {
            let Err(error) = replay.load_leaf(Leaf(index)) else {
                continue;
            };
            self.loss.note(error);
            match index.checked_sub(maps) {
                None => {
                    let first = Lba(u64::from(index) * LBAS_OF_LEAF);
                    self.unknown.insert(first, LBAS_OF_LEAF);
                    self.blank.insert(first, LBAS_OF_LEAF);
                }
                Some(number) if number < shared => {
                    self.numbers.insert(number);
                }
                Some(_) => self.deltas_lost = true,
            }
        }
    }

    /// Applies the log after the root, in order. Goes on after missing chunks.
    pub fn replay(&mut self, replay: &mut Replay<'_>, scan: &Scan, trust: Trust) {
        let spots = scan.spots.as_slice();
        let first = spots.partition_point(|spot| spot.seq <= replay.root.seq);
        let spots = if self.root_lost { &[] } else { &spots[first..] };
        replay.durable = replay.durable.max(scan.durable);
        let stale = replay.stale(spots);
        let is_stale = |at: usize| stale.iter().any(|range| range.contains(&at));
        let spots = spots.iter().enumerate().filter(|(at, _)| !is_stale(*at));
        let mut torn = None;
        for (_, spot) in spots {
            let follows = spot.follows(replay.last_seq, replay.last_life);
            if !follows {
                self.look_for_unread_headers(replay, scan, Trust::Certain);
            }
            // If a missing chunk was not durable, the log ended there: the chunks behind it were never part of the log.
            let is_cut = !follows && spot.seq > replay.durable.next();
            if is_cut || !follows && !self.passes_over(replay, spot.seq, Some(spot)) {
                break;
            }
            let Some(found) = replay.chunk_at(spot.place) else {
                torn = Some(spot);
                break;
            };
            self.apply(replay, spot, &found);
            if let Some(other) = replay.other_head_of_jump(spot.place, &found.header) {
                // The missing chunk was on this head. So it was not what the other head's bad block hides.
                self.unread.remove(&other);
            }
            replay.pass(spot.place, &found.header);
        }
        if !self.root_lost {
            self.look_for_unread_headers(replay, scan, trust);
        }
        if let Some(unread) = replay.unread {
            self.loss.note(unread.into());
        }
        if replay.durable > replay.last_seq {
            let last = replay.durable.next();
            // A torn chunk's header is as good as another, if it says itself that the chunk before it was durable. An older life's may have
            // been replaced: the newer one's chunk with its number can be unreadable.
            let life = replay.superblock.life();
            let next = torn.filter(|spot| {
                spot.seq == last && spot.durable >= replay.durable && spot.life == life
            });
            self.passes_over(replay, last, next);
        }
    }

    /// Takes the next chunk for durable if its header may be in a block that cannot be read, where a head goes on. With
    /// [`Trust::Shown`] only notes that it may be there.
    fn look_for_unread_headers(&mut self, replay: &mut Replay<'_>, scan: &Scan, trust: Trust) {
        for cursor in replay.heads {
            let at = replay.block_at(cursor);
            let Err(unread) = replay.source.read(at, &mut [0; BLOCK_BYTES]) else {
                continue;
            };
            // One block hides one header. A head that stays where it is hides no second one, unless it went on to another bad block.
            let hides = match self.unread.get(&at) {
                Some(hides_more) => *hides_more,
                None => {
                    self.loss.note(unread.into());
                    let hides_more =
                        scan.is_unread_at_another_start(at) || replay.is_unread_behind(cursor);
                    self.unread.insert(at, hides_more);
                    true
                }
            };
            match trust {
                _ if !hides => {}
                Trust::Shown => self.loss.may_go_on = true,
                _ => replay.durable = replay.durable.max(replay.last_seq.next()),
            }
        }
    }

    fn apply(&mut self, replay: &mut Replay<'_>, spot: &Spot, found: &Found) {
        let mut wrong = Vec::new();
        replay.apply_found(spot.place, found, true, &mut |record| wrong.push(*record));
        // In order: of two records about one LBA, the later one counts.
        for record in &found.records {
            self.learn(record);
            self.forget_unknown_number(record);
        }
        let shares = found.records.iter().filter_map(|record| match *record {
            Record::Share { vba, pba, .. } => Some((vba, pba)),
            _ => None,
        });
        // A segment is erased at most once between two map checkpoints, so a block written there since is still there.
        let written = shares.filter(|(_, pba)| replay.is_written_since(*pba));
        self.placed.extend(written.map(|(vba, _)| vba));
        for record in wrong {
            self.loss.note(RecoveryError::Outside {
                what: "a chunk",
                at: found.header.at,
            });
            if let Some((lba, blocks)) = record.sets() {
                self.unknown.insert(lba, blocks);
            }
        }
    }

    /// Makes mappings to this record's number lead nowhere, if a missing chunk may have given the number to another page.
    fn forget_unknown_number(&mut self, record: &Record) {
        let Some(known) = &mut self.known else {
            return;
        };
        match *record {
            Record::Pack { vba, .. } | Record::PackHere { vba } | Record::Share { vba, .. } => {
                known.insert(vba);
                self.placed.insert(vba);
            }
            Record::SharePart { lba, vba, .. } if !known.contains(&vba) => {
                self.unknown.insert(lba, 1);
                self.gone.insert(lba, 1);
            }
            Record::SharePart { .. }
            | Record::Data { .. }
            | Record::Move { .. }
            | Record::MoveShared { .. }
            | Record::Zero { .. }
            | Record::Discard { .. }
            | Record::Part { .. }
            | Record::Delta { .. }
            | Record::Pledge { .. } => {}
        }
    }

    /// True if durable chunks are missing before `seq`: then only the log from there on is certain. If a single chunk is missing, and the
    /// header of `next`, the chunk after it, repeats what it named, all other LBAs stay as certain as before.
    fn passes_over(&mut self, replay: &mut Replay<'_>, seq: Seq, next: Option<&Spot>) -> bool {
        let (missing, durable) = (replay.last_seq.next(), replay.durable);
        let was_durable = durable >= missing && missing < seq;
        if was_durable {
            self.loss.note(RecoveryError::Missing {
                seq: missing,
                durable,
            });
            self.missing.get_or_insert(missing);
            let is_one = missing.next() == seq;
            let names = next
                .filter(|_| is_one)
                .and_then(|next| replay.names_at(next.place));
            match names {
                Some(names) => {
                    let runs = names.runs();
                    runs.for_each(|(lba, blocks)| self.unknown.insert(lba, blocks));
                }
                None => self.unknown.insert_all(),
            }
            self.known.get_or_insert_with(|| {
                let numbers = replay
                    .state
                    .map()
                    .iter()
                    .filter_map(|(_, entry)| match entry {
                        Entry::Shared(vba) | Entry::Packed(vba, _) => Some(vba),
                        _ => None,
                    });
                numbers.collect()
            });
        }
        was_durable
    }

    /// Notes that what a record says is certain again.
    fn learn(&mut self, record: &Record) {
        let Some((lba, blocks)) = record.sets() else {
            return;
        };
        self.unknown.remove(lba, blocks);
        self.blank.remove(lba, blocks);
        self.gone.remove(lba, blocks);
    }

    /// Removes entries that lead nowhere from the map, and counts the rest.
    pub fn finish(
        mut self,
        mut replay: Replay<'_>,
        trust: Trust,
    ) -> Result<Rescued, RecoveryError> {
        if self.known.is_some() {
            // A missing chunk may have moved a segment's last live block away. Then the segment may have been rewritten since.
            for lba in replay.overwritten(&self.placed) {
                self.unknown.insert(lba, 1);
                self.gone.insert(lba, 1);
            }
        }
        let mut guessed = LbaSet::new(replay.superblock.mapped_blocks());
        let mut lost = core::mem::replace(&mut self.unknown, guessed.clone());
        if trust == Trust::Newest {
            core::mem::swap(&mut guessed, &mut lost);
            for (lba, blocks) in self.gone.runs() {
                lost.insert(lba, blocks);
            }
        }
        replay.heads = nowhere(&replay.superblock);
        for (lba, blocks) in lost.runs() {
            replay.state.doubt(lba, blocks);
        }
        // The first round drops guesses, the second whatever still conflicts.
        for _ in 0..2 {
            for lba in replay.in_conflict(&|lba| guessed.contains(lba)) {
                replay.state.doubt(lba, 1);
                lost.insert(lba, 1);
            }
        }
        for lba in replay.drop_dead_ends(&guessed) {
            lost.insert(lba, 1);
        }
        // If a journal block is not known, the block that it was pledged to is not known either.
        let doubtful = replay
            .state
            .drop_pledges(&|lba| lost.contains(lba) || guessed.contains(lba));
        for home in doubtful {
            lost.insert(home, 1);
        }
        // A lost LBA reads as nothing, not even as its old content.
        for (lba, blocks) in lost.runs() {
            replay.state.doubt(lba, blocks);
            guessed.remove(lba, blocks);
        }
        let recovered = Recovered {
            is_rest: true,
            ..replay.finish()?
        };
        let loss = Loss {
            lost,
            guessed,
            ..self.loss
        };
        Ok(Rescued { recovered, loss })
    }
}

/// The heads of a volume that is only read: past all segments.
pub(super) fn nowhere(superblock: &Superblock) -> [Cursor; 2] {
    [Cursor {
        segment: Segment(0),
        offset: superblock.usable_blocks(),
    }; 2]
}
