//! A [store](storage::store::Store) over a PostgreSQL server, which any number of processes may share. Such a process
//! is called a *front*: it keeps no documents itself.
//!
//! Modules, from the protocol up:
//!
//! 1. `connection.rs` speaks the protocol over `stream.rs`, with several statements in a round trip. `pool.rs` limits
//!    connections. `cancel.rs` cancels abandoned statements. `members.rs` closes connections to hosts that do not
//!    answer, or that are replaced primaries.
//! 2. `schema.sql` defines the stored schema: one table of keys and values for all trees, and functions that check and
//!    apply a whole change. `schema.rs` creates it and holds every statement that uses it.
//! 3. `session.rs` and `snapshot.rs` read one state: a REPEATABLE READ transaction, begun at its first read.
//!    `cursor.rs` reads through the statements of `pages.rs`, many ranges at a time, or only the start
//!    of each document, and `scan_group.rs` starts several scans at once. `standby.rs` reads from a standby that has
//!    caught up far enough; `members.rs` lists the hosts.
//! 4. `change.rs` and `commit.rs` turn a prepared change into one call, mostly by a statement of `direct.rs`.
//!    `group.rs` commits small changes of several clients together. `exclusive.rs` is the fence around changes of the
//!    catalog. `open_transactions.rs` holds multi-statement transactions. `builds.rs` reports changes by other fronts
//!    to index builders. A drop removes its object from the catalog at once; `front.rs` deletes the rows later.
//! 5. `log.rs` holds the log of changes, which gives the streams of all fronts one order. `times.rs` is the clock, and
//!    the
//!    log entry of a commit.
//! 6. `barrier.rs` waits until commits are durable, within one of the server's `incarnations.rs`. It also handles the
//!    start of another incarnation, and looks up the result of a commit whose answer was lost.
//!
//! State that two processes must agree on is in the server: `front.rs` takes numbers from it, its own number under a
//! `lease.rs`. `state.rs` holds the parts of a store, `store.rs` its operations. Imports between modules form no cycle.

mod barrier;
mod builds;
mod cancel;
mod change;
mod commit;
mod config;
mod connection;
mod cursor;
mod direct;
mod engine;
mod exclusive;
mod failure;
mod front;
mod group;
mod incarnations;
mod keys;
mod lease;
mod log;
mod members;
mod open_transactions;
mod pages;
mod pool;
mod scan_group;
mod schema;
mod session;
mod snapshot;
mod standby;
mod state;
mod store;
mod stream;
#[cfg(any(debug_assertions, feature = "testing"))]
#[path = "../tests/support/mod.rs"]
pub mod testing;
mod times;

pub use config::{Config, TargetSessionAttrs};
pub use front::Limits;
pub use group::COMMITS_MAX;
pub use state::PostgresStore;
pub use stream::Tls;
