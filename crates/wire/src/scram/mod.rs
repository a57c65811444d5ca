//! SCRAM (RFC 5802, RFC 7677) as MongoDB uses it: keys, the server's side, the client's side.
//!
//! ```text
//! client                                server
//! n,,n=user,r=CLIENT             ->                                   Client::first, server::ClientFirst::read
//!                                <-     r=CLIENT+SERVER,s=SALT,i=N    ClientFirst::reply
//! c=biws,r=CLIENT+SERVER,p=PROOF ->                                   Client::reply, Server::finish
//!                                <-     v=SIGNATURE                   Verifier::check
//! ```
//!
//! Each step consumes the previous state and returns the next, so no step can be skipped or repeated. Neither side
//! learns the password. The server stores a [`Credential`], which can verify a proof and sign a reply but cannot create
//! a proof.

mod client;
mod keys;
mod server;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
pub use client::{Client, Verifier};
pub use keys::{Credential, digested_password};
pub use server::{ClientFirst, Server};
use std::fmt;

/// A hash function for SCRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mechanism {
    /// SCRAM-SHA-1. MongoDB first digests the password with the user's name.
    Sha1,
    /// SCRAM-SHA-256. SASLprep prepares the password.
    Sha256,
}

impl Mechanism {
    /// Both mechanisms, the stronger first.
    pub const ALL: [Mechanism; 2] = [Mechanism::Sha256, Mechanism::Sha1];

    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Sha1 => "SCRAM-SHA-1",
            Mechanism::Sha256 => "SCRAM-SHA-256",
        }
    }

    /// Returns the mechanism with this name.
    pub fn of_name(name: &str) -> Option<Mechanism> {
        Mechanism::ALL.into_iter().find(|mechanism| mechanism.name() == name)
    }

    /// Size of the keys in bytes.
    pub fn key_size(self) -> usize {
        match self {
            Mechanism::Sha1 => 20,
            Mechanism::Sha256 => 32,
        }
    }

    /// Size of MongoDB's salts in bytes. Together with the block number, a salt fills one hash.
    pub fn salt_size(self) -> usize {
        self.key_size() - 4
    }
}

/// Reason why authentication failed. For logs only: the client receives a generic error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScramError(pub String);

impl fmt::Display for ScramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ScramError {}

fn scram_error<T>(why: impl Into<String>) -> Result<T, ScramError> {
    Err(ScramError(why.into()))
}

/// Maximum size of a message in bytes.
const MESSAGE_MAX: usize = 16 * 1024;

/// Decodes the text of a message.
///
/// Errors: invalid UTF-8, or a message beyond the limit.
fn text(message: &[u8]) -> Result<&str, ScramError> {
    if message.len() > MESSAGE_MAX {
        return scram_error("a message is too long");
    }
    std::str::from_utf8(message).map_err(|_| ScramError("a message is not UTF-8".to_string()))
}

/// Returns the value of an attribute that begins with `name=`.
fn value(attribute: Option<&str>, name: char) -> Result<&str, ScramError> {
    let value = attribute.and_then(|attribute| attribute.strip_prefix(name)?.strip_prefix('='));
    value.ok_or_else(|| ScramError(format!("the attribute '{name}' is missing or in the wrong position")))
}

/// Escapes a user's name for a message.
fn escaped(name: &str) -> String {
    name.replace('=', "=3D").replace(',', "=2C")
}

/// Unescapes a user's name from a message.
///
/// Errors: an invalid escape.
fn unescaped(name: &str) -> Result<String, ScramError> {
    let mut plain = String::with_capacity(name.len());
    let mut parts = name.split('=');
    plain.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let (character, rest) = match (part.strip_prefix("2C"), part.strip_prefix("3D")) {
            (Some(rest), _) => (',', rest),
            (_, Some(rest)) => ('=', rest),
            _ => return scram_error("the user's name has an invalid escape"),
        };
        plain.push(character);
        plain.push_str(rest);
    }
    Ok(plain)
}

/// Encodes bytes in base64.
fn encoded(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// Decodes base64.
fn decoded(text: &str) -> Result<Vec<u8>, ScramError> {
    BASE64_STANDARD.decode(text).map_err(|_| ScramError("an attribute is not base64".to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for name in ["user", "a=b,c", "=", ",", "=2C", ""] {
            assert_eq!(unescaped(&escaped(name)).unwrap(), name);
        }
        assert_eq!(escaped("=2C"), "=3D2C");
        for invalid in ["a=", "=2c", "=3", "a=4D"] {
            assert!(unescaped(invalid).is_err(), "{invalid}");
        }
    }
}
