//! `fsync` and `fsyncUnlock`: a sync of all data, and a lock of writes for file copies.

use crate::access::command::Kind;
use crate::access::{Action, Requirements};
use crate::call::row::Row;
use crate::call::{Call, HandlerStatus};
use crate::process::blocking;
use base::bson::Value;
use base::{Result, bail, err};

/// The row of `fsync`.
pub(crate) const FSYNC: Row = Row::new(
    "fsync",
    Kind::Admin,
    "Syncs all data to disk, and optionally locks writes.",
    fsync,
    Requirements::Cluster(Action::Fsync),
)
.admin_only();

fn fsync(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields().after_name();
    let lock = fields.flag("lock")?.unwrap_or(false);
    fields.flag("async")?;
    fields.flag("forBackup")?;
    // The lock is available after the running commits, each of a few microseconds.
    if let Some(timeout) = fields.any("fsyncLockAcquisitionTimeoutMillis")?
        && !matches!(timeout, Value::Int32(_) | Value::Null)
    {
        return Err(fields.wrong_type("fsyncLockAcquisitionTimeoutMillis", timeout.kind(), "int"));
    }
    fields.finish()?;
    let database = &call.server.database;
    if !lock {
        blocking(|| database.checkpoint())?;
        call.reply.append(c"numFiles", 1);
        return Ok(HandlerStatus::Done);
    }
    if call.server.settings.shared {
        bail!(
            CommandNotSupported,
            "fsync with lock is not supported on PostgreSQL, whose backups need no lock"
        );
    }
    let count = blocking(|| database.lock_writes())?;
    log::info!("writes are locked, {count} times; fsyncUnlock unlocks them");
    call.reply.append(c"info", "now locked against writes, use db.fsyncUnlock() to unlock");
    call.reply.append(c"lockCount", count as i64);
    call.reply.append(c"seeAlso", "http://dochub.mongodb.org/core/fsynccommand");
    Ok(HandlerStatus::Done)
}

/// Runs disk waits without a delay for other clients of the network thread.
fn blocking<T>(work: impl Fn() -> Result<T>) -> Result<T> {
    let mut result = None;
    blocking::in_place(&mut || result = Some(work()));
    result.unwrap_or_else(|| Err(err!(InternalError, "the thread's owner ran no work")))
}

/// The row of `fsyncUnlock`.
pub(crate) const FSYNC_UNLOCK: Row = Row::new(
    "fsyncUnlock",
    Kind::Admin,
    "Unlocks writes after fsync.",
    fsync_unlock,
    Requirements::Cluster(Action::Unlock),
)
.admin_only();

fn fsync_unlock(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let fields = call.fields().after_name();
    fields.ignore_rest();
    let left = call.server.database.unlock_writes();
    let left = left.ok_or_else(|| err!(IllegalOperation, "fsyncUnlock called when not locked"))?;
    if left == 0 {
        log::info!("writes are unlocked");
        call.server.unlocked.advance();
    }
    call.reply.append(c"info", "fsyncUnlock completed").append(c"lockCount", left as i64);
    Ok(HandlerStatus::Done)
}
