//! Who asks. Where only users get in, HTTP wants the same users: by name and password, over TLS or from this machine.

use super::{Answer, Peer, Request, Response, sessions};
use crate::auth::login;
use crate::auth::password;
use crate::connection::ConnectionState;
use crate::names::UserName;
use crate::server::Server;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use std::time::{Duration, Instant};

/// Where a user is looked for unless the request says.
pub(super) const DATABASE: &str = "admin";

/// A connection for as long as one request takes.
pub(super) struct Guest<'a> {
    pub(super) server: &'a Server,
    /// What commands run on.
    pub(super) state: ConnectionState,
    /// What has to be shown with a change.
    pub(super) token: Option<String>,
}

impl<'a> Guest<'a> {
    /// One that nobody has logged in on.
    pub(super) fn new(server: &'a Server, peer: Peer) -> Guest<'a> {
        let activity = server.activities.open(peer.client);
        Guest { server, state: ConnectionState::new(activity, peer.local), token: None }
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        self.server.activities.close(&self.state.activity);
    }
}

/// Whoever asks. Where only users get in: by the page's cookie, or by the credentials that the request carries (HTTP's
/// Basic).
///
/// Errors: the answer that refuses them.
pub(super) fn guest<'a>(server: &'a Server, request: &Request<'_>, peer: Peer) -> Result<Guest<'a>, Answer> {
    let mut guest = Guest::new(server, peer);
    if !server.auth.enabled() {
        guest.token = server.http_token().map(str::to_string);
        return Ok(guest);
    }
    if let Some(cookie) = sessions::cookie_of(request, peer)
        && let Some(session) = server.http.sessions.get(cookie)
    {
        guest.state.identity = Some(session.identity);
        login::refresh(server, &mut guest.state).map_err(|error| Response::text(503, error.message()))?;
        server.http.sessions.keep(cookie, guest.state.identity.clone());
        guest.token = Some(session.token);
        if guest.state.identity.is_some() {
            return Ok(guest);
        }
    }
    check_secrecy(peer)?;
    let database = request.parameter("authSource").unwrap_or_else(|| DATABASE.to_string());
    let Some((name, password)) = request.authorization.and_then(basic) else {
        let why = "log in by a user's name and password; authSource names their database, if it isn't admin";
        return Err(unauthorized(request, why));
    };
    log_in(guest, &UserName::new(name, database), &password, request, peer)
}

/// Logs a user in, or says why not; somebody who has failed too often waits first.
pub(super) fn log_in<'a>(
    mut guest: Guest<'a>,
    user: &UserName,
    password: &str,
    request: &Request<'_>,
    peer: Peer,
) -> Result<Guest<'a>, Answer> {
    let server = guest.server;
    if !peer.has_waited {
        match server.auth.delays.turn(user, peer.client.ip(), Instant::now()) {
            Some(Duration::ZERO) => {}
            Some(turn) => return Err(Answer::Later(turn)),
            None => {
                let why = "too many tries for this user from this address wait already";
                return Err(Response::text(429, why).into());
            }
        }
    }
    match password::enter(server, &mut guest.state, user, password) {
        Ok(()) => Ok(guest),
        Err(error) => Err(unauthorized(request, error.message())),
    }
}

/// Refuses to hear a password that others on the way could hear.
pub(super) fn check_secrecy(peer: Peer) -> Result<(), Answer> {
    match peer.is_encrypted || peer.client.ip().to_canonical().is_loopback() {
        true => Ok(()),
        false => Err(Response::text(
            403,
            "passwords are taken over TLS (--tls-mode, --tls-certificate-key-file) or from this machine alone",
        )
        .into()),
    }
}

/// Asks for a user: where it isn't our page that asks, in the way that browsers and scrapers understand.
fn unauthorized(request: &Request<'_>, why: &str) -> Answer {
    let response = Response::text(401, why);
    match request.path == "/metrics" && request.fetch_site != Some("same-origin") {
        true => response.with("WWW-Authenticate", "Basic realm=\"vellum\", charset=\"UTF-8\"").into(),
        false => response.into(),
    }
}

/// Name and password as HTTP's Basic writes them.
fn basic(authorization: &str) -> Option<(String, String)> {
    let (scheme, encoded) = authorization.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(BASE64_STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (name, password) = text.split_once(':')?;
    Some((name.to_string(), password.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basic_credentials_are_a_name_and_a_password() {
        assert_eq!(basic("Basic dTpwOnE="), Some(("u".to_string(), "p:q".to_string())));
        for wrong in ["", "Basic", "Basic dQ==", "Bearer dTpw", "Basic ????", "Basic /w=="] {
            assert_eq!(basic(wrong), None, "{wrong}");
        }
    }
}
