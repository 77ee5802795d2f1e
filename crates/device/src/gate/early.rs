//! Writes that are answered before the core knows of them.
//!
//! Digesting, encoding and comparing a block takes longer than everything else that is done for a write. The client need not wait
//! for that: the answer to a write does not say when it is durable. So the answer is given first (`SharedVolume::answer_first`), and
//! the thread that brought the write goes on with it while its client makes the next one. What must hold:
//!
//! 1. An answer promises no more than is kept. It is given first only while the core surely has room for the write and for
//!    everything else on its way ([`Core::may_answer`](vellum_core::layout::Core::may_answer)). If the medium fails then, the write
//!    is lost, and that is reported: from then on no FLUSH, no durable write and no read of those blocks succeeds.
//! 2. Answered writes take effect in the order of their answers, and before anything that arrives after the answer. So batches
//!    have [`Turn`]s, and the core is handed one after the other. A read waits only for writes of its own blocks.
//! 3. The followers of journals and bitmaps rely on answers. So a block that may be of that kind is not answered first.
//! 4. A thread works only on the writes that it brought, which bounds how many wait.

use crate::block::{BlockError, Op, Request};
use crate::watched::Answered;
use smallvec::SmallVec;
use std::collections::VecDeque;
use vellum_watch::{is_near, may_be_own};

/// A run of blocks: where it begins, and how many.
type Run = (u64, u64);

/// See the module.
#[derive(Default)]
pub(crate) struct Early {
    /// Batches with answered writes that the core has not been handed yet, in order.
    ahead: VecDeque<Ahead>,
    /// How many such batches there have been.
    count: u64,
    /// How many writes were answered and have not taken effect.
    promised: usize,
    /// Answered writes that will never take effect.
    lost: Vec<Run>,
    is_closed: bool,
}

struct Ahead {
    number: u64,
    runs: SmallVec<[Run; 4]>,
}

/// True if a request writes a block that may be a journal's own.
pub(crate) fn has_marks(request: &Request) -> bool {
    let is_mark = |index| may_be_own(request.frames.block(index));
    matches!(request.op, Op::Write { .. }) && (0..request.frames.len()).any(is_mark)
}

/// When a batch may be handed to the core.
pub(crate) struct Turn {
    /// Waits for all batches below this number.
    after: u64,
    /// The number that later batches wait for.
    own: Option<u64>,
}

impl Early {
    /// True if writes may be answered first at all.
    pub fn is_open(&self) -> bool {
        !self.is_closed && self.lost.is_empty()
    }

    /// From now on no write is answered first.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// True if the core does not have the effect of an answered write.
    pub fn holds_answered(&self) -> bool {
        self.promised > 0 || !self.lost.is_empty()
    }

    /// The turn of a request that relies on everything answered so far.
    pub fn turn_of_all(&self) -> Turn {
        Turn {
            after: self.count,
            own: None,
        }
    }

    /// The turn of a read of these blocks.
    pub fn turn_of_read(&self, lba: u64, blocks: u64) -> Turn {
        let writes_them =
            |ahead: &&Ahead| ahead.runs.iter().any(|run| is_near(*run, (lba, blocks)));
        let last = self.ahead.iter().rfind(writes_them);
        Turn {
            after: last.map_or(0, |last| last.number + 1),
            own: None,
        }
    }

    /// The turn of a batch.
    pub fn turn(&self, batch: &[Request]) -> Turn {
        let turn_of = |request: &Request| match request.op {
            Op::Read => self.turn_of_read(request.lba.0, request.blocks).after,
            _ => self.count,
        };
        Turn {
            after: batch.iter().map(turn_of).max().unwrap_or(0),
            own: None,
        }
    }

    /// Notes that these writes of the batch are answered.
    pub fn begin(&mut self, turn: &mut Turn, runs: SmallVec<[Run; 4]>) {
        if runs.is_empty() {
            return;
        }
        let number = self.count;
        self.count += 1;
        self.promised += runs.len();
        self.ahead.push_back(Ahead { number, runs });
        turn.own = Some(number);
    }

    /// True if it is the batch's turn.
    pub fn is_due(&self, turn: &Turn) -> bool {
        self.ahead
            .front()
            .is_none_or(|first| first.number >= turn.after)
    }

    /// Notes that the core has been handed the batch. Returns true if another batch may wait for that.
    pub fn handed_over(&mut self, turn: &Turn) -> bool {
        self.ahead.retain(|ahead| Some(ahead.number) != turn.own);
        turn.own.is_some()
    }

    /// Notes that the core refused a commit block that was answered while it waited.
    pub fn lose(&mut self, request: &Request) {
        self.lost.push((request.lba.0, request.blocks));
    }

    /// Notes that a request has ended. Returns the answer for its client, also if the client already has one.
    pub fn ended(
        &mut self,
        request: &Request,
        answered: Answered,
        result: Result<(), BlockError>,
    ) -> Result<(), BlockError> {
        let run = (request.lba.0, request.blocks);
        if answered == Answered::First {
            self.promised -= 1;
            if result.is_err() {
                self.lost.push(run);
            }
            return result;
        }
        let relies = match request.op {
            Op::Read => self.lost.iter().any(|lost| is_near(*lost, run)),
            op => (op == Op::Flush || op.is_fua()) && !self.lost.is_empty(),
        };
        match (relies, self.lost.first()) {
            (true, Some(lost)) => result.and(Err(broken(*lost))),
            _ => result,
        }
    }
}

fn broken((lba, blocks): Run) -> BlockError {
    BlockError::Io(format!(
        "the last write to blocks {lba}+{blocks} is lost: it had been answered from memory when the \
         medium failed. Stop the volume; everything before the last FLUSH will be there when it is \
         opened again"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::Frames;
    use smallvec::smallvec;
    use vellum_core::addr::Lba;

    fn request(op: Op, lba: u64, blocks: u64) -> Request {
        Request::new(op, Lba(lba), blocks, Frames::default())
    }

    const WRITE: Op = Op::Write { fua: false };

    fn answered(early: &mut Early, lba: u64) -> Turn {
        let mut turn = early.turn(&[request(WRITE, lba, 2)]);
        early.begin(&mut turn, smallvec![(lba, 2)]);
        turn
    }

    #[test]
    fn answered_writes_are_handed_over_in_order() {
        let mut early = Early::default();
        let (first, second) = (answered(&mut early, 10), answered(&mut early, 20));
        let flush = early.turn(&[request(Op::Flush, 0, 0)]);
        let third = answered(&mut early, 30);
        let due = |early: &Early, turns: [&Turn; 4]| turns.map(|turn| early.is_due(turn));
        let turns = [&first, &second, &flush, &third];
        assert_eq!(due(&early, turns), [true, false, false, false]);
        assert!(early.handed_over(&first));
        assert_eq!(due(&early, turns), [true, true, false, false]);
        assert!(early.handed_over(&second));
        assert_eq!(
            due(&early, turns),
            [true; 4],
            "a flush is for what came before it"
        );
        assert!(!early.handed_over(&flush) && early.handed_over(&third));
    }

    #[test]
    fn a_read_waits_for_its_own_blocks_alone() {
        let mut early = Early::default();
        let (first, second) = (answered(&mut early, 10), answered(&mut early, 11));
        let read = |early: &Early, lba| early.turn(&[request(Op::Read, lba, 1)]);
        let (before, one, both, behind) = (
            read(&early, 9),
            read(&early, 10),
            read(&early, 11),
            read(&early, 13),
        );
        assert!(early.is_due(&before) && early.is_due(&behind));
        assert!(!early.is_due(&one) && !early.is_due(&both));
        early.handed_over(&first);
        assert!(early.is_due(&one) && !early.is_due(&both));
        early.handed_over(&second);
        assert!(early.is_due(&both));
    }

    #[test]
    fn a_broken_promise_is_reported_to_requests_that_rely_on_it() {
        let mut early = Early::default();
        answered(&mut early, 10);
        let write = request(WRITE, 10, 2);
        let full = || Err(BlockError::Full);
        assert!(early.is_open() && early.holds_answered());
        assert!(
            early
                .ended(&request(Op::Flush, 0, 0), Answered::ByCore, Ok(()))
                .is_ok()
        );
        assert!(early.ended(&write, Answered::First, full()).is_err());
        let mut ended = |op, lba| {
            let request = request(op, lba, 1);
            early.ended(&request, Answered::ByCore, Ok(())).is_ok()
        };
        assert!(!ended(Op::Flush, 0) && !ended(Op::Write { fua: true }, 0));
        assert!(!ended(Op::Read, 11) && ended(Op::Read, 12));
        assert!(ended(WRITE, 0) && ended(Op::Discard { fua: false }, 0));
        assert!(!early.is_open() && early.holds_answered());
    }
}
