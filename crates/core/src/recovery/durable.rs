//! Learns what was durable from the headers alone, before any data is read.
//!
//! Each chunk's header says how much of the log was durable when the chunk was sealed, so the last headers vouch for nearly all of the
//! log. Without this walk, replay would know about each chunk only what earlier headers say, and would verify the data of the whole log.
//! The log's length is bounded, but that would still take too long at each opening.

use super::replay::Replay;
use crate::addr::Seq;
use crate::format::chunk::ChunkHeader;

impl Replay<'_> {
    /// Follows the headers as replay will, and changes only what is known to be durable. It does not matter here why the headers end:
    /// replay finds that out itself.
    pub(super) fn learn_what_was_durable(&mut self) {
        let start = (self.heads, self.last_seq, self.last_life);
        let mut next = [0, 1].map(|head| self.peek(head));
        while let Some((header, head)) = self.follower(&next) {
            self.durable = self.durable.max(header.durable.min(Seq(header.seq.0 - 1)));
            (self.last_seq, self.last_life) = (header.seq, header.life);
            let Some(cursor) = self.after(self.heads[head], &header) else {
                break;
            };
            self.heads[head] = cursor;
            next[head] = self.peek(head);
        }
        (self.heads, self.last_seq, self.last_life) = start;
    }

    fn peek(&mut self, head: usize) -> Option<ChunkHeader> {
        let found = self.read_header(head).ok()??;
        let header = found.header;
        self.remembered[head].remember(self.heads[head], found);
        Some(header)
    }

    /// Returns the chunk that is next in order. If both heads seem to have it, this is the one of the newer life.
    fn follower(&self, next: &[Option<ChunkHeader>; 2]) -> Option<(ChunkHeader, usize)> {
        let follows = |header: &ChunkHeader| {
            header.seq == self.last_seq.next()
                && header.prev_life == self.last_life
                && header.life >= self.last_life
        };
        (0..2)
            .filter_map(|head| Some((next[head]?, head)))
            .filter(|(header, _)| follows(header))
            .max_by_key(|(header, _)| header.life)
    }
}
