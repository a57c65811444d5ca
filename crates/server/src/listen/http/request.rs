//! An HTTP/1.1 request: parsed as a whole within limits, and refused if a foreign page caused it.
//!
//! Unneeded features are refused: chunked bodies, other forms of targets, duplicate header fields.
//! A proxy therefore cannot interpret a request differently from this server.
//!
//! No foreign page may read or change data through a user's browser. A foreign host name may resolve to this server's
//! address, so that a foreign page counts as the server's own (DNS rebinding). Host must therefore be an address,
//! `localhost` or a configured name. Origin must be the server's own.

use super::response::Response;
use base::encoding;
use httparse::{EMPTY_HEADER, Status};
use std::net::{IpAddr, Ipv6Addr};

/// Maximum length of the head, in bytes.
const HEAD_MAX: usize = 8 * 1024;

/// Maximum number of header fields.
const FIELDS_MAX: usize = 64;

/// Maximum length of the target, in bytes.
const TARGET_MAX: usize = 2 * 1024;

/// Maximum length of the body, in bytes. A body contains only a name and a password.
const BODY_MAX: usize = 4 * 1024;

/// A parsed request, borrowed from the received bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Request<'a> {
    /// Method, for example `GET`.
    pub(crate) method: &'a str,
    /// Target before the question mark.
    pub(crate) path: &'a str,
    /// Target after the question mark.
    pub(crate) query: &'a str,
    /// Host header: the client's name for this server.
    pub(crate) host: &'a str,
    /// Origin header: the page that sent the request.
    pub(crate) origin: Option<&'a str>,
    /// Sec-Fetch-Site header: the browser's relation of that page to this server.
    pub(crate) fetch_site: Option<&'a str>,
    pub(crate) authorization: Option<&'a str>,
    pub(crate) cookie: Option<&'a str>,
    /// Token that authorizes a change.
    pub(crate) token: Option<&'a str>,
    pub(crate) body: &'a [u8],
    /// True if the connection stays open.
    pub(crate) stays: bool,
}

/// Status and text for a malformed request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Malformed(pub(crate) u16, pub(crate) &'static str);

impl<'a> Request<'a> {
    /// Parses a request at the start of these bytes. Returns it with its length; `None` if bytes
    /// are missing.
    ///
    /// Errors: a malformed request. The connection is then unusable.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Option<(Request<'a>, usize)>, Malformed> {
        let mut fields = [EMPTY_HEADER; FIELDS_MAX];
        let mut head = httparse::Request::new(&mut fields);
        let within = bytes.get(..HEAD_MAX).unwrap_or(bytes);
        let length = match head.parse(within) {
            Ok(Status::Complete(length)) => length,
            Ok(Status::Partial) if bytes.len() >= HEAD_MAX => {
                return Err(Malformed(431, "the head is longer than 8 KiB"));
            }
            Ok(Status::Partial) => return Ok(None),
            Err(httparse::Error::TooManyHeaders) => return Err(Malformed(431, "more than 64 header fields")),
            Err(httparse::Error::Version) => return Err(Malformed(505, "not HTTP/1.0 or HTTP/1.1")),
            Err(_) => return Err(Malformed(400, "not a request of HTTP/1.1")),
        };
        let is_old = head.version == Some(0);
        let target = head.path.unwrap_or_default();
        if target.len() > TARGET_MAX {
            return Err(Malformed(414, "the target is longer than 2 KiB"));
        }
        if !target.starts_with('/') {
            return Err(Malformed(400, "the target has to begin with /"));
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let method = head.method.unwrap_or_default();
        let mut request = Request { method, path, query, stays: !is_old, ..Request::default() };
        let (mut host, mut body_length, mut connection) = (None, None, None);
        for field in head.headers.iter() {
            let text = || std::str::from_utf8(field.value).map(str::trim);
            let text = || text().map_err(|_| Malformed(400, "a header field is not text"));
            let slot = match field.name.len() {
                4 if field.name.eq_ignore_ascii_case("host") => &mut host,
                6 if field.name.eq_ignore_ascii_case("origin") => &mut request.origin,
                6 if field.name.eq_ignore_ascii_case("cookie") => &mut request.cookie,
                6 if field.name.eq_ignore_ascii_case("expect") => {
                    return Err(Malformed(417, "the header Expect is not supported"));
                }
                10 if field.name.eq_ignore_ascii_case("connection") => &mut connection,
                13 if field.name.eq_ignore_ascii_case("authorization") => &mut request.authorization,
                14 if field.name.eq_ignore_ascii_case("content-length") => &mut body_length,
                14 if field.name.eq_ignore_ascii_case("sec-fetch-site") => &mut request.fetch_site,
                14 if field.name.eq_ignore_ascii_case("x-vellum-token") => &mut request.token,
                17 if field.name.eq_ignore_ascii_case("transfer-encoding") => {
                    return Err(Malformed(501, "chunked bodies are not supported"));
                }
                _ => continue,
            };
            if slot.replace(text()?).is_some() {
                return Err(Malformed(400, "a header field is repeated"));
            }
        }
        request.host = host.or(is_old.then_some("")).ok_or(Malformed(400, "no Host"))?;
        if connection
            .is_some_and(|words| words.split(',').any(|word| word.trim().eq_ignore_ascii_case("close")))
        {
            request.stays = false;
        }
        let body_length = match body_length {
            None => 0,
            Some(text) if text.bytes().all(|c| c.is_ascii_digit()) && !text.is_empty() => {
                text.parse::<usize>().unwrap_or(usize::MAX)
            }
            Some(_) => return Err(Malformed(400, "Content-Length is not a number")),
        };
        if body_length > BODY_MAX {
            return Err(Malformed(413, "the body is longer than 4 KiB"));
        }
        let Some(body) = bytes.get(length..length + body_length) else { return Ok(None) };
        request.body = body;
        Ok(Some((request, length + body_length)))
    }

    /// Returns a query parameter; `None` if it is missing or not valid text.
    pub(crate) fn parameter(&self, name: &str) -> Option<String> {
        parameter(self.query, name)
    }

    /// Returns a parameter in the body.
    pub(crate) fn body_parameter(&self, name: &str) -> Option<String> {
        parameter(std::str::from_utf8(self.body).ok()?, name)
    }
}

/// Returns a parameter of a form.
fn parameter(form: &str, name: &str) -> Option<String> {
    let mut pairs = form.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .find(|(key, _)| *key == name)
        .and_then(|(_, value)| encoding::from_percent(&value.replace('+', " ")))
}

/// Refuses a foreign Host or Origin.
pub(super) fn check_origin(request: &Request<'_>, names: &[String]) -> Result<(), Response> {
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

    fn refused(text: &str) -> u16 {
        Request::read(text.as_bytes()).unwrap_err().0
    }

    #[test]
    fn requests_are_read_whole() {
        let text =
            b"POST /a?b=c%20d&e=f+g HTTP/1.1\r\nHost: x:1\r\nOrigin: http://x:1\r\nX-Vellum-Token: t\r\n\
            Content-Length: 8\r\nConnection: keep-alive, Close\r\n\r\nu=%C3%A4GET /";
        for end in 0..text.len() - 5 {
            assert!(Request::read(&text[..end]).unwrap().is_none(), "{end}");
        }
        let (request, length) = Request::read(text).unwrap().unwrap();
        assert_eq!(&text[length..], b"GET /");
        assert_eq!((request.method, request.path, request.query), ("POST", "/a", "b=c%20d&e=f+g"));
        assert_eq!((request.host, request.origin, request.token), ("x:1", Some("http://x:1"), Some("t")));
        assert!(!request.stays);
        assert_eq!(request.parameter("b").as_deref(), Some("c d"));
        assert_eq!(request.parameter("e").as_deref(), Some("f g"));
        assert_eq!(request.parameter("u"), None);
        assert_eq!(request.body_parameter("u").as_deref(), Some("\u{e4}"));
    }

    #[test]
    fn unsupported_requests_are_refused() {
        for (status, text) in [
            (400, "hello\r\n\r\n"),
            (400, "GET / HTTP/1.1\r\n\r\n"),
            (400, "GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n"),
            (400, "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"),
            (400, "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n"),
            (400, "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx"),
            (413, "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n"),
            (417, "GET / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n"),
            (501, "GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"),
            (505, "GET / HTTP/2.0\r\nHost: x\r\n\r\n"),
        ] {
            assert_eq!(refused(text), status, "{text}");
        }
        let long = "x".repeat(HEAD_MAX);
        assert_eq!(refused(&format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", &long[..TARGET_MAX])), 414);
        assert_eq!(refused(&format!("GET / HTTP/1.1\r\nHost: x\r\nA: {long}")), 431);
        assert_eq!(refused(&format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(65))), 431);
        let (old, _) = Request::read(b"GET / HTTP/1.0\r\n\r\n").unwrap().unwrap();
        assert!(old.host.is_empty() && !old.stays);
    }

    #[test]
    fn names_of_others_and_pages_of_others_are_refused() {
        let names = ["db.example".to_string()];
        let status = |host: &str, origin: Option<&str>, fetch_site: Option<&str>| {
            let request = Request { host, origin, fetch_site, ..Request::default() };
            check_origin(&request, &names).map_or_else(|refused| refused.status, |()| 200)
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
