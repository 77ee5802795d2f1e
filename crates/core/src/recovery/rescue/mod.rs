//! What is whole of a damaged log: where recovery would refuse, this goes on, and says of which LBAs the state is not known.
//!
//! An LBA's state is *certain* when the newest map checkpoint and every chunk since say it. A leaf that is lost makes those
//! of its LBAs uncertain that no later chunk names. A chunk that is lost and was durable makes those uncertain of which it said
//! something, as the header after it names them; all, if that is lost too, or does not name any. Uncertain ones are left out,
//! or ([`Trust::Newest`]) are what the newest header that names them says: that may be older than what was there last, or
//! discarded since.
//!
//! What comes of this is for reading alone: a volume so found must not go on.

mod ends;
mod evidence;
mod guess;
mod lbas;
mod replay;
mod scan;

pub use lbas::LbaSet;

use super::replay::{Found, Replay};
use super::{Recovered, RecoveryError, Source, find, find_superblock, recover};
use crate::addr::{Lba, Leaf, Life, Segment, Seq, Vba};
use crate::entry::{Entry, LEAF_ENTRIES};
use crate::format::areas::Layout;
use crate::format::chunk::Record;
use crate::format::root::{Cursor, LeafSlot, RootHeader};
use crate::format::{Crc, superblock::Superblock};
use alloc::collections::BTreeSet;
use alloc::{vec, vec::Vec};
use scan::{Scan, Spot};

/// LBAs that a leaf maps.
const LBAS_OF_LEAF: u64 = LEAF_ENTRIES as u64;

/// Findings that are kept, at most; the others are counted.
const FINDINGS: usize = 1000;

/// What an LBA is that nothing is certain of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Lost.
    Certain,
    /// The newest version that is found.
    Newest,
}

/// A damaged log, as far as it can be read.
pub struct Rescued {
    /// The volume; what is lost of it is unmapped.
    pub recovered: Recovered,
    /// What is lost.
    pub loss: Loss,
}

/// What a damaged volume is without.
pub struct Loss {
    /// LBAs of which nothing is known.
    pub lost: LbaSet,
    /// LBAs that are the newest version that was found, which need not be the last.
    pub guessed: LbaSet,
    /// What is damaged, as far as there is room for it.
    pub damage: Vec<RecoveryError>,
    /// How much more is.
    pub more_damage: u64,
}

impl Loss {
    /// Nothing, of a volume with so many blocks.
    #[must_use]
    pub fn none(blocks: u64) -> Self {
        Self {
            lost: LbaSet::new(blocks),
            guessed: LbaSet::new(blocks),
            damage: Vec::new(),
            more_damage: 0,
        }
    }

    /// Something is damaged.
    pub(crate) fn note(&mut self, error: RecoveryError) {
        match self.damage.len() < FINDINGS {
            true => self.damage.push(error),
            false => self.more_damage += 1,
        }
    }
}

/// Reads a damaged log.
///
/// # Errors
/// When neither superblock is whole, or the layout is another one.
pub fn rescue(
    source: &mut dyn Source,
    medium_blocks: u64,
    crc: Crc,
    trust: Trust,
) -> Result<Rescued, RecoveryError> {
    let (superblock, mirror_lost) = find_superblock(source, medium_blocks, crc)?;
    if superblock.layout() != Layout::Log {
        return Err(RecoveryError::NotALog(superblock.layout().name()));
    }
    let mut scan = Scan::of(source, &superblock, crc, false);
    // A header of before may hide what is behind it from the scan. Recovery looks closer where the log ends.
    scan.durable = scan.durable.max(match recover(source, medium_blocks, crc) {
        Err(RecoveryError::Hole { seq, .. }) => seq,
        Err(RecoveryError::Missing { durable, .. }) => durable,
        _ => Seq(0),
    });
    let mut doubt = Doubt::new(&superblock);
    let (root, slots) = doubt.find_root(source, &superblock, crc, &scan);
    if !doubt.root_lost && scan.lacks_any(root.seq) {
        scan = scan.closely(source, &superblock, crc);
    }
    let mut replay = Replay::new(source, superblock, crc, root, slots)?;
    replay.replayed.mirror_lost = mirror_lost;
    doubt.load_leaves(&mut replay);
    if !doubt.root_lost {
        replay.walk_open_segments();
    }
    doubt.replay(&mut replay, &scan);
    if trust == Trust::Newest && doubt.is_any() {
        // A header that is not seen may be what says that a guess is wrong.
        let scan = scan.closely(replay.source, &replay.superblock, crc);
        guess::guess(&mut replay, &scan, &mut doubt)?;
    }
    doubt.finish(replay, trust)
}

/// What is not certain.
struct Doubt {
    /// LBAs whose state is not known.
    unknown: LbaSet,
    /// Those of them of which the map says nothing: their leaf is lost.
    blank: LbaSet,
    /// Leaves of the table of shared pages that are lost.
    numbers: BTreeSet<u32>,
    deltas_lost: bool,
    root_lost: bool,
    /// LBAs whose newest version that is found is gone.
    gone: LbaSet,
    /// The first chunk that is missing.
    missing: Option<Seq>,
    /// Once one is: the numbers that it cannot have given to other pages, for they were in use, or that were given
    /// since.
    known: Option<BTreeSet<Vba>>,
    /// And those whose place is theirs for certain: it has been told since, or when it was written already.
    placed: BTreeSet<Vba>,
    loss: Loss,
}

impl Doubt {
    fn new(superblock: &Superblock) -> Self {
        let blocks = superblock.mapped_blocks();
        Self {
            unknown: LbaSet::new(blocks),
            blank: LbaSet::new(blocks),
            numbers: BTreeSet::new(),
            deltas_lost: false,
            root_lost: false,
            gone: LbaSet::new(blocks),
            missing: None,
            known: None,
            placed: BTreeSet::new(),
            loss: Loss::none(blocks),
        }
    }

    fn is_any(&self) -> bool {
        self.deltas_lost || !self.numbers.is_empty() || !self.unknown.is_empty()
    }

    /// The map checkpoint to go by; an empty one, and all in doubt, when the newest is lost.
    fn find_root(
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

    fn load_leaves(&mut self, replay: &mut Replay<'_>) {
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

    /// Applies the log behind the root, in its order, over what is missing of it.
    fn replay(&mut self, replay: &mut Replay<'_>, scan: &Scan) {
        let spots = scan.spots.as_slice();
        let first = spots.partition_point(|spot| spot.seq <= replay.root.seq);
        let spots = if self.root_lost { &[] } else { &spots[first..] };
        replay.durable = replay.durable.max(scan.durable);
        for spot in spots {
            let follows = spot.follows(replay.last_seq, replay.last_life);
            // A chunk that is missing and was not durable is where the log ended: what lies behind it was never part of it.
            let is_cut = !follows && spot.seq > replay.durable.next();
            if is_cut || !follows && !self.passes_over(replay, spot.seq, Some(spot)) {
                break;
            }
            let Some(found) = replay.chunk_at(spot.place) else {
                return;
            };
            self.apply(replay, spot, &found);
        }
        if replay.durable > replay.last_seq {
            let last = replay.durable.next();
            self.passes_over(replay, last, None);
        }
    }

    fn apply(&mut self, replay: &mut Replay<'_>, spot: &Spot, found: &Found) {
        let mut wrong = Vec::new();
        replay.apply_found(spot.place, found, true, &mut |record| wrong.push(*record));
        // In their order: of two of one LBA the later one counts.
        for record in &found.records {
            self.learn(record);
            self.forget_unknown_number(record);
        }
        let shares = found.records.iter().filter_map(|record| match *record {
            Record::Share { vba, pba, .. } => Some((vba, pba)),
            _ => None,
        });
        // A segment is erased once between two map checkpoints, so what has been written there since stays.
        let written = shares.filter(|(_, pba)| replay.is_written_since(*pba));
        self.placed.extend(written.map(|(vba, _)| vba));
        for record in wrong {
            self.loss.note(RecoveryError::Outside {
                what: "a chunk",
                at: found.header.at,
            });
            if let Some((lba, blocks)) = certain_of(&record) {
                self.unknown.insert(lba, blocks);
            }
        }
    }

    /// What is mapped to a number that a missing chunk may have given to another page leads nowhere.
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
            _ => {}
        }
    }

    /// Whether chunks are missing before `seq` that were durable: then nothing is certain but what comes after. If it is one, and
    /// `next`, the chunk after it, names what that said something of, all else is as certain as before.
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

    /// What a record says is certain again.
    fn learn(&mut self, record: &Record) {
        let Some((lba, blocks)) = certain_of(record) else {
            return;
        };
        self.unknown.remove(lba, blocks);
        self.blank.remove(lba, blocks);
        self.gone.remove(lba, blocks);
    }

    /// Takes out of the map what leads nowhere, and counts.
    fn finish(mut self, mut replay: Replay<'_>, trust: Trust) -> Result<Rescued, RecoveryError> {
        if self.known.is_some() {
            // A missing chunk may have taken the last block of a segment away, and that was written anew since.
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
        // Of guesses first, and of what is left then.
        for _ in 0..2 {
            for lba in replay.in_conflict(&|lba| guessed.contains(lba)) {
                replay.state.doubt(lba, 1);
                lost.insert(lba, 1);
            }
        }
        for lba in replay.drop_dead_ends(&guessed) {
            lost.insert(lba, 1);
        }
        // What a journal's block that is not known was pledged to is not known either.
        let doubtful = replay
            .state
            .drop_pledges(&|lba| lost.contains(lba) || guessed.contains(lba));
        for home in doubtful {
            lost.insert(home, 1);
        }
        // Nothing of what is lost is read: not what was there before, either.
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

/// The LBAs whose state a record tells, whatever it was before.
fn certain_of(record: &Record) -> Option<(Lba, u64)> {
    match *record {
        Record::Data { lba, .. }
        | Record::Share { lba, .. }
        | Record::Part { lba, .. }
        | Record::Delta { lba, .. }
        | Record::SharePart { lba, .. } => Some((lba, 1)),
        Record::Zero { lba, blocks } | Record::Discard { lba, blocks } => Some((lba, blocks)),
        // They count where the map leads to what they move, and that is what is not known.
        Record::Move { .. }
        | Record::MoveShared { .. }
        | Record::Pledge { .. }
        | Record::Pack { .. }
        | Record::PackHere { .. } => None,
    }
}

/// The heads of a volume that does not go on: past everything.
fn nowhere(superblock: &Superblock) -> [Cursor; 2] {
    [Cursor {
        segment: Segment(0),
        offset: superblock.usable_blocks(),
    }; 2]
}
