//! Requests that wait in a drive's submission queues. While nothing takes time none waits, so the queues are passed over then.

use super::Sim;
use super::open::Waiting;
use crate::flash::Queues;
use crate::queues::Front;
use crate::queues::arbiter::Class;
use crate::queues::plan::Plan;
use crate::workload::Request;

impl Sim {
    /// Puts submission queues before the drive. Nothing may be open.
    pub fn put_queues(&mut self, queues: &Queues, plan: Plan) {
        self.front = Some(Box::new(Front::new(queues, plan)));
    }

    /// A tenant's queue and its class, if the drive has queues.
    #[must_use]
    pub fn queue_of(&self, tenant: u8) -> Option<(u16, Option<Class>)> {
        let plan = self.front.as_ref()?.plan();
        let queue = plan.of(tenant);
        Some((queue, plan.class(queue)))
    }

    /// Puts a request into its queue.
    #[cold]
    pub(super) fn enqueue(&mut self, request: Request) {
        let came = self.time.now();
        if let Some(front) = &mut self.front {
            front.push(request.tenant, Waiting { request, came });
        }
        self.fetch();
    }

    /// Lets the controller take what it may.
    fn fetch(&mut self) {
        while let Some((queue, taken)) = self.front.as_mut().and_then(|front| front.take()) {
            let Waiting { request, came } = taken;
            let waited = self.time.now() - came;
            if let Some(host) = self.tenants.get_mut(usize::from(request.tenant)) {
                host.waited.add(waited);
            }
            self.start(request, came, queue);
        }
    }

    /// Notes that a request of a queue is answered.
    #[cold]
    pub(super) fn leaves_queue(&mut self, queue: u16) {
        if let Some(front) = &mut self.front {
            front.answered(queue);
        }
        self.fetch();
    }
}
