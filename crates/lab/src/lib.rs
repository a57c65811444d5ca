//! The lab: experiments and load tests against any server that speaks MongoDB's protocol, and
//! PostgreSQL where it can take part.
//!
//! It talks through ordinary drivers only, so that all targets are treated alike, and imports
//! nothing of Vellum but `base`, `replay` and `wire`. A run goes: options → targets (given, or Vellum started at each
//! notch of the dial) → a durability fingerprint of each → the experiment, interleaving targets in
//! rounds, every figure going into one [`Report`](result::Report) → table, HTML, Markdown, JSON.
//!
//! What can go wrong in the lab: always told with the name of the target concerned.

mod experiment;
mod histogram;
mod load;
mod options;
mod progress;
mod record;
mod replay;
mod report;
mod result;
mod run;
mod target;

pub use options::Options;
pub use target::floor::run as floor;

use std::fmt;
use std::process::ExitCode;

/// Runs what the options ask for; the exit code is 0 only if all of it was measured, and for
/// `compare` only if no limit of `--fail-if` was passed.
pub fn run(options: Options) -> ExitCode {
    run::verb(options.verb)
}

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
