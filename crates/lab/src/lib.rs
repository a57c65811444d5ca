//! The lab: experiments and load tests against any server that speaks MongoDB's protocol, and
//! PostgreSQL where it can take part.
//!
//! It talks through ordinary drivers only, so that all targets are treated alike, and imports
//! nothing of Vellum but `base`, `replay` and `wire`. A run goes: options → targets (given, or Vellum started at each
//! notch of the dial) → a durability fingerprint of each → the experiment, interleaving targets in
//! rounds, every figure going into one [`Report`](result::Report) → table, HTML, Markdown, JSON.

mod error;
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

pub use error::{Error, Result};
pub use options::Options;
pub use target::floor::run as floor;

use std::process::ExitCode;

/// Runs what the options ask for; the exit code is 0 only if all of it was measured, and for
/// `compare` only if no limit of `--fail-if` was passed.
pub fn run(options: Options) -> ExitCode {
    run::verb(options.verb)
}
