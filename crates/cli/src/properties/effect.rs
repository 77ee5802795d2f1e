//! What is in force: what is usual for the volume, changed by what is stored in it, changed by the flags of this run.

use super::change::{Change, Run};
use super::settings::Settings;
use super::table::{Property, TABLE, Tier, named};
use crate::ext4;
use crate::outcome::{tell, usage};
use anyhow::{Result, bail};
use vellum_core::format::areas::Layout;
use vellum_core::format::properties::{Properties, Value};
use vellum_core::format::superblock::Superblock;
use vellum_device::{OpenError, check_choice};

impl Settings {
    /// What is in force on a volume that has these properties, in this run.
    pub fn of(superblock: &Superblock, properties: &Properties, run: &Run) -> Self {
        let mut settings = Self::usual(superblock);
        for property in TABLE.iter().filter(|p| p.tier != Tier::Research) {
            if let Some(value) = property.stored(superblock, properties) {
                (property.put)(&mut settings, value);
            }
        }
        // In the table's order, so that one which implies others comes before them.
        for property in &TABLE {
            if let Some(value) = run.value_of(property) {
                (property.put)(&mut settings, &value);
            }
        }
        let may_replay = superblock.layout() == Layout::Log && run.is_mounted();
        settings.policy.replay = settings.replay.is_on(may_replay);
        settings
    }

    /// Refuses what the volume cannot do.
    pub fn check(&self, superblock: &Superblock) -> Result<()> {
        if !self.mount_options.is_empty() {
            ext4::mount_options(superblock.layout(), Some(&self.mount_options))?;
        }
        let checked = check_choice(superblock, &self.policy, self.persistence, &self.journals);
        checked.map_err(|error| match error {
            OpenError::Journal(error) => usage(format!("journals: {error}")),
            error => usage(error.to_string()),
        })
    }
}

impl Property {
    /// The value that is stored, if it is one that this version knows, and one that the layout has.
    pub(super) fn stored<'a>(
        &self,
        superblock: &Superblock,
        properties: &'a Properties,
    ) -> Option<&'a Value> {
        let value = properties.get(self.name)?;
        let is_known = self.has.has(superblock.layout()) && self.kind.text(value).is_some();
        is_known.then_some(value)
    }
}

/// The properties of a volume with changes made; all of them, or none.
pub fn changed(
    superblock: &Superblock,
    properties: &Properties,
    changes: &[Change],
) -> Result<Properties> {
    let mut new = properties.clone();
    for change in changes {
        let (name, layout) = (change.name(), superblock.layout());
        if let Some(property) = change.property()
            && !property.has.has(layout)
            && change.value().is_some()
        {
            return Err(usage(format!(
                "{name}: the layout {} has no such thing; the property is for the layout {}",
                layout.name(),
                property.has.names()
            )));
        }
        if change.property().is_none() && properties.get(name).is_none() {
            bail!("no property {name:?} is set, so there is none to let go");
        }
        new.set(name, change.value().cloned())
            .map_err(|error| usage(error.to_string()))?;
    }
    Settings::of(superblock, &new, &Run::default()).check(superblock)?;
    Ok(new)
}

/// Those of another volume that this one can have; with the names of those that it cannot.
fn taken_over(superblock: &Superblock, from: &Properties) -> (Properties, Vec<String>) {
    let (mut taken, mut left) = (Properties::default(), Vec::new());
    for (name, value) in from.iter() {
        let is_for = named(name).is_none_or(|property| property.has.has(superblock.layout()));
        let mut with = taken.clone();
        let fits = with.set(name, Some(value.clone())).is_ok()
            && Settings::of(superblock, &with, &Run::default())
                .check(superblock)
                .is_ok();
        match is_for && fits {
            true => taken = with,
            false => left.push(name.to_owned()),
        }
    }
    (taken, left)
}

/// What the user of another volume has chosen goes along, as far as the new one can have it.
pub fn taken_from(source: &Superblock) -> impl Fn(&Superblock) -> Result<Properties> + use<> {
    let from = source.properties().clone();
    move |target: &Superblock| {
        let (taken, left) = taken_over(target, &from);
        if !left.is_empty() {
            let left = left.join(", ");
            tell(format_args!(
                "the new volume cannot have these properties of the old one: {left}"
            ));
        }
        Ok(taken)
    }
}
