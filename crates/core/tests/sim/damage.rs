//! One damaged block anywhere in a volume at rest: what can still be read, and what cannot.

use super::concerns::{header, hit_by, pledges, said, used_twice};
use super::cut;
use super::damaged_tables::{self, is_map};
use super::driver::{Ask, Driver, Failure, ensure};
use super::medium::{BLOCK, Cell, Medium};
use super::model::{Model, Seen};
use super::open;
use super::rng::Rng;
use super::world::{COLLECTOR_BUFS, World};
use std::collections::{BTreeMap, BTreeSet};
use vellum_core::addr::{Generation, Lba, Leaf, Pba, Seq};
use vellum_core::format::areas::Layout;
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
    /// Good, but a chunk of the log that is not the damaged one is lost as well: recovery forgets more than it may.
    Short,
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
    /// True if the crash has torn the chunk after it, whose header is there and says that this one was durable.
    is_before_a_torn_one: bool,
    /// True if tables in place are older than they should be, and nothing shows which of them are.
    is_untold: bool,
    /// LBAs that may then read as they were before, undetected.
    older: BTreeSet<u64>,
}

impl World {
    pub fn medium(&self) -> &Medium {
        &self.medium
    }

    /// Keeps what is needed to judge damage.
    pub fn with_damage(mut self) -> Self {
        self.last = Some(Model::new(0));
        self
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
            if copies == Copies::Short {
                cut::lose_another(&mut medium, &whole, at, &mut self.rng);
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
                is_before_a_torn_one: cut::has_torn_one_after(&self.medium, at),
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
        let (found, loss, strict_error) = open_or_rescue(&medium)?;
        tally.refused += u64::from(loss.is_some());
        tally.copied += u64::from(found.replayed().from_copies > 0);
        let end = last_seq(&found);
        let was_cut = end < last_seq(whole);
        let pledges = pledges(&found);
        let too_low = damaged_tables::too_low(&found);
        let mut seen = self.read_all(found, medium.clone())?;
        if let Some(loss) = &loss {
            forget(&mut seen, loss);
        }
        let mut hit = hit_by(whole, case.at);
        hit.extend(damaged_tables::links(whole, &self.medium, &medium, case.at));
        hit.extend(used_twice(whole, &self.medium, &medium, case.at));
        // If recovery detects that a block is old, none of it is read.
        let none = BTreeSet::new();
        let older = loss.as_ref().map_or(&case.older, |_| &none);
        let is_cut = was_cut && loss.is_none();
        let cut = match is_cut {
            true => self.judge_cut(whole, end, case.at, &seen)?,
            false => BTreeSet::new(),
        };
        let older = if is_cut { &cut } else { older };
        let lost = self.judge(&seen, &pledges, older)?;
        hit.extend(&cut);
        let is_of_tables = matches!(whole, Recovered::Tables(_));
        ensure!(
            !(was_cut && is_of_tables) || lost.is_empty(),
            "the root before it was gone back to, and {} LBAs of that are lost",
            lost.len()
        );
        match lost.is_subset(&hit) {
            true if is_cut => tally.cut += 1,
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
            let may_be_old = had && older.contains(&lba) || self.might_be(lba, *token);
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

/// The blocks that are lost and should not be. Only the header of a chunk after the map checkpoint has no copy: the next header names
/// what that chunk said something about. Nothing names it if no chunk came after it.
fn beyond(
    lost: &BTreeSet<u64>,
    hit: &BTreeSet<u64>,
    case: &Case,
    whole: &Recovered,
) -> BTreeSet<u64> {
    let more = lost.difference(hit).copied();
    match (whole, case.chunk) {
        (Recovered::Log(log), Some(chunk))
            if chunk > log.root.seq && log.superblock.has_names() =>
        {
            let is_named = chunk < log.last_seq || case.is_before_a_torn_one;
            more.filter(|lba| is_named && !case.said.contains(lba))
                .collect()
        }
        _ => more.collect(),
    }
}

/// What recovery finds, or else what a rescue finds, with what that has lost and why.
fn open_or_rescue(medium: &Medium) -> Result<(Recovered, Option<Loss>, String), Failure> {
    match open::recover(medium, None) {
        Ok(found) => Ok((found, None, String::new())),
        Err(error) => {
            let rescued = open::rescue(medium, Trust::Certain)
                .map_err(|e| format!("not opened: {error}; nor rescued: {e}"))?;
            Ok((rescued.0, Some(rescued.1), error.to_string()))
        }
    }
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
