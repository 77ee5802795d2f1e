//! The state machine of a volume, whichever its layout: what a runtime holds.

use crate::addr::{Buf, EffectId, Generation, Lba, Nanos, Pba, Segment, Vba};
use crate::engine::{Buffers, Earlier, Engine, Options, Store};
use crate::entry::PartId;
use crate::format::areas::Layout;
use crate::format::pack::PartTag;
use crate::format::summary::Tag;
use crate::format::{
    Crc,
    superblock::{LogEnd, Superblock},
};
use crate::index::{Holder, Index};
use crate::recovery::rescue::{self, Loss, Trust};
use crate::recovery::{self, RecoveryError, Replayed, Source, find_superblock};
use crate::room::Room;
use crate::seam::{Block, Dedup, Effect, Input, Payload, Refusal, Reply};
use crate::service::Answers;
use crate::state::Paging;
use crate::stats::Stats;
use crate::tables::{self, Persistence, Tables};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

/// A volume as it was found.
pub enum Recovered {
    /// A log.
    Log(Box<recovery::Recovered>),
    /// Tables in place.
    Tables(Box<tables::Recovered>),
}

/// Recovers a volume of any layout; changes nothing.
///
/// # Errors
/// When what is there is not a whole volume.
pub fn recover(
    source: &mut dyn Source,
    medium_blocks: u64,
    crc: Crc,
) -> Result<Recovered, RecoveryError> {
    recover_within(source, medium_blocks, crc, None)
}

/// The same; of a log, with what says where blocks are kept within bounds.
///
/// # Errors
/// As of [`recover`].
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
            // No crash leaves this behind: a write that the medium acknowledged is not there.
            if let Some(error) = recovered.doubt() {
                return Err(error);
            }
            Recovered::Tables(Box::new(recovered))
        }
    })
}

/// What is left of a damaged volume, for reading.
///
/// # Errors
/// When nothing is.
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
        // What was found contradicts itself: it is not gone by.
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
    /// What it is.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        match self {
            Self::Log(recovered) => &recovered.superblock,
            Self::Tables(recovered) => &recovered.superblock,
        }
    }

    /// Begins a new life; the caller writes both mirrors of what this gives, a sync after each, before anything
    /// else.
    ///
    /// # Errors
    /// When something could not be read that is not needed to read the volume, but would be lost by going on, or when
    /// the volume has a feature that who writes must know.
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
                // It was read past any cache. From here on what the root before it needs may be written over: that one must not be
                // gone back to if a copy of this one is lost, whatever became of its mark.
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

    /// It is read as it is, and no life begins.
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

/// See the module.
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
    /// A volume that goes on where recovery ended.
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

    /// Whether all that was handed over has taken effect, or was refused.
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

    /// Why no write is taken now, if so.
    #[must_use]
    pub fn refuses_writes(&self) -> Option<Refusal> {
        either!(self, core => core.refuses_writes())
    }

    /// Whether a write that comes now, and any before it that waits, will surely be taken: `buffers` is how many blocks all
    /// of them have at most. Then their clients may be answered at once ([`Ack::Given`](crate::seam::Ack::Given)).
    #[must_use]
    pub fn may_answer(&self, buffers: u64) -> bool {
        match self {
            Self::Log(engine) => engine.may_answer(buffers),
            Self::Tables(_) => false,
        }
    }

    /// How full the volume is.
    #[must_use]
    pub fn room(&self) -> Room {
        either!(self, core => core.room())
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
    pub fn chunk_block(&self, id: EffectId, index: usize) -> Block {
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

    /// Where each buffer of a write goes.
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
    pub fn encode_page(&mut self, id: EffectId, index: usize, out: &mut [u8], store: Store<'_>) {
        self.log_mut().encode_page(id, index, out, store);
    }

    /// See [`Engine::encode_header`]. Only a log has chunks.
    pub fn encode_header(&mut self, id: EffectId, out: &mut [u8], store: Store<'_>) {
        self.log_mut().encode_header(id, out, store);
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

    /// See [`Engine::scrubbed`]. Tables do not keep it.
    #[must_use]
    pub fn scrubbed(&self) -> u32 {
        self.as_log().map_or(0, Engine::scrubbed)
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

    /// The map checkpoint, or the root of tables, that is durable.
    #[must_use]
    pub fn root_generation(&self) -> Generation {
        either!(self, core => core.root_generation())
    }

    /// Whether no map checkpoint, or commit of tables, is being written.
    #[must_use]
    pub fn is_resting(&self) -> bool {
        either!(self, core => core.is_resting())
    }

    /// As [`Engine::look_ahead`], of the index: contents that are to be written soon, by their checksums.
    pub fn look_ahead_contents(&self, sums: impl Iterator<Item = u32>) {
        either!(self, core => core.dedup().look_ahead(sums));
    }

    /// A block of a journal has been read, and has this weak hash: it may be written home next. A hint, like each of a digest.
    pub fn recall(&mut self, lba: Lba, weak: u64) {
        either!(self, core => core.once_mut().recall(lba, weak));
    }

    /// Whether [`Setting::Dedup`](crate::seam::Setting::Dedup) with this policy makes another index, which takes a while.
    #[must_use]
    pub fn needs_index(&self, policy: Dedup) -> bool {
        either!(self, core => core.dedup().needs_index(policy))
    }

    /// Lays by an index for such a policy, and gives back the one that was laid by: after it, the one that it has
    /// replaced, to be dropped where nobody waits.
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

/// Of a log: tables have no summaries to go by, and nothing to fold.
impl Answers for Core {
    fn unsummarised(&self, segment: Segment) -> Option<&[Tag]> {
        self.as_log()?.unsummarised(segment)
    }

    fn pages_of_parts(&self, at: Pba, tags: &[Tag], most_owners: u32, out: &mut Vec<(Pba, u32)>) {
        if let Some(engine) = self.as_log() {
            engine.pages_of_parts(at, tags, most_owners, out);
        }
    }

    fn sparse_page(&self, at: Pba, made_with: usize) -> Option<(Vba, u32)> {
        self.as_log()?.sparse_page(at, made_with)
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
