//! Files that are not listed, but found when requested by name: snapshots.

use crate::finder::{self, Finder};
use crate::unaligned::ByteDevice;
use fuser::INodeNo;
use parking_lot::{Mutex, RwLock};
use std::any::Any;
use std::sync::Arc;
use std::time::SystemTime;

/// Beyond the inodes of listed files.
const BEHIND: u64 = 1 << 63;

/// One file of the directory.
pub struct File {
    pub name: String,
    pub bytes: ByteDevice,
}

/// The files found so far.
pub struct Found {
    finder: Option<Finder>,
    /// The inode of the first one. Each server has its own range, because the kernel caches the previous server's inodes for a moment.
    first: u64,
    files: RwLock<Vec<Arc<One>>>,
}

/// What a device holds while a client has it open.
type Held = Option<Box<dyn Any + Send + Sync>>;

struct One {
    name: String,
    /// Its identity among files with the same name.
    number: u64,
    /// Present only while it is open: its last close drops what was written to it.
    file: Mutex<Option<Arc<File>>>,
    /// What is held for each open handle.
    opened: Mutex<Vec<Held>>,
}

impl One {
    /// Finds it anew, if its name still refers to it.
    fn find(&self, finder: Option<&Finder>) -> Option<Arc<File>> {
        let finder::Found { number, device, .. } = finder?(&self.name)?;
        (number == self.number).then(|| {
            Arc::new(File {
                name: self.name.clone(),
                bytes: device,
            })
        })
    }
}

impl std::fmt::Debug for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Found").finish_non_exhaustive()
    }
}

impl Found {
    pub fn new(finder: Option<Finder>, now: SystemTime) -> Self {
        let now = now.duration_since(SystemTime::UNIX_EPOCH);
        Self {
            finder,
            first: BEHIND | now.unwrap_or_default().as_nanos() as u64,
            files: RwLock::default(),
        }
    }

    /// The inode of a name.
    pub fn named(&self, name: &str) -> Option<INodeNo> {
        let finder::Found { number, .. } = self.finder.as_ref()?(name)?;
        let mut files = self.files.write();
        let known = |one: &Arc<One>| one.name == name && one.number == number;
        let index = files.iter().position(known).unwrap_or(files.len());
        if index == files.len() {
            files.push(Arc::new(One {
                name: name.to_owned(),
                number,
                file: Mutex::default(),
                opened: Mutex::default(),
            }));
        }
        Some(INodeNo(self.first + index as u64))
    }

    fn one(&self, ino: INodeNo) -> Option<Arc<One>> {
        let index = ino.0.checked_sub(self.first)?;
        self.files.read().get(index as usize).cloned()
    }

    /// The file, for handles that are open.
    pub fn file(&self, ino: INodeNo) -> Option<Arc<File>> {
        let one = self.one(ino)?;
        let open = one.file.lock().clone();
        open.or_else(|| one.find(self.finder.as_ref()))
    }

    /// Opens a file, if its name still refers to it. The kernel caches for a moment what a name referred to before. A file that
    /// is listed is always there.
    pub fn open(&self, ino: INodeNo) -> bool {
        let Some(one) = self.one(ino) else {
            return true;
        };
        let mut opened = one.opened.lock();
        let Some(found) = one.find(self.finder.as_ref()) else {
            return false;
        };
        let file = Arc::clone(one.file.lock().get_or_insert(found));
        opened.push(file.bytes.device().hold());
        true
    }

    /// Records that one handle was closed.
    pub fn closed(&self, ino: INodeNo) {
        if let Some(one) = self.one(ino) {
            let mut opened = one.opened.lock();
            drop(opened.pop());
            if opened.is_empty() {
                *one.file.lock() = None;
            }
        }
    }

    /// The name of a file that is open, if any.
    pub fn in_use(&self) -> Option<String> {
        let files = self.files.read();
        let mut open = files.iter().filter(|one| !one.opened.lock().is_empty());
        open.next().map(|one| one.name.clone())
    }
}
