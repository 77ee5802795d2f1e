//! What is noticed about a request on its way to the core.

use vellum_watch::{Expected, Held, Seen};

/// What was noticed about a request before the core is handed it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watched {
    pub held: Held,
    /// Some of its blocks may be a journal's own.
    pub marks: bool,
    /// What may soon be compared with it.
    pub expected: Expected,
    /// What the followers of freed blocks saw in it.
    pub seen: Seen,
    /// Its client has its answer, and it is about to be handed to the core.
    pub is_answered: bool,
    /// The journals were told that it has taken effect. It only waits to be durable.
    pub is_in_effect: bool,
    /// It is a commit block that was answered while it waited at the gate.
    pub is_behind: bool,
}

impl Watched {
    /// For an answer that is given before the write: the scout is notified by the write, and not by this answer.
    pub fn answer_alone(self) -> Self {
        Self {
            held: Held {
                touched: false,
                ..self.held
            },
            ..Self::default()
        }
    }
}
