//! Folds and sweeps in virtual time: which there are, and what the one at work waits for.

use crate::content::Content;
use vellum_core::addr::{Lba, Pba};
use vellum_core::service::pace::Haste;
use vellum_core::service::running::Running;
use vellum_core::stats::Stats;

/// What a service asks the engine for has this number, and no client's request has it: the engine has a place for each up to the
/// greatest.
pub(super) const OURS: u32 = 0;
/// Which services there are, and how they are with clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tidying {
    /// Sparse pages are folded.
    pub fold: Option<Haste>,
    /// What is stored twice is looked for.
    pub sweep: Option<Haste>,
}

/// What a service waits for.
pub(super) enum Waits {
    /// Nothing, or for a moment.
    No,
    /// Blocks of the medium.
    Read(Pba, u32),
    /// Blocks that are to be folded.
    ToFold(Lba, Vec<Option<Content>>),
    /// A pair; so much had been counted before.
    Merge(Box<Stats>),
}

pub(super) struct Services {
    pub which: Tidying,
    pub running: Option<Running>,
    pub waits: Waits,
    /// The engine has answered, well or not.
    pub answered: Option<bool>,
    /// It is being asked what to do next.
    pub serving: bool,
    /// When it is to be asked again.
    pub due: Option<u64>,
    /// Blocks that clients had written when a fold, and a sweep, began last.
    pub written: [u64; 2],
    /// One of each is to come yet, when the load is over.
    pub last: [bool; 2],
    /// Clients' requests that have come, and that are open.
    pub came: u64,
    pub open: u64,
}

impl Services {
    pub fn new(which: Tidying) -> Self {
        Self {
            which,
            running: None,
            waits: Waits::No,
            answered: None,
            serving: false,
            due: None,
            written: [0; 2],
            last: [false; 2],
            came: 0,
            open: 0,
        }
    }

    /// Whether there are any.
    pub fn are_on(&self) -> bool {
        self.which != Tidying::default()
    }

    /// When one wants to go on.
    pub fn due(&self) -> Option<u64> {
        self.due
    }

    pub fn client_came(&mut self) {
        (self.came, self.open) = (self.came + 1, self.open + 1);
    }

    pub fn client_left(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    /// Takes the answer to a request, if it was a service's.
    pub fn take_answer(&mut self, request: u32, well: bool) -> bool {
        if request == OURS {
            self.answered = Some(well);
        }
        request == OURS
    }

    /// Whether the engine has answered one.
    pub fn has_answer(&self) -> bool {
        self.answered.is_some()
    }

    /// Takes a block of a read, if it was a service's.
    pub fn take_block(&mut self, request: u32, index: u32, content: Content) -> bool {
        if request == OURS
            && let Waits::ToFold(_, got) = &mut self.waits
        {
            got[index as usize] = Some(content);
        }
        request == OURS
    }
}
