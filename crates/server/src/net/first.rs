//! What a client begins with: MongoDB's protocol, TLS, or HTTP by mistake.

use wire::header::HEADER_SIZE;
use wire::header::read_i32;

/// What people read who point a browser at the port, in MongoDB's own words.
const WEB_TEXT: &str =
    "It looks like you are trying to access MongoDB over HTTP on the native driver port.\r\n";

/// What requests of HTTP begin with. Each is more than a message's length can be.
const WEB_METHODS: [&[u8]; 6] = [b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI", b"DELE"];

/// A record of TLS that holds a handshake, and the handshake's first message.
const TLS_RECORD: u8 = 0x16;
const TLS_MAJOR: u8 = 3;
const TLS_MINOR_MAX: u8 = 4;
const CLIENT_HELLO: u8 = 1;

/// The minor version that clients of TLS 1.2, and of all that follow, name in their hello.
const TLS12_MINOR: u8 = 3;

/// A fatal alert: the version isn't supported.
pub(super) const VERSION_ALERT: [u8; 7] = [21, TLS_MAJOR, 1, 0, 2, 2, 70];

/// What a connection's first bytes are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum First {
    /// A message of MongoDB's, or what can only be told once it is taken apart.
    Message,
    /// The client's hello of TLS.
    Tls,
    /// That of a client that knows nothing newer than TLS 1.1.
    OldTls,
    /// A request of HTTP.
    Web,
}

impl First {
    /// What these bytes begin; `None` while too few have come to tell.
    pub(super) fn of(bytes: &[u8]) -> Option<First> {
        if WEB_METHODS.iter().any(|method| bytes.starts_with(method)) {
            return Some(First::Web);
        }
        if bytes.len() < HEADER_SIZE {
            return None;
        }
        // The same bytes could be a message's length, but a request of MongoDB's answers none.
        let answers = read_i32(bytes, 8).is_some_and(|number| !matches!(number, 0 | -1));
        match *bytes {
            [TLS_RECORD, TLS_MAJOR, ..=TLS_MINOR_MAX, _, _, CLIENT_HELLO, _, _, _, TLS_MAJOR, minor, ..]
                if answers =>
            {
                Some(if minor < TLS12_MINOR { First::OldTls } else { First::Tls })
            }
            _ => Some(First::Message),
        }
    }
}

/// The whole answer to a request of HTTP.
pub(super) fn web_answer() -> Vec<u8> {
    let length = WEB_TEXT.len();
    format!(
        "HTTP/1.0 200 OK\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{WEB_TEXT}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::header::{self, Opcode};

    #[test]
    fn beginnings_are_told_apart() {
        assert_eq!(First::of(b"GET"), None);
        assert_eq!(First::of(b"GET /"), Some(First::Web));
        let hello = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3, 7, 7, 7, 7, 7];
        assert_eq!(First::of(&hello), Some(First::Tls));
        assert_eq!(First::of(&hello[..15]), None);
        let old = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 2, 7, 7, 7, 7, 7];
        assert_eq!(First::of(&old), Some(First::OldTls));
        let mut message = Vec::new();
        header::begin(&mut message, 0x0100, 0, Opcode::Message);
        message[..4].copy_from_slice(&[0x16, 3, 1, 0]);
        assert_eq!(First::of(&message), Some(First::Message));
        assert_eq!(First::of(&[0xFF; 16]), Some(First::Message));
    }

    #[test]
    fn no_message_is_as_long_as_http_would_make_it() {
        for method in WEB_METHODS {
            assert!(wire::header::frame_length(method).is_err());
        }
    }
}
