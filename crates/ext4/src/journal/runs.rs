//! A set of a journal's blocks, as runs. Writes mostly form runs, so it is small however long the journal is.

use core::ops::Range;

/// Runs in order, with gaps between them.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs(Vec<Range<u32>>);

impl Runs {
    /// Adds a run. Returns true if any of it is new.
    pub fn add(&mut self, run: Range<u32>) -> bool {
        if run.is_empty() || self.reaches(run.start) >= run.end {
            return false;
        }
        let first = self.0.partition_point(|known| known.end < run.start);
        let after = self.0.partition_point(|known| known.start <= run.end);
        let touched = &self.0[first..after];
        let start = touched
            .first()
            .map_or(run.start, |known| known.start.min(run.start));
        let end = touched
            .last()
            .map_or(run.end, |known| known.end.max(run.end));
        self.0.splice(first..after, core::iter::once(start..end));
        true
    }

    /// Removes a run.
    pub fn remove(&mut self, run: Range<u32>) {
        let first = self.0.partition_point(|known| known.end <= run.start);
        let after = self.0.partition_point(|known| known.start < run.end);
        let (Some(touched), false) = (self.0.get(first..after), run.is_empty()) else {
            return;
        };
        let before = touched.first().map(|known| known.start..run.start);
        let behind = touched.last().map(|known| run.end..known.end);
        let rest = before.into_iter().chain(behind);
        self.0
            .splice(first..after, rest.filter(|run| !run.is_empty()));
    }

    /// The end of the run that contains `at`; `at` itself if there is none.
    pub fn reaches(&self, at: u32) -> u32 {
        let after = self.0.partition_point(|known| known.start <= at);
        let here = after.checked_sub(1).and_then(|index| self.0.get(index));
        here.map_or(at, |known| known.end.max(at))
    }

    /// How many blocks of a range are in it.
    pub fn within(&self, range: &Range<u32>) -> u32 {
        let near = self.0.partition_point(|known| known.end <= range.start);
        let known = self.0[near..]
            .iter()
            .take_while(|known| known.start < range.end);
        known
            .map(|known| known.end.min(range.end) - known.start.max(range.start))
            .sum()
    }

    /// How many runs there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn runs_are_a_set() {
        let mut random = 1_u64;
        let mut below = |limit: u32| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) as u32 % limit
        };
        for _ in 0..200 {
            let (mut runs, mut set) = (Runs::default(), BTreeSet::new());
            for _ in 0..40 {
                let start = below(100);
                let run = start..start + below(9);
                let before = set.len();
                set.extend(run.clone());
                assert_eq!(runs.add(run), set.len() > before);
                if below(4) == 0 {
                    let start = below(100);
                    let run = start..start + below(30);
                    set.retain(|at| !run.contains(at));
                    runs.remove(run);
                }
                assert!(runs.0.iter().all(|run| !run.is_empty()));
                assert!(runs.0.windows(2).all(|pair| pair[0].end < pair[1].start));
                let start = below(100);
                let range = start..start + below(30);
                let count = set.range(range.clone()).count() as u32;
                assert_eq!(runs.within(&range), count);
                let end = (start..).find(|at| !set.contains(at)).unwrap();
                assert_eq!(runs.reaches(start), end);
            }
        }
    }
}
