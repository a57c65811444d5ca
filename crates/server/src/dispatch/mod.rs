//! Path of a request to its handler: lookup, checks, session, fail points, handler, generic reply
//! fields.
//!
//! [`run`] is called again after each wait of a command. [`Progress`] has what the command needs across calls. A check
//! of all commands belongs to [`Run::check_and_run`]. A new command is a row of [`table`].

pub(crate) mod local;
pub(crate) mod request;

use crate::access::{Command, Kind};
use crate::auth::{self, EXTERNAL, login, redact};
use crate::call::arguments::{Arguments, Topology};
use crate::call::finished::{self, Finished};
use crate::call::progress::{Progress, RequestStart};
use crate::call::transaction_rules::{self, Part};
use crate::call::{Call, DurabilityWait, Handler, HandlerStatus, Row, waits};
use crate::commands::table;
use crate::observe::activity;
use crate::observe::profiler::{Notes, Setting};
use crate::process::blocking::in_place;
use crate::process::event::Event;
use crate::protocol::read_concern::ReadConcern;
use crate::protocol::reply::{self, LabelContext, Reply};
use crate::protocol::write_concern::Effective;
use crate::server::Server;
use crate::session::{Sessions, Start};
use crate::state::connection::ConnectionState;
use crate::state::fail_point::{Failure, Target};
use base::bson::{Builder, Document, DocumentBuf, Value};
use base::namespace::is_internal_database;
use base::{Error, ErrorCode, Namespace, Result, bail, err};
use database::language::first_stage;
use database::{Database, OpenTransaction, Position, cancellation, mutant, time};
use std::cell::Cell;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;
use wire::request::Request;

/// A command whose handler has finished while its commit is not yet in the journal.
pub(crate) struct PendingReply {
    /// Id of the reply message and the reply. Empty while the request is polled.
    pub(crate) reply: Option<(i32, Reply)>,
    result: Result<()>,
    durability_wait: DurabilityWait,
    record: CommandRecord,
}

/// Commands whose replies are never compressed, as the protocol requires.
const UNCOMPRESSED: [&str; 5] = ["hello", "isMaster", "saslStart", "saslContinue", "authenticate"];

/// Continues a request until its reply is complete or it must wait. Errors become replies.
pub(crate) fn run(
    state: &mut ConnectionState,
    server: &Server,
    request: &Request<'_>,
    (progress, pending_reply): (&mut Progress, &mut Option<Box<PendingReply>>),
    exhaust_allowed: bool,
    reply: &mut Reply,
) -> HandlerStatus {
    let _busy = server.processors.begin_request();
    let resumed = pending_reply.take().map(|pending_reply| *pending_reply);
    let at = resumed
        .as_ref()
        .map(|pending_reply| pending_reply.record.at)
        .or_else(|| table::position(request.name));
    let Some((at, Row { command, run: handler })) = at.and_then(|at| Some((at, table::ROWS.get(at)?))) else {
        server.counters.requests.add(1);
        server.counters.unknown_commands.add(1);
        let error = err!(CommandNotFound, "no such command: '{}'", request.name);
        return refuse(server, state, reply, &error);
    };
    let handler = *handler;
    let Some(PendingReply { result, durability_wait, record, .. }) = resumed else {
        server.counters.requests.add(u64::from(progress.began.is_none()));
        // Read before the handler runs: a change of the level does not apply to the command that
        // makes it.
        let setting = server.profiler.setting(request.database);
        let began = progress.suspended.as_ref().and_then(|suspended| suspended.began);
        let notes = progress.suspended.as_mut().and_then(|suspended| suspended.notes.take());
        let record = CommandRecord {
            at,
            began: began.map_or_else(time::now, |(began, _)| began),
            context: LabelContext::default(),
            labels: None,
            write_concern_error: None,
            notes: notes.or_else(|| setting.as_ref().map(|_| Notes::default())),
            setting,
            durability_wait: None,
            body_length: 0,
        };
        let mut run =
            Run { server, request, command, handler, exhaust_allowed, progress, pending_reply, record };
        return match run.check_and_run(state, reply) {
            Ok(HandlerStatus::Wait(event)) => {
                HandlerStatus::Wait(waits::until_killed(event, &state.activity))
            }
            Ok(HandlerStatus::Close) => {
                run.report(state, reply, &Ok(()));
                HandlerStatus::Close
            }
            Ok(HandlerStatus::Done) => run.wait_or_finish(state, reply, Ok(())),
            Err(error) => run.wait_or_finish(state, reply, Err(error)),
        };
    };
    Run { server, request, command, handler, exhaust_allowed, progress, pending_reply, record }.release(
        state,
        reply,
        result,
        durability_wait,
    )
}

/// Returns true if a database has a collection or is a system database.
fn database_exists(database: &Database, name: &str) -> bool {
    is_internal_database(name) || database.catalog().collections(name).next().is_some()
}

/// Replies with an error to a request with an unknown command.
pub(crate) fn refuse(
    server: &Server,
    state: &ConnectionState,
    reply: &mut Reply,
    error: &Error,
) -> HandlerStatus {
    server.counters.user_asserts.add(1);
    reply::failure::<&str>(&mut reply.document, error, &[]);
    append_cluster_time(server, state, &mut reply.document);
    HandlerStatus::Done
}

/// Runs a handler until its plan uses the present catalog.
fn run_handler(handler: Handler, call: &mut Call<'_>, before: Position) -> Result<HandlerStatus> {
    loop {
        match handler(call) {
            // The plan used an old catalog of a shared store. Nothing has changed, so the command
            // runs again.
            Err(error) if error.code() == ErrorCode::StaleConfig => call.reply.truncate(0),
            Err(error) if error.code() == ErrorCode::LockBusy => {
                return call.suspension(&error)?.map(HandlerStatus::Wait).ok_or(error);
            }
            Ok(answer) if call.command.kind == Kind::Read => {
                return call.confirm_read(before).map(|()| answer);
            }
            answer => return answer,
        }
    }
}

/// A running command.
struct Run<'a, 'r> {
    server: &'a Server,
    request: &'a Request<'a>,
    command: &'static Command,
    handler: Handler,
    exhaust_allowed: bool,
    progress: &'r mut Progress,
    /// Place for the command while its reply waits for the journal.
    pending_reply: &'r mut Option<Box<PendingReply>>,
    record: CommandRecord,
}

/// Results of a command: parts of its error labels, and input for profiler and log.
struct CommandRecord {
    /// Position in the command table.
    at: usize,
    /// Time of the handler's latest call, or of its first call if its statements were suspended.
    began: Instant,
    context: LabelContext,
    labels: Option<Vec<String>>,
    /// Profiler settings of the database.
    setting: Option<Arc<Setting>>,
    /// Results of single statements, while the profiler is on.
    notes: Option<Notes>,
    /// Additional write concern error of a failed write. Its earlier statements may have had
    /// effects.
    write_concern_error: Option<Error>,
    /// Condition for sending the reply.
    durability_wait: Option<DurabilityWait>,
    /// Length of the reply in bytes before the generic fields at its end.
    body_length: usize,
}

impl<'a> Run<'a, '_> {
    /// Ends a command whose handler has finished, unless its reply must wait for the journal.
    fn wait_or_finish(
        self,
        state: &mut ConnectionState,
        reply: &mut Reply,
        result: Result<()>,
    ) -> HandlerStatus {
        let Run { progress, pending_reply, mut record, .. } = self;
        let Some(durability_wait) = record.durability_wait.take() else {
            return Run { progress, pending_reply, record, ..self }.end(state, reply, result);
        };
        let until = durability_wait.timeout.as_ref().map(|(until, _)| *until);
        let event = Event::Journaled { position: durability_wait.position, until };
        *pending_reply = Some(Box::new(PendingReply { reply: None, result, durability_wait, record }));
        HandlerStatus::Wait(event)
    }

    /// Ends a command after its wait for the journal.
    fn release(
        self,
        state: &mut ConnectionState,
        reply: &mut Reply,
        result: Result<()>,
        durability_wait: DurabilityWait,
    ) -> HandlerStatus {
        let database = &self.server.database;
        let is_late = !database.is_journaled(durability_wait.position);
        match durability_wait.timeout {
            Some((until, error)) if is_late && time::now() >= until => {
                if result.is_ok() {
                    reply.document.truncate(self.record.body_length);
                    reply::write_concern_error(&mut reply.document, &error);
                    self.append_generic_fields(state, &mut reply.document);
                }
                self.end(state, reply, result)
            }
            _ => {
                // Returns at once, unless the journal is broken and the commit may be lost.
                let journaled = database.wait_journaled(durability_wait.position);
                self.end(state, reply, result.and(journaled))
            }
        }
    }

    fn end(mut self, state: &mut ConnectionState, reply: &mut Reply, result: Result<()>) -> HandlerStatus {
        let result = result.and_then(|()| reply.check_size());
        self.report(state, reply, &result);
        if let Err(error) = result {
            reply.clear();
            reply.streams = None;
            self.append_failure(state, &mut reply.document, &error);
        }
        reply.compressible = !UNCOMPRESSED.contains(&self.command.name);
        HandlerStatus::Done
    }

    /// Counts a finished command and passes it to the profiler if it is slow or profiled.
    fn report(&mut self, state: &mut ConnectionState, reply: &Reply, result: &Result<()>) {
        let (server, request, took) = (self.server, self.request, time::since(self.record.began));
        let exists = || database_exists(&server.database, request.database);
        let counted = server.counters.operations.of(&mut state.counted, request.database, exists);
        counted.record(self.record.at, took, result.is_err());
        let setting = self.record.setting.as_deref();
        if (setting.is_some() || server.profiler.slow.is_slow(took)) && !state.is_system {
            let written_reply = reply.document.to_document();
            let finished = Finished {
                request,
                command: self.command,
                collection: self.collection(),
                state,
                outcome: result.as_ref().map(|()| written_reply.view()),
                notes: self.record.notes.take(),
                reply_length: written_reply.bytes().len(),
                took,
            };
            finished::report(server, setting, &finished);
        }
    }

    /// Checks the request, then runs it. Errors before [`begin`](Self::begin) have no operation.
    fn check_and_run(&mut self, state: &mut ConnectionState, reply: &mut Reply) -> Result<HandlerStatus> {
        let (server, command) = (self.server, self.command);
        // `$external` is not a database. It contains the users of external authentication.
        if self.request.database != EXTERNAL {
            base::namespace::check_database_name(self.request.database)?;
        }
        if command.admin_only && self.request.database != "admin" {
            bail!(Unauthorized, "{} may only be run against the admin database.", command.name);
        }
        if state.identity.is_some() {
            login::refresh(&server.auth, state)?;
        }
        if state.is_access_controlled(&server.auth) {
            if !command.runs_without_auth(server.settings.compatible_with) {
                auth::check(&server.auth, state, command)?;
            }
            // A check of the whole list after each suspension would take too long.
            if !self.progress.is_kept() {
                auth::authorize(&server.auth, &server.activities, state, self.request, command)?;
            }
        }
        let topology = Topology { is_replica_set: server.is_replicated() };
        let mut arguments = Arguments::default();
        arguments.read(self.request.body, command, &topology)?;
        // Without a login, the time of a client is ignored unless a key has signed it.
        if !state.is_unauthenticated(&server.auth) || auth::localhost_exception(&server.auth, state) {
            check_cluster_time(server, arguments.cluster_time >> 32)?;
        }
        check_after_cluster_time(server, &arguments)?;
        if let Some(named) = arguments.named_session {
            arguments.session = auth::own_session(&server.auth, state, named)?;
        }
        let in_transaction = arguments.transaction.is_some();
        self.record.context = LabelContext {
            retryable_write: arguments.transaction_number.is_some() && !in_transaction,
            in_transaction,
            ends_transaction: command.ends_transactions(),
            no_writes: !self.progress.has_changes(&self.server.database),
            change_stream: command.name == "aggregate" && opens_stream(self.request.body),
        };
        // The command is known here, so the error has labels that let drivers retry on another
        // server.
        if server.network.is_stopping() && !state.is_system {
            bail!(ShutdownInProgress, "the server is shutting down");
        }
        if in_transaction {
            // `create` itself refuses system collections.
            let writes =
                command.kind == Kind::Write && !command.ends_transactions() && command.name != "create";
            transaction_rules::check_namespace(self.request.database, self.collection(), writes)?;
        }
        if command.kind == Kind::Write && command.name != "drop" && self.is_on_oplog() {
            bail!(IllegalOperation, "local.oplog.rs is the oplog, which is read-only");
        }
        if command.kind == Kind::Write && self.is_on_transactions() {
            bail!(IllegalOperation, "config.transactions is written by the server alone");
        }
        let is_resumed = self.progress.began.is_some();
        self.begin(state, &arguments)?;
        let mut failure = match is_resumed {
            // The repeated call of a waiting command does not count as another command.
            true => self.progress.failure.take().map(|failure| *failure).unwrap_or_default(),
            false => self.failure(state, &arguments),
        };
        if let Some(delay) = failure.delay.take() {
            self.progress.failure = Some(Box::new(failure));
            return Ok(HandlerStatus::Wait(waits::for_delay(delay)));
        }
        if !server.settings.shared {
            return self.run(state, reply, &arguments, failure);
        }
        let over = waits::over(state, self.progress, &arguments);
        cancellation::within(over, || self.run(state, reply, &arguments, failure))
    }

    /// Marks the command as the current operation of the connection, unless it continues after a
    /// wait.
    ///
    /// Errors: Interrupted if it was killed meanwhile; TooManyLogicalSessions.
    fn begin(&mut self, state: &mut ConnectionState, arguments: &Arguments<'_>) -> Result<()> {
        if self.progress.began.is_some() {
            return match state.activity.killed(Waker::noop()) {
                Some(reason) => Err(Error::new(reason, "operation was interrupted")),
                None => Ok(()),
            };
        }
        use_session(state, &self.server.sessions, arguments)?;
        let operation_id = self.server.activities.next_operation_id();
        let place = (self.request.database, self.collection());
        let without_secrets = self.command.has_secrets.then(|| redact::without_secrets(self.request.body));
        let body = match &without_secrets {
            Some(body) => body.view(),
            // An internal command is part of a user's command and may be secret.
            None if state.is_system || redact::is_secret(place.0, place.1) => Document::EMPTY,
            None => self.request.body,
        };
        let start = RequestStart { operation_id, at: self.record.began };
        let command = self.command.name;
        state.activity.begin((operation_id, start.at), command, arguments.session, place, body);
        self.progress.began = Some(start);
        Ok(())
    }

    fn run(
        &mut self,
        state: &mut ConnectionState,
        reply: &mut Reply,
        arguments: &Arguments<'a>,
        mut failure: Failure,
    ) -> Result<HandlerStatus> {
        if let Some(result) = self.fail(&mut failure) {
            return result;
        }
        self.check_primary(arguments)?;
        if self.server.set_settings.user_write_block.reason().is_some() {
            auth::check_user_writes(&self.server.auth, state, self.command, self.request)?;
        }
        if let Some(event) = self.wait(state, arguments)? {
            self.progress.failure = Some(Box::new(failure));
            if let Some(suspended) = &mut self.progress.suspended {
                suspended.notes = self.record.notes.take();
            }
            return Ok(HandlerStatus::Wait(event));
        }
        // A session keeps the ticket of its transaction.
        let starts_transaction = arguments.transaction == Some(Part::First);
        let _execution = if starts_transaction { None } else { self.progress.execution.take() };
        self.progress.has_run = true;
        if !self.server.settings.shared {
            return self.run_admitted(state, reply, arguments, failure);
        }
        // Work on a shared store always takes long.
        state.leave_network_thread(&self.server.network);
        in_place(|| self.run_admitted(state, reply, arguments, failure))
    }

    /// Runs the handler of a command that has no more to wait for before it.
    fn run_admitted(
        &mut self,
        state: &mut ConnectionState,
        reply: &mut Reply,
        arguments: &Arguments<'a>,
        mut failure: Failure,
    ) -> Result<HandlerStatus> {
        if self.progress.suspended.is_some() {
            waits::for_suspended(self.progress)?;
        } else if self.record.context.retryable_write && self.server.fail_points.active() {
            let statements = self.new_statements(state, arguments);
            let write = self.server.fail_points.check_retryable_write(statements);
            failure = write.unwrap_or(failure);
            if let Some(result) = self.fail(&mut failure) {
                return result;
            }
        }
        if self.command.kind == Kind::Write {
            let default = self.server.set_settings.default_concerns.write(self.server.is_replicated());
            let concern = Effective::new(arguments.write_concern.as_ref(), default);
            self.record.write_concern_error = concern.unsatisfiable(|| self.server.members());
        }
        let level = arguments.read_concern.level.or_else(|| self.default_level());
        let transaction = self.enter_transaction(state, arguments)?;
        let in_transaction = transaction.is_some();
        let operation_id = self.progress.began.map_or(0, |began| began.operation_id);
        let mut call = Call {
            transaction,
            server: self.server,
            connection: state,
            progress: &mut *self.progress,
            request: self.request,
            command: self.command,
            arguments,
            reply: &mut reply.document,
            exhaust_allowed: self.exhaust_allowed,
            operation_id,
            may_suspend: Cell::new(self.command.restarts && !in_transaction),
            inner_wait: Cell::default(),
            streams: None,
            notes: self.record.notes.take(),
            reads_stream: false,
            query_settings: None,
            durability_wait: None,
            durable: false,
        };
        let before = call.progress.suspended.as_ref().and_then(|suspended| suspended.began);
        let before = before.map_or_else(|| self.server.database.latest_position(), |(_, before)| before);
        let answer = run_handler(self.handler, &mut call, before);
        let durable = call.durable || level.is_some_and(ReadConcern::is_durable);
        self.record.notes = call.notes.take();
        if let (Ok(HandlerStatus::Wait(_)), Some(suspended)) = (&answer, &mut call.progress.suspended) {
            suspended.began = Some((self.record.began, before));
            suspended.notes = self.record.notes.take();
        }
        self.record.durability_wait = call.durability_wait.take();
        self.record.context.change_stream |= call.reads_stream;
        reply.streams = call.streams;
        self.record.context.no_writes &= answer.is_err() && self.server.database.latest_position() == before;
        if in_transaction && let Some(session) = &state.session {
            let failed = std::mem::take(&mut self.progress.statement_failed) || answer.is_err();
            session.leave_transaction(&self.server.database, &self.server.sessions.transactions, failed);
            if failed {
                self.server.database.cursors.kill_transaction(&session.id);
            }
        }
        self.complete(state, reply, answer?, failure, durable)
    }

    /// Completes the reply of a handler that has ended, and keeps the fail point of one that waits.
    fn complete(
        &mut self,
        state: &mut ConnectionState,
        reply: &mut Reply,
        status: HandlerStatus,
        failure: Failure,
        durable: bool,
    ) -> Result<HandlerStatus> {
        match status {
            HandlerStatus::Wait(event) => {
                self.progress.failure = Some(Box::new(failure));
                Ok(HandlerStatus::Wait(event))
            }
            HandlerStatus::Done if !failure.close_after => {
                self.record.labels = failure.labels;
                self.append_write_concern_error(&mut reply.document, failure.write_concern_error);
                self.record.body_length = reply.document.len();
                self.append_generic_fields(state, &mut reply.document);
                if durable {
                    self.wait_for_visible_commits(state);
                }
                Ok(HandlerStatus::Done)
            }
            HandlerStatus::Done | HandlerStatus::Close => Ok(HandlerStatus::Close),
        }
    }

    /// Appends the generic fields at the end of a reply.
    fn append_generic_fields(&self, state: &ConnectionState, reply: &mut Builder) {
        reply.append(c"ok", 1.0);
        if self.record.context.in_transaction && self.server.settings.shared {
            // Drivers send this token with the commit, so that another router can find the outcome.
            // A front finds it by session and number. The token is not empty because PyMongo does
            // not send an empty token.
            reply.begin_document(c"recoveryToken").append(c"recoveryShardId", "postgres").end();
        }
        append_cluster_time(self.server, state, reply);
    }

    /// Returns the default read concern level, if it has an effect on this command.
    fn default_level(&self) -> Option<ReadConcern> {
        let has_effect = self.command.takes_read_concern && self.server.database.always_journals();
        has_effect.then(|| self.server.set_settings.default_concerns.read()).flatten()
    }

    /// Holds the reply until the journal has all commits that it may show, including
    /// `operationTime`. Applies if commits are visible before they are in the journal. Reads over
    /// PostgreSQL have already waited (`Call::confirm_read`).
    fn wait_for_visible_commits(&mut self, state: &ConnectionState) {
        let database = &self.server.database;
        if self.server.settings.shared || !database.always_journals() || state.is_inner {
            return;
        }
        let position = database.visible_position();
        if !database.is_journaled(position) {
            DurabilityWait { position, timeout: None }.join(&mut self.record.durability_wait);
        }
    }

    /// Returns the transaction of the statement; `None` for commands that end a transaction.
    ///
    /// Errors: no such transaction in progress; namespaces not allowed in transactions.
    fn enter_transaction(
        &mut self,
        state: &ConnectionState,
        arguments: &Arguments<'_>,
    ) -> Result<Option<Arc<OpenTransaction>>> {
        let (Some(number), Some(session)) = (arguments.transaction_number, &state.session) else {
            return Ok(None);
        };
        let (database, counters) = (&self.server.database, &self.server.sessions.transactions);
        let Some(part) = arguments.transaction else {
            session.end_transaction(database, counters, number)?;
            return Ok(None);
        };
        session.check_api(self.command.name, arguments.api)?;
        if self.command.ends_transactions() {
            return Ok(None);
        }
        let ticket = self.progress.execution.take();
        let start = (part == Part::First).then(|| Start {
            read_concern: &arguments.read_concern,
            api: arguments.api,
            ticket,
        });
        let connection_id = state.activity.connection_id;
        let transaction = session.enter_transaction(database, counters, number, start, connection_id)?;
        if matches!(self.command.name, "create" | "createIndexes") {
            let checked = session.check_creation(database, counters, self.command.name);
            checked.inspect_err(|_| database.cursors.kill_transaction(&session.id))?;
        }
        Ok(Some(transaction))
    }

    /// Refuses commands that a secondary or uninitiated member cannot run.
    ///
    /// Errors: NotWritablePrimary; NotPrimaryNoSecondaryOk for reads that require the primary;
    /// NotPrimaryOrSecondary for all reads before the set is initiated.
    fn check_primary(&self, arguments: &Arguments<'_>) -> Result<()> {
        // Each member has its own `local`.
        if self.request.database == "local" || self.server.is_primary() {
            return Ok(());
        }
        match self.command.kind {
            Kind::Write => Err(err!(NotWritablePrimary, "not primary")),
            Kind::Read if !arguments.read_preference.secondary_ok() && !self.command.continues_cursor => {
                Err(err!(NotPrimaryNoSecondaryOk, "not primary and secondaryOk=false"))
            }
            Kind::Read if self.server.awaits_initiation() => {
                Err(err!(NotPrimaryOrSecondary, "node is not in primary or recovering state"))
            }
            _ => Ok(()),
        }
    }

    /// Applies fail points that replace the command's execution.
    fn fail(&mut self, failure: &mut Failure) -> Option<Result<HandlerStatus>> {
        if failure.close {
            return Some(Ok(HandlerStatus::Close));
        }
        let error = failure.error.take()?;
        self.record.labels = failure.labels.take();
        Some(Err(error))
    }

    /// Returns the wait before the handler, if any.
    ///
    /// Errors: MaxTimeMSExpired.
    fn wait(&mut self, state: &ConnectionState, arguments: &Arguments<'_>) -> Result<Option<Event>> {
        if arguments.transaction_number.is_some()
            && let Some(event) = waits::for_session(state, self.progress, arguments)?
        {
            return Ok(Some(event));
        }
        // A suspended aggregate or getMore writes, too.
        if (self.command.kind == Kind::Write || self.progress.is_kept())
            && let Some(event) = self.wait_for_unlock(state, arguments)?
        {
            return Ok(Some(event));
        }
        // An aggregate without a collection, such as $currentOp, shows the state of the server.
        let is_unlimited = self.command.name == "aggregate"
            && self.collection() == "$cmd"
            && !self.record.context.change_stream;
        match state.is_system || is_unlimited {
            true => Ok(None),
            false => waits::for_execution(state, self.progress, self.server, arguments, self.command.kind),
        }
    }

    /// Returns the wait of a write for fsyncUnlock.
    ///
    /// Errors: MaxTimeMSExpired, LockTimeout.
    fn wait_for_unlock(
        &mut self,
        state: &ConnectionState,
        arguments: &Arguments<'_>,
    ) -> Result<Option<Event>> {
        let is_statement = arguments.transaction.is_some() && !self.command.ends_transactions();
        let wait = waits::for_unlock(self.progress, self.server, arguments, is_statement);
        if let (Err(_), true, Some(session), Some(number)) =
            (&wait, is_statement, &state.session, arguments.transaction_number)
            && !mutant!("failed statements keep their transactions")
        {
            // A failed statement aborts its transaction, also before it begins. The number may be of no open one.
            let (database, counters) = (&self.server.database, &self.server.sessions.transactions);
            _ = session.abort_transaction(database, counters, number);
            database.cursors.kill_transaction(&session.id);
        }
        wait
    }

    /// Appends the reply of a failed command.
    fn append_failure(&self, state: &ConnectionState, reply: &mut Builder, error: &Error) {
        let CommandRecord { labels, write_concern_error, context, .. } = &self.record;
        self.server.counters.user_asserts.add(1);
        log::debug!(c = "COMMAND"; "{} on {}: {error}", self.command.name, self.request.database);
        match labels {
            Some(labels) => reply::failure(reply, error, labels),
            None => {
                let concern = write_concern_error.as_ref().map(Error::code);
                let labels = reply::labels(Some(error.code()), concern, *context);
                reply::failure(reply, error, labels);
            }
        }
        if let Some(error) = write_concern_error {
            reply::write_concern_error(reply, error);
        }
        self.append_topology_version(reply, error.code());
        append_cluster_time(self.server, state, reply);
    }

    /// Returns the name of the command's collection, or `$cmd`.
    fn collection(&self) -> &'a str {
        let name = match self.command {
            Command { continues_cursor: true, .. } => self.request.body.get("collection"),
            Command { names_collection: true, .. } => {
                self.request.body.first().map(|element| element.value())
            }
            _ => None,
        };
        name.and_then(|name| name.as_str()).unwrap_or("$cmd")
    }

    /// Returns true if the command is on the oplog.
    fn is_on_oplog(&self) -> bool {
        self.server.is_replica_set() && self.request.database == "local" && self.collection() == "oplog.rs"
    }

    /// Returns true if the command is on `config.transactions`.
    fn is_on_transactions(&self) -> bool {
        self.request.database == "config"
            && Namespace::new("config", self.collection())
                .is_ok_and(|namespace| self.server.database.is_transactions(&namespace))
    }

    /// Returns the effect of fail points on this command.
    fn failure(&self, state: &ConnectionState, arguments: &Arguments<'_>) -> Failure {
        if !self.server.fail_points.active() || state.is_inner {
            return Failure::default();
        }
        let failure = self.server.fail_points.check(&Target {
            names: [self.request.name, self.command.name],
            app_name: self.app_name(state),
            connection_id: state.activity.connection_id,
            namespace: format!("{}.{}", self.request.database, self.collection()),
            has_max_time: arguments.max_time.or(arguments.await_time).is_some(),
        });
        failure.unwrap_or_default()
    }

    /// Returns the number of statements of a retryable write; 0 if any of them has already run.
    fn new_statements(&self, state: &ConnectionState, arguments: &Arguments<'_>) -> i64 {
        let executed = |number| state.session.as_ref().is_some_and(|session| session.has_executed(number));
        match arguments.transaction_number {
            Some(number) if !executed(number) => self.statements(),
            _ => 0,
        }
    }

    /// Returns the number of statements of a write command.
    fn statements(&self) -> i64 {
        let list = match self.command.name {
            "insert" => "documents",
            "update" => "updates",
            "delete" => "deletes",
            "bulkWrite" => "ops",
            _ => return 1,
        };
        let beside = self.request.sequences.iter().find(|sequence| sequence.name == list);
        let within = || self.request.body.get(list).and_then(|value| value.as_array());
        let count = match beside {
            Some(sequence) => sequence.documents.iter().count(),
            None => within().map_or(1, |array| array.iter().count()),
        };
        count.max(1) as i64
    }

    /// Returns the client's application name. A handshake has it in its own metadata.
    fn app_name<'s>(&self, state: &'s ConnectionState) -> &'s str
    where
        'a: 's,
    {
        let metadata = self.request.body.get("client").and_then(|client| client.as_document());
        match metadata.filter(|_| matches!(self.command.name, "hello" | "isMaster")) {
            Some(metadata) => activity::app_name(metadata),
            None => state.activity.app_name(),
        }
    }

    fn append_write_concern_error(&self, reply: &mut Builder, error: Option<DocumentBuf>) {
        let Some(error) = error else { return };
        let error = error.view();
        let code = error.get("code").and_then(|code| code.as_i64()).and_then(|code| i32::try_from(code).ok());
        let code = ErrorCode::from_number(code.unwrap_or_default());
        reply.append(c"writeConcernError", error);
        match &self.record.labels {
            Some(labels) => reply::append_labels(reply, labels),
            None => reply::append_labels(reply, reply::labels(None, Some(code), self.record.context)),
        }
        self.append_topology_version(reply, code);
    }

    fn append_topology_version(&self, reply: &mut Builder, code: ErrorCode) {
        if self.server.is_replica_set() && reply::is_not_primary(code) {
            self.server.topology.append_version(reply);
        }
    }
}

/// Returns true if an aggregate opens a change stream.
fn opens_stream(body: Document<'_>) -> bool {
    let first = body.get("pipeline").and_then(|pipeline| first_stage(pipeline.as_array()?));
    first.is_some_and(|stage| stage.opens_stream())
}

/// Marks the session as used. The lookup runs only if the connection changes to another session.
fn use_session(state: &mut ConnectionState, sessions: &Sessions, arguments: &Arguments<'_>) -> Result<()> {
    let Some(id) = arguments.session else { return Ok(()) };
    let known = state.session.as_ref().is_some_and(|session| session.id == id && sessions.refresh(session));
    if !known {
        state.session = Some(sessions.touch(id)?);
    }
    Ok(())
}

/// Refuses a cluster time that is a year ahead of this server's, as MongoDB does by default.
///
/// Errors: ClusterTimeFailsRateLimiter.
fn check_cluster_time(server: &Server, seconds: u64) -> Result<()> {
    const DRIFT_MAX: u64 = 365 * 24 * 60 * 60;
    if seconds == 0 {
        return Ok(());
    }
    let own = server.database.cluster_time() >> 32;
    match seconds > own.saturating_add(DRIFT_MAX) {
        true => Err(err!(
            ClusterTimeFailsRateLimiter,
            "New cluster time, {seconds}, is too far from this node's wall clock time, {own}."
        )),
        false => Ok(()),
    }
}

/// Refuses a read after a time that neither this server nor its client has seen. Another front may have returned it.
///
/// Errors: InvalidOptions.
fn check_after_cluster_time(server: &Server, arguments: &Arguments<'_>) -> Result<()> {
    let Some(after) = arguments.read_concern.after.filter(|_| !server.settings.shared) else { return Ok(()) };
    let now = server.database.cluster_time().max(arguments.cluster_time);
    if after > now { Err(database::time_ahead("afterClusterTime", after, now)) } else { Ok(()) }
}

/// Appends the cluster time on members of a set and on fronts with a log.
///
/// Unauthenticated clients do not get it: MongoDB sends them only a signed time, and this server
/// has no keys.
fn append_cluster_time(server: &Server, state: &ConnectionState, reply: &mut Builder) {
    if (server.set().is_none() && !server.is_front_with_log()) || state.is_unauthenticated(&server.auth) {
        return;
    }
    let time = Value::Timestamp(server.database.cluster_time());
    reply.begin_document(c"$clusterTime").append(c"clusterTime", time);
    // Without keys the signature is empty, as in a set without authentication.
    reply.begin_document(c"signature");
    reply.append(c"hash", Value::Binary { subtype: 0, bytes: &[0; 20] }).append(c"keyId", 0i64);
    reply.end().end();
    reply.append(c"operationTime", time);
}

#[cfg(test)]
mod tests;
