//! What the core counts.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters since the engine was made, and gauges of now. Blocks are of 4 KiB.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats { $($(#[$doc])* pub $name: u64,)* }

        impl Stats {
            /// Every counter with its name, in a fixed order.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Blocks that clients wrote.
    host_blocks_written,
    /// Blocks that clients read.
    host_blocks_read,
    /// Of the blocks written: data, or nothing is known of them.
    asked_data,
    /// Of the blocks written: a file system's metadata, where it belongs.
    asked_metadata,
    /// Of the blocks written: copies in a journal.
    asked_copies,
    /// Of the blocks written: what a journal writes for itself.
    asked_journal,
    /// Data blocks, and blocks of unknown kind, that were stored whole.
    whole_data,
    /// A file system's metadata blocks outside its journal that were stored whole.
    whole_metadata,
    /// Copies in a journal that were stored whole.
    whole_copies,
    /// A journal's own blocks that were stored whole.
    whole_journal,
    /// Data blocks, and blocks of unknown kind, that were stored in a part of a page.
    parts_data,
    /// A file system's metadata blocks outside its journal that were stored in a part of a page.
    parts_metadata,
    /// Copies in a journal that were stored in a part of a page.
    parts_copies,
    /// A journal's own blocks that were stored in a part of a page.
    parts_journal,
    /// Bytes of the parts with data blocks, or with blocks of unknown kind.
    part_bytes_data,
    /// Bytes of the parts with a file system's metadata blocks outside its journal.
    part_bytes_metadata,
    /// Bytes of the parts with copies in a journal.
    part_bytes_copies,
    /// Bytes of the parts with a journal's own blocks.
    part_bytes_journal,
    /// Of the blocks written: found to be zero and stored as a map entry alone.
    zero_blocks,
    /// Of the blocks written: replaced a block that was still in its unsealed chunk; or, of tables, were overwritten or
    /// discarded before they were on the medium.
    absorbed_blocks,
    /// Of the blocks written: stored in a part of a page.
    packed_blocks,
    /// Bytes of those parts.
    packed_bytes,
    /// Reads of pages because of parts of them that clients read.
    packed_reads,
    /// Of the blocks read: stored in parts of pages, and not in the write buffer any more.
    packed_blocks_read,
    /// Pages that hold parts, now.
    packed_pages,
    /// LBAs that are stored in them, now.
    packed_owners,
    /// Of the blocks stored in parts: as deltas.
    delta_blocks,
    /// Bytes of those.
    delta_bytes,
    /// Reads of deltas.
    delta_reads,
    /// Pages read because a delta needed them.
    base_reads,
    /// Gauge: deltas.
    deltas,
    /// Gauge: pages that deltas need.
    base_pages,
    /// Gauge: of these, those that are kept for deltas alone.
    orphan_pages,
    /// Blocks discarded or zeroed by request.
    discarded_blocks,
    /// Flush requests.
    flushes,
    /// Flush requests answered without any I/O: nothing was unsynced.
    flushes_free,
    /// Flush requests that shared another's sync.
    flushes_merged,
    /// Commits of journals whose chunk was sealed before the FLUSH that follows them had come.
    flushes_begun_before,
    /// Flush requests that waited for home blocks alone: since a flush, or a write with FUA, last waited, no block was written into a
    /// journal. Counted only where journals are watched.
    flushes_of_homes,
    /// Syncs of the medium.
    syncs,
    /// Chunks written with durability of their own (no sync needed).
    durable_chunks,
    /// Chunks written for clients.
    host_chunks,
    /// Chunks written by the collector.
    collector_chunks,
    /// Medium blocks: clients' data.
    medium_data,
    /// Medium blocks: chunk headers.
    medium_headers,
    /// Medium blocks: moved by the collector.
    medium_moved,
    /// Medium blocks: segment summaries.
    medium_summaries,
    /// Medium blocks: map checkpoints (leaves and roots); of shadowed tables the roots, and the superblock that names one.
    medium_map,
    /// Of these blocks: second copies, which are read only if the first is damaged.
    medium_copies,
    /// Blocks read by the collector.
    collector_reads,
    /// Segments collected.
    collections,
    /// Segments that became free without a move.
    emptied_segments,
    /// Map checkpoints.
    map_checkpoints,
    /// Tables: commits.
    commits,
    /// Tables: commits that were held back because more was likely to come.
    anticipated_commits,
    /// Medium blocks: tables in place, the map.
    medium_links,
    /// Medium blocks: tables in place, counts.
    medium_counts,
    /// Medium blocks: tables in place, fingerprints.
    medium_fingerprints,
    /// Medium blocks: tables in place, editions of the map's blocks.
    medium_editions,
    /// Medium blocks: the directory of shadowed tables.
    medium_directory,
    /// Tables: runs of freed blocks that were discarded on the medium.
    stale_discards,
    /// Tables: blocks of these runs.
    stale_blocks_discarded,
    /// Tables: blocks of data that a crash had left counted too high, found when the volume was opened.
    leaked_blocks,
    /// Tables: blocks of the table of fingerprints that were damaged when the volume was opened. What they proposed is lost.
    lost_fingerprint_blocks,
    /// Tables: blocks of the table of counts that were damaged when the volume was opened, and counted anew.
    rebuilt_count_blocks,
    /// Tables: blocks of the table of editions that were damaged when the volume was opened, and made anew.
    lost_edition_blocks,
    /// Client reads served from the write buffer, blocks.
    buffer_hits,
    /// Blocks whose checksum did not match.
    corrupt_blocks,
    /// Blocks that the medium could not read.
    unreadable_blocks,
    /// Summaries read because a segment's checksums were not cached.
    summary_reads,
    /// Blocks that clients wrote into a journal.
    journal_blocks,
    /// Blocks that clients wrote to where a journal's file system is, outside the journal.
    home_writes,
    /// Of these: not written, but mapped to their journal copy.
    remapped_blocks,
    /// Of these: written, because several journal blocks have their hash.
    collided_blocks,
    /// Of these: written, because no journal block was proposed.
    missing_blocks,
    /// Journal blocks pledged to their homes when they were committed.
    pledged_blocks,
    /// Home blocks that recovery mapped to what was pledged to them.
    redeemed_blocks,
    /// Comparisons with a proposed journal copy that found it equal.
    compared_equal,
    /// Comparisons that did not.
    compared_unequal,
    /// Comparisons with a stored block that could not be read, or failed its checksum: they say nothing of whoever proposed it.
    compared_damaged,
    /// Comparisons for which the journal copy was read back from the medium.
    compare_reads,
    /// Times that write-once journaling left off for a while because it did not pay.
    write_once_pauses,
    /// Blocks written that were looked up in the index of contents.
    dedup_lookups,
    /// Entries of the index that were compared with what was looked up.
    index_comparisons,
    /// Blocks not written, but mapped to another's page of the same content.
    dedup_blocks,
    /// Blocks whose fingerprint was computed.
    dedup_fingerprints,
    /// Of these: those that were compared with a page's fingerprint, not with its bytes.
    dedup_decided,
    /// Hints of the index that were wrong, by checksum or by comparison.
    dedup_false_hints,
    /// Blocks that were not looked up, because their unit's sample was not found.
    dedup_sampled_out,
    /// Blocks that were not looked up in the index, because their kind is not deduplicated (metadata, a journal's own).
    dedup_passed_over,
    /// Contents that left the index because they were overwritten.
    dedup_outlived,
    /// Times that in-line deduplication left off because the write buffer was full.
    dedup_switched_off,
    /// Blocks read because they may be equal to others that are stored.
    merge_reads,
    /// Pairs that were not looked at, because the collector had all buffers.
    merges_put_off,
    /// Of the blocks read: mapped to the other's page.
    merged_blocks,
    /// Of those: parts of pages. A part's space is free when nothing leads to its page any more.
    merged_parts,
    /// Blocks that were linked to what others hold, by a copy.
    copied_blocks,
    /// Blocks in parts of sparse pages that were stored anew: no client wrote them.
    folded_blocks,
    /// Bytes of their new parts.
    folded_bytes,
    /// Pages that were given up by that.
    folds,
    /// Blocks that a fold read but did not move: they were overwritten meanwhile, or are needed where they are, or there was no free room.
    folds_put_off,
    /// Gauge: contents in the index.
    index_entries,
    /// Gauge: contents that the index can hold.
    index_capacity,
    /// Of the medium blocks of summaries: those that were rewritten because owners have changed.
    medium_restamped,
    /// Gauge: journal blocks watched.
    pool_blocks,
    /// Gauge: of these, those that can be proposed.
    pool_entries,
    /// Gauge: pledges in force.
    pledges,
    /// Gauge: pages whose owner is not the one that their segment's summary names.
    stray_pages,
    /// Gauge: leaves of the map and of the table of pages that are in memory, if `map-memory` does not hold them all.
    leaves_in_memory,
    /// Leaves that were read because they were not in memory.
    leaves_read,
    /// Leaves that were damaged, and that the others of their stripes restored.
    rebuilt_leaves,
    /// Gauge: leaves of the map, and of the table of pages, that are not counted yet after an opening.
    uncounted_leaves,
    /// Gauge: physical data blocks in use.
    live_blocks,
    /// Gauge: physical data blocks that may be in use at once.
    capacity_blocks,
    /// Gauge: free segments.
    free_segments,
    /// Gauge: all segments.
    segments,
    /// Gauge: segments set aside because a block in them cannot be read.
    quarantined_segments,
    /// Gauge: pages with more than one owner.
    shared_pages,
    /// Gauge: LBAs that these have as owners.
    shared_owners,
    /// Gauge: requests that wait for space or for the medium.
    waiting_requests,
    /// Gauge: 1 when a failed write or sync, or damage of its map, has poisoned the volume.
    poisoned,
}
