//! What must be in a directory after a power cut, derived from what was done in it and when it was synced.
//!
//! Instants are those of the medium's tape. What was done by then may be there; what was synced by then must be.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// The unit that a file system writes back: a page is always in the state between two writes, never in the middle of one.
pub const PAGE: usize = 4096;

/// A page of a file; zeros after the file's end.
pub type Page = Arc<[u8; PAGE]>;

/// What must be there: what was synced by one instant, and nothing that began after another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct When {
    pub sure: usize,
    pub until: usize,
}

/// After a cut at an instant.
impl From<usize> for When {
    fn from(cut: usize) -> Self {
        Self {
            sure: cut,
            until: cut,
        }
    }
}

/// The successive states of something.
#[derive(Debug)]
pub struct History<T> {
    /// Each with the instant at which the change to it began.
    states: Vec<(usize, T)>,
    /// When everything done so far was known to be durable, and the state at that time.
    sure: Vec<(usize, usize)>,
}

impl<T> History<T> {
    /// Starts with a first state.
    pub fn new(begun: usize, first: T) -> Self {
        Self {
            states: vec![(begun, first)],
            sure: Vec::new(),
        }
    }

    /// Records the beginning of a change.
    pub fn change(&mut self, begun: usize, to: T) {
        self.states.push((begun, to));
    }

    /// Records that everything done is durable.
    pub fn synced(&mut self, instant: usize) {
        let last = self.states.len() - 1;
        if self.sure.last().is_none_or(|(_, state)| *state != last) {
            self.sure.push((instant, last));
        }
    }

    /// Returns the current state.
    pub fn now(&self) -> &T {
        &self.states[self.states.len() - 1].1
    }

    /// Returns the possible states at that time: the last synced one, and all later ones.
    fn after(&self, when: When) -> &[(usize, T)] {
        let mut synced = self.sure.iter().rev();
        let synced = synced.find(|(instant, _)| *instant <= when.sure);
        let from = synced.map_or(0, |(_, state)| *state);
        let end = self
            .states
            .partition_point(|(begun, _)| *begun <= when.until);
        &self.states[from..end.max(from)]
    }
}

/// A file's bytes.
#[derive(Clone, Debug, Default)]
pub struct Content {
    pub pages: Vec<Page>,
    pub bytes: usize,
}

impl Content {
    /// Writes, also past the end: the bytes in between are zeros.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        self.resize(self.bytes.max(at + bytes.len()));
        for (index, byte) in bytes.iter().enumerate() {
            let place = at + index;
            Arc::make_mut(&mut self.pages[place / PAGE])[place % PAGE] = *byte;
        }
    }

    /// Truncates, or adds zeros.
    pub fn resize(&mut self, bytes: usize) {
        self.pages
            .resize_with(bytes.div_ceil(PAGE), || Arc::new([0; PAGE]));
        if bytes < self.bytes && !bytes.is_multiple_of(PAGE) {
            Arc::make_mut(&mut self.pages[bytes / PAGE])[bytes % PAGE..].fill(0);
        }
        self.bytes = bytes;
    }
}

impl History<Content> {
    /// When the writes began that may have left a file's bytes, page by page: for whoever looks into a complaint.
    fn versions(&self, found: &[u8]) -> Vec<Vec<usize>> {
        let of_page = |(index, page): (usize, &[u8])| {
            let is_like = |content: &Content| {
                let one = content.pages.get(index);
                one.is_some_and(|one| one[..page.len()] == *page)
            };
            let alike = self.states.iter().filter(|(_, content)| is_like(content));
            alike.map(|(begun, _)| *begun).collect()
        };
        found.chunks(PAGE).enumerate().map(of_page).collect()
    }
}

/// Checks whether a file may have these bytes.
fn accepts(states: &[(usize, Content)], found: &[u8]) -> Result<(), String> {
    let sizes = || states.iter().map(|(_, content)| content.bytes);
    let (least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
    if found.len() < least || found.len() > most {
        return Err(format!("{} bytes, and not {least} to {most}", found.len()));
    }
    for (index, page) in found.chunks(PAGE).enumerate() {
        let is_like = |content: &Content| match content.pages.get(index) {
            Some(one) => one[..page.len()] == *page,
            None => page.iter().all(|byte| *byte == 0),
        };
        if !states.iter().any(|(_, content)| is_like(content)) {
            let head = &page[..page.len().min(24)];
            let of = states.len();
            return Err(format!(
                "page {index} is none of {of} that it may be: {head:02x?}"
            ));
        }
    }
    Ok(())
}

/// A file's number, for as long as the file exists.
pub type Number = usize;

/// A directory and its files.
#[derive(Debug, Default)]
pub struct Folder {
    contents: Vec<History<Content>>,
    /// The name of each file.
    places: Vec<History<Option<String>>>,
    /// The file of each name.
    names: BTreeMap<String, History<Option<Number>>>,
}

impl Folder {
    /// Records a new file.
    pub fn create(&mut self, begun: usize, name: &str) -> Number {
        let number = self.contents.len();
        self.contents.push(History::new(begun, Content::default()));
        self.places.push(History::new(0, None));
        self.put(begun, name, Some(number));
        number
    }

    /// Records a change of a file's bytes.
    pub fn write(&mut self, begun: usize, number: Number, change: impl FnOnce(&mut Content)) {
        let mut content = self.content(number).clone();
        change(&mut content);
        self.contents[number].change(begun, content);
    }

    /// Records that a file gets another name, and replaces the file of that name.
    pub fn rename(&mut self, begun: usize, number: Number, to: &str) {
        // Not an unlink: the file has a name at every instant.
        let from = self.places[number].now().as_ref();
        if let Some(history) = from.and_then(|from| self.names.get_mut(from)) {
            history.change(begun, None);
        }
        self.put(begun, to, Some(number));
    }

    /// Records a deletion.
    pub fn unlink(&mut self, begun: usize, name: &str) {
        self.put(begun, name, None);
    }

    fn put(&mut self, begun: usize, name: &str, number: Option<Number>) {
        let history = self
            .names
            .entry(name.to_owned())
            .or_insert_with(|| History::new(0, None));
        if let Some(before) = *history.now() {
            self.places[before].change(begun, None);
        }
        history.change(begun, number);
        if let Some(number) = number {
            self.places[number].change(begun, Some(name.to_owned()));
        }
    }

    /// Records that a file's bytes are durable.
    pub fn synced(&mut self, instant: usize, number: Number) {
        self.contents[number].synced(instant);
    }

    /// Records that the names are durable.
    pub fn names_synced(&mut self, instant: usize) {
        self.names
            .values_mut()
            .for_each(|name| name.synced(instant));
        self.places
            .iter_mut()
            .for_each(|place| place.synced(instant));
    }

    /// Records that everything is durable.
    pub fn all_synced(&mut self, instant: usize) {
        self.names_synced(instant);
        self.contents
            .iter_mut()
            .for_each(|content| content.synced(instant));
    }

    /// Returns the files that exist.
    pub fn files(&self) -> Vec<(String, Number)> {
        let there = |(name, history): (&String, &History<Option<Number>>)| {
            Some((name.clone(), (*history.now())?))
        };
        self.names.iter().filter_map(there).collect()
    }

    /// Returns a file's bytes.
    pub fn content(&self, number: Number) -> &Content {
        self.contents[number].now()
    }

    /// Returns every version of every page of the files.
    pub fn pages(&self) -> impl Iterator<Item = Page> + '_ {
        let states = self
            .contents
            .iter()
            .flat_map(|history| history.states.iter());
        let pages: BTreeMap<_, _> = states
            .flat_map(|(_, content)| &content.pages)
            .map(|page| (Arc::as_ptr(page), page))
            .collect();
        pages.into_values().cloned()
    }

    /// Compares the contents of a directory with what may be there. Returns how many files must be there, and which names
    /// reappeared although their removal was synced, with the very file that they had.
    pub fn check(&self, path: &Path, when: When) -> Result<(usize, Vec<String>), String> {
        let mut back = Vec::new();
        let mut found = BTreeMap::new();
        let list = || {
            fs::read_dir(path)?
                .map(|entry| Ok(entry?.file_name()))
                .collect::<std::io::Result<Vec<_>>>()
        };
        let must_exist = self
            .places
            .iter()
            .any(|place| place.after(when).iter().all(|(_, name)| name.is_some()));
        match list() {
            Ok(names) => {
                for name in names {
                    let bytes = fs::read(path.join(&name))
                        .map_err(|e| format!("{}: {e}", path.join(&name).display()))?;
                    found.insert(name.to_string_lossy().into_owned(), bytes);
                }
            }
            Err(error) if must_exist => return Err(format!("{}: {error}", path.display())),
            Err(_) => return Ok((0, back)),
        }
        for (name, bytes) in &found {
            let told = self
                .names
                .get(name)
                .map_or(&[][..], |history| history.after(when));
            let files = told.iter().filter_map(|(_, number)| *number);
            let answers: Vec<_> = files
                .map(|number| accepts(self.contents[number].after(when), bytes))
                .collect();
            if answers.is_empty() && self.is_back(name, bytes, when) {
                back.push(name.clone());
            } else if !answers.iter().any(Result::is_ok) {
                let files = told.iter().filter_map(|(_, number)| *number);
                let versions = files.map(|number| self.contents[number].versions(bytes));
                let versions: Vec<_> = versions.collect();
                let is_back = self.is_back(name, bytes, when);
                return Err(format!(
                    "{name}: {answers:?}; its pages were written at {versions:?}; \
                    a file of that name from before: {is_back}"
                ));
            }
        }
        let absent = self
            .names
            .iter()
            .filter(|(name, _)| !found.contains_key(*name));
        for (name, history) in absent {
            if history
                .after(when)
                .iter()
                .all(|(_, number)| number.is_some())
            {
                return Err(format!("{name} was synced, and is not there"));
            }
        }
        Ok((self.none_is_lost(&found, when)?, back))
    }

    /// True if a name had a file with these bytes before a sync that made its removal durable.
    fn is_back(&self, name: &str, bytes: &[u8], when: When) -> bool {
        let states = self.names.get(name).map_or(&[][..], |name| &name.states);
        let before = states.iter().take_while(|(begun, _)| *begun <= when.until);
        let mut files = before.filter_map(|(_, number)| *number);
        files.any(|number| accepts(&self.contents[number].states, bytes).is_ok())
    }

    /// Checks that a file renamed since the last sync has one of its names.
    fn none_is_lost(&self, found: &BTreeMap<String, Vec<u8>>, when: When) -> Result<usize, String> {
        let mut sure = 0;
        for (number, place) in self.places.iter().enumerate() {
            let names: Option<Vec<_>> = place
                .after(when)
                .iter()
                .map(|(_, name)| name.as_ref())
                .collect();
            let Some(names) = names else { continue };
            sure += 1;
            let is_it = |name: &&String| {
                let bytes = found.get(*name);
                bytes.is_some_and(|bytes| accepts(self.contents[number].after(when), bytes).is_ok())
            };
            if !names.iter().any(is_it) {
                return Err(format!(
                    "a file of these names was synced, and is under none of them: {names:?}"
                ));
            }
        }
        Ok(sure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Versions of a file at instants 10, 20, 30; synced at 25, and its name at 26.
    fn folder() -> Folder {
        let mut folder = Folder::default();
        let file = folder.create(10, "a");
        folder.write(20, file, |content| content.write(0, &[1; 5000]));
        folder.synced(25, file);
        folder.names_synced(26);
        folder.write(30, file, |content| content.write(4096, &[2; 4096]));
        folder
    }

    fn checked(
        folder: &Folder,
        cut: usize,
        files: &[(&str, &[u8])],
    ) -> Result<(usize, Vec<String>), String> {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            fs::write(dir.path().join(name), bytes).unwrap();
        }
        folder.check(dir.path(), cut.into())
    }

    fn check(cut: usize, files: &[(&str, &[u8])]) -> Result<usize, String> {
        let (sure, back) = checked(&folder(), cut, files)?;
        assert!(back.is_empty(), "{back:?}");
        Ok(sure)
    }

    #[test]
    fn a_name_may_reappear_only_with_its_own_file() {
        let mut folder = folder();
        folder.unlink(40, "a");
        let (one, two) = ([1; 5000], [[1; 4096], [2; 4096]].concat());
        // Not synced: it may be there.
        assert_eq!(checked(&folder, 41, &[("a", &two)]), Ok((0, vec![])));
        folder.names_synced(45);
        assert_eq!(checked(&folder, 45, &[]), Ok((0, vec![])));
        for bytes in [&one[..], &two] {
            let back = Ok((0, vec!["a".to_owned()]));
            assert_eq!(checked(&folder, 45, &[("a", bytes)]), back);
        }
        assert!(checked(&folder, 45, &[("a", &[3; 5000])]).is_err());
        assert!(checked(&folder, 45, &[("b", &one)]).is_err());
    }

    #[test]
    fn synced_data_must_be_there_and_other_data_may() {
        let (one, two) = ([1; 5000], [[1; 4096], [2; 4096]].concat());
        // Before anything, after the first write began, when it is synced, after more has begun.
        assert_eq!(check(5, &[]), Ok(0));
        assert!(check(5, &[("a", &[])]).is_err());
        assert_eq!(check(20, &[]), Ok(0));
        assert_eq!(check(20, &[("a", &one[..4096])]), Ok(0));
        assert_eq!(check(26, &[("a", &one)]), Ok(1));
        assert!(check(26, &[]).is_err());
        assert!(check(26, &[("a", &one[..4096])]).is_err());
        assert!(check(26, &[("a", &two)]).is_err());
        assert_eq!(check(30, &[("a", &two)]), Ok(1));
        assert_eq!(check(30, &[("a", &one)]), Ok(1));
        assert!(check(30, &[("a", &[3; 5000])]).is_err());
        assert!(check(30, &[("a", &one), ("b", &[])]).is_err());
    }
}
