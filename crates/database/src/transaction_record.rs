//! Records of transactions that are committed, where several processes share a store: whoever doesn't know what
//! became of a commit asks another process, as drivers do when the first one is gone.
//!
//! A transaction claims its session's record before it commits, and writes its number there with its changes. Who asks
//! for a number that isn't there writes that it never will be: then the claim fails, and with it the commit. So
//! the answer stays true, whoever is first.

use crate::commit::Committed;
use crate::database::Database;
use crate::keys::RETRIES;
use crate::open_transaction::OpenTransaction;
use crate::operation::Operation;
use crate::retry_record::{RetryKey, from_entry, to_value};
use crate::session_id::SessionId;
use crate::storage_error;
use base::Result;
use base::bson::{Builder, Document};
use query::Interrupt;
use storage::store::{Change, Claim, Expect};

/// The statement that the record stands for: no statement has this number.
const COMMIT: i32 = i32::MIN;

impl Database {
    /// Whether other processes may carry out a session's writes.
    pub(crate) fn shares_retries(&self) -> bool {
        self.keeps_retries && self.store.known_generation().is_some()
    }

    /// Adds the record to what a transaction is about to commit.
    ///
    /// Errors: WriteConflict where somebody has asked for it, the store's.
    pub(crate) fn record_transaction(&self, transaction: &OpenTransaction) -> Result<()> {
        let mut inner = transaction.inner.lock();
        let Some(retry) = inner.retry.filter(|_| self.shares_retries() && !inner.change.batch.is_empty())
        else {
            return Ok(());
        };
        let key = RetryKey { statement: COMMIT, ..retry }.to_key();
        transaction.claim(&inner, &[Claim::Key(RETRIES, key.clone())], &[])?;
        inner.change.batch.put(RETRIES, key, to_value(retry.number, self.now_millis(), Document::EMPTY));
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
        never.append("never", true);
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
