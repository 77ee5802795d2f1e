//! Which faults to cause, and when.

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
    /// All faults.
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

    /// Its name in the text of a plan.
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

/// Faults that a read can get.
pub(super) const READ: &[Fault] = &[Fault::ReadError, Fault::FlipRead];

/// Faults that a write can get.
pub(super) const WRITE: &[Fault] = &[
    Fault::WriteError,
    Fault::Full,
    Fault::FlipWrite,
    Fault::MisdirectedWrite,
    Fault::LostWrite,
];

/// Faults that a sync can get.
pub(super) const SYNC: &[Fault] = &[Fault::SyncError, Fault::LostSync];

/// Faults that the durability of a write can get.
pub(super) const DURABILITY: &[Fault] = &[Fault::LostSync];

/// A fault at a chosen place and time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The fault.
    pub fault: Fault,
    /// Applies to operations that touch these blocks. A sync touches all.
    pub blocks: Range<u64>,
    /// How many of them pass first.
    pub skip: u64,
    /// How many of them then get the fault.
    pub times: u64,
}

/// Which faults to cause, and when. The default has a volatile cache and causes none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Decides everything left to chance.
    pub seed: u64,
    /// Blocks that the volatile cache holds before it writes some back on its own; 0: write-through.
    pub cache_blocks_max: usize,
    /// How often each of [`Fault::ALL`] happens, in a million operations.
    pub rates: [u32; Fault::ALL.len()],
    /// Faults at chosen places and times; they take precedence over those by chance.
    pub rules: Vec<Rule>,
    /// Cuts the power during the operation after this many reads, writes, syncs and discards.
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

/// Why text is not a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// It is not `name=number`.
    #[error("`{0}` in a fault plan is not name=number")]
    NotPair(String),
    /// There is no such name.
    #[error(
        "`{0}` is not part of a fault plan; seed, cache_blocks, cut_after and the faults' names are"
    )]
    UnknownName(String),
    /// The number is malformed or too large.
    #[error("`{value}` is not a number that `{name}` can have in a fault plan")]
    BadNumber {
        /// The name it is for.
        name: String,
        /// The text.
        value: String,
    },
}

impl Plan {
    /// The default plan with this seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self {
            seed,
            ..Self::default()
        }
    }

    /// Adds a fault with this rate in a million operations.
    #[must_use]
    pub fn with_rate(mut self, fault: Fault, per_million: u32) -> Self {
        self.rates[fault as usize] = per_million;
        self
    }

    /// Adds a fault at a chosen place and time.
    #[must_use]
    pub fn with_rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Makes every operation fail that touches these blocks and that this fault can affect.
    #[must_use]
    pub fn with_every(self, fault: Fault, blocks: Range<u64>) -> Self {
        self.with_rule(Rule {
            fault,
            blocks,
            skip: 0,
            times: u64::MAX,
        })
    }

    /// Makes the `nth` operation (from 0) that this fault can affect fail, once.
    #[must_use]
    pub fn with_nth(self, fault: Fault, nth: u64) -> Self {
        self.with_rule(Rule {
            fault,
            blocks: 0..u64::MAX,
            skip: nth,
            times: 1,
        })
    }

    /// Cuts the power during the operation after this many.
    #[must_use]
    pub fn with_cut_after(mut self, ios: u64) -> Self {
        self.cut_after = Some(ios);
        self
    }
}

impl FromStr for Plan {
    type Err = PlanError;

    /// Parses `seed=7,cut_after=1000,read_error=50`. Rates are per million.
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
