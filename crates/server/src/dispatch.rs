//! From a request to its handler and back: look-up, checks, session, fail points, then `ok`.

use crate::access;
use crate::arguments::{Arguments, Topology};
use crate::auth::{EXTERNAL, login, redact};
use crate::blocking;
use crate::call::{Answer, Call, Wait};
use crate::command::{self, Command, Kind};
use crate::connection::{self, Began, ConnectionState};
use crate::fail_point::{Failure, Target};
use crate::profiler::{self, Finished, Notes, Setting};
use crate::read_concern::ReadConcern;
use crate::reply::{self, LabelContext};
use crate::server::Server;
use crate::server::user_write_block;
use crate::transaction_rules::{self, Part};
use crate::waits;
use crate::write_concern::Effective;
use base::bson::{Builder, Document, DocumentBuf, Value};
use base::{Error, ErrorCode, Namespace, Result, err};
use database::{OpenTransaction, Position, patience};
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use std::task::Waker;
use std::time::{Duration, Instant};
use wire::request::Request;

/// What the frame around a request decides.
pub(crate) struct Context {
    /// Where the reply goes: an empty document behind its header.
    pub(crate) reply: Builder,
    /// How many bytes the header takes, to which a failed reply is cut back.
    pub(crate) header_size: usize,
    /// Whether the client takes several replies.
    pub(crate) exhaust_allowed: bool,
}

/// What came of a request.
pub(crate) enum Outcome {
    /// A reply.
    Reply {
        /// The document, complete.
        reply: Builder,
        /// Whether it may be compressed; handshakes may not.
        compressible: bool,
        /// The topology's version just told, where further replies follow unasked.
        streams: Option<i64>,
    },
    /// A reply, once the journal has the commit that it is about.
    Unsynced(Unsynced),
    /// Nothing yet.
    Wait(Wait),
    /// Nothing ever.
    Close,
}

/// What is left of a command whose handler is done while the journal doesn't have its commit yet.
pub(crate) struct Unsynced {
    /// The commit.
    pub(crate) position: Position,
    reply: Builder,
    header_size: usize,
    /// The row of the table.
    at: usize,
    began: Instant,
    context: LabelContext,
    labels: Option<Vec<String>>,
    write_concern_error: Option<Error>,
}

impl Unsynced {
    /// Whether the journal has it, and how long everything has taken.
    ///
    /// Errors: the store's, where the commit may be lost.
    pub(crate) fn ask(&self, server: &Server) -> (Result<()>, Duration) {
        (server.database.wait_journaled(self.position), self.began.elapsed())
    }

    /// The reply, where nothing is to be said of it.
    pub(crate) fn end(self, state: &ConnectionState, took: Duration) -> Outcome {
        if let Some(counted) = &state.counted {
            counted.note(self.at, took, false);
        }
        Outcome::Reply { reply: self.reply, compressible: true, streams: None }
    }
}

/// Ends a command whose commit was waited for after its handler, where that failed or took long.
pub(crate) fn end(
    state: &mut ConnectionState,
    server: &Server,
    request: &Request<'_>,
    unsynced: Unsynced,
    result: Result<()>,
    took: Duration,
) -> Outcome {
    let Unsynced { reply, header_size, at, context, labels, write_concern_error, .. } = unsynced;
    let Some(command) = command::COMMANDS.get(at) else { return Outcome::Close };
    let mut run = Run {
        server,
        request,
        command,
        exhaust_allowed: false,
        header_size,
        context,
        labels,
        write_concern_error,
        notes: None,
        unsynced: None,
    };
    run.tell(state, at, None, &reply, result.as_ref().map(drop), took);
    match result {
        Ok(()) => Outcome::Reply { reply, compressible: run.compressible(), streams: None },
        Err(error) => run.failed(state, emptied(reply, header_size), &error),
    }
}

/// Commands whose replies are never compressed, as the protocol wants it.
const UNCOMPRESSED: [&str; 5] = ["hello", "isMaster", "saslStart", "saslContinue", "authenticate"];

/// Runs a request: every failure ends as a reply.
pub(crate) fn run(
    state: &mut ConnectionState,
    server: &Server,
    request: &Request<'_>,
    context: Context,
) -> Outcome {
    server.counters.requests.add(u64::from(state.began.is_none()));
    let Context { mut reply, header_size, exhaust_allowed } = context;
    let found = command::position(request.name()).and_then(|at| Some((at, command::COMMANDS.get(at)?)));
    let Some((at, command)) = found else {
        let error = err!(CommandNotFound, "no such command: '{}'", request.name());
        return refuse(server, state, reply, &error);
    };
    let began = Instant::now();
    // As it is before: the command that changes it isn't told of by what it sets.
    let setting = server.profiler.setting(request.database);
    let mut run = Run {
        server,
        request,
        command,
        exhaust_allowed,
        header_size,
        context: LabelContext::default(),
        labels: None,
        write_concern_error: None,
        notes: setting.as_ref().map(|_| Notes::default()),
        unsynced: None,
    };
    let result = run.checked(state, &mut reply);
    match (&result, run.unsynced.take()) {
        (Ok(Ran::Done(None)), Some(position)) => {
            let Run { context, labels, write_concern_error, .. } = run;
            // Known from here on.
            server
                .counters
                .operations
                .of(&mut state.counted, request.database, || is_there(server, request.database));
            return Outcome::Unsynced(Unsynced {
                position,
                reply,
                header_size,
                at,
                began,
                context,
                labels,
                write_concern_error,
            });
        }
        // There is another reply, or none; it has to wait all the same.
        (_, Some(position)) => blocking::in_place(&mut || _ = server.database.wait_journaled(position)),
        (_, None) => {}
    }
    if !matches!(result, Ok(Ran::Wait(_))) {
        let setting = setting.as_deref();
        run.tell(state, at, setting, &reply, result.as_ref().map(drop), began.elapsed());
    }
    match result {
        Ok(Ran::Done(streams)) => Outcome::Reply { reply, compressible: run.compressible(), streams },
        Ok(Ran::Wait(wait)) => Outcome::Wait(waits::until_killed(wait, &state.activity)),
        Ok(Ran::Close) => Outcome::Close,
        Err(error) => run.failed(state, emptied(reply, header_size), &error),
    }
}

/// Whether a database has a collection, or is one that always counts as there.
fn is_there(server: &Server, database: &str) -> bool {
    matches!(database, "admin" | "config" | "local")
        || server.database.catalog().collections(database).next().is_some()
}

/// A reply with nothing behind its header.
fn emptied(reply: Builder, header_size: usize) -> Builder {
    let mut buffer = reply.into_buffer();
    buffer.truncate(header_size);
    Builder::with_buffer(buffer)
}

/// Replies with an error to a request that has no command.
pub(crate) fn refuse(server: &Server, state: &ConnectionState, mut reply: Builder, error: &Error) -> Outcome {
    server.counters.user_asserts.add(1);
    reply::failure::<&str>(&mut reply, error, &[]);
    append_cluster_time(server, state, &mut reply);
    Outcome::Reply { reply, compressible: true, streams: None }
}

/// What came of a command that didn't fail.
enum Ran {
    /// The reply is complete; the topology's version told, where further replies follow.
    Done(Option<i64>),
    /// The handler is to be called again.
    Wait(Wait),
    /// There is to be no reply.
    Close,
}

/// One command being run, and what its error would have to be labelled with.
struct Run<'a> {
    server: &'a Server,
    request: &'a Request<'a>,
    command: &'static Command,
    exhaust_allowed: bool,
    header_size: usize,
    context: LabelContext,
    labels: Option<Vec<String>>,
    /// What the statements did each, where the profiler listens.
    notes: Option<Notes>,
    /// What a failing write says of its write concern besides: its statements may have had
    /// effects before it failed.
    write_concern_error: Option<Error>,
    /// The commit that has to be in the journal before there is a reply.
    unsynced: Option<Position>,
}

impl<'a> Run<'a> {
    /// Counts a command that has ended, and tells the profiler and the log of one that they are to hear of.
    fn tell(
        &mut self,
        state: &mut ConnectionState,
        at: usize,
        setting: Option<&Setting>,
        reply: &Builder,
        result: std::result::Result<(), &Error>,
        took: Duration,
    ) {
        let (server, request) = (self.server, self.request);
        let exists = || is_there(server, request.database);
        let counted = server.counters.operations.of(&mut state.counted, request.database, exists);
        counted.note(at, took, result.is_err());
        if (setting.is_some() || server.profiler.slow.is_slow(took)) && !state.is_system {
            let told = reply.so_far();
            let finished = Finished {
                request,
                command: self.command,
                collection: self.collection(),
                state,
                outcome: result.map(|()| told.view()),
                notes: self.notes.take(),
                reply_length: told.bytes().len(),
                took,
            };
            profiler::tell(server, setting, &finished);
        }
    }

    fn checked(&mut self, state: &mut ConnectionState, reply: &mut Builder) -> Result<Ran> {
        let (server, command) = (self.server, self.command);
        // No database, but a place for users whom somebody else knows.
        if self.request.database != EXTERNAL {
            base::namespace::check_database_name(self.request.database)?;
        }
        if command.admin_only && self.request.database != "admin" {
            return Err(err!(Unauthorized, "{} may only be run against the admin database.", command.name));
        }
        login::refresh(server, state)?;
        server.auth.check(server, state, command)?;
        access::check(server, state, self.request, command)?;
        let topology = Topology { is_replica_set: server.is_replicated() };
        let mut arguments = Arguments::read(self.request.body, command, &topology)?;
        if let Some(named) = arguments.named_session {
            arguments.session = access::session::own(server, state, named)?;
        }
        let in_transaction = arguments.transaction.is_some();
        self.context = LabelContext {
            retryable_write: arguments.transaction_number.is_some() && !in_transaction,
            in_transaction,
            ends_transaction: command.ends_transactions(),
            no_writes: true,
            change_stream: command.name == "aggregate" && opens_stream(self.request.body),
        };
        // What it may be is known by now, so that drivers are told what they may send to another server.
        if server.stopping.load(Acquire) && !state.is_system {
            return Err(err!(ShutdownInProgress, "the server is shutting down"));
        }
        if in_transaction {
            let writes = command.kind == Kind::Write && !command.ends_transactions();
            transaction_rules::check_namespace(self.request.database, self.collection(), writes)?;
        }
        if command.kind == Kind::Write && self.names_oplog() {
            return Err(err!(IllegalOperation, "local.oplog.rs is the log, which nobody writes to"));
        }
        if command.kind == Kind::Write && self.names_transactions() {
            return Err(err!(IllegalOperation, "config.transactions is written by the server alone"));
        }
        let is_resumed = state.began.is_some();
        self.begin(state, &arguments)?;
        let mut failure = match is_resumed {
            // A command that waits is called again: that isn't another command.
            true => state.failure.take().map(|failure| *failure).unwrap_or_default(),
            false => self.failure(state, &arguments),
        };
        if let Some(delay) = failure.delay.take() {
            waits::keep(state, failure);
            return Ok(Ran::Wait(waits::for_delay(delay)));
        }
        if !server.settings.shared {
            return self.run(state, reply, arguments, failure);
        }
        let over = waits::over(state, &arguments);
        patience::within(over, || self.run(state, reply, arguments, failure))
    }

    /// Marks the command as the one that the connection runs, unless it only goes on after a wait.
    ///
    /// Errors: Interrupted where it was killed meanwhile; TooManyLogicalSessions.
    fn begin(&self, state: &mut ConnectionState, arguments: &Arguments<'_>) -> Result<()> {
        if state.began.is_some() {
            return match state.activity.killed(Waker::noop()) {
                Some(reason) => Err(Error::new(reason, "operation was interrupted")),
                None => Ok(()),
            };
        }
        use_session(state, self.server, arguments)?;
        let operation_id = self.server.activities.next_operation_id();
        let place = (self.request.database, self.collection());
        let body = self.request.body;
        match self.command.has_secrets {
            true => {
                let shown = redact::without_secrets(body);
                state.activity.begin(operation_id, self.command.name, arguments.session, place, shown.view());
            }
            // What the server itself does is part of somebody's command, who may have to be kept from it.
            false if state.is_system || redact::is_secret(place.0, place.1) => {
                state.activity.begin(
                    operation_id,
                    self.command.name,
                    arguments.session,
                    place,
                    Document::EMPTY,
                );
            }
            false => state.activity.begin(operation_id, self.command.name, arguments.session, place, body),
        }
        state.began = Some(Began { operation_id, at: Instant::now() });
        Ok(())
    }

    fn run(
        &mut self,
        state: &mut ConnectionState,
        reply: &mut Builder,
        arguments: Arguments<'a>,
        mut failure: Failure,
    ) -> Result<Ran> {
        if let Some(result) = self.fail(&mut failure) {
            return result;
        }
        self.check_primary(&arguments)?;
        user_write_block::check(self.server, state, self.command, self.request)?;
        if let Some(wait) = self.wait(state, &arguments)? {
            waits::keep(state, failure);
            return Ok(Ran::Wait(wait));
        }
        if self.context.retryable_write && self.server.fail_points.active() {
            let statements = self.new_statements(state, &arguments);
            let write = self.server.fail_points.check_retryable_write(statements);
            failure = write.unwrap_or(failure);
            if let Some(result) = self.fail(&mut failure) {
                return result;
            }
        }
        if self.command.kind == Kind::Write {
            let default = self.server.default_concerns.write(self.server.is_replicated());
            let concern = Effective::new(arguments.write_concern.as_ref(), default);
            self.write_concern_error = concern.unsatisfiable(|| self.server.members());
        }
        let is_of_transaction = arguments.transaction.is_some();
        let level = arguments.read_concern.level.or_else(|| self.default_level());
        let transaction = self.enter_transaction(state, &arguments)?;
        let in_transaction = transaction.is_some();
        let operation_id = state.began.map_or(0, |began| began.operation_id);
        let mut call = Call {
            transaction,
            server: self.server,
            connection: state,
            request: self.request,
            command: self.command,
            arguments,
            reply,
            exhaust_allowed: self.exhaust_allowed,
            operation_id,
            streams: None,
            notes: self.notes.take(),
            reads_stream: false,
            unsynced: None,
            durable: false,
        };
        let before = self.server.database.latest_position();
        let answer = loop {
            match (self.command.run)(&mut call) {
                // It was planned by an old catalog of a store that others share, and has done nothing.
                Err(error) if error.code() == ErrorCode::StaleConfig => {
                    *call.reply = emptied(std::mem::take(call.reply), self.header_size);
                }
                Ok(answer) if self.command.kind == Kind::Read => {
                    break call.confirm_read(before).map(|()| answer);
                }
                answer => break answer,
            }
        };
        let streams = call.streams;
        let durable = call.durable || level.is_some_and(ReadConcern::is_durable);
        self.notes = call.notes.take();
        self.unsynced = call.unsynced.take();
        self.context.change_stream |= call.reads_stream;
        self.context.no_writes &= answer.is_err() && self.server.database.latest_position() == before;
        if in_transaction && let Some(session) = &state.session {
            let failed = std::mem::take(&mut state.statement_failed) || answer.is_err();
            session.leave_transaction(self.server, failed);
            if failed {
                self.server.database.cursors.kill_transaction(&session.id);
            }
        }
        match answer? {
            Answer::Wait(wait) => {
                waits::keep(state, failure);
                Ok(Ran::Wait(wait))
            }
            Answer::Close => Ok(Ran::Close),
            Answer::Done if failure.close_after => Ok(Ran::Close),
            Answer::Done => {
                self.labels = failure.labels;
                self.append_write_concern_error(reply, failure.write_concern_error);
                reply.append(c"ok", 1.0);
                if is_of_transaction && self.server.settings.shared {
                    // What drivers send back with the commit, so that another router finds its outcome. A front does so
                    // by the session and the number; what is empty PyMongo wouldn't send.
                    reply.begin_document(c"recoveryToken").append(c"recoveryShardId", "postgres").end();
                }
                append_cluster_time(self.server, state, reply);
                if durable {
                    self.hold_shown(state)?;
                }
                Ok(Ran::Done(streams))
            }
        }
    }

    /// The read concern of a read that asks for none, where it matters.
    fn default_level(&self) -> Option<ReadConcern> {
        let matters = self.command.takes_read_concern && self.server.database.always_journals();
        matters.then(|| self.server.default_concerns.read()).flatten()
    }

    /// Holds the reply back until the journal has all commits that it may show, `operationTime` included, where commits
    /// are shown before the journal has them. Reads over PostgreSQL have waited before (`Call::confirm_read`).
    ///
    /// Errors: the store's, where such a commit may be lost.
    fn hold_shown(&mut self, state: &ConnectionState) -> Result<()> {
        let database = &self.server.database;
        if self.server.settings.shared || !database.always_journals() {
            return Ok(());
        }
        let position = database.shown_position();
        if database.is_journaled(position) {
            return Ok(());
        }
        if state.holds_replies && self.notes.is_none() {
            self.unsynced = self.unsynced.max(Some(position));
            return Ok(());
        }
        let mut waited = Ok(());
        blocking::in_place(&mut || waited = database.wait_journaled(position));
        waited
    }

    /// The transaction that the command is a statement of; `None` for the commands that end one.
    ///
    /// Errors: those of a transaction that isn't under way, and of namespaces that it can't touch.
    fn enter_transaction(
        &self,
        state: &ConnectionState,
        arguments: &Arguments<'_>,
    ) -> Result<Option<Arc<OpenTransaction>>> {
        let (Some(number), Some(session)) = (arguments.transaction_number, &state.session) else {
            return Ok(None);
        };
        let Some(part) = arguments.transaction else {
            session.pass_transaction(self.server, number)?;
            return Ok(None);
        };
        if self.command.ends_transactions() {
            return Ok(None);
        }
        session.enter_transaction(self.server, number, part == Part::First, arguments).map(Some)
    }

    /// Refuses what a member that has stepped down, or that isn't initiated yet, can't do.
    ///
    /// Errors: NotWritablePrimary; NotPrimaryNoSecondaryOk for reads that are for the primary;
    /// NotPrimaryOrSecondary for any before the set is initiated.
    fn check_primary(&self, arguments: &Arguments<'_>) -> Result<()> {
        // What is in `local` is each member's own.
        if self.request.database == "local" || self.server.is_primary() {
            return Ok(());
        }
        match self.command.kind {
            Kind::Write => Err(err!(NotWritablePrimary, "not primary")),
            Kind::Read if !arguments.read_preference.secondary_ok() && self.command.name != "getMore" => {
                Err(err!(NotPrimaryNoSecondaryOk, "not primary and secondaryOk=false"))
            }
            Kind::Read if self.server.awaits_initiation() => {
                Err(err!(NotPrimaryOrSecondary, "node is not in primary or recovering state"))
            }
            _ => Ok(()),
        }
    }

    /// What fail points that don't carry the command out make of it.
    fn fail(&mut self, failure: &mut Failure) -> Option<Result<Ran>> {
        if failure.close {
            return Some(Ok(Ran::Close));
        }
        let error = failure.error.take()?;
        self.labels = failure.labels.take();
        Some(Err(error))
    }

    /// What the command waits for before its handler may run.
    ///
    /// Errors: MaxTimeMSExpired.
    fn wait(&self, state: &mut ConnectionState, arguments: &Arguments<'_>) -> Result<Option<Wait>> {
        if let Some(wait) = waits::for_turn(state, arguments)? {
            return Ok(Some(wait));
        }
        match self.command.kind {
            Kind::Write => {
                let is_statement = arguments.transaction.is_some() && !self.command.ends_transactions();
                waits::for_unlock(state, self.server, arguments, is_statement)
            }
            _ => Ok(None),
        }
    }

    /// The reply to a command that failed, begun anew.
    fn failed(&self, state: &ConnectionState, mut reply: Builder, error: &Error) -> Outcome {
        self.server.counters.user_asserts.add(1);
        log::debug!(c = "COMMAND"; "{} on {}: {error}", self.command.name, self.request.database);
        match &self.labels {
            Some(labels) => reply::failure(&mut reply, error, labels),
            None => {
                let concern = self.write_concern_error.as_ref().map(Error::code);
                let labels = reply::labels(Some(error.code()), concern, self.context);
                reply::failure(&mut reply, error, labels);
            }
        }
        if let Some(error) = &self.write_concern_error {
            reply::write_concern_error(&mut reply, error);
        }
        self.append_topology_version(&mut reply, error.code());
        append_cluster_time(self.server, state, &mut reply);
        Outcome::Reply { reply, compressible: self.compressible(), streams: None }
    }

    fn compressible(&self) -> bool {
        !UNCOMPRESSED.contains(&self.command.name)
    }

    fn collection(&self) -> &'a str {
        match self.request.body.first().map(|element| element.value()) {
            Some(Value::String(name)) => name,
            // getMore names its collection in a field of its own.
            _ => self.request.body.get("collection").and_then(|value| value.as_str()).unwrap_or("$cmd"),
        }
    }

    /// Whether the command is about the log.
    fn names_oplog(&self) -> bool {
        self.server.is_replica_set() && self.request.database == "local" && self.collection() == "oplog.rs"
    }

    /// Whether the command is about the sessions' records.
    fn names_transactions(&self) -> bool {
        self.request.database == "config"
            && Namespace::new("config", self.collection())
                .is_ok_and(|namespace| self.server.database.is_transactions(&namespace))
    }

    /// What the fail points make of this command before anything else does.
    fn failure(&self, state: &ConnectionState, arguments: &Arguments<'_>) -> Failure {
        if !self.server.fail_points.active() {
            return Failure::default();
        }
        let failure = self.server.fail_points.check(&Target {
            names: [self.request.name(), self.command.name],
            app_name: self.app_name(state),
            connection_id: state.activity.connection_id,
            namespace: format!("{}.{}", self.request.database, self.collection()),
            has_max_time: arguments.max_time.is_some(),
        });
        failure.unwrap_or_default()
    }

    /// How many statements a retryable write has, none if any of them has been carried out before.
    fn new_statements(&self, state: &ConnectionState, arguments: &Arguments<'_>) -> i64 {
        let executed = |number| state.session.as_ref().is_some_and(|session| session.has_executed(number));
        match arguments.transaction_number {
            Some(number) if !executed(number) => self.statements(),
            _ => 0,
        }
    }

    /// How many statements a write command has.
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

    /// The client's application, which a handshake names itself.
    fn app_name<'s>(&self, state: &'s ConnectionState) -> &'s str
    where
        'a: 's,
    {
        let metadata = self.request.body.get("client").and_then(|client| client.as_document());
        match metadata.filter(|_| matches!(self.command.name, "hello" | "isMaster")) {
            Some(metadata) => connection::app_name(metadata),
            None => state.app_name(),
        }
    }

    fn append_write_concern_error(&self, reply: &mut Builder, error: Option<DocumentBuf>) {
        let Some(error) = error else { return };
        let error = error.view();
        let code = error.get("code").and_then(|code| code.as_i64()).and_then(|code| i32::try_from(code).ok());
        let code = ErrorCode::from_number(code.unwrap_or_default());
        reply.append(c"writeConcernError", error);
        match &self.labels {
            Some(labels) => reply::append_labels(reply, labels),
            None => reply::append_labels(reply, reply::labels(None, Some(code), self.context)),
        }
        self.append_topology_version(reply, code);
    }

    fn append_topology_version(&self, reply: &mut Builder, code: ErrorCode) {
        if self.server.is_replica_set() && reply::is_not_primary(code) {
            self.server.topology.append_version(reply);
        }
    }
}

/// Whether an aggregate is that of a change stream.
fn opens_stream(body: Document<'_>) -> bool {
    let stages = body.get("pipeline").and_then(|pipeline| pipeline.as_array());
    let first = stages.and_then(|stages| stages.iter().next()?.as_document()?.first());
    first.is_some_and(|stage| stage.name() == "$changeStream")
}

/// Marks the session as used, looking it up only when the connection changes to another.
fn use_session(state: &mut ConnectionState, server: &Server, arguments: &Arguments<'_>) -> Result<()> {
    let Some(id) = arguments.session else { return Ok(()) };
    let known =
        state.session.as_ref().is_some_and(|session| session.id == id && server.sessions.refresh(session));
    if !known {
        state.session = Some(server.sessions.touch(id)?);
    }
    Ok(())
}

/// What members of a set append to every reply, and a front whose store keeps a log, from which clients learn the
/// cluster time. It isn't for those who have
/// yet to log in: there are no keys to sign it with, and MongoDB tells them only of a time that is signed.
fn append_cluster_time(server: &Server, state: &ConnectionState, reply: &mut Builder) {
    if (server.set().is_none() && !server.is_front_with_log()) || server.auth.is_stranger(state) {
        return;
    }
    let time = Value::Timestamp(server.cluster_time());
    reply.begin_document(c"$clusterTime").append(c"clusterTime", time);
    // Without keys to sign with, the signature is empty, as in a set without authentication.
    reply.begin_document(c"signature");
    reply.append(c"hash", Value::Binary { subtype: 0, bytes: &[0; 20] }).append(c"keyId", 0i64);
    reply.end().end();
    reply.append(c"operationTime", time);
}
