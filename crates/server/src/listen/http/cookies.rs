//! Session cookie of the page.

use super::{Peer, Request};

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
