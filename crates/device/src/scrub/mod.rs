//! Scrubs: everything that is stored is read, past every cache of the volume's, and compared with what it should be.
//!
//! The core's machine ([`Scrub`]) decides when and what to read next. This module carries that out, on a thread of its own that
//! sleeps while there is no scrub. Structures are read from the medium beside the core, and compared with what the core knows of
//! them ([`structures`]). Blocks are read for each LBA through the core's own read path, because only the core knows where a moving
//! block is. So a block that was moved, overwritten or discarded meanwhile is never taken for damage, and a page that several LBAs
//! share is read as often as it is mapped. What stays bad is mended where there is another copy ([`mend`]), listed, and looked up
//! in the file systems of the volume.
//!
//! The log keeps a scrub's place in the roots of its map checkpoints, as it does for sweeps; tables remember it as long as the
//! volume is open.

mod mend;
mod read;
pub(crate) mod report;
pub(crate) mod scrubber;
mod structures;

use crate::block::BlockError;
use crate::limits::{SCRUB_FILES, SCRUB_FINDINGS, SCRUB_FINDINGS_KEPT, SCRUB_KEEP};
use crate::shared::SharedVolume;
use crate::snapshots;
use read::read;
use report::{Finding, ScrubReport};
use std::sync::Arc;
use std::time::{Duration, Instant};
use structures::Structures;
use vellum_core::addr::{BLOCK_BYTES, Lba, Pba};
use vellum_core::format::superblock::Superblock;
use vellum_core::seam::{Input, Mend, Service};
use vellum_core::service::pace::CENSUS;
use vellum_core::service::scrub::{Item, Plan, Scrub, Seen, Step, Verdict, permille_of};
use vellum_ext4::files::Files;

/// The report, with the progress that the core keeps.
pub(crate) fn report_of(shared: &SharedVolume, superblock: &Superblock) -> ScrubReport {
    let mut report = shared.scrubber.report();
    if report.permille.is_none() {
        report.left_at = permille_of(&Plan::of(superblock), place(shared));
    }
    report
}

fn place(shared: &SharedVolume) -> u32 {
    let kept = shared.inner.lock().core.scrubbed();
    kept.max(shared.scrubber.state.lock().place)
}

/// The thread's main loop.
pub(crate) fn run(shared: &Arc<SharedVolume>, superblock: &Superblock, read_only: bool) {
    while let Some(rate) = shared.scrubber.next() {
        let now = shared.now();
        let from = place(shared);
        let plan = Plan::of(superblock);
        let went_on_at = permille_of(&plan, from);
        shared.scrubber.tell(|report| {
            *report = ScrubReport {
                permille: Some(went_on_at.unwrap_or(0)),
                went_on_at,
                ended: report.ended,
                halted: report.halted,
                ..ScrubReport::default()
            };
        });
        let mut one = One {
            shared,
            read_only,
            scrub: Scrub::new(plan, from, rate, now),
            structures: Structures::new(shared, superblock),
            findings: Vec::new(),
            kept: Instant::now(),
        };
        let ended = one.run();
        one.finish(ended);
    }
}

/// The current scrub.
struct One<'a> {
    shared: &'a Arc<SharedVolume>,
    read_only: bool,
    scrub: Scrub,
    structures: Structures<'a>,
    findings: Vec<Finding>,
    kept: Instant,
}

impl One<'_> {
    /// Runs it. Returns true if it completed.
    fn run(&mut self) -> bool {
        let shared = self.shared;
        while !shared.scrubber.is_to_end() {
            if let Some(rate) = shared.scrubber.state.lock().rate.take() {
                self.scrub.set_rate(rate, shared.now());
            }
            let (busy, is_counted) = {
                let inner = shared.inner.lock();
                (inner.requests.len() > 0, inner.core.is_counted())
            };
            if !is_counted {
                // Which summaries have to be there depends on what is live.
                shared.scrubber.pause(Duration::from_nanos(CENSUS.0));
                continue;
            }
            match self.scrub.next(shared.now(), busy) {
                Step::End => return true,
                Step::Wait(until) => {
                    let now = shared.now();
                    let nanos = until.0.saturating_sub(now.0).max(1000);
                    shared.scrubber.pause(Duration::from_nanos(nanos));
                }
                Step::Look(item) => {
                    if !self.look(item) {
                        return false;
                    }
                    self.keep(false);
                }
            }
        }
        false
    }

    /// Looks at one item; returns `false` when the volume stops.
    fn look(&mut self, item: Item) -> bool {
        let shared = self.shared;
        let (read, seen, found) = match item {
            Item::Blocks(lba, blocks) => match read_blocks(shared, lba, blocks) {
                Looked::Empty(run) => (0, Seen::Empty(run), Vec::new()),
                Looked::Good => (u64::from(blocks), Seen::Good, Vec::new()),
                Looked::Ended => return false,
                Looked::Bad(error) => {
                    let bad = block_finding(shared, lba, &error);
                    (u64::from(blocks), Seen::Bad, vec![bad])
                }
            },
            item => match self.structures.look(item) {
                None => return false,
                Some((read, found)) if found.is_empty() => (read, Seen::Good, found),
                Some((read, found)) => (read, Seen::Bad, found),
            },
        };
        let verdict = self.scrub.seen(shared.now(), item, read, seen);
        if verdict == Verdict::Damaged {
            for finding in found {
                self.damaged(item, finding);
            }
        }
        let permille = self.scrub.permille();
        let count = counts(&self.findings);
        shared.scrubber.tell(|report| {
            report.permille = Some(permille.min(999));
            report.read_bytes += read * BLOCK_BYTES as u64;
            (report.damaged, report.mended, report.second_copies) = count;
        });
        true
    }

    fn damaged(&mut self, item: Item, mut finding: Finding) {
        // Copies of data blocks are looked for at the end, for all at once.
        if !self.read_only && !matches!(item, Item::Blocks(..)) {
            finding.mended = self.structures.mend(item, &finding);
        }
        if finding.is_damage() {
            self.scrub.not_mended();
        }
        self.shared.events.add("scrub", finding.to_string());
        if self.findings.len() < SCRUB_FINDINGS_KEPT {
            self.findings.push(finding);
        }
    }

    /// Reports the place to the core now and then, to be kept.
    fn keep(&mut self, now: bool) {
        let shared = self.shared;
        if !now && self.kept.elapsed() < SCRUB_KEEP {
            return;
        }
        self.kept = Instant::now();
        let to = self.scrub.place();
        shared.scrubber.state.lock().place = to;
        if !self.read_only {
            shared.with_core(|now, inner, batch| {
                let keep = to != 0;
                inner.feed(
                    now,
                    Input::Service(Service::Mend(Mend::Scrubbed { to, keep })),
                    batch,
                );
            });
        }
    }

    /// Mends what is left, names files, and reports the end.
    fn finish(mut self, ended: bool) {
        let shared = self.shared;
        if !self.read_only {
            mend::blocks(shared, &self.structures, &mut self.findings);
        }
        self.keep(true);
        name_files(shared, &mut self.findings);
        let count = counts(&self.findings);
        let mut state = shared.scrubber.state.lock();
        let report = &mut state.report;
        report.permille = None;
        (report.damaged, report.mended, report.second_copies) = count;
        self.findings.truncate(SCRUB_FINDINGS);
        report.findings = self.findings;
        match ended {
            true => report.ended += 1,
            false => report.halted += 1,
        }
        state.halt = false;
        // A rate requested for the scrub that has just ended does not apply to the next one.
        state.rate = None;
    }
}

/// How many findings are damage, how many were mended, and how many are second copies.
fn counts(findings: &[Finding]) -> (u64, u64, u64) {
    let count =
        |of: &dyn Fn(&Finding) -> bool| findings.iter().filter(|one| of(one)).count() as u64;
    let mended = count(&|one| one.mended.is_some());
    let damaged = count(&Finding::is_damage);
    (damaged, mended, findings.len() as u64 - mended - damaged)
}

/// The result of reading blocks.
enum Looked {
    Empty(u64),
    Good,
    Bad(BlockError),
    Ended,
}

fn read_blocks(shared: &SharedVolume, lba: Lba, blocks: u32) -> Looked {
    let Some(extents) = shared.with_core(|_, inner, _| inner.core.extents(lba, u64::MAX >> 1, 1))
    else {
        return Looked::Ended;
    };
    if let Some(&(run, false)) = extents.first() {
        return Looked::Empty(run);
    }
    match read(shared, lba, blocks) {
        Ok(_) => Looked::Good,
        Err(BlockError::Io(text)) => Looked::Bad(BlockError::Io(text)),
        Err(_) => Looked::Ended,
    }
}

fn block_finding(shared: &SharedVolume, lba: Lba, error: &BlockError) -> Finding {
    let known = shared
        .with_core(|_, inner, _| inner.core.whole_at(lba))
        .flatten();
    let at = known.map_or(Pba(0), |(at, _)| at);
    let mut finding = Finding::new("data", at, error).of(lba);
    if known.is_none() {
        // It is in a part of a page: the message names the page.
        finding.what = "data in a part of a page".to_owned();
        let numbers = finding.why.split(|c: char| !c.is_ascii_digit());
        finding.at = numbers.filter_map(|n| n.parse().ok()).next().unwrap_or(0);
    }
    if let Some(role) = snapshots::role(shared, lba) {
        finding.what.push_str(", of the ");
        finding.what.push_str(role);
    } else if lba.0 >= shared.blocks {
        finding.what.push_str(", of a snapshot or a clone");
    }
    finding
}

/// Looks up in the volume's file systems the blocks that can no longer be read.
fn name_files(shared: &Arc<SharedVolume>, findings: &mut [Finding]) {
    // What snapshots keep is beyond every file system.
    let in_volume = |finding: &Finding| finding.lba.filter(|lba| *lba < shared.blocks);
    let mut blocks: Vec<u64> = findings.iter().filter_map(in_volume).collect();
    blocks.sort_unstable();
    blocks.dedup();
    if blocks.is_empty() {
        return;
    }
    let mut source = crate::scout::source::VolumeSource::new(shared);
    let scan = vellum_ext4::scan(&mut source, shared.blocks);
    for found in &scan.file_systems {
        let files = Files::of(found, shared.blocks, &blocks, &mut source);
        for finding in findings.iter_mut() {
            let told = in_volume(finding).map_or(Vec::new(), |lba| files.tell(lba));
            let room = SCRUB_FILES.saturating_sub(finding.files.len());
            finding.files.extend(told.into_iter().take(room));
        }
    }
}
