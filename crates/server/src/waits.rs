//! What a command waits for before its handler runs: a fail point's delay, its session's turn,
//! fsyncUnlock. However many wait, no thread does; each wait ends at maxTimeMS, by killOp, with the
//! client's connection and with the server.

use crate::activity::Activity;
use crate::arguments::Arguments;
use crate::connection::ConnectionState;
use crate::event::Event;
use crate::parameters::Setting;
use crate::request::Progress;
use crate::server::Server;
use crate::turn::Turn;
use base::{ErrorCode, Result, err};
use database::patience;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

/// The longest that a command without maxTimeMS waits for others.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// When a command is to give up waiting for others.
///
/// Errors: MaxTimeMSExpired once that has come.
fn deadline(progress: &Progress, arguments: &Arguments<'_>) -> Result<Instant> {
    let now = Instant::now();
    let began = progress.began.map_or(now, |began| began.at);
    let deadline = began + arguments.max_time.unwrap_or(LONGEST);
    match now < deadline {
        true => Ok(deadline),
        false => Err(err!(MaxTimeMSExpired, "operation exceeded time limit")),
    }
}

/// Why a command doesn't wait any longer where the data is, if it doesn't.
pub(crate) fn over(
    state: &ConnectionState,
    progress: &Progress,
    arguments: &Arguments<'_>,
) -> impl Fn() -> Option<patience::Reason> + 'static {
    let began = progress.began.map_or_else(Instant::now, |began| began.at);
    let (activity, until) = (state.activity.clone(), arguments.max_time.map(|time| began + time));
    move || {
        let is_late = || until.filter(|until| Instant::now() >= *until).map(|_| ErrorCode::MaxTimeMSExpired);
        activity.ending().or_else(is_late).map(ErrorCode::number)
    }
}

/// Waits for as long as a fail point says.
pub(crate) fn for_delay(delay: Duration) -> Event {
    Event::Other { until: Instant::now() + delay, ready: Box::new(|_: &Waker| false) }
}

/// Checks the session out for a command with a transaction number, as the only commands that MongoDB
/// checks it out for; what is waited for where another statement has it.
///
/// Errors: MaxTimeMSExpired.
pub(crate) fn for_turn(
    state: &ConnectionState,
    progress: &mut Progress,
    arguments: &Arguments<'_>,
) -> Result<Option<Event>> {
    if arguments.transaction_number.is_none() {
        return Ok(None);
    }
    let Some(session) = state.session.clone() else { return Ok(None) };
    let turn = progress.turn.get_or_insert_with(|| Turn::line_up(session));
    if turn.has_come(Waker::noop()) {
        return Ok(None);
    }
    let ready = Box::new(turn.asker());
    Ok(Some(Event::Other { until: deadline(progress, arguments)?, ready }))
}

/// What a write waits for while fsync has locked writes: here and not in the database, so that no
/// thread is held.
///
/// A statement of a transaction waits no longer than maxTransactionLockRequestTimeoutMillis: this is the one lock
/// that statements of transactions wait for.
///
/// Errors: MaxTimeMSExpired, LockTimeout.
pub(crate) fn for_unlock(
    progress: &Progress,
    server: &Server,
    arguments: &Arguments<'_>,
    is_statement: bool,
) -> Result<Option<Event>> {
    let mut unlocked = server.unlocked.listen(server.unlocked.count());
    if server.database.write_locks() == 0 {
        return Ok(None);
    }
    let mut until = deadline(progress, arguments)?;
    if let Some(limit) = server.lock_timeout().filter(|_| is_statement) {
        let end = progress.began.map_or_else(Instant::now, |began| began.at) + limit;
        if end <= Instant::now() {
            return Err(err!(
                LockTimeout,
                "Unable to acquire IX lock on '{{Global}}' within {}ms.",
                limit.as_millis()
            ));
        }
        until = until.min(end);
    }
    Ok(Some(Event::Other { until, ready: Box::new(move |waker: &Waker| unlocked.has_happened(waker)) }))
}

impl Server {
    /// How long a statement of a transaction waits for a lock, as the parameter
    /// maxTransactionLockRequestTimeoutMillis says; `None` is as long as anybody.
    fn lock_timeout(&self) -> Option<Duration> {
        match self.parameters.get("maxTransactionLockRequestTimeoutMillis") {
            Some(Setting::Integer(millis)) => u64::try_from(millis).ok().map(Duration::from_millis),
            _ => None,
        }
    }
}

/// The same event, or the end by killOp. Nobody can call off a sync of the journal.
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
