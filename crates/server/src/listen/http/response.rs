//! HTTP/1.1 responses, and the status page: one document with a policy for browsers. The policy allows only the page's
//! own script and style, and requests to its own server.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::fmt::Write;

/// Headers of all responses: no caching, no type sniffing, no frames.
const GUARDS: &str = "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n\
    Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n";

/// A response to a request.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    content_type: &'static str,
    fields: String,
    body: Cow<'static, str>,
}

impl Response {
    /// Creates a response with a body of this type.
    pub(crate) fn new(
        status: u16,
        content_type: &'static str,
        body: impl Into<Cow<'static, str>>,
    ) -> Response {
        Response { status, content_type, fields: String::new(), body: body.into() }
    }

    /// Creates a response with a text.
    pub(crate) fn text(status: u16, body: impl Into<String>) -> Response {
        let body: String = body.into();
        Response::new(status, "text/plain; charset=utf-8", body + "\n")
    }

    /// Adds a header field.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Response {
        // A write to a string does not fail.
        let _ = write!(self.fields, "{name}: {value}\r\n");
        self
    }

    /// Returns the bytes to send. `head_alone` omits the body. `stays` keeps the connection open.
    pub(crate) fn bytes(&self, head_alone: bool, stays: bool) -> Vec<u8> {
        let (status, reason) = (self.status, reason(self.status));
        let connection = if stays { "keep-alive" } else { "close" };
        let mut text = format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: {connection}\r\n\
             {GUARDS}{}\r\n",
            self.content_type,
            self.body.len(),
            self.fields,
        );
        if !head_alone {
            text.push_str(&self.body);
        }
        text.into_bytes()
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        414 => "URI Too Long",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        505 => "HTTP Version Not Supported",
        _ => "Service Unavailable",
    }
}

const PAGE: &str = include_str!("page.html");

/// Returns the page with its security headers.
pub(super) fn page() -> Response {
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
        hash("<script>", "</script>"),
        hash("<style>", "</style>"),
    );
    Response::new(200, "text/html; charset=utf-8", PAGE).with("Content-Security-Policy", &policy)
}

/// Returns the hash of the text between two tags, in the form of Content-Security-Policy.
fn hash(begin: &str, end: &str) -> String {
    let inner = PAGE.split_once(begin).and_then(|(_, rest)| rest.split_once(end));
    let digest = Sha256::digest(inner.map_or("", |(inner, _)| inner));
    format!("sha256-{}", BASE64_STANDARD.encode(digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_have_a_length_and_guards() {
        let response = Response::text(405, "only GET").with("Allow", "GET");
        let text = String::from_utf8(response.bytes(false, true)).unwrap();
        assert!(text.starts_with("HTTP/1.1 405 Method Not Allowed\r\n"), "{text}");
        assert!(text.contains("\r\nContent-Length: 9\r\n") && text.contains("\r\nAllow: GET\r\n"), "{text}");
        assert!(text.contains("nosniff") && text.ends_with("\r\n\r\nonly GET\n"), "{text}");
        let head = String::from_utf8(response.bytes(true, false)).unwrap();
        assert!(head.contains("Connection: close") && head.ends_with("\r\n\r\n"), "{head}");
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let text = String::from_utf8(page().bytes(false, true)).unwrap();
        assert!(
            text.contains("\r\nContent-Security-Policy: default-src 'none'; script-src 'sha256-"),
            "{text}"
        );
        for tag in ["<script>", "<style>"] {
            assert_eq!(PAGE.matches(tag).count(), 1, "{tag}");
        }
        for outside in [" src=", "<link", "@import", "url(", "style=", "onclick=\""] {
            assert!(!PAGE.contains(outside), "{outside}");
        }
    }
}
