//! Flush barriers: a wait for durability confirms all earlier commits of a server, as in a group commit.
//!
//! Commits do not wait for the flush of the write-ahead log (`synchronous_commit = off`). A wait for durability commits
//! an empty message that does wait. The order of the log covers everything earlier. Waits that begin while a message is
//! under way share the next message. The server's own view of its standbys counts how many have the log.
//!
//! A message confirms commits of its own incarnation of the server only ([`crate::incarnations`]). One waiting thread
//! reads the reply for all. If that thread gives up, another takes its place. A lost standby therefore blocks only the
//! threads of clients that chose to wait for it.
//!
//! This module also handles the change to another incarnation of the server, and looks up the result of a commit whose
//! reply was lost.
//!
//! A new incarnation may lack the last moments of the previous one: numbers that were handed out, the lease of the
//! front, the clock. Before its first commit in a new incarnation, a front discards its reserved numbers. It advances
//! the clock to the latest time that it has reported, and renews the lease of its number.

use crate::commit::Attempt;
use crate::connection::{Connection, Param, Statement};
use crate::failure::{Failure, PgResult, lock, should_continue};
use crate::front::Front;
use crate::group::Done;
use crate::incarnations::{Incarnations, replaced};
use crate::pool::{Pool, PooledConnection, Waiting, run_while};
use crate::times::{Entry, signed, time_in};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use storage::store::WriteConcernStatus;

/// First and longest pause between two queries for the flush positions of the standbys. The pause doubles each time.
const POLL_FIRST: Duration = Duration::from_micros(500);
const POLL_MAX: Duration = Duration::from_millis(4);

/// Interval at which a waiting thread checks for cancellation.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The barriers that the waits of a front share.
pub(crate) struct Barriers {
    /// Waits for the disk of the server.
    local: Barrier,
    /// Waits for the standbys in `synchronous_standby_names` as well; for the server alone if the setting is empty.
    standbys: Barrier,
}

/// The barrier of one durability level.
struct Barrier {
    inner: Mutex<Inner>,
    /// Notified at the end of each message.
    passed: Condvar,
    /// A pool of one connection for this barrier alone: a message may take long.
    pool: Arc<Pool>,
    /// The statement that writes the empty message at this level's `synchronous_commit`.
    message: Arc<Statement>,
}

/// Progress of the messages, under the barrier's lock.
#[derive(Default)]
struct Inner {
    /// Number of messages begun.
    begun: u64,
    /// True while a thread sends the last message or reads its reply.
    has_reader: bool,
    /// The last message, if its sender has given up before the reply. The next waiting thread reads the reply.
    orphan: Option<InFlight>,
    /// The connection between two messages, private so that a wait for a lost standby does not block other levels.
    connection: Option<PooledConnection>,
    /// Number and incarnation of the last message that succeeded; then the count of successes.
    done: (u64, u64),
    passed: u64,
    /// Number and incarnation of the last message that failed, and its error.
    failed: Option<(u64, u64, MessageError)>,
}

/// A message that was sent and has no reply yet.
struct InFlight {
    connection: PooledConnection,
    /// True if the connection has carried earlier messages.
    is_old: bool,
}

/// Result of a message that failed.
#[derive(Clone)]
enum MessageError {
    Failed(Failure),
    /// The wait was cancelled on the server; the text is the server's warning.
    Cancelled(String),
}

impl MessageError {
    /// Returns the result for every wait that the message covered. A cancelled message is a reply, not an error.
    fn outcome(self) -> PgResult<WriteConcernStatus> {
        match self {
            MessageError::Failed(failure) => Err(failure),
            MessageError::Cancelled(warning) => Ok(WriteConcernStatus::Cancelled(warning)),
        }
    }
}

impl Barriers {
    pub(crate) fn new(front: &Front) -> Barriers {
        let barrier = |message: &Arc<Statement>| Barrier {
            inner: Mutex::default(),
            passed: Condvar::new(),
            pool: front.control.sibling(1),
            message: message.clone(),
        };
        Barriers {
            local: barrier(&front.statements.barrier_local),
            standbys: barrier(&front.statements.barrier_standbys),
        }
    }

    /// Returns the number of messages that succeeded.
    pub(crate) fn passed(&self) -> u64 {
        self.local.inner.lock().passed + self.standbys.inner.lock().passed
    }

    /// Returns once everything committed in this incarnation before the call survives a crash of the server.
    pub(crate) fn wait_local(
        &self,
        incarnation: u64,
        should_continue: &mut dyn FnMut() -> bool,
    ) -> PgResult<WriteConcernStatus> {
        self.local.wait(incarnation, should_continue)
    }

    /// Returns once everything committed in this incarnation before the call survives the loss of the server, as far as
    /// `synchronous_standby_names` covers it.
    pub(crate) fn wait_standbys(
        &self,
        front: &Front,
        incarnation: u64,
        should_continue: &mut dyn FnMut() -> bool,
    ) -> PgResult<WriteConcernStatus> {
        // Read before the message is sent: everything up to this time is committed. Before the confirmation, the
        // clock of this incarnation may be earlier, and commits of other fronts would get earlier times.
        let is_confirmed = front.confirmed_incarnation.load(Ordering::Acquire) == incarnation;
        let latest = if is_confirmed { front.times.known() } else { 0 };
        let status = self.standbys.wait(incarnation, should_continue)?;
        if status == WriteConcernStatus::Satisfied && front.times.observe_durable(latest) {
            front.follower.notify(front);
        }
        Ok(status)
    }

    /// Returns once `members` members, the server included, have everything committed before the call on disk.
    pub(crate) fn wait_members(
        &self,
        front: &Front,
        (incarnation, members): (u64, usize),
        should_continue: &mut dyn FnMut() -> bool,
    ) -> PgResult<WriteConcernStatus> {
        match self.local.wait(incarnation, should_continue)? {
            WriteConcernStatus::Satisfied => {}
            other => return Ok(other),
        }
        let in_incarnation =
            |statement: &Statement, params: &[Param<'_>], should_continue: &mut dyn FnMut() -> bool| {
                let query = |conn: &mut PooledConnection| match conn.incarnation == incarnation {
                    true => conn.query(statement, params),
                    false => Err(replaced()),
                };
                match run_while(&front.control, &query, &mut wait_options(&mut as_result(should_continue))) {
                    Err(Failure::Interrupted(_)) => Ok(None),
                    answer => answer.map(Some),
                }
            };
        let Some(rows) = in_incarnation(&front.statements.log_synced, &[], should_continue)? else {
            return Ok(WriteConcernStatus::Interrupted);
        };
        let end = rows.first().map_or(0, |row| row.int(0));
        let mut pause = POLL_FIRST;
        loop {
            let Some(rows) =
                in_incarnation(&front.statements.members_at, &[Param::Int(end)], should_continue)?
            else {
                return Ok(WriteConcernStatus::Interrupted);
            };
            let row = rows.first().ok_or_else(|| Failure::Unavailable("no answer".to_string()))?;
            if row.int(0) as usize >= members {
                return Ok(WriteConcernStatus::Satisfied);
            }
            if !should_continue() {
                return Ok(WriteConcernStatus::Interrupted);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(POLL_MAX);
        }
    }
}

impl Barrier {
    /// Waits until a message begun after this call confirms the commits of `incarnation`. The first free thread reads
    /// the reply, and others sleep.
    fn wait(
        &self,
        incarnation: u64,
        should_continue: &mut dyn FnMut() -> bool,
    ) -> PgResult<WriteConcernStatus> {
        let mut inner = self.inner.lock();
        let mut target = inner.begun + 1;
        loop {
            let (done, done_in) = inner.done;
            debug_assert!(done <= inner.begun, "message {done} is confirmed before it began");
            if done >= target {
                match done_in {
                    same if same == incarnation => return Ok(WriteConcernStatus::Satisfied),
                    later if later > incarnation => return Err(replaced()),
                    // The message was of an earlier incarnation and covers only waits of that incarnation.
                    _ => target = inner.begun + 1,
                }
            }
            // As above, a failure in an earlier incarnation says nothing about this one.
            let covers = |failed: &&(u64, u64, _)| failed.0 >= target && failed.1 >= incarnation;
            if let Some((.., error)) = inner.failed.as_ref().filter(covers) {
                return error.clone().outcome();
            }
            if inner.has_reader {
                self.passed.wait_for(&mut inner, CHECK_INTERVAL);
                if !should_continue() {
                    return Ok(WriteConcernStatus::Interrupted);
                }
                continue;
            }
            inner.has_reader = true;
            let orphan = inner.orphan.take();
            let connection = inner.connection.take();
            if orphan.is_none() {
                inner.begun += 1;
            }
            let number = inner.begun;
            drop(inner);
            let outcome = self.send_and_read(incarnation, orphan, connection, should_continue);
            inner = self.inner.lock();
            debug_assert!(inner.has_reader, "two threads read the answer to one message");
            debug_assert_eq!(inner.begun, number, "another message began before the end of this one");
            inner.has_reader = false;
            self.passed.notify_all();
            match outcome {
                MessageOutcome::Confirmed(connection) => {
                    debug_assert!(number > inner.done.0, "message {number} is confirmed twice");
                    inner.done = (number, connection.incarnation);
                    inner.passed += 1;
                    inner.connection = Some(connection);
                }
                MessageOutcome::Failed(failed_in, error) => inner.failed = Some((number, failed_in, error)),
                MessageOutcome::Interrupted(sent) => {
                    inner.orphan = sent;
                    return Ok(WriteConcernStatus::Interrupted);
                }
            }
        }
    }

    /// Sends a message, unless one is already sent, and reads the reply.
    fn send_and_read(
        &self,
        incarnation: u64,
        orphan: Option<InFlight>,
        connection: Option<PooledConnection>,
        should_continue: &mut dyn FnMut() -> bool,
    ) -> MessageOutcome {
        let mut orphan = orphan;
        let mut connection = connection.filter(|connection| connection.incarnation == incarnation);
        loop {
            let sent = match orphan.take() {
                Some(sent) => Ok(sent),
                None => self.send(incarnation, connection.take(), should_continue),
            };
            let mut sent = match sent {
                Ok(sent) => sent,
                Err(Failure::Interrupted(_)) => return MessageOutcome::Interrupted(None),
                Err(failure) => return MessageOutcome::Failed(incarnation, MessageError::Failed(failure)),
            };
            let sent_in = sent.connection.incarnation;
            match self.read(&mut sent.connection, should_continue) {
                Ok(Some(None)) => return MessageOutcome::Confirmed(sent.connection),
                Ok(Some(Some(warning))) => {
                    return MessageOutcome::Failed(sent_in, MessageError::Cancelled(warning));
                }
                Ok(None) => return MessageOutcome::Interrupted(Some(sent)),
                // An old connection that had closed. The next connection shows whether the incarnation has ended too.
                Err(failure) if failure.ends_connection() && sent.is_old => {}
                Err(failure) => return MessageOutcome::Failed(sent_in, MessageError::Failed(failure)),
            }
        }
    }

    /// Sends a message over `connection`, or over a connection from the pool.
    ///
    /// Errors: `Interrupted` if `should_continue` returned false before a connection was available.
    fn send(
        &self,
        incarnation: u64,
        connection: Option<PooledConnection>,
        should_continue: &mut dyn FnMut() -> bool,
    ) -> PgResult<InFlight> {
        let (mut connection, is_old) = match connection {
            Some(connection) => (connection, true),
            None => {
                let mut conn =
                    self.pool.take_while(&|| {}, &mut wait_options(&mut as_result(should_continue)))?;
                conn.poll_every(CHECK_INTERVAL)?;
                let is_old = !conn.is_new;
                (conn, is_old)
            }
        };
        if connection.incarnation != incarnation {
            return Err(replaced());
        }
        connection.call(&self.message, &[])?;
        match connection.flush() {
            // The read of the reply reports this failure.
            Err(failure) if !is_old => Err(failure),
            _ => Ok(InFlight { connection, is_old }),
        }
    }

    /// Reads the reply and returns its warning, if any. Returns `None` if `should_continue` returned false first.
    fn read(
        &self,
        connection: &mut Connection,
        should_continue: &mut dyn FnMut() -> bool,
    ) -> PgResult<Option<Option<String>>> {
        while !connection.ready()? {
            if !should_continue() {
                return Ok(None);
            }
        }
        connection.results()?;
        // "Already committed locally": the wait was cancelled on the server, and no standby has confirmed.
        Ok(Some(connection.take_warning()))
    }
}

/// Returns a wait for a connection that ends with `should_continue`.
fn wait_options(should_continue: &mut dyn FnMut() -> PgResult<()>) -> Waiting<'_> {
    // No failover: a server that replaces this one cannot confirm the commits of this one.
    Waiting { should_continue, is_limited: true, failover: Duration::ZERO }
}

/// Converts a cancellation check into a reply whose error is `Interrupted`.
fn as_result(should_continue: &mut dyn FnMut() -> bool) -> impl FnMut() -> PgResult<()> {
    || if should_continue() { Ok(()) } else { Err(Failure::Interrupted(0)) }
}

/// Result of sending a message and reading its reply.
enum MessageOutcome {
    Confirmed(PooledConnection),
    /// The incarnation of the message, and its error.
    Failed(u64, MessageError),
    /// The thread gave up; holds the message if it was sent.
    Interrupted(Option<InFlight>),
}

/// Timeout for finding the result of a commit whose reply was lost.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause between two attempts to find that result.
const RESOLVE_INTERVAL: Duration = Duration::from_millis(50);

impl Front {
    /// Returns the incarnations of the server.
    pub(crate) fn incarnations(&self) -> &Incarnations {
        &self.control.endpoint().incarnations
    }

    /// Ensures that this front may write in the present incarnation. The caller must hold no connection of the control
    /// pool.
    pub(crate) fn confirm_incarnation(&self) -> PgResult<()> {
        let is_confirmed = |incarnation| {
            self.confirmed_incarnation.load(Ordering::Acquire) == incarnation && !self.lease.is_stale()
        };
        if is_confirmed(self.incarnations().current()) {
            return Ok(());
        }
        let _confirming = lock(&self.confirming)?;
        let incarnation = self.incarnations().current();
        if is_confirmed(incarnation) {
            return Ok(());
        }
        let number = self.number();
        if self.confirmed_incarnation.load(Ordering::Acquire) != incarnation {
            self.discard_idents();
            // Statements planned later read the catalog of this incarnation.
            self.latest_generation()?;
            if self.times.has_log() {
                let params = [Param::Int(signed(self.times.known()))];
                let rows = self.run(|conn| conn.query(&self.statements.tick, &params))?;
                self.times.observe(time_in(&rows).unwrap_or_default());
            }
        }
        self.lease.renew(&self.control, &self.statements, &self.times)?;
        self.confirmed_incarnation.store(incarnation, Ordering::Release);
        // Record ids made until now contain the old number.
        match number == self.number() && incarnation == self.incarnations().current() {
            true => Ok(()),
            false => Err(replaced()),
        }
    }

    /// Finds the result of a commit whose reply was lost. Returns `failure`, the original error, if the result cannot
    /// be found.
    pub(crate) fn resolve_commit(&self, entry: &Entry<'_>, failure: &Failure) -> PgResult<Attempt> {
        let end = Instant::now() + RESOLVE_TIMEOUT;
        let params =
            [Param::Int(entry.body), Param::Int(entry.first_part()), Param::Int(signed(entry.since))];
        loop {
            let replied =
                self.run(|conn| Ok((conn.query(&self.statements.find_out, &params)?, conn.incarnation)));
            match replied {
                Ok((rows, incarnation)) => {
                    let time = rows.first().filter(|row| row.bytes(0).is_some()).and(time_in(&rows));
                    return Ok(match time {
                        Some(_) => Attempt::Done(Done { time, incarnation }),
                        None => Attempt::Undone,
                    });
                }
                // The commit may still be under way on a lost connection.
                Err(error)
                    if (error.is_conflict() || error.ends_connection() || error.is_out_of_connections())
                        && Instant::now() < end
                        && should_continue().is_ok() =>
                {
                    std::thread::sleep(RESOLVE_INTERVAL);
                }
                Err(error) => {
                    log::warn!("the outcome of a commit is unknown: {error:?}");
                    return Err(failure.clone());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::SideEffectRows;
    use crate::front::Limits;
    use crate::state::PostgresStore;
    use crate::testing::Cluster;
    use std::sync::atomic::AtomicBool;
    use storage::store::Expect;
    use storage::{Batch, Ident, Key, Value};

    /// Returns a store whose server has begun its second incarnation, which the front has not confirmed.
    fn after_a_crash(schema: &str) -> Option<(Cluster, PostgresStore, u64)> {
        let cluster = Cluster::start().unwrap()?;
        let store = PostgresStore::open(cluster.config().unwrap(), schema, Limits::default(), None).unwrap();
        let times = &store.front.times;
        let lost = times.observe(times.known() + 1);
        cluster.run(&[&*format!("delete from {schema}.life")]).unwrap();
        cluster.end_connections().unwrap();
        store.front.latest_generation().unwrap();
        assert_eq!(store.front.incarnations().current(), 2);
        Some((cluster, store, lost))
    }

    #[test]
    fn a_time_of_an_earlier_incarnation_is_not_durable_before_the_clock_has_reached_it() {
        let Some((_cluster, store, lost)) = after_a_crash("times") else { return };
        let front = &store.front;
        let wait = || store.barriers.wait_standbys(front, 2, &mut || true).unwrap();
        assert_eq!(wait(), WriteConcernStatus::Satisfied);
        assert!(front.times.durable() < lost);
        front.confirm_incarnation().unwrap();
        assert_eq!(wait(), WriteConcernStatus::Satisfied);
        assert!(front.times.durable() >= lost);
    }

    #[test]
    fn a_failed_message_of_an_earlier_incarnation_fails_no_later_wait() {
        let Some((_cluster, store, _)) = after_a_crash("waits") else { return };
        let (barrier, is_waiting) = (&store.barriers.local, AtomicBool::new(false));
        std::thread::scope(|scope| {
            barrier.inner.lock().has_reader = true;
            let waiting = scope.spawn(|| {
                barrier.wait(2, &mut || {
                    is_waiting.store(true, Ordering::Release);
                    true
                })
            });
            while !is_waiting.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
            barrier.inner.lock().has_reader = false;
            assert!(barrier.wait(1, &mut || true).is_err());
            assert_eq!(waiting.join().unwrap().unwrap(), WriteConcernStatus::Satisfied);
        });
    }

    #[test]
    fn a_commit_found_missing_never_happens() {
        let Some(cluster) = Cluster::start().unwrap() else { return };
        let store = PostgresStore::open(cluster.config().unwrap(), "lost", Limits::default(), None).unwrap();
        cluster.run(&["insert into lost.generations values (64, 1)"]).unwrap();
        let front = &store.front;
        let expect = [Expect::Generation { ident: Ident(64), generation: 1 }];
        let side_effects = SideEffectRows::new(&[], 0, &|_| None, &|_| None);
        let failure = Failure::Unavailable("the answer is lost".to_string());
        // A short entry is in the row of its time. A long one has pages.
        for value in [Value::from(&b"short"[..]), Value::from(vec![7; 100_000])] {
            let parts = [(0, value)];
            let entry = || Entry {
                body: front.new_record() as i64,
                since: front.times.known(),
                parts: &parts,
                ticks: 1,
                earliest: 0,
            };
            let commit = |entry: &Entry<'_>, directly| {
                let mut batch = Batch::new();
                batch.put(Ident(64), Key::from(entry.body.to_be_bytes()), Value::from(&b"value"[..]));
                front.commit_change(batch, (&expect, &side_effects), Some(entry), directly).unwrap()
            };
            for directly in [true, false] {
                let missing = entry();
                assert!(matches!(front.resolve_commit(&missing, &failure).unwrap(), Attempt::Undone));
                assert!(matches!(commit(&missing, directly), Attempt::Refused));
                assert!(matches!(front.resolve_commit(&missing, &failure).unwrap(), Attempt::Undone));
                let made = entry();
                let Attempt::Done(done) = commit(&made, directly) else { panic!("it is refused") };
                let Attempt::Done(resolved) = front.resolve_commit(&made, &failure).unwrap() else {
                    panic!()
                };
                assert_eq!(resolved, done);
                assert!(done.time.is_some());
            }
        }
    }
}
