//! Kinds of values: how each is written, bounded and stored.

use crate::size::{self, Size};
use std::ops::RangeInclusive;
use std::str::FromStr;
use vellum_core::format::properties::{VALUE_BYTES_MAX, Value};
use vellum_core::snapshots::{Keep, Span};

/// The values that a property takes.
pub enum Kind {
    /// On or off.
    Switch,
    /// A number of bytes; 0 may have a name.
    Size {
        /// The bounds.
        range: RangeInclusive<u64>,
        /// A multiple of this.
        step: u64,
        /// The name of 0, if 0 is allowed.
        zero: Option<&'static str>,
    },
    /// A number; 0 means off.
    Count(RangeInclusive<u64>),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Compression: one of these words, or `on` for the usual one.
    Encoding(&'static [&'static str]),
    /// Free text of at most this many bytes.
    Text(usize),
    /// Parts of the volume.
    Journals,
    /// An interval, or off.
    Every,
    /// Which snapshots are kept.
    Keep,
}

/// The most parts of a volume that one property can name.
const JOURNALS_MAX: usize = VALUE_BYTES_MAX / 16;

impl Kind {
    /// Its values, as a help text names them.
    pub fn values(&self) -> String {
        match self {
            Self::Switch => "on, off".to_owned(),
            Self::Size { range, zero, .. } => {
                let (least, most) = (size::exact(*range.start()), size::exact(*range.end()));
                let zero = zero.map_or(String::new(), |zero| format!("{zero}, "));
                format!("{zero}{least} to {most}")
            }
            Self::Count(range) => format!("off, {} to {}", range.start(), range.end()),
            Self::Choice(words) => words.join(", "),
            Self::Encoding(words) => {
                let (first, last) = (words.first(), words.last());
                let words: Vec<_> = words
                    .iter()
                    .filter(|word| !word.contains(':'))
                    .copied()
                    .collect();
                let levels = last.filter(|_| first != last).map_or("", |last| last);
                format!("{}, zstd:2 to {levels}; on is zstd", words.join(", "))
            }
            Self::Text(most) => format!("up to {most} letters"),
            Self::Journals => "START+LENGTH, several with commas; none".to_owned(),
            Self::Every => "off, a time like 15m, 1h or 1d".to_owned(),
            Self::Keep => "SPAN:STEP, several with commas, like 24h:15m,7d:1d".to_owned(),
        }
    }

    /// Parses a value.
    ///
    /// # Errors
    /// When it is none of the values; the error says which they are.
    pub fn parse(&self, text: &str) -> Result<Value, String> {
        let parsed = match self {
            Self::Switch => match text {
                "on" => Some(Value::switch(true)),
                "off" => Some(Value::switch(false)),
                _ => None,
            },
            Self::Size { zero, .. } if *zero == Some(text) => Some(Value::number(0)),
            Self::Size { range, step, .. } => {
                let size = text.parse().ok().map(|Size(bytes)| bytes);
                let fits = |bytes: &u64| range.contains(bytes) && bytes.is_multiple_of(*step);
                size.filter(fits).map(Value::number)
            }
            Self::Count(_) if text == "off" => Some(Value::number(0)),
            Self::Count(range) => {
                let number = text.parse().ok();
                number.filter(|n| range.contains(n)).map(Value::number)
            }
            Self::Encoding(_) if text == "on" => Some(Value::text("zstd")),
            Self::Choice(words) | Self::Encoding(words) => {
                words.contains(&text).then(|| Value::text(text))
            }
            Self::Text(most) => {
                let fits = text.len() <= *most && !text.chars().any(char::is_control);
                fits.then(|| Value::text(text))
            }
            Self::Journals => journals(text),
            Self::Every if text == "off" => Some(Value::text(text)),
            Self::Every => {
                return as_written::<Span>(text).map_err(|wrong| format!("{wrong}; or off"));
            }
            Self::Keep => return as_written::<Keep>(text),
        };
        parsed.ok_or_else(|| match self {
            Self::Switch | Self::Choice(_) | Self::Encoding(_) => {
                format!("it is one of: {}", self.values())
            }
            Self::Text(_) if text.chars().any(char::is_control) => {
                "it has a character that is no letter, but controls a terminal".to_owned()
            }
            Self::Size { zero: None, .. } => format!("it is from {}", self.values()),
            _ => format!("it is {}", self.values()),
        })
    }

    /// Formats a value. None when it is not of this kind, as a later version may have stored it.
    pub fn text(&self, value: &Value) -> Option<String> {
        let text = match self {
            Self::Switch => match value.as_switch()? {
                true => "on".to_owned(),
                false => "off".to_owned(),
            },
            Self::Size { zero, .. } => match (value.as_number()?, zero) {
                (0, Some(zero)) => (*zero).to_owned(),
                (bytes, _) => size::exact(bytes),
            },
            Self::Count(_) => match value.as_number()? {
                0 => "off".to_owned(),
                number => number.to_string(),
            },
            Self::Choice(_) | Self::Encoding(_) | Self::Text(_) | Self::Every | Self::Keep => {
                value.as_text()?.to_owned()
            }
            Self::Journals => match value.as_ranges()? {
                ranges if ranges.is_empty() => "none".to_owned(),
                ranges => {
                    let each = ranges.iter().map(|(start, bytes)| {
                        format!("{}+{}", size::exact(*start), size::exact(*bytes))
                    });
                    each.collect::<Vec<_>>().join(",")
                }
            },
        };
        // Stored values have the same bounds as typed ones.
        (self.parse(&text).as_ref() == Ok(value)).then_some(text)
    }
}

/// Keeps a text as it was typed, if it can be parsed.
fn as_written<T: FromStr<Err: std::fmt::Display>>(text: &str) -> Result<Value, String> {
    let read = text.parse::<T>().map_err(|wrong| wrong.to_string());
    read.map(|_| Value::text(text))
}

fn journals(text: &str) -> Option<Value> {
    if text == "none" {
        return Some(Value::ranges(&[]));
    }
    let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
    let ranges = ranges.filter(|ranges| ranges.len() <= JOURNALS_MAX)?;
    Some(Value::ranges(&ranges))
}

fn range(text: &str) -> Option<(u64, u64)> {
    let (start, bytes) = text.split_once('+')?;
    let (Size(start), Size(bytes)) = (start.parse().ok()?, bytes.parse().ok()?);
    Some((start, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parsed_value_is_formatted_again() {
        let rate = Kind::Size {
            range: 4096..=1 << 40,
            step: 4096,
            zero: Some("full"),
        };
        let words = Kind::Encoding(&["off", "lz4", "zstd"]);
        for (kind, text, shown) in [
            (&Kind::Switch, "on", "on"),
            (&rate, "full", "full"),
            (&rate, "65536K", "64M"),
            (&Kind::Count(1..=9), "7", "7"),
            (&Kind::Count(1..=9), "off", "off"),
            (&words, "on", "zstd"),
            (&words, "lz4", "lz4"),
            (&Kind::Text(9), "", ""),
            (&Kind::Text(9), "photos", "photos"),
            (&Kind::Journals, "1G+128M,5G+64M", "1G+128M,5G+64M"),
            (&Kind::Journals, "none", "none"),
            (&Kind::Every, "off", "off"),
            (&Kind::Every, "1d", "1d"),
            (&Kind::Keep, "24h:15m,7d:1d", "24h:15m,7d:1d"),
        ] {
            let value = kind.parse(text).unwrap();
            assert_eq!(kind.text(&value).as_deref(), Some(shown), "{text}");
        }
        for (kind, text) in [
            (&Kind::Switch, "1"),
            (&rate, "1"),
            (&rate, "5000"),
            (&rate, "2T"),
            (&rate, "off"),
            (&Kind::Count(1..=9), "10"),
            (&words, "zstd:10"),
            (&words, ""),
            (&Kind::Text(3), "four"),
            (&Kind::Journals, "1G"),
            (&Kind::Journals, ""),
        ] {
            let error = kind.parse(text).unwrap_err();
            assert!(error.contains(&kind.values()), "{text}: {error}");
        }
        let error = Kind::Text(9).parse("a\nb").unwrap_err();
        assert!(error.contains("controls a terminal"), "{error}");
    }

    #[test]
    fn an_impossible_schedule_is_refused() {
        for (kind, text, told) in [
            (Kind::Every, "0s", "like 15m"),
            (Kind::Every, "often", "like 15m"),
            (Kind::Keep, "24h", "SPAN:STEP"),
            (Kind::Keep, "1h:2h", "no longer than the span"),
            (Kind::Keep, "7d:1s", "more than 1000 snapshots"),
        ] {
            let error = kind.parse(text).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
        assert_eq!(Kind::Keep.text(&Value::text("off")), None);
    }

    #[test]
    fn a_stored_value_of_a_later_version_has_no_text() {
        let lz4 = Kind::Choice(&["off", "lz4"]);
        assert_eq!(lz4.text(&Value::text("lzma")), None);
        assert_eq!(lz4.text(&Value::switch(true)), None);
        let small = Kind::Size {
            range: 8..=16,
            step: 1,
            zero: None,
        };
        assert_eq!(small.text(&Value::number(17)), None);
        assert_eq!(small.text(&Value::number(0)), None);
    }
}
