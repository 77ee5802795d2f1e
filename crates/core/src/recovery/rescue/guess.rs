//! Guesses: for LBAs that no map checkpoint covers any more, the newest version that any header names.
//!
//! All headers that exist are applied, oldest first. If a chunk's segment has been erased since, no header shows which blocks the chunk
//! discarded or moved. So a discarded block may come back. But an LBA never gets another LBA's block. A number that has come to stand for
//! another page is not followed. A record about an LBA from before the volume grew is not followed either, if the LBA meant another block
//! then.

use super::doubt::{Doubt, nowhere};
use super::evidence::Summaries;
use super::scan::{Scan, Spot};
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

/// The result of applying all headers.
struct Found {
    state: State,
    since: Since,
}

/// For numbers and LBAs, the index (in log order) of the chunk that last named them.
#[derive(Default)]
struct Since {
    /// The chunk at which a number came to stand for its page.
    page: HashMap<u32, usize>,
    /// The chunk that mapped an LBA to a number.
    lba: HashMap<u64, usize>,
    /// Numbers whose page is no longer at its recorded place: something else has been written there.
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
                if writer
                    .is_none_or(|writer| writer > index || spots.may_lack_a_writer(writer, index))
                {
                    self.gone.insert(vba.0);
                }
                self.lba.insert(lba.0, index);
            }
            Record::Part { lba, .. } | Record::Delta { lba, .. } => {
                self.lba.insert(lba.0, index);
            }
            Record::SharePart { lba, vba, .. } => {
                // The record does not name the page's place, and a missing chunk may have given the number to another page.
                let placed = self.page.get(&vba.0);
                match placed.is_some_and(|&placed| spots.lack_none(placed, index)) {
                    true => self.lba.insert(lba.0, index),
                    false => self.lba.remove(&lba.0),
                };
            }
            Record::MoveShared { vba, from, .. } => {
                // If the number's page was at another place, or had been overwritten by then, the number stood for another page before.
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
            Record::Data { .. }
            | Record::Move { .. }
            | Record::Zero { .. }
            | Record::Discard { .. }
            | Record::Pledge { .. } => {}
        }
    }

    fn place(&mut self, index: usize, vba: Vba) {
        self.page.insert(vba.0, index);
        self.gone.remove(&vba.0);
    }

    /// True if the number still stands for the page that it stood for when the LBA was mapped to it.
    fn holds(&self, lba: Lba, vba: Vba) -> bool {
        match (self.lba.get(&lba.0), self.page.get(&vba.0)) {
            (Some(mapped), Some(placed)) => mapped >= placed && !self.gone.contains(&vba.0),
            _ => false,
        }
    }
}

/// Chunks, by their places.
struct Spots<'a> {
    all: &'a [Spot],
    /// For each chunk, the first chunk of the run without a gap that leads up to it.
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

    /// True if no chunk is missing between two.
    fn lack_none(&self, from: usize, to: usize) -> bool {
        self.since[to] <= from
    }

    /// True if a chunk between two may be missing that wrote where the first did, and whose write a crash took: then a record of the second
    /// does not mean the first's block. What the second one knew to be durable is where it was written, or is overwritten since.
    fn may_lack_a_writer(&self, first: usize, second: usize) -> bool {
        let whole_from = self.since[second];
        self.all[whole_from].seq > self.all[second].durable.next() && first < whole_from
    }

    /// The chunk that wrote what is in a block.
    fn writer(&self, superblock: &Superblock, pba: Pba) -> Option<usize> {
        let (segment, offset) = superblock.segment_of(pba)?;
        let next = self
            .by_place
            .partition_point(|&(of, at, _)| (of, at) <= (segment, offset));
        let (of, at, writer) = self.by_place[next.checked_sub(1)?];
        (of == segment && offset < at + self.all[writer].blocks).then_some(writer)
    }
}

/// Fills in guesses for what is in doubt.
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

/// Marks guesses as gone whose block may have been overwritten since.
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
            // The latest chunk that can have mapped the LBA there.
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
        // Torn chunks are at the end of the log, or after it.
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

/// The volume has grown: forgets records about LBAs that mean another block since.
fn forget_resettled(state: &mut State, since: &mut Since, how: Resettled) {
    let blocks = state.map().blocks();
    state.doubt(Lba(how.settled), blocks - how.settled);
    for lba in how.settled..blocks {
        since.lba.remove(&lba);
    }
}

/// If the leaf of a shared page is lost, places the page where the headers put it; the LBAs that lead to it become guesses. For a page of
/// parts, a header always names its number. For any other page, an LBA is trusted only if its own records say that it had the number.
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
        // A record that gave the LBA another number is no evidence for this one.
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
    /// True if the page that an LBA was mapped to is still the same.
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
