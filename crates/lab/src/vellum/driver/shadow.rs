//! The expected content of every block, to compare reads with.

use super::submitted::Submitted;
use crate::content::Content;
use crate::trace::Op;
use std::collections::BTreeMap;

pub(super) struct Shadow {
    blocks: Vec<Content>,
    reads: BTreeMap<u32, (Vec<Content>, Vec<Option<Content>>)>,
    pub wrong: u64,
}

impl Shadow {
    /// The shadow of a new volume.
    pub fn new(blocks: u64) -> Self {
        Self {
            blocks: vec![Content::ZERO; blocks as usize],
            reads: BTreeMap::new(),
            wrong: 0,
        }
    }

    /// Notes a request before the engine gets it.
    pub fn remember(&mut self, submitted: &Submitted) {
        let range = submitted.lba as usize..submitted.lba as usize + submitted.blocks as usize;
        match submitted.op {
            Op::Write { .. } => self.blocks[range].copy_from_slice(&submitted.contents),
            Op::Discard { .. } => self.blocks[range].fill(Content::ZERO),
            Op::Read => {
                let wanted = self.blocks[range].to_vec();
                let got = vec![None; wanted.len()];
                self.reads.insert(submitted.id, (wanted, got));
            }
            Op::Flush => {}
        }
    }

    /// Notes blocks that the volume drops. The file system has not written them since, so a reader would find them in
    /// its page cache, which is not modelled.
    pub fn dropped(&mut self, first: u64, after: u64) {
        self.blocks[first as usize..after as usize].fill(Content::ZERO);
    }

    /// Takes a block of a read.
    pub fn show(&mut self, request: u32, index: u32, content: Content) {
        if let Some((_, got)) = self.reads.get_mut(&request) {
            got[index as usize] = Some(content);
        }
    }

    /// Checks the content of a read that is answered.
    pub fn check(&mut self, request: u32, well: bool) {
        if let Some((wanted, got)) = self.reads.remove(&request)
            && well
        {
            let both = wanted.iter().zip(&got);
            self.wrong += both.filter(|(w, g)| Some(**w) != **g).count() as u64;
        }
    }
}
