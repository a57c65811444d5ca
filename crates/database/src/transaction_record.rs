//! Records of committed transactions: a driver whose connection broke sends `commitTransaction` again, to the server
//! that has started again, or to another process of the same store.
//!
//! A commit writes its session's record in its own batch, so that a crash keeps both or neither. The server's sessions
//! take the records up at the start, as those of retryable writes.
//!
//! Several processes that share a store have no sessions in common. There a transaction claims its session's record
//! before it commits. A process that is asked for a number that isn't recorded writes that it never will be: then the
//! claim fails, and with it the commit. So the answer stays true, whichever comes first.

use crate::commit::Committed;
use crate::database::Database;
use crate::keys::RETRIES;
use crate::open_transaction::OpenTransaction;
use crate::operation::Operation;
use crate::retry_record::{COMMIT, RetryKey, from_entry, to_value};
use crate::session_id::SessionId;
use crate::storage_error;
use base::Result;
use base::bson::{Builder, Document};
use query::Interrupt;
use storage::store::{Change, Claim, Expect};

impl Database {
    /// Whether other processes may carry out a session's writes.
    pub(crate) fn shares_retries(&self) -> bool {
        self.keeps_retries && self.store.known_generation().is_some()
    }

    /// Adds the record to what a transaction is about to commit. A transaction that has written nothing has none, as
    /// in MongoDB.
    ///
    /// Errors: WriteConflict where another process has asked for the record, the store's.
    pub(crate) fn record_transaction(&self, transaction: &OpenTransaction) -> Result<()> {
        let mut inner = transaction.inner.lock();
        let writes = self.keeps_retries && !inner.change.batch.is_empty();
        let Some(retry) = inner.retry.filter(|_| writes) else { return Ok(()) };
        let key = RetryKey { statement: COMMIT, ..retry }.to_key();
        let value = to_value(retry.number, self.now_millis(), Document::EMPTY);
        match self.shares_retries() {
            true => {
                transaction.claim(&inner, &[Claim::Key(RETRIES, key.clone())], &[])?;
                inner.change.batch.put(RETRIES, key, value);
            }
            false => inner.change.stamped.push((RETRIES, key, value)),
        }
        Ok(())
    }

    /// Finds out whether a session's transaction of this number, which this process doesn't know, has been committed;
    /// where it hasn't, it never will be.
    ///
    /// Errors: DataCorruptionDetected, the store's, and what interrupts the operation.
    pub fn find_transaction(
        &self,
        operation: &Operation,
        session: SessionId,
        number: i64,
    ) -> Result<Option<Committed>> {
        let key = RetryKey { session, number, statement: COMMIT }.to_key();
        let mut never = Builder::new();
        never.append(c"never", true);
        let never = never.finish();
        loop {
            operation.check()?;
            let seen = self.engine().snapshot().get(RETRIES, &key).map_err(storage_error)?;
            if let Some(value) = &seen {
                let record = from_entry(&key, value)?;
                if record.key.number == number && record.answer.view().is_empty() {
                    let position = self.latest_position();
                    return Ok(Some(Committed { position, cluster_time: self.cluster_time() }));
                }
                if record.key.number >= number {
                    return Ok(None);
                }
            }
            let mut change = Change::default();
            change.expect.push(Expect::Value { ident: RETRIES, key: key.clone(), value: seen });
            change.batch.put(RETRIES, key.clone(), to_value(number, self.now_millis(), never.view()));
            if self.store.commit(change).map_err(storage_error)?.is_ok() {
                return Ok(None);
            }
        }
    }
}
