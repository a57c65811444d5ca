//! Who is logged in on the page: a cookie that no script reads, and a token that no other page knows.
//!
//! Where there are no users there is one token, printed when the server starts: whoever has it may change something.

use super::{Peer, Request};
use crate::auth::Identity;
use crate::server::Server;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::secret;

/// The most that there are at once; the one that was used longest ago makes room.
const SESSIONS_MAX: usize = 256;

/// How long one may be unused.
const IDLE_MAX: Duration = Duration::from_secs(30 * 60);

/// How long one lasts.
const AGE_MAX: Duration = Duration::from_secs(12 * 60 * 60);

/// Those who are logged in, by hashes of their cookies: comparing those tells nothing of a cookie.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<HashMap<[u8; 32], Session>>);

/// Somebody who is logged in.
#[derive(Clone)]
pub(super) struct Session {
    pub(super) identity: Arc<Identity>,
    /// What the page shows with each change.
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
    /// Lets somebody in; what their cookie holds.
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

    /// Whose cookie this is.
    pub(super) fn get(&self, cookie: &str) -> Option<Session> {
        let mut sessions = self.0.lock();
        let session = sessions.get_mut(&key(cookie)).filter(|session| !session.is_over())?;
        session.used = Instant::now();
        Some(session.clone())
    }

    /// Keeps what is known of somebody now; nothing, where they are gone.
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

/// A text that nobody can guess.
pub(super) fn random_text() -> Result<String, String> {
    let random: [u8; 16] = secret::random()?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The cookie's name: browsers don't tell ports of a host apart.
fn cookie_name(peer: Peer) -> String {
    format!("vellum-{}", peer.local.port())
}

/// What a request's cookie of this server holds.
pub(super) fn cookie_of<'a>(request: &Request<'a>, peer: Peer) -> Option<&'a str> {
    let name = cookie_name(peer);
    let mut pairs = request.cookie?.split(';').filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(of, _)| *of == name).map(|(_, value)| value)
}

/// The header that sets the cookie, or takes it away where it is empty.
pub(super) fn set_cookie(cookie: &str, peer: Peer) -> String {
    let age = if cookie.is_empty() { "; Max-Age=0" } else { "" };
    let secure = if peer.is_encrypted { "; Secure" } else { "" };
    format!("{}={cookie}; Path=/; HttpOnly; SameSite=Strict{age}{secure}", cookie_name(peer))
}

impl Server {
    /// What is shown by whoever may change something where there are no users. Drawn once; `None` where the system has
    /// no random numbers, and then nobody may.
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
