//! Sessions of the page: a cookie that scripts cannot read, and a token that foreign pages cannot
//! know.
//!
//! Without access control a single token authorizes changes. The server prints it at the start.

use super::{Peer, Request};
use crate::auth::Identity;
use crate::server::Server;
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
pub(super) struct Session {
    pub(super) identity: Arc<Identity>,
    /// Token that the page sends with each change.
    pub(super) token: String,
    begun: Instant,
    used: Instant,
}

impl Session {
    fn is_over(&self) -> bool {
        self.used.elapsed() > IDLE_MAX || self.begun.elapsed() > AGE_MAX
    }
}

impl Sessions {
    /// Starts a session. Returns the cookie's value.
    ///
    /// Errors: the system has no random numbers.
    pub(super) fn begin(&self, identity: Arc<Identity>) -> Result<String, String> {
        let (cookie, token) = (random_text()?, random_text()?);
        let now = Instant::now();
        let mut sessions = self.0.lock();
        sessions.retain(|_, session| !session.is_over());
        if sessions.len() >= SESSIONS_MAX {
            let oldest = sessions.iter().min_by_key(|(_, session)| session.used).map(|(key, _)| *key);
            oldest.map(|key| sessions.remove(&key));
        }
        sessions.insert(key(&cookie), Session { identity, token, begun: now, used: now });
        Ok(cookie)
    }

    /// Returns the session of a cookie.
    pub(super) fn get(&self, cookie: &str) -> Option<Session> {
        let mut sessions = self.0.lock();
        let session = sessions.get_mut(&key(cookie)).filter(|session| !session.is_over())?;
        session.used = Instant::now();
        Some(session.clone())
    }

    /// Stores the refreshed identity of a session, or removes the session with `None`.
    pub(super) fn keep(&self, cookie: &str, identity: Option<Arc<Identity>>) {
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
pub(super) fn random_text() -> Result<String, String> {
    let random: [u8; 16] = secret::random()?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns the name of the cookie. It contains the port, since browsers share cookies between ports
/// of a host.
fn cookie_name(peer: Peer) -> String {
    format!("vellum-{}", peer.local.port())
}

/// Returns the value of this server's cookie in a request.
pub(super) fn cookie_of<'a>(request: &Request<'a>, peer: Peer) -> Option<&'a str> {
    let name = cookie_name(peer);
    let mut pairs = request.cookie?.split(';').filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(of, _)| *of == name).map(|(_, value)| value)
}

/// Returns the header that sets the cookie, or deletes it if empty.
pub(super) fn set_cookie(cookie: &str, peer: Peer) -> String {
    let age = if cookie.is_empty() { "; Max-Age=0" } else { "" };
    let secure = if peer.is_encrypted { "; Secure" } else { "" };
    format!("{}={cookie}; Path=/; HttpOnly; SameSite=Strict{age}{secure}", cookie_name(peer))
}

impl Server {
    /// Returns the token that authorizes changes without access control.
    ///
    /// The token is generated once. `None` if the system has no random numbers; changes are then
    /// refused.
    pub fn http_token(&self) -> Option<&str> {
        let token = self.http.token.get_or_init(|| match random_text() {
            Ok(token) => token,
            Err(why) => {
                log::warn!("no token for HTTP: {why}");
                String::new()
            }
        });
        (!self.settings.auth && !token.is_empty()).then_some(token)
    }
}
