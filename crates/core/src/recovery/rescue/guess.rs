//! The newest version that any header tells of, for what no map checkpoint tells any more.
//!
//! The headers are applied from the first that there is. What they do not say: which blocks were discarded, or moved, by
//! a chunk whose segment has been erased since. So a block may come back that was discarded; but never another LBA's:
//! a number that has stood for another page since is not followed, nor what was said of an LBA before it was that block's.

use super::evidence::Summaries;
use super::scan::{Scan, Spot};
use super::{Doubt, nowhere};
use crate::addr::{Generation, Lba, Life, Pba, Segment, Seq, Vba};
use crate::entry::{Entry, LEAF_ENTRIES};
use crate::format::chunk::Record;
use crate::format::root::{LeafSlot, RootHeader};
use crate::format::superblock::{Resettled, Superblock};
use crate::recovery::RecoveryError;
use crate::recovery::replay::Replay;
use crate::state::State;
use alloc::collections::BTreeSet;
use alloc::{vec, vec::Vec};
use hashbrown::HashMap;

/// What all headers together say.
struct Found {
    state: State,
    since: Since,
}

/// By which chunk, counted in their order, something was named last.
#[derive(Default)]
struct Since {
    /// A number came to stand for a page.
    page: HashMap<u32, usize>,
    /// An LBA came to be mapped to a number.
    lba: HashMap<u64, usize>,
    /// Numbers whose page is not where it was said to be any more: something else has been written there.
    gone: BTreeSet<u32>,
}

impl Since {
    /// Learns from a record of the chunk `index`, before it is applied.
    fn learn(&mut self, index: usize, record: &Record, all: &Replay<'_>, spots: &Spots<'_>) {
        let shared = all.state.shared();
        match *record {
            Record::Pack { vba, .. } | Record::PackHere { vba } => self.place(index, vba),
            Record::Share { lba, vba, pba } => {
                if !shared.is_at(vba, pba) {
                    self.place(index, vba);
                }
                let writer = spots.writer(&all.superblock, pba);
                if writer.is_none_or(|writer| writer > index) {
                    self.gone.insert(vba.0);
                }
                self.lba.insert(lba.0, index);
            }
            Record::Part { lba, .. } | Record::Delta { lba, .. } => {
                self.lba.insert(lba.0, index);
            }
            Record::SharePart { lba, vba, .. } => {
                // It does not say where the page is: a chunk that is missing may have given the number to another one.
                let placed = self.page.get(&vba.0);
                match placed.is_some_and(|&placed| spots.lack_none(placed, index)) {
                    true => self.lba.insert(lba.0, index),
                    false => self.lba.remove(&lba.0),
                };
            }
            Record::MoveShared { vba, from, .. } => {
                // If it was somewhere else, or something else was there by then, it stood for another page before.
                let is_another = self.gone.contains(&vba.0)
                    && spots
                        .writer(&all.superblock, from)
                        .is_none_or(|writer| writer < index);
                match shared.is_at(vba, from) && !is_another {
                    true => {
                        self.gone.remove(&vba.0);
                    }
                    false => self.place(index, vba),
                }
            }
            _ => {}
        }
    }

    fn place(&mut self, index: usize, vba: Vba) {
        self.page.insert(vba.0, index);
        self.gone.remove(&vba.0);
    }

    /// Whether the number still stands for the page that it stood for when the LBA came to be mapped to a number.
    fn holds(&self, lba: Lba, vba: Vba) -> bool {
        match (self.lba.get(&lba.0), self.page.get(&vba.0)) {
            (Some(mapped), Some(placed)) => mapped >= placed && !self.gone.contains(&vba.0),
            _ => false,
        }
    }
}

/// Chunks by their places.
struct Spots<'a> {
    all: &'a [Spot],
    /// Of each the first before it from which none is missing.
    since: Vec<usize>,
    by_place: Vec<(Segment, u32, usize)>,
}

impl<'a> Spots<'a> {
    fn new(all: &'a [Spot]) -> Self {
        let places = all.iter().enumerate();
        let mut by_place: Vec<_> = places
            .map(|(index, spot)| (spot.place.segment, spot.place.offset, index))
            .collect();
        by_place.sort_unstable();
        let mut since: Vec<usize> = Vec::with_capacity(all.len());
        for (index, spot) in all.iter().enumerate() {
            let before = since.last().copied();
            let follows = index > 0 && all[index - 1].seq.next() == spot.seq;
            since.push(before.filter(|_| follows).unwrap_or(index));
        }
        Self {
            all,
            since,
            by_place,
        }
    }

    /// Whether no chunk is missing between two.
    fn lack_none(&self, from: usize, to: usize) -> bool {
        self.since[to] <= from
    }

    /// The chunk that has written what is in a block.
    fn writer(&self, superblock: &Superblock, pba: Pba) -> Option<usize> {
        let (segment, offset) = superblock.segment_of(pba)?;
        let next = self
            .by_place
            .partition_point(|&(of, at, _)| (of, at) <= (segment, offset));
        let (of, at, writer) = self.by_place[next.checked_sub(1)?];
        (of == segment && offset < at + self.all[writer].blocks).then_some(writer)
    }
}

/// Fills in what is in doubt.
pub(super) fn guess(
    main: &mut Replay<'_>,
    scan: &Scan,
    doubt: &mut Doubt,
) -> Result<(), RecoveryError> {
    let found = apply_all(main, scan)?;
    place_numbers(main, &found, doubt);
    if doubt.root_lost {
        main.restore_tags(&scan.spots);
    }
    let runs: Vec<_> = doubt.blank.runs().collect();
    for (from, blocks) in runs {
        let (mut at, end) = (from, from.plus(blocks));
        while let Some((lba, entry)) = found.state.map().next_mapped(at, end) {
            at = lba.plus(1);
            match found.leads_to_its_own(main, lba, entry) {
                true => {
                    main.state.guess(lba, entry);
                }
                false => doubt.gone.insert(lba, 1),
            }
        }
    }
    doubt_what_was_written_over(main, scan, &found.since, doubt);
    Ok(())
}

/// A guess leads to a block that something else may have been written to since.
fn doubt_what_was_written_over(
    main: &mut Replay<'_>,
    scan: &Scan,
    since: &Since,
    doubt: &mut Doubt,
) {
    let mut summaries = Summaries::default();
    let runs: Vec<_> = doubt.unknown.runs().collect();
    for (from, blocks) in runs {
        let (mut at, end) = (from, from.plus(blocks));
        while let Some((lba, entry)) = main.state.map().next_mapped(at, end) {
            at = lba.plus(1);
            // When it came to be mapped so, at the latest.
            let named = since.lba.get(&lba.0).map(|&index| scan.spots[index].seq);
            let before = doubt.missing.map(|missing| Seq(missing.0 - 1));
            let through = match doubt.blank.contains(lba) {
                true => named.or(before),
                false => before.or(named),
            };
            let through = through.unwrap_or(Seq(0));
            if !main.is_still_there(scan, &mut summaries, (lba, entry), through) {
                doubt.gone.insert(lba, 1);
            }
        }
    }
}

fn apply_all(main: &mut Replay<'_>, scan: &Scan) -> Result<Found, RecoveryError> {
    let (superblock, main_durable) = (main.superblock.clone(), main.durable);
    let root = RootHeader {
        uuid: superblock.uuid(),
        generation: Generation(0),
        seq: Seq(0),
        life: Life(0),
        durable: Seq(0),
        cursors: nowhere(&superblock),
        swept: 0,
        scrubbed: 0,
    };
    let slots = vec![LeafSlot::Absent; superblock.leaves() as usize];
    let mut all = Replay::new(&mut *main.source, superblock, main.crc, root, slots)?;
    let mut since = Since::default();
    let places = Spots::new(&scan.spots);
    all.durable = main_durable.max(scan.durable);
    let mut resettled = all.superblock.resettled();
    for (index, spot) in scan.spots.iter().enumerate() {
        if let Some(how) = resettled.take_if(|how| spot.life >= how.since) {
            forget_resettled(&mut all.state, &mut since, how);
        }
        // What was torn is the log's end, or behind it.
        let Some(chunk) = all.chunk_at(spot.place) else {
            break;
        };
        let mut block = chunk.header.at.plus(1);
        for record in &chunk.records {
            since.learn(index, record, &all, &places);
            all.follow(record, block);
            block = block.plus(record.tag().is_some().into());
        }
        all.apply_found(spot.place, &chunk, false, &mut |_| ());
    }
    if let Some(how) = resettled {
        forget_resettled(&mut all.state, &mut since, how);
    }
    Ok(Found {
        state: all.state,
        since,
    })
}

/// The volume has grown: what was said of an LBA that has meant another block since was said of that.
fn forget_resettled(state: &mut State, since: &mut Since, how: Resettled) {
    let blocks = state.map().blocks();
    state.doubt(Lba(how.settled), blocks - how.settled);
    for lba in how.settled..blocks {
        since.lba.remove(&lba);
    }
}

/// Shared pages whose leaf is lost are where the headers say; whose LBAs lead there is a guess then. A page of parts always
/// has a header that tells of it; of another one an LBA is believed that says itself that it had it.
fn place_numbers(main: &mut Replay<'_>, found: &Found, doubt: &mut Doubt) {
    let unplaced = main
        .state
        .map()
        .iter()
        .filter_map(|(lba, entry)| match entry {
            Entry::Shared(vba) | Entry::Packed(vba, _) => {
                (!main.state.shared().is_placed(vba)).then_some((lba, entry, vba))
            }
            _ => None,
        });
    for (lba, entry, vba) in unplaced {
        doubt.unknown.insert(lba, 1);
        // That it had another number once says nothing of this one.
        let is_its_own = found.state.map().get(lba) == entry && found.since.holds(lba, vba);
        if matches!(entry, Entry::Shared(_)) && !is_its_own {
            doubt.gone.insert(lba, 1);
        }
    }
    for leaf in &doubt.numbers {
        let first = leaf * LEAF_ENTRIES as u32;
        for vba in (first..first + LEAF_ENTRIES as u32).map(Vba) {
            if !main.state.shared().is_placed(vba) && found.state.shared().is_placed(vba) {
                let parts = found.state.shared().has_parts(vba);
                main.state
                    .guess_page(vba, found.state.shared().pba(vba), parts);
            }
        }
    }
    if doubt.deltas_lost {
        for (part, base) in found.state.shared().deltas().iter() {
            main.state.guess_delta(part, base);
        }
    }
}

impl Found {
    /// Whether what an LBA is said to be mapped to is still what it was then.
    fn leads_to_its_own(&self, main: &Replay<'_>, lba: Lba, entry: Entry) -> bool {
        match entry {
            Entry::Unmapped | Entry::Zero | Entry::Plain(_) => true,
            Entry::Shared(vba) | Entry::Packed(vba, _) => {
                self.since.holds(lba, vba)
                    && main.state.shared().is_placed(vba)
                    && main.state.shared().pba(vba) == self.state.shared().pba(vba)
                    && main.state.shared().has_parts(vba) == self.state.shared().has_parts(vba)
            }
        }
    }
}
