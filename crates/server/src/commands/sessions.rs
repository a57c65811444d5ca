//! Logical sessions: starting, refreshing, ending and killing them; and the two commands that end
//! a transaction, of which there is none yet.

use crate::arguments::{SessionId, session_id};
use crate::call::{Answer, Call};
use crate::command::{Command, Kind};
use crate::fields::Fields;
use crate::session::TIMEOUT_MINUTES;
use base::bson::Value;
use base::{Result, err};

/// The row of `startSession`.
pub(crate) const START_SESSION: Command =
    Command::new("startSession", Kind::Admin, "Starts a logical session.", start).without_auth();

fn start(call: &mut Call<'_>) -> Result<Answer> {
    let mut fields = call.fields();
    fields.command_value();
    fields.finish()?;
    let id = call.server.sessions.start()?;
    call.reply.begin_document("id").append("id", Value::Binary { subtype: 4, bytes: &id }).end();
    call.reply.append("timeoutMinutes", TIMEOUT_MINUTES);
    Ok(Answer::Done)
}

/// The row of `refreshSessions`.
pub(crate) const REFRESH_SESSIONS: Command =
    Command::new("refreshSessions", Kind::Admin, "Marks sessions as used.", refresh).stable_api();

fn refresh(call: &mut Call<'_>) -> Result<Answer> {
    for id in listed_sessions(call)? {
        call.server.sessions.touch(id)?;
    }
    Ok(Answer::Done)
}

/// The row of `endSessions`.
pub(crate) const END_SESSIONS: Command = Command::new("endSessions", Kind::Admin, "Ends sessions.", end)
    .stable_api()
    .without_auth()
    .takes_write_concern();

fn end(call: &mut Call<'_>) -> Result<Answer> {
    for id in listed_sessions(call)? {
        call.server.sessions.end(&id);
        call.server.database.cursors.kill_session(&id);
    }
    Ok(Answer::Done)
}

/// Stops what runs in a session and closes its cursors. The session itself stays, so that a
/// retryable write sent again is still known.
fn kill_session(call: &Call<'_>, id: &SessionId) {
    call.server.activities.kill_sessions(call.operation_id, |running| running == id);
    call.server.database.cursors.kill_session(id);
}

/// The same for every session.
fn kill_every_session(call: &Call<'_>) {
    call.server.activities.kill_sessions(call.operation_id, |_| true);
    for id in call.server.sessions.ids() {
        call.server.database.cursors.kill_session(&id);
    }
}

/// The row of `killSessions`.
pub(crate) const KILL_SESSIONS: Command =
    Command::new("killSessions", Kind::Admin, "Stops what runs in sessions.", kill);

fn kill(call: &mut Call<'_>) -> Result<Answer> {
    let ids = listed_sessions(call)?;
    if ids.is_empty() {
        kill_every_session(call);
    }
    for id in ids {
        kill_session(call, &id);
    }
    Ok(Answer::Done)
}

/// The row of `killAllSessions`.
pub(crate) const KILL_ALL_SESSIONS: Command =
    Command::new("killAllSessions", Kind::Admin, "Stops what runs in the sessions of all users.", kill_all);

fn kill_all(call: &mut Call<'_>) -> Result<Answer> {
    let mut fields = call.fields();
    let users = fields.command_value();
    fields.finish()?;
    let users = users.as_array().ok_or_else(|| wrong_list(call, &users))?;
    // Without users every session belongs to nobody; a list of users names none of them.
    if users.is_empty() {
        kill_every_session(call);
    }
    Ok(Answer::Done)
}

/// The row of `killAllSessionsByPattern`.
pub(crate) const KILL_ALL_SESSIONS_BY_PATTERN: Command = Command::new(
    "killAllSessionsByPattern",
    Kind::Admin,
    "Stops what runs in the sessions that match.",
    kill_by_pattern,
);

fn kill_by_pattern(call: &mut Call<'_>) -> Result<Answer> {
    let mut fields = call.fields();
    let patterns = fields.command_value();
    fields.finish()?;
    let patterns = patterns.as_array().ok_or_else(|| wrong_list(call, &patterns))?;
    if patterns.is_empty() {
        kill_every_session(call);
    }
    for pattern in patterns.iter() {
        let pattern = pattern.as_document().ok_or_else(|| wrong_list(call, &pattern))?;
        let mut pattern = Fields::of_document("killAllSessionsByPattern", pattern);
        let session = pattern.any("lsid")?;
        pattern.refuse_unless_default("users")?;
        pattern.refuse_unless_default("roles")?;
        pattern.refuse_unless_default("uid")?;
        pattern.finish()?;
        match session {
            Some(session) => kill_session(call, &session_id(session)?),
            None => kill_every_session(call),
        }
    }
    Ok(Answer::Done)
}

/// The sessions named in the command's own field.
fn listed_sessions(call: &Call<'_>) -> Result<Vec<SessionId>> {
    let mut fields = call.fields();
    let list = fields.command_value();
    fields.finish()?;
    let list = list.as_array().ok_or_else(|| wrong_list(call, &list))?;
    list.iter().map(session_id).collect()
}

fn wrong_list(call: &Call<'_>, found: &Value<'_>) -> base::Error {
    let (name, found) = (call.command.name, found.kind().alias());
    err!(TypeMismatch, "BSON field '{name}.{name}' is the wrong type '{found}', expected type 'array'")
}

/// The row of `commitTransaction`.
pub(crate) const COMMIT_TRANSACTION: Command =
    Command::new("commitTransaction", Kind::Write, "Commits a transaction.", no_transaction)
        .admin_only()
        .stable_api();

/// The row of `abortTransaction`.
pub(crate) const ABORT_TRANSACTION: Command =
    Command::new("abortTransaction", Kind::Write, "Aborts a transaction.", no_transaction)
        .admin_only()
        .stable_api();

/// Refuses to end a transaction that can't have begun.
fn no_transaction(call: &mut Call<'_>) -> Result<Answer> {
    if call.arguments.transaction_number.is_none() {
        return Err(err!(CommandFailed, "Must be run within a transaction"));
    }
    Err(err!(NoSuchTransaction, "Given transaction number does not match any in-progress transactions."))
}
