//! Queues that admit one holder at a time in the order of arrival, without a thread.
//!
//! Retryable writes and transactions of a session run one after another. A command takes a place in
//! the queue and polls [`Turn::has_come`] with a waker. A dropped place admits the next, wherever
//! it stands.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

/// A queue with one holder at a time.
#[derive(Default)]
pub(crate) struct Line {
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    /// Number of the next place.
    next: u64,
    /// Number of the place at the front.
    front: Option<u64>,
    behind: VecDeque<Place>,
}

struct Place {
    number: u64,
    waker: Option<Waker>,
}

impl Line {
    /// Returns true if a place holds the front.
    pub(crate) fn is_busy(&self) -> bool {
        self.places.lock().front.is_some()
    }
}

/// An object with a queue.
pub(crate) trait HasLine {
    fn line(&self) -> &Line;
}

/// A place in a queue, released when dropped.
pub(crate) struct Turn<T: HasLine> {
    of: Arc<T>,
    number: u64,
}

impl<T: HasLine> Turn<T> {
    /// Takes the next place in the queue.
    pub(crate) fn line_up(of: Arc<T>) -> Turn<T> {
        let number = {
            let mut places = of.line().places.lock();
            let number = places.next;
            places.next += 1;
            match places.front {
                None => places.front = Some(number),
                Some(_) => places.behind.push_back(Place { number, waker: None }),
            }
            number
        };
        Turn { of, number }
    }

    /// Returns true if this place holds the front. Otherwise registers the waker.
    pub(crate) fn has_come(&self, waker: &Waker) -> bool {
        has_come(self.of.line(), self.number, waker)
    }

    /// Returns a function like [`has_come`](Self::has_come) that does not borrow the place.
    pub(crate) fn asker(&self) -> impl FnMut(&Waker) -> bool + Send + use<T>
    where
        T: Send + Sync + 'static,
    {
        let (of, number) = (self.of.clone(), self.number);
        move |waker| has_come(of.line(), number, waker)
    }
}

fn has_come(line: &Line, number: u64, waker: &Waker) -> bool {
    let mut places = line.places.lock();
    if let Some(place) = places.behind.iter_mut().find(|place| place.number == number) {
        place.waker = Some(waker.clone());
    }
    places.front == Some(number)
}

impl<T: HasLine> Drop for Turn<T> {
    fn drop(&mut self) {
        let mut places = self.of.line().places.lock();
        if places.front != Some(self.number) {
            places.behind.retain(|place| place.number != self.number);
            return;
        }
        let next = places.behind.pop_front();
        places.front = next.as_ref().map(|place| place.number);
        drop(places);
        if let Some(waker) = next.and_then(|place| place.waker) {
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
    struct Thing(Line);

    impl HasLine for Thing {
        fn line(&self) -> &Line {
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
        let comes = |turn: &Turn<Thing>| turn.has_come(&waker);
        let [first, second, third, fourth] = std::array::from_fn(|_| Turn::line_up(thing.clone()));
        assert_eq!([&first, &second, &third, &fourth].map(comes), [true, false, false, false]);
        drop(second);
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
        drop(first);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert_eq!([&third, &fourth].map(comes), [true, false]);
        // A place that is dropped at the front admits the next.
        drop(third);
        assert!(comes(&fourth) && thing.0.is_busy());
        drop(fourth);
        assert!(!thing.0.is_busy());
        assert!(comes(&Turn::line_up(thing.clone())));
    }

    #[test]
    fn only_one_at_a_time_under_threads() {
        let thing = Arc::<Thing>::default();
        let (inside, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = || {
            for _ in 0..200 {
                let turn = Turn::line_up(thing.clone());
                while !turn.has_come(Waker::noop()) {
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
