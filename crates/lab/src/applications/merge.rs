//! A log-structured merge tree with random keys, after LevelDB's description of itself (doc/impl.md). Tables are
//! merged into the next level, from one end of the keys to the other and again: read, written anew, and discarded.
//!
//! The log is left out: where writes are not synced it is deleted before a kernel writes it back. Reads by users are
//! left out too: the load is db_bench's `fillrandom`.

use super::steps::NextRequests;
use crate::trace::Op;
use std::collections::VecDeque;

/// Blocks of a table: 2 MiB.
const TABLE: u64 = 512;
/// Tables of the young level that are merged at once.
const YOUNG: usize = 4;
/// Tables of the first level: 10 MB. Each level after it has ten times as many.
const FIRST_LEVEL: usize = 5;
const FAN_OUT: usize = 10;

/// All keys are below this.
const KEYS: u64 = 1 << 48;

#[derive(Clone, Copy)]
struct Table {
    slot: u32,
    /// Its keys: from `from` to below `to`.
    from: u64,
    to: u64,
}

/// A tree on a disk.
pub struct Merge {
    table_blocks: u64,
    /// Tables that hold all keys once: this many are live, whatever is written.
    live: usize,
    /// The young level, oldest first; then levels of disjoint tables.
    levels: Vec<Vec<Table>>,
    /// Where the next merge of each level begins.
    next: Vec<u64>,
    /// Overwritten keys that no merge has dropped yet, in tables' worth, by level.
    overwritten: Vec<f64>,
    empty: VecDeque<u32>,
    #[cfg(test)]
    pub merged: Vec<Merged>,
}

/// What a merge read and wrote.
#[cfg(test)]
pub struct Merged {
    pub level: usize,
    pub upper: usize,
    pub lower: usize,
    pub made: usize,
}

impl Merge {
    pub fn new(blocks: u64) -> Self {
        let table_blocks = TABLE.min(blocks / 128).max(1);
        let slots = u32::try_from(blocks / table_blocks).unwrap_or(u32::MAX);
        Self {
            table_blocks,
            live: (slots as usize / 3).max(1),
            levels: vec![Vec::new()],
            next: vec![0],
            overwritten: vec![0.0],
            empty: (0..slots).collect(),
            #[cfg(test)]
            merged: Vec::new(),
        }
    }

    #[cfg(test)]
    pub fn level_tables(&self) -> Vec<usize> {
        self.levels.iter().map(Vec::len).collect()
    }

    /// Writes the memory table, then merges levels that are too large into the next.
    pub fn fill(&mut self, steps: &mut NextRequests) {
        if self.empty.is_empty() {
            self.drop_all(steps);
        }
        self.write(0, &[(0, KEYS)], steps);
        steps.flush();
        let mut level = 0;
        while let Some(tables) = self.levels.get(level) {
            match tables.len() > most(level) {
                true => self.merge(level, steps),
                false => level += 1,
            }
        }
    }

    fn merge(&mut self, level: usize, steps: &mut NextRequests) {
        if self.levels.len() == level + 1 {
            self.levels.push(Vec::new());
            self.next.push(0);
            self.overwritten.push(0.0);
        }
        let upper: Vec<Table> = match level {
            0 => std::mem::take(&mut self.levels[0]),
            _ => {
                let from = self.next[level];
                let tables = &mut self.levels[level];
                let at = tables.iter().position(|t| t.from >= from).unwrap_or(0);
                vec![tables.remove(at)]
            }
        };
        let from = upper.iter().map(|t| t.from).min().unwrap_or(0);
        let to = upper.iter().map(|t| t.to).max().unwrap_or(KEYS);
        self.next[level] = to;
        let tables = &mut self.levels[level + 1];
        // Keys are random: this share of the keys in the upper tables exists in the lower level already.
        let known = (tables.len() as f64 / self.live as f64).min(1.0);
        let begin = tables.partition_point(|t| t.to <= from);
        let end = tables.partition_point(|t| t.from < to);
        let lower: Vec<Table> = tables.drain(begin..end).collect();
        let old: Vec<Table> = upper.iter().chain(&lower).copied().collect();
        self.overwritten[level] += upper.len() as f64 * known;
        let gone = (self.overwritten[level] as usize).min(old.len() - 1);
        self.overwritten[level] -= gone as f64;
        let made = old.len() - gone;
        old.iter().for_each(|t| self.whole(Op::Read, t.slot, steps));
        if made > self.empty.len() {
            self.levels[level].extend(old);
            self.drop_all(steps);
            return;
        }
        let from = old.iter().map(|t| t.from).min().unwrap_or(from);
        let to = old.iter().map(|t| t.to).max().unwrap_or(to);
        let border = |nth: usize| from + (to - from) * nth as u64 / made as u64;
        let ranges: Vec<_> = (0..made).map(|n| (border(n), border(n + 1))).collect();
        self.write(level + 1, &ranges, steps);
        steps.flush();
        self.discard(&old, steps);
        #[cfg(test)]
        self.merged.push(Merged {
            level,
            upper: upper.len(),
            lower: lower.len(),
            made,
        });
    }

    /// Writes new tables, in order, between the existing ones.
    fn write(&mut self, level: usize, ranges: &[(u64, u64)], steps: &mut NextRequests) {
        let first = ranges.first().map_or(0, |range| range.0);
        let at = match level {
            0 => self.levels[0].len(),
            _ => self.levels[level].partition_point(|t| t.from < first),
        };
        let slots: Vec<u32> = self.empty.drain(..ranges.len()).collect();
        for &slot in &slots {
            self.whole(Op::Write { fua: false }, slot, steps);
        }
        let new = slots.iter().zip(ranges);
        let new = new.map(|(&slot, &(from, to))| Table { slot, from, to });
        self.levels[level].splice(at..at, new);
    }

    fn whole(&self, op: Op, slot: u32, steps: &mut NextRequests) {
        let at = u64::from(slot) * self.table_blocks;
        steps.pieces(op, at, self.table_blocks);
    }

    fn discard(&mut self, tables: &[Table], steps: &mut NextRequests) {
        for table in tables {
            self.whole(Op::DISCARD, table.slot, steps);
            self.empty.push_back(table.slot);
        }
    }

    /// Deletes a database that no longer fits on a small disk. A new one begins.
    fn drop_all(&mut self, steps: &mut NextRequests) {
        for level in std::mem::take(&mut self.levels) {
            self.discard(&level, steps);
        }
        self.levels = vec![Vec::new()];
        self.next.truncate(1);
        self.overwritten.truncate(1);
    }
}

/// The most tables of a level; with more it is merged into the next.
fn most(level: usize) -> usize {
    match level {
        0 => YOUNG - 1,
        _ => FIRST_LEVEL * FAN_OUT.pow(level as u32 - 1),
    }
}
