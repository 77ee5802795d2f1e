//! The original and the replay cannot differ. Records applied one by one to a state that counts lead to the same state as records that
//! are replayed and counted at the end.

mod census;

use super::{Event, Origin, State, Unsound, Unwritten};
use crate::addr::{BLOCK_BYTES, Lba, Leaf, Pba, Segment, Vba};
use crate::entry::{Entry, PartId};
use crate::format::chunk::{Part, Record};
use crate::format::geometry::{Params, SMALL, plan};
use crate::format::summary::Owner;
use crate::format::superblock::Superblock;
use alloc::{boxed::Box, vec::Vec};
use proptest::prelude::*;

const LBAS: u64 = 24;
/// LBAs lie so far apart that they fill three leaves.
const APART: u64 = 128;

fn volume() -> Superblock {
    plan(&Params {
        medium_blocks: 4096,
        logical_blocks: Some(LBAS * APART),
        over_provisioning: 280,
        segment_blocks: Some(64),
        ..SMALL
    })
    .expect("there is room")
}

/// What a client may do next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Write(u64),
    Zero(u64),
    Discard(u64, u64),
    /// The first LBA gets the content of the second.
    Share(u64, u64),
    Part(u64),
    Delta(u64, u64),
    Pledge(u64, u64),
    /// The collector moves an LBA's block.
    Move(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let lba = || (0..LBAS).prop_map(|lba| lba * APART);
    prop_oneof![
        4 => lba().prop_map(Step::Write),
        1 => lba().prop_map(Step::Zero),
        1 => (lba(), 1..8u64).prop_map(discard),
        3 => (lba(), lba()).prop_map(|(lba, of)| Step::Share(lba, of)),
        4 => lba().prop_map(Step::Part),
        2 => (lba(), lba()).prop_map(|(lba, of)| Step::Delta(lba, of)),
        1 => (lba(), lba()).prop_map(|(home, journal)| Step::Pledge(home, journal)),
        2 => lba().prop_map(Step::Move),
    ]
}

fn discard((lba, blocks): (u64, u64)) -> Step {
    Step::Discard(lba, (blocks * APART).min(LBAS * APART - lba))
}

/// A log of records, and the state that results while it is written.
struct Log {
    state: State,
    told: Vec<(Origin, Record)>,
    segments: crate::format::superblock::SegmentArea,
    blocks: u64,
    events: Vec<Event>,
}

impl Log {
    fn new() -> Self {
        let superblock = volume();
        let mut state = State::new(&superblock);
        assert_eq!(state.settle(&Unwritten::default()), Ok(()));
        Self {
            state,
            told: Vec::new(),
            segments: superblock.segments(),
            blocks: 0,
            events: Vec::new(),
        }
    }

    /// The next block of the log.
    fn block(&mut self) -> Pba {
        let usable = u64::from(self.segments.usable());
        let segment = Segment((self.blocks / usable) as u32);
        self.blocks += 1;
        self.segments
            .start(segment)
            .plus((self.blocks - 1) % usable)
    }

    fn tell(&mut self, origin: Origin, record: Record) {
        assert_eq!(self.state.apply(origin, &record), Some(()), "{record:?}");
        self.told.push((origin, record));
        while let Some(event) = self.state.poll_event() {
            self.events.push(event);
        }
    }

    fn tell_of_block(&mut self, record: Record) {
        let block = self.block();
        self.tell(Origin::of_block(block), record);
    }

    fn step(&mut self, step: Step) {
        let data = |lba| Record::Data {
            lba: Lba(lba),
            sum: 0,
        };
        match step {
            Step::Write(lba) => self.tell_of_block(data(lba)),
            Step::Zero(lba) => {
                let (lba, blocks) = (Lba(lba), 1);
                self.tell(Origin::NONE, Record::Zero { lba, blocks });
            }
            Step::Discard(lba, blocks) => {
                let lba = Lba(lba);
                self.tell(Origin::NONE, Record::Discard { lba, blocks });
            }
            Step::Pledge(home, journal) if home != journal => {
                let (home, journal) = (Lba(home), Lba(journal));
                self.tell(Origin::NONE, Record::Pledge { home, journal });
            }
            Step::Pledge(..) => {}
            Step::Share(lba, of) => self.share(Lba(lba), Lba(of)),
            Step::Part(lba) => self.part(Lba(lba), None),
            Step::Delta(lba, of) => self.part(Lba(lba), Some(Lba(of))),
            Step::Move(lba) => self.relocate(Lba(lba)),
        }
    }

    /// The same, with page numbers that fill several leaves of their table.
    fn sparse_step(&mut self, step: Step) {
        let numbers = self.state.shared().numbers();
        if numbers % 16 == 11 && numbers < 2500 {
            self.state.shared.skip_numbers(250);
        }
        self.step(step);
    }

    fn share(&mut self, lba: Lba, of: Lba) {
        let entry = self.state.map().get(of);
        if self.state.map().get(lba) == entry {
            return;
        }
        let share = |lba, vba, pba| Record::Share { lba, vba, pba };
        match entry {
            Entry::Unmapped | Entry::Zero => {}
            Entry::Plain(pba) => {
                let vba = self.state.number().expect("there are numbers");
                self.tell(Origin::NONE, share(of, vba, pba));
                self.tell(Origin::NONE, share(lba, vba, pba));
            }
            Entry::Shared(vba) => {
                let pba = self.state.shared().pba(vba);
                self.tell(Origin::NONE, share(lba, vba, pba));
            }
            Entry::Packed(vba, slot) => {
                self.tell(Origin::NONE, Record::SharePart { lba, vba, slot });
            }
        }
    }

    /// Adds a page of one part. The part is a delta if the block at `against` can be its base.
    fn part(&mut self, lba: Lba, against: Option<Lba>) {
        let base = against.and_then(|lba| match self.state.map().get(lba) {
            Entry::Packed(page, slot) => Some(PartId { page, slot }),
            _ => None,
        });
        let deltas = self.state.shared().deltas();
        let base = base.filter(|base| deltas.base_of(*base).is_none());
        let vba = self.state.number_for_parts().expect("there are numbers");
        self.tell_of_block(Record::Pack { vba, sum: 0 });
        let part = Part::default();
        let record = match base {
            None => Record::Part { lba, part },
            Some(base) => Record::Delta { lba, part, base },
        };
        let origin = Origin {
            block: Pba(0),
            page: Some(vba),
        };
        self.tell(origin, record);
    }

    fn relocate(&mut self, lba: Lba) {
        let sum = 0;
        match self.state.map().get(lba) {
            Entry::Unmapped | Entry::Zero => {}
            Entry::Plain(from) => self.tell_of_block(Record::Move { lba, sum, from }),
            Entry::Shared(vba) | Entry::Packed(vba, _) => {
                let from = self.state.shared().pba(vba);
                self.tell_of_block(Record::MoveShared { vba, sum, from });
            }
        }
    }

    /// The state that recovery makes of the log, from leaves that already contain the effects of its first `seen` records.
    fn replayed(&self, seen: usize) -> State {
        let mut state = State::new(&volume());
        for (origin, record) in self.told[..seen].iter().chain(&self.told) {
            assert_eq!(state.apply(*origin, record), Some(()), "{record:?}");
        }
        assert_eq!(state.settle(&Unwritten::default()), Ok(()));
        state
    }
}

/// Where each LBA is stored: the same whether or not a page with one owner left still has a number.
fn places(state: &State) -> Vec<(Lba, Option<super::Place>)> {
    let lbas = (0..LBAS).map(|lba| Lba(lba * APART));
    lbas.map(|lba| (lba, state.place_of(state.map().get(lba))))
        .collect()
}

fn counts(state: &State) -> impl PartialEq + core::fmt::Debug + use<> {
    let shared = state.shared();
    (
        state.live().of_all().to_vec(),
        (shared.len(), shared.owned(), shared.packed()),
        (shared.parts_owned(), shared.bases(), shared.deltas().len()),
        state.pledges().iter().collect::<Vec<_>>(),
    )
}

proptest! {
    #[test]
    fn a_replay_leads_to_the_same_state_as_the_original(
        steps in prop::collection::vec(step(), 1..200),
        seen in any::<prop::sample::Index>(),
    ) {
        let mut log = Log::new();
        for step in steps {
            log.step(step);
        }
        let again = log.replayed(seen.index(log.told.len() + 1));
        prop_assert_eq!(places(&again), places(&log.state));
        prop_assert_eq!(counts(&again), counts(&log.state));
    }

    #[test]
    fn a_record_of_something_outside_the_volume_does_nothing(
        lba in LBAS * APART..u64::MAX,
        number in any::<u32>(),
    ) {
        let mut log = Log::new();
        log.step(Step::Write(3));
        let (before, lba) = (places(&log.state), Lba(lba));
        let records = [
            Record::Data { lba, sum: 0 },
            Record::Move { lba, sum: 0, from: Pba(9) },
            Record::Zero { lba, blocks: 1 },
            Record::Discard { lba: Lba(3), blocks: lba.0 },
            Record::Share { lba, vba: Vba(0), pba: log.segments.first() },
            Record::Share { lba: Lba(3), vba: Vba(0), pba: Pba(number.into()) },
            Record::Pledge { home: lba, journal: Lba(3) },
            Record::Pledge { home: Lba(3), journal: lba },
            Record::Part { lba: Lba(3), part: Part::default() },
        ];
        for record in records {
            let is_inside = matches!(record, Record::Share { lba: Lba(3), pba, .. }
                if log.segments.segment_of(pba).is_some());
            if !is_inside {
                prop_assert_eq!(log.state.apply(Origin::NONE, &record), None, "{:?}", record);
            }
        }
        prop_assert_eq!(places(&log.state), before);
        prop_assert!(log.state.pledges().is_empty());
    }
}

#[test]
fn loaded_leaves_are_not_written_again() {
    let mut log = Log::new();
    // The first number is free again, and its page has no address.
    for step in [
        Step::Part(1),
        Step::Part(1),
        Step::Write(2),
        Step::Share(3, 2),
    ] {
        log.step(step);
    }
    log.state.checkpoint_begins();
    log.state.checkpoint_durable();
    let mut found = State::new(&volume());
    let leaves = (0..volume().first_parity()).map(Leaf);
    let mut block = Box::new([0; BLOCK_BYTES]);
    for leaf in leaves.clone() {
        if log.state.take_dirty(leaf) && log.state.encode_leaf(leaf, &mut block[..]) {
            assert_eq!(found.load_leaf(leaf, &block), Ok(()));
        }
    }
    assert_eq!(found.settle(&Unwritten::default()), Ok(()));
    assert_eq!(places(&found), places(&log.state));
    found.checkpoint_begins();
    found.checkpoint_durable();
    let dirty: Vec<Leaf> = leaves.filter(|leaf| found.take_dirty(*leaf)).collect();
    assert_eq!(dirty, []);
}

#[test]
fn the_owner_of_a_page_of_parts_is_found_by_its_tag_or_by_search() {
    let mut log = Log::new();
    log.step(Step::Part(1));
    let Entry::Packed(page, _) = log.state.map().get(Lba(1)) else {
        panic!("LBA 1 is in a page of parts");
    };
    let (at, owner) = (log.state.shared().pba(page), Some(Owner::Vba(page)));
    assert_eq!(log.state.owner_of(at, Owner::Vba(page)), owner);
    assert_eq!(log.state.owner_of(at, Owner::Vba(Vba(page.0 + 1))), None);
    assert_eq!(log.state.owner_of(at.plus(1), Owner::Vba(page)), None);
    // The summary of its segment is lost, and so is the header that named it.
    assert_eq!(log.state.owner_of(at, Owner::None), None);
    log.state.find_strays(Segment(1), 1);
    assert_eq!(log.state.owner_of(at, Owner::None), None);
    log.state.find_strays(Segment(0), 1);
    assert_eq!(log.state.owner_of(at, Owner::None), owner);
    log.step(Step::Move(1));
    assert_eq!(log.state.owner_of(at, Owner::None), None);
    let moved = log.state.shared().pba(page);
    assert_eq!(log.state.owner_of(moved, Owner::Vba(page)), owner);
    log.step(Step::Discard(1, 1));
    assert_eq!(log.state.owner_of(moved, Owner::Vba(page)), None);
}

#[test]
fn two_pages_at_one_address_are_an_error() {
    for of_parts in [true, false] {
        let mut found = State::new(&volume());
        let at = volume().segment_start(Segment(0));
        for (number, lbas) in [(0, 0..2), (1, 2..4)] {
            let vba = Vba(number);
            let origin = Origin::of_block(at);
            if of_parts {
                found.apply(origin, &Record::Pack { vba, sum: 0 });
            }
            for lba in lbas.map(Lba) {
                let slot = 0;
                let record = match of_parts {
                    true => Record::SharePart { lba, vba, slot },
                    false => Record::Share { lba, vba, pba: at },
                };
                found.apply(Origin::NONE, &record);
            }
        }
        assert_eq!(found.settle(&Unwritten::default()), Err(Unsound::Shared));
    }
}

#[test]
fn an_emptied_segment_and_a_page_given_up_are_reported() {
    let mut log = Log::new();
    log.step(Step::Part(1));
    log.step(Step::Write(2));
    assert_eq!(log.events, []);
    log.step(Step::Discard(1, 1));
    let Some(Event::GivenUp(_)) = log.events.pop() else {
        panic!("the page of LBA 1 is given up: {:?}", log.events);
    };
    log.step(Step::Share(3, 2));
    log.step(Step::Discard(2, 1));
    let only_one_left = |event: &Event| matches!(event, Event::Unshared { owner: Lba(3), .. });
    assert!(only_one_left(&log.events[0]) && log.events.len() == 1);
    log.step(Step::Discard(3, 1));
    assert_eq!(log.events[1..], [Event::Emptied(Segment(0))]);
}

#[test]
fn redeemed_pledges_have_no_record_until_a_map_checkpoint_is_durable() {
    let mut log = Log::new();
    for step in [Step::Write(5), Step::Pledge(3, 5)] {
        log.step(step);
    }
    let mut found = log.replayed(0);
    assert!(!found.is_redeeming());
    assert_eq!((found.redeem(), found.is_redeeming()), (1, true));
    found.checkpoint_begins();
    assert!(found.is_redeeming());
    found.checkpoint_durable();
    assert!(!found.is_redeeming());
    let mut nothing = Log::new().replayed(0);
    assert_eq!((nothing.redeem(), nothing.is_redeeming()), (0, false));
}
