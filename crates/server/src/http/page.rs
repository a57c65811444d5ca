//! The page: one document, and what it may do in a browser: run its own script, wear its own style, ask its own server.

use super::Response;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};

const PAGE: &str = include_str!("page.html");

/// The page.
pub(super) fn answer() -> Response {
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
        hash("<script>", "</script>"),
        hash("<style>", "</style>"),
    );
    Response::new(200, "text/html; charset=utf-8", PAGE).with("Content-Security-Policy", &policy)
}

/// The hash of what stands between two tags, as a policy names it.
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
