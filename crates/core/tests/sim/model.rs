//! The oracle: what a volume may hold, according to the answers that its client got.
//!
//! Every block-write gets a position when it is issued (a request's blocks in ascending order) and an
//! end when it is answered. Positions and ends are on one scale, the clock. A write that is answered
//! before anything else happens is a point: its blocks took effect in that order and nowhere else.
//!
//! After a crash there must be one instant T, such that
//! - every block-write that ended before T is present, or overwritten by a later one (promise 3),
//! - no block-write issued after T is present (promise 3),
//! - each block of those in between is old or new (promise 2); a discard or write-zeroes is present or absent as a whole (promise 3),
//! - T is not before the last acknowledged FLUSH was issued, and every write acknowledged with FUA is
//!   present (promise 1).
//!
//! The contents that a journal has pledged to a home address are a version too. No read may see it before a crash;
//! after one it may be present or not.
//!
//! Each block that is read back allows some intervals of T; the volume is right if all of them have an
//! instant in common.

use super::chosen::Chosen;
use std::collections::BTreeSet;
use std::ops::Range;

/// The state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is not answered.
    Open,
    /// It was answered with success at once.
    Point,
    /// It was answered with success later.
    Done(u64),
    /// It was refused: it may have had an effect before this, or not.
    Refused(u64),
}

#[derive(Clone, Copy, Debug)]
struct Op {
    state: State,
    fua: bool,
}

#[derive(Clone, Copy, Debug)]
struct Version {
    token: u32,
    at: u64,
    op: u32,
    pledged: bool,
}

/// The model's name for a request that writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpId(u32);

/// The result of reading back a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    Token(u32),
    /// The core reported that it cannot be read, and had reason to.
    Unknown,
}

/// A request that takes effect as a whole: a discard, or a write-zeroes.
#[derive(Clone)]
struct Step {
    op: u32,
    lba: u64,
    blocks: u64,
}

#[derive(Clone)]
pub struct Model {
    base: Vec<u32>,
    versions: Vec<Vec<Version>>,
    /// Every content that each block was ever meant to have.
    ever: Vec<BTreeSet<u32>>,
    /// The other contents that each block might have had when it was last read back.
    instead: Vec<BTreeSet<u32>>,
    touched: Vec<u64>,
    ops: Vec<Op>,
    steps: Vec<Step>,
    clock: u64,
    durable_from: u64,
    /// When each acknowledged FLUSH was issued, and answered.
    flushes: Vec<(u64, u64)>,
    believes: bool,
    /// True if promise 3 holds; without it each block may be from a different instant.
    ordered: bool,
    /// The possible properties.
    pub chosen: Chosen,
}

impl Model {
    pub fn new(blocks: u64) -> Self {
        Self {
            base: vec![0; blocks as usize],
            versions: vec![Vec::new(); blocks as usize],
            ever: vec![BTreeSet::new(); blocks as usize],
            instead: vec![BTreeSet::new(); blocks as usize],
            touched: Vec::new(),
            ops: Vec::new(),
            steps: Vec::new(),
            clock: 1,
            durable_from: 0,
            flushes: Vec::new(),
            believes: false,
            ordered: true,
            chosen: Chosen::default(),
        }
    }

    /// Adds blocks that were never written, and moves runs of blocks; each begins at a new address now.
    pub fn grow(&mut self, blocks: u64, moved: &[(Range<u64>, u64)]) {
        assert!(self.touched.is_empty(), "it grows at rest");
        let stays = moved.iter().map(|(from, _)| from.start).min();
        let stays = stays.unwrap_or(self.blocks()) as usize;
        let mut grown = Self::new(blocks);
        grown.base[..stays].copy_from_slice(&self.base[..stays]);
        grown.ever[..stays].clone_from_slice(&self.ever[..stays]);
        grown.instead[..stays].clone_from_slice(&self.instead[..stays]);
        for (from, to) in moved {
            for (from, to) in (from.start as usize..from.end as usize).zip(*to as usize..) {
                grown.base[to] = self.base[from];
                grown.ever[to] = std::mem::take(&mut self.ever[from]);
                grown.instead[to] = std::mem::take(&mut self.instead[from]);
            }
        }
        self.versions = grown.versions;
        self.base = grown.base;
        self.ever = grown.ever;
        self.instead = grown.instead;
    }

    /// Accepts every read: for an audit, which compares afterwards.
    pub fn believe_all(&mut self) {
        self.believes = true;
    }

    /// Models a layout that does not keep the order of writes (promise 3).
    pub fn without_order(mut self) -> Self {
        self.ordered = false;
        self
    }

    /// What the volume held when it was last read back.
    pub fn base(&self) -> &[u32] {
        &self.base
    }

    /// True if a block was ever meant to hold this.
    pub fn had(&self, lba: u64, token: u32) -> bool {
        self.ever[lba as usize].contains(&token)
    }

    /// True if a block might have held this when it was last read back, according to the answers until then.
    pub fn might(&self, lba: u64, token: u32) -> bool {
        self.instead[lba as usize].contains(&token)
    }

    /// The tokens that a block alone may hold after a crash now.
    fn candidates(&self, lba: usize) -> BTreeSet<u32> {
        let versions = &self.versions[lba];
        let (first, last) = self.allowed();
        let may = |(low, high): (u64, u64)| low.max(first) <= high.min(last);
        let base = may(self.instants(versions, usize::MAX, 0, 0)).then_some(self.base[lba]);
        let written = versions.iter().enumerate();
        let written =
            written.filter(|(i, w)| may(self.instants(versions, *i, w.at + 1, self.end_of(w))));
        base.into_iter()
            .chain(written.map(|(_, w)| w.token))
            .collect()
    }

    pub fn blocks(&self) -> u64 {
        self.base.len() as u64
    }

    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// A write is issued.
    pub fn begin(&mut self, lba: u64, tokens: impl IntoIterator<Item = u32>, fua: bool) -> OpId {
        let op = self.ask(fua);
        for (token, lba) in tokens.into_iter().zip(lba..) {
            self.version(lba, token, op);
            self.clock += 1;
        }
        OpId(op)
    }

    /// A discard or write-zeroes is issued: all its blocks have one position.
    pub fn begin_step(&mut self, lba: u64, blocks: u64, fua: bool) -> OpId {
        let op = self.ask(fua);
        self.steps.push(Step { op, lba, blocks });
        (lba..lba + blocks).for_each(|lba| self.version(lba, 0, op));
        self.clock += 1;
        OpId(op)
    }

    fn ask(&mut self, fua: bool) -> u32 {
        self.ops.push(Op {
            state: State::Open,
            fua,
        });
        self.ops.len() as u32 - 1
    }

    fn version(&mut self, lba: u64, token: u32, op: u32) {
        let versions = &mut self.versions[lba as usize];
        if versions.is_empty() {
            self.touched.push(lba);
        }
        versions.push(Version {
            token,
            at: self.clock,
            op,
            pledged: false,
        });
        self.ever[lba as usize].insert(token);
    }

    /// The core learns that `home` is going to get what is at `journal`, whatever that is by now.
    pub fn pledge(&mut self, home: u64, journal: u64) {
        let there = &self.versions[journal as usize];
        let base = self.base[journal as usize];
        let mut tokens = Vec::new();
        if !self.hidden(there, usize::MAX, 0, self.clock) {
            tokens.push(base);
        }
        let visible = |(i, w): &(usize, &Version)| {
            !w.pledged && !self.hidden(there, *i, self.end_of(w), self.clock)
        };
        let of_writes = there.iter().enumerate().filter(visible);
        tokens.extend(of_writes.map(|(_, w)| w.token));
        let op = self.ops.len() as u32;
        self.ops.push(Op {
            state: State::Point,
            fua: false,
        });
        if self.versions[home as usize].is_empty() {
            self.touched.push(home);
        }
        for token in tokens {
            self.ever[home as usize].insert(token);
            self.versions[home as usize].push(Version {
                token,
                at: self.clock,
                op,
                pledged: true,
            });
        }
        self.clock += 1;
    }

    /// True if a write to a block was issued since `at`.
    pub fn is_changed_since(&self, lba: u64, at: u64) -> bool {
        let mut versions = self.versions[lba as usize].iter();
        versions.any(|version| !version.pledged && version.at >= at)
    }

    /// A request is answered; `at_once`: nothing else was issued in between. What is issued from now on comes after the answer: a
    /// FLUSH too, which has no position of its own.
    pub fn end(&mut self, op: OpId, success: bool, at_once: bool) {
        self.ops[op.0 as usize].state = match (success, at_once) {
            (true, true) => State::Point,
            (true, false) => State::Done(self.clock),
            (false, _) => State::Refused(self.clock),
        };
        self.clock += u64::from(!at_once);
    }

    /// A FLUSH that was issued at `asked` is acknowledged.
    pub fn flushed(&mut self, asked: u64) {
        self.durable_from = self.durable_from.max(asked);
        self.flushes.push((asked, self.clock));
    }

    fn state(&self, version: &Version) -> Op {
        self.ops[version.op as usize]
    }

    /// The latest time at which a version may have had its effect.
    fn end_of(&self, version: &Version) -> u64 {
        match self.state(version).state {
            State::Open => u64::MAX,
            State::Point => version.at,
            State::Done(end) | State::Refused(end) => end,
        }
    }

    fn is_done(&self, version: &Version) -> bool {
        !version.pledged && matches!(self.state(version).state, State::Point | State::Done(_))
    }

    /// True if `versions` holds a write that certainly came after `end` and was answered by `until`.
    fn hidden(&self, versions: &[Version], skip: usize, end: u64, until: u64) -> bool {
        versions.iter().enumerate().rev().any(|(i, x)| {
            i != skip && x.at >= end && self.is_done(x) && x.at < until && self.end_of(x) <= until
        })
    }

    /// True if a read that was issued at `asked`, and is answered now, may return `token`.
    pub fn may_read(&self, lba: u64, token: u32, asked: u64) -> bool {
        let versions = &self.versions[lba as usize];
        let written = versions.iter().enumerate().rev().any(|(i, w)| {
            w.token == token && !w.pledged && !self.hidden(versions, i, self.end_of(w), asked)
        });
        written || self.base[lba as usize] == token && !self.hidden(versions, usize::MAX, 0, asked)
    }

    /// The contents of a block, unless requests leave them open.
    pub fn content(&self, lba: u64) -> Option<u32> {
        let written = self.versions[lba as usize].iter().filter(|w| !w.pledged);
        let tokens = written.map(|w| w.token).chain([self.base[lba as usize]]);
        let possible: BTreeSet<u32> = tokens
            .filter(|token| self.may_read(lba, *token, self.clock))
            .collect();
        match possible.len() {
            1 => possible.first().copied(),
            _ => None,
        }
    }

    /// Like [`may_read`](Self::may_read), but with the reason.
    pub fn check_read(&self, lba: u64, token: u32, asked: u64) -> Result<(), String> {
        if self.believes || self.may_read(lba, token, asked) {
            return Ok(());
        }
        Err(format!(
            "a read asked for at {asked} is wrong: {}",
            self.explain(lba as usize, token, &[], &[])
        ))
    }

    /// The instants T (a closed interval) at which the version at `index` may be the one seen.
    fn instants(&self, versions: &[Version], index: usize, low: u64, end: u64) -> (u64, u64) {
        let mut high = u64::MAX;
        for (i, x) in versions.iter().enumerate() {
            if i == index || x.at < end || !self.is_done(x) {
                continue;
            }
            // `x` came later, and is absent.
            high = high.min(if self.state(x).fua { 0 } else { self.end_of(x) });
        }
        (low, high)
    }

    /// The instants T of which a crash now may choose. The first position is 1, so nothing is there at the instant 1. The instant 0
    /// is none of them: it is where a write answered with FUA would be absent.
    fn allowed(&self) -> (u64, u64) {
        (self.durable_from.max(1), self.clock)
    }

    /// Checks that what was read back after a crash keeps the promise; if not, returns why.
    pub fn judge(&self, seen: &[Seen]) -> Result<(), String> {
        let mut allowed = vec![self.allowed()];
        for (lba, seen) in seen.iter().enumerate() {
            let Seen::Token(token) = *seen else { continue };
            let versions = &self.versions[lba];
            if versions.is_empty() {
                if self.base[lba] != token {
                    return Err(format!(
                        "LBA {lba} holds {token:#x}, was {:#x} and not touched since",
                        self.base[lba]
                    ));
                }
                continue;
            }
            let mut here = Vec::new();
            if self.base[lba] == token {
                here.push(self.instants(versions, usize::MAX, 0, 0));
            }
            for (i, w) in versions
                .iter()
                .enumerate()
                .filter(|(_, w)| w.token == token)
            {
                here.push(self.instants(versions, i, w.at + 1, self.end_of(w)));
            }
            let next = intersect(&allowed, &here);
            if next.is_empty() {
                return Err(self.explain(lba, token, &allowed, &here));
            }
            if self.ordered {
                allowed = next;
            }
        }
        match self.ordered {
            true => self
                .steps
                .iter()
                .try_for_each(|step| self.whole(step, seen)),
            false => Ok(()),
        }
    }

    /// Like [`judge`](Self::judge), for a log that ends early because the header of one of its last chunks was lost, or one of
    /// its blocks. It holds a prefix all the same, if the chunks after it are found with every FLUSH that something proves that was
    /// written and made durable after it.
    pub fn judge_cut(&self, seen: &[Seen], finds_more: bool) -> Result<(), String> {
        let mut cut = self.clone();
        cut.durable_from = if finds_more { self.proven_from() } else { 0 };
        cut.ops.iter_mut().for_each(|op| op.fua = false);
        cut.judge(seen)
    }

    /// When the last FLUSH was issued that the log itself proves: a later write, which is durable, is in a chunk that says so. What a
    /// block holds already leaves no record, and no FLUSH waits for what a journal has pledged; so only contents that are new to their
    /// block count.
    fn proven_from(&self) -> u64 {
        let is_new = |lba: usize, token: u32| {
            let mut same = self.versions[lba].iter().filter(|w| w.token == token);
            self.base[lba] != token && same.nth(1).is_none()
        };
        let written = self.versions.iter().enumerate();
        let written = written
            .flat_map(|(lba, versions)| versions.iter().filter(move |w| is_new(lba, w.token)));
        let written = written.filter(|w| w.token != 0 && self.is_done(w));
        let durable = written.filter(|w| self.state(w).fua || self.end_of(w) < self.durable_from);
        let last = durable.map(|w| w.at).max().unwrap_or(0);
        let proven = self
            .flushes
            .iter()
            .filter(|(_, answered)| *answered <= last);
        proven.map(|(asked, _)| *asked).max().unwrap_or(0)
    }

    /// A step is present or absent: no two blocks may show different answers.
    fn whole(&self, step: &Step, seen: &[Seen]) -> Result<(), String> {
        let mut shown: [Option<u64>; 2] = [None; 2];
        for lba in step.lba..step.lba + step.blocks {
            let Seen::Token(token) = seen[lba as usize] else {
                continue;
            };
            if let Some(is_there) = self.shows(step.op, lba as usize, token) {
                shown[usize::from(is_there)] = Some(lba);
            }
        }
        match shown {
            [Some(without), Some(with)] => Err(format!(
                "a discard of {} blocks from {} is there at LBA {with} and not at LBA {without}",
                step.blocks, step.lba
            )),
            _ => Ok(()),
        }
    }

    /// Returns whether a block that holds `token` shows that a request on it took effect, or that it did not; `None` if neither.
    fn shows(&self, op: u32, lba: usize, token: u32) -> Option<bool> {
        let versions = &self.versions[lba];
        let own = versions.iter().find(|w| w.op == op)?;
        let may_be = || versions.iter().filter(|w| w.token == token);
        let is_base = self.base[lba] == token;
        let before = may_be().all(|w| self.end_of(w) <= own.at && w.op != op);
        // A version after a refused one says nothing about it.
        let since = !is_base
            && may_be().all(|w| w.op == op || self.is_done(own) && w.at >= self.end_of(own));
        match (before, since) {
            (true, false) => Some(false),
            (false, true) => Some(true),
            _ => None,
        }
    }

    fn explain(
        &self,
        lba: usize,
        token: u32,
        allowed: &[(u64, u64)],
        here: &[(u64, u64)],
    ) -> String {
        use std::fmt::Write as _;
        let mut text = format!(
            "LBA {lba} holds {token:#x}, which allows the instants {here:?}; the blocks before it and the \
             last FLUSH (asked for at {}) allow {allowed:?}; the clock is {}\n  base {:#x}",
            self.durable_from, self.clock, self.base[lba]
        );
        let versions = &self.versions[lba];
        let skip = versions.len().saturating_sub(12);
        for w in &versions[skip..] {
            let op = self.state(w);
            let _ = write!(
                text,
                "\n  {:#x} at {} {:?}{}",
                w.token,
                w.at,
                op.state,
                match (op.fua, w.pledged) {
                    (_, true) => " pledged",
                    (true, _) => " FUA",
                    _ => "",
                }
            );
        }
        text
    }

    /// Takes what was read back for what the volume holds from now on, durably.
    pub fn rebase(&mut self, seen: &[Seen]) {
        if self.durable_from > 0 {
            self.instead.iter_mut().for_each(BTreeSet::clear);
        }
        for index in 0..self.touched.len() {
            let lba = self.touched[index] as usize;
            let candidates = self.candidates(lba);
            self.instead[lba].extend(candidates);
        }
        for lba in self.touched.drain(..) {
            self.versions[lba as usize].clear();
        }
        self.ops.clear();
        self.steps.clear();
        self.flushes.clear();
        for (base, seen) in self.base.iter_mut().zip(seen) {
            if let Seen::Token(token) = *seen {
                *base = token;
            }
        }
        self.clock = 1;
        self.durable_from = 0;
    }

    /// The most blocks that may hold data now: for judging whether a refusal for lack of space is justified.
    pub fn live_at_most(&self) -> u64 {
        let holds_data = |w: &Version| w.token != 0 && !w.pledged;
        let holds = |lba: usize| {
            let versions = &self.versions[lba];
            match versions.iter().rposition(|w| self.is_done(w)) {
                Some(i) => versions[i..].iter().any(holds_data),
                None => self.base[lba] != 0 || versions.iter().any(holds_data),
            }
        };
        (0..self.base.len()).filter(|&lba| holds(lba)).count() as u64
    }
}

/// The intersection of two sets of instants; each is a union of intervals. The result is sorted and disjoint.
fn intersect(a: &[(u64, u64)], b: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut both: Vec<_> = a
        .iter()
        .flat_map(|x| b.iter().map(|y| (x.0.max(y.0), x.1.min(y.1))))
        .filter(|(low, high)| low <= high)
        .collect();
    both.sort_unstable();
    let mut out: Vec<(u64, u64)> = Vec::new();
    for (low, high) in both {
        match out.last_mut() {
            Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
            _ => out.push((low, high)),
        }
    }
    out
}
