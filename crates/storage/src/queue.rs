//! Queues that admit a number of holders at a time, by default one, in the order of arrival.
//!
//! A statement takes a ticket. It waits for its admission with a waker, or it holds its thread. A dropped ticket leaves
//! the queue, wherever it stands.

#[cfg(all(test, feature = "shuttle", feature = "mutants"))]
#[allow(clippy::unwrap_used)]
mod schedule_tests;

use crate::EventCount;
use crate::mutant;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::ops::Deref;
use std::task::Waker;

/// A queue with a limit of holders.
pub struct Queue {
    /// Number of tickets that are admitted at a time.
    limit: usize,
    tickets: Mutex<Tickets>,
    /// Number of tickets, readable without the lock.
    length: AtomicUsize,
    /// Number of the latest admitted ticket.
    admitted: EventCount,
}

impl Default for Queue {
    /// Returns a queue with one holder at a time.
    fn default() -> Queue {
        Queue::admitting(1)
    }
}

#[derive(Default)]
struct Tickets {
    /// Number of the latest ticket.
    latest: u64,
    /// Tickets in order. The first are admitted.
    present: VecDeque<u64>,
}

impl Queue {
    /// Returns a queue with at most `limit` holders at a time.
    pub fn admitting(limit: usize) -> Queue {
        debug_assert!(limit > 0, "a queue without holders");
        Queue {
            limit,
            tickets: Mutex::default(),
            length: AtomicUsize::new(0),
            admitted: EventCount::default(),
        }
    }

    /// Returns the maximum number of holders.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the number of tickets.
    pub fn len(&self) -> usize {
        self.length.load(Ordering::Acquire)
    }

    /// Returns true if there is no ticket.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A ticket in a queue, released when dropped.
pub struct Ticket<Q: Deref<Target = Queue>> {
    queue: Q,
    number: u64,
}

impl<Q: Deref<Target = Queue>> Ticket<Q> {
    /// Takes the next ticket.
    pub fn take(queue: Q) -> Ticket<Q> {
        let number = {
            let mut tickets = queue.tickets.lock();
            tickets.latest += 1;
            let number = tickets.latest;
            tickets.present.push_back(number);
            queue.length.store(tickets.present.len(), Ordering::Release);
            if tickets.present.len() <= queue.limit {
                // A ticket that does not exist yet has no waker.
                _ = queue.admitted.advance_to(number);
            }
            number
        };
        Ticket { queue, number }
    }

    /// Returns true if the ticket belongs to a queue.
    pub fn is_in(&self, queue: &Queue) -> bool {
        std::ptr::eq(&*self.queue, queue)
    }

    /// Returns true if this ticket is admitted.
    pub fn is_admitted(&self) -> bool {
        self.queue.admitted.read() >= self.number
    }

    /// Returns a function that returns true if this ticket is admitted and otherwise registers its waker.
    pub fn admission_check(&self) -> impl FnMut(&Waker) -> bool + Send + use<Q>
    where
        Q: Clone + Send,
    {
        let (queue, number) = (self.queue.clone(), self.number);
        move |waker| queue.admitted.has_reached_as(number, &mut Some(0), waker)
    }

    /// Holds this thread until the ticket is admitted, or until `should_continue` returns false.
    pub fn wait(&self, should_continue: &mut dyn FnMut() -> bool) {
        self.queue.admitted.wait_while(self.number, should_continue);
    }
}

impl<Q: Deref<Target = Queue>> Drop for Ticket<Q> {
    fn drop(&mut self) {
        let queue: &Queue = &self.queue;
        let mut tickets = queue.tickets.lock();
        let position = tickets.present.iter().position(|number| *number == self.number);
        debug_assert!(position.is_some(), "ticket {} is not in its queue", self.number);
        let was_admitted = position.is_some_and(|position| position < queue.limit);
        position.and_then(|position| tickets.present.remove(position));
        queue.length.store(tickets.present.len(), Ordering::Release);
        let next = match mutant!("the last waiter has the turn") {
            true => tickets.present.back(),
            false => tickets.present.get(queue.limit - 1),
        };
        let next = next.copied().filter(|_| was_admitted && !mutant!("the end of a turn wakes no waiter"));
        let wakers = next.map(|number| queue.admitted.advance_to(number));
        drop(tickets);
        if !was_admitted {
            queue.admitted.forget(self.number, 0);
        }
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::task::Wake;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn turns_follow_arrival_and_skip_cancelled_tickets() {
        let queue = Arc::<Queue>::default();
        let woken = Arc::<Woken>::default();
        let waker = Waker::from(woken.clone());
        let comes = |ticket: &Ticket<Arc<Queue>>| ticket.admission_check()(&waker);
        let [first, second, third, fourth] = std::array::from_fn(|_| Ticket::take(queue.clone()));
        assert_eq!([&first, &second, &third, &fourth].map(comes), [true, false, false, false]);
        drop(second);
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
        drop(first);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert_eq!([&third, &fourth].map(comes), [true, false]);
        // A ticket that is dropped at the front admits the next.
        drop(third);
        assert!(comes(&fourth) && fourth.is_admitted() && !queue.is_empty());
        drop(fourth);
        assert!(queue.is_empty() && !queue.admitted.is_awaited());
        assert!(comes(&Ticket::take(queue)));
    }

    #[test]
    fn a_queue_admits_up_to_its_limit() {
        let queue = Arc::new(Queue::admitting(2));
        let woken = Arc::<Woken>::default();
        let waker = Waker::from(woken.clone());
        let comes = |ticket: &Ticket<Arc<Queue>>| ticket.admission_check()(&waker);
        let [first, second, third, fourth] = std::array::from_fn(|_| Ticket::take(queue.clone()));
        assert_eq!([&first, &second, &third, &fourth].map(comes), [true, true, false, false]);
        drop(second);
        assert_eq!([&third, &fourth].map(comes), [true, false]);
        // The end of a waiting ticket admits no other one.
        let fifth = Ticket::take(queue.clone());
        drop(fourth);
        assert!(!comes(&fifth));
        drop((first, third));
        assert!(comes(&fifth) && comes(&Ticket::take(queue.clone())));
        drop(fifth);
        assert!(queue.is_empty() && !queue.admitted.is_awaited());
    }

    #[test]
    fn threads_are_admitted_one_at_a_time() {
        let queue = Queue::default();
        let (inside, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = || {
            for _ in 0..200 {
                let ticket = Ticket::take(&queue);
                ticket.wait(&mut || true);
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                inside.fetch_sub(1, Ordering::SeqCst);
                done.fetch_add(1, Ordering::SeqCst);
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
        assert_eq!(done.into_inner(), 800);
    }
}
