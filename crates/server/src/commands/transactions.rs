//! `commitTransaction` and `abortTransaction`.

use crate::access::Requirements;
use crate::access::command::Kind;
use crate::call::row::Row;
use crate::call::{Call, HandlerStatus};
use crate::session::Session;
use base::{ErrorCode, Result, err};
use std::sync::Arc;

/// The row of `commitTransaction`.
pub(crate) const COMMIT_TRANSACTION: Row =
    Row::new("commitTransaction", Kind::Write, "Commits a transaction.", commit, Requirements::Nothing)
        .admin_only()
        .stable_api()
        .in_transactions();

/// The row of `abortTransaction`.
pub(crate) const ABORT_TRANSACTION: Row =
    Row::new("abortTransaction", Kind::Write, "Aborts a transaction.", abort, Requirements::Nothing)
        .admin_only()
        .stable_api()
        .in_transactions();

fn commit(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let (session, number) = transaction(call)?;
    let operation = call.operation();
    let (database, counters) = (&call.server.database, &call.server.sessions.transactions);
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
