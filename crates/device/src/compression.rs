//! How blocks are made smaller, as users choose it.

use crate::names::UnknownName;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use vellum_codec::{Level, Method};

/// How blocks are made smaller. As text, level 1 is `zstd` alone, and other levels are `zstd:6`, say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Compression {
    /// Not at all.
    Off,
    /// LZ4: little time.
    Lz4,
    /// zstd: fewer bytes, more time; the higher the level, the more so.
    Zstd(Level),
}

impl Compression {
    /// zstd at the level that takes the least time.
    pub const ZSTD: Self = Self::Zstd(Level::DEFAULT);

    /// One of each.
    pub const ALL: [Self; 3] = [Self::Off, Self::Lz4, Self::ZSTD];

    /// How it encodes.
    pub(crate) fn method(self) -> Method {
        match self {
            Self::Off => Method::Off,
            Self::Lz4 => Method::Lz4,
            Self::Zstd(level) => Method::Zstd(level),
        }
    }

    /// Encodes it as a number; [`from_number`](Self::from_number) is the inverse.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Off => 0,
            Self::Lz4 => LZ4,
            Self::Zstd(level) => LZ4 + level.get(),
        }
    }

    pub(crate) fn from_number(number: u8) -> Self {
        match number.checked_sub(LZ4).map(Level::new) {
            None => Self::Off,
            Some(None) => Self::Lz4,
            Some(Some(level)) => Self::Zstd(level),
        }
    }
}

const LZ4: u8 = 1;

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Lz4 => f.write_str("lz4"),
            Self::Zstd(Level::DEFAULT) => f.write_str("zstd"),
            Self::Zstd(level) => write!(f, "zstd:{}", level.get()),
        }
    }
}

impl From<Compression> for String {
    fn from(compression: Compression) -> Self {
        compression.to_string()
    }
}

impl TryFrom<String> for Compression {
    type Error = UnknownName;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        name.parse()
    }
}

impl FromStr for Compression {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let level = |number: &str| Level::new(number.parse().ok()?);
        match name {
            "off" => Some(Self::Off),
            "lz4" => Some(Self::Lz4),
            "zstd" => Some(Self::ZSTD),
            _ => name.strip_prefix("zstd:").and_then(level).map(Self::Zstd),
        }
        .ok_or(UnknownName)
    }
}

/// What is tried on a block by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alone(Method);

impl Alone {
    /// With deltas but no compression, only blocks made of a few runs are stored in fewer bytes, and can be bases.
    pub fn new(how: Compression, with_deltas: bool) -> Self {
        Self(match how.method() {
            Method::Off if with_deltas => Method::Runs,
            method => method,
        })
    }

    /// How it encodes.
    pub fn method(self) -> Method {
        self.0
    }

    /// True if anything is tried.
    pub fn is_any(self) -> bool {
        self.0 != Method::Off
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_has_a_name_and_a_number_of_its_own() {
        let levels = (1..=Level::MAX.get()).filter_map(Level::new);
        let all: Vec<_> = [Compression::Off, Compression::Lz4]
            .into_iter()
            .chain(levels.map(Compression::Zstd))
            .collect();
        assert_eq!(all.len(), 11);
        for how in all {
            assert_eq!(how.to_string().parse(), Ok(how));
            assert_eq!(Compression::from_number(how.number()), how);
        }
        assert_eq!("zstd:1".parse(), Ok(Compression::ZSTD));
        for wrong in ["zstd:0", "zstd:10", "zstd:", "zstd:-1", "lz4:1", "gzip", ""] {
            assert!(wrong.parse::<Compression>().is_err(), "{wrong}");
        }
    }
}
