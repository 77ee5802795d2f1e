//! The state machine of a volume of any layout, as a runtime holds it.

use crate::addr::{Buf, EffectId, Generation, Lba, Nanos, Pba, Segment, Vba};
use crate::engine::{Buffers, Engine, Options, PutPart};
use crate::entry::Earlier;
use crate::entry::PartId;
use crate::format::areas::Layout;
use crate::format::pack::{PageOfParts, PartTag};
use crate::format::summary::Tag;
use crate::format::{
    Crc,
    superblock::{LogEnd, Superblock},
};
use crate::index::{Holder, Index};
use crate::recovery::rescue::{self, Loss, Trust};
use crate::recovery::{self, RecoveryError, Replayed, Source, Unreadable, find_superblock};
use crate::room::Room;
use crate::seam::{ChunkBlock, DedupPolicy, Effect, Input, Payload, Refusal, Reply};
use crate::service::Answers;
use crate::state::Paging;
use crate::stats::Stats;
use crate::tables::{self, Persistence, Tables};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

/// A volume as recovery found it.
pub enum Recovered {
    /// A log.
    Log(Box<recovery::Recovered>),
    /// Tables in place.
    Tables(Box<tables::Recovered>),
}

/// Recovers a volume of any layout; changes nothing.
///
/// # Errors
/// When there is no complete volume.
pub fn recover(
    source: &mut dyn Source,
    medium_blocks: u64,
    crc: Crc,
) -> Result<Recovered, RecoveryError> {
    recover_within(source, medium_blocks, crc, None)
}

/// The same; for a log, within a memory bound for the map and the table of pages.
///
/// # Errors
/// As [`recover`].
pub fn recover_within(
    source: &mut dyn Source,
    medium_blocks: u64,
    crc: Crc,
    paging: Option<Paging>,
) -> Result<Recovered, RecoveryError> {
    let (superblock, _) = find_superblock(source, medium_blocks, crc)?;
    Ok(match superblock.layout() {
        Layout::Log => {
            let found = recovery::recover_within(source, medium_blocks, crc, paging)?;
            Recovered::Log(Box::new(found))
        }
        _ => {
            let recovered = tables::recover(source, medium_blocks, crc)?;
            // No crash can cause this: a write that the medium acknowledged is missing.
            if let Some(error) = recovered.doubt() {
                return Err(error);
            }
            Recovered::Tables(Box::new(recovered))
        }
    })
}

/// Recovers the readable parts of a damaged volume, for reading.
///
/// # Errors
/// When nothing is left.
pub fn rescue(
    source: &mut dyn Source,
    medium_blocks: u64,
    crc: Crc,
    trust: Trust,
) -> Result<(Recovered, Loss), RecoveryError> {
    let (superblock, _) = find_superblock(source, medium_blocks, crc)?;
    if superblock.layout() != Layout::Log {
        let (recovered, loss) = tables::rescue(source, medium_blocks, crc, trust)?;
        return Ok((Recovered::Tables(Box::new(recovered)), loss));
    }
    let rescued = rescue::rescue(source, medium_blocks, crc, trust);
    let rescued = match (rescued, trust) {
        // The newest versions that were found contradict each other, so only certain ones are used.
        (Err(_), Trust::Newest) => rescue::rescue(source, medium_blocks, crc, Trust::Certain)?,
        (rescued, _) => rescued?,
    };
    Ok((Recovered::Log(Box::new(rescued.recovered)), rescued.loss))
}

fn may_write(superblock: &Superblock) -> Result<(), RecoveryError> {
    match superblock.unknown_to_write() {
        None => Ok(()),
        Some(error) => Err(RecoveryError::Superblock { at: Pba(0), error }),
    }
}

impl Recovered {
    /// The volume's superblock.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        match self {
            Self::Log(recovered) => &recovered.superblock,
            Self::Tables(recovered) => &recovered.superblock,
        }
    }

    /// Begins a new life. The caller writes the first mirror of the result and then the last, with a sync after each, before anything else.
    /// If the last mirror was lost, the caller first writes what was found there: a last mirror of a newer life makes the first one stale.
    ///
    /// # Errors
    /// When the volume has a feature that a writer must know. When a block could not be read that only a writer needs: writing would lose
    /// what is in it.
    pub fn begin_life(&mut self) -> Result<&Superblock, RecoveryError> {
        Ok(match self {
            Self::Log(recovered) => {
                if let Some(unread) = recovered.unread {
                    return Err(unread.into());
                }
                if recovered.is_rest {
                    return Err(RecoveryError::Damaged);
                }
                may_write(&recovered.superblock)?;
                recovered.superblock.begin_life(recovered.log_end());
                // This root was read past any cache. From here on, blocks that the previous root needs may be overwritten. So recovery
                // must not go back to the previous root if a copy of this one is lost, even if this one's mark was lost too.
                let root = recovered.root.generation;
                recovered.superblock.mark_root(root);
                &recovered.superblock
            }
            Self::Tables(recovered) => {
                if recovered.is_rest {
                    return Err(RecoveryError::Damaged);
                }
                may_write(&recovered.superblock)?;
                recovered.superblock.begin_life(LogEnd::NONE);
                &recovered.superblock
            }
        })
    }

    /// A block that could not be read, although what was flushed last may be in it. If there is one, this may be an older state: readers
    /// need a [`rescue()`].
    #[must_use]
    pub fn unread(&self) -> Option<Unreadable> {
        match self {
            Self::Log(recovered) => recovered.unread,
            // Tables that may not be the newest are not recovered.
            Self::Tables(_) => None,
        }
    }

    /// Makes the volume read-only: no life begins.
    pub fn read_alone(&mut self) {
        if let Self::Log(recovered) = self {
            recovered.is_read_alone = true;
        }
    }

    /// What recovery did.
    #[must_use]
    pub fn replayed(&self) -> Replayed {
        match self {
            Self::Log(recovered) => recovered.replayed,
            Self::Tables(recovered) => recovered.replayed,
        }
    }
}

/// The state machine of a volume, of either layout.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one a volume, and it does not move"
)]
pub enum Core {
    /// A log.
    Log(Engine),
    /// Tables in place.
    Tables(Tables),
}

impl From<Engine> for Core {
    fn from(engine: Engine) -> Self {
        Self::Log(engine)
    }
}

impl From<Tables> for Core {
    fn from(tables: Tables) -> Self {
        Self::Tables(tables)
    }
}

macro_rules! either {
    ($self:ident, $core:ident => $what:expr) => {
        match $self {
            Core::Log($core) => $what,
            Core::Tables($core) => $what,
        }
    };
}

impl Core {
    /// A volume that continues where recovery ended.
    #[must_use]
    pub fn new(
        recovered: Recovered,
        buffers: Buffers,
        options: Options,
        persistence: Persistence,
        crc: Crc,
    ) -> Self {
        match recovered {
            Recovered::Log(recovered) => Self::Log(Engine::new(*recovered, buffers, options, crc)),
            Recovered::Tables(recovered) => {
                let options = tables::Options::new(&options, persistence);
                Self::Tables(Tables::new(*recovered, options, crc))
            }
        }
    }

    /// See [`Engine::handle`].
    pub fn handle(&mut self, now: Nanos, input: Input<'_>) {
        either!(self, core => core.handle(now, input));
    }

    /// See [`Engine::poll_effect`].
    pub fn poll_effect(&mut self) -> Option<Effect> {
        either!(self, core => core.poll_effect())
    }

    /// See [`Engine::poll_reply`].
    pub fn poll_reply(&mut self) -> Option<Reply> {
        either!(self, core => core.poll_reply())
    }

    /// See [`Engine::poll_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Nanos> {
        either!(self, core => core.poll_timeout())
    }

    /// True if all requests have taken effect, or were refused.
    #[must_use]
    pub fn nothing_waits(&self) -> bool {
        either!(self, core => core.nothing_waits())
    }

    /// The volume's geometry and identity.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        either!(self, core => core.superblock())
    }

    /// Counters and gauges.
    #[must_use]
    pub fn stats(&self) -> Stats {
        either!(self, core => core.stats())
    }

    /// Returns the refusal that every write gets now, if writes are refused.
    #[must_use]
    pub fn refuses_writes(&self) -> Option<Refusal> {
        either!(self, core => core.refuses_writes())
    }

    /// True if a write that arrives now, and all writes waiting before it, will certainly be accepted. `buffers`: the most blocks that
    /// they have together. Then their clients may be answered at once ([`Ack::Given`](crate::seam::Ack::Given)).
    #[must_use]
    pub fn may_answer(&self, buffers: u64) -> bool {
        match self {
            Self::Log(engine) => engine.may_answer(buffers),
            Self::Tables(_) => false,
        }
    }

    /// How full the volume is, as far as that is known.
    #[must_use]
    pub fn room(&self) -> Room {
        either!(self, core => core.room())
    }

    /// True if all owners and live blocks are counted: a census after an opening is over.
    #[must_use]
    pub fn is_counted(&self) -> bool {
        self.as_log().is_none_or(|engine| !engine.is_in_census())
    }

    /// See [`Engine::take_rebuilt`].
    pub fn take_rebuilt(&mut self) -> u64 {
        match self {
            Self::Log(engine) => engine.take_rebuilt(),
            Self::Tables(_) => 0,
        }
    }

    /// See [`Engine::damaged_table`].
    #[must_use]
    pub fn damaged_table(&self) -> Option<Pba> {
        self.as_log().and_then(Engine::damaged_table)
    }

    /// How full the volume may be, at most, if not all is counted yet.
    #[must_use]
    pub fn fullest_room(&self) -> Room {
        match self {
            Self::Log(engine) => engine.fullest_room(),
            Self::Tables(tables) => tables.room(),
        }
    }

    /// See [`Engine::extents`].
    #[must_use]
    pub fn extents(&self, lba: Lba, blocks: u64, max: usize) -> Vec<(u64, bool)> {
        either!(self, core => core.extents(lba, blocks, max))
    }

    /// The bytes of an [`Effect::WriteMeta`].
    pub fn encode(&mut self, id: EffectId, out: &mut [u8]) {
        either!(self, core => core.encode(id, out));
    }

    /// What a data block of an [`Effect::WriteChunk`] is made from. Only a log has chunks.
    #[must_use]
    pub fn chunk_block(&self, id: EffectId, index: usize) -> ChunkBlock {
        self.log().chunk_block(id, index)
    }

    /// The buffers of a write, in the order of its blocks.
    pub fn chunk_bufs(&self, id: EffectId) -> impl Iterator<Item = Buf> + '_ {
        let (log, tables) = match self {
            Self::Log(engine) => (Some(engine.chunk_bufs(id)), None),
            Self::Tables(tables) => (None, Some(tables.data_bufs(id))),
        };
        log.into_iter()
            .flatten()
            .chain(tables.into_iter().flatten())
    }

    /// Returns where each buffer of a write goes.
    pub fn chunk_places(&self, id: EffectId) -> impl Iterator<Item = (Buf, Pba, Option<u8>)> + '_ {
        let (log, tables) = match self {
            Self::Log(engine) => (Some(engine.chunk_places(id)), None),
            Self::Tables(tables) => (None, Some(tables.data_places(id))),
        };
        let tables = tables.into_iter().flatten();
        log.into_iter()
            .flatten()
            .chain(tables.map(|(buf, at)| (buf, at, None)))
    }

    /// See [`Engine::encode_page`]. Only a log has pages of parts.
    pub fn encode_page(&mut self, id: EffectId, index: usize, out: &mut [u8], put: PutPart<'_>) {
        self.log_mut().encode_page(id, index, out, put);
    }

    /// See [`Engine::encode_header`]. Only a log has chunks.
    pub fn encode_header(&mut self, id: EffectId, out: &mut [u8], put: PutPart<'_>) {
        self.log_mut().encode_header(id, out, put);
    }

    /// See [`Engine::earlier`]. Tables have no deltas.
    #[must_use]
    pub fn earlier(&self, lba: Lba) -> Earlier {
        self.as_log()
            .map_or(Earlier::Nothing, |engine| engine.earlier(lba))
    }

    /// See [`Engine::expects_remap`]. Tables encode nothing.
    #[must_use]
    pub fn expects_remap(&self, lba: Lba, payload: &Payload) -> bool {
        self.as_log()
            .is_some_and(|engine| engine.expects_remap(lba, payload))
    }

    /// See [`Engine::pledged_homes`]. Tables pledge nothing.
    #[must_use]
    pub fn pledged_homes(&self) -> Vec<Lba> {
        self.as_log().map_or(Vec::new(), Engine::pledged_homes)
    }

    /// See [`Engine::base_at`].
    #[must_use]
    pub fn base_at(&self, lba: Lba) -> Option<PartId> {
        self.as_log()?.base_at(lba)
    }

    /// See [`Engine::swept`].
    #[must_use]
    pub fn swept(&self) -> u32 {
        self.as_log().map_or(0, Engine::swept)
    }

    /// See [`Engine::scrubbed`]. Tables do not record it.
    #[must_use]
    pub fn scrubbed(&self) -> u32 {
        self.as_log().map_or(0, Engine::scrubbed)
    }

    /// See [`Engine::left_behind`]. Tables leave nothing behind.
    #[must_use]
    pub fn left_behind(&self) -> (u64, bool) {
        self.as_log().map_or((0, false), Engine::left_behind)
    }

    /// See [`Engine::leads_to`].
    #[must_use]
    pub fn leads_to(&self, lba: Lba, pba: Pba) -> bool {
        either!(self, core => core.leads_to(lba, pba))
    }

    /// See [`Engine::whole_at`].
    pub fn whole_at(&mut self, lba: Lba) -> Option<(Pba, u32)> {
        either!(self, core => core.whole_at(lba))
    }

    /// See [`Engine::is_summarised`].
    #[must_use]
    pub fn is_summarised(&self, segment: Segment) -> Option<u32> {
        self.as_log()?.is_summarised(segment)
    }

    /// See [`Engine::written_tags`].
    #[must_use]
    pub fn written_tags(&self, segment: Segment) -> Option<Vec<Tag>> {
        self.as_log()?.written_tags(segment)
    }

    /// The generation of the durable map checkpoint, or of the durable root of tables.
    #[must_use]
    pub fn root_generation(&self) -> Generation {
        either!(self, core => core.root_generation())
    }

    /// True if no map checkpoint, or commit of tables, is being written.
    #[must_use]
    pub fn is_resting(&self) -> bool {
        either!(self, core => core.is_resting())
    }

    /// As [`Engine::look_ahead`], for the index: contents that will be written soon, by their checksums.
    pub fn look_ahead_contents(&self, sums: impl Iterator<Item = u32>) {
        either!(self, core => core.dedup().look_ahead(sums));
    }

    /// Notes that a block of a journal was read, and has this weak hash: it may be written home next. As in a digest, the hash is a hint.
    pub fn recall(&mut self, lba: Lba, weak: u64) {
        either!(self, core => core.once_mut().recall(lba, weak));
    }

    /// True if [`Setting::Dedup`](crate::seam::Setting::Dedup) with this policy creates another index, which takes a while.
    #[must_use]
    pub fn needs_index(&self, policy: DedupPolicy) -> bool {
        either!(self, core => core.dedup().needs_index(policy))
    }

    /// Stores an index for such a policy, and returns the one stored before. After the policy is set, that is the replaced index; the
    /// caller drops it where nothing waits.
    pub fn lay_by_index(&mut self, index: Index) -> Index {
        either!(self, core => core.dedup_mut().lay_by(index))
    }

    /// The engine of a log.
    #[must_use]
    pub fn as_log(&self) -> Option<&Engine> {
        match self {
            Self::Log(engine) => Some(engine),
            Self::Tables(_) => None,
        }
    }

    fn log(&self) -> &Engine {
        match self {
            Self::Log(engine) => engine,
            Self::Tables(_) => unreachable!("tables write no chunks"),
        }
    }

    fn log_mut(&mut self) -> &mut Engine {
        match self {
            Self::Log(engine) => engine,
            Self::Tables(_) => unreachable!("tables write no chunks"),
        }
    }
}

/// Only a log answers: tables have no summaries to search, and nothing to fold.
impl Answers for Core {
    fn unsummarised(&self, segment: Segment) -> Option<&[Tag]> {
        self.as_log()?.unsummarised(segment)
    }

    fn pages_of_parts(&self, at: Pba, tags: &[Tag], most_owners: u32, out: &mut Vec<PageOfParts>) {
        if let Some(engine) = self.as_log() {
            engine.pages_of_parts(at, tags, most_owners, out);
        }
    }

    fn sparse_page(&self, vba: Vba, at: Pba, made_with: usize) -> Option<u32> {
        self.as_log()?.sparse_page(vba, at, made_with)
    }

    fn foldable_in(
        &self,
        lbas: Range<u64>,
        wanted: impl Fn(Vba) -> bool,
        out: &mut Vec<(PartId, Lba)>,
    ) {
        if let Some(engine) = self.as_log() {
            engine.foldable_in(lbas, wanted, out);
        }
    }

    fn has_room_to_fold(&self) -> bool {
        self.as_log().is_some_and(Engine::has_room_to_fold)
    }

    fn stored(&self) -> u64 {
        let stats = self.stats();
        stats.live_blocks - stats.packed_pages + stats.packed_owners
    }

    fn contents(&self, at: Pba, tags: &[Tag], out: &mut Vec<(Holder, u32)>) {
        if let Some(engine) = self.as_log() {
            engine.contents(at, tags, out);
        }
    }

    fn parts(&self, at: Pba, parts: &[PartTag], out: &mut Vec<(Holder, u32)>) {
        if let Some(engine) = self.as_log() {
            engine.parts(at, parts, out);
        }
    }

    fn owners_in(&self, lbas: Range<u64>, wanted: impl Fn(Vba) -> bool, out: &mut Vec<(Lba, Vba)>) {
        if let Some(engine) = self.as_log() {
            engine.owners_in(lbas, wanted, out);
        }
    }
}
