//! Folds: blocks of sparse pages that are read, and some time later handed over to be stored again. The requester is no client.

use super::{Driver, Failure, Request, ensure};
use vellum_core::addr::{Lba, RequestId};
use vellum_core::limits::FOLD_BLOCKS;
use vellum_core::seam::{Input, Service};

impl Request {
    pub(super) fn reads(&self) -> bool {
        matches!(
            self,
            Self::Read { .. } | Self::Look { .. } | Self::Fold { .. }
        )
    }
}

impl Driver {
    /// With this chance in percent, continues a fold that is under way, or begins one.
    pub fn fold(&mut self, percent: u64) -> Result<(), Failure> {
        if !self.rng.percent(percent) || self.end_fold()? {
            return Ok(());
        }
        let all = self.model.blocks();
        let lba = self.rng.below(all);
        let blocks = self.rng.range(1, u64::from(FOLD_BLOCKS).min(all - lba));
        self.begin_fold(lba, blocks)
    }

    /// Begins to fold blocks; another fold that is under way is abandoned.
    pub fn begin_fold(&mut self, lba: u64, blocks: u64) -> Result<(), Failure> {
        self.to_fold = None;
        let folds = |request: &Request| matches!(request, Request::Fold { .. });
        if self.requests.values().any(folds) {
            return Ok(());
        }
        let id = self.number();
        let request = Request::Fold {
            lba,
            asked: self.model.clock(),
            got: vec![None; blocks as usize],
        };
        self.requests.insert(id, request);
        self.feed(Input::Service(Service::ReadToFold {
            id: RequestId(id),
            lba: Lba(lba),
            blocks: blocks as u32,
        }))
    }

    pub(super) fn read_to_fold(
        &mut self,
        lba: u64,
        asked: u64,
        got: Vec<Option<u32>>,
    ) -> Result<(), Failure> {
        let got: Option<Vec<u32>> = got.into_iter().collect();
        ensure!(got.is_some(), "LBA {lba} read without data, to be folded");
        let tokens = got.unwrap_or_default();
        for (&token, lba) in tokens.iter().zip(lba..) {
            self.model.check_read(lba, token, asked)?;
        }
        self.to_fold = Some((lba, tokens));
        Ok(())
    }

    /// Ends a fold if its blocks have been read and there are buffers for them; `false` if not.
    pub fn end_fold(&mut self) -> Result<bool, Failure> {
        let Some((lba, tokens)) = self.to_fold.take_if(|(_, of)| of.len() <= self.free.len())
        else {
            return Ok(false);
        };
        let mut blocks = Vec::with_capacity(tokens.len());
        for (token, lba) in tokens.into_iter().zip(lba..) {
            let buf = self.take_buf(token);
            let packed = self.in_fewer_bytes(lba, buf, token);
            blocks.push(self.payload(buf, token, Some(packed)));
        }
        self.feed(Input::Service(Service::Fold {
            lba: Lba(lba),
            blocks: &blocks,
        }))?;
        Ok(true)
    }
}
