//! The oracle of properties: after a crash a volume has those of one change, whole, and none older than was acknowledged.

use super::driver::{Failure, ensure};
use vellum_core::format::properties::{Properties, Value};

/// The numbers of the changes that were requested and acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chosen {
    asked: u64,
    acknowledged: u64,
}

impl Chosen {
    /// The next change, and its properties: its number, in two places that lie in different sectors.
    pub fn next(&mut self) -> (u64, Properties) {
        self.asked += 1;
        (self.asked, numbered(self.asked))
    }

    /// Notes that a change was acknowledged.
    pub fn acknowledge(&mut self, number: u64) {
        self.acknowledged = self.acknowledged.max(number);
    }

    /// Checks the properties found after a crash. They are the truth from then on.
    pub fn judge(&mut self, found: &Properties) -> Result<(), Failure> {
        let number = found.get("number").and_then(Value::as_number).unwrap_or(0);
        let whole = match number {
            0 => Properties::default(),
            number => numbered(number),
        };
        ensure!(
            found.iter().eq(whole.iter()),
            "properties of several changes: {found:?}"
        );
        let may_be = self.acknowledged..=self.asked;
        ensure!(
            may_be.contains(&number),
            "properties of change {number}, and it may be {may_be:?}"
        );
        self.acknowledged = number;
        Ok(())
    }
}

fn numbered(number: u64) -> Properties {
    let mut properties = Properties::default();
    let long = "x".repeat(1000 + number as usize % 20);
    for (name, value) in [
        ("number", Value::number(number)),
        ("a-long-one", Value::text(&long)),
        ("the-same-again", Value::number(number)),
    ] {
        let set = properties.set(name, Some(value));
        assert_eq!(set, Ok(()), "{name}");
    }
    properties
}
