//! The requests of one job.

use super::job::{Job, Placed, Way};
use super::lengths::Lengths;
use crate::content::Contents;
use crate::rng::Rng;
use crate::trace::Op;
use crate::workload::{Again, Filler, Pattern, Places, Request};

/// Generates the requests of a job, at its place.
pub struct Asking<'a> {
    job: &'a Job,
    placed: Placed,
    tenant: u8,
    rng: Rng,
    filler: Filler,
    /// The places of reads, if they are not the same as those of other requests.
    reads: Option<Places>,
    others: Places,
    /// For a sequential job: where reads continue, and where other requests do.
    next: [u64; 2],
    /// What was discarded and is not written yet.
    discarded: Option<(u64, u32)>,
    writes: u64,
    unflushed: u64,
    /// Blocks and requests that are left.
    left: (u64, u64),
}

impl<'a> Asking<'a> {
    /// Generates as many requests as the job says, or one pass.
    #[must_use]
    pub fn new(job: &'a Job, placed: Placed, (seed, tenant): (u64, u8), measured: bool) -> Self {
        let places = |lengths: &Lengths| {
            let count = placed.blocks / u64::from(lengths.least());
            Places::new(job.pattern, count.max(1), seed)
        };
        let mixed = matches!(job.way, Way::Mixed { .. });
        let apart = mixed && job.reads.least() != job.others.least();
        let all = match job.way {
            Way::Read => &job.reads,
            _ => &job.others,
        };
        let mut asking = Self {
            job,
            placed,
            tenant,
            rng: Rng::new(seed),
            filler: Filler::new(
                (job.zeros, job.duplicates),
                Again::Popular,
                (placed.blocks, seed),
            ),
            reads: apart.then(|| places(&job.reads)),
            others: places(all),
            next: [0; 2],
            discarded: None,
            writes: 0,
            unflushed: 0,
            left: (placed.once, job.place.count),
        };
        if measured {
            asking.renew(0);
        }
        asking
    }

    /// Starts over with as many requests as the job says, less one of `drawn` blocks.
    pub(crate) fn renew(&mut self, drawn: u32) {
        let loops = self.job.place.loops;
        self.left = match self.job.when.endless {
            true => (u64::MAX, u64::MAX),
            false => (
                self.placed
                    .once
                    .saturating_mul(loops)
                    .saturating_sub(drawn.into()),
                self.job
                    .place
                    .count
                    .saturating_mul(loops)
                    .saturating_sub(u64::from(drawn > 0)),
            ),
        };
    }

    /// Where the next request goes, in the job's blocks.
    fn place(&mut self, read: bool, blocks: u32) -> (u64, u32) {
        let lengths = if read {
            &self.job.reads
        } else {
            &self.job.others
        };
        let least = u64::from(lengths.least());
        let at = match (self.job.pattern, &mut self.reads) {
            (Pattern::Sequential, _) => match self.next[usize::from(read)] {
                at if at + least > self.placed.blocks => 0,
                at => at,
            },
            (_, Some(reads)) if read => reads.draw(&mut self.rng, read) * least,
            _ => self.others.draw(&mut self.rng, read) * least,
        };
        let blocks = u64::from(blocks).min(self.placed.blocks - at);
        self.next[usize::from(read)] = at + blocks;
        (self.placed.first + at, blocks as u32)
    }

    fn request(&mut self, op: Op, (lba, blocks): (u64, u32)) -> Request {
        let mut contents = Contents::new();
        if matches!(op, Op::Write { .. }) {
            self.writes += 1;
            self.unflushed += 1;
            let each = self.filler.each(&mut self.rng, (lba, blocks), self.writes);
            contents.extend(each);
        }
        Request {
            op,
            lba,
            blocks,
            contents,
            tenant: self.tenant,
            ..Request::flush(0)
        }
    }
}

impl Iterator for Asking<'_> {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let fua = self.job.durable;
        if self.job.flush_every > 0 && self.unflushed == self.job.flush_every {
            self.unflushed = 0;
            let tenant = self.tenant;
            return Some(Request {
                tenant,
                ..Request::flush(0)
            });
        }
        if let Some(place) = self.discarded.take() {
            return Some(self.request(Op::Write { fua }, place));
        }
        let (op, lengths) = match self.job.way {
            Way::Read => (Op::Read, &self.job.reads),
            Way::Write => (Op::Write { fua }, &self.job.others),
            Way::Trim | Way::TrimWrite => (Op::DISCARD, &self.job.others),
            Way::Mixed { reads } => match self.rng.below(100) < u64::from(reads) {
                true => (Op::Read, &self.job.reads),
                false => (Op::Write { fua }, &self.job.others),
            },
        };
        let (blocks, requests) = self.left;
        if requests == 0 || blocks < u64::from(lengths.least()) {
            return None;
        }
        let length = u64::from(lengths.draw(&mut self.rng)).min(blocks) as u32;
        let place = self.place(op == Op::Read, length);
        if !self.job.when.endless {
            self.left = (blocks - u64::from(place.1), requests - 1);
        }
        if self.job.way == Way::TrimWrite {
            self.discarded = Some(place);
        }
        Some(self.request(op, place))
    }
}
