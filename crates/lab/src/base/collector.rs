//! The collector: what happens when a block is full.
//!
//! When only the reserve is free, the collector moves a victim's valid pages into the reserve, and the victim becomes the
//! reserve. With several streams the reserve is two blocks: the moved pages may need a new block of another stream, too.

use super::pagemap::{FlashOp, PageMap};
use super::streams::Apart;
use crate::flash::{Cell, Die, EraseBlock};

/// The pages of a victim, by program unit.
pub(super) struct Units {
    die: Die,
    block: EraseBlock,
    /// Its first page.
    first: u32,
    unit_blocks: u32,
    types: u32,
    copy_back: bool,
}

impl Units {
    pub(super) fn of<'a>(
        &self,
        moving: &'a [(u32, u32)],
    ) -> impl Iterator<Item = &'a [(u32, u32)]> + use<'a> {
        let unit_blocks = self.unit_blocks;
        moving.chunk_by(move |(a, _), (b, _)| a / unit_blocks == b / unit_blocks)
    }

    /// Returns the type of the page that holds a block of the erase block.
    fn cell(&self, offset: u32) -> Cell {
        Cell::of_unit(offset / self.unit_blocks, self.types)
    }

    /// Returns the read of a unit; `None` if moves do not leave the die.
    #[inline]
    pub(super) fn read(&self, unit: &[(u32, u32)]) -> Option<FlashOp> {
        let cell = self.cell(unit.first()?.0 - self.first);
        let count = unit.len() as u32;
        (!self.copy_back).then_some(FlashOp::Read(self.die, self.block, cell, count))
    }

    /// Does the same if all pages are of one type.
    #[inline]
    fn read_plain(&self, unit: &[(u32, u32)]) -> Option<FlashOp> {
        let read = FlashOp::Read(self.die, self.block, Cell::FIRST, unit.len() as u32);
        (!self.copy_back).then_some(read)
    }

    /// Returns the operation that fills a unit, on pages of the first type.
    pub(super) fn fills(&self) -> FlashOp {
        match self.copy_back {
            true => FlashOp::Copy(self.die),
            false => FlashOp::Program(self.die, Cell::FIRST),
        }
    }
}

impl PageMap {
    /// Ensures that a die's stream has room for its next page.
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
    pub(super) fn open(&mut self, die: usize, stream: usize) {
        let base = die as u32 * self.per_die;
        let full = self.frontier(die, stream).active;
        let valid = self.valid[(base + full) as usize];
        self.victims(die, stream).close(full, valid);
        if let Some(leveller) = &mut self.leveller {
            leveller.filled(base + full);
        }
        self.begin_next(die, stream);
    }

    /// Begins a stream's next block.
    pub(super) fn begin_next(&mut self, die: usize, stream: usize) {
        let base = die as u32 * self.per_die;
        let free = &mut self.free[die];
        let next = match &self.leveller {
            None => free.pop_front(),
            Some(leveller) => {
                let at = leveller.next_free(base, free);
                free.remove(at)
            }
        };
        let Some(next) = next else {
            unreachable!("the reserve is given back before it is needed again")
        };
        self.filled_by[(base + next) as usize] = stream as u8;
        if let Some(opened) = &mut self.opened {
            opened.push(base + next);
        }
        let frontier = self.frontier(die, stream);
        (frontier.active, frontier.offset) = (next, 0);
        frontier.blocks += 1;
    }

    /// Collects a victim: moves its valid pages to the open blocks of their streams.
    fn collect(&mut self, die: usize) {
        let base = die as u32 * self.per_die;
        let pool = match self.separation.as_deref() {
            Some(Apart::Heat(heat)) => self.to_collect(heat, die),
            Some(Apart::Handles(_)) | None => 0,
        };
        let valid = &self.valid;
        let valid = |block: u32| valid[(base + block) as usize];
        let victims = &mut self.frontiers[die * self.streams + pool].victims;
        let victim = match &self.leveller {
            Some(leveller) if leveller.how.dynamic => {
                victims.take_unworn(valid, |block| leveller.erases(base + block))
            }
            _ => victims.take(valid),
        };
        let Some(victim) = victim else {
            unreachable!("a die without free blocks has closed ones")
        };
        let stream = usize::from(self.filled_by[(base + victim) as usize]);
        self.frontier(die, stream).blocks -= 1;
        if let Some(leveller) = &mut self.leveller {
            leveller.taken(base + victim);
        }
        let mut moving = std::mem::take(&mut self.moving);
        self.take_alive(base + victim, &mut moving);
        self.frontier(die, stream).live -= moving.len() as u64;
        self.look_at(&moving);
        let victims = self.units(die, victim);
        match self.separation {
            Some(_) => self.move_apart(die, stream, &victims, &moving),
            // Most drives have one page type; they must pay nothing per page for the others.
            None if self.types == 1 => {
                self.move_together::<false>(die, stream, &victims, &moving);
            }
            None => self.move_together::<true>(die, stream, &victims, &moving),
        }
        self.counts.moved += moving.len() as u64;
        self.note_moved(&moving);
        self.moving = moving;
        self.valid[(base + victim) as usize] = 0;
        self.erased(die, victim);
    }

    /// Returns the units of a die's block.
    pub(super) fn units(&self, die: usize, block: u32) -> Units {
        Units {
            die: Die(die as u32),
            block: EraseBlock(self.first + block),
            first: (die as u32 * self.per_die + block) * self.pages,
            unit_blocks: self.unit_blocks,
            types: self.types,
            copy_back: self.how.copy_back,
        }
    }

    /// Moves pages, each to the open block of its stream.
    fn move_apart(&mut self, die: usize, stream: usize, victim: &Units, moving: &[(u32, u32)]) {
        for unit in victim.of(moving) {
            self.ops.extend(victim.read(unit));
            for &(_, lba) in unit {
                let separation = self.separation.as_mut();
                let stream = separation.map_or(stream, |of| of.moved(lba, stream));
                if self.frontier(die, stream).offset == self.pages {
                    self.open(die, stream);
                }
                self.append(die, stream, lba, victim.fills());
            }
        }
    }

    /// Moves pages into the block that was just begun. Work common to all pages is done once, because most writes are moves.
    fn move_together<const TYPED: bool>(
        &mut self,
        die: usize,
        stream: usize,
        victim: &Units,
        moving: &[(u32, u32)],
    ) {
        let base = die as u32 * self.per_die;
        let count = moving.len() as u32;
        let fills = victim.fills();
        let frontier = &mut self.frontiers[die * self.streams + stream];
        let (block, offset) = (base + frontier.active, frontier.offset);
        assert!(offset + count <= self.pages, "a victim fits");
        frontier.offset += count;
        frontier.live += u64::from(count);
        self.valid[block as usize] += count;
        let mut filled = offset;
        for unit in victim.of(moving) {
            let count = unit.len() as u32;
            self.ops.extend(match TYPED {
                true => victim.read(unit),
                false => victim.read_plain(unit),
            });
            if count >= frontier.left {
                self.ops.push(match TYPED {
                    true => fills.with(victim.cell(filled)),
                    false => fills,
                });
                frontier.left += victim.unit_blocks;
            }
            frontier.left -= count;
            filled += count;
        }
        self.summarize(die, offset + count);
        for (at, &(_, lba)) in (block * self.pages + offset..).zip(moving) {
            self.put(lba, at);
        }
    }

    /// Reads the map entries of pages before they change, so that their cache misses overlap.
    fn look_at(&self, moving: &[(u32, u32)]) {
        let entries = moving.iter().map(|&(_, lba)| self.map[lba as usize]);
        std::hint::black_box(entries.fold(0, |all, entry| all ^ entry));
    }

    /// Erases a block of a die, and frees it.
    pub(super) fn erased(&mut self, die: usize, block: u32) {
        let address = EraseBlock(self.first + block);
        self.ops.push(FlashOp::Erase(Die(die as u32), address));
        self.counts.erases += 1;
        self.free[die].push_back(block);
        if let Some(opened) = &mut self.opened {
            opened.retain(|&other| other != die as u32 * self.per_die + block);
        }
        if let Some(leveller) = &mut self.leveller {
            leveller.erased(die as u32 * self.per_die + block);
        }
    }

    /// Takes the valid pages of a block, with their owners. No page of the block is valid afterwards.
    pub(super) fn take_alive(&mut self, block: u32, moving: &mut Vec<(u32, u32)>) {
        moving.clear();
        let (mut at, end) = (block * self.pages, (block + 1) * self.pages);
        while at < end {
            // As many pages as one word has bits for.
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

    /// Records that the entries of pages changed without a host write.
    pub(super) fn note_moved(&mut self, moved: &[(u32, u32)]) {
        if let Some(paging) = &mut self.paging {
            paging.moved(moved);
        }
    }
}
