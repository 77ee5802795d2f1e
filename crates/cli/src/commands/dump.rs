//! `vellum dump`: shows a volume's structures as they are on the medium, or writes all of it to an archive.

mod books;
mod found;
mod tables;
mod whole;

use crate::keys::Key;
use crate::opened;
use crate::outcome::{out, usage};
use anyhow::{Context, Result};
use books::Books;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use vellum_core::addr::{BLOCK_BYTES, Generation, Lba, Segment};
use vellum_core::check::{Chunk, Chunks};
use vellum_core::entry::Entry;
use vellum_core::format::areas::Layout;
use vellum_core::format::superblock::Superblock;
use vellum_core::format::{root, summary};
use vellum_core::layout::Recovered;
use vellum_core::recovery::{self, Source};
use vellum_device::info::hex_uuid;
use vellum_device::{MediumSource, crc32c};
use vellum_medium::Medium;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    vellum dump disk.vellum map                   where each block is\n  \
    vellum dump disk.vellum rows                  what snapshots and clones keep, and where\n  \
    vellum dump disk.vellum --whole disk.vla      all of it into an archive, for `vellum restore`\n  \
    vellum dump disk.vellum --whole - | ssh host 'cat > disk.vla'\n\n\
An archive holds the volume's secret and all data as they are: it is not encrypted.\n\
Exit code 3: blocks could not be read, and the archive is without them.")]
pub struct Args {
    /// The volume; no server may have it open.
    volume: PathBuf,
    /// The part to print.
    #[arg(value_enum, default_value = "superblock")]
    part: Part,
    /// All of it, into a new archive; `-` is standard output. A damaged volume is dumped as it is.
    #[arg(long, value_name = "ARCHIVE", conflicts_with_all = ["part", "from", "count"])]
    whole: Option<PathBuf>,
    /// What an archive holds, as JSON.
    #[arg(long, requires = "whole")]
    json: bool,
    /// Segments, and chunks: the first segment. Map: the first block. Rows: the first block of them.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Segments or blocks: how many, at most.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    #[command(flatten)]
    key: Key,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Geometry and map checkpoints.
    Superblock,
    /// A line a segment.
    Segments,
    /// The chunks of each segment, and their records.
    Chunks,
    /// The map, a line a range; what belongs to snapshots is behind what clients see.
    Map,
    /// The list of snapshots and clones, a line an entry; TAKEN is in seconds since 1970.
    Snapshots,
    /// The rows of what these keep, a line a range.
    Rows,
}

/// Shows the structures.
pub fn run(args: &Args) -> Result<()> {
    if let Some(archive) = &args.whole {
        return whole::run(&args.volume, archive, args.json, &args.key);
    }
    let has_no_range = matches!(args.part, Part::Superblock | Part::Snapshots);
    if has_no_range && (args.from > 0 || args.count.is_some()) {
        return Err(usage(
            "--from and --count are for segments, chunks, map and rows",
        ));
    }
    let medium: Arc<dyn Medium> = Arc::from(opened::open(&args.volume, true, &args.key)?);
    let mut source = MediumSource::new(&*medium);
    let blocks = medium.blocks();
    let name = || args.volume.display().to_string();
    let (sb, mirror_lost) =
        vellum_core::recovery::find_superblock(&mut source, blocks, crc32c).with_context(name)?;
    let mut out = std::io::BufWriter::new(out());
    let is_log = sb.layout() == Layout::Log;
    match args.part {
        Part::Chunks | Part::Segments if !is_log => {
            return Err(usage(format!(
                "{}: the layout {} has no segments; there are `superblock` and `map`",
                args.volume.display(),
                sb.layout().name()
            )));
        }
        Part::Superblock if is_log => superblock(&sb, mirror_lost, &mut source, &mut out)?,
        Part::Superblock => tables::superblock(&sb, mirror_lost, &mut out)?,
        Part::Chunks => {
            for segment in range(args, "segments", sb.segment_count().into())? {
                chunks(&sb, Segment(segment as u32), &mut source, &mut out)?;
            }
        }
        Part::Segments => {
            let range = range(args, "segments", sb.segment_count().into())?;
            let found = found::find(&args.volume, &*medium)?;
            found.tell(&(0..0), &mut out)?;
            if let Recovered::Log(found) = &found.recovered {
                segments(found, range, &mut source, &mut out)?;
            }
        }
        Part::Map => {
            let range = range(args, "blocks", sb.mapped_blocks())?;
            let found = found::find(&args.volume, &*medium)?;
            found.tell(&range, &mut out)?;
            match &found.recovered {
                Recovered::Log(found) => map(found, range, &mut out)?,
                Recovered::Tables(found) => tables::map(found, range, &mut out)?,
            }
        }
        Part::Snapshots => Books::open(&args.volume, &medium, &sb, &mut out)?.snapshots()?,
        Part::Rows => {
            let books = Books::open(&args.volume, &medium, &sb, &mut out)?;
            books.rows(range(args, "blocks of rows", sb.history().row_blocks())?)?;
        }
    }
    Ok(out.flush()?)
}

/// The requested part of this many.
fn range(args: &Args, what: &str, end: u64) -> Result<std::ops::Range<u64>> {
    if args.from >= end {
        return Err(usage(format!(
            "--from {}: {} has {end} {what}, the first is 0",
            args.from,
            args.volume.display()
        )));
    }
    let to = args
        .count
        .map_or(end, |n| args.from.saturating_add(n).min(end));
    Ok(args.from..to)
}

fn superblock(
    sb: &Superblock,
    mirror_lost: bool,
    source: &mut dyn Source,
    out: &mut dyn Write,
) -> Result<()> {
    writeln!(out, "uuid              {}", hex_uuid(&sb.uuid()))?;
    writeln!(out, "life              {}", sb.life())?;
    writeln!(out, "medium blocks     {}", sb.medium_blocks())?;
    let before = match sb.addressed_blocks() == sb.logical_blocks() {
        true => String::new(),
        false => format!(", {} before it shrank", sb.addressed_blocks()),
    };
    writeln!(out, "logical blocks    {}{before}", sb.logical_blocks())?;
    writeln!(out, "capacity blocks   {}", sb.capacity_blocks())?;
    writeln!(out, "sums of blocks    {}", sb.sums().name())?;
    writeln!(
        out,
        "over-provisioning {} thousandths",
        sb.over_provisioning()
    )?;
    places(sb, out)?;
    writeln!(
        out,
        "root generation   {}: no older map checkpoint is used",
        sb.root_generation()
    )?;
    match sb.log_end().map(|end| end.seq) {
        Some(seq) => writeln!(out, "log end           chunk {seq}, when this life began")?,
        None => writeln!(out, "log end           not known")?,
    }
    match sb.unknown_to_write() {
        Some(unknown) => writeln!(out, "features          {unknown}")?,
        None => writeln!(
            out,
            "features          none that this program does not know"
        )?,
    }
    let [first, last] = sb.mirrors();
    writeln!(
        out,
        "mirrors           at blocks {first} and {last}{}",
        if mirror_lost {
            "; one is damaged or older"
        } else {
            ""
        }
    )?;
    checkpoints(sb, source, out)
}

/// Where segments, leaves and what belongs to snapshots are.
fn places(sb: &Superblock, out: &mut dyn Write) -> Result<()> {
    writeln!(
        out,
        "segments          {} of {} blocks ({} usable), from block {}",
        sb.segment_count(),
        sb.segment_blocks(),
        sb.usable_blocks(),
        sb.segment_start(Segment(0))
    )?;
    writeln!(
        out,
        "leaves            {} of the map, {} of shared pages, {} of deltas, {} parities",
        sb.map_leaves(),
        sb.shared_leaves(),
        sb.delta_leaves(),
        sb.parity_leaves()
    )?;
    if sb.history().kept() > 0 {
        let [list, rows, kept] = sb.history().parts();
        writeln!(
            out,
            "snapshots         list at LBA {}, rows at {}, kept blocks at {} to {}",
            list.start,
            rows.start,
            kept.start,
            kept.end.0 - 1
        )?;
    }
    Ok(())
}

/// A line for each copy of each map checkpoint.
fn checkpoints(sb: &Superblock, source: &mut dyn Source, out: &mut dyn Write) -> Result<()> {
    for at in (0..2).flat_map(|place| sb.root_copies(Generation(place))) {
        let mut bytes = vec![0; sb.root_blocks() as usize * BLOCK_BYTES];
        write!(out, "map checkpoint    at block {at}: ")?;
        if let Err(error) = source.read(at, &mut bytes) {
            writeln!(out, "{error}")?;
            continue;
        }
        match root::decode(&bytes, &sb.uuid(), sb.leaves(), crc32c) {
            Ok((header, slots)) => {
                let present = slots
                    .iter()
                    .filter(|s| **s != root::LeafSlot::Absent)
                    .count();
                let [hot, cold] = header.cursors;
                writeln!(
                    out,
                    "generation {}, through chunk {} of life {}, durable {}, {present} leaves, \
                    hot head at segment {} block {}, cold head at segment {} block {}",
                    header.generation,
                    header.seq,
                    header.life,
                    header.durable,
                    hot.segment,
                    hot.offset,
                    cold.segment,
                    cold.offset
                )?;
            }
            Err(error) => writeln!(out, "{error}")?,
        }
    }
    Ok(())
}

fn segments(
    found: &recovery::Recovered,
    range: std::ops::Range<u64>,
    source: &mut dyn Source,
    out: &mut dyn Write,
) -> Result<()> {
    let sb = &found.superblock;
    writeln!(
        out,
        "{:>8} {:>12} {:>8} {:>12}  summary",
        "segment", "at", "live", "last chunk"
    )?;
    let summary_blocks = summary::blocks(sb.segment_blocks());
    for (n, last_seq) in found
        .newest
        .iter()
        .enumerate()
        .take(range.end as usize)
        .skip(range.start as usize)
    {
        let number = Segment(n as u32);
        let at = sb.segment_start(number);
        let mut bytes = vec![0; summary_blocks as usize * BLOCK_BYTES];
        let said = match source.read(at.plus(sb.usable_blocks().into()), &mut bytes) {
            Err(error) => error.to_string(),
            Ok(()) if bytes.iter().all(|b| *b == 0) => "none".into(),
            Ok(()) => match summary::decode(
                &sb.signature(),
                number,
                sb.usable_blocks() as usize,
                &bytes,
                crc32c,
            ) {
                Ok(tags) => format!(
                    "{} owned blocks",
                    tags.iter()
                        .filter(|t| t.owner != summary::Owner::None)
                        .count()
                ),
                Err(error) => error.to_string(),
            },
        };
        let heads = if found.is_rest { &[][..] } else { &found.heads };
        let head = heads.iter().position(|h| h.segment == number);
        let head = head.map_or("", |h| [", hot head", ", cold head"][h]);
        writeln!(
            out,
            "{n:>8} {at:>12} {:>8} {last_seq:>12}  {said}{head}",
            found.state.live().valid(number)
        )?;
    }
    Ok(())
}

fn chunks(
    sb: &Superblock,
    segment: Segment,
    source: &mut dyn Source,
    out: &mut dyn Write,
) -> Result<()> {
    writeln!(out, "segment {segment}")?;
    let mut walk = Chunks::new(sb, segment, crc32c);
    while let Some(chunk) = walk.next(source) {
        let Chunk {
            offset,
            header,
            records,
            of_before,
            ..
        } = match chunk {
            Ok(chunk) => chunk,
            Err(error) => {
                writeln!(out, "  {error}")?;
                break;
            }
        };
        let next = header
            .next
            .map_or(String::new(), |next| format!(", goes on in segment {next}"));
        writeln!(
            out,
            "  chunk {} at block {offset} (physical {}): life {}, {} head, {} data blocks, durable {}, after \
             map checkpoint {}{next}",
            header.seq,
            header.at,
            header.life,
            if header.head == 0 { "hot" } else { "cold" },
            header.data_blocks,
            header.durable,
            header.root_generation
        )?;
        for record in records {
            writeln!(out, "    {record:?}")?;
        }
        for (lba, blocks) in of_before.runs() {
            writeln!(
                out,
                "    the chunk before says something of {blocks} LBAs from {lba} on"
            )?;
        }
    }
    Ok(())
}

fn map(
    found: &recovery::Recovered,
    range: std::ops::Range<u64>,
    out: &mut dyn Write,
) -> Result<()> {
    // Consecutive entries of one kind, or consecutive pages, are printed as one line.
    let mut run: Option<(u64, u64, Entry)> = None;
    let mut at = Lba(range.start);
    let end = Lba(range.end);
    let show = |out: &mut dyn Write, run: Option<(u64, u64, Entry)>| match run {
        None => Ok(()),
        Some((lba, blocks, Entry::Plain(pba))) => {
            writeln!(out, "{lba:>12} {blocks:>10}  at block {pba}")
        }
        Some((lba, blocks, Entry::Shared(vba))) => {
            let at = found.state.shared().pba(vba);
            writeln!(
                out,
                "{lba:>12} {blocks:>10}  shared page {vba}, at block {at}"
            )
        }
        Some((lba, blocks, Entry::Packed(vba, slot))) => {
            let at = found.state.shared().pba(vba);
            writeln!(
                out,
                "{lba:>12} {blocks:>10}  part {slot} of page {vba}, at block {at}"
            )
        }
        Some((lba, blocks, entry)) => writeln!(out, "{lba:>12} {blocks:>10}  {entry:?}"),
    };
    while let Some((lba, entry)) = found.state.map().next_mapped(at, end) {
        let joins = run.is_some_and(|(start, blocks, first)| {
            start + blocks == lba.0
                && match (first, entry) {
                    (Entry::Plain(a), Entry::Plain(b)) => a.0 + blocks == b.0,
                    (a, b) => a == b && a == Entry::Zero,
                }
        });
        match &mut run {
            Some((_, blocks, _)) if joins => *blocks += 1,
            _ => show(out, run.replace((lba.0, 1, entry)))?,
        }
        at = lba.plus(1);
    }
    Ok(show(out, run)?)
}
