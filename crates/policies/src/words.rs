//! Words for the core's choices.

use vellum_core::seam::{CaftlSearch, EntryOrder, IndexKind, WriteOnce};

const RULES: [(&str, WriteOnce); 4] = [
    ("off", WriteOnce::Off),
    ("on", WriteOnce::Hash),
    ("paper", WriteOnce::HashUnlessCollided),
    ("descriptor", WriteOnce::Descriptor),
];

/// Indexes of contents: ours, the paper's as it recommends it, and the paper's with each way to search it.
const STORES: [(&str, IndexKind); 8] = [
    ("compact", IndexKind::Compact),
    ("caftl", caftl(true, EntryOrder::Value)),
    ("caftl-plain", caftl(false, EntryOrder::Arrival)),
    ("caftl-range", caftl(true, EntryOrder::Arrival)),
    ("caftl-hot", caftl(false, EntryOrder::Hotness)),
    ("caftl-hot-range", caftl(true, EntryOrder::Hotness)),
    ("caftl-value", caftl(false, EntryOrder::Value)),
    ("caftl-value-range", caftl(true, EntryOrder::Value)),
];

const fn caftl(range_check: bool, order: EntryOrder) -> IndexKind {
    IndexKind::Caftl(CaftlSearch { range_check, order })
}

/// Whether and where blocks are stored as their difference to what they replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deltas {
    /// They are not.
    Off,
    /// Together with everything else that is small.
    Packed,
    /// As in CSA-FS (§3.3): in separate pages for each block group; folding merges them back.
    Log,
}

impl Deltas {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Off, Self::Packed, Self::Log];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Packed => "on",
            Self::Log => "log",
        }
    }

    /// The choice with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|deltas| deltas.name() == name)
    }

    /// True if any are made.
    #[must_use]
    pub fn are_made(self) -> bool {
        self != Self::Off
    }
}

fn word<T: PartialEq>(of: &'static [(&'static str, T)], value: &T) -> Option<&'static str> {
    let mut known = of.iter();
    known.find_map(|(name, known)| (known == value).then_some(*name))
}

fn meant<T: Copy>(by: &[(&str, T)], name: &str) -> Option<T> {
    let mut known = by.iter();
    known.find_map(|(known, value)| (*known == name).then_some(*value))
}

/// The name of a write-once rule.
#[must_use]
pub fn rule_name(rule: WriteOnce) -> &'static str {
    word(&RULES, &rule).unwrap_or("off")
}

/// The rule with this name.
#[must_use]
pub fn rule_named(name: &str) -> Option<WriteOnce> {
    meant(&RULES, name)
}

/// The name of an index of contents.
#[must_use]
pub fn store_name(store: IndexKind) -> &'static str {
    word(&STORES, &store).unwrap_or("caftl")
}

/// The index of contents with this name.
#[must_use]
pub fn store_named(name: &str) -> Option<IndexKind> {
    meant(&STORES, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_leads_back_to_its_choice() {
        for (name, rule) in RULES {
            assert_eq!(rule_named(name), Some(rule));
            assert_eq!(rule_name(rule), name);
        }
        for (name, store) in STORES {
            assert_eq!(store_named(name), Some(store));
            assert_eq!(store_named(store_name(store)), Some(store));
        }
        assert_eq!(rule_named(""), None);
        assert_eq!(store_named("paper"), None);
    }
}
