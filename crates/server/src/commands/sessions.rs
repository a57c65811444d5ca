//! Logical sessions and the ends of their transactions: start, refresh, end, kill, commit, abort.

use crate::access::{Action, Requirements, requirements};
use crate::auth;
use crate::call::{Call, HandlerStatus, Row};
use crate::protocol::fields::Fields;
use crate::protocol::session_id::{self, Named};
use crate::session::{Session, TIMEOUT_MINUTES};
use base::bson::{Document, Value};
use base::{Error, ErrorCode, Result, bail, err};
use database::SessionId;
use std::collections::HashSet;
use std::sync::Arc;

/// The row of `startSession`.
pub(crate) const START_SESSION: Row =
    Row::admin("startSession", start, Requirements::Nothing).help("Starts a logical session.");

fn start(call: &mut Call<'_>) -> Result<HandlerStatus> {
    call.fields().after_name().finish()?;
    let id = call.server.sessions.start(auth::session_digest(&call.server.auth, call.connection))?;
    call.reply.begin_document(c"id").append(c"id", Value::Binary { subtype: 4, bytes: &id.uuid }).end();
    call.reply.append(c"timeoutMinutes", TIMEOUT_MINUTES);
    Ok(HandlerStatus::Done)
}

/// The row of `refreshSessions`.
pub(crate) const REFRESH_SESSIONS: Row =
    Row::admin("refreshSessions", refresh, Requirements::Nothing).help("Refreshes sessions.").stable_api();

fn refresh(call: &mut Call<'_>) -> Result<HandlerStatus> {
    for id in own_sessions(call, Action::Impersonate)? {
        call.server.sessions.touch(id)?;
    }
    Ok(HandlerStatus::Done)
}

/// The row of `endSessions`.
pub(crate) const END_SESSIONS: Row = Row::admin("endSessions", end, Requirements::Nothing)
    .help("Ends sessions.")
    .stable_api()
    .takes_write_concern();

fn end(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let ids: HashSet<SessionId> = own_sessions(call, Action::Impersonate)?.into_iter().collect();
    for id in &ids {
        call.server.sessions.end_and_abort(id, &call.server.database);
    }
    call.server.database.cursors.kill_sessions(|session| ids.contains(session));
    Ok(HandlerStatus::Done)
}

/// Interrupts the operations of the selected sessions and closes their cursors.
///
/// The sessions remain, so that the server still recognizes retried writes.
fn kill_sessions(call: &Call<'_>, is_wanted: impl Fn(&SessionId) -> bool) {
    call.server.activities.kill_sessions(call.operation_id, &is_wanted);
    for id in call.server.sessions.ids().iter().filter(|id| is_wanted(id)) {
        call.server.sessions.abort_transaction_of(id, &call.server.database);
    }
    call.server.database.cursors.kill_sessions(is_wanted);
}

/// The row of `killSessions`.
pub(crate) const KILL_SESSIONS: Row =
    Row::admin("killSessions", kill, Requirements::Nothing).help("Kills the operations of sessions.");

fn kill(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let ids = own_sessions(call, Action::KillAnySession)?;
    let own = auth::session_digest(&call.server.auth, call.connection);
    // An empty list selects the sessions of the current user.
    let ids: HashSet<SessionId> = ids.into_iter().collect();
    kill_sessions(call, |id| if ids.is_empty() { *id.user() == own } else { ids.contains(id) });
    Ok(HandlerStatus::Done)
}

/// The row of `killAllSessions`.
pub(crate) const KILL_ALL_SESSIONS: Row =
    Row::admin("killAllSessions", kill_all, Requirements::Cluster(Action::KillAnySession))
        .help("Kills the operations in the sessions of all users.");

fn kill_all(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let users = fields.command_value();
    fields.ignore_rest();
    let users = users.as_array().ok_or_else(|| wrong_list(call, &users))?;
    let users = users
        .iter()
        .enumerate()
        .filter(|(_, user)| !user.is_nullish())
        .map(|(index, user)| user_in("KillAllSessionsCmd.killAllSessions", index, user))
        .collect::<Result<Vec<_>>>()?;
    kill_sessions(call, |id| users.is_empty() || users.contains(id.user()));
    Ok(HandlerStatus::Done)
}

/// Returns the digest of a user in the form `{user: …, db: …}`.
fn user_in(path: &str, index: usize, user: Value<'_>) -> Result<[u8; 32]> {
    let mut fields = Fields::of_document(path, object_in(path, index, user)?);
    let name = fields.required("user", Fields::string)?;
    let database = fields.required("db", Fields::string)?;
    fields.finish()?;
    Ok(session_id::digest_of(name, database))
}

/// Returns an element of a list as a document.
fn object_in<'a>(path: &str, index: usize, value: Value<'a>) -> Result<Document<'a>> {
    value.as_document().ok_or_else(|| {
        let found = value.kind().alias();
        err!(TypeMismatch, "BSON field '{path}.{index}' is the wrong type '{found}', expected type 'object'")
    })
}

/// Returns the digests of the users whose sessions `$listLocalSessions` returns; `None` selects all
/// users.
///
/// The default is the current user.
///
/// Errors: UnsupportedFormat if both `users` and `allUsers` are set.
pub(crate) fn listed_users(specification: Document<'_>, own: [u8; 32]) -> Result<Option<Vec<[u8; 32]>>> {
    const PLACE: &str = "$listLocalSessions";
    let mut fields = Fields::of_document(PLACE, specification);
    let all = fields.boolean("allUsers")?.unwrap_or(false);
    let users = fields.array("users")?;
    fields.refuse_unless_default("$_internalPredicate")?;
    fields.finish()?;
    let users = users.iter().flat_map(|users| users.iter()).enumerate();
    let users: Vec<_> = users
        .filter(|(_, user)| !user.is_nullish())
        .map(|(index, user)| user_in("$listLocalSessions.users", index, user))
        .collect::<Result<_>>()?;
    match (users.is_empty(), all) {
        (false, true) => Err(err!(
            UnsupportedFormat,
            "{PLACE} may not specify {{allUsers:true}} and {{users:[...]}} at the same time"
        )),
        (false, false) => Ok(Some(users)),
        (true, _) => Ok((!all).then(|| vec![own])),
    }
}

/// The row of `killAllSessionsByPattern`.
pub(crate) const KILL_ALL_SESSIONS_BY_PATTERN: Row =
    Row::admin("killAllSessionsByPattern", kill_by_pattern, Requirements::By(requirements::kill_by_pattern))
        .help("Kills the operations in the sessions that match.");

fn kill_by_pattern(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let patterns = fields.command_value();
    fields.finish()?;
    let patterns = patterns.as_array().ok_or_else(|| wrong_list(call, &patterns))?;
    let patterns = patterns.iter().enumerate();
    let patterns = patterns
        .map(|(index, pattern)| Pattern::in_list(call, object_in(PATTERNS, index, pattern)?))
        .collect::<Result<Vec<_>>>()?;
    kill_sessions(call, |id| patterns.is_empty() || patterns.iter().any(|pattern| pattern.fits(id)));
    Ok(HandlerStatus::Done)
}

/// Paths of the patterns and of their lists in errors.
const PATTERNS: &str = "KillAllSessionsByPatternCmd.killAllSessionsByPattern";
const PATTERN_USERS: &str = "KillAllSessionsByPatternCmd.killAllSessionsByPattern.users";
const PATTERN_ROLES: &str = "KillAllSessionsByPatternCmd.killAllSessionsByPattern.roles";

/// Selects sessions by id or by user.
struct Pattern {
    session: Option<SessionId>,
    user: Option<[u8; 32]>,
}

impl Pattern {
    fn in_list(call: &Call<'_>, pattern: Document<'_>) -> Result<Pattern> {
        let mut fields = Fields::of_document(PATTERNS, pattern);
        let session = fields.any("lsid")?.map(session_id::read).transpose()?;
        if session.is_some_and(|session| !session.has_user) {
            return Err(Error::missing_field(format_args!("{PATTERNS}.lsid.uid")));
        }
        let session = session.map(|named| own(call, named, Action::KillAnySession)).transpose()?.flatten();
        let user = fields.any("uid")?.map(session_id::user_digest).transpose()?;
        // mongos adds the users and roles of its client. They select no sessions.
        for (index, user) in fields.array("users")?.iter().flat_map(|users| users.iter()).enumerate() {
            user_in(PATTERN_USERS, index, user)?;
        }
        for (index, role) in fields.array("roles")?.iter().flat_map(|roles| roles.iter()).enumerate() {
            let mut fields = Fields::of_document(PATTERN_ROLES, object_in(PATTERN_ROLES, index, role)?);
            fields.required("role", Fields::string)?;
            fields.required("db", Fields::string)?;
            fields.finish()?;
        }
        fields.finish()?;
        if session.is_some() && user.is_some() {
            bail!(InvalidOptions, "Too many fields specified in pattern for killAllSessionsByPattern");
        }
        Ok(Pattern { session, user })
    }

    fn fits(&self, id: &SessionId) -> bool {
        self.session.is_none_or(|session| session == *id) && self.user.is_none_or(|user| user == *id.user())
    }
}

/// Returns the session that the client names. Another user's session requires the privilege `also`.
fn own(call: &Call<'_>, named: Named, also: Action) -> Result<Option<SessionId>> {
    auth::own_session_or(&call.server.auth, call.connection, named, also)
}

/// Takes the sessions in the command's own field.
fn own_sessions(call: &Call<'_>, also: Action) -> Result<Vec<SessionId>> {
    let mut fields = call.fields();
    let list = fields.command_value();
    fields.finish()?;
    let list = list.as_array().ok_or_else(|| wrong_list(call, &list))?;
    let named = list.iter().map(session_id::read).collect::<Result<Vec<_>>>()?;
    named.into_iter().filter_map(|named| own(call, named, also).transpose()).collect()
}

fn wrong_list(call: &Call<'_>, found: &Value<'_>) -> Error {
    let (name, is_missing, found) = (call.command.name, found.is_nullish(), found.kind().alias());
    let path = match name {
        "killAllSessions" => "KillAllSessionsCmd.killAllSessions",
        "killAllSessionsByPattern" => PATTERNS,
        _ => &format!("{name}.{name}"),
    };
    if is_missing && name == "killAllSessions" {
        return Error::missing_field(path);
    }
    err!(TypeMismatch, "BSON field '{path}' is the wrong type '{found}', expected type 'array'")
}

/// The row of `commitTransaction`.
pub(crate) const COMMIT_TRANSACTION: Row = Row::write("commitTransaction", commit, Requirements::Nothing)
    .help("Commits a transaction.")
    .admin_only()
    .stable_api()
    .in_transactions()
    .restarts();

/// The row of `abortTransaction`.
pub(crate) const ABORT_TRANSACTION: Row = Row::write("abortTransaction", abort, Requirements::Nothing)
    .help("Aborts a transaction.")
    .admin_only()
    .stable_api()
    .in_transactions();

fn commit(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let (session, number) = transaction(call)?;
    let operation = call.operation();
    let (database, counters) = (&call.server.database, &call.server.sessions.transactions);
    database.wait_for_room(operation.as_ref())?;
    operation.hold_thread();
    let committed = match session.commit_transaction(database, counters, &operation, number) {
        // Another server of the shared store may have committed it, or this server may have
        // lost the reply.
        Err(error) if error.code() == ErrorCode::NoSuchTransaction && call.server.settings.shared => {
            database.find_transaction(&operation, session.id, number)?.ok_or(error)?
        }
        outcome => outcome?,
    };
    match call.acknowledge(Some(committed)) {
        // The commit may be lost with the servers that had it. The remaining records decide.
        Err(error) if error.code() == ErrorCode::HostUnreachable && call.server.settings.shared => {
            match database.find_transaction(&operation, session.id, number)? {
                Some(found) => call.acknowledge(Some(found)),
                None => Err(err!(NoSuchTransaction, "the transaction was lost: {}", error.message())),
            }
        }
        outcome => outcome,
    }
}

fn abort(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let (session, number) = transaction(call)?;
    session.abort_transaction(&call.server.database, &call.server.sessions.transactions, number)?;
    call.acknowledge(None)
}

/// Returns the session and the number of the transaction to end.
fn transaction(call: &mut Call<'_>) -> Result<(Arc<Session>, i64)> {
    let mut fields = call.fields().after_name();
    // A token for mongos, which locates the members of a transaction.
    fields.any("recoveryToken")?;
    fields.refuse_unless_default("commitTimestamp")?;
    fields.refuse_unless_default("durableTimestamp")?;
    fields.refuse_unless_default("prepared")?;
    fields.finish()?;
    let number = call.arguments.transaction_number.filter(|_| call.arguments.transaction.is_some());
    match (call.connection.session.clone(), number) {
        (Some(session), Some(number)) => Ok((session, number)),
        _ => Err(err!(CommandFailed, "{} must be run within a transaction", call.command.name)),
    }
}
