//! What the watch calls freed is never in use by the simulated file system.

use crate::content::Contents;
use crate::journal::{Bitmaps, File, Host, Places};
use crate::rng::Rng;
use crate::trace::Op;
use crate::watching::tests::{LOGICAL, journal, load, written};
use crate::watching::{Watching, Written};
use crate::workload::Request;
use std::collections::{BTreeMap, BTreeSet};
use vellum_watch::{RequestSeen, Wants};

/// A device that drops what the watch reports.
struct Device {
    watching: Watching,
    /// Requests not answered yet.
    open: Vec<(RequestSeen, (u64, u64))>,
    /// Blocks that were dropped and not written since.
    dropped: BTreeSet<u64>,
    drops: u64,
}

impl Device {
    fn serve(&mut self, rng: &mut Rng, request: &Request) {
        let range = (request.lba, request.lba + u64::from(request.blocks));
        match request.op {
            Op::Write { .. } => {
                let seen = self.watching.see_write(&written(request));
                self.watching.read(&written(request));
                self.watching.handed_over(&mut |_| {});
                (range.0..range.1).for_each(|block| {
                    self.dropped.remove(&block);
                });
                self.open.push((seen, range));
            }
            _ => {
                while let Some((seen, range)) = self.open.pop() {
                    self.watching.answered(seen, range, true);
                }
                let seen = self.watching.see_flush();
                self.watching.answered(seen, range, true);
            }
        }
        while !self.open.is_empty() && rng.below(3) == 0 {
            let one = rng.below(self.open.len() as u64) as usize;
            let (seen, range) = self.open.swap_remove(one);
            self.watching.answered(seen, range, true);
        }
        while rng.below(8) == 0
            && let Some((first, after)) = self.watching.take_freed()
        {
            self.drops += after - first;
            self.dropped.extend(first..after);
        }
    }

    /// Checks that no block in use is dropped, unless it has yet to be written home.
    fn hold(&self, used: &Bitmaps, in_journal: &BTreeSet<u64>) {
        for block in &self.dropped {
            let is_lost = used.is_used(*block) && !in_journal.contains(block);
            assert!(!is_lost, "{block} is used, and was dropped");
        }
    }
}

/// One run. Returns how many blocks were dropped.
fn live(seed: u64) -> u64 {
    let mut rng = Rng::new(seed);
    let mut journal = journal(&mut rng);
    journal.write_back = rng.below(20);
    journal.file = [File::Growing, File::GrowingIndirect][rng.below(2) as usize];
    let at = Places::of(journal.blocks, LOGICAL);
    // A file system that is often full of what it has deleted.
    let space = (LOGICAL - at.data_at).min(500 + rng.below(4000));
    let load: Vec<Request> = (0..12)
        .flat_map(|_| load(&mut rng, space))
        .chain([
            Request {
                op: Op::DISCARD,
                blocks: space as u32 / 2,
                contents: Contents::new(),
                ..Request::write_one(0, 0, 0)
            },
            Request::flush(0),
        ])
        .collect();
    let disk = journal.disk(LOGICAL);
    let mut watching = Watching::new(&disk, Wants::default());
    watching.follow_freed(&disk);
    let mut device = Device {
        watching,
        open: Vec::new(),
        dropped: BTreeSet::new(),
        drops: 0,
    };
    let mut host = Host::new(load.into_iter(), journal, LOGICAL, seed);
    let (mut commits, mut in_journal) = (0, BTreeSet::new());
    while let Some(request) = host.next() {
        device.serve(&mut rng, &request);
        if matches!(request.op, Op::Write { .. }) {
            home(&mut in_journal, &at, &written(&request));
        }
        for number in commits + 1..=device.watching.commits() {
            let copies = host.truth[&number].iter();
            in_journal.extend(copies.map(|(home, _)| home.0));
        }
        commits = device.watching.commits();
        if let Some(used) = host.used.get(&commits) {
            device.hold(used, &in_journal);
        }
    }
    let used: BTreeMap<u64, Bitmaps> = host.used;
    let (last, used) = used.last_key_value().expect("files grow");
    assert_eq!(*last, commits, "all is committed in the end");
    device.hold(used, &BTreeSet::new());
    device.drops
}

/// Notes that what is written home is no longer only in the journal.
fn home(in_journal: &mut BTreeSet<u64>, at: &Places, written: &Written<'_>) {
    for block in written.first..written.first + written.contents.len() as u64 {
        if !(at.journal..at.inode).contains(&block) {
            in_journal.remove(&block);
        }
    }
}

#[test]
fn no_block_in_use_is_dropped() {
    let drops: u64 = (1..40).map(live).sum();
    assert!(drops > 1_000_000, "{drops}");
}
