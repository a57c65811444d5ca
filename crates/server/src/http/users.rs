//! Who asks. Where only users get in, HTTP wants the same users: by name and password, over TLS or from this machine.

use super::{Answer, Peer, Request, Response};
use crate::auth::names::UserName;
use crate::auth::password;
use crate::connection::ConnectionState;
use crate::server::Server;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use std::time::{Duration, Instant};

/// Where a user is looked for unless the request says.
const DATABASE: &str = "admin";

/// A connection for as long as one request takes.
pub(super) struct Guest<'a> {
    server: &'a Server,
    /// What commands run on.
    pub(super) state: ConnectionState,
}

impl<'a> Guest<'a> {
    /// One that nobody has logged in on.
    pub(super) fn new(server: &'a Server, peer: Peer) -> Guest<'a> {
        let activity = server.activities.open(peer.client);
        Guest { server, state: ConnectionState::new(activity, peer.local) }
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        self.server.activities.close(&self.state.activity);
    }
}

/// Whoever asks, by the credentials that the request carries (HTTP's Basic), where only users get in.
///
/// Errors: the answer that refuses them.
pub(super) fn by_password<'a>(
    server: &'a Server,
    request: &Request<'_>,
    peer: Peer,
) -> Result<Guest<'a>, Answer> {
    let mut guest = Guest::new(server, peer);
    if !server.auth.enabled() {
        return Ok(guest);
    }
    check_secrecy(peer)?;
    let database = request.parameter("authSource").unwrap_or_else(|| DATABASE.to_string());
    let Some((name, password)) = request.authorization.and_then(basic) else {
        return Err(unauthorized(
            "log in by a user's name and password (Basic); authSource names their database, if it isn't admin",
        ));
    };
    log_in(server, &mut guest.state, &UserName::new(name, database), &password, peer)?;
    Ok(guest)
}

/// Logs a user in, or says why not; somebody who has failed too often waits first.
pub(super) fn log_in(
    server: &Server,
    state: &mut ConnectionState,
    user: &UserName,
    password: &str,
    peer: Peer,
) -> Result<(), Answer> {
    if !peer.has_waited {
        match server.auth.delays.turn(user, peer.client.ip(), Instant::now()) {
            Some(Duration::ZERO) => {}
            Some(turn) => return Err(Answer::Later(turn)),
            None => {
                return Err(Response::text(
                    429,
                    "too many tries for this user from this address wait already",
                )
                .into());
            }
        }
    }
    match password::enter(server, state, user, password) {
        Ok(()) => Ok(()),
        Err(error) => Err(unauthorized(error.message())),
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

fn unauthorized(why: &str) -> Answer {
    Response::text(401, why).with("WWW-Authenticate", "Basic realm=\"vellum\", charset=\"UTF-8\"").into()
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
