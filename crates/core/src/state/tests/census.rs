//! A census beside records leads to the state of a replay that counts and settles all at once, whatever the order of its steps, and
//! however few leaves are in memory.

use super::{Log, places, step, volume};
use crate::addr::{BLOCK_BYTES, Leaf, Pba, Vba};
use crate::entry::Entry;
use crate::format::leaf::checksum;
use crate::format::root::LeafSlot;
use crate::format::slots::Slots;
use crate::state::{Event, Nodes, Paging, State, Unwritten};
use alloc::{boxed::Box, collections::BTreeMap, sync::Arc, vec, vec::Vec};
use crc32c::crc32c as crc;
use proptest::prelude::*;
use proptest::sample::Index;

type Block = Box<[u8; BLOCK_BYTES]>;

/// The leaves that a map checkpoint has written.
#[derive(Default)]
struct Disk(BTreeMap<Pba, Block>);

impl Nodes for Disk {
    fn read(&self, at: Pba, block: &mut [u8; BLOCK_BYTES]) -> bool {
        self.0.get(&at).inspect(|of| *block = ***of).is_some()
    }
}

/// Makes a map checkpoint. Numbers that were freed before it are used again.
fn checkpoint(log: &mut Log) -> Vec<(Leaf, Block)> {
    log.state.checkpoint_begins();
    let mut written = Vec::new();
    for leaf in (0..volume().first_parity()).map(Leaf) {
        let mut block = Box::new([0; BLOCK_BYTES]);
        if log.state.take_dirty(leaf) && log.state.encode_leaf(leaf, &mut block[..]) {
            written.push((leaf, block));
        }
    }
    log.state.checkpoint_durable();
    written
}

/// Opens the volume with all leaves in memory.
fn loaded(written: &[(Leaf, Block)]) -> State {
    let mut state = State::new(&volume());
    for (leaf, block) in written {
        assert_eq!(state.load_leaf(*leaf, block), Ok(()));
    }
    state
}

/// Opens it with at most so many.
fn paged(written: &[(Leaf, Block)], most: usize) -> State {
    let volume = volume();
    let mut slots = vec![LeafSlot::Absent; volume.leaves() as usize];
    let mut disk = Disk::default();
    for (leaf, block) in written {
        slots[leaf.0 as usize] = LeafSlot::Slot0(checksum(*leaf, &block[..], crc));
        disk.0.insert(volume.leaf_slot(*leaf, 0), block.clone());
    }
    let mut state = State::new(&volume);
    let slots = Slots::from(slots);
    let paging = Paging::new(Arc::new(disk), most).with_census();
    state.page(&paging, &volume, &slots, crc);
    assert!(state.leave_on_medium(&slots));
    for (leaf, block) in written {
        if leaf.0 >= volume.map_leaves() + volume.shared_leaves() {
            assert_eq!(state.load_leaf(*leaf, block), Ok(()));
        }
    }
    state
}

/// Applies the records from this one on.
fn apply(state: &mut State, log: &Log, from: usize) {
    for (origin, record) in &log.told[from..] {
        assert_eq!(state.apply(*origin, record), Some(()), "{record:?}");
        state.trim();
    }
}

/// A step of a census: which of the leaves that it could take, and whether that was read for it.
type Counts = (Index, bool);

/// Takes a step; false if no leaf is left.
fn count(state: &mut State, written: &[(Leaf, Block)], (which, is_read): Counts) -> bool {
    let mut leaves = Vec::new();
    let mut next = Leaf(0);
    while let Some(uncounted) = state.next_uncounted(next) {
        let leaf = uncounted.leaf();
        leaves.push(leaf);
        next = Leaf(leaf.0 + 1);
    }
    if leaves.is_empty() {
        return false;
    }
    let leaf = leaves[which.index(leaves.len())];
    let block = written.iter().find(|(of, _)| *of == leaf);
    let block = block.filter(|_| is_read && state.is_away(leaf));
    let block = block.map(|(_, block)| &**block);
    assert_eq!(state.count_leaf(leaf, block), Ok(()));
    state.trim();
    true
}

/// All that follows from records.
fn contents(state: &mut State) -> impl PartialEq + core::fmt::Debug + use<> {
    let shared = state.shared();
    let at: Vec<_> = (0..4096)
        .map(Pba)
        .filter_map(|pba| Some((pba, shared.find(pba)?)))
        .collect();
    let pages = (0..shared.numbers()).map(Vba);
    let uses: Vec<_> = pages
        .clone()
        .map(|page| (shared.owners(page), shared.is_used(page)))
        .collect();
    let used = pages.filter(|page| shared.is_used(*page));
    let placed: Vec<_> = used
        .map(|page| (shared.pba(page), shared.has_parts(page)))
        .collect();
    let strays = state.strays().of(Pba(0)..Pba(4096));
    // A replay unmaps zeros.
    let entries = state
        .map()
        .iter()
        .filter(|(_, entry)| *entry != Entry::Zero);
    let entries: Vec<_> = entries.collect();
    let numbers = shared.numbers();
    let counts = super::counts(state);
    state.checkpoint_begins();
    state.checkpoint_durable();
    let free = core::iter::from_fn(|| state.number());
    let free: Vec<_> = free.take_while(|number| number.0 < numbers).collect();
    (counts, entries, uses, placed, at, strays, free)
}

proptest! {
    #[test]
    fn a_census_leads_to_the_state_of_a_settled_replay(
        before in prop::collection::vec(step(), 0..100),
        replayed in prop::collection::vec(step(), 0..60),
        beside in prop::collection::vec((step(), prop::collection::vec(any::<Counts>(), 0..3)), 0..100),
        rest in prop::collection::vec(any::<Counts>(), 0..12),
        most in 0..7usize,
    ) {
        let mut log = Log::new();
        before.into_iter().for_each(|step| log.sparse_step(step));
        let written = checkpoint(&mut log);
        let known = log.told.len();
        replayed.into_iter().for_each(|step| log.sparse_step(step));
        let mut state = paged(&written, most);
        apply(&mut state, &log, known);
        prop_assert!(state.begin_census(&Unwritten::default()));
        let (fresh, made) = (state.shared().numbers(), log.events.len());
        for (step, counts) in beside {
            let told = log.told.len();
            log.sparse_step(step);
            apply(&mut state, &log, told);
            for one in counts {
                count(&mut state, &written, one);
            }
            prop_assert!(!state.has_events() && state.uncounted() > 0);
        }
        // The end settles what is left, once all of the map is counted.
        for one in rest {
            count(&mut state, &written, one);
        }
        for leaf in 0..volume().map_leaves() {
            prop_assert_eq!(state.count_leaf(Leaf(leaf), None), Ok(()));
        }
        prop_assert_eq!(state.end_census(), Ok(()));
        prop_assert_eq!(state.uncounted(), 0);
        prop_assert_eq!(places(&state), places(&log.state));
        // Whoever still adds to a page of this life hears that it is given up.
        let given_up = |event: &Event| match event {
            Event::GivenUp(page) => (page.0 >= fresh).then_some(*page),
            _ => None,
        };
        let mut expected: Vec<Vba> = log.events[made..].iter().filter_map(given_up).collect();
        let heard = core::iter::from_fn(|| state.poll_event());
        let heard: Vec<Vba> = heard.filter_map(|event| given_up(&event)).collect();
        expected.sort_unstable();
        prop_assert_eq!(heard, expected);
        let mut again = loaded(&written);
        apply(&mut again, &log, known);
        prop_assert_eq!(again.settle(&Unwritten::default()), Ok(()));
        prop_assert_eq!(contents(&mut state), contents(&mut again));
        prop_assert_eq!(state.lost_leaf(), None);
    }
}
