//! The path of a reply back to the kernel.

use super::turnstile::Unanswered;
use fuser::{Errno, ReplyData, ReplyEmpty, ReplyWrite};
use parking_lot::Mutex;
use std::sync::Arc;
use vellum_core::addr::BLOCK_BYTES;
use vellum_device::block::{BlockError, Replies, Request};

/// What the kernel waits for.
pub enum Answer {
    /// Data, of this many bytes.
    Data(ReplyData, usize),
    /// How many bytes were written.
    Written(ReplyWrite, u32),
    /// Success or an error.
    Empty(ReplyEmpty),
}

impl Answer {
    /// Answers with an error.
    pub fn error(self, errno: Errno) {
        match self {
            Self::Data(reply, _) => reply.error(errno),
            Self::Written(reply, _) => reply.error(errno),
            Self::Empty(reply) => reply.error(errno),
        }
    }
}

/// An answer that the device will give later.
pub struct Pending(Mutex<Option<(Answer, Unanswered)>>);

impl Pending {
    /// Makes the device's handle for it.
    pub fn replies(answer: Answer, unanswered: Unanswered) -> Arc<dyn Replies> {
        Arc::new(Self(Mutex::new(Some((answer, unanswered)))))
    }
}

impl Replies for Pending {
    fn complete(&self, request: Request, result: Result<(), BlockError>) {
        // Counted as unanswered until the kernel has the reply.
        let Some((answer, _unanswered)) = self.0.lock().take() else {
            return;
        };
        if let Err(error) = result {
            return answer.error(errno(&error));
        }
        match answer {
            Answer::Data(reply, len) => {
                let frames = &request.frames;
                let mut runs = frames.runs();
                match (runs.next(), runs.next()) {
                    (Some((ptr, bytes)), None) if bytes >= len => {
                        // SAFETY: the run is memory of `request.frames`, which is ours and lives on.
                        reply.data(unsafe { std::slice::from_raw_parts(ptr, len) });
                    }
                    _ => {
                        let mut bytes = Vec::with_capacity(frames.len() * BLOCK_BYTES);
                        (0..frames.len()).for_each(|i| bytes.extend_from_slice(frames.block(i)));
                        reply.data(&bytes[..len.min(bytes.len())]);
                    }
                }
            }
            Answer::Written(reply, bytes) => reply.written(bytes),
            Answer::Empty(reply) => reply.ok(),
        }
    }

    fn flush(&self) {}

    /// The kernel's requests arrive on several threads, one after another on each.
    fn lends_thread(&self) -> bool {
        true
    }
}

/// The errno for a failure.
pub fn errno(error: &BlockError) -> Errno {
    match error {
        BlockError::OutOfRange { .. } => Errno::EINVAL,
        BlockError::ReadOnly => Errno::EROFS,
        BlockError::Full | BlockError::NoRoom => Errno::ENOSPC,
        BlockError::Io(_) | BlockError::Unlinkable => Errno::EIO,
        BlockError::Stopping => Errno::ESHUTDOWN,
    }
}
