//! One damaged block anywhere in a volume at rest: what can still be read, and what cannot.

use super::damaged_tables::{self, is_map};
use super::driver::{Ask, Driver, Failure, ensure};
use super::medium::{BLOCK, Cell, Medium};
use super::model::{Model, Seen};
use super::open;
use super::rng::Rng;
use super::world::{COLLECTOR_BUFS, World};
use std::collections::{BTreeMap, BTreeSet};
use vellum_core::addr::{Generation, Lba, Leaf, Pba, Seq, Vba};
use vellum_core::entry::{Entry, PartId};
use vellum_core::format::areas::Layout;
use vellum_core::format::chunk::{self, ChunkHeader, Record};
use vellum_core::format::superblock::Superblock;
use vellum_core::layout::Recovered;
use vellum_core::recovery::rescue::{Loss, Trust};

/// The structure that a block is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Structure {
    Mirror,
    Root,
    Leaf,
    Parity,
    Header,
    Summary,
    Data,
    Directory,
    Table,
    /// An area that a volume used before it grew, or that an interrupted growth has written.
    Nothing,
}

/// The state of the copies of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    Good,
    /// As they were a life ago.
    Stale,
}

/// The way a block is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Damage {
    Flipped,
    Zeroed,
    Torn,
    Stale,
    Swapped,
}

const DAMAGES: [Damage; 5] = [
    Damage::Flipped,
    Damage::Zeroed,
    Damage::Torn,
    Damage::Stale,
    Damage::Swapped,
];

/// The results of the cases of a kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub cases: u64,
    /// Nothing was lost.
    pub harmless: u64,
    /// The contents of the block were lost, and nothing else.
    pub exact: u64,
    /// More was lost than the contents of the block, and reported as lost.
    pub more: u64,
    /// A copy had the contents.
    pub copied: u64,
    /// Recovery ended the log before a chunk that nothing proves was durable.
    pub cut: u64,
    /// The volume could not be opened for writing.
    pub refused: u64,
}

/// Results by structure and damage.
pub type Matrix = BTreeMap<(Structure, Damage), Tally>;

/// A case, for a message.
struct Case {
    at: u64,
    structure: Structure,
    damage: Damage,
    /// The chunk of a damaged header.
    chunk: Option<Seq>,
    /// The LBAs that the header said something about, or moved, or whose data its chunk has.
    said: BTreeSet<u64>,
    /// True if tables in place are older than they should be, and nothing shows which of them are.
    is_untold: bool,
    /// LBAs that may then read as they were before, undetected.
    older: BTreeSet<u64>,
}

impl World {
    pub fn medium(&self) -> &Medium {
        &self.medium
    }

    /// Reads everything that recovery found on a medium that may be bad anywhere.
    fn read_all(&mut self, found: Recovered, medium: Medium) -> Result<Vec<Seen>, Failure> {
        let suspects: Vec<u64> = (0..medium.blocks()).collect();
        Ok(self.read_found(found, medium, &suspects)?.0)
    }

    pub(super) fn read_found(
        &mut self,
        mut recovered: Recovered,
        medium: Medium,
        suspects: &[u64],
    ) -> Result<(Vec<Seen>, Driver), Failure> {
        recovered.read_alone();
        let mut model = Model::new(self.logical_blocks);
        model.believe_all();
        let rng = Rng::new(self.rng.next());
        let mut driver = Driver::new(self.core(recovered), medium, model, rng, COLLECTOR_BUFS);
        driver.suspects.extend(suspects);
        driver.now = self.now;
        driver.start()?;
        let mut seen = Vec::new();
        let mut lba = 0;
        // Reads one block at a time if some are bad, to see which.
        let step = if suspects.is_empty() { 256 } else { 1 };
        while lba < self.logical_blocks {
            let blocks = step.min(self.logical_blocks - lba);
            driver.ask(&Ask::Read {
                lba,
                blocks: blocks as u32,
            })?;
            driver.settle()?;
            seen.extend_from_slice(&driver.last_read);
            lba += blocks;
        }
        Ok((seen, driver))
    }

    /// Damages one block of a copy after another; structure and damage are random.
    pub fn hit(
        &mut self,
        older: &Medium,
        cases: usize,
        copies: Copies,
        matrix: &mut Matrix,
    ) -> Result<(), Failure> {
        let whole = open::recover(&self.medium, None).map_err(|e| format!("recovery: {e}"))?;
        let places = structures(&self.medium, whole.superblock());
        for _ in 0..cases {
            let kinds: Vec<Structure> = places.keys().copied().collect();
            let structure = self.rng.pick(&kinds);
            let at = self.rng.pick(&places[&structure]);
            let damage = self.rng.pick(&DAMAGES);
            let mut medium = self.medium.clone();
            if copies == Copies::Stale {
                for at in medium.copies.clone() {
                    medium.replace(at, older.read(at));
                }
            }
            damage_block(&mut medium, older, at, damage, &mut self.rng);
            if medium.read(at) == self.medium.read(at) {
                continue;
            }
            let case = Case {
                at,
                structure,
                damage,
                chunk: header(&self.medium, at).map(|header| header.seq),
                said: said(&self.medium, &whole, at),
                is_untold: self.is_untold(&whole, damage),
                older: match self.is_untold(&whole, damage) && is_map(whole.superblock(), at) {
                    true => damaged_tables::links(&whole, &self.medium, &medium, at),
                    false => BTreeSet::new(),
                },
            };
            let tally = matrix.entry((structure, damage)).or_default();
            self.hit_one(&whole, medium, &case, tally)
                .map_err(|why| format!("{damage:?} block {at} ({structure:?}): {why}"))?;
        }
        Ok(())
    }

    fn hit_one(
        &mut self,
        whole: &Recovered,
        medium: Medium,
        case: &Case,
        tally: &mut Tally,
    ) -> Result<(), Failure> {
        tally.cases += 1;
        let strict = open::recover(&medium, None);
        let strict_error = strict
            .as_ref()
            .err()
            .map_or_else(String::new, ToString::to_string);
        tally.refused += u64::from(strict.is_err());
        let (found, loss) = match strict {
            Ok(found) => (found, None),
            Err(error) => {
                let rescued = open::rescue(&medium, Trust::Certain)
                    .map_err(|e| format!("not opened: {error}; nor rescued: {e}"))?;
                (rescued.0, Some(rescued.1))
            }
        };
        tally.copied += u64::from(found.replayed().from_copies > 0);
        let was_cut = last_seq(&found) < last_seq(whole);
        let pledges = pledges(&found);
        let too_low = damaged_tables::too_low(&found);
        let mut seen = self.read_all(found, medium.clone())?;
        if let Some(loss) = &loss {
            forget(&mut seen, loss);
        }
        let mut hit = hit_by(whole, case.at);
        hit.extend(damaged_tables::links(whole, &self.medium, &medium, case.at));
        let is_cut = was_cut && loss.is_none() && case.may_cut(whole);
        // If recovery detects that a block is old, none of it is read.
        let none = BTreeSet::new();
        let older = loss.as_ref().map_or(&case.older, |_| &none);
        let lost = self.judge(&seen, &pledges, is_cut, older)?;
        let is_of_tables = matches!(whole, Recovered::Tables(_));
        ensure!(
            !(was_cut && is_of_tables) || lost.is_empty(),
            "the root before it was gone back to, and {} LBAs of that are lost",
            lost.len()
        );
        match lost.is_subset(&hit) {
            _ if was_cut && loss.is_none() => tally.cut += 1,
            true if lost.is_empty() => tally.harmless += 1,
            true => tally.exact += 1,
            false => {
                tally.more += 1;
                let mut beyond = beyond(&lost, &hit, case, whole);
                if loss.is_some() && case.is_untold {
                    let doubtful = damaged_tables::doubtful(whole, &too_low, case.at);
                    beyond.retain(|lba| !doubtful.contains(lba));
                }
                ensure!(
                    beyond.is_empty() || is_without_copies(whole.superblock()),
                    "it costs {} LBAs beyond it: {:?} ({strict_error})",
                    beyond.len(),
                    beyond.iter().take(8).collect::<Vec<_>>()
                );
            }
        }
        if loss.is_some() {
            self.rescue_the_rest(medium, &lost)?;
        }
        Ok(())
    }

    /// Checks that every block that can be read is what it was. Returns the blocks that cannot.
    fn judge(
        &self,
        seen: &[Seen],
        pledges: &BTreeMap<u64, u64>,
        is_cut: bool,
        older: &BTreeSet<u64>,
    ) -> Result<BTreeSet<u64>, Failure> {
        let model = self.model.base();
        let mut lost = BTreeSet::new();
        for (lba, (seen, expected)) in (0..).zip(seen.iter().zip(model)) {
            let Seen::Token(token) = seen else {
                lost.insert(lba);
                continue;
            };
            // With an older map checkpoint, blocks pledged since then come home.
            let journal = pledges.get(&lba).map(|journal| &model[*journal as usize]);
            let had = *token == 0 || self.model.had(lba, *token);
            let may_be_old = had && (is_cut || older.contains(&lba)) || self.might_be(lba, *token);
            ensure!(
                token == expected || journal == Some(token) || may_be_old,
                "LBA {lba} reads {token:#x}, not {expected:#x}"
            );
        }
        Ok(lost)
    }

    /// Checks what a rescue finds beyond what is certain: it is right where it claims certainty, and never another LBA's.
    fn rescue_the_rest(&mut self, medium: Medium, lost: &BTreeSet<u64>) -> Result<(), Failure> {
        let (found, loss) =
            open::rescue(&medium, Trust::Newest).map_err(|e| format!("newest: {e}"))?;
        let is_log = matches!(found, Recovered::Log(_));
        let mut seen = self.read_all(found, medium)?;
        forget(&mut seen, &loss);
        for (lba, seen) in (0..).zip(&seen) {
            let Seen::Token(token) = *seen else {
                ensure!(
                    lost.contains(&lba),
                    "LBA {lba} is certain, and lost by trust"
                );
                continue;
            };
            let had = token == 0 || self.model.had(lba, token);
            ensure!(
                had,
                "LBA {lba} is brought back as {token:#x}, which it never was"
            );
            let is_guess = loss.guessed.contains(Lba(lba));
            // In a log the second opening may be certain of what the first lost to a contradiction.
            ensure!(
                is_log || is_guess || !lost.contains(&lba),
                "LBA {lba} is not certain, and is brought back as if it were"
            );
            let sure = !lost.contains(&lba) && !is_guess;
            let expected = self.model.base()[lba as usize];
            ensure!(
                !sure || token == expected,
                "LBA {lba} is said to be {token:#x} for certain, and is {expected:#x}"
            );
        }
        Ok(())
    }
}

/// True if the loss of this single block should cost nothing else. There are two exceptions. A stale summary may end with a chunk that
/// was torn and whose number was used again: it is believed, because nothing shows which of two chunks with the same number is newer. And
/// the header of a chunk after the map checkpoint has no copy.
fn has_copies(case: &Case, whole: &Recovered) -> bool {
    let is_old_summary = (case.structure, case.damage) == (Structure::Summary, Damage::Stale);
    let Recovered::Log(whole) = whole else {
        return true;
    };
    let is_behind = case.structure == Structure::Header && case.chunk > Some(whole.root.seq);
    !is_behind && !is_old_summary
}

/// The blocks that are lost and should not be.
fn beyond(
    lost: &BTreeSet<u64>,
    hit: &BTreeSet<u64>,
    case: &Case,
    whole: &Recovered,
) -> BTreeSet<u64> {
    let more = lost.difference(hit).copied();
    match is_named(case, whole) {
        true => more.filter(|lba| !case.said.contains(lba)).collect(),
        false if has_copies(case, whole) => more.collect(),
        false => BTreeSet::new(),
    }
}

/// True if this is the header of a chunk after the map checkpoint, but not of the newest. The next header names what that chunk
/// said something about, and nothing else is lost.
fn is_named(case: &Case, whole: &Recovered) -> bool {
    let Recovered::Log(whole) = whole else {
        return false;
    };
    let is_behind = case.structure == Structure::Header && case.chunk > Some(whole.root.seq);
    is_behind && case.chunk < Some(whole.last_seq) && whole.superblock.has_names()
}

/// The LBAs that a header says something about or moves, and those whose data is in its chunk or in a page whose number it names.
/// Also the LBAs pledged to a block of the journal that it says something about, because that may have ended the pledge.
fn said(medium: &Medium, whole: &Recovered, at: u64) -> BTreeSet<u64> {
    let mut block = [0; BLOCK];
    medium.read_into(at, &mut block);
    let Ok((header, records)) = chunk::decode(&block, crc32c::crc32c) else {
        return BTreeSet::new();
    };
    let moved = |record: &Record| match *record {
        Record::Move { lba, .. } => Some((lba, 1)),
        _ => record.names(),
    };
    let runs = records.iter().filter_map(moved);
    let said = runs.flat_map(|(lba, blocks)| lba.0..lba.0 + blocks);
    let blocks = at..=at + u64::from(header.data_blocks);
    let here = blocks.flat_map(|at| hit_by(whole, at));
    let said: BTreeSet<u64> = said.collect();
    // A block pledged since reads what the chunk said about the journal's block, wherever that lies.
    let pledged = pledged_before(medium, whole, header.seq).chain(pledges(whole));
    let pledged = pledged.filter(|(_, journal)| said.contains(journal));
    let homes: Vec<u64> = pledged.map(|(home, _)| home).collect();
    let led = here.chain(numbered(whole, &records));
    said.iter().copied().chain(led).chain(homes).collect()
}

/// The pledges of chunks between the map checkpoint and this one: home addresses with their journal's blocks.
fn pledged_before<'a>(
    medium: &'a Medium,
    whole: &Recovered,
    end: Seq,
) -> impl Iterator<Item = (u64, u64)> + 'a {
    let from = match whole {
        Recovered::Log(whole) => whole.root.seq,
        Recovered::Tables(_) => end,
    };
    (0..medium.blocks())
        .filter_map(|at| {
            let mut block = [0; BLOCK];
            medium.read_into(at, &mut block);
            chunk::decode(&block, crc32c::crc32c).ok()
        })
        .filter(move |(header, _)| header.seq > from && header.seq < end)
        .flat_map(|(_, records)| records)
        .filter_map(|record| match record {
            Record::Pledge { home, journal } => Some((home.0, journal.0)),
            _ => None,
        })
}

/// The LBAs that lead to a page whose number these records name.
fn numbered(whole: &Recovered, records: &[Record]) -> Vec<u64> {
    let Recovered::Log(whole) = whole else {
        return Vec::new();
    };
    let told: BTreeSet<Vba> = records
        .iter()
        .filter_map(|record| match *record {
            Record::Pack { vba, .. }
            | Record::PackHere { vba }
            | Record::Share { vba, .. }
            | Record::MoveShared { vba, .. } => Some(vba),
            _ => None,
        })
        .collect();
    let leads = whole.state.map().iter().filter(|(_, entry)| match *entry {
        Entry::Shared(vba) => told.contains(&vba),
        Entry::Packed(page, slot) => {
            let base = whole.state.shared().deltas().base_of(PartId { page, slot });
            told.contains(&page) || base.is_some_and(|base| told.contains(&base.page))
        }
        Entry::Unmapped | Entry::Zero | Entry::Plain(_) => false,
    });
    leads.map(|(lba, _)| lba.0).collect()
}

fn forget(seen: &mut [Seen], loss: &Loss) {
    for (lba, blocks) in loss.lost.runs() {
        seen[lba.0 as usize..(lba.0 + blocks) as usize].fill(Seen::Unknown);
    }
}

fn last_seq(found: &Recovered) -> Seq {
    match found {
        Recovered::Log(found) => found.last_seq,
        Recovered::Tables(found) => Seq(found.generation.0),
    }
}

/// True for a log without copies of its metadata, like older ones.
fn is_without_copies(superblock: &Superblock) -> bool {
    superblock.layout() == Layout::Log && superblock.parity_leaves() == 0
}

impl Case {
    /// True if recovery may end the volume before this block: in a log the newest chunk's header or data, in tables the root.
    fn may_cut(&self, whole: &Recovered) -> bool {
        match whole {
            Recovered::Log(_) => matches!(self.structure, Structure::Header | Structure::Data),
            Recovered::Tables(_) => self.structure == Structure::Root,
        }
    }
}

impl World {
    /// True if the layout is `ordered` and the block might have been this when the power failed: then one of two copies of its
    /// link is the older one.
    fn might_be(&self, lba: u64, token: u32) -> bool {
        !self.stopped && !self.keeps_order() && self.model.might(lba, token)
    }

    /// True if nothing shows that a block is older than it should be: in the layout `ordered` without twins, if the volume was
    /// not stopped cleanly since the block was written.
    fn is_untold(&self, whole: &Recovered, damage: Damage) -> bool {
        let superblock = whole.superblock();
        let is_proven = superblock.has_twins() || self.stopped && superblock.has_editions();
        superblock.layout() == Layout::Ordered && damage == Damage::Stale && !is_proven
    }
}

/// The blocks that come home when the volume is opened, by LBA.
fn pledges(found: &Recovered) -> BTreeMap<u64, u64> {
    match found {
        Recovered::Log(found) => {
            let pairs = found.state.pledges().iter();
            pairs.map(|(home, journal)| (home.0, journal.0)).collect()
        }
        Recovered::Tables(_) => BTreeMap::new(),
    }
}

/// The LBAs whose data is in a block, or needs it.
fn hit_by(found: &Recovered, at: u64) -> BTreeSet<u64> {
    let found = match found {
        Recovered::Log(found) => found,
        Recovered::Tables(found) => {
            let here = found.links().filter(|(_, pba, _)| pba.0 == at);
            return here.map(|(lba, ..)| lba.into()).collect();
        }
    };
    let here = |entry: Entry| match entry {
        Entry::Unmapped | Entry::Zero => false,
        Entry::Plain(pba) => pba.0 == at,
        Entry::Shared(vba) => found.state.shared().pba(vba).0 == at,
        Entry::Packed(page, slot) => {
            let base = found.state.shared().deltas().base_of(PartId { page, slot });
            found.state.shared().pba(page).0 == at
                || base.is_some_and(|base| found.state.shared().pba(base.page).0 == at)
        }
    };
    let mapped = found.state.map().iter().filter(|(_, entry)| here(*entry));
    // A pledged block is read where the journal has it.
    let pledged = found.state.pledges().iter();
    let pledged = pledged.filter(|(_, journal)| here(found.state.map().get(*journal)));
    let pledged = pledged.map(|(home, _)| home.0);
    mapped.map(|(lba, _)| lba.0).chain(pledged).collect()
}

/// The blocks of each structure that are not blank.
fn structures(medium: &Medium, superblock: &Superblock) -> BTreeMap<Structure, Vec<u64>> {
    let mut places: BTreeMap<Structure, Vec<u64>> = BTreeMap::new();
    for at in (0..medium.blocks()).filter(|&at| !medium.is_blank(at)) {
        places
            .entry(structure(medium, superblock, at))
            .or_default()
            .push(at);
    }
    places
}

fn structure(medium: &Medium, superblock: &Superblock, at: u64) -> Structure {
    if superblock.mirrors().contains(&Pba(at)) {
        return Structure::Mirror;
    }
    if superblock.layout() != Layout::Log {
        let tables = superblock.table_at(0, 0).0;
        return match at {
            _ if at >= superblock.areas().data(0).0 => Structure::Data,
            _ if at >= tables => Structure::Table,
            _ if superblock.layout() == Layout::Ordered => Structure::Table,
            _ if at >= superblock.directory_at(0, 0).0 => Structure::Directory,
            _ => Structure::Root,
        };
    }
    let leaves = superblock.leaf_slot(Leaf(0), 0).0;
    if (superblock.root_place(Generation(0)).0..leaves).contains(&at) {
        return Structure::Root;
    }
    if medium.copies.contains(&at) {
        let twin = superblock.root_twin(Generation(0));
        return match twin.is_some_and(|twin| at >= twin.0) {
            true => Structure::Root,
            false => Structure::Parity,
        };
    }
    let end_of_leaves = leaves + 2 * u64::from(superblock.leaves());
    let segments = superblock.segments();
    match superblock.segment_of(Pba(at)) {
        None if (leaves..end_of_leaves).contains(&at) => Structure::Leaf,
        None if (segments.first().0..segments.end()).contains(&at) => Structure::Summary,
        None => Structure::Nothing,
        Some(_) => match header(medium, at) {
            Some(_) => Structure::Header,
            None => Structure::Data,
        },
    }
}

/// The header in a block, if there is one.
fn header(medium: &Medium, at: u64) -> Option<ChunkHeader> {
    let mut block = [0; BLOCK];
    medium.read_into(at, &mut block);
    let (header, _) = chunk::decode(&block, crc32c::crc32c).ok()?;
    (header.at == Pba(at)).then_some(header)
}

fn damage_block(medium: &mut Medium, older: &Medium, at: u64, damage: Damage, rng: &mut Rng) {
    let neighbour = match at {
        0 => 1,
        at => rng.pick(&[at - 1, (at + 1).min(medium.blocks() - 1)]),
    };
    let mut bytes = vec![0; BLOCK];
    medium.read_into(at, &mut bytes);
    match damage {
        Damage::Flipped => {
            let bit = rng.below(8 * BLOCK as u64) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        Damage::Zeroed => bytes.fill(0),
        Damage::Torn => {
            let sector = 512 * rng.below(8) as usize;
            bytes[sector..sector + 512].fill(0);
        }
        Damage::Stale if at >= older.blocks() => bytes.fill(0),
        Damage::Stale => return medium.replace(at, older.read(at)),
        // One of the two; the other one is a separate case.
        Damage::Swapped => return medium.replace(at, medium.read(neighbour)),
    }
    let cell: Cell = medium.tokens.cell(&bytes);
    medium.replace(at, cell);
}
