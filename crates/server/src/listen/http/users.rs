//! Users of HTTP requests. With access control, HTTP requires the same users: by name and password,
//! over TLS or from this machine.

use super::{Answer, Exchange, Peer, Request, Response};
use crate::auth::login;
use crate::protocol::names::UserName;
use crate::server::Server;
use crate::state::connection::ConnectionState;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use std::time::{Duration, Instant};

/// Default authentication database.
pub(super) const DATABASE: &str = "admin";

/// A connection for one request.
pub(super) struct HttpClient<'a> {
    pub(super) server: &'a Server,
    /// Connection state that commands run on.
    pub(super) state: ConnectionState,
    /// Token that a change must send.
    pub(super) token: Option<String>,
}

impl<'a> HttpClient<'a> {
    /// Returns a connection without a user.
    pub(super) fn new(server: &'a Server, peer: Peer) -> HttpClient<'a> {
        let activity = server.activities.open(peer.client);
        HttpClient { server, state: ConnectionState::new(activity, peer.local), token: None }
    }
}

impl Drop for HttpClient<'_> {
    fn drop(&mut self) {
        self.server.activities.close(&self.state.activity);
    }
}

/// Returns the connection of a request with its user. With access control, the user comes from the
/// page's cookie or from HTTP Basic credentials.
///
/// Errors: the response that refuses the request.
pub(super) fn client(exchange: Exchange<'_>) -> Result<HttpClient<'_>, Answer> {
    let Exchange { server, request, peer } = exchange;
    let mut client = HttpClient::new(server, peer);
    if !server.auth.enabled() {
        client.token = server.http_token().map(str::to_string);
        return Ok(client);
    }
    if let Some(cookie) = cookie_of(request, peer)
        && let Some(session) = server.http.sessions.get(cookie)
    {
        client.state.identity = Some(session.identity);
        login::refresh(&server.auth, &mut client.state)
            .map_err(|error| Response::text(503, error.message()))?;
        server.http.sessions.keep(cookie, client.state.identity.clone());
        client.token = Some(session.token);
        if client.state.identity.is_some() {
            return Ok(client);
        }
    }
    check_secrecy(peer)?;
    let database = request.parameter("authSource").unwrap_or_else(|| DATABASE.to_string());
    let Some((name, password)) = request.authorization.and_then(basic) else {
        let why = "log in with a user's name and password; authSource is the user's database, if it is not \
         admin";
        return Err(unauthorized(request, why));
    };
    log_in(client, &UserName::new(name, database), &password, request, peer)
}

/// Authenticates a user. After too many failures the result is a delay.
pub(super) fn log_in<'a>(
    mut client: HttpClient<'a>,
    user: &UserName,
    password: &str,
    request: &Request<'_>,
    peer: Peer,
) -> Result<HttpClient<'a>, Answer> {
    let server = client.server;
    if !peer.has_waited {
        match server.auth.delays.reserve(user, peer.client.ip(), Instant::now()) {
            Some(Duration::ZERO) => {}
            Some(delay) => return Err(Answer::Later(delay)),
            None => {
                let why = "too many logins of this user from this address are waiting";
                return Err(Response::text(429, why).into());
            }
        }
    }
    match login::authenticate_by_password(&server.auth, &server.parameters, &mut client.state, user, password)
    {
        Ok(()) => Ok(client),
        Err(error) => Err(unauthorized(request, error.message())),
    }
}

/// Refuses a password over an unencrypted remote connection.
pub(super) fn check_secrecy(peer: Peer) -> Result<(), Response> {
    match peer.is_encrypted || peer.client.ip().to_canonical().is_loopback() {
        true => Ok(()),
        false => Err(Response::text(
            403,
            "passwords are accepted only over TLS (--tls-mode, --tls-certificate-key-file) or from this \
             machine",
        )),
    }
}

/// Requests authentication. For `/metrics`, clients other than the page get a Basic challenge,
/// which browsers and scrapers understand.
fn unauthorized(request: &Request<'_>, why: &str) -> Answer {
    let response = Response::text(401, why);
    match request.path == "/metrics" && request.fetch_site != Some("same-origin") {
        true => response.with("WWW-Authenticate", "Basic realm=\"vellum\", charset=\"UTF-8\"").into(),
        false => response.into(),
    }
}

/// Decodes name and password of HTTP Basic.
fn basic(authorization: &str) -> Option<(String, String)> {
    let (scheme, encoded) = authorization.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(BASE64_STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (name, password) = text.split_once(':')?;
    Some((name.to_string(), password.to_string()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basic_credentials_are_a_name_and_a_password() {
        assert_eq!(basic("Basic dTpwOnE="), Some(("u".to_string(), "p:q".to_string())));
        for invalid in ["", "Basic", "Basic dQ==", "Bearer dTpw", "Basic ????", "Basic /w=="] {
            assert_eq!(basic(invalid), None, "{invalid}");
        }
    }
}
