//! Detection of a client's protocol: MongoDB's protocol, TLS, or HTTP by mistake.

use wire::header::HEADER_SIZE;
use wire::header::read_i32;

/// MongoDB's text for a browser that connects to the port.
const HTTP_TEXT: &str =
    "It looks like you are trying to access MongoDB over HTTP on the native driver port.\r\n";

/// First bytes of HTTP requests. Each exceeds the maximum length of a message.
const HTTP_METHODS: [&[u8]; 6] = [b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI", b"DELE"];

/// TLS record with a handshake, and the first message of the handshake.
const TLS_RECORD: u8 = 0x16;
const TLS_MAJOR: u8 = 3;
const TLS_MINOR_MAX: u8 = 4;
const CLIENT_HELLO: u8 = 1;

/// Minor version in the hello of TLS 1.2 and later clients.
const TLS12_MINOR: u8 = 3;

/// Fatal alert: unsupported version.
pub(super) const VERSION_ALERT: [u8; 7] = [21, TLS_MAJOR, 1, 0, 2, 2, 70];

/// Kinds of a connection's first bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Protocol {
    /// A MongoDB message, or bytes that only the message parser can judge.
    Message,
    /// A TLS client hello.
    Tls,
    /// A TLS client hello for at most TLS 1.1.
    OldTls,
    /// An HTTP request.
    Http,
}

impl Protocol {
    /// Returns the kind of the first bytes; `None` if more bytes are needed.
    pub(super) fn of(bytes: &[u8]) -> Option<Protocol> {
        if HTTP_METHODS.iter().any(|method| bytes.starts_with(method)) {
            return Some(Protocol::Http);
        }
        if bytes.len() < HEADER_SIZE {
            return None;
        }
        // These bytes could also be a message length. A MongoDB request has 0 or -1 in
        // `responseTo`, and a TLS hello has not.
        let is_response = read_i32(bytes, 8).is_some_and(|number| !matches!(number, 0 | -1));
        match *bytes {
            [TLS_RECORD, TLS_MAJOR, ..=TLS_MINOR_MAX, _, _, CLIENT_HELLO, _, _, _, TLS_MAJOR, minor, ..]
                if is_response =>
            {
                Some(if minor < TLS12_MINOR { Protocol::OldTls } else { Protocol::Tls })
            }
            _ => Some(Protocol::Message),
        }
    }
}

/// Returns the whole response to an HTTP request.
pub(super) fn http_response() -> Vec<u8> {
    let length = HTTP_TEXT.len();
    format!(
        "HTTP/1.0 200 OK\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{HTTP_TEXT}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::header::{self, Opcode};

    #[test]
    fn protocols_are_detected_by_their_first_bytes() {
        assert_eq!(Protocol::of(b"GET"), None);
        assert_eq!(Protocol::of(b"GET /"), Some(Protocol::Http));
        let hello = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3, 7, 7, 7, 7, 7];
        assert_eq!(Protocol::of(&hello), Some(Protocol::Tls));
        assert_eq!(Protocol::of(&hello[..15]), None);
        let old = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 2, 7, 7, 7, 7, 7];
        assert_eq!(Protocol::of(&old), Some(Protocol::OldTls));
        let mut message = Vec::new();
        header::begin(&mut message, 0x0100, 0, Opcode::Message);
        message[..4].copy_from_slice(&[0x16, 3, 1, 0]);
        assert_eq!(Protocol::of(&message), Some(Protocol::Message));
        assert_eq!(Protocol::of(&[0xFF; 16]), Some(Protocol::Message));
    }

    #[test]
    fn no_message_is_as_long_as_http_would_make_it() {
        for method in HTTP_METHODS {
            assert!(wire::header::frame_length(method).is_err());
        }
    }
}
