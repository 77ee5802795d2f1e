//! The choices for a served volume: its stored properties, the flags of this run, and what is in effect.

use super::change::{Change, Run};
use super::effect::changed;
use super::settings::Settings;
use super::show::listed;
use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use serde_json::Value;
use std::sync::Arc;
use vellum_core::format::properties::Properties;
use vellum_core::format::superblock::Superblock;
use vellum_device::block::BlockDevice;
use vellum_device::{Extent, Growable, JournalError, Volume};

/// The choices for one volume.
pub struct Chosen {
    /// Held while a change is made, so that two changes do not overlap.
    now: Mutex<Now>,
}

struct Now {
    run: Run,
    in_force: Settings,
}

impl Chosen {
    /// For a volume that is about to be opened.
    pub fn new(superblock: &Superblock, run: &Run) -> Self {
        let now = Now {
            run: run.clone(),
            in_force: Settings::of(superblock, superblock.properties(), run),
        };
        Self {
            now: Mutex::new(now),
        }
    }

    /// Notes that the volume is open, and which settings it could apply.
    pub fn opened(&self, volume: &Volume) {
        self.now.lock().in_force.policy = volume.policy();
    }

    /// Opens a volume again, with the settings in effect. Nobody changes them meanwhile: the change would be lost.
    pub fn reopened<T>(&self, volume: &Growable, open: impl FnOnce(&Settings) -> T) -> T {
        let mut now = self.now.lock();
        let opened = open(&now.in_force);
        now.in_force.policy = volume.volume().policy();
        opened
    }

    /// The settings in effect.
    pub fn in_force(&self) -> Settings {
        self.now.lock().in_force.clone()
    }

    /// All of them, as JSON.
    pub fn told(&self, volume: &Growable) -> Value {
        let now = self.now.lock();
        let volume = volume.volume();
        let (superblock, properties) = (volume.superblock(), volume.properties());
        listed(superblock, &properties, &now.run, Some(&now.in_force))
    }

    /// Makes changes, all or none: puts them in effect, where that is possible while the volume is served, and stores them.
    pub fn set(&self, volume: &Growable, changes: &[Change]) -> Result<()> {
        let mut now = self.now.lock();
        let volume = writable(volume)?;
        now.set(&volume, changes)
    }

    /// Adds a journal to those that are stored.
    pub fn add_journal(&self, volume: &Growable, start: u64, bytes: u64) -> Result<()> {
        // One lock for both steps, so that two journals added at once are both kept.
        let mut now = self.now.lock();
        let volume = writable(volume)?;
        let mut journals = now.in_force.journals.clone();
        let new = Extent { start, bytes };
        if !journals.contains(&new) {
            journals.push(new);
        }
        let each = journals.iter().map(|e| format!("{}+{}", e.start, e.bytes));
        let journals = each.collect::<Vec<_>>().join(",");
        let change: Change = format!("journals={journals}")
            .parse()
            .map_err(anyhow::Error::msg)?;
        now.set(&volume, &[change])
    }

    /// Makes changes, all or none, for this run only.
    pub fn study(&self, volume: &Growable, changes: &[Change]) -> Result<()> {
        let mut now = self.now.lock();
        let volume = volume.volume();
        let mut run = now.run.clone();
        run.study(changes);
        let settings = now.settings(&volume, &volume.properties(), &run, changes)?;
        now.take(&volume, settings)?;
        now.run = run;
        Ok(())
    }

    /// True if a flag names the journals of this run.
    pub fn has_journals_by_flag(&self) -> bool {
        self.now.lock().run.names_a_journal()
    }
}

impl Now {
    /// The settings that these properties and flags would put in effect.
    fn settings(
        &self,
        volume: &Volume,
        properties: &Properties,
        run: &Run,
        changes: &[Change],
    ) -> Result<Settings> {
        let superblock = volume.superblock();
        let mut new = Settings::of(superblock, properties, run);
        new.check(superblock)?;
        let before = &self.in_force;
        // An index for which this machine had no memory is requested again only on an explicit change.
        if !changes.iter().any(|c| c.name().starts_with("dedup")) {
            new.policy.index_bytes = before.policy.index_bytes;
        }
        // These stay as they were when the volume was opened.
        new.buffer_bytes = before.buffer_bytes;
        new.map_bytes = before.map_bytes;
        new.persistence = before.persistence;
        new.victim = before.victim;
        new.mount_options.clone_from(&before.mount_options);
        Ok(new)
    }

    /// Puts changes in effect, and stores them.
    fn set(&mut self, volume: &Volume, changes: &[Change]) -> Result<()> {
        let properties = changed(volume.superblock(), &volume.properties(), changes)?;
        let settings = self.settings(volume, &properties, &self.run, changes)?;
        let before = self.take(volume, settings)?;
        if let Err(error) = volume.set_properties(&properties) {
            let _ = self.take(volume, before);
            return Err(error).context(
                "it is not known whether the change was stored: see `vellum get` when the volume is \
                opened again",
            );
        }
        Ok(())
    }

    /// Puts settings in effect, all or nothing. Returns the previous ones.
    fn take(&mut self, volume: &Volume, new: Settings) -> Result<Settings> {
        volume.set_policy(new.policy)?;
        if new.journals != self.in_force.journals
            && let Err(error) = set_journals(volume, &new.journals)
        {
            let _ = volume.set_policy(self.in_force.policy);
            let _ = set_journals(volume, &self.in_force.journals);
            return Err(error.into());
        }
        volume.set_schedule(new.schedule());
        Ok(std::mem::replace(&mut self.in_force, new))
    }
}

/// The volume as it is now. Call it under the lock: a volume that grows is replaced.
fn writable(volume: &Growable) -> Result<Arc<Volume>> {
    let volume = volume.volume();
    match volume.read_only() {
        true => bail!("it is served --read-only: stop that server first"),
        false => Ok(volume),
    }
}

fn set_journals(volume: &Volume, journals: &[Extent]) -> Result<(), JournalError> {
    volume.clear_journals();
    let mut journals = journals.iter();
    journals.try_for_each(|journal| volume.set_journal(journal.start, journal.bytes))
}
