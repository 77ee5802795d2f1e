//! Properties: what the volume's user has chosen, kept in the superblock's block after its fields.
//!
//! A property is a name, a kind and a value. This module does not know what the names mean, so a property that a later version
//! has set is kept unchanged. Both mirrors hold all of them. The mirrors are written one after the other, so after a crash they
//! may differ: the one with the higher generation has the newer properties.

use super::error::FormatError;
use super::field::{Field, on_disk};
use crate::addr::BLOCK_BYTES;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, IntoBytes};

const WHAT: &str = "property";
/// The feature of a volume that has properties: a program that does not know them must not write it, or they would be lost.
pub(super) const FEATURE: u64 = 1;
/// Where they are in the superblock's block.
pub const AREA: Range<usize> = 512..BLOCK_BYTES;
/// The longest name.
pub const NAME_BYTES_MAX: usize = 32;
/// The longest value.
pub const VALUE_BYTES_MAX: usize = 1024;

on_disk! {
    /// What each property begins with.
    RawProperty {
        /// bytes of its name, which follows: `a-z`, `0-9` and `-`; each name is behind the one before it in order
        name_bytes: u8,
        /// kind of its value: 1 switch (a byte, 0 or 1), 2 number (8 bytes), 3 text (UTF-8), 4 ranges (8 bytes of start and 8 of length for each)
        kind: u8,
        /// bytes of its value, which follows the name
        value_bytes: U16,
    }
}

/// The fields that each property begins with.
pub const FIELDS: &[Field] = RawProperty::FIELDS;

const SWITCH: u8 = 1;
const NUMBER: u8 = 2;
const TEXT: u8 = 3;
const RANGES: u8 = 4;

/// A value, as it is stored. If this version does not know its kind, every `as_` function returns `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    kind: u8,
    bytes: Vec<u8>,
}

impl Value {
    /// A switch, on or off.
    #[must_use]
    pub fn switch(on: bool) -> Self {
        Self::new(SWITCH, &[u8::from(on)])
    }

    /// A number, usually of bytes.
    #[must_use]
    pub fn number(number: u64) -> Self {
        Self::new(NUMBER, &number.to_le_bytes())
    }

    /// A text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::new(TEXT, text.as_bytes())
    }

    /// Ranges of the volume, each with its start and its length in bytes.
    #[must_use]
    pub fn ranges(ranges: &[(u64, u64)]) -> Self {
        let numbers = ranges.iter().flat_map(|&(start, bytes)| [start, bytes]);
        let bytes: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
        Self::new(RANGES, &bytes)
    }

    fn new(kind: u8, bytes: &[u8]) -> Self {
        Self {
            kind,
            bytes: bytes.to_vec(),
        }
    }

    /// The number of its kind.
    #[must_use]
    pub fn kind(&self) -> u8 {
        self.kind
    }

    /// Its bytes as they are stored.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The value of a switch.
    #[must_use]
    pub fn as_switch(&self) -> Option<bool> {
        match (self.kind, self.bytes.as_slice()) {
            (SWITCH, [0]) => Some(false),
            (SWITCH, [1]) => Some(true),
            _ => None,
        }
    }

    /// The value of a number.
    #[must_use]
    pub fn as_number(&self) -> Option<u64> {
        let bytes = (self.kind == NUMBER).then_some(self.bytes.as_slice())?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    /// The value of a text.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        let bytes = (self.kind == TEXT).then_some(self.bytes.as_slice())?;
        core::str::from_utf8(bytes).ok()
    }

    /// The value of ranges.
    #[must_use]
    pub fn as_ranges(&self) -> Option<Vec<(u64, u64)>> {
        if self.kind != RANGES || !self.bytes.len().is_multiple_of(16) {
            return None;
        }
        let number = |bytes: &[u8]| Some(u64::from_le_bytes(bytes.try_into().ok()?));
        let range = |bytes: &[u8]| Some((number(&bytes[..8])?, number(&bytes[8..])?));
        self.bytes.chunks_exact(16).map(range).collect()
    }
}

/// Why a property cannot be stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PropertyError {
    /// The name is not valid.
    #[error("{0:?} cannot be a property's name: 1 to {NAME_BYTES_MAX} of a-z, 0-9 and -")]
    Name(String),
    /// The value is too long.
    #[error(
        "the value of {name} takes {bytes} bytes, and {VALUE_BYTES_MAX} is the most that is kept"
    )]
    TooLong {
        /// The property.
        name: String,
        /// The length of its value.
        bytes: usize,
    },
    /// There is no room for all of them.
    #[error("no room for {name}: all properties together may take {} bytes, and would take \
             {bytes}", AREA.len())]
    NoRoom {
        /// The property that does not fit.
        name: String,
        /// The bytes that all would take.
        bytes: usize,
    },
}

/// All properties that are set on a volume, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// How often they have been changed.
    generation: u64,
    entries: Vec<(String, Value)>,
    /// True if the volume has clones, or had some. No user sets it. It is a feature of the superblock, and is copied between the
    /// mirrors as properties are.
    has_clones: bool,
}

impl Properties {
    /// Returns these as the successors of `before`.
    #[must_use]
    pub(super) fn replacing(self, before: &Self) -> Self {
        Self {
            generation: before.generation + 1,
            // The caller may have read the properties that it changed before there were clones.
            has_clones: self.has_clones || before.has_clones,
            ..self
        }
    }

    /// True if these have been changed more often than the others.
    pub(super) fn is_newer_than(&self, other: &Self) -> bool {
        self.generation > other.generation
    }

    /// True if none is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The feature that a program must know to write a volume with these properties.
    pub(super) fn feature(&self) -> u64 {
        if self.is_empty() { 0 } else { FEATURE }
    }

    /// True if the volume has clones, or had some: a program that does not know clones must not touch it.
    #[must_use]
    pub fn has_clones(&self) -> bool {
        self.has_clones
    }

    /// The same properties, with or without the feature of clones.
    #[must_use]
    pub fn with_clones(self, has_clones: bool) -> Self {
        Self { has_clones, ..self }
    }

    /// How often they have been changed.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The properties that are set.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries
            .iter()
            .map(|(name, value)| (name.as_str(), value))
    }

    /// The value of a property, if it is set.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        let at = self.find(name).ok()?;
        Some(&self.entries[at].1)
    }

    /// Sets a property; `None` removes it.
    ///
    /// # Errors
    /// When it cannot be stored; then nothing is changed.
    pub fn set(&mut self, name: &str, value: Option<Value>) -> Result<(), PropertyError> {
        if !is_name(name.as_bytes()) {
            return Err(PropertyError::Name(name.into()));
        }
        let found = self.find(name);
        let Some(value) = value else {
            if let Ok(at) = found {
                self.entries.remove(at);
            }
            return Ok(());
        };
        if value.bytes.len() > VALUE_BYTES_MAX {
            return Err(PropertyError::TooLong {
                name: name.into(),
                bytes: value.bytes.len(),
            });
        }
        let others = self.iter().filter(|(other, _)| *other != name);
        let bytes: usize = others.map(|(name, value)| stored_bytes(name, value)).sum();
        let bytes = bytes + stored_bytes(name, &value);
        if bytes > AREA.len() {
            return Err(PropertyError::NoRoom {
                name: name.into(),
                bytes,
            });
        }
        match found {
            Ok(at) => self.entries[at].1 = value,
            Err(at) => self.entries.insert(at, (name.into(), value)),
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Result<usize, usize> {
        self.entries
            .binary_search_by(|(known, _)| known.as_str().cmp(name))
    }

    /// Writes them into an area. Returns how many bytes they take.
    pub fn encode(&self, area: &mut [u8]) -> usize {
        let mut end = 0;
        for (name, value) in self.iter() {
            let raw = RawProperty {
                name_bytes: name.len() as u8,
                kind: value.kind,
                value_bytes: U16::new(value.bytes.len() as u16),
            };
            for part in [raw.as_bytes(), name.as_bytes(), &value.bytes] {
                area[end..end + part.len()].copy_from_slice(part);
                end += part.len();
            }
        }
        end
    }

    /// Decodes the properties in a superblock's block, where they take `used` bytes.
    pub(super) fn of_block(generation: u64, used: u32, block: &[u8]) -> Result<Self, FormatError> {
        let area = block[AREA].get(..used as usize);
        let area = area.ok_or(FormatError::Value {
            what: "superblock",
            field: "length of properties",
            value: used.into(),
        })?;
        Self::decode(generation, area)
    }

    /// Decodes bytes that may be anything.
    ///
    /// # Errors
    /// When they are not a sequence of properties.
    pub fn decode(generation: u64, bytes: &[u8]) -> Result<Self, FormatError> {
        let wrong = |field, value: usize| FormatError::Value {
            what: WHAT,
            field,
            value: value as u64,
        };
        let mut entries: Vec<(String, Value)> = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let truncated = |need| FormatError::Truncated {
                what: WHAT,
                have: rest.len(),
                need,
            };
            let (raw, behind) = RawProperty::read_from_prefix(rest)
                .map_err(|_| truncated(size_of::<RawProperty>()))?;
            let (name_bytes, value_bytes) = (raw.name_bytes.into(), raw.value_bytes.get().into());
            if behind.len() < name_bytes + value_bytes {
                return Err(truncated(
                    size_of::<RawProperty>() + name_bytes + value_bytes,
                ));
            }
            let (name, behind) = behind.split_at(name_bytes);
            let (value, behind) = behind.split_at(value_bytes);
            if !is_name(name) {
                return Err(wrong("length of the name, or a letter of it,", name_bytes));
            }
            if value_bytes > VALUE_BYTES_MAX {
                return Err(wrong("length of the value", value_bytes));
            }
            let name = String::from_utf8_lossy(name).into_owned();
            if entries.last().is_some_and(|(before, _)| *before >= name) {
                return Err(wrong("place in the order of names", entries.len()));
            }
            entries.push((name, Value::new(raw.kind, value)));
            rest = behind;
        }
        Ok(Self {
            generation,
            entries,
            has_clones: false,
        })
    }
}

fn is_name(name: &[u8]) -> bool {
    let known = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.iter().all(known)
}

fn stored_bytes(name: &str, value: &Value) -> usize {
    size_of::<RawProperty>() + name.len() + value.bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{format, vec};

    fn some() -> Properties {
        let mut properties = Properties::default();
        for (name, value) in [
            ("label", Value::text("photos")),
            ("compress", Value::text("zstd")),
            ("journals", Value::ranges(&[(1 << 30, 1 << 27)])),
            ("buffer", Value::number(64 << 20)),
            ("fold", Value::switch(false)),
        ] {
            properties.set(name, Some(value)).unwrap();
        }
        properties
    }

    fn encoded(properties: &Properties) -> Vec<u8> {
        let mut area = vec![0; AREA.len()];
        let end = properties.encode(&mut area);
        area.truncate(end);
        area
    }

    #[test]
    fn stored_properties_are_found_again() {
        let properties = some();
        let names: Vec<_> = properties.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["buffer", "compress", "fold", "journals", "label"]);
        let found = Properties::decode(7, &encoded(&properties)).unwrap();
        assert_eq!(found.entries, properties.entries);
        assert_eq!(found.generation(), 7);
        let value = |name| found.get(name).unwrap();
        assert_eq!(value("label").as_text(), Some("photos"));
        assert_eq!(value("fold").as_switch(), Some(false));
        assert_eq!(value("buffer").as_number(), Some(64 << 20));
        assert_eq!(value("journals").as_ranges().unwrap(), [(1 << 30, 1 << 27)]);
        assert_eq!(value("label").as_number(), None);
        assert_eq!(found.get("delta"), None);
    }

    #[test]
    fn a_property_of_an_unknown_kind_is_kept() {
        let mut later = some();
        later.set("rewind", Some(Value::new(99, b"7d"))).unwrap();
        let mut found = Properties::decode(1, &encoded(&later)).unwrap();
        found.set("label", None).unwrap();
        let found = Properties::decode(2, &encoded(&found)).unwrap();
        let kept = found.get("rewind").unwrap();
        assert_eq!((kept.kind(), kept.bytes()), (99, &b"7d"[..]));
        assert_eq!(kept.as_text(), None);
        assert_eq!(found.get("label"), None);
    }

    #[test]
    fn a_property_that_does_not_fit_changes_nothing() {
        let mut properties = some();
        let before = properties.clone();
        for (name, bytes) in [
            ("label", VALUE_BYTES_MAX + 1),
            ("Label", 1),
            ("", 1),
            ("a_b", 1),
        ] {
            let value = Value::text(&"x".repeat(bytes));
            assert!(properties.set(name, Some(value)).is_err(), "{name}");
        }
        assert_eq!(properties, before);
        let long = || Some(Value::text(&"x".repeat(VALUE_BYTES_MAX)));
        let stored = (0..9).take_while(|n| properties.set(&format!("long-{n}"), long()).is_ok());
        assert_eq!(stored.count(), 3);
        let full = properties.clone();
        let refused = properties.set("one-more", long());
        assert!(matches!(refused, Err(PropertyError::NoRoom { .. })));
        assert_eq!(properties, full);
        assert_eq!(
            Properties::decode(0, &encoded(&full)).unwrap().entries,
            full.entries
        );
    }

    #[test]
    fn other_bytes_are_refused() {
        let good = encoded(&some());
        for end in 1..good.len() {
            // A cut between two properties leaves the first ones whole.
            let _ = Properties::decode(0, &good[..end]);
        }
        assert!(Properties::decode(0, &good[..good.len() - 1]).is_err());
        assert!(Properties::decode(0, &good[..3]).is_err());
        let twice = [good.as_slice(), good.as_slice()].concat();
        assert!(
            Properties::decode(0, &twice).is_err(),
            "names in order, each once"
        );
        let mut odd = good;
        odd[4] = b'B';
        assert!(
            Properties::decode(0, &odd).is_err(),
            "a letter that no name has"
        );
        assert!(
            Properties::decode(0, &[0; 8]).is_err(),
            "a name of no letters"
        );
    }
}
