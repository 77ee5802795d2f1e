//! What is noticed about a request on its way to the core.

use vellum_watch::{Checked, Expected, RequestSeen};

/// When a write's client gets its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Answered {
    /// When the core answers.
    #[default]
    ByCore,
    /// It has it: the write was answered when it came, before it was digested (`gate/early.rs`).
    First,
    /// It has it: the write is a commit block, which was answered while it waited at the gate.
    AtGate,
}

/// What was noticed about a request before the core is handed it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watched {
    pub held: Checked,
    /// Some of its blocks may be a journal's own.
    pub marks: bool,
    /// What may soon be compared with it.
    pub expected: Expected,
    /// What the followers of freed blocks saw in it.
    pub seen: RequestSeen,
    pub answered: Answered,
    /// The journals were told that it has taken effect. It only waits to be durable.
    pub is_in_effect: bool,
}

impl Watched {
    /// For an answer that is given before the write: the scout is notified by the write, and not by this answer.
    pub fn answer_alone(self) -> Self {
        Self {
            held: Checked {
                touched: false,
                ..self.held
            },
            ..Self::default()
        }
    }
}
