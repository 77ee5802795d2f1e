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
use crate::index::Holder;
use core::num::NonZeroU16;

/// What the core knows of a block's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// Sum of the 4096 bytes, as the volume has them ([`BlockSum`](crate::format::BlockSum)): the integrity check of promise 6, and CAFTL's pre-hash.
    pub sum: u32,
    /// Weak 64-bit hash of the block: a hint, never a proof (promise 4).
    pub weak: u64,
    /// Whether every byte is zero.
    pub zero: bool,
    /// The first four bytes, as a number: what content-based sampling goes by (CAFTL §3.4.1).
    pub first: u32,
    /// How the block can be stored in fewer bytes, if it can and is to be.
    pub packed: Option<Packed>,
    /// What it is to whoever wrote it, as far as the runtime knows.
    pub class: Class,
    /// Whether it looks like what is written in several places on purpose, so that one may be lost: it is not shared, even
    /// before anybody knows where such blocks are ([`Hint::Critical`]).
    pub copied: bool,
}

/// What a block is to whoever wrote it. It is counted by that; and contents of some are not worth an entry of the index
/// ([`Dedup::semantics`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// Data, or nothing is known of it.
    #[default]
    Data,
    /// A file system's bitmaps, inodes, directories and the like, where they belong.
    Metadata,
    /// In a journal: a copy of a block of either kind.
    Copy,
    /// In a journal: what it wrote for itself.
    Journal,
}

/// A block in fewer bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed {
    /// How many: at least 1.
    pub len: NonZeroU16,
    /// How, in the runtime's own numbers: kept with the part, and told again when it is read.
    pub encoding: u8,
    /// What it is a delta against: a part that [`Engine::earlier`](crate::engine::Engine::earlier) named, with the bytes
    /// that [`Effect::Stored`] gave to it last.
    pub base: Option<PartId>,
    /// In whose pages it goes; in any that is nobody's, without.
    pub bucket: Option<Bucket>,
}

/// Parts that share pages with each other alone: CSA-FS's log has a bucket of deltas for each block group (its §3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket(pub u32);

/// One block of a write.
#[derive(Clone, Copy, Debug)]
pub struct Payload {
    /// Where the runtime keeps the bytes. The core owns the buffer until it emits [`Effect::Release`].
    pub buf: Buf,
    /// What they digest to.
    pub digest: Digest,
}

/// What is done about blocks that a journal holds already when they are written home (WOJ §3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteOnce {
    /// Nothing: they are written again.
    Off,
    /// The weak hash proposes the newest journal block that has it; its bytes decide.
    #[default]
    Hash,
    /// The same, but where two journal blocks have one hash none is proposed (WOJ §3.2, "collided").
    HashUnlessCollided,
    /// The journal's own descriptor blocks propose, by home address (JFTL); the bytes decide.
    Descriptor,
}

/// One extent of a file system's journal, and where that file system is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The extent's first block.
    pub start: Lba,
    /// Its length.
    pub blocks: u64,
    /// First block of the file system that it journals for.
    pub homes: Lba,
    /// That one's length.
    pub homes_blocks: u64,
    /// What is done.
    pub rule: WriteOnce,
}

/// When what clients change in tables becomes durable (OrderMergeDedup §2.2). A log has nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commits {
    /// Requests after which a commit is due; 0: any number (Dmdedup's flush interval).
    pub requests: u32,
    /// What no answer waits for is held back, to be merged with what else falls into its block.
    pub merging: bool,
    /// A commit is held back when more is likely to come meanwhile.
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

/// In-line deduplication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dedup {
    /// Memory of the index; 0: no deduplication. Another size begins with an empty index.
    pub index_bytes: usize,
    /// Blocks of a unit of which one is looked up first (2 to 32), and the others only if that was found; 0
    /// or 1: all are.
    pub sample_blocks: u32,
    /// What kind of index it is. Another kind begins empty as well.
    pub store: Store,
    /// What tells that two blocks are equal.
    pub decide: Decide,
    /// The index learns contents of [`Class::Data`] alone, and is not asked for those that the file system writes where
    /// its metadata is, nor for what a journal writes for itself (CSA-FS §3). And it forgets what is overwritten, as far as
    /// the checksum of that is in memory.
    pub semantics: bool,
}

/// What tells that a block is equal to one that is stored and has its checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decide {
    /// Their bytes.
    #[default]
    Compare,
    /// Their fingerprints, of a kind that the runtime numbers, once the stored page's is known: with its second owner,
    /// for which bytes were compared. Fingerprints of another kind are forgotten.
    Fingerprint(u8),
}

/// A strong, keyed hash of a block: equal ones are of equal blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 16]);

/// A kind of index of contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Store {
    /// Ours: two cache lines of eight entries for each hash.
    #[default]
    Compact,
    /// CAFTL's: segments and buckets (§3.2.3).
    Caftl(Search),
}

/// How CAFTL's store is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Search {
    /// Whether a bucket's smallest and largest entry are looked at first.
    pub range_check: bool,
    /// How entries are spread over a segment's buckets.
    pub order: Order,
}

impl Default for Search {
    /// What the paper recommends (§4.3.3).
    fn default() -> Self {
        Self {
            range_check: true,
            order: Order::Value,
        }
    }
}

/// An order of the entries of one segment of CAFTL's store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As they come.
    Arrival,
    /// Those with the most owners first (hotness-based reorganisation).
    Hotness,
    /// By their hash, so that there can be a binary search over buckets.
    #[default]
    Value,
}

/// What a block is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// A data block on the medium.
    Medium(Pba),
    /// A buffer of the core's, which may be released right after this effect.
    Buffer(Buf),
    /// A part of a page, decoded: one that cannot be found or decoded is equal to nothing.
    Part(Page, u8, Option<Base>),
}

/// What a delta needs to be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// A block in a buffer of the core's, which may be released right after this effect.
    Block(Buf),
    /// A part of a page, to be decoded first; it is no delta.
    Part(Page, u8),
}

/// Where a page of parts is: [`pack::find`](crate::format::pack::find) finds one in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// On the medium.
    Medium(Pba),
    /// In a buffer of the core's, which may be released right after this effect.
    Buffer(Buf),
}

/// What a data block of a chunk is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// A buffer's bytes.
    Whole(Buf),
    /// Parts of several: get it with `Engine::encode_page`.
    Page,
}

/// Blocks that are copied into others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The first that is copied.
    pub from: Lba,
    /// The first that it is copied into.
    pub to: Lba,
    /// How many.
    pub blocks: u64,
}

/// When a write is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack {
    /// When it has taken effect.
    Placed,
    /// When it is durable.
    Durable,
    /// Its client has its answer already. So it is taken even while no others are, unless nothing is any more (poisoned), and
    /// a FLUSH that comes later waits for it. The reply says when it has taken effect. Of a log alone, and only for writes that fit
    /// into the buffer and into the room that there is: see [`Core::may_answer`](crate::layout::Core::may_answer).
    Given,
}

impl Ack {
    /// Of a request that wants an answer.
    #[must_use]
    pub fn of(fua: bool) -> Self {
        match fua {
            true => Self::Durable,
            false => Self::Placed,
        }
    }
}

/// What the runtime tells the core.
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
    /// These blocks read as zeros from now on, without data on the medium. `zero`: the client has written zeros; else it no longer
    /// needs what was there.
    Unmap {
        id: RequestId,
        lba: Lba,
        blocks: u64,
        zero: bool,
        fua: bool,
    },
    /// Let blocks hold what others hold, by links and without data: answered like a write, in the order of writes. One block after
    /// the other, upwards. Only a log links blocks.
    Copy { id: RequestId, copy: Copy },
    /// Something that may be so. No reply.
    Hint(Hint<'a>),
    /// How to work from now on. No reply.
    Set(Setting),
    /// Keep these properties in place of those that there are. The reply comes when both mirrors have them, durably; until then a
    /// crash leaves the old ones or these.
    Properties {
        id: RequestId,
        properties: &'a Properties,
    },
    /// For a service that reads what is stored and makes it better. Changes nothing that a client can read.
    Service(Service<'a>),
    /// An effect was carried out.
    Done { id: EffectId, outcome: Outcome<'a> },
    /// Time has passed; nothing else happened.
    Tick,
    /// Seal, sync and checkpoint everything; `Effect::Stopped` says when that is done.
    Shutdown,
}

/// What whoever watches clients, or reads what is stored, tells the core. It is believed no more than a hash is, but for
/// [`Committed`](Self::Committed).
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "fields are named for what they are")]
pub enum Hint<'a> {
    /// Where journals are, from now on: in place of all that was told before.
    Journals { regions: &'a [Region] },
    /// Home blocks and the place in the journal where each has, or is about to have, its copy: read from a
    /// descriptor block, for regions with [`WriteOnce::Descriptor`].
    Journaled { pairs: &'a [(Lba, Lba)] },
    /// A transaction of a journal is complete: its commit block, and all that it commits, have been written. Home
    /// blocks with their copies in the journal, of which the last one counts. From now on a crash may find at home
    /// what the journal holds, as the file system's replay would put it there, until either is written again; for
    /// that a FLUSH after these same blocks have been written home costs nothing. May be ignored.
    Committed { pairs: &'a [(Lba, Lba)] },
    /// Blocks whose copies are there on purpose (a file system's superblocks, group descriptors): they are
    /// never shared by their content. In place of all that was told before.
    Critical { ranges: &'a [(Lba, u64)] },
    /// What is stored from `at` on, as a segment's summary tells it: for the index.
    Contents { at: Pba, tags: &'a [Tag] },
    /// What is in the page of parts at `at`, as its directory tells it: for the index.
    Parts { at: Pba, parts: &'a [PartTag] },
}

/// How the core is to work from now on.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "fields are named for what they are")]
pub enum Setting {
    /// Whether blocks may be stored as deltas.
    Deltas { on: bool },
    /// Deduplicate like this.
    Dedup { policy: Dedup },
    /// Commit changes of tables like this.
    Commits { policy: Commits },
}

/// What a service asks for.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "fields are named for what they are")]
pub enum Service<'a> {
    /// `lba` may hold the same bytes as `of` has: compare them, and if so let them share one page. Answered when
    /// that is done, or found to be out of date.
    Merge { id: RequestId, lba: Lba, of: Holder },
    /// Who tells of such pairs has passed contents whose checksums are less, and is to go on there after a restart; 0: has ended.
    /// The next map checkpoint says so; `keep`: let that be soon. No reply.
    Swept { to: u32, keep: bool },
    /// As [`Input::Read`], of blocks in a row, [`FOLD_BLOCKS`](crate::limits::FOLD_BLOCKS) at most, that are to be told by
    /// [`Fold`](Self::Fold) then, in place of those that were read so before. It is no client's.
    ReadToFold {
        id: RequestId,
        lba: Lba,
        blocks: u32,
    },
    /// What has been read so, all of it or some in a row, and can be stored in fewer bytes: each block is stored anew if it is
    /// still the same, in a part of a page, and that takes no room from anybody. No reply;
    /// the buffers are the core's as those of a write.
    Fold { lba: Lba, blocks: &'a [Payload] },
    /// A scrub has found something that is to be written anew. No reply.
    Mend(Mend<'a>),
}

/// What a scrub has found, or has to say. None of it changes what a client can read; what the state is not fit for is not done.
#[derive(Clone, Copy, Debug)]
pub enum Mend<'a> {
    /// Something that the next map checkpoint, or commit of tables, replaces.
    Checkpoint,
    /// A mirror of the superblock.
    Mirror(u32),
    /// A leaf, counted over all.
    Leaf(Leaf),
    /// A summary; these are the tags of its segment as the headers say, which has been taken so often in this life.
    Summary {
        /// Whose.
        segment: Segment,
        /// As `Engine::is_summarised` said.
        uses: u32,
        /// A tag a block.
        tags: &'a [Tag],
        /// The newest chunk in it.
        last_seq: Seq,
    },
    /// A block of tables, by its number over all of them.
    Table(u64),
    /// How far it is, to go on there after a restart; 0: it has ended. The next map checkpoint says so; `keep`: let that be soon.
    Scrubbed {
        /// What `Scrub::place` says.
        to: u32,
        /// Soon.
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
    /// A comparison with a whole block, or with what the host keeps of a part in memory: whether all bytes are equal.
    Same(bool),
    /// A block's fingerprint.
    Fingerprint(Fingerprint),
    /// A read of parts, or a comparison with one on the medium.
    Parts {
        /// Sum of the page as it came from the medium; of a buffer's it is not looked at.
        sum: u32,
        /// Whether each part was there, and decoded to a block with its checksum; or to the one that it was compared with.
        whole: bool,
        /// Whether what that takes beside the page was there, and whole.
        base: bool,
    },
    /// The medium has no room for this write now; it may have later.
    Full,
    /// It failed for good.
    Failed,
}

/// What the core asks of the runtime. Those with an `id` are answered by [`Input::Done`].
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
    /// The segment's old content is not needed any more: discard it if the medium profits.
    Erase { id: EffectId, at: Pba, blocks: u32 },
    /// Read data blocks into buffers `first..` of the request, answer with their sums.
    Read {
        id: EffectId,
        at: Pba,
        blocks: u32,
        request: RequestId,
        first: u32,
    },
    /// Read a page, and decode the parts `slot..slot + count` of it into buffers `first..` of the request.
    /// A buffer is looked at when this effect is taken. With a base it is one part, a delta.
    ReadParts {
        id: EffectId,
        page: Page,
        slot: u8,
        count: u8,
        base: Option<Base>,
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
    /// Read the page at `at`, and decode part `slot` of it into the collector's buffer `to`; answered as
    /// [`Effect::ReadParts`] is.
    GatherPart {
        id: EffectId,
        at: Pba,
        slot: u8,
        to: Buf,
    },
    /// Read metadata, answer with its bytes.
    ReadMeta { id: EffectId, at: Pba, blocks: u32 },
    /// Compare a block that a client is writing with one that is stored; answered by [`Outcome::Same`], or by
    /// [`Outcome::Parts`] if that was read as a part of a page. A buffer is looked at when this effect is taken, before
    /// any that follows is carried out.
    Compare {
        id: EffectId,
        buf: Buf,
        with: Against,
    },
    /// Compute the fingerprint of a block that a client is writing, of the kind that is in force.
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
    /// The block in this buffer is what this part stands for from now on. It is told while deltas are on, of parts that are
    /// none: what the block was may be kept, for deltas against it. Immediate.
    Stored { buf: Buf, part: PartId },
    /// The page of this number is given up: its parts stand for nothing any more. As [`Effect::Stored`].
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
    #[error("no physical space left: discard something, or migrate to a larger volume")]
    Full,
    /// What is below the volume has no room for what the volume is to write (promise 7).
    #[error(
        "what the volume is on has no room (a file system that is full, as a rule): free some there, and it goes on by itself"
    )]
    NoRoom,
    /// A block that cannot have one more owner: its bytes have to be written.
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
