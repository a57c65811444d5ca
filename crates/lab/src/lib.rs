//! The lab: experiments and load tests against any server that speaks MongoDB's protocol, and against PostgreSQL where
//! possible.
//!
//! It uses ordinary drivers only, so all targets are treated alike. It imports only `base`, `replay` and `wire` of
//! Vellum. A run has these steps:
//!
//! 1. parse the options;
//! 2. connect to the given targets, or start Vellum at each durability level;
//! 3. take a durability fingerprint of each target;
//! 4. run the experiment, with targets interleaved in rounds;
//! 5. collect every figure in one [`Report`](result::Report);
//! 6. print a table, HTML, Markdown and JSON.
//!
//! Errors name the target concerned.

mod experiment;
mod histogram;
mod load;
mod options;
mod progress;
mod replay;
mod report;
mod result;
mod run;
mod target;

pub use options::Options;
pub use target::null_server::run as null_server;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::process::ExitCode;

/// Runs the command line. The exit code is 0 only if everything was measured. For `compare` it is 0 only if no limit of
/// `--fail-if` was exceeded.
pub fn run(options: Options) -> ExitCode {
    run::verb(options.verb)
}

/// Returns an unpredictable number: the standard library seeds its hasher from the system.
fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// A result of the lab.
pub type Result<T> = std::result::Result<T, Error>;

/// Reasons why a run, or a part of it, could not be measured.
#[derive(Clone, Debug, PartialEq)]
pub enum Error {
    /// Wrong options or a wrong workload file. No server was started.
    Input(String),
    /// A target is unreachable, refused a request, or died.
    Target {
        /// Name of the target.
        name: String,
        /// Error text, one sentence.
        message: String,
    },
    /// A file cannot be read or written.
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
