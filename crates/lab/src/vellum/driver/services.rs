//! Folds and sweeps in virtual time: which are on, and what the running one waits for.

use crate::content::Content;
use vellum_core::addr::{Lba, Pba};
use vellum_core::service::pace::Haste;
use vellum_core::service::running::Running;
use vellum_core::stats::Stats;

/// The number of all requests of services. No client's request has it. It is small because the engine has a slot for
/// each number up to the greatest.
pub(super) const OURS: u32 = 0;
/// Which services are on, and how much they hurry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tidying {
    /// Folds sparse pages.
    pub fold: Option<Haste>,
    /// Looks for what is stored twice.
    pub sweep: Option<Haste>,
}

/// What a service waits for.
pub(super) enum Waits {
    /// Nothing, or a point in time.
    No,
    /// Blocks of the medium.
    Read(Pba, u32),
    /// Blocks that are to be folded.
    ToFold(Lba, Vec<Option<Content>>),
    /// The merge of a pair; with the counters from before.
    Merge(Box<Stats>),
}

pub(super) struct Services {
    pub which: Tidying,
    pub running: Option<Running>,
    pub waits: Waits,
    /// The engine's answer: true if it succeeded.
    pub answered: Option<bool>,
    /// True while the service is running a step.
    pub serving: bool,
    /// When to run it next.
    pub due: Option<u64>,
    /// Blocks that clients had written when the last fold, and the last sweep, began.
    pub written: [u64; 2],
    /// True for each that is to run once more when the load is over.
    pub last: [bool; 2],
    /// Client requests that have arrived, and those that are open.
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

    /// True if any service is on.
    pub fn are_on(&self) -> bool {
        self.which != Tidying::default()
    }

    /// When one wants to continue.
    pub fn due(&self) -> Option<u64> {
        self.due
    }

    pub fn client_came(&mut self) {
        (self.came, self.open) = (self.came + 1, self.open + 1);
    }

    pub fn client_left(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    /// Takes the answer to a request. True if the request was a service's.
    pub fn take_answer(&mut self, request: u32, well: bool) -> bool {
        if request == OURS {
            self.answered = Some(well);
        }
        request == OURS
    }

    /// True if the engine has answered a service.
    pub fn has_answer(&self) -> bool {
        self.answered.is_some()
    }

    /// Takes a block of a read. True if the read was a service's.
    pub fn take_block(&mut self, request: u32, index: u32, content: Content) -> bool {
        if request == OURS
            && let Waits::ToFold(_, got) = &mut self.waits
        {
            got[index as usize] = Some(content);
        }
        request == OURS
    }
}
