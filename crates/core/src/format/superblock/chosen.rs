//! The properties in a superblock.

use super::Superblock;
use crate::format::properties::Properties;

impl Superblock {
    /// What the user has chosen.
    #[must_use]
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Replaces the properties; the caller writes both mirrors, one after the other.
    pub fn set_properties(&mut self, properties: Properties) {
        self.properties = properties.replacing(&self.properties);
    }

    /// Takes the other mirror's properties, if a change was interrupted between the two.
    pub fn take_newer_properties(&mut self, other: &Self) {
        if other.properties.is_newer_than(&self.properties) {
            self.properties = other.properties.clone();
        }
    }
}
