//! Checks of the source of a request. No foreign page may read or change data through a user's
//! browser.
//!
//! A foreign host name may resolve to this server's address, so that a foreign page counts as the
//! server's own (DNS rebinding). Host must therefore be an address, `localhost` or a configured
//! name. Origin must be the server's own.

use super::request::Request;
use super::response::Response;
use std::net::{IpAddr, Ipv6Addr};

/// Refuses a foreign Host or Origin.
pub(super) fn check(request: &Request<'_>, names: &[String]) -> Result<(), Response> {
    let host = host_name(request.host);
    if !is_own(host, names) {
        let why = format!(
            "this server isn't known as {:?}: ask for it by its address, or name it with --http-host",
            host.chars().take(100).collect::<String>()
        );
        return Err(Response::text(421, why));
    }
    let is_foreign =
        |origin: &str| origin.split_once("://").is_none_or(|(_, of)| !of.eq_ignore_ascii_case(request.host));
    if request.origin.is_some_and(is_foreign)
        || request.fetch_site.is_some_and(|site| !matches!(site, "same-origin" | "none"))
    {
        return Err(Response::text(403, "pages from elsewhere may ask for nothing here"));
    }
    Ok(())
}

/// Returns the host without its port.
fn host_name(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.split(':').next().unwrap_or_default(),
    }
}

fn is_own(host: &str, names: &[String]) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok()
        || host.parse::<Ipv6Addr>().is_ok()
        || names.iter().any(|name| name.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_and_pages_of_others_are_refused() {
        let names = ["db.example".to_string()];
        let status = |host: &str, origin: Option<&str>, fetch_site: Option<&str>| {
            let request = Request { host, origin, fetch_site, ..Request::default() };
            check(&request, &names).map_or_else(|refused| refused.status, |()| 200)
        };
        for host in
            ["127.0.0.1:9216", "127.0.0.1", "[::1]:9216", "localhost:9216", "LocalHost", "DB.example:1"]
        {
            assert_eq!(status(host, None, None), 200, "{host}");
            assert_eq!(status(host, Some(&format!("http://{host}")), Some("same-origin")), 200, "{host}");
            assert_eq!(status(host, Some("http://evil.example"), None), 403, "{host}");
            assert_eq!(status(host, Some("null"), None), 403, "{host}");
            assert_eq!(status(host, None, Some("cross-site")), 403, "{host}");
            assert_eq!(status(host, None, Some("same-site")), 403, "{host}");
        }
        assert_eq!(status("localhost:9216", Some("http://localhost:8000"), None), 403);
        for host in [
            "evil.example:9216",
            "",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "db.example.evil",
            "[",
            "[::1",
        ] {
            assert_eq!(status(host, None, None), 421, "{host}");
        }
    }
}
