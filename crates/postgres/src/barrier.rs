//! Waiting until commits are where they have to be: one commit that waits stands for all before it.
//!
//! Commits don't wait for the write-ahead log to be synced. Whoever has to know that his would survive commits
//! an empty message that does wait: the log's order covers everything earlier. Those who come while one such
//! message is under way share the next. How many standbys have the log, the server's own view of them tells.
//!
//! That holds within one life of the server ([`crate::lives`]): a message in a later one says nothing. One of those who
//! wait reads the answer for all; where he gives up, another goes on in his place, so that a standby that is
//! gone keeps no thread but those of clients who chose to wait for it.
//!
//! What a front does when it meets another life of the server, and how it learns what became of a commit whose
//! answer was lost.
//!
//! In another life the last moments of the one before may be missing: numbers that were handed out, the front's own
//! lease, the clock. So before it commits anything there, a front gives up what numbers it holds, lets the clock go
//! on to the latest time that it has told anybody, and makes sure of its own number.

use crate::commit::{Attempt, Done};
use crate::connection::{Connection, Param, Statement};
use crate::failure::{Answer, Failure, go_on, lock};
use crate::front::Front;
use crate::lives::{Lives, replaced};
use crate::pool::{Lent, Pool, Waiting, ask_while};
use crate::times::{Entry, signed, time_in};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use storage::store::Reached;

/// How long whoever waits for standbys pauses before they are asked again how far they are: so long at first, twice as
/// long each time, and no longer than that.
const ASK_FIRST: Duration = Duration::from_micros(500);
const ASK: Duration = Duration::from_millis(4);

/// How often somebody who waits looks whether he should go on.
const LOOK: Duration = Duration::from_millis(20);

/// The barriers that a front's waits share.
pub(crate) struct Barriers {
    /// The server's own disk.
    local: Barrier,
    /// Those standbys that its configuration names, too; the server alone where it names none.
    standbys: Barrier,
}

/// One level's.
struct Barrier {
    inner: Mutex<Inner>,
    passed: Condvar,
    /// Of one connection, which nobody else uses: a message may take long.
    pool: Arc<Pool>,
    message: Arc<Statement>,
}

#[derive(Default)]
struct Inner {
    /// How many messages have been begun.
    begun: u64,
    /// Whether somebody reads the answer to the last one, or is about to send it.
    attended: bool,
    /// The last message, if it has been sent, no answer has come, and whoever sent it has given up.
    left: Option<Sent>,
    /// A connection between two messages: a wait for a standby that is gone would keep others from theirs.
    connection: Option<Lent>,
    /// The number of the last message that came through, its life, and how many did.
    done: (u64, u64),
    passed: u64,
    /// The number of the last message that didn't, and why.
    failed: Option<(u64, Ended)>,
}

/// A message under way.
struct Sent {
    connection: Lent,
    /// Whether the connection has carried others before.
    is_old: bool,
}

/// How a message ended that didn't come through.
#[derive(Clone)]
enum Ended {
    Failed(Failure),
    /// Somebody has ended the wait on the server.
    Cancelled(String),
}

impl Ended {
    fn outcome(self) -> Answer<Reached> {
        match self {
            Ended::Failed(failure) => Err(failure),
            Ended::Cancelled(warning) => Ok(Reached::Cancelled(warning)),
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

    /// How many messages came through.
    pub(crate) fn passed(&self) -> u64 {
        self.local.inner.lock().passed + self.standbys.inner.lock().passed
    }

    /// Returns once everything committed in this life before the call would survive a crash of the server.
    pub(crate) fn wait_local(
        &self,
        front: &Front,
        life: u64,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Answer<Reached> {
        self.local.wait(front, life, go_on)
    }

    /// Returns once it would survive the loss of the server, as far as its configuration names standbys.
    pub(crate) fn wait_standbys(
        &self,
        front: &Front,
        life: u64,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Answer<Reached> {
        // Noted before the message is sent: what is known by then is committed.
        let known = front.times.known();
        let reached = self.standbys.wait(front, life, go_on)?;
        if reached == Reached::There && front.times.hear_durable(known) {
            front.follower.ask();
        }
        Ok(reached)
    }

    /// Returns once so many members, the server itself among them, have everything committed before the call.
    pub(crate) fn wait_members(
        &self,
        front: &Front,
        (life, members): (u64, usize),
        go_on: &mut dyn FnMut() -> bool,
    ) -> Answer<Reached> {
        match self.local.wait(front, life, go_on)? {
            Reached::There => {}
            other => return Ok(other),
        }
        let of_life = |statement: &Statement, params: &[Param<'_>], go_on: &mut dyn FnMut() -> bool| {
            let question = |lent: &mut Lent| match lent.life == life {
                true => lent.one(statement, params),
                false => Err(replaced()),
            };
            match ask_while(&front.control, &question, &mut limited(&mut while_so(go_on))) {
                Err(Failure::GivenUp(_)) => Ok(None),
                answer => answer.map(Some),
            }
        };
        let Some(rows) = of_life(&front.statements.log_synced, &[], go_on)? else {
            return Ok(Reached::GaveUp);
        };
        let end = rows.first().map_or(0, |row| row.int(0));
        let mut pause = ASK_FIRST;
        loop {
            let Some(rows) = of_life(&front.statements.members_at, &[Param::Int(end)], go_on)? else {
                return Ok(Reached::GaveUp);
            };
            let row = rows.first().ok_or_else(|| Failure::Lost("no answer".to_string()))?;
            if row.int(0) as usize >= members {
                return Ok(Reached::There);
            }
            if !go_on() {
                return Ok(Reached::GaveUp);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(ASK);
        }
    }
}

impl Barrier {
    fn wait(&self, front: &Front, life: u64, go_on: &mut dyn FnMut() -> bool) -> Answer<Reached> {
        let mut inner = self.inner.lock();
        let mut wanted = inner.begun + 1;
        loop {
            let (done, done_in) = inner.done;
            if done >= wanted {
                match done_in {
                    same if same == life => return Ok(Reached::There),
                    later if later > life => return Err(replaced()),
                    // What came through was for those who had written before.
                    _ => wanted = inner.begun + 1,
                }
            }
            if let Some((_, ended)) = inner.failed.as_ref().filter(|(number, _)| *number >= wanted) {
                return ended.clone().outcome();
            }
            if inner.attended {
                self.passed.wait_for(&mut inner, LOOK);
                if !go_on() {
                    return Ok(Reached::GaveUp);
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
            let outcome = self.attend(front, life, left, connection, go_on);
            inner = self.inner.lock();
            inner.attended = false;
            self.passed.notify_all();
            match outcome {
                Attended::Through(connection) => {
                    inner.done = (number, connection.life);
                    inner.passed += 1;
                    inner.connection = Some(connection);
                }
                Attended::Ended(ended) => inner.failed = Some((number, ended)),
                Attended::GaveUp(sent) => {
                    inner.left = sent;
                    return Ok(Reached::GaveUp);
                }
            }
        }
    }

    /// Sends a message, unless one has been, and reads the answer.
    fn attend(
        &self,
        front: &Front,
        life: u64,
        left: Option<Sent>,
        connection: Option<Lent>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Attended {
        let mut left = left;
        let mut connection = connection.filter(|connection| connection.life == life);
        loop {
            let sent = match left.take() {
                Some(sent) => Ok(sent),
                None => self.send(front, life, connection.take(), go_on),
            };
            let mut sent = match sent {
                Ok(sent) => sent,
                Err(Failure::GivenUp(_)) => return Attended::GaveUp(None),
                Err(failure) => return Attended::Ended(Ended::Failed(failure)),
            };
            match self.read(&mut sent.connection, go_on) {
                Ok(Some(None)) => return Attended::Through(sent.connection),
                Ok(Some(Some(warning))) => return Attended::Ended(Ended::Cancelled(warning)),
                Ok(None) => return Attended::GaveUp(Some(sent)),
                // One that had ended meanwhile; whether the life has, too, the next connection tells.
                Err(failure) if failure.ends_connection() && sent.is_old => {}
                Err(failure) => return Attended::Ended(Ended::Failed(failure)),
            }
        }
    }

    /// Errors: `GivenUp` where `go_on` said no before there was a connection.
    fn send(
        &self,
        front: &Front,
        life: u64,
        connection: Option<Lent>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Answer<Sent> {
        let (mut connection, is_old) = match connection {
            Some(connection) => (connection, true),
            None => {
                let mut lent = self.pool.take_while(&|| {}, &mut limited(&mut while_so(go_on)))?;
                lent.poll_every(LOOK)?;
                let is_old = !lent.is_new;
                (lent, is_old)
            }
        };
        if connection.life != life {
            return Err(replaced());
        }
        connection.call(&front.statements.begin_write, &[])?;
        connection.call(&self.message, &[])?;
        connection.call(&front.statements.commit, &[])?;
        match connection.flush() {
            // Whoever reads finds out.
            Err(failure) if !is_old => Err(failure),
            _ => Ok(Sent { connection, is_old }),
        }
    }

    /// The warning that came with the answer, if one did; `None` where `go_on` said no before it came.
    fn read(
        &self,
        connection: &mut Connection,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Answer<Option<Option<String>>> {
        while !connection.ready()? {
            if !go_on() {
                return Ok(None);
            }
        }
        connection.answer()?;
        // "Already committed locally": somebody has ended the wait, and no standby has confirmed.
        Ok(Some(connection.take_warning()))
    }
}

/// A wait for a connection that has such a limit.
fn limited(go_on: &mut dyn FnMut() -> Answer<()>) -> Waiting<'_> {
    // A server that takes another's place has nothing to say of what that one has written.
    Waiting { go_on, is_limited: true, failover: Duration::ZERO }
}

/// The same question as an answer, whose error is `GivenUp`.
fn while_so(go_on: &mut dyn FnMut() -> bool) -> impl FnMut() -> Answer<()> {
    || if go_on() { Ok(()) } else { Err(Failure::GivenUp(0)) }
}

/// What came of a message.
enum Attended {
    Through(Lent),
    Ended(Ended),
    /// With the message, if it has been sent.
    GaveUp(Option<Sent>),
}

/// For how long an answer is looked for.
const LOOKED_FOR: Duration = Duration::from_secs(10);

/// How often meanwhile.
const SETTLED_LOOK: Duration = Duration::from_millis(50);

impl Front {
    /// The server's lives.
    pub(crate) fn lives(&self) -> &Lives {
        &self.control.place().lives
    }

    /// Makes sure that this front may write in the present life. To be called where none of the connections for
    /// control is held.
    pub(crate) fn settle(&self) -> Answer<()> {
        let is_settled = |life| self.settled.load(Ordering::Acquire) == life && !self.lease.is_stale();
        if is_settled(self.lives().current()) {
            return Ok(());
        }
        let _settling = lock(&self.settling)?;
        let life = self.lives().current();
        if is_settled(life) {
            return Ok(());
        }
        let number = self.number();
        if self.settled.load(Ordering::Acquire) != life {
            self.give_up_idents();
            if self.times.is_kept() {
                let params = [Param::Int(signed(self.times.known()))];
                let rows = self.ask(|lent| lent.one(&self.statements.tick, &params))?;
                self.times.hear(time_in(&rows).unwrap_or_default());
            }
        }
        self.lease.renew(&self.control, &self.statements, &self.times)?;
        self.settled.store(life, Ordering::Release);
        // Whoever has made record ids by then has made them of the old number.
        match number == self.number() && life == self.lives().current() {
            true => Ok(()),
            false => Err(replaced()),
        }
    }

    /// Finds out what became of a commit whose answer was lost; `failure` is how, and what is given where that
    /// can't be found out.
    pub(crate) fn find_out(&self, entry: &Entry<'_>, failure: &Failure) -> Answer<Attempt> {
        let end = Instant::now() + LOOKED_FOR;
        let params =
            [Param::Int(entry.body), Param::Int(entry.first_part()), Param::Int(signed(entry.since))];
        loop {
            let asked = self.ask(|lent| Ok((lent.one(&self.statements.find_out, &params)?, lent.life)));
            match asked {
                Ok((rows, life)) => {
                    let time = rows.first().filter(|row| row.bytes(0).is_some()).and(time_in(&rows));
                    return Ok(match time {
                        Some(_) => Attempt::Done(Done { time, life }),
                        None => Attempt::Undone,
                    });
                }
                // It may be under way still, where nobody hears its answer.
                Err(error)
                    if (error.is_conflict() || error.ends_connection() || error.is_crowded())
                        && Instant::now() < end
                        && go_on().is_ok() =>
                {
                    std::thread::sleep(SETTLED_LOOK);
                }
                Err(error) => {
                    log::warn!("what became of a commit can't be found out: {error:?}");
                    return Err(failure.clone());
                }
            }
        }
    }
}
