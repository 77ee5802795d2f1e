//! Submission queues: where a host puts its commands, and how the drive's controller takes them (NVMe).

/// The most submission queues of a drive.
pub const QUEUES_MAX: u32 = 128;

/// The submission queues of a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queues {
    /// How many there are.
    pub count: u32,
    /// Commands of each that may be unanswered. What is more waits in the host.
    pub depth: u32,
    /// Commands that the controller works on at a time, of all queues together.
    pub commands: u32,
    /// The most commands that the controller takes from one queue in a row while others have some.
    pub burst: u32,
    /// The weights of the classes, if arbitration is weighted; otherwise it is plain round robin.
    pub weights: Option<Weights>,
}

/// How many commands each class may have in a round of weighted round robin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weights {
    /// Of the class `high`.
    pub high: u32,
    /// Of the class `medium`.
    pub medium: u32,
    /// Of the class `low`.
    pub low: u32,
}
