//! Which pages are hot.
//!
//! The writes of each page are counted, and all counts are halved at intervals, so that they follow the
//! load (Hsieh, Kuo and Chang, "Efficient identification of hot data for flash memory storage systems", ACM TOS 2006; here each
//! page has a counter, there pages share counters by hashes). A page is hot if it is written more often than the mean, and more
//! than once. Its count decides where it goes when it is written, and again when it is moved.

use super::own::Separate;

/// Streams: cold and hot.
pub(super) const STREAMS_MOST: usize = 2;
pub(super) const COLD: usize = 0;
pub(super) const HOT: usize = 1;
/// RAM for each page's count.
pub const COUNT_BYTES: u64 = 1;
/// Counts are halved after this many writes per page. That is enough to distinguish a page written at the mean rate from one at a
/// quarter of it.
const WINDOW: u64 = 4;

/// The counts; see the module.
pub struct Heat {
    counts: Vec<u8>,
    /// The sum of all counts.
    sum: u64,
    /// Writes until the counts are halved.
    left: u64,
    /// Pages of each stream that were overwritten or discarded, halved with the counts: where a page is now says more than where
    /// its next version goes, if the two differ.
    pub(super) died: [u64; STREAMS_MOST],
    /// A policy that replaces the counts, and the number of pages it covers: those of a map on flash are not the host's.
    pub(super) own: Option<(Box<dyn Separate>, u64)>,
}

impl Heat {
    /// Returns counts of 0 for so many pages.
    #[must_use]
    pub fn new(logical: u64) -> Self {
        Self {
            counts: vec![0; logical as usize],
            sum: 0,
            left: logical * WINDOW,
            died: [0; STREAMS_MOST],
            own: None,
        }
    }

    /// Sets the number of pages, including those of a map on flash.
    pub(super) fn cover(&mut self, pages: u64) {
        self.counts.resize(pages as usize, 0);
    }

    /// Returns the stream that a page belongs to.
    pub(super) fn stream(&self, lba: u32) -> usize {
        let count = u64::from(self.counts[lba as usize]);
        match count > 1 && count * self.counts.len() as u64 > self.sum {
            true => HOT,
            false => COLD,
        }
    }

    /// Counts the write of a page. Returns the stream it belongs to.
    pub fn written(&mut self, lba: u32) -> usize {
        if self.left == 0 {
            self.halve();
        }
        self.left -= 1;
        let count = &mut self.counts[lba as usize];
        if *count < u8::MAX {
            *count += 1;
            self.sum += 1;
        }
        match &mut self.own {
            Some((own, pages)) if u64::from(lba) < *pages => of_heat(own.written(lba.into())),
            _ => self.stream(lba),
        }
    }

    /// Returns the stream that a page goes to when it is moved.
    pub(super) fn moved(&mut self, lba: u32, from: usize) -> usize {
        match &mut self.own {
            Some((own, pages)) if u64::from(lba) < *pages => {
                of_heat(own.moved(lba.into(), from == HOT))
            }
            _ => self.stream(lba),
        }
    }

    /// Counts a page of a stream that died.
    pub(super) fn died(&mut self, stream: usize) {
        self.died[stream] += 1;
    }

    #[cold]
    fn halve(&mut self) {
        self.left = self.counts.len() as u64 * WINDOW;
        self.counts.iter_mut().for_each(|count| *count /= 2);
        self.sum = self.counts.iter().map(|&count| u64::from(count)).sum();
        self.died.iter_mut().for_each(|died| *died /= 2);
    }
}

fn of_heat(hot: bool) -> usize {
    match hot {
        true => HOT,
        false => COLD,
    }
}
