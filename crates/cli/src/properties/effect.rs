//! What is in effect: the defaults for the volume, changed by its stored properties, changed by the flags of this run.

use super::change::{Change, Run};
use super::settings::Settings;
use super::table::{Property, TABLE, named};
use crate::outcome::{tell, usage};
use crate::{ext4, strangers};
use anyhow::{Result, bail};
use vellum_core::format::areas::Layout;
use vellum_core::format::properties::{Properties, Value};
use vellum_core::format::superblock::Superblock;
use vellum_core::recovery::find_superblock;
use vellum_device::policy::Policy;
use vellum_device::{MediumSource, OpenError, SnapshotError, check_choice, crc32c};
use vellum_medium::Medium;
use vellum_policies::table::{MOUNT_OPTIONS, Tier};

impl Settings {
    /// The settings in effect in this run on a volume with these properties.
    pub fn of(superblock: &Superblock, properties: &Properties, run: &Run) -> Self {
        let mut settings = Self::usual(superblock);
        for property in TABLE.iter().filter(|p| p.tier != Tier::Research) {
            if let Some(value) = property.stored(superblock, properties) {
                (property.put)(&mut settings, value);
            }
        }
        // In the table's order, so that a property that implies others comes before them.
        for property in TABLE {
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
        if self.schedule().every.is_some() && superblock.history().kept() == 0 {
            return Err(usage(format!(
                "snapshot-every={}: {}",
                self.snapshot_every,
                SnapshotError::NoHistory
            )));
        }
        let checked = check_choice(superblock, &self.policy, self.persistence, &self.journals);
        checked.map_err(|error| match error {
            OpenError::Journal(error) => usage(format!("journals: {error}")),
            error => usage(error.to_string()),
        })
    }
}

impl Property {
    /// The stored value, if this version knows it, and the layout has it.
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

/// The policy in effect on a medium that no process has open, from its stored properties and this run.
pub fn policy_of(medium: &dyn Medium, run: &Run) -> Result<Policy> {
    let mut source = MediumSource::new(medium);
    let (found, _) = find_superblock(&mut source, medium.blocks(), crc32c)?;
    Ok(Settings::of(&found, found.properties(), run).policy)
}

/// The properties of a volume after changes; all of them are made, or none.
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
        if name == MOUNT_OPTIONS.name
            && let Some(options) = change.value().and_then(Value::as_text)
        {
            // Else the volume could not be attached any more.
            strangers::check(options)?;
        }
        new.set(name, change.value().cloned())
            .map_err(|error| usage(error.to_string()))?;
    }
    Settings::of(superblock, &new, &Run::default()).check(superblock)?;
    Ok(new)
}

/// The properties of another volume that this one can have, and the names of those that it cannot.
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

/// Takes over what the user of another volume has chosen, as far as the new volume can have it.
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

#[cfg(test)]
mod tests {
    use super::super::show::{in_a_line, listed, written};
    use super::*;
    use vellum_core::format::SumKind;
    use vellum_core::format::geometry::{Params, plan, plan_tables};

    fn superblock(layout: Layout) -> Superblock {
        let params = Params {
            medium_blocks: 32 << 10,
            logical_blocks: None,
            over_provisioning: 100,
            segment_blocks: None,
            uuid: [0; 16],
            secret: [0; 32],
            sums: SumKind::default(),
        };
        match layout {
            Layout::Log => plan(&params).unwrap(),
            tables => plan_tables(&params, tables).unwrap(),
        }
    }

    #[test]
    fn each_default_is_what_the_table_says() {
        for layout in [Layout::Log, Layout::Ordered, Layout::Shadow] {
            let usual = Settings::usual(&superblock(layout));
            for property in TABLE.iter().filter(|p| p.has.has(layout)) {
                let all = TABLE.iter().filter(|p| p.name == property.name);
                // For values that several rows share, each row has some of them.
                let text = all
                    .filter_map(|p| p.kind.text(&(p.get)(&usual)))
                    .next()
                    .unwrap();
                assert_eq!(text, property.default, "{} of {layout:?}", property.name);
            }
        }
    }

    /// Values that none of our commands stores.
    fn odd_values() -> Vec<Value> {
        let mut values = vec![Value::switch(true), Value::switch(false)];
        values.extend([0, 1, 4095, 8 << 20, u64::MAX].map(Value::number));
        let long = "x".repeat(1000);
        for text in ["", "on", "zstd:99", "strong", "a\nb", "\u{202e}", &long] {
            values.push(Value::text(text));
        }
        for ranges in [&[][..], &[(u64::MAX, u64::MAX)], &[(1, 2), (0, 0)]] {
            values.push(Value::ranges(ranges));
        }
        values
    }

    #[test]
    fn any_stored_value_is_used_or_reported_as_kept() {
        for layout in [Layout::Log, Layout::Ordered, Layout::Shadow] {
            let superblock = superblock(layout);
            for property in TABLE {
                for value in odd_values() {
                    let mut stored = Properties::default();
                    stored.set(property.name, Some(value.clone())).unwrap();
                    let settings = Settings::of(&superblock, &stored, &Run::default());
                    let _ = settings.check(&superblock);
                    let told = listed(&superblock, &stored, &Run::default(), Some(&settings));
                    let is_kept = told["kept"]
                        .as_array()
                        .unwrap()
                        .contains(&property.name.into());
                    let is_taken = named(property.name)
                        .is_some_and(|p| p.has.has(layout) && p.kind.text(&value).is_some());
                    assert_eq!(is_kept, !is_taken, "{}: {value:?}", property.name);
                    // A terminal shows no more lines than there are properties.
                    assert!(written(&told, true).lines().count() <= TABLE.len() + 2);
                    assert!(taken_over(&superblock, &stored).0.iter().count() <= 1);
                }
            }
        }
    }

    #[test]
    fn the_defaults_are_what_the_volume_can_do() {
        for layout in [Layout::Log, Layout::Ordered, Layout::Shadow] {
            let superblock = superblock(layout);
            let mut run = Run::default();
            run.mount();
            for run in [Run::default(), run] {
                let usual = Settings::of(&superblock, &Properties::default(), &run);
                usual.check(&superblock).unwrap();
                let is_log = layout == Layout::Log;
                assert_eq!(usual.policy.replay, is_log && run.is_mounted());
                assert_eq!(usual.policy.deltas.are_made(), is_log);
            }
            assert_eq!(
                in_a_line(&superblock).contains("compress=zstd"),
                layout == Layout::Log
            );
        }
    }
}
