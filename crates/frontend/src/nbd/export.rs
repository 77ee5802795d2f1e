//! What a server serves, by name.

use super::tls::Fingerprint;
use super::wire::export_flag as flag;
use crate::changes::Changes;
use crate::finder::Finder;
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
    bytes: ByteDevice,
    read_only: bool,
    /// Clients that may have it; all of them, if it says nothing.
    clients: Option<BTreeSet<Fingerprint>>,
    pub(super) removed: AtomicBool,
    /// For as long as a client has it.
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
    /// An export of `device` as `name`. A volume's other exports, and its other front ends, must have a clone of
    /// the same [`ByteDevice`].
    #[must_use]
    pub fn new(name: impl Into<String>, device: impl Into<ByteDevice>) -> Self {
        let bytes = device.into();
        let held = bytes.device().hold();
        Self {
            name: name.into(),
            description: String::new(),
            bytes,
            read_only: false,
            clients: None,
            removed: AtomicBool::new(false),
            _held: held,
        }
    }

    /// With words for people, shown by listing clients.
    #[must_use]
    pub fn described(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    /// Writes are refused, whatever the device thinks.
    #[must_use]
    pub fn read_only_if(mut self, read_only: bool) -> Self {
        self.read_only |= read_only;
        self
    }

    /// Only clients with these certificates may have it. To others it is as if it were not there.
    #[must_use]
    pub fn only_for(mut self, clients: BTreeSet<Fingerprint>) -> Self {
        self.clients = Some(clients);
        self
    }

    /// Whether a client with this certificate, or without one, may have it.
    fn is_for(&self, client: Option<&Fingerprint>) -> bool {
        let Some(clients) = &self.clients else {
            return true;
        };
        client.is_some_and(|client| clients.contains(client))
    }

    /// Whether writes are refused.
    #[must_use]
    pub fn read_only(&self) -> bool {
        self.read_only || self.device().read_only()
    }

    /// Its size.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.bytes()
    }

    /// What is exported.
    pub(super) fn device(&self) -> &dyn BlockDevice {
        &**self.bytes.device()
    }

    /// The same, for what changes it.
    pub(super) fn changes(&self) -> &ByteDevice {
        &self.bytes
    }

    /// The transmission flags. Several connections see one device, whose flush covers all that was
    /// acknowledged, on whichever of them: that is what CAN_MULTI_CONN promises.
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
    /// The name cannot travel.
    #[error("an export's name and description have at most {STRING_BYTES_MAX} bytes and no NUL")]
    BadString,
}

/// The exports, in the order they were added; the first is the default.
#[derive(Default)]
pub struct Catalogue {
    exports: RwLock<Vec<Arc<Export>>>,
    /// Who makes exports of names that are asked for, and whose clients are those of another export.
    finder: RwLock<Option<Finder>>,
    /// Who knows how exports differ from what they were.
    changes: RwLock<Option<Arc<dyn Changes>>>,
}

impl std::fmt::Debug for Catalogue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.exports.fmt(f)
    }
}

impl Catalogue {
    /// Adds one.
    ///
    /// # Errors
    /// When its name is taken or cannot travel.
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

    /// Takes one out.
    pub fn remove(&self, name: &str) -> Option<Arc<Export>> {
        let mut exports = self.exports.write();
        let at = exports.iter().position(|export| export.name == name)?;
        let export = exports.remove(at);
        export.removed.store(true, Ordering::Release);
        Some(export)
    }

    /// The one of that name; the first for no name, unless one has just that name. Of those that this client may have.
    #[must_use]
    pub fn find(&self, name: &str, client: Option<&Fingerprint>) -> Option<Arc<Export>> {
        let exports = self.of(client);
        let named = exports.iter().find(|export| export.name == name);
        named
            .or_else(|| exports.first().filter(|_| name.is_empty()))
            .cloned()
            .or_else(|| self.made(name, &exports))
    }

    /// An export that is made because it is asked for, of a client to whom these are open: a snapshot, which is read alone, or a clone.
    fn made(&self, name: &str, open: &[Arc<Export>]) -> Option<Arc<Export>> {
        let finder = self.finder.read().clone()?;
        let found = finder(name)?;
        let is_open = open.iter().any(|export| export.name == found.of);
        is_open.then(|| Arc::new(Export::new(name, found.device)))
    }

    /// Whoever asks for an export that is not there may have what this finds.
    pub fn find_by(&self, finder: Finder) {
        *self.finder.write() = Some(finder);
    }

    /// Exports can be compared with what they were.
    pub fn compare_by(&self, changes: Arc<dyn Changes>) {
        *self.changes.write() = Some(changes);
    }

    /// Who knows how they differ.
    #[must_use]
    pub fn changes(&self) -> Option<Arc<dyn Changes>> {
        self.changes.read().clone()
    }

    /// Those that this client may have.
    #[must_use]
    pub fn of(&self, client: Option<&Fingerprint>) -> Vec<Arc<Export>> {
        let exports = self.exports.read();
        let of_client = exports.iter().filter(|export| export.is_for(client));
        of_client.cloned().collect()
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Export>> {
        self.exports.read().clone()
    }
}
