//! A log that ends early, because a block of one of its last chunks was damaged: that chunk looks as if the crash had torn it.

use super::concerns::{header, said};
use super::driver::{Failure, ensure};
use super::medium::{BLOCK, Medium};
use super::model::Seen;
use super::rng::Rng;
use super::world::World;
use std::collections::{BTreeMap, BTreeSet};
use vellum_core::addr::{Life, Seq};
use vellum_core::format::chunk::ChunkHeader;
use vellum_core::layout::Recovered;

impl World {
    /// Checks that recovery may end the volume there when this block is damaged, and that the volume then is as it was there. Returns
    /// the LBAs that may be older than they were, or lost.
    pub(super) fn judge_cut(
        &self,
        whole: &Recovered,
        end: Seq,
        at: u64,
        seen: &[Seen],
    ) -> Result<BTreeSet<u64>, Failure> {
        let Some(last) = &self.last else {
            return Err("the last life is not known".to_owned());
        };
        ensure!(
            !self.stopped,
            "it ends at {end:?}, though it was stopped cleanly"
        );
        let Recovered::Log(log) = whole else {
            // No client was told of a commit whose root may be without its second copy.
            last.judge(seen)
                .map_err(|why| format!("an older root: {why}"))?;
            return Ok((0..self.logical_blocks).collect());
        };
        let chunks = chunks(&self.medium, log.root.seq, (log.last_seq, log.last_life));
        let Some(hit) = chunks.values().find(|chunk| has(chunk, at)) else {
            return Err(format!(
                "it ends at {end:?}, and no chunk after the root was hit"
            ));
        };
        ensure!(
            end.next() == hit.seq,
            "it ends at {end:?}, and the chunk that was hit is {:?}",
            hit.seq
        );
        // If this chunk was its segment's last, only it names the segment of those after it, and what a summary says may be lost.
        let is_found = |chunk: &&ChunkHeader| {
            chunk.seq != hit.seq && (chunk.head != hit.head || hit.next.is_none())
        };
        let mut found = chunks.values().filter(is_found);
        let proof = found.find(|chunk| chunk.durable >= hit.seq);
        ensure!(
            proof.is_none(),
            "it ends at {end:?}, and {proof:?} says that the next chunk is durable"
        );
        last.judge_cut(seen, hit.next.is_none())
            .map_err(|why| format!("it ends at {end:?}: {why}"))?;
        let cut = chunks.range(hit.seq..);
        Ok(cut
            .flat_map(|(_, chunk)| said(&self.medium, whole, chunk.at.0))
            .collect())
    }
}

/// True if a block is a chunk's header, or among its data.
fn has(chunk: &ChunkHeader, at: u64) -> bool {
    (chunk.at.0..=chunk.at.0 + u64::from(chunk.data_blocks)).contains(&at)
}

/// The chunks of the log after one that the root includes: each names the life of the one before it.
fn chunks(
    medium: &Medium,
    root: Seq,
    (mut seq, mut life): (Seq, Life),
) -> BTreeMap<Seq, ChunkHeader> {
    let all = (0..medium.blocks()).filter_map(|at| header(medium, at));
    let all: BTreeMap<(Seq, Life), ChunkHeader> = all
        .map(|header| ((header.seq, header.life), header))
        .collect();
    let mut chunks = BTreeMap::new();
    while seq > root
        && let Some(header) = all.get(&(seq, life))
    {
        chunks.insert(seq, *header);
        (seq, life) = (Seq(seq.0 - 1), header.prev_life);
    }
    chunks
}

/// True if the header of a chunk says that the one at `at` was the durable one before it.
pub fn has_torn_one_after(medium: &Medium, at: u64) -> bool {
    header(medium, at).is_some_and(|hit| {
        let mut all = (0..medium.blocks()).filter_map(|at| header(medium, at));
        all.any(|after| {
            let is_next = after.seq == hit.seq.next() && after.prev_life == hit.life;
            is_next && after.durable == hit.seq
        })
    })
}

/// Erases the header of a chunk after the root, but not of the one that this block is in, for the canary.
pub fn lose_another(medium: &mut Medium, whole: &Recovered, at: u64, rng: &mut Rng) {
    let Recovered::Log(log) = whole else { return };
    let chunks = chunks(medium, log.root.seq, (log.last_seq, log.last_life));
    let others: Vec<u64> = chunks
        .values()
        .filter(|chunk| !has(chunk, at))
        .map(|chunk| chunk.at.0)
        .collect();
    if !others.is_empty() {
        let blank = medium.tokens.cell(&[0; BLOCK]);
        medium.replace(rng.pick(&others), blank);
    }
}
