//! What differs between two snapshots, or a snapshot and the volume as it is.
//!
//! It is found in steps. Writes that have to keep a block wait for the book, so no step holds it for more than a bounded look.

use super::keeper::Keeper;
use super::take::{COMPARED_MAX, SnapshotError, whole};
use super::view::gone;
use crate::block::Extent;
use std::ops::Range;
use vellum_core::addr::Lba;
use vellum_core::format::history::{Identity, Number};
use vellum_core::snapshots::Snapshots;

type Known = (Number, Identity);

/// What differs from `next` to `end`.
struct Changes<'a> {
    keeper: &'a Keeper,
    since: &'a str,
    until: Option<&'a str>,
    /// The snapshots of these names when the first step was made.
    between: Option<(Known, Option<Known>)>,
    next: Lba,
    end: Lba,
}

impl<'a> Changes<'a> {
    fn new(
        keeper: &'a Keeper,
        since: &'a str,
        until: Option<&'a str>,
        Range { start, end }: Range<Lba>,
    ) -> Self {
        Self {
            keeper,
            since,
            until,
            between: None,
            next: start,
            end,
        }
    }

    /// Finds the next runs. Between two steps, a snapshot may be deleted, and another may get its name.
    fn step(&mut self) -> Result<Vec<(Lba, u64)>, SnapshotError> {
        let book = self.keeper.book();
        let now = two(&book, self.since, self.until)?;
        if *self.between.get_or_insert(now) != now {
            return Err(gone().into());
        }
        let ((since, _), until) = now;
        let between = (since, until.map(|(number, _)| number));
        let (runs, next) = book.changed_runs(self.next..self.end, between, COMPARED_MAX);
        self.next = next;
        Ok(runs)
    }
}

/// The two snapshots to compare.
fn two(
    book: &Snapshots,
    since: &str,
    until: Option<&str>,
) -> Result<(Known, Option<Known>), SnapshotError> {
    // Not one that is being deleted: some of its rows are gone.
    let known = |name| whole(book, name).map(|one| (one.number, one.identity));
    let (since, until) = (known(since)?, until.map(known).transpose()?);
    match until {
        Some(until) if until.0 < since.0 => Err(SnapshotError::Order {
            since: since.1.name,
            until: until.1.name,
        }),
        _ => Ok((since, until)),
    }
}

/// See [`Volume::changed_from`](crate::Volume::changed_from).
pub(crate) fn changed(
    keeper: &Keeper,
    since: &str,
    until: Option<&str>,
    range: Range<Lba>,
    most: usize,
) -> Result<Vec<(Lba, u64)>, SnapshotError> {
    let mut changes = Changes::new(keeper, since, until, range);
    let mut runs: Vec<(Lba, u64)> = Vec::new();
    loop {
        for (lba, blocks) in changes.step()? {
            let is_full = runs.len() >= most;
            match runs.last_mut() {
                Some((first, before)) if first.plus(*before) == lba => *before += blocks,
                _ if is_full => return Ok(runs),
                _ => runs.push((lba, blocks)),
            }
        }
        if changes.next >= changes.end {
            return Ok(runs);
        }
    }
}

/// See [`Volume::changed_within`](crate::Volume::changed_within).
pub(crate) fn changed_within(
    keeper: &Keeper,
    since: &str,
    until: Option<&str>,
    (lba, blocks): (Lba, u64),
    max: usize,
) -> Result<Vec<Extent>, SnapshotError> {
    let mut changes = Changes::new(keeper, since, until, lba..lba.plus(blocks));
    let runs = changes.step()?;
    let mut found = Vec::new();
    let mut add = |blocks, mapped| {
        if blocks > 0 {
            found.push(Extent { blocks, mapped });
        }
    };
    let mut at = lba;
    for (first, blocks) in runs {
        add(first.0 - at.0, false);
        add(blocks, true);
        at = first.plus(blocks);
    }
    add(changes.next.0 - at.0, false);
    found.truncate(max.max(1));
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::snapshots::carry;
    use crate::{CreateOptions, OpenOptions, Volume};
    use std::sync::Arc;
    use vellum_medium::MemoryMedium;

    /// More than one step looks at.
    const CHANGED: u64 = 2 * COMPARED_MAX as u64;

    /// Keeps these blocks for the newest snapshot.
    fn keep(volume: &Volume, blocks: impl Iterator<Item = u64>) {
        let mut book = volume.shared.keeper.as_ref().unwrap().book();
        let newest = book.newest().unwrap();
        let plan = book.plan(newest, blocks.map(Lba)).unwrap();
        let plan = carry::out(&volume.shared, &mut book, plan).unwrap();
        book.keep(plan);
    }

    /// Snapshot `a` keeps nothing, `b` each second block, `c` one run.
    fn volume() -> Volume {
        let medium = Arc::new(MemoryMedium::new(8000));
        let create = CreateOptions {
            logical_blocks: Some(3 * CHANGED),
            history: 4000,
            ..CreateOptions::default()
        };
        Volume::create(&*medium, &create).unwrap();
        let volume = Volume::open(medium, &OpenOptions::default()).unwrap();
        for name in ["a", "b", "c"] {
            volume.take_snapshot(name, 1).unwrap();
            match name {
                "a" => {}
                "b" => keep(&volume, (0..2 * CHANGED).step_by(2)),
                _ => keep(&volume, 0..CHANGED - 1),
            }
        }
        volume
    }

    fn changes<'a>(volume: &'a Volume, since: &'a str, until: Option<&'a str>) -> Changes<'a> {
        let keeper = volume.shared.keeper.as_ref().unwrap();
        Changes::new(keeper, since, until, Lba(0)..Lba(volume.shared.blocks))
    }

    #[test]
    fn no_step_looks_at_more_than_a_part() {
        let volume = volume();
        let odd = |lba: &u64| *lba >= CHANGED && lba.is_multiple_of(2);
        let rest: Vec<_> = (0..2 * CHANGED)
            .filter(odd)
            .map(|lba| (Lba(lba), 1))
            .collect();
        let run = (Lba(0), CHANGED - 1);
        let all = [&[run], &rest[..]].concat();
        for (since, until, told) in [
            ("a", None, &all[..]),
            ("b", None, &all),
            ("c", None, &[run]),
            // Rows of older and newer snapshots are passed over, a part at a time as well.
            ("a", Some("b"), &[]),
        ] {
            let mut changes = changes(&volume, since, until);
            let first = changes.step().unwrap();
            assert!(first.iter().map(|run| run.1).sum::<u64>() <= COMPARED_MAX as u64 + 1);
            assert!(changes.next < changes.end, "{since}");
            assert!(
                volume.changed_since(since, until).unwrap() == told,
                "{since}"
            );
        }
        // On request only some, each whole, from any block on.
        let some = volume.changed_from("a", None, Lba(1), 2).unwrap();
        assert_eq!(some, [(Lba(1), CHANGED - 2), (Lba(CHANGED), 1)]);
        let within = volume
            .changed_within("a", Some("b"), (Lba(0), CHANGED), 9)
            .unwrap();
        assert!(matches!(within[..], [Extent { blocks, mapped: false }] if blocks < CHANGED));
    }

    #[test]
    fn a_snapshot_that_takes_the_place_of_another_between_two_steps_is_not_compared() {
        for (gone, since, until) in [("b", "b", None), ("c", "a", Some("c"))] {
            let volume = volume();
            let mut changes = changes(&volume, since, until);
            changes.step().unwrap();
            volume.delete_snapshot(gone).unwrap();
            let told = |error: SnapshotError| error.to_string();
            assert!(
                changes
                    .step()
                    .map_err(told)
                    .unwrap_err()
                    .contains("there is no snapshot")
            );
            volume.take_snapshot(gone, 1).unwrap();
            assert_eq!(
                changes.step().map_err(told).unwrap_err(),
                super::gone().to_string()
            );
        }
    }
}
