//! What to break, and when.

use std::ops::Range;
use std::str::FromStr;

/// One way of breaking an operation. The table in the [module](super) says what each does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the module's table says what they are")]
pub enum Fault {
    ReadError,
    FlipRead,
    WriteError,
    Full,
    FlipWrite,
    MisdirectedWrite,
    LostWrite,
    SyncError,
    LostSync,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::ReadError,
        Self::FlipRead,
        Self::WriteError,
        Self::Full,
        Self::FlipWrite,
        Self::MisdirectedWrite,
        Self::LostWrite,
        Self::SyncError,
        Self::LostSync,
    ];

    /// Its name in a plan's text.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadError => "read_error",
            Self::FlipRead => "flip_read",
            Self::WriteError => "write_error",
            Self::Full => "full",
            Self::FlipWrite => "flip_write",
            Self::MisdirectedWrite => "misdirected_write",
            Self::LostWrite => "lost_write",
            Self::SyncError => "sync_error",
            Self::LostSync => "lost_sync",
        }
    }
}

/// What can befall a read.
pub(super) const READ: &[Fault] = &[Fault::ReadError, Fault::FlipRead];

/// What can befall a write.
pub(super) const WRITE: &[Fault] = &[
    Fault::WriteError,
    Fault::Full,
    Fault::FlipWrite,
    Fault::MisdirectedWrite,
    Fault::LostWrite,
];

/// What can befall a sync.
pub(super) const SYNC: &[Fault] = &[Fault::SyncError, Fault::LostSync];

/// What can befall the durability of a write.
pub(super) const DURABILITY: &[Fault] = &[Fault::LostSync];

/// A fault at a place and a time, rather than by chance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What happens.
    pub fault: Fault,
    /// To operations that touch these blocks. A sync touches all.
    pub blocks: Range<u64>,
    /// After this many of them have passed.
    pub skip: u64,
    /// To so many of them.
    pub times: u64,
}

/// What to break, and when. The default has a volatile cache and breaks nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// Blocks that the volatile cache holds before it writes some back by itself; 0: write-through.
    pub cache_blocks_max: usize,
    /// How often, in a million operations, each of [`Fault::ALL`] happens.
    pub rates: [u32; Fault::ALL.len()],
    /// Faults at chosen places and times; they come before those by chance.
    pub rules: Vec<Rule>,
    /// Lose power during the operation after so many reads, writes, syncs and discards.
    pub cut_after: Option<u64>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            seed: 0,
            cache_blocks_max: 16 << 10,
            rates: [0; Fault::ALL.len()],
            rules: Vec::new(),
            cut_after: None,
        }
    }
}

/// Why a plan's text is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Not `name=number`.
    #[error("`{0}` in a fault plan is not name=number")]
    NotPair(String),
    /// No such thing.
    #[error(
        "`{0}` is not part of a fault plan; seed, cache_blocks, cut_after and the faults' names are"
    )]
    UnknownName(String),
    /// A number that is none, or too large.
    #[error("`{value}` is not a number that `{name}` can have in a fault plan")]
    BadNumber {
        /// Of what.
        name: String,
        /// The text.
        value: String,
    },
}

impl Plan {
    /// The default with this seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self {
            seed,
            ..Self::default()
        }
    }

    /// With a fault that happens so often in a million operations.
    #[must_use]
    pub fn with_rate(mut self, fault: Fault, per_million: u32) -> Self {
        self.rates[fault as usize] = per_million;
        self
    }

    /// With a fault at a place and a time.
    #[must_use]
    pub fn with_rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// With the `nth` operation (from 0 on) that this fault can befall failing, once.
    #[must_use]
    pub fn with_nth(self, fault: Fault, nth: u64) -> Self {
        self.with_rule(Rule {
            fault,
            blocks: 0..u64::MAX,
            skip: nth,
            times: 1,
        })
    }

    /// With the power lost during the operation after so many.
    #[must_use]
    pub fn with_cut_after(mut self, ios: u64) -> Self {
        self.cut_after = Some(ios);
        self
    }
}

impl FromStr for Plan {
    type Err = PlanError;

    /// Parses `seed=7,cut_after=1000,read_error=50`: rates are in a million.
    fn from_str(text: &str) -> Result<Self, PlanError> {
        let mut plan = Self::default();
        for pair in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| PlanError::NotPair(pair.to_owned()))?;
            let bad = || PlanError::BadNumber {
                name: name.to_owned(),
                value: value.to_owned(),
            };
            let number = value.parse::<u64>().map_err(|_| bad())?;
            match name {
                "seed" => plan.seed = number,
                "cut_after" => plan.cut_after = Some(number),
                "cache_blocks" => {
                    plan.cache_blocks_max = usize::try_from(number).map_err(|_| bad())?;
                }
                _ => {
                    let fault = Fault::ALL.into_iter().find(|f| f.name() == name);
                    let fault = fault.ok_or_else(|| PlanError::UnknownName(name.to_owned()))?;
                    let rate = u32::try_from(number).ok().filter(|&r| r <= 1_000_000);
                    plan = plan.with_rate(fault, rate.ok_or_else(bad)?);
                }
            }
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read_from_text() {
        let plan: Plan = "seed=7, cut_after=1000,cache_blocks=8,full=50,"
            .parse()
            .unwrap();
        assert_eq!(
            (plan.seed, plan.cut_after, plan.cache_blocks_max),
            (7, Some(1000), 8)
        );
        assert_eq!(plan.rates[Fault::Full as usize], 50);
        assert_eq!("".parse(), Ok(Plan::default()));
        for fault in Fault::ALL {
            let plan: Plan = format!("{}=1", fault.name()).parse().unwrap();
            assert_eq!(plan, Plan::default().with_rate(fault, 1));
        }
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let parse = |text: &str| text.parse::<Plan>().unwrap_err();
        assert_eq!(parse("seed"), PlanError::NotPair("seed".into()));
        assert_eq!(parse("sed=1"), PlanError::UnknownName("sed".into()));
        assert!(matches!(parse("seed=-1"), PlanError::BadNumber { .. }));
        assert!(matches!(parse("full=1000001"), PlanError::BadNumber { .. }));
    }
}
