//! A pack of a volume that a crash has left: it leads to the same data, but holds none of it.

use super::driver::{Failure, ensure};
use super::medium::{BLOCK, Cell, Medium};
use super::open;
use super::rng::Rng;
use vellum_core::addr::{Pba, Seq};
use vellum_core::bare::{self, Choice, Part};
use vellum_core::check::{self, Problem, Report};
use vellum_core::format::areas::Layout;
use vellum_core::layout::Recovered;

/// True if a pack is checked this time. Uses a separate generator, so that seeds mean what they did.
fn is_asked(medium: &Medium) -> bool {
    Rng::new(medium.writes ^ 0xba2e).percent(10)
}

/// A pack of this medium, unpacked.
fn unpacked(medium: &Medium, found: &Recovered) -> Result<Medium, Failure> {
    let choice = Choice {
        through: match found {
            Recovered::Log(log) => log.last_seq,
            Recovered::Tables(_) => Seq(0),
        },
        signature: [9; 16],
        properties: found.superblock().properties().clone(),
    };
    let mut pack = Medium::new(medium.blocks(), medium.tokens, medium.broken);
    let (mut next, mut result) = (0, Ok(()));
    open::read(&mut medium.clone(), |source| {
        bare::bare(
            source,
            found.superblock(),
            choice,
            crc32c::crc32c,
            &mut |at, part| {
                let blocks = match part {
                    Part::Whole(bytes) => (bytes.len() / BLOCK) as u64,
                    Part::Unread(blocks) | Part::Damaged(blocks) => blocks,
                };
                if at.0 < next {
                    result = Err(format!("a pack has block {at} behind block {next}"));
                }
                next = at.0 + blocks;
                if let Part::Whole(bytes) = part {
                    result = std::mem::replace(&mut result, Ok(()))
                        .and(holds_nothing(medium, found, at, bytes));
                    pack.format(at.0, bytes);
                }
            },
        );
    });
    result.map(|()| pack)
}

/// Checks that none of these blocks is a client's. A leaf of a log's map may look like one: if all its entries but the first are
/// zeros.
fn holds_nothing(medium: &Medium, found: &Recovered, at: Pba, bytes: &[u8]) -> Result<(), Failure> {
    let superblock = found.superblock();
    for (block, at) in bytes.chunks_exact(BLOCK).zip(at.0..) {
        let may_be_data = superblock.layout() != Layout::Log
            || superblock.segments().segment_of(Pba(at)).is_some();
        if let Cell::Data(token) = medium.tokens.cell(block)
            && may_be_data
        {
            ensure!(token == 0, "a pack has the data of block {at}");
        }
    }
    Ok(())
}

fn look(medium: &Medium) -> Report {
    let options = check::Options::default();
    open::read(&mut medium.clone(), |source| {
        check::check(source, medium.blocks(), options, crc32c::crc32c)
    })
}

/// Checks that a pack is recognised as one, is sound, and reports the same as the volume.
pub fn audit(medium: &Medium) -> Result<(), Failure> {
    if !is_asked(medium) {
        return Ok(());
    }
    let found = open::recover(medium, None).map_err(|e| format!("recovery: {e}"))?;
    let (whole, pack) = (look(medium), look(&unpacked(medium, &found)?));
    ensure!(
        pack.findings.contains(&Problem::WithoutData) && pack.is_sound(),
        "a pack has {:?}",
        pack.findings
    );
    let counts = |report: &Report| {
        (
            report.mapped_blocks,
            report.zero_blocks,
            report.shared_pages,
            report.packed_pages,
        )
    };
    ensure!(
        counts(&whole) == counts(&pack),
        "a pack tells {pack:?}, and its volume {whole:?}"
    );
    Ok(())
}
