//! Files that are not listed, and are found when they are asked for by name: snapshots.

use crate::finder::{self, Finder};
use crate::unaligned::ByteDevice;
use fuser::INodeNo;
use parking_lot::{Mutex, RwLock};
use std::any::Any;
use std::sync::Arc;
use std::time::SystemTime;

/// Behind the inodes of files that are listed.
const BEHIND: u64 = 1 << 63;

/// One file of the directory.
pub struct File {
    pub name: String,
    pub bytes: ByteDevice,
}

/// Those that were found so far.
pub struct Found {
    finder: Option<Finder>,
    /// The inode of the first one. Each server has its own: the kernel keeps for a moment which inodes the one before gave.
    first: u64,
    files: RwLock<Vec<Arc<One>>>,
}

/// What its device holds for whoever has it open.
type Held = Option<Box<dyn Any + Send + Sync>>;

struct One {
    file: Arc<File>,
    /// Which of its name it is.
    number: u64,
    /// What is held for each time that it is open.
    opened: Mutex<Vec<Held>>,
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
        let finder::Found { number, device, .. } = self.finder.as_ref()?(name)?;
        let mut files = self.files.write();
        let known = |one: &Arc<One>| one.file.name == name && one.number == number;
        let index = files.iter().position(known).unwrap_or(files.len());
        if index == files.len() {
            let file = Arc::new(File {
                name: name.to_owned(),
                bytes: device,
            });
            files.push(Arc::new(One {
                file,
                number,
                opened: Mutex::default(),
            }));
        }
        Some(INodeNo(self.first + index as u64))
    }

    fn one(&self, ino: INodeNo) -> Option<Arc<One>> {
        let index = ino.0.checked_sub(self.first)?;
        self.files.read().get(index as usize).cloned()
    }

    pub fn file(&self, ino: INodeNo) -> Option<Arc<File>> {
        Some(Arc::clone(&self.one(ino)?.file))
    }

    /// Whether its name still means it: for a moment the kernel goes by what a name meant before.
    pub fn is_meant(&self, ino: INodeNo) -> bool {
        let Some(one) = self.one(ino) else {
            return true;
        };
        let now = self.finder.as_ref().and_then(|find| find(&one.file.name));
        now.is_some_and(|now| now.number == one.number)
    }

    /// Somebody opens it.
    pub fn opened(&self, ino: INodeNo) {
        if let Some(one) = self.one(ino) {
            let held = one.file.bytes.device().hold();
            one.opened.lock().push(held);
        }
    }

    /// Closed by one of them.
    pub fn closed(&self, ino: INodeNo) {
        if let Some(one) = self.one(ino) {
            drop(one.opened.lock().pop());
        }
    }

    /// One that is open.
    pub fn in_use(&self) -> Option<String> {
        let files = self.files.read();
        let mut open = files.iter().filter(|one| !one.opened.lock().is_empty());
        open.next().map(|one| one.file.name.clone())
    }
}
