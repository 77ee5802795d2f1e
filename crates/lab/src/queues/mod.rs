//! A drive's submission queues: what waits in them, and what the controller takes next.
//!
//! A host puts a command into a queue. The controller takes commands from the queues while it works on fewer than it can, as the
//! [`arbiter`] says. A command keeps its place in the queue until it is answered, as Linux keeps its tag. So what does not fit
//! waits in the host, in order, and reaches the queue when an earlier command is answered.
//!
//! Invariants: commands of one queue are taken in their order; each is taken once; the controller takes a command whenever it may.

pub mod arbiter;
pub mod plan;

use crate::flash::Queues;
use arbiter::Arbiter;
use plan::Plan;
use std::collections::VecDeque;

/// A queue, with what waits for a place in it.
struct Queue<T> {
    /// Not taken by the controller.
    waiting: VecDeque<T>,
    /// Taken and not answered.
    taken: u32,
}

/// The queues of a drive; see the module.
pub struct Front<T> {
    arbiter: Arbiter,
    plan: Plan,
    queues: Vec<Queue<T>>,
    depth: u32,
    /// Commands that the controller may take more.
    free: u32,
    /// Commands of all queues that are not taken.
    waiting: usize,
}

impl<T> Front<T> {
    /// Empty queues.
    #[must_use]
    pub fn new(queues: &Queues, plan: Plan) -> Self {
        let empty = |_: &arbiter::Class| Queue {
            waiting: VecDeque::new(),
            taken: 0,
        };
        Self {
            arbiter: Arbiter::new(queues, plan.classes()),
            queues: plan.classes().iter().map(empty).collect(),
            plan,
            depth: queues.depth.max(1),
            free: queues.commands.max(1),
            waiting: 0,
        }
    }

    /// Which tenant has which queue.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Commands that the controller has not taken.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Puts a tenant's command into its queue.
    pub fn push(&mut self, tenant: u8, command: T) {
        let queue = usize::from(self.plan.of(tenant));
        self.queues[queue].waiting.push_back(command);
        self.waiting += 1;
    }

    /// Takes the next command, with the number of its queue. None if none waits, or the controller has to answer one first.
    pub fn take(&mut self) -> Option<(u16, T)> {
        if self.free == 0 || self.waiting == 0 {
            return None;
        }
        let (queues, depth) = (&self.queues, self.depth);
        let has = |queue: usize| queues[queue].taken < depth && !queues[queue].waiting.is_empty();
        let queue = self.arbiter.pick(has)?;
        let own = &mut self.queues[queue];
        let command = own.waiting.pop_front()?;
        own.taken += 1;
        self.free -= 1;
        self.waiting -= 1;
        Some((queue as u16, command))
    }

    /// Notes that a command of a queue is answered.
    pub fn answered(&mut self, queue: u16) {
        self.queues[usize::from(queue)].taken -= 1;
        self.free += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::Weights;
    use crate::rng::Rng;

    fn front(queues: Queues, tenants: usize) -> Front<u32> {
        let names = vec!["x"; tenants];
        let plan = Plan::new(Some(&queues), &names, &[]).unwrap().unwrap();
        Front::new(&queues, plan)
    }

    #[test]
    fn no_command_is_lost_or_taken_twice_and_each_queue_keeps_its_order() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut number = |most: u64| 1 + rng.below(most) as u32;
            let queues = Queues {
                count: number(6),
                depth: number(20),
                commands: number(40),
                burst: 1 << (number(7) - 1),
                weights: (number(2) == 1).then(|| Weights {
                    high: number(9),
                    medium: number(9),
                    low: number(9),
                }),
            };
            let tenants = number(9) as usize;
            let mut front = front(queues, tenants);
            let (mut pushed, mut taken) = (0u32, Vec::new());
            // What waits, and what is taken, by queue.
            let mut waiting = vec![VecDeque::new(); queues.count as usize];
            let mut open: Vec<u16> = Vec::new();
            let mut step = |pushes: bool| {
                if pushes && rng.below(2) == 0 {
                    let tenant = rng.below(tenants as u64) as u8;
                    front.push(tenant, pushed);
                    waiting[usize::from(front.plan().of(tenant))].push_back(pushed);
                    pushed += 1;
                } else if !open.is_empty() {
                    let queue = open.swap_remove(rng.below(open.len() as u64) as usize);
                    front.answered(queue);
                }
                while let Some((queue, command)) = front.take() {
                    assert_eq!(waiting[usize::from(queue)].pop_front(), Some(command));
                    taken.push(command);
                    open.push(queue);
                }
                let of = |queue: usize| open.iter().filter(|&&q| usize::from(q) == queue).count();
                assert!(open.len() <= queues.commands as usize);
                for (queue, waits) in waiting.iter().enumerate() {
                    assert!(of(queue) <= queues.depth as usize);
                    // The controller takes a command whenever it may.
                    let may =
                        open.len() < queues.commands as usize && of(queue) < queues.depth as usize;
                    assert!(waits.is_empty() || !may, "{seed}: queue {queue}");
                }
                assert_eq!(
                    front.waiting(),
                    waiting.iter().map(VecDeque::len).sum::<usize>()
                );
                front.waiting() + open.len()
            };
            (0..3000).for_each(|_| {
                step(true);
            });
            assert!((0..4000).any(|_| step(false) == 0), "{seed}: some are left");
            taken.sort_unstable();
            assert!(taken.into_iter().eq(0..pushed), "{seed}");
        }
    }

    #[test]
    fn one_queue_takes_commands_in_the_order_they_came() {
        let mut front = front(
            Queues {
                count: 1,
                depth: 3,
                commands: 2,
                burst: 4,
                weights: None,
            },
            3,
        );
        (0..9).for_each(|command| front.push(command as u8 % 3, command));
        let mut order = Vec::new();
        for _ in 0..9 {
            while let Some((queue, command)) = front.take() {
                assert_eq!(queue, 0);
                order.push(command);
            }
            front.answered(0);
        }
        assert!(order.into_iter().eq(0..9));
    }
}
