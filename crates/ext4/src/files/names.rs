//! The names of inodes. All directories are read once for their entries. Directories on a path to the root are read again for their
//! names.

use super::walk::{Piece, pieces};
use crate::group;
use crate::inode;
use crate::limits::{DYNAMIC_SPANS, FILES_DEPTH, FILES_NAMES};
use crate::source::Reader;
use crate::superblock::Superblock;
use crate::watch::Watches;
use std::collections::BTreeMap;

const ROOT: u32 = 2;
const HEAD: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Named {
    pub paths: BTreeMap<u32, Vec<Vec<u8>>>,
    pub passed_over: u64,
    pub cut_short: bool,
}

/// A name, and the directory that contains it.
type Name = (u32, Vec<u8>);

/// Names these inodes (in order) of a file system with these directories (in order).
pub(super) fn of(
    sb: &Superblock,
    reader: &mut Reader<'_>,
    directories: &[u32],
    wanted: &[u32],
) -> Named {
    let mut named = Named::default();
    let mut names: BTreeMap<u32, Vec<Name>> = BTreeMap::new();
    // The parent of each directory.
    let mut above = vec![0u32; directories.len()];
    for &directory in directories {
        let passed_over = entries(sb, reader, directory, &mut |inode, name| {
            if let Ok(place) = directories.binary_search(&inode) {
                above[place] = directory;
            }
            if wanted.binary_search(&inode).is_ok() {
                let names = names.entry(inode).or_default();
                if names.len() < FILES_NAMES {
                    names.push((directory, name.to_vec()));
                }
            }
        });
        named.passed_over += passed_over;
        if passed_over > 0 && reader.budget() < u64::from(sb.block_bytes) {
            named.cut_short = true;
            break;
        }
    }
    let mut paths = Paths {
        sb,
        reader,
        directories,
        above: &above,
        known: BTreeMap::from([(ROOT, Vec::new())]),
    };
    for &inode in wanted {
        let mut told: Vec<Vec<u8>> = Vec::new();
        if inode == ROOT {
            told.push(b"/".to_vec());
        }
        for (directory, name) in names.remove(&inode).unwrap_or_default() {
            if let Some(path) = paths.of(directory) {
                told.push([&path, &b"/"[..], &name].concat());
            }
        }
        if !told.is_empty() {
            named.paths.insert(inode, told);
        }
    }
    named
}

/// The paths of the directories that contain one of the names.
struct Paths<'a, 'b> {
    sb: &'a Superblock,
    reader: &'a mut Reader<'b>,
    directories: &'a [u32],
    above: &'a [u32],
    known: BTreeMap<u32, Vec<u8>>,
}

impl Paths<'_, '_> {
    /// The path of a directory, if it can be reached from the root.
    fn of(&mut self, directory: u32) -> Option<Vec<u8>> {
        let mut way = Vec::new();
        let mut at = directory;
        while !self.known.contains_key(&at) {
            if way.len() == FILES_DEPTH {
                return None;
            }
            way.push(at);
            let place = self.directories.binary_search(&at).ok()?;
            at = self.above[place];
        }
        let mut path = self.known[&at].clone();
        for next in way.into_iter().rev() {
            let mut found = None;
            entries(self.sb, self.reader, at, &mut |inode, name| {
                if inode == next && found.is_none() {
                    found = Some(name.to_vec());
                }
            });
            path.push(b'/');
            path.extend(found?);
            self.known.insert(next, path.clone());
            at = next;
        }
        Some(path)
    }
}

/// Reports the entries of a directory, except itself and its parent. Returns how many parts could not be read.
fn entries(
    sb: &Superblock,
    reader: &mut Reader<'_>,
    directory: u32,
    tell: &mut dyn FnMut(u32, &[u8]),
) -> u64 {
    let mut spans = Vec::new();
    let index = directory - 1;
    let group = u64::from(index / sb.inodes_per_group);
    let Ok(found) = group::read(sb, group, reader, &mut Watches::default()) else {
        return 1;
    };
    let within = u64::from(index % sb.inodes_per_group) * u64::from(sb.inode_bytes);
    let at = found.inode_table.start + within;
    let Ok(bytes) = reader.read(at, sb.inode_bytes.into()) else {
        return 1;
    };
    let Some(sketch) = inode::sketch(&bytes).filter(|sketch| sketch.is_directory) else {
        // The directory was removed meanwhile.
        return 0;
    };
    let mut passed_over = pieces(sb, &sketch, reader, &mut |span, piece| {
        if matches!(piece, Piece::Content(_)) && spans.len() < DYNAMIC_SPANS {
            spans.push(span);
        }
    });
    let unit = u64::from(sb.block_bytes);
    for span in spans {
        for at in (span.start..span.end()).step_by(unit as usize) {
            match reader.read(at, unit as usize) {
                Ok(block) => passed_over += u64::from(!block_entries(&block, tell)),
                Err(_) => {
                    passed_over += 1;
                    if reader.budget() < unit {
                        return passed_over;
                    }
                }
            }
        }
    }
    passed_over
}

/// Reports the entries in a directory's block, up to an invalid one. Returns true if there was none. Nodes of a hashed
/// directory's tree look like one unused entry.
fn block_entries(block: &[u8], tell: &mut dyn FnMut(u32, &[u8])) -> bool {
    let mut rest = block;
    while rest.len() >= HEAD {
        let inode = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]);
        let length = match u16::from_le_bytes([rest[4], rest[5]]) {
            // In blocks of 64 KiB this is the only way to encode the whole block.
            0 | u16::MAX => rest.len(),
            // In longer blocks, the lowest two bits hold the upper bits of the length.
            length => usize::from(length & !3) | usize::from(length & 3) << 16,
        };
        let name_end = HEAD + usize::from(rest[6]);
        if length < HEAD || length > rest.len() || (inode != 0 && name_end > length) {
            return false;
        }
        let (entry, after) = rest.split_at(length);
        if let (1.., Some(name)) = (inode, entry.get(HEAD..name_end))
            && !matches!(name, b"" | b"." | b"..")
        {
            tell(inode, name);
        }
        rest = after;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(inode: u32, length: u16, name: &[u8]) -> Vec<u8> {
        let mut bytes = inode.to_le_bytes().to_vec();
        bytes.extend(length.to_le_bytes());
        bytes.extend([name.len() as u8, 1]);
        bytes.extend(name);
        bytes.resize(usize::from(length).max(bytes.len()), 0);
        bytes
    }

    fn told(block: &[u8]) -> (bool, Vec<(u32, Vec<u8>)>) {
        let mut names = Vec::new();
        let whole = block_entries(block, &mut |inode, name| names.push((inode, name.to_vec())));
        (whole, names)
    }

    #[test]
    fn a_directory_block_is_read_up_to_the_first_invalid_entry() {
        let sound = [
            entry(2, 12, b"."),
            entry(2, 12, b".."),
            entry(11, 16, b"one"),
            entry(0, 24, b"gone"),
            entry(12, 64, b"two"),
        ]
        .concat();
        let both = vec![(11, b"one".to_vec()), (12, b"two".to_vec())];
        assert_eq!(told(&sound), (true, both));
        for (at, bytes) in [(28, [7, 0]), (28, [0xF0, 0]), (30, [200, 1])] {
            let mut bad = sound.clone();
            bad[at..at + 2].copy_from_slice(&bytes);
            assert_eq!(told(&bad), (false, Vec::new()), "{at}");
        }
        assert_eq!(told(&[0xFF; 7]), (true, Vec::new()));
    }
}
