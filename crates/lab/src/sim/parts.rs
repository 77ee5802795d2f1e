//! The host's link: requests are cut into parts that cross it. A request is answered when all its parts are.

use super::open::{NO_QUEUE, Parent, Part, place};
use super::{Ftl, RunError, Sim, io};
use crate::admission::{Admitted, Arrived};
use crate::base::Io;
use crate::content::Contents;
use crate::flash::Stream;
use crate::timeline::Tag;
use crate::trace::Op;
use crate::vellum::Submitted;
use crate::workload::{Bytes, Request};
use std::ops::Range;

impl Sim {
    /// Requests not answered yet.
    pub(super) fn open(&self) -> usize {
        let waiting = self.front.as_ref().map_or(0, |front| front.waiting());
        self.parents.len() - self.free_parents.len() + waiting
    }

    /// The error when nothing can happen any more.
    pub(super) fn stalled(&self) -> RunError {
        let open = self.open();
        RunError::Stalled { open }
    }

    /// Takes a request from the host. It goes to the drive at once, or into its submission queue.
    pub(super) fn issue(&mut self, request: Request) {
        match request.op {
            Op::Read => self.seen.blocks_read += u64::from(request.blocks),
            Op::Write { fua } => self.seen_written(request.blocks, fua),
            _ => {}
        }
        if !self.tenants.is_empty() {
            self.tenant_asks(&request);
        }
        if self.front.is_some() && !self.time.is_instant() {
            self.enqueue(request);
        } else {
            self.start(request, self.time.now(), NO_QUEUE);
        }
    }

    /// Sends a request that came at `came` to the drive.
    #[inline]
    pub(super) fn start(&mut self, mut request: Request, came: u64, queue: u16) {
        let read = request.op == Op::Read;
        let admitted = self.admitted(&request);
        let tags = self.tags.as_mut();
        let stream = Stream::of(tags.map_or(0, |tags| tags.handle(&request)));
        if let Ftl::Page(drive) = &mut self.ftl
            && matches!(request.op, Op::Write { fua: false })
            && drive.write_at_once(io!(self), stream, request.lba, u64::from(request.blocks))
        {
            debug_assert_eq!(
                queue, NO_QUEUE,
                "nothing waits in a queue while nothing takes time"
            );
            self.seen.writes.add(0);
            self.seen.served += 1;
            if !self.tenants.is_empty() {
                self.tenant_is_answered(request.tenant, (false, request.blocks), 0);
            }
            return;
        }
        let parent = Parent {
            came,
            read,
            tenant: request.tenant,
            queue,
            parts: request.blocks.div_ceil(self.part_blocks).max(1),
        };
        let parts = parent.parts;
        let parent = place(&mut self.parents, &mut self.free_parents, parent);
        for part in 0..parts {
            let submitted = Submitted {
                admitted,
                stream,
                ..part_of(&mut request, self.part_blocks, part, parts)
            };
            let blocks = submitted.blocks;
            let part = Part {
                parent,
                blocks,
                submitted: None,
            };
            let id = place(&mut self.parts, &mut self.free_parts, part);
            let submitted = Submitted { id, ..submitted };
            if self.time.is_instant() {
                self.serve(submitted);
                continue;
            }
            let crossed = match request.op {
                Op::Write { .. } => self.cross(blocks),
                _ if self.preset.link_in_order => self.link_free.max(self.time.now()),
                _ => self.time.now(),
            };
            self.parts[id as usize].submitted = Some(submitted);
            self.time
                .at(crossed + self.preset.command_ns, Tag::Arrival(id));
        }
    }

    // Cold: runs without tenants do not need it.
    #[cold]
    fn tenant_asks(&mut self, request: &Request) {
        if let Some(host) = self.tenants.get_mut(usize::from(request.tenant)) {
            host.asks(request, self.time.now());
        }
    }

    #[cold]
    fn tenant_is_answered(&mut self, tenant: u8, (read, blocks): (bool, u32), took: u64) {
        if let Some(host) = self.tenants.get_mut(usize::from(tenant)) {
            host.is_answered(read, blocks, (took, self.time.now()));
        }
    }

    fn admitted(&mut self, request: &Request) -> Admitted {
        match (&mut self.admission, request.op) {
            (Some(admission), Op::Write { fua }) => admission.admit(&Arrived {
                lba: request.lba,
                contents: &request.contents,
                now: self.time.now(),
                durable: fua,
            }),
            _ => Admitted::ALL,
        }
    }

    fn seen_written(&mut self, blocks: u32, fua: bool) {
        if self.seen.blocks_written >= self.seen.series.due() {
            self.seen.series.add(self.moment());
        }
        self.seen.blocks_written += u64::from(blocks);
        self.seen.durable_writes += u64::from(fua);
    }

    /// Occupies the host's link for `blocks` blocks; returns when they have crossed.
    fn cross(&mut self, blocks: u32) -> u64 {
        let takes = self.link_ns[blocks as usize];
        self.link_free = self.link_free.max(self.time.now()) + takes;
        self.link_free
    }

    /// Notes that the drive has answered a part.
    pub(super) fn answered(&mut self, part: u32) {
        let Part { parent, blocks, .. } = self.parts[part as usize];
        if self.parents[parent as usize].read && !self.time.is_instant() {
            let crossed = self.cross(blocks);
            self.time.at(crossed, Tag::Answer(part));
        } else {
            self.at_host(part);
        }
    }

    pub(super) fn at_host(&mut self, part: u32) {
        let Part { parent, blocks, .. } = self.parts[part as usize];
        self.free_parts.push(part);
        let request = &mut self.parents[parent as usize];
        request.parts -= 1;
        if request.parts > 0 {
            return;
        }
        let took = self.time.now() - request.came;
        let seen = match (request.read, blocks) {
            (true, _) => &mut self.seen.reads,
            (false, 0) => &mut self.seen.flushes,
            (false, _) => &mut self.seen.writes,
        };
        seen.add(took);
        self.seen.served += 1;
        let queue = request.queue;
        if !self.tenants.is_empty() {
            let (tenant, read) = (request.tenant, request.read);
            self.tenant_is_answered(tenant, (read, blocks), took);
        }
        self.free_parents.push(parent);
        if queue != NO_QUEUE {
            self.leaves_queue(queue);
        }
    }
}

/// One of a request's parts, of at most `most` blocks each. Parts must be taken in order.
#[inline]
fn part_of(request: &mut Request, most: u32, part: u32, parts: u32) -> Submitted {
    let first = part * most;
    let blocks = (request.blocks - first).min(most);
    let range = first as usize..(first + blocks) as usize;
    let contents = match request.op {
        Op::Write { .. } if parts > 1 => Contents::from(&request.contents[range.clone()]),
        _ => std::mem::take(&mut request.contents),
    };
    let (bytes, sizes) = match parts {
        1 => (request.bytes.take(), request.sizes.take()),
        _ => {
            let sizes = request.sizes.as_ref();
            (
                bytes_of(request, &range),
                sizes.map(|sizes| Box::from(&sizes[range])),
            )
        }
    };
    Submitted {
        id: 0,
        op: request.op,
        lba: request.lba + u64::from(first),
        blocks,
        contents,
        bytes,
        sizes,
        // The transaction is complete with the last part.
        committed: match part + 1 == parts {
            true => request.committed.take(),
            false => None,
        },
        admitted: Admitted::ALL,
        stream: Stream::default(),
    }
}

/// The bytes of one of its parts.
#[cold]
fn bytes_of(request: &Request, part: &Range<usize>) -> Bytes {
    let bytes = request.bytes.as_ref()?.iter();
    let within = bytes.filter(|(index, _)| part.contains(&(*index as usize)));
    let own = within.map(|(index, bytes)| (index - part.start as u32, bytes.clone()));
    Some(own.collect())
}
