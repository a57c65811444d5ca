//! Failures of the verb `serve`, and their kinds.

use std::fmt::Display;

/// Reason why a server failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    pub(crate) message: String,
}

/// Kinds of failures, which have different exit codes in mongod.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// An option that only a running server could check.
    Options,
    /// The server cannot listen on the address.
    Address,
    /// The data directory is unusable.
    Data,
    /// Another failure.
    Other,
}

impl Failure {
    /// Creates a failure of a kind.
    pub(crate) fn new(kind: Kind, message: impl Display) -> Failure {
        Failure { kind, message: message.to_string() }
    }
}
