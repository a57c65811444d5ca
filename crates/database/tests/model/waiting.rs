//! Single statements wait for a transaction, in a queue if they are many. The transaction never
//! waits for them.

use super::client::{Session, Shared};
use super::documents::{Doc, Field};
use super::history::{History, Kind};
use super::recorder::Recorder;
use super::statements::{Change, Filter, Stmt};
use database::{Database, SystemClock};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use storage::MemoryEngine;

const WRITERS: u64 = 3;
const ROUNDS: u64 = 4;

/// Writers change one document, which transactions change one after the other, twice each. Returns
/// violations as errors.
pub(crate) fn history(seed: u64) -> Result<(), String> {
    let recorder = Arc::new(Recorder::new(Arc::new(MemoryEngine::new()), Vec::new(), || ()));
    let database = Database::open(recorder.clone(), Arc::new(SystemClock), seed).unwrap();
    let shared = Shared::new(vec![database], History::new(recorder), |work| work());
    let own = Session::new(&shared, seed);
    let doc = Doc { id: 1, u: 1, p: 1, q: 1, k: vec![1], t: 0, n: 0, w: 0 };
    own.run(Stmt::Insert(doc), 0, 0);
    let increment = Stmt::Update { filter: Filter::Id(1), change: Change::Inc, multi: false };
    thread::scope(|scope| {
        for number in 1..=WRITERS {
            let (shared, increment) = (&shared, &increment);
            scope.spawn(move || {
                let session = Session::new(shared, seed + number);
                (0..ROUNDS).for_each(|_| session.run(increment.clone(), 0, shared.history.next_number()));
            });
        }
        for _ in 0..ROUNDS {
            own.begin();
            own.set_max_millis(500);
            for change in [Change::Inc, Change::Set(Field::Q, 2)] {
                let again = Stmt::Update { filter: Filter::Id(1), change, multi: false };
                own.run(again, 0, shared.history.next_number());
                thread::sleep(Duration::from_millis(3));
            }
            own.commit();
        }
    });
    for event in shared.history.events() {
        if let Kind::Statement(statement) = event.kind
            && let Err(failure) = statement.outcome
            && failure.code != super::check::WRITE_CONFLICT
        {
            return Err(format!("{:?}: {}", statement.stmt, failure.message));
        }
    }
    Ok(())
}
