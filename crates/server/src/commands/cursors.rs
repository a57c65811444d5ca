//! Cursors: their first batch in a reply, `getMore`, and `killCursors`.
//!
//! A tailable cursor may wait for its next batch.

use crate::access::{self, Requirements, requirements};
use crate::auth::{self, redact};
use crate::call::{Call, HandlerStatus, Row};
use crate::protocol::fields::Fields;
use crate::protocol::session_id;
use crate::protocol::write_concern::Effective;
use crate::state::fail_point::Target;
use base::bson::{Builder, Document, DocumentBuf, FieldName, Value};
use base::{Error, ErrorCode, Namespace, Result, bail, err};
use database::{Cursor, Database, time};
use std::fmt::Display;
use std::num::NonZeroI64;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

/// Default wait of a tailable cursor with awaitData.
const AWAIT_DEFAULT: Duration = Duration::from_secs(1);

/// Position in the command table.
pub(crate) const GET_MORE: Row = Row::read("getMore", get_more, Requirements::Nothing)
    .help("Fetches the next batch of a cursor.")
    .stable_api()
    .takes_read_concern()
    .in_transactions()
    .continues_cursor();

fn get_more(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let id = match fields.command_value() {
        Value::Int64(id) => id,
        other => {
            return Err(Error::wrong_type("getMore.getMore", other.kind(), "long"));
        }
    };
    let collection = fields.required("collection", Fields::string)?;
    let batch_size = fields.natural("batchSize")?.filter(|size| *size > 0);
    // Fields that members of a replica set exchange.
    fields.refuse_unless_default("term")?;
    fields.any("lastKnownCommittedOpTime")?;
    fields.finish()?;
    let namespace = Namespace::new(call.request.database, collection)?;

    let (mut taken, is_resumed) = match call.resume() {
        Some(taken) => (taken, true),
        None => {
            let database = call.server.database.clone();
            let cursor = database.cursors.take(id, &namespace).map_err(|error| match error.code() {
                // killCursors ended the cursor while this command waited.
                ErrorCode::CursorNotFound if call.progress.waiting_until.is_some() => {
                    err!(CursorKilled, "operation was interrupted")
                }
                _ => error,
            })?;
            (TakenCursor { database, id, cursor: Some(cursor) }, false)
        }
    };
    let Some(cursor) = taken.cursor.as_deref_mut() else { bail!(CursorNotFound, "cursor id {id} not found") };
    call.reads_stream = cursor.resume_token().is_some();
    if !is_resumed && let Err(error) = check(call, id, cursor) {
        // The error is in the request, so the cursor stays open.
        taken.put_back();
        return Err(error);
    }
    let begun = if is_resumed { Ok(()) } else { begin(call, cursor, &namespace) };
    match begun.and_then(|()| answer(call, id, cursor, &namespace, batch_size)) {
        Ok(Next::Wait(answer)) => {
            taken.put_back_until(call.progress.waiting_until.unwrap_or_else(time::now));
            Ok(answer)
        }
        Ok(Next::Open) => {
            taken.put_back();
            Ok(HandlerStatus::Done)
        }
        Ok(Next::Ended) => Ok(HandlerStatus::Done),
        Err(error) => Err(call.keep(taken, error)),
    }
}

/// A cursor in use. It closes if it is not put back.
struct TakenCursor {
    database: Arc<Database>,
    id: i64,
    cursor: Option<Box<Cursor>>,
}

impl TakenCursor {
    fn put_back(self) {
        self.put_back_until(time::now());
    }

    /// Puts the cursor back for a wait. Its idle time begins afterwards.
    fn put_back_until(mut self, used_until: Instant) {
        if let Some(cursor) = self.cursor.take() {
            self.database.cursors.put_back(self.id, cursor, used_until);
        }
    }
}

impl Drop for TakenCursor {
    fn drop(&mut self) {
        if self.cursor.is_some() {
            self.database.cursors.close(self.id);
        }
    }
}

/// A cursor whose getMore waits. The wait also ends if the client disconnects.
struct WaitingCursor {
    database: Arc<Database>,
    id: i64,
}

impl Drop for WaitingCursor {
    fn drop(&mut self) {
        self.database.cursors.end_wait(self.id);
    }
}

/// Checks that this request may read the cursor.
///
/// Errors: Unauthorized; 50736 to 50741; BadValue.
fn check(call: &Call<'_>, id: i64, cursor: &Cursor) -> Result<()> {
    let requested =
        auth::authorizer(&call.server.auth, &call.server.activities, call.connection, call.request);
    let session = call.arguments.session;
    if cursor.session != session {
        let (own, given) =
            (cursor.session.as_ref().map(session_id::text), session.as_ref().map(session_id::text));
        if let Some(requested) = &requested {
            access::requirements::check_other_session(requested, own.as_deref(), given.as_deref())?;
        }
        return Err(mismatch(id, 50736, "session", "an lsid", own, given));
    }
    let transaction = call.arguments.transaction_number.filter(|_| call.transaction.is_some());
    if cursor.transaction != transaction {
        return Err(mismatch(id, 50739, "transaction", "a txnNumber", cursor.transaction, transaction));
    }
    if let Some(requested) = &requested {
        access::requirements::check_cursor(requested, id, cursor)?;
    }
    // A limit of zero means no limit, but the field is present.
    let limit = call.request.body.get("maxTimeMS").filter(|limit| !limit.is_nullish());
    if limit.is_some() && !waits(cursor) {
        bail!(BadValue, "cannot set maxTimeMS on getMore command for a non-awaitData cursor");
    }
    Ok(())
}

/// Returns the error for a cursor of another session or transaction.
///
/// `first` is the code if the cursor has none. The next codes are for a request without one, and for two that differ.
fn mismatch(
    id: i64,
    first: i32,
    kind: &str,
    field: &str,
    own: Option<impl Display>,
    given: Option<impl Display>,
) -> Error {
    let (code, place) = match (own, given) {
        (Some(own), Some(given)) => (first + 2, format!("created in {kind} {own}, in {kind} {given}")),
        (Some(own), None) => (first + 1, format!("created in {kind} {own}, without {field}")),
        (None, given) => {
            let given = given.map_or_else(String::new, |given| format!(", in {kind} {given}"));
            (first, format!("not created in a {kind}{given}"))
        }
    };
    Error::new(ErrorCode::Location(code), format!("Cannot run getMore on cursor {id}, which was {place}"))
}

/// Returns true if the cursor waits for documents at its end.
fn waits(cursor: &Cursor) -> bool {
    cursor.tailable && cursor.await_data
}

enum Next {
    Open,
    Ended,
    Wait(HandlerStatus),
}

/// Begins the use of a cursor.
///
/// Errors: those of fail points; the reason why the cursor has no contents.
fn begin(call: &Call<'_>, cursor: &Cursor, namespace: &Namespace) -> Result<()> {
    fail_on_demand(call, namespace)?;
    call.server.database.check_cursor(cursor)?;
    if cursor.operation.remaining_time().is_some() {
        call.server.fail_points.check_max_time()?;
    }
    call.set_operation(&cursor.operation);
    Ok(())
}

fn answer(
    call: &mut Call<'_>,
    id: i64,
    cursor: &mut Cursor,
    namespace: &Namespace,
    batch_size: Option<u64>,
) -> Result<Next> {
    call.durable = cursor.durable;
    // The watch starts before the check, so no insert is lost between them.
    let watch = waits(cursor).then(|| call.server.database.watch(cursor.interest.clone()));
    if let Some(mut watch) = watch
        && cursor.is_exhausted()?
        && cursor.stays_open()
    {
        let at_most = call.arguments.await_time.unwrap_or(AWAIT_DEFAULT);
        let waiting = WaitingCursor { database: call.server.database.clone(), id };
        let ready = move |waker: &Waker| {
            let _ = &waiting;
            watch.has_happened(waker)
        };
        if let Some(answer) = call.wait(at_most, ready) {
            return Ok(Next::Wait(answer));
        }
    }
    call.reply.begin_document(c"cursor").begin_array(c"nextBatch");
    let (count, ended) = cursor.next_batch(batch_size.unwrap_or(u64::MAX), call.reply)?;
    call.reply.end();
    call.server.counters.returned.add(count);
    let closes = ended && !cursor.stays_open();
    append_resume_token(call, cursor);
    if call.exhaust_allowed && !closes {
        // The client requested all batches in one exchange (exhaust). The server handles the same
        // request repeatedly.
        call.streams = Some(0);
    }
    call.reply.append(c"id", if closes { 0 } else { id }).append(c"ns", namespace.as_str()).end();
    if let Some(concern) =
        cursor.write_concern.as_ref().and_then(|concern| concern.downcast_ref::<Effective>())
    {
        call.acknowledge_as(concern, None)?;
    }
    Ok(if closes { Next::Ended } else { Next::Open })
}

/// Applies fail points for getMore with a valid cursor.
///
/// Errors: the fail point's error.
fn fail_on_demand(call: &Call<'_>, namespace: &Namespace) -> Result<()> {
    if !call.server.fail_points.active() || call.progress.waiting_until.is_some() {
        return Ok(());
    }
    call.server.fail_points.check_get_more(&Target {
        names: [call.request.name, call.command.name],
        app_name: call.connection.activity.app_name(),
        connection_id: call.connection.activity.connection_id,
        namespace: namespace.as_str().to_string(),
        has_max_time: false,
    })
}

/// Position in the command table.
pub(crate) const KILL_CURSORS: Row =
    Row::admin("killCursors", kill_cursors, Requirements::By(requirements::kill_cursors))
        .help("Kills cursors.")
        .stable_api()
        .in_transactions();

fn kill_cursors(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    match fields.command_value() {
        // As in MongoDB, the cursors may be of other collections.
        Value::String(name) => Namespace::new(call.request.database, name).map(drop)?,
        other => {
            let found = other.kind().alias();
            bail!(InvalidNamespace, "collection name has invalid type {found}");
        }
    }
    let cursors = fields.required("cursors", Fields::array)?;
    fields.finish()?;
    let mut ids = Vec::new();
    for (position, value) in cursors.iter().enumerate() {
        match value {
            Value::Int64(id) => ids.push(id),
            other => {
                return Err(Error::wrong_type(
                    format_args!("killCursors.cursors.{position}"),
                    other.kind(),
                    "long",
                ));
            }
        }
    }
    let database = &call.server.database;
    let (killed, missing): (Vec<i64>, Vec<i64>) = ids.into_iter().partition(|id| database.kill_cursor(*id));
    for (name, ids) in [
        ("cursorsKilled", &killed),
        ("cursorsNotFound", &missing),
        ("cursorsAlive", &vec![]),
        ("cursorsUnknown", &vec![]),
    ] {
        call.reply.begin_array(FieldName::literal(name));
        for id in ids {
            call.reply.push(*id);
        }
        call.reply.end();
    }
    Ok(HandlerStatus::Done)
}

/// Appends the first batch and keeps the cursor if it has more documents.
pub(crate) fn first(
    call: &mut Call<'_>,
    mut cursor: Cursor,
    batch_size: u64,
    single_batch: bool,
) -> Result<()> {
    let namespace = cursor.namespace.clone();
    let snapshot = cursor.operation.snapshot().map(|(time, _)| *time);
    cursor.may_end_early = !single_batch;
    call.reply.begin_document(c"cursor").begin_array(c"firstBatch");
    let (count, ended) = match cursor.next_batch(batch_size, call.reply) {
        Ok(batch) => batch,
        Err(error) if cursor.writes => return Err(call.keep(cursor, error)),
        // After a wait for memory, a read begins again.
        Err(error) => return Err(error),
    };
    call.reply.end();
    call.server.counters.returned.add(count);
    let keeps = !single_batch && (!ended || (cursor.stays_open() && batch_size > 0));
    append_resume_token(call, &cursor);
    let id = if keeps { keep(call, cursor) } else { 0 };
    if let Some(time) = snapshot {
        call.reply.append(c"atClusterTime", Value::Timestamp(time));
    }
    call.reply.append(c"id", id).append(c"ns", namespace.as_str()).end();
    Ok(())
}

/// Appends the resume token after this batch. Only change streams have resume tokens.
pub(crate) fn append_resume_token(call: &mut Call<'_>, cursor: &Cursor) {
    call.reply.append_optional(c"postBatchResumeToken", cursor.resume_token());
}

/// Keeps a cursor open for getMore. Returns its id.
fn keep(call: &mut Call<'_>, mut cursor: Cursor) -> i64 {
    let requested =
        auth::authorizer(&call.server.auth, &call.server.activities, call.connection, call.request);
    cursor.tag =
        requested.map(|requested| access::requirements::cursor_tag(requested, &call.command.requirements));
    let command = redact::without(call.command, call.request.body);
    cursor.operation.set_originating_command(redact::truncated(command, redact::COMMAND_MAX));
    cursor.session = call.arguments.session;
    cursor.transaction = call.arguments.transaction_number.filter(|_| call.transaction.is_some());
    let id = call.server.database.register_cursor(cursor);
    if call.connection.is_load_balanced {
        call.connection.cursor = NonZeroI64::new(id);
    }
    id
}

/// Appends the reply of a find on a missing collection. MongoDB orders these fields differently.
pub(crate) fn nothing(call: &mut Call<'_>, cursor: &Cursor) {
    call.reply.begin_document(c"cursor");
    if let Some((time, _)) = cursor.operation.snapshot() {
        call.reply.append(c"atClusterTime", Value::Timestamp(*time));
    }
    call.reply.append(c"id", 0i64).append(c"ns", cursor.namespace.as_str());
    call.reply.begin_array(c"firstBatch").end().end();
}

/// Appends a reply of a listing command, whose cursor has its id first.
///
/// The cursor stays open only if the documents exceed one batch.
pub(crate) fn listing(
    call: &mut Call<'_>,
    namespace: Namespace,
    documents: Vec<DocumentBuf>,
    batch_size: u64,
) -> Result<()> {
    let source = database::language::from_documents(documents);
    let mut cursor = Cursor::new(namespace.clone(), source, call.operation());
    // Unlike a plan, this stream knows its end in advance.
    cursor.looks_ahead = true;
    let mut batch = Builder::new();
    batch.begin_array(c"firstBatch");
    let (count, ended) = cursor.next_batch(batch_size, &mut batch)?;
    batch.end();
    call.server.counters.returned.add(count);
    let id = if ended { 0 } else { keep(call, cursor) };
    call.reply.begin_document(c"cursor").append(c"id", id).append(c"ns", namespace.as_str());
    call.reply.append_all(batch.finish().view()).end();
    Ok(())
}

/// Takes the batch size from a command's `cursor` field.
pub(crate) fn batch_size(cursor: Option<Document<'_>>, path: &str) -> Result<Option<u64>> {
    let Some(cursor) = cursor else { return Ok(None) };
    let mut fields = crate::protocol::fields::Fields::of_document(format!("{path}.cursor"), cursor);
    let size = fields.natural("batchSize")?;
    fields.finish()?;
    Ok(size)
}
