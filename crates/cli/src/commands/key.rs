//! `vellum key`: manages who can open an encrypted volume. No data is rewritten.

use crate::keys::{self, Key};
use crate::opened;
use crate::outcome::{counted, out, usage};
use anyhow::{Context, Result, bail};
use std::io::Write;
use std::path::{Path, PathBuf};
use vellum_medium::envelope::{Envelope, Header, Kind, SLOTS, Secret, Slot, VolumeKey};
use vellum_medium::{FileMedium, Medium};

const NEW_FLAG: &str = "--new-key-file";

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  vellum key list disk.vellum
  vellum key list disk.vellum --key-file backup.key        which of them this file is
  vellum key add disk.vellum --new-key-file backup.key     a second way to open it
  vellum key change disk.vellum                            another passphrase for the one that is asked for
  vellum key remove disk.vellum --key-file backup.key      what this file opens, it opens no more

Each key slot holds the same volume key, which never changes. So whoever has kept a copy of the medium's
first megabyte opens the volume with the secrets of that time: if one of these is known to an enemy,
make a new volume (`vellum migrate`) and destroy the old one.")]
pub struct Args {
    #[command(subcommand)]
    order: Order,
}

#[derive(clap::Subcommand)]
enum Order {
    /// Show what opens a volume; no key is needed. With --key-file, also which of them that file is.
    List {
        /// The volume.
        volume: PathBuf,
        /// A key file.
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
    },
    /// Let another passphrase or key file open it too.
    Add(Change),
    /// Put another passphrase or key file in place of the one that is given.
    Change(Change),
    /// Let the passphrase or key file that is given open it no more. The last one stays.
    Remove {
        /// The volume; no server may have it open.
        volume: PathBuf,
        #[command(flatten)]
        key: Key,
    },
}

#[derive(clap::Args)]
struct Change {
    /// The volume; no server may have it open.
    volume: PathBuf,
    #[command(flatten)]
    key: Key,
    /// The new one. Without it, a new passphrase is asked for twice.
    #[arg(long, value_name = "FILE")]
    new_key_file: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    match &args.order {
        Order::List { volume, key_file } => list(volume, key_file.as_deref()),
        Order::Add(change) => {
            let mut opened = Opened::with(&change.volume, &change.key)?;
            let Some(free) = opened.header().free_slot() else {
                bail!(
                    "{}: all {SLOTS} key slots are taken: remove one first",
                    change.volume.display()
                );
            };
            let new = change.new_secret(opened.header())?;
            opened.put(opened.header().clone(), free, &new)
        }
        Order::Change(change) => {
            let mut opened = Opened::with(&change.volume, &change.key)?;
            let new = change.new_secret(opened.header())?;
            opened.put(opened.without()?, opened.slot, &new)
        }
        Order::Remove { volume, key } => {
            let mut opened = Opened::with(volume, key)?;
            let without = opened.without()?;
            if without.slots().iter().flatten().next().is_none() {
                return Err(usage(format!(
                    "{}: this is the last secret that opens it; add another one first",
                    volume.display()
                )));
            }
            opened.replace(without)
        }
    }
}

impl Change {
    /// The new secret. One that opens the volume already is refused: in a second slot it would only hide that the first is there.
    fn new_secret(&self, header: &Header) -> Result<Secret> {
        let new = match &self.new_key_file {
            Some(file) => keys::read(NEW_FLAG, file, true),
            None => keys::asked_twice(NEW_FLAG),
        }?;
        match opens(header, &new, &self.volume)? {
            None => Ok(new),
            Some(_) => Err(usage(format!(
                "{}: the new passphrase or key file opens it already",
                self.volume.display()
            ))),
        }
    }
}

fn list(volume: &Path, file: Option<&Path>) -> Result<()> {
    let Some(envelope) = crate::peek::envelope_of(volume)? else {
        return Err(usage(format!("{} is not encrypted", volume.display())));
    };
    let header = envelope.header();
    let secret = file
        .map(|file| keys::read("--key-file", file, false))
        .transpose()?;
    let opened = secret.as_ref().map(|secret| opens(header, secret, volume));
    let opened = opened.transpose()?.flatten().map(|(slot, _)| slot);
    for (index, slot) in header.slots().iter().enumerate() {
        if let Some(slot) = slot {
            let is_it = file.filter(|_| opened == Some(index));
            let it = is_it.map_or(String::new(), |file| format!(": {}", file.display()));
            writeln!(out(), "slot {index}: {}{it}", kind(slot.kind()))?;
        }
    }
    match (file, opened) {
        (Some(file), None) => Err(usage(format!("{} opens none of them", file.display()))),
        _ => Ok(()),
    }
}

/// Describes what opens a slot.
pub fn kind(kind: Kind) -> String {
    match kind {
        Kind::KeyFile => "a key file".to_owned(),
        Kind::Passphrase(cost) => format!(
            "a passphrase (argon2id, {} MiB, {})",
            cost.memory_kib / 1024,
            counted(cost.passes.into(), "time")
        ),
    }
}

/// The slot of a volume's header that a secret opens, and the key in it.
fn opens(header: &Header, secret: &Secret, path: &Path) -> Result<Option<(usize, VolumeKey)>> {
    let found = header.open(secret);
    found.with_context(|| format!("cannot compute the key of {}", path.display()))
}

/// An encrypted medium that no other process has, and the first slot that the given secret opens.
struct Opened {
    medium: FileMedium,
    envelope: Envelope,
    secret: Secret,
    slot: usize,
    key: VolumeKey,
}

impl Opened {
    fn with(path: &Path, key: &Key) -> Result<Self> {
        let shown = path.display();
        let medium = opened::file(path, false)?;
        // Earlier writes that are not durable must not be relied on.
        medium.drop_cache()?;
        let Some(envelope) = opened::envelope_of(&medium)? else {
            return Err(usage(format!("{shown} is not encrypted")));
        };
        let secret = key.secret(|| format!("Passphrase of {shown}: "))?;
        let Some((slot, key)) = opens(envelope.header(), &secret, path)? else {
            return Err(keys::wrong(path, &secret));
        };
        Ok(Self {
            medium,
            envelope,
            secret,
            slot,
            key,
        })
    }

    fn header(&self) -> &Header {
        self.envelope.header()
    }

    /// The header without all slots that the given secret opens: an older version may have filled several with it.
    fn without(&self) -> Result<Header> {
        let mut header = self.header().with_slot(self.slot, None);
        let again = |header: &Header| header.open(&self.secret).context("cannot compute the key");
        while let Some((slot, _)) = again(&header)? {
            header = header.with_slot(slot, None);
        }
        Ok(header)
    }

    fn put(&mut self, header: Header, index: usize, secret: &Secret) -> Result<()> {
        let slot = Slot::new(&self.key, secret).context("cannot wrap the volume's key")?;
        self.replace(header.with_slot(index, Some(slot)))
    }

    fn replace(&mut self, header: Header) -> Result<()> {
        Ok(self.envelope.replace(&self.medium, header)?)
    }
}
