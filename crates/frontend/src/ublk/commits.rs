//! The way back to the kernel. A queue's thread alone has it: the kernel accepts the end of a tag from no other.

use super::node::Node;
use super::ring::Ring;
use super::uapi::{self, IoCommand};
use io_uring::{opcode, squeue, types};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

/// The ring of a queue.
pub struct Commits {
    queue: u16,
    node: Arc<Node>,
    ring: RefCell<Ring>,
    /// Room for what is returned at once.
    returned: RefCell<Vec<(u16, i32)>>,
}

thread_local! {
    /// That of this thread, if it is a queue's.
    static HERE: RefCell<Option<Rc<Commits>>> = const { RefCell::new(None) };
}

impl Commits {
    /// Those of this thread, which is the queue's.
    pub fn here(queue: u16, node: Arc<Node>, ring: Ring) -> Rc<Self> {
        let this = Rc::new(Self {
            queue,
            node,
            ring: RefCell::new(ring),
            returned: RefCell::default(),
        });
        HERE.set(Some(Rc::clone(&this)));
        this
    }

    /// Returns results to the kernel at once, if this is their queue's thread: it may go on with work that nobody needs to wait for.
    /// Those that are left go with the thread's next turn.
    pub fn at_once(queue: u16, node: &Arc<Node>, ended: &Mutex<Vec<(u16, i32)>>) {
        let here = HERE.with_borrow(Option::clone);
        let here = here.filter(|it| it.queue == queue && Arc::ptr_eq(&it.node, node));
        let Some(here) = here else { return };
        let returned = &mut *here.returned.borrow_mut();
        // Not under the lock, which others need to report results.
        std::mem::swap(&mut *ended.lock(), returned);
        if returned.is_empty() {
            return;
        }
        while let Some(&(tag, result)) = returned.last()
            && here.command(uapi::COMMIT_AND_FETCH, tag, result).is_ok()
        {
            returned.pop();
        }
        ended.lock().append(returned);
        // What the kernel does not take now is still in the ring.
        let _ = here.ring.borrow().submit();
    }

    /// Gives the kernel a tag.
    pub fn command(&self, code: u32, tag: u16, result: i32) -> io::Result<()> {
        let command = IoCommand::new(self.queue, tag, result);
        let entry = opcode::UringCmd80::new(types::Fd(self.node.fd()), code)
            .cmd(command.encode())
            .build()
            .user_data(u64::from(tag));
        self.push(&entry)
    }

    /// Appends an entry without an address.
    pub fn push(&self, entry: &squeue::Entry128) -> io::Result<()> {
        // SAFETY: neither a command with user copy nor a poll carries an address.
        unsafe { self.ring.borrow_mut().submission().push(entry) }
            .map_err(|_| io::Error::other("the queue's ring is full"))
    }

    /// Submits, and waits for so many completions.
    pub fn submit(&self, wanted: usize) -> io::Result<usize> {
        self.ring.borrow().submit_and_wait(wanted)
    }

    /// What has ended: numbers, and results.
    pub fn ends(&self) -> Vec<(u64, i32)> {
        let mut ring = self.ring.borrow_mut();
        let ends = ring.completion().map(|end| (end.user_data(), end.result()));
        ends.collect()
    }
}
