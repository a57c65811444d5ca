//! Execution tickets, as in MongoDB: the limit of reads and writes that run at a time. Further commands wait without a
//! thread, in the order of their arrival.
//!
//! A command over a remote store holds a thread while the store works. Local engines have no limit: their commands
//! wait without a thread.

use crate::access::Kind;
use base::bson::Builder;
use database::Queue;
use std::sync::Arc;

/// Maximum numbers of reads and writes that run at a time.
#[derive(Clone, Copy, Debug)]
pub struct ExecutionLimits {
    /// Reads.
    pub reads: usize,
    /// Writes.
    pub writes: usize,
    /// Open transactions.
    pub transactions: usize,
}

/// The queues of a server with limits.
pub(crate) struct Execution {
    reads: Arc<Queue>,
    writes: Arc<Queue>,
    /// Tickets of open transactions, each from before its first statement to its end.
    pub(crate) transactions: Arc<Queue>,
}

impl Execution {
    pub(crate) fn new(limits: ExecutionLimits) -> Execution {
        let queue = |limit| Arc::new(Queue::admitting(limit));
        Execution {
            reads: queue(limits.reads),
            writes: queue(limits.writes),
            transactions: queue(limits.transactions),
        }
    }

    /// Returns the queue of a kind of commands; `None` for commands without a limit.
    pub(crate) fn queue(&self, kind: Kind) -> Option<&Arc<Queue>> {
        match kind {
            Kind::Read => Some(&self.reads),
            Kind::Write => Some(&self.writes),
            Kind::Admin => None,
        }
    }

    /// Appends the section `queues` of serverStatus.
    pub(crate) fn append_to(&self, reply: &mut Builder) {
        reply.begin_document(c"execution");
        for (name, queue) in [(c"write", &self.writes), (c"read", &self.reads)] {
            let (present, limit) = (queue.len(), queue.limit());
            let out = present.min(limit);
            reply.begin_document(name).append(c"out", out as i32).append(c"available", (limit - out) as i32);
            reply.append(c"totalTickets", limit as i32).begin_document(c"normalPriority");
            reply.append(c"queueLength", (present - out) as i64).end().end();
        }
        reply.end();
    }
}
