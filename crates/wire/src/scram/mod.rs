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
mod message;
mod server;

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
