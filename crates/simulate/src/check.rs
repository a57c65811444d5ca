//! The checks of replies against the model.

use crate::action::{Action, BUILT, Outcome, batch, failure};
use crate::client::{Client, Reading, Request, Step, Transaction};
use crate::model::Model;
use crate::trace::Trace;
use base::bson::{Document, DocumentBuf, Value};
use std::cell::RefCell;
use std::time::Duration;

/// Lifetime of transactions, the default of transactionLifetimeLimitSeconds.
const LIFETIME: Duration = Duration::from_secs(60);
/// Time after which the server may close an idle cursor, the default of cursorTimeoutMillis.
const CURSOR_TIMEOUT: Duration = Duration::from_secs(600);

const INTERNAL_ERROR: i32 = 1;
const LOCK_TIMEOUT: i32 = 24;
const CURSOR_NOT_FOUND: i32 = 43;
const HOST_UNREACHABLE: i32 = 91;
const WRITE_CONFLICT: i32 = 112;
const QUERY_PLAN_KILLED: i32 = 175;
const SNAPSHOT_TOO_OLD: i32 = 239;
const SNAPSHOT_UNAVAILABLE: i32 = 246;
const NO_SUCH_TRANSACTION: i32 = 251;
const DUPLICATE_KEY: i32 = 11_000;
const OUT_OF_DISK_SPACE: i32 = 14_031;
/// Error text of a request that cannot wait.
const RAN_NO_WORK: &str = "ran no work";

/// Returns true if a reply says that the disk refused the request.
pub(crate) fn is_refused(reply: Document<'_>) -> bool {
    let is_disk_error = |code| matches!(code, INTERNAL_ERROR | HOST_UNREACHABLE | OUT_OF_DISK_SPACE);
    let Some(Outcome::Error(code, why)) = failure(reply) else {
        return reply.get("writeConcernError").is_some();
    };
    is_disk_error(code) && !why.contains(RAN_NO_WORK)
}

/// What the checks of a reply depend on.
pub(crate) struct Check<'a> {
    pub(crate) model: &'a RefCell<Model>,
    pub(crate) trace: &'a RefCell<Trace>,
    pub(crate) now: Duration,
    /// Number of the running process.
    pub(crate) incarnation: u64,
    /// True if the disk may have refused a write.
    pub(crate) is_faulty: bool,
    /// True if another client has an open transaction or a running request.
    pub(crate) has_rivals: bool,
    /// Limit of the history in bytes.
    pub(crate) history: Option<u64>,
}

impl Check<'_> {
    fn mark(&self, name: &'static str) {
        self.trace.borrow_mut().mark(name);
    }

    /// Checks a reply. Errors: why it is wrong.
    pub(crate) fn reply(
        &self,
        client: &mut Client,
        request: &Request,
        reply: &DocumentBuf,
    ) -> Result<(), String> {
        self.check_time(client, reply.view())?;
        if self.is_faulty && is_refused(reply.view()) {
            self.mark("requests that a full or broken disk refused");
            client.reading = None;
            client.transaction.iter_mut().for_each(|transaction| transaction.is_lost = true);
            return Ok(());
        }
        match &request.step {
            Step::Single(action) => {
                let outcome = action.outcome(reply.view())?;
                if *action == Action::Scan && matches!(outcome, Outcome::Docs(_)) {
                    let (id, docs) = batch(reply.view())?;
                    if id != 0 {
                        let versions = (request.from, self.model.borrow().latest());
                        let (collection, began) = (request.collection, self.now);
                        client.reading = Some(Reading { id, collection, docs, versions, began });
                        return Ok(());
                    }
                }
                self.check_single(request, reply.view(), &outcome)
            }
            Step::More => match client.reading.take() {
                Some(reading) => {
                    client.reading = self.check_batch(reading, request, reply.view())?;
                    Ok(())
                }
                None => Ok(()),
            },
            Step::Statement(action) => {
                let outcome = action.outcome(reply.view())?;
                let Some(mut transaction) = client.transaction.take() else { return Ok(()) };
                if self.check_statement(&mut transaction, request, &outcome)? {
                    client.transaction = Some(transaction);
                }
                Ok(())
            }
            Step::Abort => match failure(reply.view()) {
                None => Ok(()),
                Some(Outcome::Error(NO_SUCH_TRANSACTION, _)) => Ok(()),
                Some(Outcome::Error(SNAPSHOT_TOO_OLD, _)) if self.history.is_some() => Ok(()),
                Some(other) => Err(format!("{other:?}")),
            },
            Step::Commit => {
                let Some(transaction) = &client.transaction else { return Ok(()) };
                let has_changes = transaction.views.as_ref().is_some_and(|views| !views.changes.is_empty());
                match (failure(reply.view()), &request.applied) {
                    (None, Some((position, _))) => {
                        self.mark("committed transactions");
                        self.model.borrow_mut().answer(*position, request.is_durable);
                        Ok(())
                    }
                    (None, None) if has_changes => Err("the transaction was not committed".to_string()),
                    (None, None) => Ok(()),
                    (Some(error), Some(_)) => Err(format!("the transaction was committed: {error:?}")),
                    (Some(Outcome::Error(NO_SUCH_TRANSACTION, _)), None) if self.is_over(transaction) => {
                        self.mark("transactions that a restart or their age ended");
                        Ok(())
                    }
                    (Some(Outcome::Error(INTERNAL_ERROR, why)), None)
                        if request.is_nested && why.contains(RAN_NO_WORK) =>
                    {
                        Ok(())
                    }
                    // The client may not have got the first reply, SnapshotTooOld.
                    (Some(Outcome::Error(SNAPSHOT_TOO_OLD | NO_SUCH_TRANSACTION, _)), None)
                        if self.history.is_some() =>
                    {
                        Ok(())
                    }
                    // The disk has refused the commit, and the client did not get that reply.
                    (Some(Outcome::Error(NO_SUCH_TRANSACTION, _)), None) if self.is_faulty => Ok(()),
                    (Some(error), None) => Err(format!("{error:?}")),
                }
            }
        }
    }

    /// Returns true if the server may have forgotten a transaction.
    fn is_over(&self, transaction: &Transaction) -> bool {
        let age = self.now.saturating_sub(transaction.began);
        transaction.incarnation != self.incarnation || age >= LIFETIME
    }

    /// Errors: the history since a version is beyond its limit, and its snapshot is still read.
    fn check_history(&self, version: usize, request: &Request) -> Result<(), String> {
        let replaced = self.model.borrow().least_replaced(version, request.from);
        match self.history {
            Some(limit) if replaced > limit => {
                Err(format!("a snapshot is read although {replaced} bytes have been replaced since"))
            }
            _ => Ok(()),
        }
    }

    fn check_single(&self, request: &Request, reply: Document<'_>, outcome: &Outcome) -> Result<(), String> {
        let Some(statement) = request.action() else { return Ok(()) };
        let mut model = self.model.borrow_mut();
        if let (Action::Index("v"), Outcome::Error(DUPLICATE_KEY, _)) = (statement.0, outcome) {
            self.mark("index builds that found a duplicate");
            // A rename during the build keeps the documents.
            let collections = BUILT.iter().map(|(collection, _)| *collection);
            return match collections
                .into_iter()
                .any(|collection| model.had_duplicate(request.from, collection))
            {
                true => Ok(()),
                false => Err("no version has the duplicate".to_string()),
            };
        }
        if let Some((position, expected)) = &request.applied {
            self.mark("writes");
            model.answer(*position, request.is_durable);
            return match expected.is_like(outcome) {
                true => Ok(()),
                false => Err(format!("{outcome:?} instead of {expected:?}")),
            };
        }
        // The error of a command does not wait for the journal.
        let waits = matches!(failure(reply), None | Some(Outcome::Error(DUPLICATE_KEY, _)));
        if let Some(position) = model.explain(statement, (request.from, model.latest()), outcome) {
            self.mark(if statement.0.is_read() { "reads" } else { "writes without an effect" });
            model.answer(position, request.is_durable && waits);
            return Ok(());
        }
        match outcome {
            Outcome::Error(INTERNAL_ERROR, why) if request.is_nested && why.contains(RAN_NO_WORK) => {
                self.mark("requests that could not wait");
                Ok(())
            }
            Outcome::Error(QUERY_PLAN_KILLED, _)
                if model.has_catalog_changed(request.from, request.collection) =>
            {
                Ok(())
            }
            other => {
                Err(format!("no version explains {other:?}; now {:?}", model.state().get(request.collection)))
            }
        }
    }

    /// Checks a statement of a transaction. Returns false if it has ended the transaction.
    fn check_statement(
        &self,
        transaction: &mut Transaction,
        request: &Request,
        outcome: &Outcome,
    ) -> Result<bool, String> {
        let Some(statement) = request.action() else { return Ok(true) };
        match outcome {
            Outcome::Error(NO_SUCH_TRANSACTION, _) if self.is_over(transaction) => {
                self.mark("transactions that a restart or their age ended");
                return Ok(false);
            }
            Outcome::Error(INTERNAL_ERROR, why) if request.is_nested && why.contains(RAN_NO_WORK) => {
                return Ok(false);
            }
            Outcome::Error(SNAPSHOT_UNAVAILABLE, _)
                if self.model.borrow().has_generation_changed(transaction.from, request.collection) =>
            {
                self.mark("transactions that meet a changed collection");
                return Ok(false);
            }
            Outcome::Error(SNAPSHOT_TOO_OLD, _) if self.history.is_some() => {
                self.mark("snapshots beyond the limit of the history");
                return Ok(false);
            }
            // Writes are locked meanwhile.
            Outcome::Error(LOCK_TIMEOUT, _) if request.is_nested => return Ok(false),
            Outcome::Error(WRITE_CONFLICT, _) => {
                self.mark("write conflicts");
                return match self.has_rivals || self.model.borrow().has_committed_since(transaction.from) {
                    true => Ok(false),
                    false => Err("a write conflict with nothing".to_string()),
                };
            }
            _ => {}
        }
        let from = transaction.from;
        let views = transaction.views.get_or_insert_with(|| self.model.borrow().views(from));
        if !views.statement(statement, outcome) {
            return Err(format!("no read view explains {outcome:?}"));
        }
        if let Some((latest, _)) = views.views.last() {
            self.check_history(*latest, request)?;
        }
        self.mark("statements of transactions");
        // An error ends the transaction.
        Ok(!matches!(outcome, Outcome::Error(DUPLICATE_KEY, _)))
    }

    /// Checks that the cluster time does not go back.
    fn check_time(&self, client: &mut Client, reply: Document<'_>) -> Result<(), String> {
        let time = reply.get("$clusterTime").and_then(|time| time.as_document()?.get("clusterTime"));
        let Some(Value::Timestamp(time)) = time else { return Ok(()) };
        if time < client.seen_time {
            return Err(format!("the cluster time goes back from {:?} to {time:?}", client.seen_time));
        }
        client.seen_time = time;
        Ok(())
    }

    /// Adds a batch to a cursor. Returns the cursor if it is still open. Errors: the documents are of no version.
    fn check_batch(
        &self,
        mut reading: Reading,
        request: &Request,
        reply: Document<'_>,
    ) -> Result<Option<Reading>, String> {
        let model = self.model.borrow();
        let (from, until) = reading.versions;
        match failure(reply) {
            Some(Outcome::Error(CURSOR_NOT_FOUND, _)) if self.now - reading.began >= CURSOR_TIMEOUT => {
                return Ok(None);
            }
            Some(Outcome::Error(QUERY_PLAN_KILLED, _))
                if model.has_catalog_changed(from, reading.collection) =>
            {
                self.mark("cursors of dropped collections");
                return Ok(None);
            }
            Some(Outcome::Error(QUERY_PLAN_KILLED, _)) if self.history.is_some() => {
                self.mark("snapshots beyond the limit of the history");
                return Ok(None);
            }
            Some(other) => return Err(format!("{other:?}")),
            None => self.check_history(until, request)?,
        }
        let (id, docs) = batch(reply)?;
        reading.docs.extend(docs);
        if id != 0 {
            return Ok(Some(reading));
        }
        self.mark("cursors of several batches");
        reading.docs.sort_by_key(|doc| doc.id);
        let outcome = Outcome::Docs(reading.docs);
        match model.explain((&Action::Scan, reading.collection, 0), (from, until), &outcome) {
            Some(_) => Ok(None),
            None => Err(format!("a cursor does not show one version: {outcome:?}")),
        }
    }
}
