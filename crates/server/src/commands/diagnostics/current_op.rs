//! `currentOp` and `killOp`: the running operations, and their interruption.

use crate::access::{self, Requirements, requirements};
use crate::auth::{self, redact};
use crate::call::{Call, HandlerStatus, Row};
use crate::observe::activity::{Activity, Current};
use crate::process::logging::{format_time, now_millis};
use crate::protocol::names::UserName;
use crate::protocol::session_id;
use crate::server::Server;
use crate::session::Session;
use crate::state::auth::Auth;
use crate::state::connection::ConnectionState;
use base::bson::{Builder, Document, DocumentBuf, FieldName, Value};
use base::{Result, bail, err};
use database::{SessionId, time};
use std::ffi::CStr;
use std::sync::Arc;

/// The row of `currentOp`.
pub(crate) const CURRENT_OP: Row =
    Row::admin("currentOp", current_op, Requirements::By(requirements::current_op))
        .help("Lists the running operations.")
        .admin_only();

fn current_op(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields().after_name();
    let idle_too = fields.flag("$all")?.unwrap_or(false);
    let own_only = fields.flag("$ownOps")?.unwrap_or(false);
    // Only tests may ask for whole commands, as in MongoDB: the reply is one document.
    let truncates = fields.flag("$truncateOps")?.unwrap_or(true) || !call.server.fail_points.allowed();
    // The remaining fields are conditions on the entries.
    let conditions = fields.rest();
    let refused = conditions.iter().find(|condition| !is_simple(condition.value()));
    if let Some(condition) = refused {
        bail!(
            NotImplemented,
            "currentOp supports only values and {{$exists: …}} as conditions, not the condition on '{}'",
            condition.name()
        );
    }
    let seen = VisibleUsers::by(&call.server.auth, call.connection, own_only);
    call.reply.begin_array(c"inprog");
    for activity in call.server.activities.all() {
        let current = activity.current();
        if current.is_none() && !idle_too || !seen.shows(&activity) {
            continue;
        }
        let entry = entry(call.server, &activity, current, truncates);
        if conditions.iter().all(|condition| holds(entry.view(), condition.name(), condition.value())) {
            call.reply.push(&entry);
        }
    }
    for session in call.server.sessions.all() {
        if !seen.shows_session(&session.id) {
            continue;
        }
        let Some(entry) = idle_transaction(call.server, &session) else { continue };
        if conditions.iter().all(|condition| holds(entry.view(), condition.name(), condition.value())) {
            call.reply.push(&entry);
        }
    }
    call.reply.end();
    if call.server.database.write_locks() > 0 {
        call.reply.append(c"fsyncLock", true);
        call.reply.append(c"info", "use db.fsyncUnlock() to terminate the fsync write/snapshot lock");
    }
    Ok(HandlerStatus::Done)
}

/// Returns the running operations in the form of the stage `$currentOp`.
///
/// `idleConnections` adds connections that wait for a request. `idleCursors` adds cursors that wait
/// for a getMore. `idleSessions: false` removes idle open transactions. `truncateOps` truncates commands.
pub(crate) fn documents(server: &Server, state: &ConnectionState, options: Document<'_>) -> Vec<DocumentBuf> {
    let flag = |name: &str| options.get(name).is_some_and(|value| value.is_truthy());
    let seen = VisibleUsers::by(&server.auth, state, !flag("allUsers"));
    let running = |activity: &Arc<Activity>| {
        let current = activity.current();
        let shown = (current.is_some() || flag("idleConnections")) && seen.shows(activity);
        shown.then(|| entry(server, activity, current, flag("truncateOps")))
    };
    let mut entries: Vec<DocumentBuf> = server.activities.all().iter().filter_map(running).collect();
    // Most servers have many sessions and few transactions.
    let sessions = match server.sessions.transactions.any_open() {
        true => server.sessions.all(),
        false => Vec::new(),
    };
    let idle_sessions = options.get("idleSessions").is_none_or(|value| value.is_truthy());
    let sessions = sessions.iter().filter(|session| idle_sessions && seen.shows_session(&session.id));
    entries.extend(sessions.filter_map(|session| idle_transaction(server, session)));
    if flag("idleCursors") {
        let idle = server.database.cursors.idle();
        let shown = idle.iter().filter(|cursor| seen.shows_cursor(cursor));
        entries.extend(shown.map(|cursor| idle_cursor(server, cursor, flag("truncateOps"))));
    }
    entries
}

/// The users whose operations are visible: all users, or one.
struct VisibleUsers {
    only: Option<(Option<UserName>, [u8; 32])>,
}

impl VisibleUsers {
    /// Without access control, all operations are visible.
    fn by(auth: &Auth, state: &ConnectionState, own_only: bool) -> VisibleUsers {
        let user = || state.identity.as_ref().map(|identity| identity.user.clone());
        let only = own_only && state.is_access_controlled(auth);
        VisibleUsers { only: only.then(|| (user(), auth::session_digest(auth, state))) }
    }

    fn shows(&self, activity: &Activity) -> bool {
        self.only.as_ref().is_none_or(|(user, _)| user.is_some() && activity.user() == *user)
    }

    fn shows_session(&self, session: &SessionId) -> bool {
        self.only.as_ref().is_none_or(|(_, digest)| session.user() == digest)
    }

    fn shows_cursor(&self, cursor: &database::IdleCursor) -> bool {
        let is_own = |user: &Option<UserName>| {
            cursor.tag.as_ref().is_some_and(|tag| access::requirements::is_cursor_of(tag, user.as_ref()))
        };
        self.only.as_ref().is_none_or(|(user, _)| is_own(user))
    }
}

/// Maximum size of a command in a truncated entry, in bytes, as in MongoDB.
const TRUNCATED_MAX: usize = 1000;

/// Begins an entry.
fn begin_entry(server: &Server, kind: &str) -> Builder {
    let mut entry = Builder::new();
    entry.append(c"type", kind).append(c"host", server.database.host());
    entry
}

/// Appends a command, if there is one.
fn append_command(entry: &mut Builder, name: &'static CStr, command: Option<Document<'_>>, truncates: bool) {
    let Some(command) = command else { return };
    match truncates {
        true => entry.append(name, &redact::truncated(command.to_owned(), TRUNCATED_MAX)),
        false => entry.append(name, command),
    };
}

/// Appends the user of an operation.
fn append_user(entry: &mut Builder, user: Option<&UserName>) {
    let Some(user) = user else { return };
    entry.begin_array(c"effectiveUsers").push_document();
    entry.append(c"user", &user.name).append(c"db", &user.db).end().end();
}

/// Describes an open cursor that is not being read.
fn idle_cursor(server: &Server, cursor: &database::IdleCursor, truncates: bool) -> DocumentBuf {
    let mut entry = begin_entry(server, "idleCursor");
    entry.append(c"ns", cursor.namespace.as_str());
    entry.append(c"active", false).append(c"currentOpTime", &format_time(now_millis()));
    append_user(&mut entry, cursor.tag.as_ref().and_then(access::requirements::cursor_user));
    if let Some(session) = &cursor.session {
        session_id::append(entry.begin_document(c"lsid"), session);
        entry.end();
    }
    entry.append_optional(c"planSummary", cursor.plan_summary.as_deref());
    entry.begin_document(c"cursor").append(c"cursorId", cursor.id);
    let created = now_millis() - i64::try_from(cursor.age.as_millis()).unwrap_or(i64::MAX);
    let used = now_millis() - i64::try_from(cursor.idle.as_millis()).unwrap_or(i64::MAX);
    entry.append(c"createdDate", Value::DateTime(created)).append(c"lastAccessDate", Value::DateTime(used));
    entry
        .append(c"nDocsReturned", cursor.documents as i64)
        .append(c"nBatchesReturned", cursor.batches as i64);
    entry.append(c"noCursorTimeout", cursor.no_timeout).append(c"tailable", cursor.tailable);
    entry.append(c"awaitData", cursor.await_data);
    let opener = cursor.originating_command.as_ref().map(|command| command.view());
    append_command(&mut entry, c"originatingCommand", opener, truncates);
    entry.end();
    entry.finish()
}

fn is_simple(condition: Value<'_>) -> bool {
    match condition {
        Value::Document(document) => {
            document.iter().all(|field| field.name() == "$exists" || !field.name().starts_with('$'))
        }
        Value::Regex { .. } => false,
        _ => true,
    }
}

fn holds(entry: Document<'_>, name: &str, condition: Value<'_>) -> bool {
    let path: Vec<&str> = name.split('.').collect();
    let mut value = Some(Value::Document(entry));
    for part in path {
        value = value.and_then(|value| value.as_document()).and_then(|document| document.get(part));
    }
    let exists = condition.as_document().and_then(|document| document.get("$exists"));
    match (exists, value) {
        (Some(expected), value) => expected.is_truthy() == value.is_some(),
        (None, Some(value)) => base::bson::equal(value, condition),
        (None, None) => condition.is_nullish(),
    }
}

/// Describes a session with an open transaction and no running statement.
fn idle_transaction(server: &Server, session: &Session) -> Option<DocumentBuf> {
    let mut entry = begin_entry(server, "idleSession");
    entry.append(c"desc", "inactive transaction").append(c"active", false);
    entry.append(c"currentOpTime", &format_time(now_millis()));
    session_id::append(entry.begin_document(c"lsid"), &session.id);
    entry.end();
    let idle = session.describe_transaction(server.parameters.transaction_lifetime(), true, &mut entry);
    idle.then(|| entry.finish())
}

fn entry(server: &Server, activity: &Activity, current: Option<Current>, truncates: bool) -> DocumentBuf {
    let mut entry = begin_entry(server, "op");
    entry.append(c"desc", &format!("conn{}", activity.connection_id));
    entry.append(c"connectionId", activity.connection_id).append(c"client", &activity.client.to_string());
    let name = activity.app_name();
    entry.append_optional(c"appName", (!name.is_empty()).then_some(name));
    entry.append_optional(c"clientMetadata", activity.metadata());
    entry.append(c"active", current.is_some()).append(c"currentOpTime", &format_time(now_millis()));
    append_user(&mut entry, activity.user().as_ref());
    if let Some(current) = current {
        let micros = time::since(current.started).as_micros() as i64;
        entry.append(c"opid", current.shown_id()).append(c"secs_running", micros / 1_000_000);
        entry.append(c"microsecs_running", micros).append(c"op", operation_kind(current.command));
        entry.append(c"ns", &current.namespace);
        let (database, collection) = current.namespace.split_once('.').unwrap_or_default();
        if current.body.is_empty() {
            entry.begin_document(c"command");
            match collection {
                "$cmd" => entry.append(FieldName::literal(current.command), 1),
                collection => entry.append(FieldName::literal(current.command), collection),
            };
            entry.append(c"$db", database).end();
        } else {
            let body = Document::from_valid(&current.body);
            append_command(&mut entry, c"command", Some(body), truncates);
            if current.command == "getMore"
                && let Some(id) = body.get("getMore")
            {
                let operation = current.operation.as_ref();
                let opener = operation.and_then(|operation| operation.originating_command());
                entry.begin_document(c"cursor").append(c"cursorId", id);
                let opener = opener.map(|command| command.view());
                append_command(&mut entry, c"originatingCommand", opener, truncates);
                entry.end();
            }
        }
        // No operation holds a lock while it runs.
        entry.begin_document(c"locks").end().append(c"waitingForLock", false);
        let session = current.session.and_then(|id| server.sessions.get(&id));
        if let Some(session) = session {
            session_id::append(entry.begin_document(c"lsid"), &session.id);
            entry.end();
            session.describe_transaction(server.parameters.transaction_lifetime(), false, &mut entry);
        }
        if let Some(progress) = current.operation.as_ref().and_then(|operation| operation.progress()) {
            let (done, total) = (progress.done(), progress.total);
            let percent = (done.min(total) * 100).checked_div(total).unwrap_or(100);
            entry.append(c"msg", &format!("{}: {done}/{total} {percent}%", progress.message));
            entry
                .begin_document(c"progress")
                .append(c"done", done as i64)
                .append(c"total", total as i64)
                .end();
        }
    }
    entry.finish()
}

/// Returns currentOp's historical name for the kind of operation.
fn operation_kind(command: &str) -> &'static str {
    match command {
        "find" => "query",
        "insert" => "insert",
        "update" => "update",
        "delete" => "remove",
        "getMore" => "getmore",
        _ => "command",
    }
}

/// The row of `killOp`.
pub(crate) const KILL_OP: Row = Row::admin("killOp", kill_op, Requirements::By(requirements::kill_op))
    .help("Interrupts an operation.")
    .admin_only();

fn kill_op(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields().after_name();
    let operation = fields.any("op")?.ok_or_else(|| err!(NoSuchKey, "Missing expected field \"op\""))?;
    fields.ignore_rest();
    let number = operation.as_number().ok_or_else(|| {
        let found = operation.kind().alias();
        err!(TypeMismatch, "Expected field \"op\" to have numeric type, but found {found}")
    })?;
    let number = number.to_i64_exact().ok_or_else(|| {
        let text = "Expected field \"op\" to have a value exactly representable as a 64-bit integer";
        err!(BadValue, "{text}, but found op: {operation}")
    })?;
    let Ok(number) = i32::try_from(number) else {
        bail!(26823, "invalid op : {number}. Op ID cannot be represented with 32 bits");
    };
    call.server.activities.kill(number);
    call.reply.append(c"info", "attempting to kill op");
    Ok(HandlerStatus::Done)
}
