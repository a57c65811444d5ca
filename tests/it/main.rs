//! The integration test binary: all tests from outside, over a socket or over the source tree. One binary links once,
//! and starts the server as users do.
//!
//! - `scripts`: golden scripts in `tests/scripts`, on the binary and on two compared engines.
//!   `VELLUM_SCRIPT=part/of/name`
//!   selects some. `VELLUM_BLESS=1` rewrites their replies: review the diff.
//! - `recordings`: replays of a real MongoDB. `VELLUM_RECORDING=core/foo` shows differences in detail, `VELLUM_BLESS=1`
//!   stores
//!   the new rates.
//! - `recordings_on_postgres`: the same recordings on fronts over PostgreSQL.
//! - `coverage`: every command, stage and operator has a script.
//! - `requests`: common steps of tests: run a command, read its reply, wait for a state.
//! - `backup`: backups under load, restored to random points in time.
//! - `bombs`: commands that try to exhaust memory or time end in an error.
//! - `change_streams`: every commit once and in order; many waiting streams.
//! - `compatibility`: docs/compatibility.md, generated from the tables.
//! - `deep`: values that nest or grow without limit.
//! - `deep_operands`: the deepest values in every operator, and on every path through the server.
//! - `durability`: data that survives a killed server.
//! - `fairness`: long operations delay no other client.
//! - `files`: file descriptors of connections.
//! - `test_runner`: `./test` continues after a failed part, and prints a table.
//! - `http`: metrics for Prometheus, and health.
//! - `interrupts`: killOp and maxTimeMS end every operation.
//! - `log_history`: the log window and its terms.
//! - `memory`: behaviour at the memory limit.
//! - `startup_errors`: common mistakes of a first start, and their messages.
//! - `options`: docs/options.md, generated from the definition of the command line.
//! - `postgres_dropped`: large dropped collections over PostgreSQL, deleted by any living front.
//! - `postgres_fronts`: two servers over one PostgreSQL schema.
//! - `postgres_abandoned`: abandoned statements end at PostgreSQL, and waits for a connection are limited.
//! - `postgres_start`: connections to PostgreSQL: encryption, limits, and schemas of another version.
//! - `postgres_streams`: change streams at two fronts, while both write.
//! - `sessions`: statements of one session run in sequence.
//! - `starting`: first output and log lines, sources of options, signals.
//! - `step_down`: a stepDown interrupts running writes.
//! - `stopping`: signals to stop, under load.
//! - `strict`: reports of `--strict`.
//! - `tidy`: rules about the sources.
//! - `tls`: TLS connections, and replaced certificates.
//!
//! `VELLUM_SERVER=127.0.0.1:27017` uses a running server instead of starting some.

#![allow(clippy::unwrap_used)]

#[cfg(unix)]
mod advice;
mod authority;
mod backup;
mod bombs;
mod bursts;
mod change_streams;
mod client;
mod compatibility;
mod coverage;
mod deep;
mod deep_operands;
mod describe;
mod durability;
mod fairness;
mod fidelity;
#[cfg(unix)]
mod files;
mod first_user;
mod fronts;
mod http;
#[cfg(unix)]
mod init_scripts;
mod interrupts;
mod log_history;
#[cfg(unix)]
mod memory;
mod mirrored;
mod options;
mod postgres_abandoned;
mod postgres_dropped;
mod postgres_fronts;
mod postgres_restart;
#[cfg(unix)]
mod postgres_standby;
mod postgres_start;
mod postgres_streams;
mod postgres_waits;
mod recordings;
mod recordings_on_postgres;
mod repair;
mod replay;
mod requests;
mod scripts;
mod server;
mod sessions;
mod space;
#[cfg(unix)]
mod starting;
#[cfg(unix)]
mod startup_errors;
mod status;
mod step_down;
#[cfg(unix)]
mod stopping;
mod strict;
#[cfg(unix)]
mod test_runner;
mod tidy;
mod tidy_layers;
mod tidy_prose;
mod tidy_statics;
#[cfg(unix)]
mod tls;
#[cfg(unix)]
mod top;
mod unstable;
mod waits;

use std::io::Write;
use std::path::PathBuf;

/// Returns the root of the source tree.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Prints past the test harness, which captures the output of passing tests.
fn print_line(text: &str) {
    // A failed print has no other reader.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Returns true if recorded expectations should be rewritten, not checked.
fn bless() -> bool {
    std::env::var_os("VELLUM_BLESS").is_some_and(|value| !value.is_empty() && value != "0")
}
