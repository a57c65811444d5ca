//! The status page: one document with a policy for browsers. The policy allows only the page's own
//! script and style, and requests to its own server.

use super::Response;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};

const PAGE: &str = include_str!("page.html");

/// Returns the page with its security headers.
pub(super) fn answer() -> Response {
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
    fn the_page_needs_nothing_from_elsewhere() {
        let text = String::from_utf8(answer().bytes(false, true)).unwrap();
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
