//! The collector: what happens when a block is full.
//!
//! When only the reserve is free, a victim's valid pages are moved into the reserve, and the victim becomes the reserve. With two
//! streams the reserve is two blocks: what is moved may need a new block of the other stream, too.

use super::pagemap::{FlashOp, PageMap};
use crate::flash::{Die, EraseBlock};

impl PageMap {
    /// Makes sure that the next page of a die's stream has a place.
    pub(super) fn make_room(&mut self, die: usize, stream: usize) {
        while self.frontier(die, stream).offset == self.pages {
            self.open(die, stream);
            while self.free[die].len() < self.reserve as usize {
                self.collect(die);
                if self.leveller.is_some() {
                    self.level(die);
                }
            }
        }
    }

    /// Closes the block that a stream has filled, and begins the next.
    fn open(&mut self, die: usize, stream: usize) {
        let base = die as u32 * self.per_die;
        let full = self.frontier(die, stream).active;
        let valid = self.valid[(base + full) as usize];
        self.frontier(die, stream).victims.close(full, valid);
        let free = &mut self.free[die];
        let next = match &mut self.leveller {
            None => free.pop_front(),
            Some(leveller) => {
                leveller.filled(base + full);
                let at = leveller.next_free(base, free);
                free.remove(at)
            }
        };
        let Some(next) = next else {
            unreachable!("the reserve is given back before it is needed again")
        };
        self.filled_by[(base + next) as usize] = stream as u8;
        let frontier = self.frontier(die, stream);
        (frontier.active, frontier.offset) = (next, 0);
        frontier.blocks += 1;
    }

    /// Moves a victim's pages to where their streams are being filled.
    fn collect(&mut self, die: usize) {
        let base = die as u32 * self.per_die;
        let stream = match &self.separation {
            None => 0,
            Some(separation) => separation.to_collect(self, die),
        };
        let valid = &self.valid;
        let valid = |block: u32| valid[(base + block) as usize];
        let frontier = &mut self.frontiers[die * self.streams + stream];
        frontier.blocks -= 1;
        let victims = &mut frontier.victims;
        let victim = match &self.leveller {
            Some(leveller) if leveller.how.dynamic => {
                victims.take_unworn(valid, |block| leveller.erases(base + block))
            }
            _ => victims.take(valid),
        };
        let Some(victim) = victim else {
            unreachable!("a die without free blocks has closed ones")
        };
        if let Some(leveller) = &mut self.leveller {
            leveller.taken(base + victim);
        }
        let mut moving = std::mem::take(&mut self.moving);
        self.take_alive(base + victim, &mut moving);
        self.frontier(die, stream).live -= moving.len() as u64;
        self.look_at(&moving);
        let (unit_blocks, copy_back) = (self.unit_blocks, self.how.copy_back);
        let units = moving.chunk_by(|(a, _), (b, _)| a / unit_blocks == b / unit_blocks);
        let (on, from) = (Die(die as u32), EraseBlock(self.first + victim));
        let read = |pages: usize| (!copy_back).then_some(FlashOp::Read(on, from, pages as u32));
        let fills = match copy_back {
            true => FlashOp::Copy(on),
            false => FlashOp::Program(on),
        };
        if self.separation.is_some() {
            for unit in units {
                self.ops.extend(read(unit.len()));
                for &(_, lba) in unit {
                    let separation = self.separation.as_mut();
                    let stream = separation.map_or(stream, |of| of.moved(lba, stream));
                    if self.frontier(die, stream).offset == self.pages {
                        self.open(die, stream);
                    }
                    self.append(die, stream, lba, fills);
                }
            }
        } else {
            // All of them go into the block that was just begun, so what is the same for all is done once: most writes are moves.
            let count = moving.len() as u32;
            let frontier = &mut self.frontiers[die * self.streams + stream];
            let (block, offset) = (base + frontier.active, frontier.offset);
            assert!(offset + count <= self.pages, "a victim fits");
            frontier.offset += count;
            frontier.live += u64::from(count);
            self.valid[block as usize] += count;
            for unit in units {
                let count = unit.len() as u32;
                self.ops.extend(read(unit.len()));
                if count >= frontier.left {
                    frontier.left += unit_blocks;
                    self.ops.push(fills);
                }
                frontier.left -= count;
            }
            self.summarize(die, offset + count);
            for (at, &(_, lba)) in (block * self.pages + offset..).zip(&moving) {
                self.put(lba, at);
            }
        }
        self.counts.moved += moving.len() as u64;
        self.note_moved(&moving);
        self.moving = moving;
        self.valid[(base + victim) as usize] = 0;
        self.erased(die, victim);
    }

    /// Looks at the entries of pages before they change, so that their cache misses are on their way together.
    fn look_at(&self, moving: &[(u32, u32)]) {
        let entries = moving.iter().map(|&(_, lba)| self.map[lba as usize]);
        std::hint::black_box(entries.fold(0, |all, entry| all ^ entry));
    }

    /// A block of a die is erased, and free.
    pub(super) fn erased(&mut self, die: usize, block: u32) {
        let address = EraseBlock(self.first + block);
        self.ops.push(FlashOp::Erase(Die(die as u32), address));
        self.counts.erases += 1;
        self.free[die].push_back(block);
        if let Some(leveller) = &mut self.leveller {
            leveller.erased(die as u32 * self.per_die + block);
        }
    }

    /// Gives the pages of a block that are alive, and their owners; none of them is after it.
    pub(super) fn take_alive(&mut self, block: u32, moving: &mut Vec<(u32, u32)>) {
        moving.clear();
        let (mut at, end) = (block * self.pages, (block + 1) * self.pages);
        while at < end {
            // As many of its pages as a word has bits of.
            let count = (64 - at % 64).min(end - at);
            let mask = (u64::MAX >> (64 - count)) << (at % 64);
            let word = &mut self.alive[(at / 64) as usize];
            let mut bits = *word & mask;
            *word &= !mask;
            while bits > 0 {
                let page = at / 64 * 64 + bits.trailing_zeros();
                moving.push((page, self.owner[page as usize]));
                bits &= bits - 1;
            }
            at += count;
        }
    }

    /// The entries of pages have changed without the host's doing.
    pub(super) fn note_moved(&mut self, moved: &[(u32, u32)]) {
        if let Some(paging) = &mut self.paging {
            paging.moved(moved);
        }
    }
}
