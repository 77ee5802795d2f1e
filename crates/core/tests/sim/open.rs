//! Creating a volume, and opening it: what a runtime does before it has a core.

use super::driver::Failure;
use super::medium::{BLOCK, Broken, Cell, Medium, Tokens};
use super::records;
use super::rng::Rng;
use std::sync::Arc;
use vellum_core::addr::{Leaf, Pba, Segment};
use vellum_core::check;
use vellum_core::format::areas::Layout;
use vellum_core::format::geometry::{self, Params};
use vellum_core::format::superblock::Superblock;
use vellum_core::format::table::Kind;
use vellum_core::format::{self, SumKind};
use vellum_core::layout::{self, Recovered};
use vellum_core::recovery::rescue::{Loss, Trust};
use vellum_core::recovery::{RecoveryError, Source, Unreadable};
use vellum_core::state::Paging;

/// The geometry of a volume.
#[derive(Clone, Copy, Debug)]
pub struct Volume {
    pub medium_blocks: u64,
    pub logical_blocks: Option<u64>,
    pub segment_blocks: u32,
    pub over_provisioning: u32,
    pub layout: Layout,
    pub sums: SumKind,
}

/// One volume in four is like older ones, whose block sums are CRC32C.
fn choose_sums(medium_blocks: u64) -> SumKind {
    match medium_blocks % 4 {
        0 => SumKind::Crc32c,
        _ => SumKind::Xxh3,
    }
}

impl Volume {
    /// Chooses small volumes, so that the collector always works, and thin ones, so that they fill up.
    pub fn choose(rng: &mut Rng) -> Self {
        let segment_blocks = rng.pick(&[64, 64, 64, 128]);
        let segments = rng.pick(&[12, 12, 16, 24, 40]);
        let medium_blocks = 300 + segments * u64::from(segment_blocks) + rng.below(64);
        Self {
            medium_blocks,
            logical_blocks: match rng.below(4) {
                0 => Some(rng.range(40, 200)),
                1 => Some(rng.range(medium_blocks / 2, medium_blocks * 2)),
                _ => None,
            },
            segment_blocks,
            over_provisioning: rng.pick(&[20, 70, 280, 900]) as u32,
            layout: Layout::Log,
            sums: choose_sums(medium_blocks),
        }
    }

    /// Chooses small volumes of tables, with one block a table or several.
    pub fn choose_tables(rng: &mut Rng, layout: Layout) -> Self {
        let medium_blocks = rng.pick(&[300, 400, 800, 2500, 5000]) + rng.below(64);
        Self {
            medium_blocks,
            logical_blocks: match rng.below(4) {
                0 => Some(rng.range(40, 200)),
                1 => Some(rng.range(medium_blocks / 2, medium_blocks * 2)),
                _ => None,
            },
            segment_blocks: 64,
            over_provisioning: rng.pick(&[20, 70, 280, 900]) as u32,
            layout,
            sums: choose_sums(medium_blocks),
        }
    }

    /// True if a volume of tables has no twins: one volume in eight with new sums, and all with old ones.
    pub fn is_single(&self) -> bool {
        self.sums == SumKind::Crc32c || self.medium_blocks % 8 == 1
    }

    /// Room for snapshots, in thousandths of what clients see, in one log of three.
    pub fn history(&self) -> u32 {
        match self.medium_blocks % 3 {
            1 if self.sums == SumKind::Xxh3 => 100 + (self.medium_blocks % 1000) as u32,
            _ => 0,
        }
    }

    /// Makes the volume, and a medium for it; also returns its logical size.
    pub fn create(&self, broken: Broken) -> Result<(Medium, u64), Failure> {
        let params = Params {
            medium_blocks: self.medium_blocks,
            logical_blocks: self.logical_blocks,
            over_provisioning: self.over_provisioning,
            segment_blocks: Some(self.segment_blocks),
            uuid: *b"a simulated disk",
            secret: [7; 32],
            sums: match broken {
                Broken::SumsAreLinear => SumKind::Crc32c,
                _ => self.sums,
            },
        };
        let superblock = match self.layout {
            Layout::Log => geometry::plan_with_history(&params, self.history()),
            layout if self.is_single() => geometry::plan_single_tables(&params, layout),
            layout => geometry::plan_tables(&params, layout),
        };
        let superblock = superblock.map_err(|e| format!("{self:?}: {e}"))?;
        let mut medium = Medium::new(self.medium_blocks, Tokens::of(&superblock, broken), broken);
        if superblock.parity_leaves() > 0 {
            let first = superblock.leaf_slot(Leaf(superblock.first_parity()), 0);
            medium.copies = first.0..superblock.segment_start(Segment(0)).0;
        }
        format::blank(&superblock, crc32c::crc32c, &mut |at, bytes| {
            medium.format(at.0, bytes)
        });
        // In these tests clients also write the blocks that belong to snapshots.
        Ok((medium, superblock.mapped_blocks()))
    }
}

/// Recovery's view of a medium.
struct Reader<'a> {
    medium: &'a mut Medium,
    rng: &'a mut Rng,
    /// The sync before the cache is dropped may fail.
    sync_fails: bool,
    /// A block that cannot be read.
    bad: Option<u64>,
    /// Recovery gets something wrong, if that is how the medium is broken.
    mistakes: bool,
}

impl Source for Reader<'_> {
    fn read(&mut self, at: Pba, bytes: &mut [u8]) -> Result<(), Unreadable> {
        let blocks = (bytes.len() / BLOCK) as u64;
        assert!(
            bytes.len().is_multiple_of(BLOCK),
            "a read of {} bytes",
            bytes.len()
        );
        assert!(
            at.0 + blocks <= self.medium.blocks(),
            "a read past the medium's end, at {at}"
        );
        if self
            .bad
            .is_some_and(|bad| (at.0..at.0 + blocks).contains(&bad))
        {
            return Err(Unreadable { at, blocks });
        }
        for (i, out) in bytes.chunks_exact_mut(BLOCK).enumerate() {
            self.medium.read_into(at.0 + i as u64, out);
            if self.mistakes {
                records::mistake(self.medium, at.0 + i as u64, out);
            }
        }
        Ok(())
    }

    fn drop_cache(&mut self) -> Result<(), Unreadable> {
        if std::mem::take(&mut self.sync_fails) {
            self.medium.sync_fails();
            let (at, blocks) = (Pba(0), self.medium.blocks());
            return Err(Unreadable { at, blocks });
        }
        self.medium.drop_cache(self.rng);
        Ok(())
    }
}

/// Recovers a medium without changing it.
pub fn recover(medium: &Medium, bad: Option<u64>) -> Result<Recovered, RecoveryError> {
    recover_from(&mut medium.clone(), &mut Rng::new(1), bad, false, None)
}

fn recover_from(
    medium: &mut Medium,
    rng: &mut Rng,
    bad: Option<u64>,
    sync_fails: bool,
    paging: Option<Paging>,
) -> Result<Recovered, RecoveryError> {
    let blocks = medium.blocks();
    let mut reader = Reader {
        medium,
        rng,
        sync_fails,
        bad,
        mistakes: true,
    };
    layout::recover_within(&mut reader, blocks, crc32c::crc32c, paging)
}

/// Leaves hardly a leaf in memory in some lives. Uses a separate generator, so that seeds mean what they did.
fn paging(medium: &mut Medium) -> Option<Paging> {
    medium.read_alone();
    let mut die = Rng::new(medium.stamp() ^ 0x5eaf);
    let leaves = die.below(3) as usize;
    let is_paged = die.percent(50);
    let dirty = die.pick(&[1000, 1000, 1, 2, 4]);
    let counts_later = die.percent(60);
    is_paged.then(|| {
        let paging = Paging::new(Arc::new(medium.read_beside()), leaves).with_dirty(dirty);
        match counts_later {
            true => paging.with_census(),
            false => paging,
        }
    })
}

/// Calls `by` with a medium as its source.
pub fn read<T>(medium: &mut Medium, by: impl FnOnce(&mut dyn Source) -> T) -> T {
    by(&mut Reader {
        medium,
        rng: &mut Rng::new(1),
        sync_fails: false,
        bad: None,
        mistakes: false,
    })
}

/// Rescues what is left of a damaged volume.
pub fn rescue(medium: &Medium, trust: Trust) -> Result<(Recovered, Loss), RecoveryError> {
    rescue_without(medium, trust, None)
}

/// The same, when one block cannot be read.
pub fn rescue_without(
    medium: &Medium,
    trust: Trust,
    bad: Option<u64>,
) -> Result<(Recovered, Loss), RecoveryError> {
    let blocks = medium.blocks();
    let mut reader = Reader {
        medium: &mut medium.clone(),
        rng: &mut Rng::new(1),
        sync_fails: false,
        bad,
        mistakes: false,
    };
    layout::rescue(&mut reader, blocks, crc32c::crc32c, trust)
}

/// True if a block holds hints, or counts that can be rebuilt: a volume survives its loss.
pub fn is_spare(found: &Recovered, at: u64) -> bool {
    let superblock = found.superblock();
    if superblock.layout() == Layout::Log {
        return false;
    }
    let first = superblock.table_number(Kind::Counts, 0);
    let end = superblock.table_blocks().iter().sum();
    (superblock.table_at(first, 0).0..superblock.table_at(end, 0).0).contains(&at)
}

/// True if a recovery that could not read a block found all of a log that another one found, or knows that it did not.
fn is_as_long(without: &Recovered, whole: &Recovered) -> bool {
    match (without, whole) {
        (Recovered::Log(without), Recovered::Log(whole)) => {
            without.last_seq >= whole.last_seq || without.unread.is_some()
        }
        _ => true,
    }
}

/// A random one of these blocks.
pub fn spare_block(medium: &Medium, rng: &mut Rng) -> Option<u64> {
    let found = recover(medium, None).ok()?;
    let spare: Vec<u64> = (0..medium.blocks())
        .filter(|&at| is_spare(&found, at))
        .collect();
    (!spare.is_empty()).then(|| rng.pick(&spare))
}

/// Recovers and begins a new life, as a runtime must. With `cuts` the power may fail at any moment, and everything begins again.
pub fn open(medium: &mut Medium, rng: &mut Rng, cuts: bool) -> Result<Recovered, Failure> {
    open_with(medium, rng, cuts, paging)
}

/// The same, with all leaves in memory.
pub fn open_whole(medium: &mut Medium, rng: &mut Rng, cuts: bool) -> Result<Recovered, Failure> {
    open_with(medium, rng, cuts, |_| None)
}

fn open_with(
    medium: &mut Medium,
    rng: &mut Rng,
    cuts: bool,
    paging: fn(&mut Medium) -> Option<Paging>,
) -> Result<Recovered, Failure> {
    let mut may_fail = cuts;
    'again: loop {
        // Uses a separate generator, so that seeds mean what they did. A refused opening is tried again.
        let fails = may_fail && medium.is_cached() && Rng::new(medium.stamp()).percent(20);
        may_fail = false;
        let paging = paging(medium);
        let mut recovered = match recover_from(medium, rng, None, fails, paging) {
            Err(RecoveryError::Unreadable(_)) if fails => continue 'again,
            other => other.map_err(|e| format!("recovery: {e}"))?,
        };
        if cuts && rng.percent(2) {
            // A block that cannot be read is an error or makes no difference; it never breaks anything.
            let bad = rng.below(medium.blocks());
            let spare = is_spare(&recovered, bad);
            match recover(medium, Some(bad)) {
                Err(error) if spare => return Err(format!("block {bad} is spare: {error}")),
                // The life continues without the block, which can be read again later.
                Ok(without) if spare => recovered = without,
                Ok(without) if !is_as_long(&without, &recovered) => {
                    return Err(format!("without block {bad} the log ends earlier"));
                }
                _ => {}
            }
        }
        // An interrupted growth may have left a superblock there, which must not outlive this.
        if medium.blocks() > recovered.superblock().medium_blocks() {
            let mut block = [0; BLOCK];
            recovered.superblock().encode(crc32c::crc32c, &mut block);
            medium.format(medium.blocks() - 1, &block);
        }
        if begin_life(medium, &mut recovered, rng, cuts)? {
            return Ok(recovered);
        }
    }
}

/// Writes the superblock of the next life, in the order that a runtime must keep; `false` if the power has failed.
fn begin_life(
    medium: &mut Medium,
    recovered: &mut Recovered,
    rng: &mut Rng,
    cuts: bool,
) -> Result<bool, Failure> {
    let found = recovered.superblock().clone();
    let [first, last] = found.mirrors();
    let is_found = |superblock: Superblock| superblock.mirrors_same_life(&found);
    let mut block = [0; BLOCK];
    medium.read_into(first.0, &mut block);
    let whole = Superblock::decode(&block, medium.blocks(), crc32c::crc32c);
    let last_lost = recovered.replayed().mirror_lost && whole.is_ok_and(is_found);
    let next = recovered
        .begin_life()
        .map_err(|e| format!("recovery: {e}"))?;
    // Uses a separate generator, so that seeds mean what they did. It must not draw the same cut again and again.
    let mut other = Rng::new(medium.writes ^ 0x1057);
    if last_lost && !write_mirror(medium, last, &found, &mut other, cuts) {
        return Ok(false);
    }
    let mut write = |at| write_mirror(medium, at, next, rng, cuts);
    Ok(write(first) && write(last))
}

/// Writes one mirror durably; `false` if the power has failed.
fn write_mirror(
    medium: &mut Medium,
    at: Pba,
    superblock: &Superblock,
    rng: &mut Rng,
    cuts: bool,
) -> bool {
    let mut block = [0; BLOCK];
    superblock.encode(crc32c::crc32c, &mut block);
    medium.writes += 1;
    let effect = medium.writes;
    medium.write(at.0, Cell::Meta(block.as_slice().into()), effect);
    if cuts && rng.percent(4) {
        medium.power_fails(rng);
        return false;
    }
    medium.complete(at.0, 1, effect, false);
    let asked = medium.stamp();
    medium.sync(asked, rng);
    if cuts && rng.percent(4) {
        medium.power_fails(rng);
        return false;
    }
    true
}

/// Everything that a check of the medium at rest finds, data included.
pub fn checked(medium: &Medium) -> check::Report {
    let options = check::Options {
        data: true,
        ..check::Options::default()
    };
    let mut reader = Reader {
        medium: &mut medium.clone(),
        rng: &mut Rng::new(1),
        sync_fails: false,
        bad: None,
        mistakes: false,
    };
    check::check(&mut reader, medium.blocks(), options, crc32c::crc32c)
}

/// Checks every invariant of the medium at rest.
pub fn check(medium: &Medium) -> Result<(), Failure> {
    let report = checked(medium);
    let copies_are_good = !report.findings.iter().any(|problem| {
        use check::Problem::{Leaf, Names, OpenSummary, Parity, RootCopy, RootCopyOld};
        matches!(
            problem,
            Leaf { .. }
                | Parity { .. }
                | RootCopy { .. }
                | RootCopyOld { .. }
                | OpenSummary { .. }
                | Names { .. }
        )
    });
    if report.is_sound() && (copies_are_good || !medium.rot.is_empty()) {
        Ok(())
    } else {
        Err(format!("the check finds {:?}", report.findings))
    }
}
