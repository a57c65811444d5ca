//! State of the HTTP server: address, counters, samples, sessions of the page.
//!
//! The page draws samples of all operations since the start, also for the time before it was opened. Once the ring of
//! samples is full, pairs of samples are merged, and each sample covers twice the time.
//!
//! A session is a cookie that scripts cannot read, and a token that foreign pages cannot know. Without access control a
//! single token authorizes changes. The server prints it at the start.

use crate::access::Identity;
use crate::observe::operations::{BUCKETS, FIRST_BOUND, LatencyHistogram};
use crate::process::Counter;
use crate::process::connection_limit::ConnectionLimit;
use base::encoding;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use wire::secret;

/// Address and host names of the HTTP server.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpOptions {
    /// Address and port; 0 selects a free port.
    pub address: SocketAddr,
    /// Accepted host names, in addition to addresses and `localhost`.
    pub names: Vec<String>,
}

/// State and counters of HTTP.
#[derive(Default)]
pub(crate) struct Http {
    /// Listening address, set when the server listens.
    pub(crate) address: OnceLock<SocketAddr>,
    /// Address of the MongoDB protocol for local clients.
    pub(crate) server: OnceLock<String>,
    /// Operations over time.
    pub(crate) history: History,
    /// Connection limit.
    pub(crate) connection_limit: ConnectionLimit,
    /// Connections refused by the limit.
    pub(crate) rejected: Counter,
    /// Responses by path, in the order of [`PATHS`], with one entry for other paths.
    pub(crate) requests: [ResponseCounters; PATHS.len() + 1],
    /// Token that authorizes changes while access control is off.
    token: OnceLock<String>,
    /// Sessions of the page's users.
    pub(crate) sessions: Sessions,
}

/// Responses to requests for one path.
#[derive(Default)]
pub(crate) struct ResponseCounters {
    /// Counts by status class, from 2xx.
    pub(crate) by_class: [Counter; 4],
    /// Latencies of the answers.
    pub(crate) times: LatencyHistogram,
}

/// Valid paths.
pub(crate) const PATHS: [&str; 12] = [
    "/",
    "/healthz",
    "/history",
    "/kill",
    "/login",
    "/logout",
    "/metrics",
    "/operations",
    "/readyz",
    "/session",
    "/slow",
    "/working-set",
];

impl Http {
    /// Counts a response.
    pub(crate) fn count(&self, path: &str, status: u16, took: Duration) {
        let at = PATHS.iter().position(|known| *known == path).unwrap_or(PATHS.len());
        let Some(counters) = self.requests.get(at) else { return };
        counters.times.record(took);
        if let Some(count) = counters.by_class.get(usize::from(status / 100).saturating_sub(2)) {
            count.add(1);
        }
    }

    /// Returns the token that permits changes without access control. The token is drawn once. It is
    /// empty if the system has no random numbers.
    pub(crate) fn token(&self) -> &str {
        self.token.get_or_init(|| match random_text() {
            Ok(token) => token,
            Err(why) => {
                log::warn!("cannot create the HTTP token: {why}");
                String::new()
            }
        })
    }
}

/// Interval between two samples of the counters.
pub(crate) const INTERVAL: Duration = Duration::from_secs(2);

/// Maximum number of samples.
const SAMPLES_MAX: usize = 300;

/// Operations in a span of time, or since the start.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) writes: u64,
    /// Operations by duration.
    pub(crate) durations: [u64; BUCKETS],
}

impl Counts {
    fn combine(&self, other: &Counts, with: impl Fn(u64, u64) -> u64) -> Counts {
        let mut out = Counts { writes: with(self.writes, other.writes), ..*self };
        out.durations.iter_mut().zip(other.durations).for_each(|(one, other)| *one = with(*one, other));
        out
    }

    pub(crate) fn operations(&self) -> u64 {
        self.durations.iter().sum()
    }

    /// Returns the upper bound of this percentile in microseconds.
    pub(crate) fn percentile(&self, percent: u64) -> Option<i64> {
        let all = self.operations();
        let mut seen = 0;
        let reached = self.durations.iter().position(|count| {
            seen += count;
            all > 0 && seen * 100 >= all * percent
        });
        reached.map(|at| 1 << (FIRST_BOUND as usize + at))
    }
}

/// Samples of a server.
#[derive(Default)]
pub(crate) struct History(Mutex<Samples>);

#[derive(Default)]
struct Samples {
    /// Sums at the last sample.
    last: Counts,
    /// The sample in progress and its number of intervals.
    open: (Counts, u32),
    /// The logarithm of the number of intervals in a sample.
    doublings: u32,
    closed: Vec<Counts>,
}

impl Samples {
    fn add(&mut self, now: Counts) {
        let since = now.combine(&self.last, u64::saturating_sub);
        self.last = now;
        self.open = (self.open.0.combine(&since, u64::saturating_add), self.open.1 + 1);
        if self.open.1 < 1 << self.doublings {
            return;
        }
        self.closed.push(std::mem::take(&mut self.open).0);
        if self.closed.len() == SAMPLES_MAX {
            let pairs = self.closed.chunks_exact(2);
            self.closed = pairs
                .map(|pair| {
                    pair.iter().fold(Counts::default(), |sum, one| sum.combine(one, u64::saturating_add))
                })
                .collect();
            self.doublings += 1;
        }
    }

    fn seconds(&self) -> f64 {
        INTERVAL.as_secs_f64() * f64::from(1u32 << self.doublings)
    }
}

impl History {
    /// Adds a sample: the counts since the start. The caller calls it once per [`INTERVAL`].
    pub(crate) fn sample(&self, now: Counts) {
        self.0.lock().add(now);
    }

    /// Returns the seconds that each sample covers, and the samples.
    pub(crate) fn samples(&self) -> (f64, Vec<Counts>) {
        let samples = self.0.lock();
        (samples.seconds(), samples.closed.clone())
    }
}

/// Maximum number of sessions. A new session replaces the least recently used.
const SESSIONS_MAX: usize = 256;

/// Maximum idle time.
const IDLE_MAX: Duration = Duration::from_secs(30 * 60);

/// Maximum age.
const AGE_MAX: Duration = Duration::from_secs(12 * 60 * 60);

/// Sessions by hashes of their cookies. A lookup by hash leaks no timing about cookies.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<HashMap<[u8; 32], Session>>);

/// A session of an authenticated user.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) identity: Arc<Identity>,
    /// Token that the page sends with each change.
    pub(crate) token: String,
    started: Instant,
    used: Instant,
}

impl Session {
    fn is_over(&self) -> bool {
        self.used.elapsed() > IDLE_MAX || self.started.elapsed() > AGE_MAX
    }
}

impl Sessions {
    /// Starts a session. Returns the cookie's value.
    ///
    /// Errors: the system has no random numbers.
    pub(crate) fn begin(&self, identity: Arc<Identity>) -> Result<String, String> {
        let (cookie, token) = (random_text()?, random_text()?);
        let now = Instant::now();
        let mut sessions = self.0.lock();
        sessions.retain(|_, session| !session.is_over());
        if sessions.len() >= SESSIONS_MAX {
            let oldest = sessions.iter().min_by_key(|(_, session)| session.used).map(|(key, _)| *key);
            oldest.map(|key| sessions.remove(&key));
        }
        sessions.insert(key(&cookie), Session { identity, token, started: now, used: now });
        Ok(cookie)
    }

    /// Returns the session of a cookie.
    pub(crate) fn get(&self, cookie: &str) -> Option<Session> {
        let mut sessions = self.0.lock();
        let session = sessions.get_mut(&key(cookie)).filter(|session| !session.is_over())?;
        session.used = Instant::now();
        Some(session.clone())
    }

    /// Stores the refreshed identity of a session, or removes the session with `None`.
    pub(crate) fn keep(&self, cookie: &str, identity: Option<Arc<Identity>>) {
        let mut sessions = self.0.lock();
        match identity {
            None => _ = sessions.remove(&key(cookie)),
            Some(identity) => {
                if let Some(session) = sessions.get_mut(&key(cookie)) {
                    session.identity = identity;
                }
            }
        }
    }
}

fn key(cookie: &str) -> [u8; 32] {
    Sha256::digest(cookie).into()
}

/// Returns an unguessable text.
pub(crate) fn random_text() -> Result<String, String> {
    let random: [u8; 16] = secret::random()?;
    Ok(encoding::hex(&random))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(operations: u64, writes: u64, at: usize) -> Counts {
        let mut counts = Counts { writes, ..Counts::default() };
        counts.durations[at] = operations;
        counts
    }

    #[test]
    fn samples_are_differences_and_merge_once_there_are_many() {
        let mut samples = Samples::default();
        for number in 1..=1000 {
            samples.add(counts(number * 10, number, 0));
        }
        // 300 samples of one interval became 150 of two, 300 of these 150 of four, …
        assert!(samples.closed.len() < SAMPLES_MAX, "{}", samples.closed.len());
        assert_eq!(samples.doublings, 2);
        assert_eq!(samples.seconds(), 8.0);
        assert!(samples.closed.iter().all(|one| one.operations() == 40 && one.writes == 4));
        let sum: u64 = samples.closed.iter().map(Counts::operations).sum();
        assert_eq!(sum + samples.open.0.operations(), 10_000);
    }

    #[test]
    fn percentiles_are_upper_bounds() {
        assert_eq!(Counts::default().percentile(50), None);
        let both = counts(98, 0, 0).combine(&counts(2, 0, 3), |one, other| one + other);
        assert_eq!(both.percentile(50), Some(16));
        assert_eq!(both.percentile(98), Some(16));
        assert_eq!(both.percentile(99), Some(128));
    }
}
