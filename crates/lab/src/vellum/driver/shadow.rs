//! What every block should be, and every read held against it.

use super::{Asked, Vellum};
use crate::content::Content;
use crate::trace::Op;
use std::collections::BTreeMap;

pub(super) struct Shadow {
    blocks: Vec<Content>,
    reads: BTreeMap<u32, (Vec<Content>, Vec<Option<Content>>)>,
    pub wrong: u64,
}

impl Shadow {
    /// Of a new volume.
    pub fn new(blocks: u64) -> Self {
        Self {
            blocks: vec![Content::ZERO; blocks as usize],
            reads: BTreeMap::new(),
            wrong: 0,
        }
    }
}

impl Vellum {
    pub(super) fn remember(&mut self, asked: &Asked) {
        let Some(shadow) = &mut self.shadow else {
            return;
        };
        let range = asked.lba as usize..asked.lba as usize + asked.blocks as usize;
        match asked.op {
            Op::Write { .. } => shadow.blocks[range].copy_from_slice(&asked.contents),
            Op::Discard => shadow.blocks[range].fill(Content::ZERO),
            Op::Read => {
                let wanted = shadow.blocks[range].to_vec();
                let got = vec![None; wanted.len()];
                shadow.reads.insert(asked.id, (wanted, got));
            }
            Op::Flush => {}
        }
    }

    /// A block of a read has come.
    pub(super) fn show(&mut self, request: u32, index: u32, content: Content) {
        if self.services.take_block(request, index, content) {
            return;
        }
        if let Some(shadow) = &mut self.shadow
            && let Some((_, got)) = shadow.reads.get_mut(&request)
        {
            got[index as usize] = Some(content);
        }
    }

    /// A request is answered: if it was a read, it holds what was written.
    pub(super) fn check(&mut self, request: u32, well: bool) {
        if let Some(shadow) = &mut self.shadow
            && let Some((wanted, got)) = shadow.reads.remove(&request)
            && well
        {
            let both = wanted.iter().zip(&got);
            shadow.wrong += both.filter(|(w, g)| Some(**w) != **g).count() as u64;
        }
    }
}
