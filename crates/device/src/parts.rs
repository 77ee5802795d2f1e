//! A request that is handed to the core in parts, and answered when all parts are answered.

use crate::block::{BlockError, Replies, Request};
use crate::frames::Frames;
use crate::requests::Pending;
use parking_lot::Mutex;
use std::sync::Arc;
use vellum_core::addr::Lba;

/// The request as its client sent it, without its frames.
struct Whole {
    sink: Arc<dyn Replies>,
    state: Mutex<State>,
}

struct State {
    /// Taken when the last part is answered.
    request: Option<Request>,
    first: Option<Result<(), BlockError>>,
}

impl Pending {
    /// Splits off the first `blocks` blocks of a write. The rest counts as the same request.
    pub fn split(&mut self, blocks: usize) -> Self {
        let Request {
            tag,
            op,
            lba,
            blocks: all,
            ..
        } = self.request;
        let part = |lba, blocks, frames| Request {
            tag,
            op,
            lba,
            blocks,
            frames,
        };
        let whole = part(lba, all, Frames::default());
        let sink: Arc<dyn Replies> = Arc::new(Whole {
            sink: Arc::clone(&self.sink),
            state: Mutex::new(State {
                request: Some(whole),
                first: None,
            }),
        });
        let rest = self.request.frames.split_off(blocks);
        let frames = std::mem::replace(&mut self.request.frames, rest);
        let at = blocks as u64;
        (self.request.lba, self.request.blocks) = (Lba(lba.0 + at), all - at);
        self.sink = Arc::clone(&sink);
        Self {
            request: part(lba, at, frames),
            sink,
            watched: self.watched,
            own: self.own,
            is_rest: std::mem::replace(&mut self.is_rest, true),
            since: None,
        }
    }
}

impl Replies for Whole {
    fn complete(&self, _part: Request, result: Result<(), BlockError>) {
        let (request, first) = {
            let mut state = self.state.lock();
            let Some(first) = state.first.take() else {
                state.first = Some(result);
                return;
            };
            (state.request.take(), first)
        };
        if let Some(request) = request {
            self.sink.complete(request, first.and(result));
        }
    }

    fn flush(&self) {
        if self.state.lock().request.is_none() {
            self.sink.flush();
        }
    }
}
