//! The one integration binary: everything that is tested from outside, over a socket or over the
//! tree of sources. One binary links once, and starts the server as users do.
//!
//! - `scripts`: golden scripts in `tests/scripts`, on the binary and on two engines compared; `VELLUM_SCRIPT=part/of/name` picks some,
//!   `VELLUM_BLESS=1` rewrites their replies: then read the diff.
//! - `recordings`: replays of a real MongoDB; `VELLUM_RECORDING=core/foo` shows differences in
//!   detail, `VELLUM_BLESS=1` keeps the new rates.
//! - `recordings_on_postgres`: the same replayed at fronts over PostgreSQL.
//! - `coverage`: every command, stage and operator has a script.
//! - `ask`: what tests share: run a command, look into its reply, wait for a state.
//! - `backup`: backups under load, restored to random moments.
//! - `bombs`: what tries to take all memory or time ends in an error.
//! - `change_streams`: every commit once and in order; streams that wait, and how many.
//! - `compatibility`: docs/compatibility.md, made from the tables.
//! - `deep`: values that nest or grow without end.
//! - `deep_ways`: the deepest values to every operator, and every way through the server.
//! - `durability`: what a server with a data directory keeps when it is killed.
//! - `fairness`: long work keeps nobody waiting.
//! - `files`: how many descriptors connections may take.
//! - `front_door`: `./test` goes on after a failed part, and its table.
//! - `http`: figures for Prometheus, and health.
//! - `interrupts`: killOp and maxTimeMS end whatever runs.
//! - `log_history`: how far the log reaches back, and its terms.
//! - `memory`: what happens as memory comes to its end.
//! - `mistakes`: natural mistakes of a first start, and what is said about each.
//! - `options`: docs/options.md, made from the definition of the command line.
//! - `postgres_dropped`: large collections dropped over PostgreSQL, and removed by whoever lives.
//! - `postgres_fronts`: two servers over one PostgreSQL schema.
//! - `postgres_given_up`: statements that nobody waits for end at PostgreSQL, and nobody waits long for a connection.
//! - `postgres_start`: who gets in to PostgreSQL, encrypted or not, where there is room, and to a schema of another version.
//! - `postgres_streams`: change streams at both, while both write.
//! - `sessions`: a session's statements wait for one another.
//! - `starting`: what is printed and logged at first, where options come from, signals.
//! - `step_down`: a stepDown interrupts the writes under way.
//! - `stopping`: signals to stop, under load.
//! - `strict`: what `--strict` reports.
//! - `tidy`: rules about the sources themselves.
//! - `tls`: who may connect how, and certificates that are changed.
//!
//! `VELLUM_SERVER=127.0.0.1:27017` uses a server already running instead of starting some.

#![allow(clippy::unwrap_used)]

#[cfg(unix)]
mod advice;
mod ask;
mod authority;
mod backup;
mod bombs;
mod bursts;
mod change_streams;
mod client;
mod compatibility;
mod coverage;
mod deep;
mod deep_ways;
mod describe;
mod durability;
mod fairness;
mod fidelity;
#[cfg(unix)]
mod files;
mod first_user;
#[cfg(unix)]
mod front_door;
mod fronts;
mod http;
#[cfg(unix)]
mod init_scripts;
mod interrupts;
mod log_history;
#[cfg(unix)]
mod memory;
mod mirrored;
#[cfg(unix)]
mod mistakes;
mod options;
mod postgres_dropped;
mod postgres_fronts;
mod postgres_given_up;
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
mod scripts;
mod server;
mod sessions;
mod space;
#[cfg(unix)]
mod starting;
mod status;
mod step_down;
#[cfg(unix)]
mod stopping;
mod strict;
mod tidy;
mod tidy_layers;
mod tidy_statics;
#[cfg(unix)]
mod tls;
#[cfg(unix)]
mod top;
mod unstable;
mod waits;

use std::io::Write;
use std::path::PathBuf;

/// The root of the source tree.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Prints past the test harness, which would swallow what passing tests say.
fn say(text: &str) {
    // Nobody is left to tell if even that fails.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Whether recorded expectations are to be rewritten rather than checked.
fn bless() -> bool {
    std::env::var_os("VELLUM_BLESS").is_some_and(|value| !value.is_empty() && value != "0")
}
