//! Busy polling: a connection's thread polls its socket for a short time before it sleeps.
//!
//! A processor that has slept wakes slowly and with cold caches. A client that sends one request after another pays for
//! this each time. The server also spends more processor time on the wake-up than on the request. The thread of the
//! only busy connection therefore polls its socket before it sleeps, and yields between polls. Polling backs off
//! exponentially on a connection where it finds nothing.

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// Default polling time. Longer than a quick client needs between a reply and its next request, including the time in
/// which the client's processor wakes.
const DEFAULT_TIME: Duration = Duration::from_micros(100);

/// Upper limit of the backoff: requests served without polling after polling found nothing.
const SKIPPED_MAX: u32 = 1024;

/// A yield that takes longer than this shows that another thread needs the processor.
const CONTENDED_YIELD: Duration = Duration::from_micros(15);

/// Id of the connection with the latest request; initially none.
#[derive(Debug, Default)]
pub struct LatestConnection(AtomicI32);

/// Returns [`DEFAULT_TIME`], or zero on a single processor, because the client needs that processor.
pub fn default_time() -> Duration {
    match std::thread::available_parallelism() {
        Ok(processors) if processors.get() > 1 => DEFAULT_TIME,
        _ => Duration::ZERO,
    }
}

/// Polling state of one connection.
#[derive(Debug)]
pub struct BusyPoll {
    /// Polling time in microseconds.
    micros: u32,
    /// Requests to serve before the next poll.
    skips: u32,
    /// Value of `skips` after the next poll that finds nothing.
    backoff: u32,
}

impl BusyPoll {
    /// Polls for at most `time`; zero disables polling.
    pub fn new(time: Duration) -> BusyPoll {
        BusyPoll { micros: u32::try_from(time.as_micros()).unwrap_or(u32::MAX), skips: 0, backoff: 1 }
    }

    /// Polls until data is readable or the time is over.
    ///
    /// Returns at once if polling is disabled, is backing off, or a connection other than `id` also has requests.
    pub fn poll(&mut self, id: i32, latest: &LatestConnection, is_readable: impl Fn() -> bool) {
        if self.micros == 0 {
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
        let mut last = Instant::now();
        let until = last + Duration::from_micros(self.micros.into());
        while latest.0.load(Ordering::Relaxed) == id {
            if is_readable() {
                self.backoff = 1;
                return;
            }
            std::thread::yield_now();
            let now = Instant::now();
            if now >= until || now > last + CONTENDED_YIELD {
                break;
            }
            last = now;
        }
        self.skips = self.backoff;
        self.backoff = (self.backoff * 2).min(SKIPPED_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const BRIEFLY: Duration = Duration::from_micros(20);

    /// Returns, for each of `requests` requests of connection 1, whether the socket was polled. No request is ever
    /// readable.
    fn last(poll: &mut BusyPoll, latest: &LatestConnection, requests: usize) -> Vec<bool> {
        let looks = (0..requests).map(|_| {
            let last = Cell::new(false);
            poll.poll(1, latest, || {
                last.set(true);
                false
            });
            last.get()
        });
        looks.collect()
    }

    #[test]
    fn without_a_time_limit_nothing_polls() {
        let latest = LatestConnection::default();
        assert_eq!(last(&mut BusyPoll::new(Duration::ZERO), &latest, 3), [false; 3]);
    }

    #[test]
    fn looking_in_vain_becomes_rarer() {
        let (latest, mut poll) = (LatestConnection::default(), BusyPoll::new(BRIEFLY));
        // The first request only makes the connection the latest one.
        let expected = [false, true, false, true, false, false, true, false, false, false, false, true];
        assert_eq!(last(&mut poll, &latest, expected.len()), expected);
        poll.backoff = SKIPPED_MAX;
        poll.skips = 0;
        last(&mut poll, &latest, 1);
        assert_eq!((poll.skips, poll.backoff), (SKIPPED_MAX, SKIPPED_MAX));
    }

    #[test]
    fn available_data_ends_the_poll_and_resets_the_interval() {
        let (latest, mut poll) = (LatestConnection::default(), BusyPoll::new(Duration::from_secs(60)));
        latest.0.store(1, Ordering::Relaxed);
        poll.backoff = 64;
        let started = Instant::now();
        poll.poll(1, &latest, || true);
        assert!(started.elapsed() < Duration::from_secs(30));
        assert_eq!((poll.skips, poll.backoff), (0, 1));
    }

    #[test]
    fn a_request_of_another_connection_ends_the_look() {
        let (latest, mut poll) = (LatestConnection::default(), BusyPoll::new(Duration::from_secs(60)));
        latest.0.store(1, Ordering::Relaxed);
        let started = Instant::now();
        poll.poll(1, &latest, || {
            latest.0.store(2, Ordering::Relaxed);
            false
        });
        assert!(started.elapsed() < Duration::from_secs(30));
        // A connection does not poll if the latest request came from another connection.
        assert_eq!(last(&mut BusyPoll::new(BRIEFLY), &latest, 1), [false]);
    }
}
