//! Queues for records that many statements write at the same time.
//!
//! A statement starts again if its record has changed. After repeated losses, it takes a turn: it
//! waits in the record's queue. While it is at the head, new statements for the record wait behind
//! it. Every writer therefore makes progress, and statements without contention pay nothing.

#[cfg(all(test, feature = "shuttle", feature = "mutants"))]
#[allow(clippy::unwrap_used)]
mod schedule_tests;

use crate::keys::RecordId;
use crate::operation::{BlockingHook, wait_through};
use base::Result;
use query::Interrupt;
use std::collections::VecDeque;
use std::time::Duration;
use storage::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use storage::sync::{Condvar, Mutex, MutexGuard};
use storage::{Ident, mutant};

/// Number of queues. Records that share a queue wait for each other without need.
const QUEUES: usize = 64;

/// Number of lost races before a statement takes a turn.
pub(crate) const RESTARTS_BEFORE_QUEUE: usize = 2;

/// Interval between interrupt checks of a wait.
const ASK: Duration = Duration::from_millis(10);

/// The queues of all records.
pub(crate) struct WriteQueues {
    queues: [Queue; QUEUES],
    tickets: AtomicU64,
}

#[derive(Default)]
struct Queue {
    /// Length of the queue, readable without the lock.
    length: AtomicUsize,
    tickets: Mutex<VecDeque<u64>>,
    moved: Condvar,
}

/// The place at the head of a queue. Dropping it ends the turn.
pub(crate) struct QueueGuard<'a> {
    queue: &'a Queue,
    ticket: u64,
}

impl Default for WriteQueues {
    fn default() -> WriteQueues {
        WriteQueues { queues: std::array::from_fn(|_| Queue::default()), tickets: AtomicU64::new(0) }
    }
}

impl WriteQueues {
    fn queue(&self, ident: Ident, record: RecordId) -> &Queue {
        let mixed = (ident.0 ^ record.0.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // The shift leaves a number below the length.
        &self.queues[(mixed >> 58) as usize % QUEUES]
    }

    /// Takes a turn at a record if the statement has lost often enough or the queue is not empty.
    ///
    /// Errors: interrupted waits.
    pub(crate) fn take_if_contended(
        &self,
        ident: Ident,
        record: RecordId,
        losses: usize,
        (interrupt, hook): (&dyn Interrupt, BlockingHook),
    ) -> Result<Option<QueueGuard<'_>>> {
        let contended = self.queue(ident, record).length.load(Ordering::Acquire) > 0;
        if losses < RESTARTS_BEFORE_QUEUE && !contended {
            return Ok(None);
        }
        self.take(ident, record, (interrupt, hook)).map(Some)
    }

    /// Takes a turn at a record.
    ///
    /// Errors: interrupted waits.
    pub(crate) fn take(
        &self,
        ident: Ident,
        record: RecordId,
        (interrupt, hook): (&dyn Interrupt, BlockingHook),
    ) -> Result<QueueGuard<'_>> {
        let queue = self.queue(ident, record);
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        let turn = QueueGuard { queue, ticket };
        let first = {
            let mut tickets = queue.tickets.lock();
            match mutant!("the last waiter has the turn") {
                true => tickets.push_front(ticket),
                false => tickets.push_back(ticket),
            }
            queue.length.store(tickets.len(), Ordering::Release);
            tickets.len() == 1
        };
        if !first {
            wait_through(hook, interrupt, |should_continue| turn.wait(should_continue))?;
        }
        Ok(turn)
    }
}

impl QueueGuard<'_> {
    fn wait(&self, should_continue: &mut dyn FnMut() -> bool) {
        let mut tickets = self.queue.tickets.lock();
        while tickets.front() != Some(&self.ticket) {
            self.queue.moved.wait_for(&mut tickets, ASK);
            let mut going = true;
            MutexGuard::unlocked(&mut tickets, || going = should_continue());
            if !going {
                return;
            }
        }
    }
}

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        let mut tickets = self.queue.tickets.lock();
        let before = tickets.len();
        tickets.retain(|ticket| *ticket != self.ticket);
        debug_assert_eq!(tickets.len() + 1, before, "ticket {} is not in its queue", self.ticket);
        self.queue.length.store(tickets.len(), Ordering::Release);
        drop(tickets);
        if !mutant!("the end of a turn wakes no waiter") {
            self.queue.moved.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use query::context::Uninterrupted;

    #[test]
    fn turns_are_taken_one_at_a_time_and_in_order() {
        let write_queues = WriteQueues::default();
        let waits = || (&Uninterrupted as &dyn Interrupt, (|work| work()) as BlockingHook);
        let (ident, record) = (Ident(3), RecordId(4));
        assert!(write_queues.take_if_contended(ident, record, 0, waits()).unwrap().is_none());
        let held = write_queues.take(ident, record, waits()).unwrap();
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for number in 0..3 {
                let (write_queues, order) = (&write_queues, &order);
                scope.spawn(move || {
                    let _turn = write_queues.take_if_contended(ident, record, 0, waits()).unwrap().unwrap();
                    order.lock().push(number);
                });
                while write_queues.queue(ident, record).length.load(Ordering::Acquire) != number + 2 {
                    std::thread::yield_now();
                }
            }
            assert!(order.lock().is_empty());
            drop(held);
        });
        assert_eq!(*order.lock(), [0, 1, 2]);
        assert_eq!(write_queues.queue(ident, record).length.load(Ordering::Acquire), 0);
    }
}
