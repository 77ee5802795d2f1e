//! The exports of a server, by name.

use super::tls::Fingerprint;
use super::wire::export_flag as flag;
use crate::changes::Changes;
use crate::finder::{Finder, Found};
use crate::unaligned::ByteDevice;
use parking_lot::RwLock;
use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vellum_device::block::BlockDevice;

/// The longest name or description that the protocol allows.
pub const STRING_BYTES_MAX: usize = 4096;

/// One export.
pub struct Export {
    pub(super) name: String,
    pub(super) description: String,
    /// The export of its volume, if it was found by name.
    of: Option<String>,
    bytes: ByteDevice,
    read_only: bool,
    /// The clients that may use it; `None`: all.
    clients: Option<BTreeSet<Fingerprint>>,
    /// If it was found on request: its own name, and its identity.
    found: Option<(String, u64)>,
    pub(super) removed: AtomicBool,
    /// Held while a client uses it.
    _held: Option<Box<dyn Any + Send + Sync>>,
}

impl std::fmt::Debug for Export {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Export")
            .field("name", &self.name)
            .field("read_only", &self.read_only())
            .finish_non_exhaustive()
    }
}

impl Export {
    /// An export of `device` as `name`. A volume's other exports and other front ends must have a clone of the same [`ByteDevice`].
    #[must_use]
    pub fn new(name: impl Into<String>, device: impl Into<ByteDevice>) -> Self {
        let bytes = device.into();
        let held = bytes.device().hold();
        Self {
            name: name.into(),
            description: String::new(),
            of: None,
            bytes,
            read_only: false,
            clients: None,
            found: None,
            removed: AtomicBool::new(false),
            _held: held,
        }
    }

    /// An export that was found when a client asked for `name`.
    fn of_found(name: &str, found: Found) -> Self {
        Self {
            of: Some(found.of),
            found: Some((found.name, found.number)),
            ..Self::new(name, found.device)
        }
    }

    /// The name by which it is compared with earlier points. If it was found on request, also its identity.
    pub(super) fn compared(&self) -> (&str, Option<u64>) {
        match &self.found {
            Some((name, number)) => (name, Some(*number)),
            None => (&self.name, None),
        }
    }

    /// Adds a description for people, shown by clients that list exports.
    #[must_use]
    pub fn described(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    /// The name under which its clients are counted: what is found by name is made anew for each of them.
    pub(super) fn counted_as(&self) -> &str {
        self.of.as_deref().unwrap_or(&self.name)
    }

    /// Refuses writes, whatever the device allows.
    #[must_use]
    pub fn read_only_if(mut self, read_only: bool) -> Self {
        self.read_only |= read_only;
        self
    }

    /// Restricts it to clients with these certificates. For others it does not exist.
    #[must_use]
    pub fn only_for(mut self, clients: BTreeSet<Fingerprint>) -> Self {
        self.clients = Some(clients);
        self
    }

    /// True if a client with this certificate, or without one, may use it.
    fn is_for(&self, client: Option<&Fingerprint>) -> bool {
        let Some(clients) = &self.clients else {
            return true;
        };
        client.is_some_and(|client| clients.contains(client))
    }

    /// True if writes are refused.
    #[must_use]
    pub fn read_only(&self) -> bool {
        self.read_only || self.device().read_only()
    }

    /// Its size.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.bytes()
    }

    /// The exported device.
    pub(super) fn device(&self) -> &dyn BlockDevice {
        &**self.bytes.device()
    }

    /// The same device, for changes.
    pub(super) fn changes(&self) -> &ByteDevice {
        &self.bytes
    }

    /// The transmission flags. All connections share one device, whose flush covers whatever was acknowledged on any of them.
    /// That is what CAN_MULTI_CONN promises.
    pub(super) fn flags(&self, structured: bool) -> u16 {
        let mut flags = flag::HAS_FLAGS
            | flag::SEND_FLUSH
            | flag::SEND_FUA
            | flag::CAN_MULTI_CONN
            | flag::SEND_CACHE;
        flags |= if self.read_only() {
            flag::READ_ONLY
        } else {
            flag::SEND_TRIM | flag::SEND_WRITE_ZEROES | flag::SEND_FAST_ZERO
        };
        if structured {
            flags |= flag::SEND_DF;
        }
        flags
    }
}

/// Why an export cannot be added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// The name is taken.
    #[error("an export named {0:?} is already served")]
    Taken(String),
    /// The name is not allowed by the protocol.
    #[error("an export's name and description have at most {STRING_BYTES_MAX} bytes and no NUL")]
    BadString,
}

/// The exports, in the order they were added. The first is the default.
#[derive(Default)]
pub struct Catalogue {
    exports: RwLock<Vec<Arc<Export>>>,
    /// Makes exports on request. Clients of the volume they belong to may use them.
    finder: RwLock<Option<Finder>>,
    /// Compares exports with earlier points.
    changes: RwLock<Option<Arc<dyn Changes>>>,
}

impl std::fmt::Debug for Catalogue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.exports.fmt(f)
    }
}

impl Catalogue {
    /// Adds an export.
    ///
    /// # Errors
    /// If its name is taken or not allowed by the protocol.
    pub fn add(&self, export: Export) -> Result<(), ExportError> {
        let bad = |s: &str| s.len() > STRING_BYTES_MAX || s.contains('\0');
        if bad(&export.name) || bad(&export.description) {
            return Err(ExportError::BadString);
        }
        let mut exports = self.exports.write();
        if exports.iter().any(|other| other.name == export.name) {
            return Err(ExportError::Taken(export.name));
        }
        exports.push(Arc::new(export));
        Ok(())
    }

    /// Removes an export.
    pub fn remove(&self, name: &str) -> Option<Arc<Export>> {
        let mut exports = self.exports.write();
        let at = exports.iter().position(|export| export.name == name)?;
        let export = exports.remove(at);
        export.removed.store(true, Ordering::Release);
        Some(export)
    }

    /// Finds an export by name, among those that this client may use. The empty name means the first one, unless an export is named so.
    #[must_use]
    pub fn find(&self, name: &str, client: Option<&Fingerprint>) -> Option<Arc<Export>> {
        let exports = self.of(client);
        let named = exports.iter().find(|export| export.name == name);
        named
            .or_else(|| exports.first().filter(|_| name.is_empty()))
            .cloned()
            .or_else(|| self.made(name, &exports))
    }

    /// Makes an export on request for a client that may use the exports in `open`: a snapshot, which is read-only, or a clone.
    fn made(&self, name: &str, open: &[Arc<Export>]) -> Option<Arc<Export>> {
        let finder = self.finder.read().clone()?;
        let (of, _) = name.rsplit_once('@')?;
        let is_open = |of: &str| open.iter().any(|export| export.name == of);
        // Looked up only for those who may use it: the volume's other clients wait meanwhile.
        let found = is_open(of).then(|| finder(name)).flatten()?;
        is_open(&found.of).then(|| Arc::new(Export::of_found(name, found)))
    }

    /// Sets the finder for names that are not listed.
    pub fn find_by(&self, finder: Finder) {
        *self.finder.write() = Some(finder);
    }

    /// Sets how exports are compared with earlier points.
    pub fn compare_by(&self, changes: Arc<dyn Changes>) {
        *self.changes.write() = Some(changes);
    }

    /// How exports are compared, if set.
    #[must_use]
    pub fn changes(&self) -> Option<Arc<dyn Changes>> {
        self.changes.read().clone()
    }

    /// The exports that this client may use.
    #[must_use]
    pub fn of(&self, client: Option<&Fingerprint>) -> Vec<Arc<Export>> {
        let exports = self.exports.read();
        let of_client = exports.iter().filter(|export| export.is_for(client));
        of_client.cloned().collect()
    }

    /// All exports.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Export>> {
        self.exports.read().clone()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::testing::RamDisk;
    use std::sync::atomic::AtomicU32;

    /// A look-up may take a while, in which the volume's other clients wait.
    #[test]
    fn nothing_is_looked_up_for_a_client_that_may_not_use_the_volume() {
        let catalogue = Catalogue::default();
        let [hers, other] = ["AB", "CD"].map(|pair| pair.repeat(32).parse().unwrap());
        let disk = || Arc::new(RamDisk::new(8, 1, 1));
        let export = Export::new("a@b", disk()).only_for([hers].into());
        catalogue.add(export).unwrap();
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        catalogue.find_by(Arc::new(move |name: &str| {
            count.fetch_add(1, Ordering::Relaxed);
            let (of, _) = name.rsplit_once('@')?;
            Some(Found {
                of: of.to_owned(),
                name: name.to_owned(),
                number: 1,
                device: disk().into(),
            })
        }));
        for client in [None, Some(&other)] {
            assert!(catalogue.find("a@b@s", client).is_none());
        }
        assert!(catalogue.find("c@s", Some(&hers)).is_none());
        assert_eq!(asked.load(Ordering::Relaxed), 0);
        assert!(catalogue.find("a@b@s", Some(&hers)).is_some());
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }
}
