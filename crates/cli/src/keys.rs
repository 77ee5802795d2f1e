//! Sources of the secret of an encrypted volume.

use crate::outcome::{plain, usage};
use crate::signals;
use anyhow::{Context, Result};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::File;
use std::io::{IsTerminal, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vellum_medium::envelope::{Envelope, KEY_FILE_BYTES_MAX, Secret, VolumeKey};
use zeroize::Zeroizing;

/// The name of the key file among the credentials that systemd passes to a service.
const CREDENTIAL: &str = "vellum.key";
const KEY_FILE_FLAG: &str = "--key-file";

/// The first byte of a passphrase that one process passes to another.
const PASSPHRASE: u8 = b'P';
const KEY_FILE: u8 = b'K';
const HANDED_BYTES_MAX: u64 = 1 + KEY_FILE_BYTES_MAX as u64;

/// Where the secret comes from.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Key {
    /// The file with the key of an encrypted volume. Without it, the passphrase is asked for on the terminal.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    #[arg(skip)]
    kept: Arc<Mutex<Kept>>,
}

/// What was found in this run, so that the user is asked only once.
#[derive(Debug, Default)]
struct Kept {
    /// The user must not be asked.
    silent: bool,
    /// The process that started this one gave the secret.
    taken: bool,
    secret: Option<Secret>,
    volumes: HashMap<[u8; 16], VolumeKey>,
}

impl Key {
    /// No key: an encrypted volume is not opened, and the user is not asked.
    pub fn none() -> Self {
        let key = Self::default();
        key.kept.lock().silent = true;
        key
    }

    /// The key in a file, if one is given.
    pub fn file(key_file: Option<PathBuf>) -> Self {
        Self {
            key_file,
            ..Self::default()
        }
    }

    /// The absolute path of the file, for opening the volume later. The file is checked now.
    pub fn lasting_file(&self) -> Result<Option<PathBuf>> {
        let Some(file) = &self.key_file else {
            return Ok(None);
        };
        let whole = file.canonicalize();
        whole
            .map(Some)
            .with_context(|| format!("--key-file {}", file.display()))
    }

    /// True if a key was given for the volume: so it is encrypted, and a plain one was put in its place.
    pub fn is_given(&self) -> bool {
        let kept = self.kept.lock();
        self.key_file.is_some() || kept.taken || (!kept.silent && credential().is_some())
    }

    /// True if the command names the key.
    pub fn is_named(&self) -> bool {
        self.key_file.is_some()
    }

    /// The key of the volume on an encrypted medium.
    pub fn of(&self, path: &Path, envelope: &Envelope) -> Result<VolumeKey> {
        let header = envelope.header();
        if let Some(key) = self.kept.lock().volumes.get(&header.uuid()) {
            return Ok(key.clone());
        }
        let shown = path.display();
        let secret = self
            .secret(|| format!("Passphrase of {shown}: "))
            .with_context(|| format!("{shown} is encrypted"))?;
        let opened = header
            .open(&secret)
            .with_context(|| format!("cannot compute the key of {shown}"))?;
        let Some((_, key)) = opened else {
            return Err(wrong(path, &secret));
        };
        self.kept.lock().volumes.insert(header.uuid(), key.clone());
        Ok(key)
    }

    /// The secret that opens an existing volume. Asks for it if necessary.
    pub fn secret(&self, prompt: impl FnOnce() -> String) -> Result<Secret> {
        if let Some(secret) = &self.kept.lock().secret {
            return Ok(secret.clone());
        }
        let secret = match self.unasked()? {
            Some(secret) => secret,
            None if self.kept.lock().silent => return Err(usage("no key was given")),
            None => asked(&prompt(), KEY_FILE_FLAG)?,
        };
        self.keep(secret.clone());
        Ok(secret)
    }

    /// The secret for a new volume. A passphrase is asked for twice.
    pub fn new_secret(&self) -> Result<Secret> {
        if let Some(secret) = &self.kept.lock().secret {
            return Ok(secret.clone());
        }
        let secret = match self.unasked()? {
            Some(secret) => secret,
            None => asked_twice(KEY_FILE_FLAG)?,
        };
        self.keep(secret.clone());
        Ok(secret)
    }

    fn keep(&self, secret: Secret) {
        self.kept.lock().secret = Some(secret);
    }

    /// The secret, if it is available without asking.
    fn unasked(&self) -> Result<Option<Secret>> {
        if let Some(file) = &self.key_file {
            return read(KEY_FILE_FLAG, file, true).map(Some);
        }
        // systemd protects the folder from other users.
        let read = |file: PathBuf| read(KEY_FILE_FLAG, &file, false);
        credential().map(read).transpose()
    }

    /// The secret used so far, for a copy of the volume that it opened.
    pub fn used(&self) -> Option<Secret> {
        self.kept.lock().secret.clone()
    }

    /// The secret for a server that this process starts, sent over a pipe that no other process can read.
    pub fn handed(&self) -> Option<Zeroizing<Vec<u8>>> {
        let kept = self.kept.lock();
        let (kind, bytes) = match kept.secret.as_ref()? {
            Secret::Passphrase(bytes) => (PASSPHRASE, bytes),
            Secret::KeyFile(bytes) => (KEY_FILE, bytes),
        };
        Some(Zeroizing::new([&[kind], bytes.as_slice()].concat()))
    }

    /// Reads the output of [`handed`](Self::handed) to its end.
    pub fn take(&self, from: impl Read) -> Result<()> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(HANDED_BYTES_MAX as usize));
        from.take(HANDED_BYTES_MAX)
            .read_to_end(&mut bytes)
            .context("cannot read the key on standard input")?;
        let secret = match bytes.split_first() {
            Some((&PASSPHRASE, words)) => Secret::passphrase(words.to_vec())?,
            Some((&KEY_FILE, bytes)) => Secret::key_file(bytes.to_vec())?,
            _ => return Err(usage("there is no key on standard input")),
        };
        self.keep(secret);
        self.kept.lock().taken = true;
        Ok(())
    }
}

/// The key file that systemd passes to a service, if there is one.
fn credential() -> Option<PathBuf> {
    let folder = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    let file = folder?.join(CREDENTIAL);
    file.exists().then_some(file)
}

/// The error for a secret that opens nothing.
pub fn wrong(path: &Path, secret: &Secret) -> anyhow::Error {
    let what = match secret {
        Secret::Passphrase(_) => "passphrase",
        Secret::KeyFile(_) => "key file",
    };
    usage(format!(
        "{}: this {what} opens none of its key slots",
        path.display()
    ))
}

/// Reads the key file that a flag names. No other user may be able to read it.
pub fn read(flag: &str, file: &Path, private: bool) -> Result<Secret> {
    let shown = file.display();
    let mut opened = File::open(file)
        .map_err(|error| usage(format!("{flag} {shown}: cannot open it: {error}")))?;
    let about = opened.metadata()?;
    if private && about.is_file() && about.mode() & 0o077 != 0 {
        return Err(usage(format!(
            "{flag} {shown}: other users can read it (mode {:o}): run chmod 600 {shown}",
            about.mode() & 0o777
        )));
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(KEY_FILE_BYTES_MAX + 1));
    (&mut opened)
        .take(KEY_FILE_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| usage(format!("{flag} {shown}: cannot read it: {error}")))?;
    Secret::key_file(bytes.to_vec()).map_err(|error| usage(format!("{flag} {shown}: {error}")))
}

/// Asks for a passphrase at the terminal. `flag`: what is given instead of it.
fn asked(prompt: &str, flag: &str) -> Result<Secret> {
    if !std::io::stderr().is_terminal() && !std::io::stdin().is_terminal() {
        return Err(usage(format!(
            "there is no terminal to ask for the passphrase: give {flag} FILE"
        )));
    }
    // Ctrl-C there is a signal, too.
    let words = signals::asking(|| rpassword::prompt_password(plain(prompt)));
    let words = words.map_err(|error| {
        usage(format!(
            "cannot ask for the passphrase: {error}; give {flag} FILE"
        ))
    })?;
    Secret::passphrase(words.into_bytes()).map_err(|error| usage(error.to_string()))
}

/// Asks for a new passphrase until it is entered the same way twice.
pub fn asked_twice(flag: &str) -> Result<Secret> {
    let ask = |prompt| asked(prompt, flag);
    let (first, again) = (ask("New passphrase: ")?, ask("The same again: ")?);
    match (&first, &again) {
        (Secret::Passphrase(one), Secret::Passphrase(two)) if one == two => Ok(first),
        _ => Err(usage("the two passphrases differ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_file_is_private_and_long_enough() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("k");
        let with = |bytes: &[u8], mode| {
            std::fs::write(&file, bytes).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            read("--new-key-file", &file, true)
        };
        assert!(with(&[7; 32], 0o600).is_ok());
        for (bytes, mode, says) in [
            (&[7; 32][..], 0o640, "other users can read"),
            (&[7; 32], 0o604, "other users can read"),
            (&[7; 31], 0o600, "32 to 8192"),
            (
                &[7; 9000],
                0o600,
                "32 to 8192 random bytes, and this one has more",
            ),
        ] {
            let error = with(bytes, mode).unwrap_err().to_string();
            assert!(
                error.starts_with("--new-key-file ") && error.contains(says),
                "{error}"
            );
        }
    }

    #[test]
    fn a_secret_is_handed_over_whole() {
        for secret in [
            Secret::passphrase(b"words".to_vec()).unwrap(),
            Secret::key_file(vec![9; KEY_FILE_BYTES_MAX]).unwrap(),
        ] {
            let (from, to) = (Key::none(), Key::none());
            from.keep(secret);
            to.take(&from.handed().unwrap()[..]).unwrap();
            assert_eq!(from.handed(), to.handed());
        }
        assert!(Key::none().handed().is_none());
        assert!(Key::none().take(&b""[..]).is_err());
        assert!(Key::none().take(&b"Pp"[..0]).is_err());
    }
}
