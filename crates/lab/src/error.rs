//! What can go wrong in the lab: always told with the name of the target concerned.

use std::fmt;

/// A result of the lab.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a run, or a part of it, could not be measured.
#[derive(Clone, Debug, PartialEq)]
pub enum Error {
    /// Wrong options or a wrong workload file: nothing was started.
    Input(String),
    /// A target that can't be reached, refused what it was sent, or died.
    Target {
        /// The name it was given, or the lab gave it.
        name: String,
        /// What happened, in one sentence.
        message: String,
    },
    /// A file that can't be read or written.
    File(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Input(message) | Error::File(message) => f.write_str(message),
            Error::Target { name, message } => write!(f, "target {name}: {message}"),
        }
    }
}

impl std::error::Error for Error {}
