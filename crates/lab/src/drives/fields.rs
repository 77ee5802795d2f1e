//! A drive's file, value by value: the values allowed, and how they are read and written.
//!
//! A file is described once, by code that passes each value to a [`Fields`]. One implementation reads a file ([`Reader`]), the
//! other one writes one ([`Writer`]), so that whatever is written can be read.

use std::fmt::Write as _;
use toml::de::{DeTable, DeValue};

/// An error in a file, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {key}: {wrong}")]
pub struct DriveError {
    /// The line, counted from 1.
    pub line: usize,
    /// The table and the key.
    pub key: String,
    /// What is wrong, and which values are allowed.
    pub wrong: String,
}

/// A number in a file. It is kept as a whole number of small units: nanoseconds, if the file has microseconds.
pub struct Key {
    /// Its name in the file, which ends with the unit.
    pub name: &'static str,
    /// A description.
    pub about: &'static str,
    /// Small units in one unit of the file.
    pub unit: u64,
    /// The least and the most, in small units.
    pub range: (u64, u64),
    /// The value is a multiple of this, in small units.
    pub step: u64,
    /// The value if the file has none.
    pub default: Option<u64>,
}

impl Key {
    /// Describes the allowed values.
    fn allowed(&self) -> String {
        let in_file = |value: u64| value as f64 / self.unit as f64;
        let (least, most) = (in_file(self.range.0), in_file(self.range.1));
        format!(
            "a number from {least} to {most}, in steps of {}",
            in_file(self.step)
        )
    }

    /// Converts a number to small units, if it is allowed.
    fn small(&self, number: f64) -> Option<u64> {
        let steps = number * self.unit as f64 / self.step as f64;
        let whole = steps.round();
        // A number that cannot be kept exactly is refused; the error of a decimal number is below this.
        let exact = (steps - whole).abs() <= 1e-6f64.max(whole.abs() * 1e-12);
        // NaN is in no range either.
        let fits = exact && (0.0..=u64::MAX as f64 / self.step as f64).contains(&whole);
        let small = (whole as u64).checked_mul(self.step).filter(|_| fits)?;
        (self.range.0..=self.range.1)
            .contains(&small)
            .then_some(small)
    }
}

/// A visitor of the values of a table.
pub trait Fields {
    /// Visits a number.
    ///
    /// # Errors
    /// If the file has an invalid value.
    fn number(&mut self, key: &Key, value: &mut u64) -> Result<(), DriveError>;

    /// Visits a switch. It is off if the file does not mention it.
    ///
    /// # Errors
    /// If the file has an invalid value.
    fn switch(&mut self, name: &'static str, about: &str, on: &mut bool) -> Result<(), DriveError>;

    /// Visits a number that is kept in 32 bits.
    ///
    /// # Errors
    /// If the file has an invalid value.
    fn short(&mut self, key: &Key, value: &mut u32) -> Result<(), DriveError> {
        assert!(key.range.1 <= u64::from(u32::MAX));
        let mut long = u64::from(*value);
        self.number(key, &mut long)?;
        *value = long as u32;
        Ok(())
    }
}

/// The lines of a text.
#[derive(Clone, Copy)]
pub struct Lines<'a>(pub &'a str);

impl Lines<'_> {
    /// Returns the line that contains a byte offset.
    pub fn of(self, offset: usize) -> usize {
        let before = &self.0.as_bytes()[..offset.min(self.0.len())];
        before.iter().filter(|&&byte| byte == b'\n').count() + 1
    }
}

/// Reads a table.
pub struct Reader<'a> {
    lines: Lines<'a>,
    name: String,
    table: &'a DeTable<'a>,
    /// The line where the table begins, reported for missing keys.
    line: usize,
    known: Vec<&'static str>,
}

impl<'a> Reader<'a> {
    /// Returns a reader of a table, with the name that errors give it.
    pub fn new(lines: Lines<'a>, name: &str, table: &'a DeTable<'a>, line: usize) -> Self {
        Self {
            lines,
            name: name.into(),
            table,
            line,
            known: Vec::new(),
        }
    }

    /// Returns the line where the table begins.
    pub fn line(&self) -> usize {
        self.line
    }

    /// Returns the line of a byte offset in the file.
    pub fn line_of(&self, offset: usize) -> usize {
        self.lines.of(offset)
    }

    /// Returns the value of a key, and its line.
    pub fn take(&mut self, name: &'static str) -> Option<(&'a DeValue<'a>, usize)> {
        self.known.push(name);
        let (key, value) = self.table.get_key_value(name)?;
        Some((value.get_ref(), self.lines.of(key.span().start)))
    }

    /// Returns an error about a key.
    pub fn wrong(&self, line: usize, name: &str, wrong: impl Into<String>) -> DriveError {
        let key = match self.name.is_empty() {
            true => name.into(),
            false => format!("[{}] {name}", self.name),
        };
        let wrong = wrong.into();
        DriveError { line, key, wrong }
    }

    /// Returns an error about a missing key.
    pub fn missing(&self, name: &str, wanted: &str) -> DriveError {
        self.wrong(self.line, name, format!("it is missing: {wanted}"))
    }

    /// Reads a text of one line.
    pub fn text(&mut self, name: &'static str, about: &str) -> Result<String, DriveError> {
        const MOST: usize = 1000;
        let wanted = format!("{about}, in at most {MOST} characters of one line");
        let Some((value, line)) = self.take(name) else {
            return Err(self.missing(name, &wanted));
        };
        match value {
            DeValue::String(text)
                if (1..=MOST).contains(&text.chars().count())
                    && !text.chars().any(char::is_control) =>
            {
                Ok(text.to_string())
            }
            _ => Err(self.wrong(line, name, format!("it is {wanted}"))),
        }
    }

    /// Reads a table within this one.
    pub fn table(&mut self, name: &'static str) -> Result<Option<Self>, DriveError> {
        let Some((value, line)) = self.take(name) else {
            return Ok(None);
        };
        let DeValue::Table(table) = value else {
            return Err(self.wrong(line, name, format!("it is a table: [{name}]")));
        };
        Ok(Some(self.within(name, table, line)))
    }

    /// Returns a reader of a table inside a value of this one.
    pub fn within(&self, name: &str, table: &'a DeTable<'a>, line: usize) -> Self {
        let name = match self.name.is_empty() {
            true => name.into(),
            false => format!("{}.{name}", self.name),
        };
        Self::new(self.lines, &name, table, line)
    }

    /// Checks that the table has no other keys.
    pub fn end(self) -> Result<(), DriveError> {
        for key in self.table.keys() {
            let name = key.get_ref().as_ref();
            if !self.known.contains(&name) {
                let line = self.lines.of(key.span().start);
                let short: String = name.chars().take(40).collect();
                let wrong = format!("there is no such key; there are {}", self.known.join(", "));
                return Err(self.wrong(line, &format!("{short:?}"), wrong));
            }
        }
        Ok(())
    }
}

/// Returns a value as a number, if it is one.
fn number_of(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Integer(number) => number.to_string().parse().ok(),
        DeValue::Float(number) => number.as_str().parse().ok(),
        _ => None,
    }
}

impl Fields for Reader<'_> {
    fn number(&mut self, key: &Key, into: &mut u64) -> Result<(), DriveError> {
        let Some((value, line)) = self.take(key.name) else {
            let wanted = || format!("{}, {}", key.about, key.allowed());
            *into = key
                .default
                .ok_or_else(|| self.missing(key.name, &wanted()))?;
            return Ok(());
        };
        let number = number_of(value).and_then(|number| key.small(number));
        let wrong = || self.wrong(line, key.name, format!("it is {}", key.allowed()));
        *into = number.ok_or_else(wrong)?;
        Ok(())
    }

    fn switch(&mut self, name: &'static str, _: &str, on: &mut bool) -> Result<(), DriveError> {
        *on = match self.take(name) {
            None => false,
            Some((DeValue::Boolean(on), _)) => *on,
            Some((_, line)) => return Err(self.wrong(line, name, "it is true or false")),
        };
        Ok(())
    }
}

/// Writes a table. Above each value is a comment with its meaning and the allowed values.
#[derive(Default)]
pub struct Writer {
    /// The text so far.
    pub text: String,
    /// True if everything goes on one line, without comments.
    pub inline: bool,
}

impl Writer {
    fn line(&mut self, about: &str, name: &str, value: &str) {
        let _ = match (self.inline, self.text.is_empty()) {
            (true, true) => write!(self.text, "{name} = {value}"),
            (true, false) => write!(self.text, ", {name} = {value}"),
            (false, _) => writeln!(self.text, "# {about}.\n{name} = {value}"),
        };
    }

    /// Writes a number that has no value, commented out.
    fn silent(&mut self, about: &str, name: &str) {
        if !self.inline {
            let _ = writeln!(self.text, "# {about}.\n# {name} =");
        }
    }

    /// Writes a text.
    pub fn text(&mut self, about: &str, name: &str, text: &str) {
        self.line(about, name, &toml::Value::from(text).to_string());
    }

    /// Begins a table.
    pub fn table(&mut self, name: &str, about: &str) {
        let _ = writeln!(self.text, "\n# {about}.\n[{name}]");
    }
}

impl Fields for Writer {
    fn number(&mut self, key: &Key, value: &mut u64) -> Result<(), DriveError> {
        let about = format!("{}: {}", key.about, key.allowed());
        let within = (key.range.0..=key.range.1).contains(value);
        match within {
            true => {
                let value = *value as f64 / key.unit as f64;
                self.line(&about, key.name, &value.to_string());
            }
            // No number means this: the key is left out.
            false => self.silent(&about, key.name),
        }
        Ok(())
    }

    fn switch(&mut self, name: &'static str, about: &str, on: &mut bool) -> Result<(), DriveError> {
        self.line(about, name, if *on { "true" } else { "false" });
        Ok(())
    }
}
