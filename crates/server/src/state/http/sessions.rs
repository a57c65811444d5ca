//! Sessions of the page: a cookie that scripts cannot read, and a token that foreign pages cannot
//! know.
//!
//! Without access control a single token authorizes changes. The server prints it at the start.

use crate::access::Identity;
use base::encoding;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::secret;

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
