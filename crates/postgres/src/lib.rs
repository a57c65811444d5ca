//! A [store](storage::store::Store) over a PostgreSQL server, which any number of processes may share.
//!
//! The way through:
//!
//! 1. `connection.rs` speaks the protocol, several statements to a round trip, over `stream.rs`; `pool.rs` bounds
//!    connections, `cancel.rs` ends statements that nobody waits for any longer, `members.rs` connections that nobody answers
//!    on, or that lead to a primary of the past.
//! 2. `schema.sql` is what the server keeps: one table of keys and values for all trees, and functions that
//!    check and apply a change whole. `schema.rs` makes it and has every statement that uses it.
//! 3. `session.rs` and `snapshot.rs` read one state: a REPEATABLE READ transaction, begun when first read. `cursor.rs`
//!    reads by the statements of `pages.rs`, many ranges at a time, and `beginnings.rs` several scans at once.
//!    `standby.rs` does so on a standby that has come far enough; `members.rs` knows which hosts there are.
//! 4. `change.rs` and `commit.rs` turn a prepared change into one call, most by a statement of `direct.rs`; `exclusive.rs` is the fence around
//!    changes of the catalog; `claims.rs` are transactions of many statements; `builds.rs` tells index builders
//!    what others have changed.
//!    What is dropped is out of the catalog at once; its rows go behind, by `front.rs`.
//! 5. `log.rs` has the log of changes, for the streams of all fronts in one order; `times.rs` is the clock, and what a
//!    commit tells the log.
//! 6. `barrier.rs` waits until commits are safe, within one of the server's `lives.rs`. It also does what a front does
//!    when another life begins, and looks up what became of a commit whose answer was lost.
//!
//! Nothing that two processes must agree on lies in one of them: `front.rs` takes numbers from the server, its own under
//! a `lease.rs`. `state.rs` is what a store consists of, `store.rs` what it does. No module imports one that imports it in turn.

mod barrier;
mod beginnings;
mod builds;
mod cancel;
mod change;
mod claims;
mod commit;
mod config;
mod connection;
mod cursor;
mod direct;
mod engine;
mod exclusive;
mod failure;
mod front;
mod keys;
mod lease;
mod lives;
mod log;
mod members;
mod pages;
mod pool;
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

pub use config::{Config, Wanted};
pub use front::Limits;
pub use state::PostgresStore;
pub use stream::Tls;
