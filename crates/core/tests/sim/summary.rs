//! The results of lives: counts, and a digest that two machines can compare.

use super::driver::Counts;
use super::driver::scrubs::Scrubbed;
use super::driver::services::Served;
use super::medium::Medium;
use vellum_core::stats::Stats;

macro_rules! summary {
    ($($count:ident),* $(,)?) => {
        /// The results of lives.
        #[derive(Clone, Copy, Debug, Default)]
        pub struct Summary {
            $(pub $count: u64,)*
            /// A digest of the contents of the medium at the end of each life, in order.
            pub digest: u64,
        }

        impl Summary {
            pub fn add(&mut self, other: &Self) {
                $(self.$count += other.$count;)*
                self.mix(other.digest);
            }
        }
    };
}

summary! {
    lives,
    requests,
    full,
    corrupt,
    unreadable,
    poisoned,
    answered_before,
    effects,
    collections,
    map_checkpoints,
    remapped,
    unequal,
    deduplicated,
    decided,
    merged,
    false_hints,
    restamped,
    leaves_read,
    packed,
    deltas,
    folded,
    bases_read,
    pledged,
    redeemed,
    free_flushes,
    rot_refused,
    rot_survived,
    leaks,
    discards,
    lost_fingerprints,
    rebuilt_counts,
    grown,
    resettled,
    shrunk,
    shrinks_refused,
    shortened,
    shortenings_cut,
    shortenings_refused,
    heads_moved,
    copied,
    services_ended,
    rows_folded,
    pairs_swept,
    scrubs_ended,
    scrub_damaged,
    scrub_mended,
    mirrors_mended,
    freed_dropped,
}

impl Summary {
    pub fn count(&mut self, counts: &Counts) {
        self.requests += counts.done;
        self.full += counts.full;
        self.corrupt += counts.corrupt;
        self.unreadable += counts.unreadable;
        self.poisoned += counts.poisoned;
        self.answered_before += counts.early;
        self.effects += counts.effects;
    }

    /// Adds the results of a life's services.
    pub fn serve(&mut self, served: &Served) {
        self.services_ended += served.ended;
        self.rows_folded += served.rows;
        self.pairs_swept += served.pairs;
    }

    /// Adds the results of a life's scrubs.
    pub fn scrub(&mut self, scrubbed: &Scrubbed) {
        self.scrubs_ended += scrubbed.ended;
        self.scrub_damaged += scrubbed.damaged;
        self.scrub_mended += scrubbed.mended;
        self.mirrors_mended += scrubbed.mirrors;
    }

    /// Adds a core's statistics of a life.
    pub fn add_stats(&mut self, stats: &Stats) {
        self.collections += stats.collections;
        self.map_checkpoints += stats.map_checkpoints;
        self.remapped += stats.remapped_blocks;
        self.pledged += stats.pledged_blocks;
        self.unequal += stats.compared_unequal;
        self.deduplicated += stats.dedup_blocks;
        self.decided += stats.dedup_decided;
        self.merged += stats.merged_blocks;
        self.false_hints += stats.dedup_false_hints;
        self.copied += stats.copied_blocks;
        self.restamped += stats.medium_restamped;
        self.packed += stats.packed_blocks;
        self.discards += stats.stale_discards;
        self.lost_fingerprints += stats.lost_fingerprint_blocks;
        self.rebuilt_counts += stats.rebuilt_count_blocks;
        self.deltas += stats.delta_blocks;
        self.folded += stats.folded_blocks;
        self.bases_read += stats.base_reads;
        self.free_flushes += stats.flushes_free;
        self.leaves_read += stats.leaves_read;
    }

    /// Adds the contents of the medium to the digest.
    pub fn see(&mut self, medium: &Medium) {
        for at in 0..medium.blocks() {
            self.mix(u64::from(medium.read(at).token()));
        }
    }

    /// FNV-1a over words: order matters.
    fn mix(&mut self, word: u64) {
        self.digest = (self.digest ^ word).wrapping_mul(0x0000_0100_0000_01b3);
    }
}
