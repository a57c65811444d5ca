//! Removing the rows of what has been dropped: some at a time, by one front at a time, behind everybody's back.
//!
//! Whoever drops a tree only notes that in a table, in the very transaction that takes it out of the catalog: no number
//! is ever a second tree's, so nobody reads those rows again but who began before, and PostgreSQL keeps them for him.
//! What a front leaves that dies, another goes on with.

use crate::connection::Param;
use crate::failure::Answer;
use crate::lease::Lease;
use crate::pool::{Pool, ask};
use crate::schema::Statements;
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::threads;

/// How many rows are removed at a time.
const AT_ONCE: i64 = 2000;

/// How often somebody looks whether there are any.
const IDLE: Duration = Duration::from_secs(5);

/// The shortest and the longest rest between two rounds, which is otherwise as long as the round took.
const REST: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(2));

/// Begins to remove, until the front is gone.
pub(crate) fn start(pool: &Arc<Pool>, statements: &Arc<Statements>, lease: &Arc<Lease>) {
    let (pool, statements, lease) = (pool.clone(), statements.clone(), lease.clone());
    let sweep = move || {
        let mut pause = IDLE;
        while !lease.wait(pause) {
            let begin = Instant::now();
            pause = match round(&pool, &statements) {
                Ok(0..) => begin.elapsed().clamp(REST.0, REST.1),
                Ok(_) => IDLE,
                Err(failure) => {
                    if !failure.is_conflict() {
                        log::warn!("what has been dropped is not removed from PostgreSQL: {failure:?}");
                    }
                    IDLE
                }
            };
        }
    };
    if let Err(error) = threads::spawn("postgres-sweep", None, sweep) {
        log::error!("what is dropped stays in PostgreSQL until another front removes it: {error}");
    }
}

/// How many rows have been removed; negative where there are none, or another front is at it.
fn round(pool: &Arc<Pool>, statements: &Statements) -> Answer<i64> {
    let rows = ask(pool, &|lent| lent.one(&statements.sweep, &[Param::Int(AT_ONCE)]))?;
    Ok(rows.first().map_or(-1, |row| row.int(0)))
}
