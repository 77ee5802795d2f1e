//! The oracle of counts: adds up the tables on the medium without the core's help.

use super::driver::{Failure, ensure};
use super::medium::{BLOCK, Broken, Medium};
use super::open;
use std::collections::BTreeMap;
use vellum_core::format::areas::Layout;
use vellum_core::format::superblock::Superblock;
use vellum_core::format::table::{Entry, Link, Signer};
use vellum_core::layout::Recovered;

/// Every non-empty entry of a table in place.
fn entries<E: Entry>(medium: &Medium, superblock: &Superblock) -> Result<Vec<(u64, E)>, Failure> {
    let signer = Signer::new(superblock, crc32c::crc32c);
    let mut all = Vec::new();
    let mut found = Vec::new();
    let mut bytes = [0; BLOCK];
    for block in 0..superblock.table_blocks()[E::KIND as usize] {
        let number = superblock.table_number(E::KIND, block as u32);
        medium.read_into(superblock.table_at(number, 0).0, &mut bytes);
        let (sectors, whole) = signer.decode(number, &bytes, &mut found);
        whole.map_err(|error| format!("block {block} of the {}: {error}", E::KIND.name()))?;
        if let Some(twin) = superblock.map_twin(number, 0) {
            medium.read_into(twin.0, &mut bytes);
            let mut other: Vec<E> = Vec::new();
            let (others, whole) = signer.decode(number, &bytes, &mut other);
            whole.map_err(|error| format!("twin of block {block} of the map: {error}"))?;
            let of_sector = E::KIND.sector_entries();
            for sector in sectors.better_in(others) {
                let newer = sector as usize * of_sector..(sector as usize + 1) * of_sector;
                found[newer.clone()].copy_from_slice(&other[newer]);
            }
        }
        let first = block * E::KIND.entries() as u64;
        let some = (first..)
            .zip(&found)
            .filter(|(_, entry)| **entry != E::default());
        all.extend(some.map(|(index, entry)| (index, *entry)));
    }
    Ok(all)
}

/// Lowers the first count on the medium, for the canary.
pub fn lower_one(medium: &mut Medium) {
    let Ok(found) = open::recover(medium, None) else {
        return;
    };
    let superblock = found.superblock();
    let signer = Signer::new(superblock, crc32c::crc32c);
    let mut bytes = [0; BLOCK];
    for block in 0..superblock.table_blocks()[<u16 as Entry>::KIND as usize] {
        let number = superblock.table_number(<u16 as Entry>::KIND, block as u32);
        let at = superblock.table_at(number, 0).0;
        medium.read_into(at, &mut bytes);
        let mut counts: Vec<u16> = Vec::new();
        let (editions, _) = signer.decode(number, &bytes, &mut counts);
        if let Some(count) = counts.iter_mut().find(|count| **count > 0) {
            *count -= 1;
            signer.encode(number, editions.ends().1, &counts, &mut bytes);
            let cell = medium.tokens.cell(&bytes);
            return medium.replace(at, cell);
        }
    }
}

/// Checks that no count is too low (promise 5), and that the core finds every one that is too high. Returns how many are.
pub fn audit(medium: &Medium) -> Result<u64, Failure> {
    let found = match open::recover(medium, None) {
        Ok(Recovered::Tables(found)) => found,
        Ok(Recovered::Log(_)) => return Err("a log where tables were".into()),
        Err(error) => return Err(format!("recovery: {error}")),
    };
    // The canary is there to try what follows, and that is the core's own word.
    ensure!(
        found.too_low.is_empty() || medium.broken == Broken::CountsTooLow,
        "counts too low: {:?}",
        found.too_low
    );
    if found.superblock.layout() != Layout::Ordered {
        return Ok(found.leaks);
    }
    let superblock = &found.superblock;
    let mut owed: BTreeMap<u64, u64> = BTreeMap::new();
    for (_, link) in entries::<Link>(medium, superblock)? {
        *owed.entry(u64::from(link.unit) - 1).or_default() += 1;
    }
    for (index, _) in entries::<u32>(medium, superblock)? {
        *owed.entry(index).or_default() += 1;
    }
    let mut leaks = 0;
    for (index, count) in entries::<u16>(medium, superblock)? {
        let owed = owed.remove(&index).unwrap_or_default();
        ensure!(
            u64::from(count) >= owed,
            "data block {index} is counted {count} times, and {owed} lead to it"
        );
        leaks += u64::from(u64::from(count) > owed);
    }
    ensure!(
        owed.is_empty(),
        "blocks that are not counted at all: {owed:?}"
    );
    ensure!(
        leaks == found.leaks,
        "{leaks} counts are too high, and the core finds {}",
        found.leaks
    );
    Ok(leaks)
}
