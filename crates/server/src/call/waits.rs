//! Waits of commands before their handlers run: fail point delays, the session's queue,
//! fsyncUnlock, execution tickets.
//!
//! No wait holds a thread. Each wait ends at maxTimeMS, by killOp, when the client disconnects, and
//! at shutdown.

use crate::access::Kind;
use crate::call::arguments::Arguments;
use crate::call::progress::Progress;
use crate::call::transaction_rules::Part;
use crate::observe::activity::Activity;
use crate::process::event::Event;
use crate::server::Server;
use crate::state::connection::ConnectionState;
use crate::state::parameters::Setting;
use base::{ErrorCode, Result, bail, err};
use database::{Queue, Ready, Ticket, cancellation, time};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

/// Maximum wait of a command without maxTimeMS.
const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);

/// Maximum wait for an execution ticket. The wait for a connection to the store has the same limit.
const EXECUTION_WAIT: Duration = Duration::from_secs(30);

/// Returns the deadline of a command's waits.
///
/// Errors: MaxTimeMSExpired after the deadline.
fn deadline(progress: &Progress, arguments: &Arguments<'_>) -> Result<Instant> {
    deadline_after(progress, arguments.max_time)
}

/// As [`deadline`], for a time limit since the command's arrival.
fn deadline_after(progress: &Progress, max_time: Option<Duration>) -> Result<Instant> {
    let now = time::now();
    let began = progress.began.map_or(now, |began| began.at);
    let deadline = began + max_time.unwrap_or(WAIT_MAX);
    match now < deadline {
        true => Ok(deadline),
        false => Err(err!(MaxTimeMSExpired, "operation exceeded time limit")),
    }
}

/// Returns the deadline of a suspended statement.
///
/// Errors: MaxTimeMSExpired, with the statement's context.
pub(crate) fn for_suspended(progress: &Progress) -> Result<Instant> {
    let suspended = progress.suspended.as_deref();
    deadline_after(progress, suspended.and_then(|suspended| suspended.max_time)).map_err(|error| {
        match suspended.and_then(|suspended| suspended.context.as_ref()) {
            Some(context) => error.context(context),
            None => error,
        }
    })
}

/// Returns a check that cancels waits in a shared store, after killOp or maxTimeMS.
pub(crate) fn over(
    state: &ConnectionState,
    progress: &Progress,
    arguments: &Arguments<'_>,
) -> impl Fn() -> Option<cancellation::Reason> + 'static {
    let began = progress.began.map_or_else(time::now, |began| began.at);
    let (activity, until) = (state.activity.clone(), arguments.max_time.map(|time| began + time));
    move || {
        let is_late = || until.filter(|until| time::now() >= *until).map(|_| ErrorCode::MaxTimeMSExpired);
        activity.kill_reason().or_else(is_late).map(ErrorCode::number)
    }
}

/// Returns the delay of a fail point.
pub(crate) fn for_delay(delay: Duration) -> Event {
    Event::Other { until: time::now() + delay, ready: Box::new(|_: &Waker| false) }
}

/// Checks out the session for a command with a transaction number, as MongoDB does. Returns the
/// wait if another statement has it.
///
/// Errors: MaxTimeMSExpired.
pub(crate) fn for_session(
    state: &ConnectionState,
    progress: &mut Progress,
    arguments: &Arguments<'_>,
) -> Result<Option<Event>> {
    let Some(session) = &state.session else { return Ok(None) };
    let ticket = progress.ticket.get_or_insert_with(|| Ticket::take(session.queue.clone()));
    let Some(ready) = until_admitted(ticket) else { return Ok(None) };
    Ok(Some(Event::Other { until: deadline(progress, arguments)?, ready }))
}

/// Returns the wait of a ticket; `None` if it is admitted.
fn until_admitted(ticket: &Ticket<Arc<Queue>>) -> Option<Ready> {
    if ticket.is_admitted() { None } else { Some(Box::new(ticket.admission_check())) }
}

/// Takes an execution ticket before the first call of the handler. Returns the wait if too many commands run.
///
/// A command that continues after another wait has no ticket, and later statements of transactions have none: commands
/// with tickets may wait for them. A session that replaces its open transaction does not wait for its own ticket.
///
/// Errors: MaxTimeMSExpired; HostUnreachable after [`EXECUTION_WAIT`].
pub(crate) fn for_execution(
    state: &ConnectionState,
    progress: &mut Progress,
    server: &Server,
    arguments: &Arguments<'_>,
    kind: Kind,
) -> Result<Option<Event>> {
    let Some(execution) = server.execution.as_ref().filter(|_| !progress.has_run) else { return Ok(None) };
    let replaces = || state.session.as_ref().is_some_and(|session| session.has_open_transaction());
    let queue = match arguments.transaction {
        None => execution.queue(kind, arguments.read_preference.secondary_ok()),
        Some(Part::First) if !replaces() => Some(&execution.transactions),
        Some(Part::First | Part::Further) => None,
    };
    let Some(queue) = queue else { return Ok(None) };
    let ticket = progress.execution.get_or_insert_with(|| Ticket::take(queue.clone()));
    let Some(ready) = until_admitted(ticket) else { return Ok(None) };
    let until = deadline(progress, arguments)?;
    let end = progress.began.map_or_else(time::now, |began| began.at) + EXECUTION_WAIT;
    if time::now() >= end {
        bail!(HostUnreachable, "the {} running commands of the store have left no place", queue.limit());
    }
    Ok(Some(Event::Other { until: until.min(end), ready }))
}

/// Returns the wait of a write while fsync has locked writes. It happens here and not in the
/// database, so it holds no thread.
///
/// A statement of a transaction waits at most for maxTransactionLockRequestTimeoutMillis. No other
/// lock blocks statements of transactions.
///
/// Errors: MaxTimeMSExpired, LockTimeout.
pub(crate) fn for_unlock(
    progress: &Progress,
    server: &Server,
    arguments: &Arguments<'_>,
    is_statement: bool,
) -> Result<Option<Event>> {
    let mut unlocked = server.unlocked.listen(server.unlocked.read());
    if server.database.write_locks() == 0 {
        return Ok(None);
    }
    let mut until = deadline(progress, arguments)?;
    if let Some(limit) = server.lock_timeout().filter(|_| is_statement) {
        let end = progress.began.map_or_else(time::now, |began| began.at) + limit;
        if end <= time::now() {
            bail!(LockTimeout, "Unable to acquire IX lock on '{{Global}}' within {}ms.", limit.as_millis());
        }
        until = until.min(end);
    }
    Ok(Some(Event::Other { until, ready: Box::new(move |waker: &Waker| unlocked.has_happened(waker)) }))
}

impl Server {
    /// Returns the lock timeout of a statement in a transaction:
    /// maxTransactionLockRequestTimeoutMillis. `None` uses the general limit.
    fn lock_timeout(&self) -> Option<Duration> {
        match self.parameters.get("maxTransactionLockRequestTimeoutMillis") {
            Some(Setting::Integer(millis)) => u64::try_from(millis).ok().map(Duration::from_millis),
            _ => None,
        }
    }
}

/// Makes killOp end an event. A journal sync cannot be interrupted.
pub(crate) fn until_killed(event: Event, activity: &Arc<Activity>) -> Event {
    match event {
        Event::Other { until, mut ready } => {
            let activity = activity.clone();
            let ready = move |waker: &Waker| activity.killed(waker).is_some() || ready(waker);
            Event::Other { until, ready: Box::new(ready) }
        }
        journaled => journaled,
    }
}
