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
    /// Reads of the primary.
    pub reads: usize,
    /// Reads whose preference allows a secondary. They do not delay reads of the primary.
    pub secondary_reads: usize,
    /// Writes.
    pub writes: usize,
    /// Open transactions.
    pub transactions: usize,
}

/// The queues of a server with limits.
pub(crate) struct Execution {
    reads: Arc<Queue>,
    secondary_reads: Arc<Queue>,
    writes: Arc<Queue>,
    /// Tickets of open transactions, each from before its first statement to its end.
    pub(crate) transactions: Arc<Queue>,
}

impl Execution {
    pub(crate) fn new(limits: ExecutionLimits) -> Execution {
        let queue = |limit| Arc::new(Queue::admitting(limit));
        Execution {
            reads: queue(limits.reads),
            secondary_reads: queue(limits.secondary_reads),
            writes: queue(limits.writes),
            transactions: queue(limits.transactions),
        }
    }

    /// Returns the queue of a kind of commands; `None` for commands without a limit. `secondary_ok` is true if the read
    /// preference allows a secondary.
    pub(crate) fn queue(&self, kind: Kind, secondary_ok: bool) -> Option<&Arc<Queue>> {
        match kind {
            Kind::Read if secondary_ok => Some(&self.secondary_reads),
            Kind::Read => Some(&self.reads),
            Kind::Write => Some(&self.writes),
            Kind::Admin => None,
        }
    }

    /// Appends the section `queues` of serverStatus.
    pub(crate) fn append_to(&self, reply: &mut Builder) {
        reply.begin_document(c"execution");
        for (name, queues) in
            [(c"write", &[&self.writes][..]), (c"read", &[&self.reads, &self.secondary_reads])]
        {
            let (mut out, mut limit, mut waiting) = (0, 0, 0);
            for queue in queues {
                let present = queue.len();
                out += present.min(queue.limit());
                waiting += present.saturating_sub(queue.limit());
                limit += queue.limit();
            }
            reply.begin_document(name).append(c"out", out as i32).append(c"available", (limit - out) as i32);
            reply.append(c"totalTickets", limit as i32).begin_document(c"normalPriority");
            reply.append(c"queueLength", waiting as i64).end().end();
        }
        reply.end();
    }
}
