//! The host's link: requests are cut into parts, which cross it, and are answered when all of theirs are.

use super::{Ftl, Sim, io};
use crate::admission::{Admitted, Arrived};
use crate::base::Io;
use crate::content::Contents;
use crate::timeline::Tag;
use crate::trace::Op;
use crate::vellum::Asked;
use crate::workload::Request;

pub(super) struct Parent {
    came: u64,
    read: bool,
    parts: u32,
}

pub(super) struct Part {
    parent: u32,
    pub(super) asked: Option<Asked>,
    blocks: u32,
}

impl Part {
    /// In the place of the number that services have.
    pub(super) const NONE: Self = Self {
        parent: 0,
        asked: None,
        blocks: 0,
    };
}

impl Sim {
    /// Requests that are not answered.
    pub(super) fn open(&self) -> usize {
        self.parents.len() - self.free_parents.len()
    }

    pub(super) fn issue(&mut self, mut request: Request) {
        let read = request.op == Op::Read;
        match request.op {
            Op::Read => self.seen.blocks_read += u64::from(request.blocks),
            Op::Write { fua } => self.seen_written(request.blocks, fua),
            _ => {}
        }
        let admitted = self.admitted(&request);
        if let Ftl::Page(drive) = &mut self.ftl
            && matches!(request.op, Op::Write { fua: false })
            && drive.write_at_once(io!(self), request.lba, u64::from(request.blocks))
        {
            self.seen.writes.add(0);
            self.seen.served += 1;
            return;
        }
        let parent = Parent {
            came: self.time.now(),
            read,
            parts: request.blocks.div_ceil(self.part_blocks).max(1),
        };
        let parts = parent.parts;
        let parent = place(&mut self.parents, &mut self.free_parents, parent);
        for part in 0..parts {
            let asked = Asked {
                admitted,
                ..part_of(&mut request, self.part_blocks, part, parts)
            };
            let blocks = asked.blocks;
            let part = Part {
                parent,
                blocks,
                asked: None,
            };
            let id = place(&mut self.parts, &mut self.free_parts, part);
            let asked = Asked { id, ..asked };
            if self.time.is_instant() {
                self.serve(asked);
                continue;
            }
            let crossed = match request.op {
                Op::Write { .. } => self.cross(blocks),
                _ if self.preset.link_in_order => self.link_free.max(self.time.now()),
                _ => self.time.now(),
            };
            self.parts[id as usize].asked = Some(asked);
            self.time
                .at(crossed + self.preset.command_ns, Tag::Arrival(id));
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

    /// Takes the host's link for so many blocks.
    fn cross(&mut self, blocks: u32) -> u64 {
        let takes = self.link_ns[blocks as usize];
        self.link_free = self.link_free.max(self.time.now()) + takes;
        self.link_free
    }

    /// The drive has answered a part.
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
        self.free_parents.push(parent);
    }
}

/// One of a request's parts, of at most so many blocks each, which are taken in order.
fn part_of(request: &mut Request, most: u32, part: u32, parts: u32) -> Asked {
    let first = part * most;
    let blocks = (request.blocks - first).min(most);
    let range = first as usize..(first + blocks) as usize;
    let contents = match request.op {
        Op::Write { .. } if parts > 1 => Contents::from(&request.contents[range.clone()]),
        _ => std::mem::take(&mut request.contents),
    };
    let (homes, sizes) = match parts {
        1 => (request.homes.take(), request.sizes.take()),
        _ => {
            let homes = request.homes.as_ref();
            let sizes = request.sizes.as_ref();
            (
                homes.map(|homes| Box::from(&homes[range.clone()])),
                sizes.map(|sizes| Box::from(&sizes[range])),
            )
        }
    };
    Asked {
        id: 0,
        op: request.op,
        lba: request.lba + u64::from(first),
        blocks,
        contents,
        homes,
        sizes,
        // It is complete with the last of them.
        committed: match part + 1 == parts {
            true => request.committed.take(),
            false => None,
        },
        admitted: Admitted::ALL,
    }
}

fn place<T>(all: &mut Vec<T>, free: &mut Vec<u32>, new: T) -> u32 {
    match free.pop() {
        Some(index) => {
            all[index as usize] = new;
            index
        }
        None => {
            all.push(new);
            all.len() as u32 - 1
        }
    }
}
