//! The seam between the core and whatever runs it.
//!
//! A runtime (the device, the lab, a crash test) calls [`Engine::handle`](crate::engine::Engine::handle)
//! with one [`Input`], then takes [`Effect`]s and [`Reply`]s until both are empty, and arranges to call
//! again with [`Input::Tick`] at the time that `poll_timeout` names. Effects may be carried out in any
//! order and at the same time; the core emits one only when everything it must follow has completed.
//! No payload crosses the seam: a block is a buffer's number and its [`Digest`].

use crate::addr::{Buf, EffectId, Lba, Leaf, Pba, RequestId, Segment, Seq, Vba};
use crate::entry::PartId;
use crate::format::pack::PartTag;
use crate::format::properties::Properties;
use crate::format::summary::Tag;
use crate::index::holder::Holder;
use core::num::NonZeroU16;

/// What the core knows of a block's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// Sum of the 4096 bytes, of the volume's kind ([`BlockSum`](crate::format::BlockSum)): the integrity check of promise 6, and
    /// CAFTL's pre-hash.
    pub sum: u32,
    /// Weak 64-bit hash of the block: a hint, never a proof (promise 4).
    pub weak: u64,
    /// True if every byte is zero.
    pub zero: bool,
    /// The first four bytes, as a number: used by content-based sampling (CAFTL §3.4.1).
    pub first: u32,
    /// How to store the block in fewer bytes, if it can and should be.
    pub packed: Option<Packed>,
    /// What the block is to its writer, as far as the runtime knows.
    pub class: Class,
    /// True if the file system seems to keep several copies of this block, in case one is lost. Such a block is never shared, even
    /// before the places of such blocks are known ([`Hint::Critical`]).
    pub copied: bool,
}

/// What a block is to its writer. Blocks are counted by class; and contents of some classes are not worth an entry of the
/// index ([`DedupPolicy::semantics`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// Data, or unknown.
    #[default]
    Data,
    /// A file system's bitmaps, inodes, directories and the like, where they belong.
    Metadata,
    /// In a journal: a copy of a data or metadata block.
    Copy,
    /// In a journal: a block of the journal itself.
    Journal,
}

/// A block stored in fewer bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed {
    /// The number of bytes: at least 1.
    pub len: NonZeroU16,
    /// The encoding, by the runtime's number: stored with the part, and passed back when it is read.
    pub encoding: u8,
    /// The base, if it is a delta: a part that [`Engine::earlier`](crate::engine::Engine::earlier) named, with the bytes that the
    /// last [`Effect::Stored`] gave it.
    pub base: Option<PartId>,
    /// The bucket whose pages it goes into; without one, any page of no bucket.
    pub bucket: Option<Bucket>,
}

/// Parts that share pages only with each other: CSA-FS's log has a bucket of deltas for each block group (its §3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket(pub u32);

/// One block of a write.
#[derive(Clone, Copy, Debug)]
pub struct Payload {
    /// Where the runtime keeps the bytes. The core owns the buffer until it emits [`Effect::Release`].
    pub buf: Buf,
    /// Their digest.
    pub digest: Digest,
}

/// How to treat blocks that are written home while a journal holds them already (WOJ §3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteOnce {
    /// Not at all: they are written again.
    Off,
    /// The weak hash proposes the newest journal block that has it; its bytes decide.
    #[default]
    Hash,
    /// The same, but if two journal blocks have one hash, none is proposed (WOJ §3.2, "collided").
    HashUnlessCollided,
    /// The journal's descriptor blocks propose, by home address (JFTL); the bytes decide.
    Descriptor,
}

/// One extent of a file system's journal, and the place of that file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The extent's first block.
    pub start: Lba,
    /// Its length.
    pub blocks: u64,
    /// The first block of the file system that it journals for.
    pub homes: Lba,
    /// The length of that file system.
    pub homes_blocks: u64,
    /// How to treat its blocks.
    pub rule: WriteOnce,
}

/// When changes of tables by clients become durable (OrderMergeDedup §2.2). Not used by a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commits {
    /// Requests after which a commit is due; 0: any number (Dmdedup's flush interval).
    pub requests: u32,
    /// Changes that no answer waits for are held back, to be merged with others of the same block.
    pub merging: bool,
    /// A commit is held back when more changes are likely to arrive meanwhile.
    pub anticipation: bool,
}

impl Default for Commits {
    fn default() -> Self {
        Self {
            requests: 0,
            merging: true,
            anticipation: true,
        }
    }
}

/// The policy of in-line deduplication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DedupPolicy {
    /// Memory of the index; 0: no deduplication. With another size the index starts empty.
    pub index_bytes: usize,
    /// The size of a sampling unit (2 to 32 blocks): one block of a unit is looked up first, and the others only if that one was found. 0
    /// or 1: all blocks are looked up.
    pub sample_blocks: u32,
    /// The kind of index. With another kind it starts empty as well.
    pub store: IndexKind,
    /// How equality of two blocks is decided.
    pub decide: Decide,
    /// If true, the index learns only contents of [`Class::Data`]. It is not searched for blocks that the file system writes where its
    /// metadata is, nor for a journal's own blocks (CSA-FS §3). It also forgets overwritten contents, if their checksums are in memory.
    pub semantics: bool,
}

/// How to decide that a block equals a stored one with the same checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decide {
    /// Their bytes.
    #[default]
    Compare,
    /// Their fingerprints, as soon as the stored page's fingerprint is known. It is learned when the page gets its second owner, for
    /// which the bytes were compared. The number is the runtime's number for the kind of fingerprint. Fingerprints of another kind are
    /// forgotten.
    Fingerprint(u8),
}

/// A strong, keyed hash of a block: equal fingerprints mean equal blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 16]);

/// A kind of index of contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IndexKind {
    /// Ours: two cache lines of eight entries for each hash.
    #[default]
    Compact,
    /// CAFTL's: segments and buckets (§3.2.3).
    Caftl(CaftlSearch),
}

/// How CAFTL's store is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaftlSearch {
    /// True if a bucket's smallest and largest entry are checked first.
    pub range_check: bool,
    /// How entries are spread over a segment's buckets.
    pub order: EntryOrder,
}

impl Default for CaftlSearch {
    /// What the paper recommends (§4.3.3).
    fn default() -> Self {
        Self {
            range_check: true,
            order: EntryOrder::Value,
        }
    }
}

/// An order of the entries of one segment of CAFTL's store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EntryOrder {
    /// In order of arrival.
    Arrival,
    /// Those with the most owners first (hotness-based reorganisation).
    Hotness,
    /// By hash, so that buckets can be searched by bisection.
    #[default]
    Value,
}

/// What a block is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// A data block on the medium.
    Medium(Pba),
    /// A buffer that the core holds, which it may release right after this effect.
    Buffer(Buf),
    /// A part of a page, decoded. If the part cannot be found or decoded, it equals no block.
    Part(PagePlace, u8, Option<BasePlace>),
}

/// Where the base is that is needed to decode a delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BasePlace {
    /// In a buffer that the core holds, which it may release right after this effect.
    Block(Buf),
    /// In a part of a page, to be decoded first; it is not a delta.
    Part(PagePlace, u8),
}

/// Where a page of parts is: [`pack::find`](crate::format::pack::find) finds a part in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PagePlace {
    /// On the medium.
    Medium(Pba),
    /// In a buffer that the core holds, which it may release right after this effect.
    Buffer(Buf),
}

/// The source of a data block of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkBlock {
    /// A buffer's bytes.
    Whole(Buf),
    /// Several parts: encode it with `Engine::encode_page`.
    Page,
}

/// Blocks to copy onto others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyBlocks {
    /// The first block to copy.
    pub from: Lba,
    /// The first block to copy onto.
    pub to: Lba,
    /// The number of blocks.
    pub blocks: u64,
}

/// Blocks to make read as zeros, without data on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmap {
    /// The first block.
    pub lba: Lba,
    /// The number of blocks.
    pub blocks: u64,
    /// The client has written zeros; otherwise it no longer needs the contents.
    pub zero: bool,
    /// Answered when it is durable.
    pub fua: bool,
}

/// When a write is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack {
    /// When it has taken effect.
    Placed,
    /// When it is durable.
    Durable,
    /// The client already has the answer. So the write is accepted even while others are refused, unless the volume is poisoned, and a
    /// later FLUSH waits for it. The reply says when it has taken effect. Only for a log, and only for writes that fit into the buffer
    /// and into the available room: see [`Core::may_answer`](crate::layout::Core::may_answer).
    Given,
}

impl Ack {
    /// The acknowledgement of a request that wants an answer.
    #[must_use]
    pub fn of(fua: bool) -> Self {
        match fua {
            true => Self::Durable,
            false => Self::Placed,
        }
    }
}

/// An input from the runtime to the core.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "fields are named for what they are")]
pub enum Input<'a> {
    /// Write `blocks.len()` blocks from `lba` on.
    Write {
        id: RequestId,
        lba: Lba,
        blocks: &'a [Payload],
        ack: Ack,
    },
    /// Read blocks into the request's own buffers.
    Read {
        id: RequestId,
        lba: Lba,
        blocks: u32,
    },
    /// Make all that was acknowledged before this durable.
    Flush { id: RequestId },
    /// Make blocks read as zeros.
    Unmap { id: RequestId, unmap: Unmap },
    /// Make blocks hold what others hold, by links and without data: answered like a write, in the order of writes. Blocks are
    /// copied one after another, upwards. Only a log links blocks.
    Copy { id: RequestId, copy: CopyBlocks },
    /// A hint, which may be wrong. No reply.
    Hint(Hint<'a>),
    /// Change how the core works from now on. No reply.
    Set(Setting),
    /// Change the volume's properties. The reply comes when both mirrors hold them durably; until then a crash leaves either the old ones
    /// or these.
    Properties {
        id: RequestId,
        change: PropertiesChange<'a>,
    },
    /// For a service that reads what is stored and improves it. Changes nothing that a client can read.
    Service(Service<'a>),
    /// An effect was carried out.
    Done { id: EffectId, outcome: Outcome<'a> },
    /// Time has passed; nothing else happened.
    Tick,
    /// Seal, sync and checkpoint everything; `Effect::Stopped` says when that is done.
    Shutdown,
}

/// A hint: something that the runtime observes of clients, or reads from the medium. Like a hash, it may be wrong, so it decides nothing,
/// except for [`Committed`](Self::Committed).
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "fields are named for what they are")]
pub enum Hint<'a> {
    /// Where journals are from now on: replaces all earlier hints.
    Journals { regions: &'a [Region] },
    /// Home blocks, each with the place in the journal where it has, or is about to have, its copy: read from a descriptor block,
    /// for regions with [`WriteOnce::Descriptor`].
    Journaled { pairs: &'a [(Lba, Lba)] },
    /// A transaction of a journal is complete: its commit block, and all blocks that it commits, have been written. `pairs`: home blocks
    /// with their copies in the journal; if a block has several, the last one counts. From now on, until either block of a pair is
    /// written again, a crash may leave the journal's copy at the home address, as the file system's replay would. In return, a FLUSH
    /// after these blocks have been written home costs nothing. May be ignored.
    Committed { pairs: &'a [(Lba, Lba)] },
    /// Blocks with deliberate copies (a file system's superblocks, group descriptors): they are never shared by their content.
    /// Replaces all earlier hints.
    Critical { ranges: &'a [(Lba, u64)] },
    /// What is stored from `at` on, by a segment's summary: for the index.
    Contents { at: Pba, tags: &'a [Tag] },
    /// What is in the page of parts at `at`, by its directory: for the index.
    Parts { at: Pba, parts: &'a [PartTag] },
}

/// How the core should work from now on.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "fields are named for what they are")]
pub enum Setting {
    /// Whether blocks may be stored as deltas.
    Deltas { on: bool },
    /// The policy of deduplication.
    Dedup { policy: DedupPolicy },
    /// When changes of tables are committed.
    Commits { policy: Commits },
}

/// A change of a volume's properties.
#[derive(Clone, Copy, Debug)]
pub enum PropertiesChange<'a> {
    /// These replace all others.
    All(&'a Properties),
    /// They say that the volume has clones. Nothing else of them changes, not even what is requested already.
    HasClones,
}

/// A request of a service.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "fields are named for what they are")]
pub enum Service<'a> {
    /// `lba` may hold the same bytes as `of`: compare them, and if they are equal let them share one page. Answered when that is
    /// done, or found to be out of date.
    Merge { id: RequestId, lba: Lba, of: Holder },
    /// The sweep that gives such pairs has done all contents with checksums below `to`, and will continue there after a restart; 0: it
    /// has ended. The next map checkpoint records that. `keep`: one is made soon. No reply.
    Swept { to: u32, keep: bool },
    /// As [`Input::Read`], for at most [`FOLD_BLOCKS`](crate::limits::FOLD_BLOCKS) consecutive blocks, which [`Fold`](Self::Fold) will
    /// then rewrite. Replaces blocks that an earlier `ReadToFold` read. It is not a client's read.
    ReadToFold {
        id: RequestId,
        lba: Lba,
        blocks: u32,
    },
    /// Blocks that [`ReadToFold`](Self::ReadToFold) read, all or some consecutive ones, and that can be stored in fewer bytes. Each is
    /// rewritten into a part of a page, if it is still the same, and if there is room to spare. No reply. The buffers belong to the core,
    /// like those of a write.
    Fold { lba: Lba, blocks: &'a [Payload] },
    /// A scrub has found something to rewrite. No reply.
    Mend(Mend<'a>),
}

/// What a scrub has found, or reports. None of it changes what a client can read. If the current state does not allow a repair, it is not
/// done.
#[derive(Clone, Copy, Debug)]
pub enum Mend<'a> {
    /// A damaged structure that the next map checkpoint, or the next commit of tables, replaces.
    Checkpoint,
    /// A mirror of the superblock.
    Mirror(u32),
    /// A leaf, by its number among all leaves.
    Leaf(Leaf),
    /// A summary, with the tags of its segment, which come from the chunk headers.
    Summary {
        /// The segment.
        segment: Segment,
        /// How often the segment was opened for writing in this life, as `Engine::is_summarised` returned it.
        uses: u32,
        /// One tag a block.
        tags: &'a [Tag],
        /// The newest chunk in it.
        last_seq: Seq,
    },
    /// A block of tables, by its number among all blocks of tables.
    Table(u64),
    /// The scrub's progress, to continue there after a restart; 0: it has ended. The next map checkpoint records it.
    Scrubbed {
        /// As returned by `Scrub::place`.
        to: u32,
        /// True if a map checkpoint should record it soon.
        keep: bool,
    },
}

/// How an effect ended.
#[derive(Clone, Copy, Debug)]
pub enum Outcome<'a> {
    /// Done; nothing to report.
    Ok,
    /// A read of data: the sum of each block as it came from the medium.
    Sums(&'a [u32]),
    /// A read of metadata: its bytes.
    Bytes(&'a [u8]),
    /// A comparison with a whole block, or with a part's block that the host has in memory: whether all bytes are equal.
    Same(bool),
    /// A block's fingerprint.
    Fingerprint(Fingerprint),
    /// A read of parts, or a comparison with one on the medium.
    Parts {
        /// Sum of the page as it came from the medium; ignored for a page in a buffer.
        sum: u32,
        /// True if each part was there, and decoded to a block with its checksum, or to the block that it was compared with.
        whole: bool,
        /// True if the base, if one was needed, was there and intact.
        base: bool,
    },
    /// The medium has no room for this write now; it may have later.
    Full,
    /// It failed permanently.
    Failed,
}

/// A request of the core to the runtime. Effects with an `id` are answered by [`Input::Done`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields are named for what they are")]
pub enum Effect {
    /// Write one chunk at `at`, sequentially: the header block, then the data blocks. Get each data block with
    /// `Engine::chunk_block`, and then the header with `Engine::encode_header`. `durable`: on stable storage
    /// when it completes.
    WriteChunk {
        id: EffectId,
        at: Pba,
        blocks: u32,
        durable: bool,
    },
    /// Write data blocks at `at`, sequentially, without a header. Get them with `data_bufs`.
    WriteData { id: EffectId, at: Pba, blocks: u32 },
    /// Write metadata (a segment's summary, a leaf, a root); get the bytes with `Engine::encode`
    /// when carrying this out.
    WriteMeta {
        id: EffectId,
        at: Pba,
        blocks: u32,
        durable: bool,
    },
    /// Make every write that has completed durable.
    Sync { id: EffectId },
    /// The segment's old content is no longer needed: discard it if that benefits the medium.
    Erase { id: EffectId, at: Pba, blocks: u32 },
    /// Read data blocks into buffers `first..` of the request, answer with their sums.
    Read {
        id: EffectId,
        at: Pba,
        blocks: u32,
        request: RequestId,
        first: u32,
    },
    /// Read a page, and decode the parts `slot..slot + count` of it into buffers `first..` of the request. A page in a buffer is
    /// read when this effect is taken. With a base it is one part, a delta.
    ReadParts {
        id: EffectId,
        page: PagePlace,
        slot: u8,
        count: u8,
        base: Option<BasePlace>,
        request: RequestId,
        first: u32,
    },
    /// Read data blocks into the collector's buffers `to..`, answer with their sums.
    Gather {
        id: EffectId,
        at: Pba,
        blocks: u32,
        to: Buf,
    },
    /// Read the page at `at`, and decode part `slot` of it into the collector's buffer `to`; answered like [`Effect::ReadParts`].
    GatherPart {
        id: EffectId,
        at: Pba,
        slot: u8,
        to: Buf,
    },
    /// Read metadata, answer with its bytes.
    ReadMeta { id: EffectId, at: Pba, blocks: u32 },
    /// Compare a block that a client is writing with a stored one. Answered by [`Outcome::Same`], or by [`Outcome::Parts`] if the stored
    /// block was read as a part of a page. A buffer is read when this effect is taken, before any later effect is carried out.
    Compare {
        id: EffectId,
        buf: Buf,
        with: Against,
    },
    /// Compute the fingerprint of a block that a client is writing, of the current kind.
    Fingerprint { id: EffectId, buf: Buf },
    /// Copy a buffer into buffer `index` of a read request. Immediate.
    CopyOut {
        from: Buf,
        request: RequestId,
        index: u32,
    },
    /// Fill buffers of a read request with zeros. Immediate.
    ZeroOut {
        request: RequestId,
        first: u32,
        blocks: u32,
    },
    /// From now on this part holds the block in this buffer. Emitted while deltas are on, for parts that are not deltas: the runtime may
    /// keep the block, to make deltas against it. Immediate.
    Stored { buf: Buf, part: PartId },
    /// The page of this number is given up, and its parts with it. Emitted under the same conditions as [`Effect::Stored`].
    GivenUp { page: Vba },
    /// The core no longer needs this buffer. Immediate.
    Release { buf: Buf },
    /// A shutdown is complete: everything is durable and checkpointed (or the volume is poisoned).
    Stopped,
}

/// The answer to a client request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Which request.
    pub id: RequestId,
    /// How it ended.
    pub result: Result<(), Refusal>,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Past the end of the volume.
    #[error("the range ends past the volume's last block")]
    OutOfRange,
    /// No physical space left for new data (promise 7).
    #[error(
        "no space left in the volume: discard something, or give it more room (`vellum grow`; \
         `vellum migrate` where its layout is not log)"
    )]
    Full,
    /// The storage below the volume has no room for what the volume must write (promise 7).
    #[error(
        "the storage below the volume is full, most often a file system: free some space there, and the \
         volume goes on by itself"
    )]
    NoRoom,
    /// A block that cannot have another owner: its bytes have to be written.
    #[error("a block that was to be copied cannot be linked: read it and write it")]
    Unlinkable,
    /// A block failed its checksum (promise 6).
    #[error("the block at physical address {0} fails its checksum")]
    Corrupt(Pba),
    /// The medium could not read a block.
    #[error("the medium cannot read physical block {0}")]
    Unreadable(Pba),
    /// An earlier write or sync of the medium failed; nothing more is accepted until a restart.
    #[error(
        "the volume is poisoned by a failed write or sync of its medium; restart it to recover"
    )]
    Poisoned,
}
