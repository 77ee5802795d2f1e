//! What is chosen of a volume that is served: what it has stored, the flags of this run, and what is in force.

use super::change::{Change, Run};
use super::effect::changed;
use super::settings::Settings;
use super::show::listed;
use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use serde_json::Value;
use vellum_core::format::properties::Properties;
use vellum_core::format::superblock::Superblock;
use vellum_device::block::BlockDevice;
use vellum_device::{Extent, JournalError, Volume};

/// One volume's.
pub struct Chosen {
    /// Held while a change is made: of two at once, one comes after the other.
    now: Mutex<Now>,
}

struct Now {
    run: Run,
    in_force: Settings,
}

impl Chosen {
    /// Of a volume that is about to be opened.
    pub fn new(superblock: &Superblock, run: &Run) -> Self {
        let now = Now {
            run: run.clone(),
            in_force: Settings::of(superblock, superblock.properties(), run),
        };
        Self {
            now: Mutex::new(now),
        }
    }

    /// The volume is open, and says what it could have of that.
    pub fn opened(&self, volume: &Volume) {
        self.now.lock().in_force.policy = volume.policy();
    }

    /// What is in force.
    pub fn in_force(&self) -> Settings {
        self.now.lock().in_force.clone()
    }

    /// All of it, as programs read it.
    pub fn told(&self, volume: &Volume) -> Value {
        let now = self.now.lock();
        let (superblock, properties) = (volume.superblock(), volume.properties());
        listed(superblock, &properties, &now.run, Some(&now.in_force))
    }

    /// Makes changes, all or none: in force, where that can be while the volume is served, and stored.
    pub fn set(&self, volume: &Volume, changes: &[Change]) -> Result<()> {
        if volume.read_only() {
            bail!("it is served --read-only: stop that server first");
        }
        let mut now = self.now.lock();
        let properties = changed(volume.superblock(), &volume.properties(), changes)?;
        let settings = now.settings(volume, &properties, &now.run, changes)?;
        let before = now.take(volume, settings)?;
        if let Err(error) = volume.set_properties(&properties) {
            let _ = now.take(volume, before);
            return Err(error).context(
                "it is not known whether the change was stored: see `vellum get` when the volume is \
                opened again",
            );
        }
        Ok(())
    }

    /// Makes changes, all or none, for this run alone.
    pub fn study(&self, volume: &Volume, changes: &[Change]) -> Result<()> {
        let mut now = self.now.lock();
        let mut run = now.run.clone();
        run.study(changes);
        let settings = now.settings(volume, &volume.properties(), &run, changes)?;
        now.take(volume, settings)?;
        now.run = run;
        Ok(())
    }

    /// Whether the journals of this run are those that a flag names.
    pub fn has_journals_by_flag(&self) -> bool {
        self.now.lock().run.names_a_journal()
    }

    /// The journals that are stored, with one more.
    pub fn with_journal(&self, start: u64, bytes: u64) -> String {
        let mut journals = self.now.lock().in_force.journals.clone();
        let new = Extent { start, bytes };
        if !journals.contains(&new) {
            journals.push(new);
        }
        let each = journals.iter().map(|e| format!("{}+{}", e.start, e.bytes));
        each.collect::<Vec<_>>().join(",")
    }
}

impl Now {
    /// What will be in force with these properties and flags.
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
        // What this machine has no memory for is asked for again when somebody asks again.
        if !changes.iter().any(|c| c.name().starts_with("dedup")) {
            new.policy.index_bytes = before.policy.index_bytes;
        }
        // These are as the volume was opened with.
        new.buffer_bytes = before.buffer_bytes;
        new.map_bytes = before.map_bytes;
        new.persistence = before.persistence;
        new.victim = before.victim;
        new.mount_options.clone_from(&before.mount_options);
        Ok(new)
    }

    /// Puts it in force, all or nothing; gives what was before.
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

fn set_journals(volume: &Volume, journals: &[Extent]) -> Result<(), JournalError> {
    volume.clear_journals();
    let mut journals = journals.iter();
    journals.try_for_each(|journal| volume.set_journal(journal.start, journal.bytes))
}
