//! The B-trees that Dmdedup keeps its metadata in, those of the kernel's device mapper (`persistent-data`), as far as
//! needed to count the blocks that a transaction copies. A block that changes is copied once per transaction, and so
//! are all blocks above it.

/// Bytes of a block, and of its header.
const BLOCK_BYTES: usize = 4096;
const HEADER_BYTES: usize = 32;
/// Bytes of a key, and of a child's number.
const KEY_BYTES: usize = 8;
const CHILD_BYTES: usize = 8;

/// The number of a transaction; the first is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Transaction(pub u64);

/// The number of a block in a tree.
type Number = usize;

#[derive(Default)]
struct Node {
    keys: Vec<u64>,
    /// As many as keys; a leaf has none.
    children: Vec<Number>,
    copied: Transaction,
}

/// A tree; see the module.
pub struct Tree {
    nodes: Vec<Node>,
    leaf_most: usize,
    /// Blocks copied since the tree was made, new ones included.
    pub written: u64,
}

/// The most entries of a block: the kernel requires a multiple of three.
fn most(value_bytes: usize) -> usize {
    (BLOCK_BYTES - HEADER_BYTES) / (KEY_BYTES + value_bytes) / 3 * 3
}

const ROOT: Number = 0;

impl Tree {
    /// An empty tree with values of this many bytes.
    pub fn new(value_bytes: usize) -> Self {
        Self {
            nodes: vec![Node::default()],
            leaf_most: most(value_bytes),
            written: 0,
        }
    }

    /// Sets the value of a key.
    pub fn set(&mut self, key: u64, now: Transaction) {
        let leaf = self.leaf_for(key, now);
        if let Err(at) = self.nodes[leaf].keys.binary_search(&key) {
            self.nodes[leaf].keys.insert(at, key);
        }
    }

    /// Removes a key. The leaf is not merged with its neighbours, which would copy these too.
    pub fn remove(&mut self, key: u64, now: Transaction) {
        let leaf = self.leaf_for(key, now);
        if let Ok(at) = self.nodes[leaf].keys.binary_search(&key) {
            self.nodes[leaf].keys.remove(at);
        }
    }

    /// The leaf that a key belongs in, with room for it. Copies the path to it. Full blocks are split on the way down,
    /// as in the kernel.
    fn leaf_for(&mut self, key: u64, now: Transaction) -> Number {
        self.copy(ROOT, now);
        if self.is_full(ROOT) {
            self.split_root(now);
        }
        let mut at = ROOT;
        while !self.nodes[at].children.is_empty() {
            let child = self.child_for(at, key);
            let below = self.nodes[at].children[child];
            self.copy(below, now);
            if self.is_full(below) {
                self.split(at, child, now);
            }
            let child = self.child_for(at, key);
            at = self.nodes[at].children[child];
        }
        at
    }

    fn is_full(&self, node: Number) -> bool {
        let node = &self.nodes[node];
        let most = match node.children.is_empty() {
            true => self.leaf_most,
            false => most(CHILD_BYTES),
        };
        node.keys.len() >= most
    }

    /// The child that holds a key. The first child also takes keys smaller than all others.
    fn child_for(&mut self, node: Number, key: u64) -> usize {
        let keys = &mut self.nodes[node].keys;
        keys[0] = keys[0].min(key);
        keys.partition_point(|&first| first <= key) - 1
    }

    fn copy(&mut self, node: Number, now: Transaction) {
        let node = &mut self.nodes[node];
        if node.copied < now {
            node.copied = now;
            self.written += 1;
        }
    }

    /// Moves the upper half of a block to a new block.
    fn half_of(&mut self, node: Number, now: Transaction) -> Number {
        let node = &mut self.nodes[node];
        let at = node.keys.len() / 2;
        let half = Node {
            keys: node.keys.split_off(at),
            children: match node.children.is_empty() {
                true => Vec::new(),
                false => node.children.split_off(at),
            },
            copied: now,
        };
        self.nodes.push(half);
        self.written += 1;
        self.nodes.len() - 1
    }

    fn split(&mut self, parent: Number, child: usize, now: Transaction) {
        let below = self.nodes[parent].children[child];
        let half = self.half_of(below, now);
        let first = self.nodes[half].keys[0];
        let parent = &mut self.nodes[parent];
        parent.keys.insert(child + 1, first);
        parent.children.insert(child + 1, half);
    }

    /// Splits the root: it stays where it is, above two new blocks.
    fn split_root(&mut self, now: Transaction) {
        let right = self.half_of(ROOT, now);
        let left = Node {
            copied: now,
            ..std::mem::take(&mut self.nodes[ROOT])
        };
        let keys = vec![left.keys[0], self.nodes[right].keys[0]];
        self.nodes.push(left);
        self.written += 1;
        let children = vec![self.nodes.len() - 1, right];
        self.nodes[ROOT] = Node {
            keys,
            children,
            copied: now,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::mix;

    /// All keys from left to right.
    fn keys(tree: &Tree, at: Number) -> Vec<u64> {
        let node = &tree.nodes[at];
        match node.children.is_empty() {
            true => node.keys.clone(),
            false => node.children.iter().flat_map(|&c| keys(tree, c)).collect(),
        }
    }

    /// Blocks from the root to a leaf.
    fn height(tree: &Tree) -> u64 {
        let (mut at, mut height) = (ROOT, 1);
        while let Some(&child) = tree.nodes[at].children.first() {
            at = child;
            height += 1;
        }
        height
    }

    #[test]
    fn blocks_hold_as_many_entries_as_the_kernels() {
        // A block's number; a SHA-1 and a block's number; a count.
        assert_eq!([8, 28, 4].map(most), [252, 111, 336]);
    }

    #[test]
    fn every_key_is_found_in_its_order() {
        let mut tree = Tree::new(28);
        for number in 0..50_000 {
            tree.set(mix(number), Transaction(1));
            tree.set(mix(number / 2), Transaction(1));
        }
        let mut all: Vec<u64> = (0..50_000).map(mix).collect();
        all.sort_unstable();
        assert_eq!(keys(&tree, ROOT), all);
        for number in 0..50_000 {
            tree.remove(mix(number), Transaction(2));
        }
        assert!(keys(&tree, ROOT).is_empty());
    }

    #[test]
    fn a_transaction_copies_the_path_to_a_leaf_once() {
        let mut tree = Tree::new(28);
        for number in 0..50_000 {
            tree.set(mix(number), Transaction(1));
        }
        assert_eq!(height(&tree), 3);
        assert_eq!(tree.written, tree.nodes.len() as u64, "one transaction");
        let before = tree.written;
        tree.set(mix(7), Transaction(2));
        tree.set(mix(7), Transaction(2));
        assert_eq!(tree.written - before, 3);
        tree.set(mix(7), Transaction(3));
        assert_eq!(tree.written - before, 6);
        // Random keys have separate leaves.
        (0..10).for_each(|number| tree.set(mix(number), Transaction(4)));
        let apart = tree.written - before - 6;
        assert!((13..=31).contains(&apart), "{apart}");
    }
}
