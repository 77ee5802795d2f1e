//! Tables that are reached at random, in large pages where the system gives them: with a drive's millions of blocks most
//! misses of the processor are of its translations.

const PAGE_BYTES: usize = 4096;

/// Asks for large pages for memory that is not touched yet. Nothing is lost if the system has none.
pub fn advise(at: *const u8, bytes: usize) {
    let skipped = at.align_offset(PAGE_BYTES);
    let bytes = bytes.saturating_sub(skipped) / PAGE_BYTES * PAGE_BYTES;
    if bytes > 0 {
        // SAFETY: whole pages of memory that the caller has; what is in them stays as it is.
        unsafe {
            libc::madvise(
                at.wrapping_add(skipped).cast_mut().cast(),
                bytes,
                libc::MADV_HUGEPAGE,
            )
        };
    }
}

/// So many of the same.
pub fn table<T: Copy>(each: T, count: usize) -> Vec<T> {
    let mut table: Vec<T> = Vec::with_capacity(count);
    advise(table.as_ptr().cast(), count * size_of::<T>());
    table.resize(count, each);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the mapping that holds an address asks for large pages, as the kernel tells it; nothing where it has none.
    fn is_asked_for(at: usize) -> Option<bool> {
        std::fs::metadata("/sys/kernel/mm/transparent_hugepage").ok()?;
        let smaps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let hex = |text: &str| usize::from_str_radix(text, 16).ok();
        let mut is_there = false;
        for line in smaps.lines() {
            let range = line.split(' ').next().and_then(|word| word.split_once('-'));
            if let Some((start, end)) = range.and_then(|(s, e)| Some((hex(s)?, hex(e)?))) {
                is_there = (start..end).contains(&at);
            } else if is_there && let Some(flags) = line.strip_prefix("VmFlags:") {
                return Some(flags.split_whitespace().any(|flag| flag == "hg"));
            }
        }
        None
    }

    #[test]
    fn a_table_is_in_large_pages_and_holds_what_it_should() {
        let table = table(7u32, 3 << 20);
        assert!(table.len() == 3 << 20 && table.iter().all(|&each| each == 7));
        let middle = table.as_ptr().wrapping_add(table.len() / 2);
        assert_ne!(is_asked_for(middle.addr()), Some(false));
        advise(table.as_ptr().cast(), 0);
    }
}
