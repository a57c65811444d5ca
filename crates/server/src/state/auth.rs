//! State of authentication that all connections share, with the delays after failed logins.
//!
//! For a user from one address a few failures are free. Each further attempt waits longer than the attempt before it.
//! Other addresses are not delayed, and neither are other users behind the same load balancer.

use crate::access::Requirements;
use crate::observe::counters::Logins;
use crate::protocol::names::UserName;
use crate::state::settings::Settings;
use base::CompatibleWith;
use database::Database;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use wire::secret;

/// Authentication state that all connections share.
pub(crate) struct Auth {
    /// The database of users and roles.
    pub(crate) database: Arc<Database>,
    /// True if other servers may share the database.
    pub(crate) is_shared: bool,
    /// True if a local client may create the first user.
    pub(crate) localhost_exception: bool,
    /// MongoDB version of the server's behaviour.
    pub(crate) compatible_with: CompatibleWith,
    /// Returns the needs of the command with a name.
    pub(crate) requirements_of: fn(&str) -> Option<Requirements>,
    /// Counters of logins.
    pub(crate) logins: Logins,
    enabled: bool,
    /// Enabled mechanisms.
    mechanisms: Vec<String>,
    /// Secret from which salts of unknown users are derived.
    secret: OnceLock<[u8; 32]>,
    /// Delays after failed logins.
    pub(crate) delays: Delays,
    /// Held during each read-modify-write of users or roles.
    pub(crate) changing: Mutex<()>,
    /// Cached result of `has_any`, with its generation and time.
    pub(crate) has_any: Mutex<Option<(u64, Instant, bool)>>,
}

impl Auth {
    /// Creates the state from the options.
    pub(crate) fn new(
        settings: &Settings,
        database: Arc<Database>,
        requirements_of: fn(&str) -> Option<Requirements>,
    ) -> Auth {
        Auth {
            database,
            is_shared: settings.shared,
            localhost_exception: settings.localhost_exception,
            compatible_with: settings.compatible_with,
            requirements_of,
            logins: Logins::default(),
            enabled: settings.auth,
            mechanisms: settings.mechanisms.clone(),
            secret: OnceLock::new(),
            delays: Delays::default(),
            changing: Mutex::new(()),
            has_any: Mutex::new(None),
        }
    }

    /// Returns true if access control is enabled.
    pub(crate) fn enabled(&self) -> bool {
        self.enabled
    }

    /// Returns true if a mechanism is enabled.
    pub(crate) fn takes(&self, mechanism: &str) -> bool {
        self.mechanisms.iter().any(|known| known == mechanism)
    }

    /// Returns the enabled mechanisms.
    pub(crate) fn mechanisms(&self) -> &[String] {
        &self.mechanisms
    }

    /// Returns the secret, generated on first use.
    pub(crate) fn secret(&self) -> std::result::Result<&[u8; 32], String> {
        if let Some(secret) = self.secret.get() {
            return Ok(secret);
        }
        let drawn = secret::random()?;
        Ok(self.secret.get_or_init(|| drawn))
    }
}

/// Number of failures without a delay.
const FREE: u32 = 5;

/// First delay. Each further delay doubles.
const FIRST: Duration = Duration::from_millis(100);

/// Maximum increase of the delay.
const STEP_MAX: Duration = Duration::from_secs(2);

/// Maximum wait of an attempt. Beyond it the attempt is refused at once.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Time after which failures expire.
const MEMORY: Duration = Duration::from_secs(15 * 60);

/// Maximum number of entries.
const ENTRIES_MAX: usize = 10_000;

/// Failed logins by user and address.
#[derive(Default)]
pub(crate) struct Delays {
    /// Keyed by a hash of user and address, since clients choose the length of names.
    failures: Mutex<HashMap<u64, Failures>>,
    hasher: RandomState,
}

#[derive(Clone, Copy)]
struct Failures {
    count: u32,
    last: Instant,
    /// Earliest time of the next attempt.
    free_at: Instant,
}

impl Failures {
    fn step(&self) -> Duration {
        match self.count.checked_sub(FREE) {
            None => Duration::ZERO,
            Some(beyond) => FIRST.saturating_mul(1 << beyond.min(16)).min(STEP_MAX),
        }
    }
}

impl Delays {
    /// Reserves the next attempt and returns its delay; `None` if too many attempts already wait.
    pub(crate) fn reserve(&self, user: &UserName, client: IpAddr, now: Instant) -> Option<Duration> {
        let mut failures = self.failures.lock();
        let Some(known) = failures.get_mut(&self.key(user, client)) else { return Some(Duration::ZERO) };
        let step = known.step();
        if step.is_zero() {
            return Some(Duration::ZERO);
        }
        let begins = known.free_at.max(known.last + step).max(now);
        let wait = begins - now;
        if wait > WAIT_MAX {
            return None;
        }
        known.free_at = begins + step;
        Some(wait)
    }

    /// Records a failed attempt.
    pub(crate) fn failed(&self, user: &UserName, client: IpAddr, now: Instant) {
        let mut failures = self.failures.lock();
        if failures.len() >= ENTRIES_MAX {
            failures.retain(|_, known| now.duration_since(known.last) < MEMORY);
        }
        if failures.len() >= ENTRIES_MAX {
            // A flood of invented names does not evict users with many failures.
            failures.retain(|_, known| known.count >= FREE);
        }
        if failures.len() >= ENTRIES_MAX {
            failures.clear();
        }
        let known =
            failures.entry(self.key(user, client)).or_insert(Failures { count: 0, last: now, free_at: now });
        if now.duration_since(known.last) >= MEMORY {
            known.count = 0;
        }
        known.count = known.count.saturating_add(1);
        known.last = now;
    }

    /// Removes the failures after a successful login.
    pub(crate) fn succeeded(&self, user: &UserName, client: IpAddr) {
        self.failures.lock().remove(&self.key(user, client));
    }

    fn key(&self, user: &UserName, client: IpAddr) -> u64 {
        self.hasher.hash_one((user, client))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guessing_gets_slower_for_one_user_from_one_address() {
        let delays = Delays::default();
        let (user, other) = (UserName::new("u", "admin"), UserName::new("v", "admin"));
        let (here, there) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let now = Instant::now();
        for _ in 0..FREE {
            assert_eq!(delays.reserve(&user, here, now), Some(Duration::ZERO));
            delays.failed(&user, here, now);
        }
        // Concurrent attempts queue behind each other.
        assert_eq!(delays.reserve(&user, here, now), Some(FIRST));
        assert_eq!(delays.reserve(&user, here, now), Some(2 * FIRST));
        for (user, client) in [(&user, there), (&other, here)] {
            assert_eq!(delays.reserve(user, client, now), Some(Duration::ZERO));
        }
        for _ in 0..50 {
            delays.failed(&user, here, now);
        }
        let waits: Vec<_> = std::iter::from_fn(|| delays.reserve(&user, here, now)).collect();
        assert!(waits.len() <= 6 && waits.iter().all(|wait| *wait <= WAIT_MAX), "{waits:?}");
        delays.succeeded(&user, here);
        assert_eq!(delays.reserve(&user, here, now), Some(Duration::ZERO));
    }

    #[test]
    fn failures_are_forgotten_and_bounded() {
        let delays = Delays::default();
        let address = "10.0.0.1".parse().unwrap();
        let now = Instant::now();
        let user = UserName::new("u", "admin");
        for _ in 0..FREE {
            delays.failed(&user, address, now);
        }
        delays.failed(&user, address, now + MEMORY);
        assert_eq!(delays.reserve(&user, address, now + MEMORY), Some(Duration::ZERO));
        for _ in 0..FREE {
            delays.failed(&user, address, now + MEMORY);
        }
        for number in 0..ENTRIES_MAX + 10 {
            delays.failed(&UserName::new(number.to_string(), "d"), address, now + MEMORY);
        }
        assert!(delays.failures.lock().len() <= ENTRIES_MAX);
        assert_ne!(delays.reserve(&user, address, now + MEMORY), Some(Duration::ZERO));
    }
}
