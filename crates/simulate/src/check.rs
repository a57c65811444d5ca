//! The checks of replies and of all stored data against the model.

use crate::action::{Action, COLLECTIONS, Doc, Outcome, batch, failure, namespace};
use crate::client::{Client, Reading, Request, Step, Transaction};
use crate::model::Model;
use crate::world::{Process, World};
use base::bson::{Document, DocumentBuf, Value, extended_json};
use std::time::Duration;

/// Lifetime of transactions, the default of transactionLifetimeLimitSeconds.
const LIFETIME: Duration = Duration::from_secs(60);
/// Time after which the server may close an idle cursor, the default of cursorTimeoutMillis.
const CURSOR_TIMEOUT: Duration = Duration::from_secs(600);

const INTERNAL_ERROR: i32 = 1;
const CURSOR_NOT_FOUND: i32 = 43;
const HOST_UNREACHABLE: i32 = 91;
const WRITE_CONFLICT: i32 = 112;
const QUERY_PLAN_KILLED: i32 = 175;
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

impl World {
    /// Checks a reply. Errors: why it is wrong.
    pub(crate) fn check_reply(
        &self,
        client: &mut Client,
        request: &Request,
        reply: &DocumentBuf,
    ) -> Result<(), String> {
        self.check_time(client, reply.view())?;
        if self.is_faulty.get() && is_refused(reply.view()) {
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
                        let (place, began) = (request.place, self.now());
                        client.reading = Some(Reading { id, place, docs, versions, began });
                        return Ok(());
                    }
                }
                self.check_single(request, reply.view(), &outcome)
            }
            Step::More => match client.reading.take() {
                Some(reading) => {
                    client.reading = self.check_batch(reading, reply.view())?;
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
                    // The disk has refused the commit, and the client did not get that reply.
                    (Some(Outcome::Error(NO_SUCH_TRANSACTION, _)), None) if self.is_faulty.get() => Ok(()),
                    (Some(error), None) => Err(format!("{error:?}")),
                }
            }
        }
    }

    /// Returns true if the server may have forgotten a transaction.
    fn is_over(&self, transaction: &Transaction) -> bool {
        let age = self.now().saturating_sub(transaction.began);
        transaction.incarnation != self.incarnation.get() || age >= LIFETIME
    }

    fn check_single(&self, request: &Request, reply: Document<'_>, outcome: &Outcome) -> Result<(), String> {
        let Some(statement) = request.action() else { return Ok(()) };
        let mut model = self.model.borrow_mut();
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
                if model.has_catalog_changed(request.from, request.place) =>
            {
                Ok(())
            }
            other => {
                Err(format!("no version explains {other:?}; now {:?}", model.state().get(request.place)))
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
            Outcome::Error(WRITE_CONFLICT, _) => {
                self.mark("write conflicts");
                let latest = self.model.borrow().latest();
                let others = self.clients.iter().enumerate().any(|(number, other)| {
                    // The client itself is borrowed.
                    other.try_borrow().is_ok_and(|other| {
                        other.number == number && (other.transaction.is_some() || other.is_running)
                    })
                });
                return match latest > transaction.from || others {
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
    fn check_batch(&self, mut reading: Reading, reply: Document<'_>) -> Result<Option<Reading>, String> {
        let model = self.model.borrow();
        let (from, until) = reading.versions;
        match failure(reply) {
            Some(Outcome::Error(CURSOR_NOT_FOUND, _)) if self.now() - reading.began >= CURSOR_TIMEOUT => {
                return Ok(None);
            }
            Some(Outcome::Error(QUERY_PLAN_KILLED, _)) if model.has_catalog_changed(from, reading.place) => {
                self.mark("cursors of dropped collections");
                return Ok(None);
            }
            Some(other) => return Err(format!("{other:?}")),
            None => {}
        }
        let (id, docs) = batch(reply)?;
        reading.docs.extend(docs);
        if id != 0 {
            return Ok(Some(reading));
        }
        self.mark("cursors of several batches");
        reading.docs.sort_by_key(|doc| doc.id);
        let outcome = Outcome::Docs(reading.docs);
        match model.explain((&Action::Scan, reading.place, 0), (from, until), &outcome) {
            Some(_) => Ok(None),
            None => Err(format!("a cursor does not show one version: {outcome:?}")),
        }
    }
}

/// Compares all data of a process with the model's latest version.
pub(crate) fn verify(process: &Process, model: &Model) -> Result<(), String> {
    COLLECTIONS.iter().try_for_each(|place| verify_collection(process, model, place))
}

fn verify_collection(process: &Process, model: &Model, place: &'static str) -> Result<(), String> {
    let state = model.state();
    let (database, name) = namespace(place);
    let list = format!("{{listCollections: 1, filter: {{name: '{name}'}}, $db: '{database}'}}");
    let found = process.command(&list)?;
    let found = extended_json::to_relaxed(found.view());
    if found.contains(&format!("\"name\":\"{name}\"")) != state.contains_key(place) {
        return Err(format!("{place} exists or not: {found}"));
    }
    if !state.contains_key(place) {
        return Ok(());
    }
    let docs: Vec<Doc> = state.get(place).into_iter().flat_map(|docs| docs.values().copied()).collect();
    let mut ways = vec!["$natural", "_id"];
    let indexes = process.command(&format!("{{listIndexes: '{name}', $db: '{database}'}}"))?;
    let indexes = extended_json::to_relaxed(indexes.view());
    ways.extend(["u", "n"].into_iter().filter(|way| indexes.contains(&format!("\"name\":\"{way}\""))));
    for way in ways {
        let reply = process.command(&format!("{{find: '{name}', hint: {{{way}: 1}}, $db: '{database}'}}"))?;
        let found = Action::Find(None).outcome(reply.view())?;
        if found != Outcome::Docs(docs.clone()) {
            return Err(format!("{place} by {way} has {found:?}, expected {docs:?}"));
        }
    }
    let reply = process.command(&format!("{{count: '{name}', $db: '{database}'}}"))?;
    let count = Action::Count.outcome(reply.view())?;
    if count != Outcome::Count(docs.len() as i64) {
        return Err(format!("{place} has {} documents, and counts {count:?}", docs.len()));
    }
    let reply = process.command(&format!("{{validate: '{name}', $db: '{database}'}}"))?;
    match reply.view().get("valid").and_then(|valid| valid.as_bool()) {
        Some(true) => Ok(()),
        _ => Err(format!("{place} is not valid: {}", extended_json::to_relaxed(reply.view()))),
    }
}
