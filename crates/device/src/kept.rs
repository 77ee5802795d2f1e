//! Blocks that have been written and are still in their frames, so that a comparison need not read them back.
//!
//! A frame that comes back after its block was written is free, and its bytes are known to be those on the medium. It serves
//! comparisons until it is needed for something else. Beyond the pool's memory this takes a few bytes a frame. What must hold, so
//! that an entry is never wrong:
//! 1. An entry is made, under the volume's lock, when the write of its block has succeeded, from the frame that was written.
//! 2. It is removed, under the same lock, before anything else is written to that address, and before the address is erased.
//! 3. A frame that the core holds is never written to. Before a frame is handed out its entry is removed, under the share's lock,
//!    which is also held while a frame is compared.
//!
//! So an entry says what the medium last accepted there. It does not say that the block can still be read: a read finds that out
//! (promise 6), as for every written block.
//!
//! When no empty frame is left, frames that have served are taken first, because a journal block is needed once; then random ones.
//! The oldest would be the wrong choice: a journal is written round in order, and one longer than the share would lose each block
//! just before it is needed.

use std::ops::Range;

const NONE: u32 = u32::MAX;
/// No block of a medium: its last byte's offset would not fit.
const NOWHERE: u64 = u64::MAX;
/// In place of a part's number: the whole block.
const WHOLE: u8 = u8::MAX;

/// The frames of a share that hold written blocks, found by address.
pub(crate) struct Kept {
    frames: Vec<Frame>,
    /// First frame of each chain of the index; a power of two.
    chains: Vec<u32>,
    /// Free frames: those that have not served a comparison, and those that have.
    shelves: [Vec<u32>; 2],
    entries: usize,
    /// A pseudo-random sequence, for the choice of a frame.
    dice: u32,
}

#[derive(Clone, Copy)]
struct Frame {
    /// The block that it holds, and which part of that block; [`WHOLE`]: all.
    at: u64,
    slot: u8,
    /// The next frame of its chain.
    next: u32,
    /// Its place on a shelf, if it is on one.
    place: u32,
    served: bool,
}

impl Kept {
    /// For frames `0..frames`.
    pub fn new(frames: u32) -> Self {
        let none = Frame {
            at: NOWHERE,
            slot: WHOLE,
            next: NONE,
            place: NONE,
            served: false,
        };
        Self {
            frames: vec![none; frames as usize],
            chains: vec![NONE; (frames as usize).next_power_of_two()],
            shelves: [(); 2].map(|()| Vec::with_capacity(frames as usize)),
            entries: 0,
            dice: 1,
        }
    }

    /// How many frames are free.
    pub fn len(&self) -> usize {
        self.shelves.iter().map(Vec::len).sum()
    }

    /// Returns the frame that holds a block, or this part of it, whether the frame is free or held.
    pub fn find(&self, at: u64, slot: Option<u8>) -> Option<u32> {
        let slot = slot.unwrap_or(WHOLE);
        self.walk(at, |frame| frame.at == at && frame.slot == slot)
    }

    /// Returns the first frame of the block's chain for which `is_it` is true.
    fn walk(&self, at: u64, is_it: impl Fn(&Frame) -> bool) -> Option<u32> {
        let mut id = self.chains[self.chain(at)];
        while id != NONE {
            let frame = &self.frames[id as usize];
            if is_it(frame) {
                return Some(id);
            }
            id = frame.next;
        }
        None
    }

    /// Notes that a held frame's block has been written, whole or to a part of a page.
    pub fn add(&mut self, id: u32, at: u64, slot: Option<u8>) {
        debug_assert!(
            self.find(at, slot).is_none(),
            "what was at {at} was forgotten"
        );
        self.unlink(id);
        let chain = self.chain(at);
        let next = std::mem::replace(&mut self.chains[chain], id);
        let frame = &mut self.frames[id as usize];
        debug_assert_eq!(frame.place, NONE, "frame {id} is held");
        (frame.at, frame.next, frame.served) = (at, next, false);
        frame.slot = slot.unwrap_or(WHOLE);
        self.entries += 1;
    }

    /// Notes that these blocks are about to change: free frames among theirs go to `free`.
    pub fn forget(&mut self, blocks: Range<u64>, free: &mut Vec<u32>) {
        let few = blocks.end.saturating_sub(blocks.start) < self.frames.len() as u64;
        if self.entries == 0 {
        } else if few {
            for at in blocks {
                while let Some(id) = self.walk(at, |frame| frame.at == at) {
                    self.drop_entry(id, free);
                }
            }
        } else {
            for id in 0..self.frames.len() as u32 {
                if blocks.contains(&self.frames[id as usize].at) {
                    self.drop_entry(id, free);
                }
            }
        }
    }

    /// Takes a frame back. Returns true if it is kept.
    pub fn put(&mut self, id: u32) -> bool {
        let frame = self.frames[id as usize];
        debug_assert_eq!(frame.place, NONE, "frame {id} was held");
        if frame.at == NOWHERE {
            return false;
        }
        self.shelve(id, frame.served);
        true
    }

    /// Notes that a frame has been compared and found equal: it is the next to be taken.
    pub fn served(&mut self, id: u32) {
        let frame = &mut self.frames[id as usize];
        if std::mem::replace(&mut frame.served, true) || frame.place == NONE {
            return;
        }
        self.unshelve(id, false);
        self.shelve(id, true);
    }

    /// Takes a free frame for another use.
    pub fn take(&mut self) -> Option<u32> {
        let id = match self.shelves[usize::from(true)].last() {
            Some(&id) => id,
            None => {
                let others = &self.shelves[usize::from(false)];
                // A linear congruence (Numerical Recipes, §7.1): its high bits are good enough.
                self.dice = self
                    .dice
                    .wrapping_mul(1_664_525)
                    .wrapping_add(1_013_904_223);
                let place = (u64::from(self.dice) * others.len() as u64) >> 32;
                *others.get(place as usize)?
            }
        };
        self.unshelve(id, self.frames[id as usize].served);
        self.unlink(id);
        Some(id)
    }

    fn drop_entry(&mut self, id: u32, free: &mut Vec<u32>) {
        self.unlink(id);
        let frame = self.frames[id as usize];
        if frame.place != NONE {
            self.unshelve(id, frame.served);
            free.push(id);
        }
    }

    fn shelve(&mut self, id: u32, served: bool) {
        let shelf = &mut self.shelves[usize::from(served)];
        self.frames[id as usize].place = shelf.len() as u32;
        shelf.push(id);
    }

    fn unshelve(&mut self, id: u32, served: bool) {
        let place = std::mem::replace(&mut self.frames[id as usize].place, NONE);
        let shelf = &mut self.shelves[usize::from(served)];
        shelf.swap_remove(place as usize);
        if let Some(&moved) = shelf.get(place as usize) {
            self.frames[moved as usize].place = place;
        }
    }

    fn unlink(&mut self, id: u32) {
        let Frame { at, next, .. } = self.frames[id as usize];
        if at == NOWHERE {
            return;
        }
        let chain = self.chain(at);
        if self.chains[chain] == id {
            self.chains[chain] = next;
        } else {
            let mut before = self.chains[chain];
            while self.frames[before as usize].next != id {
                before = self.frames[before as usize].next;
            }
            self.frames[before as usize].next = next;
        }
        self.frames[id as usize].at = NOWHERE;
        self.entries -= 1;
    }

    fn chain(&self, at: u64) -> usize {
        // Neighbours in the log are neighbours here too.
        at as usize & (self.chains.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[derive(Clone, Debug)]
    enum Step {
        Take,
        Give(usize),
        Write(usize, u64),
        Forget(u64, u64),
        Compare(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Take),
            3 => (0..64usize).prop_map(Step::Give),
            3 => ((0..64usize), (0..40u64)).prop_map(|(i, at)| Step::Write(i, at)),
            1 => ((0..40u64), (1..50u64)).prop_map(|(at, blocks)| Step::Forget(at, blocks)),
            2 => (0..40u64).prop_map(Step::Compare),
        ]
    }

    proptest! {
        /// Compares with a map that gets the same steps, and with the frames' contents.
        #[test]
        fn an_entry_is_what_was_written_last(steps in prop::collection::vec(step(), 0..300)) {
            const FRAMES: u32 = 20;
            let mut kept = Kept::new(FRAMES);
            let mut free: Vec<u32> = (0..FRAMES).collect();
            let mut held: Vec<u32> = Vec::new();
            let mut contents = HashMap::new();
            let mut medium = HashMap::new();
            let mut stamp = 0;
            for step in steps {
                match step {
                    Step::Take => {
                        let Some(id) = free.pop().or_else(|| kept.take()) else { continue };
                        stamp += 1;
                        contents.insert(id, stamp);
                        held.push(id);
                    }
                    Step::Give(index) if !held.is_empty() => {
                        let id = held.swap_remove(index % held.len());
                        if !kept.put(id) {
                            free.push(id);
                        }
                    }
                    Step::Write(index, at) if !held.is_empty() => {
                        let id = held[index % held.len()];
                        kept.forget(at..at + 1, &mut free);
                        kept.add(id, at, None);
                        medium.insert(at, contents[&id]);
                    }
                    Step::Forget(at, blocks) => {
                        kept.forget(at..at + blocks, &mut free);
                        medium.retain(|&block, _| !(at..at + blocks).contains(&block));
                    }
                    Step::Compare(at) => {
                        if let Some(id) = kept.find(at, None) {
                            prop_assert_eq!(medium[&at], contents[&id]);
                            kept.served(id);
                        }
                    }
                    _ => {}
                }
                prop_assert_eq!(free.len() + held.len() + kept.len(), FRAMES as usize);
            }
        }
    }

    #[test]
    fn frames_that_have_served_are_taken_first() {
        let mut kept = Kept::new(8);
        for id in 0..8 {
            kept.add(id, u64::from(id) * 8, None);
            assert!(kept.put(id));
        }
        kept.served(5);
        kept.served(2);
        assert_eq!([kept.take(), kept.take()], [Some(2), Some(5)]);
        assert_eq!((kept.find(40, None), kept.find(8, None)), (None, Some(1)));
        assert_eq!(kept.len(), 6);
        while kept.take().is_some() {}
        assert_eq!(kept.len(), 0);
        assert!((0..64).all(|at| kept.find(at, None).is_none()));
    }

    /// A journal of twice the frames, written and then looked for in order, round after round.
    #[test]
    fn a_journal_longer_than_the_share_is_not_lost_as_a_whole() {
        const FRAMES: u32 = 1000;
        let mut kept = Kept::new(FRAMES);
        let mut free: Vec<u32> = (0..FRAMES).collect();
        let mut found = 0;
        let behind = 1500;
        for at in 0..20_000u64 {
            let id = free.pop().or_else(|| kept.take()).unwrap();
            kept.add(id, at, None);
            kept.put(id);
            if let Some(id) = at.checked_sub(behind).and_then(|at| kept.find(at, None)) {
                kept.served(id);
                found += 1;
            }
        }
        assert!(found > 5000, "{found} of 18500");
    }
}
