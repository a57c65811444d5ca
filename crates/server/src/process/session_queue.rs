//! Queues that admit one holder at a time in the order of arrival, without a thread.
//!
//! Retryable writes and transactions of a session run one after another. A command takes a ticket in
//! the queue and polls [`QueueTicket::is_admitted`] with a waker. A dropped ticket admits the next, wherever
//! it stands.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

/// A queue with one holder at a time.
#[derive(Default)]
pub(crate) struct SessionQueue {
    state: Mutex<QueueState>,
}

#[derive(Default)]
struct QueueState {
    /// Number of the next ticket.
    next: u64,
    /// Number of the ticket at the front.
    front: Option<u64>,
    waiters: VecDeque<Waiter>,
}

struct Waiter {
    number: u64,
    waker: Option<Waker>,
}

impl SessionQueue {
    /// Returns true if a ticket holds the front.
    pub(crate) fn is_busy(&self) -> bool {
        self.state.lock().front.is_some()
    }
}

/// An object with a queue.
pub(crate) trait HasQueue {
    fn queue(&self) -> &SessionQueue;
}

/// A ticket in a queue, released when dropped.
pub(crate) struct QueueTicket<T: HasQueue> {
    owner: Arc<T>,
    number: u64,
}

impl<T: HasQueue> QueueTicket<T> {
    /// Takes the next ticket in the queue.
    pub(crate) fn enqueue(owner: Arc<T>) -> QueueTicket<T> {
        let number = {
            let mut state = owner.queue().state.lock();
            let number = state.next;
            state.next += 1;
            match state.front {
                None => state.front = Some(number),
                Some(_) => state.waiters.push_back(Waiter { number, waker: None }),
            }
            number
        };
        QueueTicket { owner, number }
    }

    /// Returns true if this ticket holds the front. Otherwise registers the waker.
    pub(crate) fn is_admitted(&self, waker: &Waker) -> bool {
        is_admitted(self.owner.queue(), self.number, waker)
    }

    /// Returns a function like [`is_admitted`](Self::is_admitted) that does not borrow the ticket.
    pub(crate) fn admission_check(&self) -> impl FnMut(&Waker) -> bool + Send + use<T>
    where
        T: Send + Sync + 'static,
    {
        let (owner, number) = (self.owner.clone(), self.number);
        move |waker| is_admitted(owner.queue(), number, waker)
    }
}

fn is_admitted(queue: &SessionQueue, number: u64, waker: &Waker) -> bool {
    let mut state = queue.state.lock();
    if let Some(ticket) = state.waiters.iter_mut().find(|ticket| ticket.number == number) {
        ticket.waker = Some(waker.clone());
    }
    state.front == Some(number)
}

impl<T: HasQueue> Drop for QueueTicket<T> {
    fn drop(&mut self) {
        let mut state = self.owner.queue().state.lock();
        if state.front != Some(self.number) {
            state.waiters.retain(|ticket| ticket.number != self.number);
            return;
        }
        let next = state.waiters.pop_front();
        state.front = next.as_ref().map(|ticket| ticket.number);
        drop(state);
        if let Some(waker) = next.and_then(|ticket| ticket.waker) {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Thing(SessionQueue);

    impl HasQueue for Thing {
        fn queue(&self) -> &SessionQueue {
            &self.0
        }
    }

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn turns_come_in_the_order_of_arrival_and_pass_over_who_left() {
        let thing = Arc::<Thing>::default();
        let woken = Arc::<Count>::default();
        let waker = Waker::from(woken.clone());
        let comes = |ticket: &QueueTicket<Thing>| ticket.is_admitted(&waker);
        let [first, second, third, fourth] = std::array::from_fn(|_| QueueTicket::enqueue(thing.clone()));
        assert_eq!([&first, &second, &third, &fourth].map(comes), [true, false, false, false]);
        drop(second);
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
        drop(first);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert_eq!([&third, &fourth].map(comes), [true, false]);
        // A ticket that is dropped at the front admits the next.
        drop(third);
        assert!(comes(&fourth) && thing.0.is_busy());
        drop(fourth);
        assert!(!thing.0.is_busy());
        assert!(comes(&QueueTicket::enqueue(thing.clone())));
    }

    #[test]
    fn only_one_at_a_time_under_threads() {
        let thing = Arc::<Thing>::default();
        let (inside, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = || {
            for _ in 0..200 {
                let ticket = QueueTicket::enqueue(thing.clone());
                while !ticket.is_admitted(Waker::noop()) {
                    std::thread::yield_now();
                }
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                inside.fetch_sub(1, Ordering::SeqCst);
                done.fetch_add(1, Ordering::SeqCst);
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
        assert_eq!(done.into_inner(), 800);
    }
}
