//! Durability waits: a commit that waits for its flush confirms all commits before it.
//!
//! Commits do not wait for the flush of the write-ahead log (`synchronous_commit = off`). A wait for durability commits
//! an empty message that does wait. The order of the log covers everything earlier. Waits that begin while a message is
//! under way share the next message. The server's own view of its standbys counts how many have the log.
//!
//! A message confirms commits of its own incarnation of the server only ([`crate::incarnations`]). One waiting thread
//! reads the answer for all. If that thread gives up, another takes its place. A lost standby therefore blocks only the
//! threads of clients that chose to wait for it.
//!
//! This module also handles the change to another incarnation of the server, and looks up the result of a commit whose
//! answer was lost.
//!
//! A new incarnation may lack the last moments of the previous one: numbers that were handed out, the lease of the
//! front, the clock. Before its first commit in a new incarnation, a front discards its reserved numbers. It advances
//! the clock to the latest time that it has reported, and renews the lease of its number.

use crate::commit::{Attempt, Done};
use crate::connection::{Connection, Param, Statement};
use crate::failure::{Answer, Failure, lock, should_continue};
use crate::front::Front;
use crate::incarnations::{Incarnations, replaced};
use crate::pool::{Pool, PooledConnection, Waiting, ask_while};
use crate::times::{Entry, signed, time_in};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use storage::store::WriteConcernStatus;

/// First and longest pause between two queries for the positions of the standbys. The pause doubles each time.
const ASK_FIRST: Duration = Duration::from_micros(500);
const ASK: Duration = Duration::from_millis(4);

/// Interval at which a waiting thread checks for cancellation.
const LOOK: Duration = Duration::from_millis(20);

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
    /// True while a thread reads the answer to the last message, or is about to send it.
    attended: bool,
    /// The last message, if it was sent, is unanswered, and its sender has given up.
    left: Option<Sent>,
    /// The connection between two messages, private so that a wait for a lost standby does not block other levels.
    connection: Option<PooledConnection>,
    /// Number and incarnation of the last message that succeeded; then the count of successes.
    done: (u64, u64),
    passed: u64,
    /// Number of the last message that failed, and its error.
    failed: Option<(u64, Ended)>,
}

/// A message under way.
struct Sent {
    connection: PooledConnection,
    /// True if the connection has carried earlier messages.
    is_old: bool,
}

/// Result of a message that failed.
#[derive(Clone)]
enum Ended {
    Failed(Failure),
    /// The wait was cancelled on the server; the text is the server's warning.
    Cancelled(String),
}

impl Ended {
    /// Returns the result for every wait that the message covered. A cancelled message is an answer, not an error.
    fn outcome(self) -> Answer<WriteConcernStatus> {
        match self {
            Ended::Failed(failure) => Err(failure),
            Ended::Cancelled(warning) => Ok(WriteConcernStatus::Cancelled(warning)),
        }
    }
}

impl Barriers {
    pub(crate) fn new(front: &Front) -> Barriers {
        let barrier = |message: &Arc<Statement>| Barrier {
            inner: Mutex::default(),
            passed: Condvar::new(),
            pool: front.control.another(1),
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
    ) -> Answer<WriteConcernStatus> {
        self.local.wait(incarnation, should_continue)
    }

    /// Returns once everything committed in this incarnation before the call survives the loss of the server, as far as
    /// `synchronous_standby_names` covers it.
    pub(crate) fn wait_standbys(
        &self,
        front: &Front,
        incarnation: u64,
        should_continue: &mut dyn FnMut() -> bool,
    ) -> Answer<WriteConcernStatus> {
        // Read before the message is sent: everything up to this time is committed.
        let known = front.times.known();
        let reached = self.standbys.wait(incarnation, should_continue)?;
        if reached == WriteConcernStatus::Satisfied && front.times.hear_durable(known) {
            front.follower.notify(front);
        }
        Ok(reached)
    }

    /// Returns once `members` members, the server included, have everything committed before the call on disk.
    pub(crate) fn wait_members(
        &self,
        front: &Front,
        (incarnation, members): (u64, usize),
        should_continue: &mut dyn FnMut() -> bool,
    ) -> Answer<WriteConcernStatus> {
        match self.local.wait(incarnation, should_continue)? {
            WriteConcernStatus::Satisfied => {}
            other => return Ok(other),
        }
        let of_life =
            |statement: &Statement, params: &[Param<'_>], should_continue: &mut dyn FnMut() -> bool| {
                let question = |lent: &mut PooledConnection| match lent.incarnation == incarnation {
                    true => lent.one(statement, params),
                    false => Err(replaced()),
                };
                match ask_while(&front.control, &question, &mut limited(&mut while_so(should_continue))) {
                    Err(Failure::Interrupted(_)) => Ok(None),
                    answer => answer.map(Some),
                }
            };
        let Some(rows) = of_life(&front.statements.log_synced, &[], should_continue)? else {
            return Ok(WriteConcernStatus::Interrupted);
        };
        let end = rows.first().map_or(0, |row| row.int(0));
        let mut pause = ASK_FIRST;
        loop {
            let Some(rows) = of_life(&front.statements.members_at, &[Param::Int(end)], should_continue)?
            else {
                return Ok(WriteConcernStatus::Interrupted);
            };
            let row = rows.first().ok_or_else(|| Failure::Lost("no answer".to_string()))?;
            if row.int(0) as usize >= members {
                return Ok(WriteConcernStatus::Satisfied);
            }
            if !should_continue() {
                return Ok(WriteConcernStatus::Interrupted);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(ASK);
        }
    }
}

impl Barrier {
    /// Waits until a message begun after this call confirms the commits of `incarnation`. The first free thread reads
    /// the answer, and others sleep.
    fn wait(
        &self,
        incarnation: u64,
        should_continue: &mut dyn FnMut() -> bool,
    ) -> Answer<WriteConcernStatus> {
        let mut inner = self.inner.lock();
        let mut wanted = inner.begun + 1;
        loop {
            let (done, done_in) = inner.done;
            if done >= wanted {
                match done_in {
                    same if same == incarnation => return Ok(WriteConcernStatus::Satisfied),
                    later if later > incarnation => return Err(replaced()),
                    // The message was of an earlier incarnation and covers only waits of that incarnation.
                    _ => wanted = inner.begun + 1,
                }
            }
            if let Some((_, ended)) = inner.failed.as_ref().filter(|(number, _)| *number >= wanted) {
                return ended.clone().outcome();
            }
            if inner.attended {
                self.passed.wait_for(&mut inner, LOOK);
                if !should_continue() {
                    return Ok(WriteConcernStatus::Interrupted);
                }
                continue;
            }
            inner.attended = true;
            let left = inner.left.take();
            let connection = inner.connection.take();
            if left.is_none() {
                inner.begun += 1;
            }
            let number = inner.begun;
            drop(inner);
            let outcome = self.attend(incarnation, left, connection, should_continue);
            inner = self.inner.lock();
            inner.attended = false;
            self.passed.notify_all();
            match outcome {
                Attended::Through(connection) => {
                    inner.done = (number, connection.incarnation);
                    inner.passed += 1;
                    inner.connection = Some(connection);
                }
                Attended::Ended(ended) => inner.failed = Some((number, ended)),
                Attended::Interrupted(sent) => {
                    inner.left = sent;
                    return Ok(WriteConcernStatus::Interrupted);
                }
            }
        }
    }

    /// Sends a message, unless one is already sent, and reads the answer.
    fn attend(
        &self,
        incarnation: u64,
        left: Option<Sent>,
        connection: Option<PooledConnection>,
        should_continue: &mut dyn FnMut() -> bool,
    ) -> Attended {
        let mut left = left;
        let mut connection = connection.filter(|connection| connection.incarnation == incarnation);
        loop {
            let sent = match left.take() {
                Some(sent) => Ok(sent),
                None => self.send(incarnation, connection.take(), should_continue),
            };
            let mut sent = match sent {
                Ok(sent) => sent,
                Err(Failure::Interrupted(_)) => return Attended::Interrupted(None),
                Err(failure) => return Attended::Ended(Ended::Failed(failure)),
            };
            match self.read(&mut sent.connection, should_continue) {
                Ok(Some(None)) => return Attended::Through(sent.connection),
                Ok(Some(Some(warning))) => return Attended::Ended(Ended::Cancelled(warning)),
                Ok(None) => return Attended::Interrupted(Some(sent)),
                // An old connection that had closed. The next connection shows whether the incarnation has ended too.
                Err(failure) if failure.ends_connection() && sent.is_old => {}
                Err(failure) => return Attended::Ended(Ended::Failed(failure)),
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
    ) -> Answer<Sent> {
        let (mut connection, is_old) = match connection {
            Some(connection) => (connection, true),
            None => {
                let mut lent = self.pool.take_while(&|| {}, &mut limited(&mut while_so(should_continue)))?;
                lent.poll_every(LOOK)?;
                let is_old = !lent.is_new;
                (lent, is_old)
            }
        };
        if connection.incarnation != incarnation {
            return Err(replaced());
        }
        connection.call(&self.message, &[])?;
        match connection.flush() {
            // The read of the answer reports this failure.
            Err(failure) if !is_old => Err(failure),
            _ => Ok(Sent { connection, is_old }),
        }
    }

    /// Reads the answer and returns its warning, if any. Returns `None` if `should_continue` returned false first.
    fn read(
        &self,
        connection: &mut Connection,
        should_continue: &mut dyn FnMut() -> bool,
    ) -> Answer<Option<Option<String>>> {
        while !connection.ready()? {
            if !should_continue() {
                return Ok(None);
            }
        }
        connection.answer()?;
        // "Already committed locally": the wait was cancelled on the server, and no standby has confirmed.
        Ok(Some(connection.take_warning()))
    }
}

/// Returns a wait for a connection that ends with `should_continue`.
fn limited(should_continue: &mut dyn FnMut() -> Answer<()>) -> Waiting<'_> {
    // No failover: a server that replaces this one cannot confirm the commits of this one.
    Waiting { should_continue, is_limited: true, failover: Duration::ZERO }
}

/// Converts a cancellation check into an answer whose error is `Interrupted`.
fn while_so(should_continue: &mut dyn FnMut() -> bool) -> impl FnMut() -> Answer<()> {
    || if should_continue() { Ok(()) } else { Err(Failure::Interrupted(0)) }
}

/// Result of attending a message.
enum Attended {
    Through(PooledConnection),
    Ended(Ended),
    /// The thread gave up; holds the message if it was sent.
    Interrupted(Option<Sent>),
}

/// Timeout for finding the result of a commit whose answer was lost.
const LOOKED_FOR: Duration = Duration::from_secs(10);

/// Pause between two attempts to find that result.
const SETTLED_LOOK: Duration = Duration::from_millis(50);

impl Front {
    /// Returns the incarnations of the server.
    pub(crate) fn incarnations(&self) -> &Incarnations {
        &self.control.place().incarnations
    }

    /// Ensures that this front may write in the present incarnation. The caller must hold no connection of the control
    /// pool.
    pub(crate) fn settle(&self) -> Answer<()> {
        let is_settled =
            |incarnation| self.settled.load(Ordering::Acquire) == incarnation && !self.lease.is_stale();
        if is_settled(self.incarnations().current()) {
            return Ok(());
        }
        let _settling = lock(&self.settling)?;
        let incarnation = self.incarnations().current();
        if is_settled(incarnation) {
            return Ok(());
        }
        let number = self.number();
        if self.settled.load(Ordering::Acquire) != incarnation {
            self.give_up_idents();
            if self.times.is_kept() {
                let params = [Param::Int(signed(self.times.known()))];
                let rows = self.ask(|lent| lent.one(&self.statements.tick, &params))?;
                self.times.hear(time_in(&rows).unwrap_or_default());
            }
        }
        self.lease.renew(&self.control, &self.statements, &self.times)?;
        self.settled.store(incarnation, Ordering::Release);
        // Record ids made until now contain the old number.
        match number == self.number() && incarnation == self.incarnations().current() {
            true => Ok(()),
            false => Err(replaced()),
        }
    }

    /// Finds the result of a commit whose answer was lost. Returns `failure`, the original error, if the result cannot
    /// be found.
    pub(crate) fn find_out(&self, entry: &Entry<'_>, failure: &Failure) -> Answer<Attempt> {
        let end = Instant::now() + LOOKED_FOR;
        let params =
            [Param::Int(entry.body), Param::Int(entry.first_part()), Param::Int(signed(entry.since))];
        loop {
            let asked =
                self.ask(|lent| Ok((lent.one(&self.statements.find_out, &params)?, lent.incarnation)));
            match asked {
                Ok((rows, incarnation)) => {
                    let time = rows.first().filter(|row| row.bytes(0).is_some()).and(time_in(&rows));
                    return Ok(match time {
                        Some(_) => Attempt::Done(Done { time, incarnation }),
                        None => Attempt::Undone,
                    });
                }
                // The commit may still be under way on a lost connection.
                Err(error)
                    if (error.is_conflict() || error.ends_connection() || error.is_crowded())
                        && Instant::now() < end
                        && should_continue().is_ok() =>
                {
                    std::thread::sleep(SETTLED_LOOK);
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
    use storage::store::Expect;
    use storage::{Batch, Ident, Key, Value};

    #[test]
    fn a_commit_found_missing_never_happens() {
        let Some(cluster) = Cluster::start().unwrap() else { return };
        let store = PostgresStore::open(cluster.config().unwrap(), "lost", Limits::default(), None).unwrap();
        cluster.run(&["insert into lost.generations values (64, 1)"]).unwrap();
        let front = &store.front;
        let expect = [Expect::Generation { ident: Ident(64), generation: 1 }];
        let beside = SideEffectRows::new(&[], 0, &|_| None, &|_| None);
        let failure = Failure::Lost("the answer is lost".to_string());
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
                front.commit_change(batch, (&expect, &beside), Some(entry), directly).unwrap()
            };
            for directly in [true, false] {
                let missing = entry();
                assert!(matches!(front.find_out(&missing, &failure).unwrap(), Attempt::Undone));
                assert!(matches!(commit(&missing, directly), Attempt::Refused));
                assert!(matches!(front.find_out(&missing, &failure).unwrap(), Attempt::Undone));
                let made = entry();
                let Attempt::Done(done) = commit(&made, directly) else { panic!("it is refused") };
                let Attempt::Done(found) = front.find_out(&made, &failure).unwrap() else { panic!() };
                assert_eq!(found, done);
                assert!(done.time.is_some());
            }
        }
    }
}
