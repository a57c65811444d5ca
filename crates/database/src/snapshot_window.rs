//! The bound of the history: how much of what commits replace may be kept for old snapshots.
//!
//! A snapshot keeps every version that has been replaced since it was taken. The versions replaced since the oldest
//! snapshot are therefore all that is kept, whatever the number of snapshots. Each holder of a snapshot remembers
//! how many bytes had been replaced before. Once more than the bound have been replaced since, the holder gives
//! its snapshot up: the oldest first, be it an idle cursor, a view kept for snapshot reads or a transaction.

use parking_lot::Mutex;
use std::sync::atomic::AtomicU64;
use storage::store::{Beside, Change, Expect};

/// What a replaced document takes beside its bytes, about.
const OVERHEAD: u64 = 128;

/// The bound, unless the server sets another.
const BYTES_MAX: u64 = 512 << 20;

/// The bound, and when it is looked at next.
pub(crate) struct SnapshotWindow {
    pub(crate) bytes_max: AtomicU64,
    /// No holder can be beyond the bound before so many bytes have been replaced.
    pub(crate) look_at: AtomicU64,
    /// Held by the commit that looks.
    pub(crate) looking: Mutex<()>,
}

impl Default for SnapshotWindow {
    fn default() -> SnapshotWindow {
        let (bytes_max, look_at) = (AtomicU64::new(BYTES_MAX), AtomicU64::new(BYTES_MAX));
        SnapshotWindow { bytes_max, look_at, looking: Mutex::new(()) }
    }
}

/// The bytes of documents that a change replaces or removes, about.
pub(crate) fn replaced_by(change: &Change) -> u64 {
    let replaced = change.expect.iter().map(|expect| match expect {
        Expect::Value { value: Some(before), .. } => before.len() as u64 + OVERHEAD,
        _ => 0,
    });
    // What is emptied whole.
    let emptied = change.beside.iter().map(|beside| match beside {
        Beside::Count { bytes, .. } => bytes.min(&0).unsigned_abs(),
        _ => 0,
    });
    replaced.sum::<u64>().max(emptied.sum())
}

#[cfg(test)]
mod tests {
    use crate::{Database, FindRequest, InsertRequest, ManualClock, Operation, Scope, UpdateRequest};
    use base::bson::extended_json::parse;
    use base::random::Random;
    use base::{ErrorCode, Namespace};
    use query::{Context, Matcher, Update};
    use std::sync::Arc;
    use storage::MemoryEngine;

    /// A document of so many bytes, about.
    const SIZE: u64 = 10_000;

    #[test]
    fn the_oldest_snapshots_are_given_up_first_and_no_more_than_must_be() {
        let database =
            Database::open(Arc::new(MemoryEngine::new()), Arc::new(ManualClock::new(0)), 7).unwrap();
        let namespace = Namespace::parse("test.c").unwrap();
        let context = Arc::new(Context::for_tests());
        let scope = |operation| Scope::new(&Arc::new(operation), &namespace, &context);
        let text = "x".repeat(SIZE as usize);
        for id in 0..5 {
            let document = parse(&format!("{{_id: {id}, text: '{text}'}}")).unwrap();
            let request = InsertRequest { document: document.view(), bypass_validation: false };
            database.insert(&scope(Operation::new(0)), request).unwrap();
        }
        database.set_history_bytes(20 * SIZE);
        let random = Random::new(3);
        let (mut cursors, mut transactions, mut views) = (Vec::new(), Vec::new(), Vec::new());
        let mut lost = 0;
        for turn in 0..300 {
            match random.draw() % 8 {
                0 => {
                    let operation = Arc::new(database.operation(1));
                    let filter = parse("{}").unwrap();
                    let request = FindRequest::new(filter.view());
                    let cursor =
                        database.find(&Scope::new(&operation, &namespace, &context), &request).unwrap();
                    cursors.push((database.replaced(), database.keep_cursor(cursor)));
                }
                1 => {
                    transactions.push((database.replaced(), database.begin_transaction(None, None).unwrap()))
                }
                2 => views.push((database.replaced(), database.snapshot_at(None).unwrap().0)),
                _ => {
                    let update = parse(&format!("{{$set: {{n: {turn}}}}}")).unwrap();
                    let request = UpdateRequest {
                        matcher: Arc::new(
                            Matcher::parse(parse("{_id: 1}").unwrap().view(), &context).unwrap(),
                        ),
                        update: Update::parse(update.view().into(), &[], &context).unwrap(),
                        multi: false,
                        upsert: false,
                        sort: None,
                        hint: None,
                        bypass_validation: false,
                    };
                    let operation = Arc::new(database.operation(2));
                    database.update(&Scope::new(&operation, &namespace, &context), &request).unwrap();
                }
            }
            let now = database.replaced();
            let is_kept = |at: &u64| now - at <= 20 * SIZE;
            cursors.retain(|(at, id)| {
                let cursor = database.cursors.take(*id, &namespace).unwrap();
                let checked = database.check_cursor(&cursor).map_err(|error| error.code());
                assert_eq!(checked, if is_kept(at) { Ok(()) } else { Err(ErrorCode::QueryPlanKilled) });
                // As a getMore does.
                match checked {
                    Ok(()) => database.cursors.put_back(*id, cursor),
                    Err(_) => database.cursors.close(*id),
                }
                lost += u64::from(checked.is_err());
                checked.is_ok()
            });
            for (at, transaction) in &transactions {
                assert_eq!(transaction.has_lost_snapshot(), !is_kept(at), "{turn}");
                let commits = is_kept(at) || {
                    let outcome = database.commit_transaction(&Operation::new(0), transaction);
                    outcome.is_err_and(|error| error.code() == ErrorCode::SnapshotTooOld)
                };
                assert!(commits, "a transaction that lost its snapshot committed");
            }
            for (at, time) in &views {
                let found = database.history.at(*time).map(drop).map_err(|error| error.code());
                assert_eq!(
                    found,
                    if is_kept(at) { Ok(()) } else { Err(ErrorCode::SnapshotTooOld) },
                    "{turn}"
                );
            }
        }
        assert!(lost > 10 && transactions.len() > 10 && views.len() > 10);
    }
}
