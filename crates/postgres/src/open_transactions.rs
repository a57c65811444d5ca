//! Multi-statement transactions. Each has a REPEATABLE READ transaction of PostgreSQL, which is its snapshot, and holds
//! its write intents as locked rows.
//!
//! The write intent of an absent key is a row without a value. Other transactions do not see the row, and an insert of
//! the key waits for it. Intents end with the connection, however it ends.

use crate::commit::{Attempt, failed};
use crate::connection::Param;
use crate::failure::Failure;
use crate::front::Front;
use crate::keys::{index_key, long_key, stored_ident};
use crate::session::{PostgresSnapshot, Session};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use storage::store::{CommitError, ReadView, TransactionId, WriteIntent};
use storage::{Ident, Key, Result, Snapshot};

/// The open transactions of this process.
#[derive(Default)]
pub(crate) struct OpenTransactions(Mutex<HashMap<TransactionId, Arc<Open>>>);

/// An open multi-statement transaction.
pub(crate) struct Open {
    pub(crate) session: Arc<Session>,
    pub(crate) intents: Mutex<HeldIntents>,
}

/// Write intents of a transaction: its keys, and the trees that it protects from changes of the catalog.
#[derive(Default)]
pub(crate) struct HeldIntents {
    pub(crate) keys: HashSet<(Ident, Key)>,
    /// Trees whose generation is locked until the end of the transaction.
    trees: HashSet<Ident>,
}

impl OpenTransactions {
    /// Begins a transaction and returns its read view.
    pub(crate) fn begin(&self, front: &Front, owner: TransactionId) -> ReadView {
        let begun = || {
            loop {
                let mut conn = front.transactions.take(&|| {})?;
                front.confirm_incarnation()?;
                conn.is_interruptible = true;
                conn.call(&front.statements.begin_claims, &[])?;
                conn.call(&front.statements.generation, &[])?;
                conn.flush()?;
                match conn.results() {
                    Ok(mut answers) => {
                        conn.is_interruptible = false;
                        return Ok((conn, answers.pop().unwrap_or_default()));
                    }
                    Err(failure) if failure.ends_connection() && !conn.is_new => front.transactions.clear(),
                    Err(failure) => return Err(failure),
                }
            }
        };
        let (session, generation) = match begun() {
            Ok((conn, rows)) => {
                let generation = rows.first().map_or(0, |row| row.int(0) as u64);
                front.observe(generation);
                (Session::with_intents(&front.statements, &front.known, conn), generation)
            }
            Err(failure) => (Session::failed(&front.statements, &front.known, failure), 0),
        };
        let session = Arc::new(session);
        let open = Open { session: session.clone(), intents: Mutex::default() };
        let before = self.0.lock().insert(owner, Arc::new(open));
        debug_assert!(before.is_none(), "{owner:?} began before");
        let snapshot = PostgresSnapshot { statements: front.statements.clone(), session };
        ReadView { snapshot: Arc::new(snapshot), generation }
    }

    pub(crate) fn get(&self, owner: TransactionId) -> Option<Arc<Open>> {
        self.0.lock().get(&owner).cloned()
    }

    /// Returns true if a transaction protects a collection from changes of the catalog.
    pub(crate) fn holds(&self, owner: TransactionId, tree: Ident) -> bool {
        self.get(owner).is_some_and(|open| open.intents.lock().trees.contains(&tree))
    }

    /// Acquires write intents, and protects collections from changes of the catalog.
    pub(crate) fn acquire_intents(
        &self,
        front: &Front,
        owner: TransactionId,
        keys: &[WriteIntent],
        expected: &[(Ident, u64)],
        read_view: &dyn Snapshot,
    ) -> Result<std::result::Result<(), CommitError>> {
        let Some(open) = self.get(owner) else { return Ok(Err(CommitError::Changed)) };
        let mut intents = open.intents.lock();
        let (trees, generations): (Vec<i64>, Vec<i64>) = expected
            .iter()
            .filter(|(tree, _)| !intents.trees.contains(tree))
            .map(|(tree, generation)| (stored_ident(*tree), *generation as i64))
            .unzip();
        if !trees.is_empty() {
            let params = [Param::Ints(&trees), Param::Ints(&generations)];
            match Attempt::of(open.session.run(&front.statements.hold, &params)).map_err(failed)? {
                Attempt::Done(_) => intents.trees.extend(expected.iter().map(|(tree, _)| *tree)),
                Attempt::Refused | Attempt::Locked | Attempt::Undone => {
                    return Ok(Err(CommitError::Expectation(0)));
                }
            }
        }
        let mut new: Vec<(Ident, &Key)> = Vec::new();
        for intent in keys {
            match intent {
                WriteIntent::Key(tree, key) if !intents.keys.contains(&(*tree, key.clone())) => {
                    new.push((*tree, key));
                }
                WriteIntent::Key(..) => {}
                // The prefix is a key that no entry has. A lock on it covers all keys that begin with it. Commits that
                // expect no such key take the other lock.
                WriteIntent::Under(tree, prefix) => {
                    let short = index_key(prefix);
                    let params = [Param::Int(stored_ident(*tree)), Param::Bytes(&short)];
                    let locked = open.session.run(&front.statements.claim_prefix, &params);
                    if !matches!(Attempt::of(locked).map_err(failed)?, Attempt::Done(_)) {
                        return Ok(Err(CommitError::Changed));
                    }
                    let (existed, is_same) = intent.compare(read_view, &front.snapshot())?;
                    if !is_same || existed {
                        return Ok(Err(CommitError::Changed));
                    }
                    new.push((*tree, prefix));
                }
            }
        }
        new.sort();
        new.dedup();
        if new.is_empty() {
            return Ok(Ok(()));
        }
        let idents: Vec<i64> = new.iter().map(|(tree, _)| stored_ident(*tree)).collect();
        let short: Vec<_> = new.iter().map(|(_, key)| index_key(key)).collect();
        let short: Vec<Option<&[u8]>> = short.iter().map(|key| Some(&**key)).collect();
        let long: Vec<Option<&[u8]>> = new.iter().map(|(_, key)| long_key(key)).collect();
        let params = [Param::Ints(&idents), Param::Many(&short), Param::Many(&long)];
        match Attempt::of(open.session.run(&front.statements.claim, &params)).map_err(failed)? {
            Attempt::Done(_) => {
                intents.keys.extend(new.into_iter().map(|(tree, key)| (tree, key.clone())));
                Ok(Ok(()))
            }
            Attempt::Refused | Attempt::Locked | Attempt::Undone => Ok(Err(CommitError::Changed)),
        }
    }

    /// Ends a transaction. Its later reads fail.
    pub(crate) fn release(&self, owner: TransactionId) {
        let Some(open) = self.0.lock().remove(&owner) else { return };
        open.session.end(Failure::Unavailable("the transaction has ended".to_string()));
    }
}
