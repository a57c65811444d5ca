//! A running command, as its handler sees it.
//!
//! A handler takes a [`Call`], appends to its reply and returns a [`HandlerStatus`]. An argument that every command may
//! carry belongs to `arguments.rs`, a state that outlives a wait to [`Progress`].

pub(crate) mod arguments;
pub(crate) mod finished;
pub(crate) mod progress;
mod row;
pub(crate) mod transaction_rules;
pub(crate) mod waits;

pub(crate) use row::{Handler, Row};

use crate::access::{Command, Kind};
use crate::call::arguments::{Arguments, is_generic};
use crate::call::progress::Progress;
use crate::observe::profiler::Notes;
use crate::process::event::Event;
use crate::protocol::fields::Fields;
use crate::server::{InnerStatus, Server};
use crate::state::connection::ConnectionState;
use base::bson::{Builder, Document, DocumentBuf};
use base::{CompatibleWith, Error, ErrorCode, Namespace, Result, err};
use database::{OpenTransaction, Operation, Position, QuerySettings, Suspension, time};
use std::cell::Cell;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};
use wire::request::Request;

/// Context of a command while its handler runs.
pub(crate) struct Call<'a> {
    /// State shared by all connections.
    pub(crate) server: &'a Server,
    /// Connection of the client.
    pub(crate) connection: &'a mut ConnectionState,
    /// State of the request since its start.
    pub(crate) progress: &'a mut Progress,
    pub(crate) request: &'a Request<'a>,
    /// Row of the command in the command table.
    pub(crate) command: &'static Command,
    pub(crate) arguments: &'a Arguments<'a>,
    /// The reply so far. `ok` and other generic fields are appended later.
    pub(crate) reply: &'a mut Builder,
    /// Transaction that contains the command.
    pub(crate) transaction: Option<Arc<OpenTransaction>>,
    /// Operation id for killOp.
    pub(crate) operation_id: u64,
    /// True if the next operation is the command's first, and its statements may be suspended.
    pub(crate) may_suspend: Cell<bool>,
    /// Wait of a command that this command runs.
    pub(crate) inner_wait: Cell<Option<Event>>,
    /// True if the client accepts further replies without requests (exhaust).
    pub(crate) exhaust_allowed: bool,
    /// Set by a handler that continues to reply: the topology version in its reply. The server then
    /// handles the same request again.
    pub(crate) streams: Option<i64>,
    /// Results of single statements, while the profiler is on.
    pub(crate) notes: Option<Notes>,
    /// Set by a handler that reads a change stream.
    pub(crate) reads_stream: bool,
    /// True if the cursor may return only durable changes.
    pub(crate) durable: bool,
    /// The settings of the query's shape.
    pub(crate) query_settings: Option<Arc<QuerySettings>>,
    /// Events that must happen before the reply is sent.
    pub(crate) durability_wait: Option<DurabilityWait>,
}

/// Condition for sending a reply after its handler.
pub(crate) struct DurabilityWait {
    /// Commit that must be in the journal.
    pub(crate) position: Position,
    /// Deadline, and the error for the reply after it: the write concern's `wtimeout`.
    pub(crate) timeout: Option<(Instant, Error)>,
}

impl DurabilityWait {
    /// Adds this condition to an existing condition.
    pub(crate) fn join(self, other: &mut Option<DurabilityWait>) {
        match other {
            Some(other) => {
                other.position = other.position.max(self.position);
                other.timeout = other.timeout.take().or(self.timeout);
            }
            none => *none = Some(self),
        }
    }
}

/// Result of a handler or request, errors excepted.
pub(crate) enum HandlerStatus {
    /// The reply is complete.
    Done,
    /// The handler must be called again after the event, and the request polled again.
    Wait(Event),
    /// The connection must be closed without a reply.
    Close,
}

impl<'a> Call<'a> {
    /// Returns the command's own fields, to be taken one by one.
    pub(crate) fn fields(&self) -> Fields<'a> {
        Fields::of_command(self.request, is_generic)
    }

    /// Records a finished statement while the profiler is on.
    pub(crate) fn note(
        &mut self,
        statement: Document<'_>,
        operation: &Operation,
        count: impl FnOnce(&mut Builder),
    ) {
        if let Some(notes) = &mut self.notes {
            notes.add(statement, operation, count);
        }
    }

    /// Creates the handle for database work that may take long. The work ends at maxTimeMS, killOp
    /// and shutdown.
    ///
    /// Its `blocking` frees the network thread: other connections of this thread move to another
    /// thread meanwhile. That costs about ten microseconds, so the database calls it only around
    /// plans expected to read many documents.
    pub(crate) fn operation(&self) -> Arc<Operation> {
        let mut operation = self.server.database.operation(self.operation_id);
        let settings = self.query_settings.as_deref();
        let no_table_scan = settings.and_then(|settings| settings.no_table_scan);
        operation.no_table_scan = no_table_scan.unwrap_or_else(|| self.server.parameters.no_table_scan());
        operation.set_memory_limit(self.server.parameters.operation_memory());
        operation.query_settings.clone_from(&self.query_settings);
        let operation = Arc::new(operation);
        let max_time = settings.and_then(|settings| settings.max_time);
        if let Some(limit) = max_time.or(self.arguments.max_time) {
            // Time in waits counts.
            let waited = self.progress.began.map_or(Duration::ZERO, |began| time::since(began.at));
            let left = limit.saturating_sub(waited).as_micros().div_ceil(1000);
            operation.set_max_time((left as u64).max(1));
        }
        if let Some(transaction) = &self.transaction {
            operation.set_transaction(transaction.clone());
        }
        if self.may_suspend.replace(false) {
            match &self.progress.suspended {
                Some(suspended) => operation.resume(suspended.ticket.take()),
                // The command around it begins again after each wait.
                None if self.connection.is_inner => operation.resume(None),
                None => operation.allow_suspension(),
            }
            if self.command.kind == Kind::Read && !self.connection.is_inner {
                let suspended = self.progress.suspended.as_ref();
                operation.restart(suspended.and_then(|suspended| suspended.place.take()));
            }
        }
        self.set_operation(&operation);
        operation
    }

    /// Checks that a name belongs to the collection with this UUID, if one is given.
    ///
    /// Errors: CollectionUUIDMismatch.
    pub(crate) fn check_uuid(&self, namespace: &Namespace, uuid: Option<[u8; 16]>) -> Result<()> {
        match uuid {
            Some(_) => self.server.database.catalog().check_uuid(namespace, uuid),
            None => Ok(()),
        }
    }

    /// Makes this command continue an operation, such as a cursor's.
    pub(crate) fn set_operation(&self, operation: &Arc<Operation>) {
        self.connection.activity.set_operation(operation.clone());
    }

    /// Runs an internal command that includes `$db`. Its commits are not awaited: this command's reply waits for them.
    ///
    /// Errors: the error of the command or of its first statement; LockBusy if it must wait. This command's handler
    /// then runs again from its start.
    pub(crate) fn run_inner(&self, command: Document<'_>) -> Result<DocumentBuf> {
        match self.server.run_inner(command)? {
            InnerStatus::Done(reply) => Ok(reply),
            InnerStatus::Wait(event) => {
                self.inner_wait.set(Some(event));
                Err(err!(LockBusy, "a command inside of another command waits"))
            }
        }
    }

    /// Keeps the state of the handler if `error` suspends its statement. Returns the error.
    pub(crate) fn keep<T: Send + 'static>(&mut self, state: T, error: Error) -> Error {
        if error.code() == ErrorCode::LockBusy {
            self.progress.suspended.get_or_insert_default().handler_state = Some(Box::new(state));
        }
        error
    }

    /// Returns the state of the handler before its statement was suspended, and resumes its operation.
    pub(crate) fn resume<T: 'static>(&mut self) -> Option<T> {
        let suspended = self.progress.suspended.as_mut()?;
        let state = suspended.handler_state.take()?.downcast::<T>().ok()?;
        // A handler of inner commands has no operation of its own.
        if let Some(used) = self.connection.activity.operation() {
            used.operation.resume(suspended.ticket.take());
        }
        self.may_suspend.set(false);
        Some(*state)
    }

    /// Leaves the queue of a record, after the statement that was suspended in it.
    pub(crate) fn leave_queue(&self) {
        if self.progress.suspended.is_some()
            && let Some(used) = self.connection.activity.operation()
        {
            used.operation.leave_queue();
        }
    }

    /// Returns the wait of a suspended statement, which `error` ended. The handler runs again after it.
    ///
    /// Errors: MaxTimeMSExpired.
    pub(crate) fn suspension(&mut self, error: &Error) -> Result<Option<Event>> {
        let suspension = match self.inner_wait.take() {
            Some(event) => {
                let until = event.until();
                Some(Suspension { until, ready: event.into_ready(), ticket: None, place: None })
            }
            None => {
                let operation = self.connection.activity.operation();
                operation.and_then(|used| used.operation.take_suspension())
            }
        };
        let Some(Suspension { ready, ticket, place, until }) = suspension else { return Ok(None) };
        let suspended = self.progress.suspended.get_or_insert_default();
        let context = error.message().rsplit_once(" :: caused by :: ");
        suspended.context = context.map(|(context, _)| context.to_string());
        suspended.ticket.set(ticket);
        suspended.place.set(place);
        self.reply.truncate(0);
        // A handler that continues does not read its settings again.
        let settings = self.query_settings.as_deref().and_then(|settings| settings.max_time);
        suspended.max_time = settings.or(suspended.max_time).or(self.arguments.max_time);
        let limit = waits::for_suspended(self.progress)?;
        Ok(Some(Event::Other { until: until.map_or(limit, |until| until.min(limit)), ready }))
    }

    /// Applies the settings of the command's query shape, and the settings `given` by the command.
    ///
    /// Errors: QueryRejectedBySettings; errors of [`plan_by_query_settings`](Self::plan_by_query_settings).
    pub(crate) fn apply_query_settings(&mut self, given: Option<Document<'_>>) -> Result<()> {
        let request = self.request;
        let rejects = self.plan_by_query_settings(request, given)?;
        match rejects {
            true => Err(err!(QueryRejectedBySettings, "Query rejected by admin query settings")),
            false => Ok(()),
        }
    }

    /// Lets plans follow the settings of a query shape. Returns whether the settings refuse the query, which explain
    /// disregards.
    ///
    /// Errors: before MongoDB 9.0, each command's own code for settings that it gives; invalid settings.
    pub(crate) fn plan_by_query_settings(
        &mut self,
        request: &Request<'_>,
        given: Option<Document<'_>>,
    ) -> Result<bool> {
        if given.is_some() && self.server.settings.compatible_with < CompatibleWith::V9_0 {
            let code = match request.name {
                "find" => 7746901,
                "aggregate" => 7708001,
                _ => 7923000,
            };
            let message = "BSON field 'querySettings' is an unknown field";
            return Err(Error::new(ErrorCode::from_number(code), message));
        }
        let settings = &self.server.set_settings.query_settings;
        let shape = settings.for_command((request.database, request.body), given)?;
        self.query_settings = shape.as_ref().map(|shape| shape.settings.clone());
        Ok(shape.is_some_and(|shape| shape.reject))
    }

    /// Waits at most this long since the first call of the handler; `None` after that time, when
    /// the handler must reply.
    pub(crate) fn wait(
        &mut self,
        at_most: Duration,
        ready: impl FnMut(&Waker) -> bool + Send + 'static,
    ) -> Option<HandlerStatus> {
        let now = time::now();
        let until = *self.progress.waiting_until.get_or_insert(now + at_most);
        (now < until).then(|| HandlerStatus::Wait(Event::Other { until, ready: Box::new(ready) }))
    }
}
