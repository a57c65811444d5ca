//! Looking for the next request before sleeping.
//!
//! A processor that slept is slow to wake, and finds its caches cold: a client that sends one request after the other
//! waits for that each time, and the server spends more processor time on it than on the request. So the thread that
//! has answered the only client with requests asks its socket for a short while, giving way to whoever else wants the
//! processor, before it sleeps. A connection for which that was in vain is asked ever less often.

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// How long the next request is looked for, unless somebody says otherwise: longer than a quick client needs between a
/// reply and its next request, and about as long as waking a processor takes.
const USUAL: Duration = Duration::from_micros(50);

/// The most requests of a connection that are not looked for after one wasn't found.
const SKIPPED_MAX: u32 = 1024;

/// A thread that gave way and is back only after this has met somebody else who wants the processor.
const ELSEWHERE: Duration = Duration::from_micros(15);

/// Which connection had the latest request; none at first.
#[derive(Debug, Default)]
pub struct Latest(AtomicI32);

/// [`USUAL`], or zero where there is only one processor, which the client needs.
pub fn usual() -> Duration {
    match std::thread::available_parallelism() {
        Ok(processors) if processors.get() > 1 => USUAL,
        _ => Duration::ZERO,
    }
}

/// How a connection's requests are looked for.
#[derive(Debug)]
pub struct BusyPoll {
    time: Duration,
    /// How many requests to let pass before looking again.
    skips: u32,
    /// How many that will be after the next look that is in vain.
    penalty: u32,
}

impl BusyPoll {
    /// Looks for so long at a time; zero is not at all.
    pub fn new(time: Duration) -> BusyPoll {
        BusyPoll { time, skips: 0, penalty: 1 }
    }

    /// Returns when there is something to read, when the time is over, or at once: where looking is off, has been in
    /// vain lately, or other connections than `id` have requests as well.
    pub fn look(&mut self, id: i32, latest: &Latest, is_readable: impl Fn() -> bool) {
        if self.time.is_zero() {
            return;
        }
        if latest.0.load(Ordering::Relaxed) != id {
            latest.0.store(id, Ordering::Relaxed);
            return;
        }
        if self.skips > 0 {
            self.skips -= 1;
            return;
        }
        let mut asked = Instant::now();
        let until = asked + self.time;
        while latest.0.load(Ordering::Relaxed) == id {
            if is_readable() {
                self.penalty = 1;
                return;
            }
            std::thread::yield_now();
            let now = Instant::now();
            if now >= until || now > asked + ELSEWHERE {
                break;
            }
            asked = now;
        }
        self.skips = self.penalty;
        self.penalty = (self.penalty * 2).min(SKIPPED_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const BRIEFLY: Duration = Duration::from_micros(20);

    /// How often the socket is asked before each of so many requests of connection 1, none of which is there yet.
    fn asked(poll: &mut BusyPoll, latest: &Latest, requests: usize) -> Vec<bool> {
        let looks = (0..requests).map(|_| {
            let asked = Cell::new(false);
            poll.look(1, latest, || {
                asked.set(true);
                false
            });
            asked.get()
        });
        looks.collect()
    }

    #[test]
    fn without_time_nobody_looks() {
        let latest = Latest::default();
        assert_eq!(asked(&mut BusyPoll::new(Duration::ZERO), &latest, 3), [false; 3]);
    }

    #[test]
    fn looking_in_vain_becomes_rarer() {
        let (latest, mut poll) = (Latest::default(), BusyPoll::new(BRIEFLY));
        // The first request makes the connection the latest one.
        let expected = [false, true, false, true, false, false, true, false, false, false, false, true];
        assert_eq!(asked(&mut poll, &latest, expected.len()), expected);
        poll.penalty = SKIPPED_MAX;
        poll.skips = 0;
        asked(&mut poll, &latest, 1);
        assert_eq!((poll.skips, poll.penalty), (SKIPPED_MAX, SKIPPED_MAX));
    }

    #[test]
    fn what_is_there_ends_the_look_and_the_rarity() {
        let (latest, mut poll) = (Latest::default(), BusyPoll::new(Duration::from_secs(60)));
        latest.0.store(1, Ordering::Relaxed);
        poll.penalty = 64;
        let begun = Instant::now();
        poll.look(1, &latest, || true);
        assert!(begun.elapsed() < Duration::from_secs(30));
        assert_eq!((poll.skips, poll.penalty), (0, 1));
    }

    #[test]
    fn a_request_of_another_connection_ends_the_look() {
        let (latest, mut poll) = (Latest::default(), BusyPoll::new(Duration::from_secs(60)));
        latest.0.store(1, Ordering::Relaxed);
        let begun = Instant::now();
        poll.look(1, &latest, || {
            latest.0.store(2, Ordering::Relaxed);
            false
        });
        assert!(begun.elapsed() < Duration::from_secs(30));
        // And whoever comes after somebody else doesn't look.
        assert_eq!(asked(&mut BusyPoll::new(BRIEFLY), &latest, 1), [false]);
    }
}
