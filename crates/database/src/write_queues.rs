//! Queues for records that many statements write at the same time.
//!
//! A statement starts again if its record has changed. After repeated conflicts, it takes a
//! ticket of the record's queue and waits. While it is at the head, new statements for the record wait
//! behind it. Every writer therefore makes progress, and statements without contention pay nothing.

use crate::keys::RecordId;
use crate::operation::{BlockingHook, Operation, RecordTicket, wait_interruptibly};
use base::Result;
use std::sync::Arc;
use storage::{Ident, Queue, Ticket};

/// Number of queues. Records that share a queue wait for each other without need.
const QUEUES: usize = 64;

/// Number of lost races before a statement takes a ticket.
pub(crate) const RESTARTS_BEFORE_QUEUE: usize = 2;

/// The queues of all records.
pub(crate) struct WriteQueues([Arc<Queue>; QUEUES]);

impl Default for WriteQueues {
    fn default() -> WriteQueues {
        WriteQueues(std::array::from_fn(|_| Arc::default()))
    }
}

impl WriteQueues {
    fn queue(&self, ident: Ident, record: RecordId) -> &Arc<Queue> {
        let mixed = (ident.0 ^ record.0.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // The shift leaves a number below the length.
        &self.0[(mixed >> 58) as usize % QUEUES]
    }

    /// Takes a ticket at a record if the statement has lost often enough or the queue is not empty.
    ///
    /// Errors: interrupted waits.
    pub(crate) fn take_if_contended(
        &self,
        ident: Ident,
        record: RecordId,
        conflicts: usize,
        waits: (&Operation, BlockingHook),
    ) -> Result<Option<RecordTicket>> {
        if conflicts < RESTARTS_BEFORE_QUEUE && self.queue(ident, record).is_empty() {
            return Ok(None);
        }
        self.take(ident, record, waits).map(Some)
    }

    /// Takes a ticket at a record, or continues the wait of a suspended statement.
    ///
    /// Errors: interrupted waits; LockBusy for a statement that its caller suspends.
    pub(crate) fn take(
        &self,
        ident: Ident,
        record: RecordId,
        (operation, hook): (&Operation, BlockingHook),
    ) -> Result<RecordTicket> {
        let queue = self.queue(ident, record);
        let previous = operation.take_ticket().filter(|ticket| ticket.is_in(queue));
        let ticket = previous.unwrap_or_else(|| Ticket::take(queue.clone()));
        if ticket.is_admitted() {
            return Ok(ticket);
        }
        if operation.suspends() {
            return Err(operation.suspend(Box::new(ticket.admission_check()), Some(ticket)));
        }
        wait_interruptibly(hook, operation, |should_continue| ticket.wait(should_continue))?;
        Ok(ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use storage::sync::Mutex;

    #[test]
    fn tickets_are_admitted_one_at_a_time_and_in_order() {
        let write_queues = WriteQueues::default();
        let operation = Operation::new(1);
        let waits = || (&operation, (|work| work()) as BlockingHook);
        let (ident, record) = (Ident(3), RecordId(4));
        assert!(write_queues.take_if_contended(ident, record, 0, waits()).unwrap().is_none());
        let ticket = write_queues.take(ident, record, waits()).unwrap();
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for number in 0..3 {
                let (write_queues, order, waits) = (&write_queues, &order, &waits);
                scope.spawn(move || {
                    let _ticket = write_queues.take_if_contended(ident, record, 0, waits()).unwrap().unwrap();
                    order.lock().push(number);
                });
                while write_queues.queue(ident, record).len() != number + 2 {
                    std::thread::yield_now();
                }
            }
            assert!(order.lock().is_empty());
            drop(ticket);
        });
        assert_eq!(*order.lock(), [0, 1, 2]);
        assert!(write_queues.queue(ident, record).is_empty());
    }
}
