//! Requests that are answered when all their parts are.

use crate::addr::RequestId;
use crate::seam::Refusal;
use alloc::vec::Vec;

#[derive(Clone, Copy, Debug, Default)]
struct InProgress {
    left: u32,
    refusal: Option<Refusal>,
}

/// By request number; these are small.
#[derive(Debug, Default)]
pub(super) struct InParts(Vec<InProgress>);

impl InParts {
    /// Starts a request with `parts` parts in flight, at least one.
    pub fn begin(&mut self, id: RequestId, parts: u32) {
        let index = id.0 as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, InProgress::default());
        }
        self.0[index] = InProgress {
            left: parts,
            refusal: None,
        };
    }

    /// Ends one part. Returns the answer, if it was the last. The first refusal decides.
    pub fn end_part(
        &mut self,
        id: RequestId,
        refusal: Option<Refusal>,
    ) -> Option<Result<(), Refusal>> {
        let request = &mut self.0[id.0 as usize];
        request.left -= 1;
        request.refusal = request.refusal.or(refusal);
        (request.left == 0).then(|| request.refusal.map_or(Ok(()), Err))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Pba;

    #[test]
    fn the_last_part_brings_the_answer_and_the_first_refusal_decides_it() {
        let mut requests = InParts::default();
        requests.begin(RequestId(2), 1);
        requests.begin(RequestId(0), 3);
        assert_eq!(requests.end_part(RequestId(2), None), Some(Ok(())));
        let corrupt = Refusal::Corrupt(Pba(7));
        assert_eq!(requests.end_part(RequestId(0), Some(corrupt)), None);
        let later = Refusal::Unreadable(Pba(8));
        assert_eq!(requests.end_part(RequestId(0), Some(later)), None);
        assert_eq!(requests.end_part(RequestId(0), None), Some(Err(corrupt)));
        requests.begin(RequestId(0), 1);
        assert_eq!(requests.end_part(RequestId(0), None), Some(Ok(())));
    }
}
