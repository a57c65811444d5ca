//! Waiting until commits are where they have to be: one commit that waits stands for all before it.
//!
//! Commits don't wait for the write-ahead log to be synced. Whoever has to know that his would survive commits
//! an empty message that does wait: the log's order covers everything earlier. Those who come while one such
//! message is under way share the next. How many standbys have the log, the server's own view of them tells.

use crate::connection::{Param, Statement};
use crate::failure::{Answer, Failure};
use crate::front::Front;
use crate::pool::Pool;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;

/// How often standbys are asked how far they are.
const ASK: Duration = Duration::from_millis(3);

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
    /// A wait for a standby that is gone would keep others from their connections.
    pool: Arc<Pool>,
    message: Arc<Statement>,
}

#[derive(Default)]
struct Inner {
    /// How many messages have been begun, and whether one is under way.
    begun: u64,
    under_way: bool,
    /// The number of the last message that came through.
    done: u64,
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
        self.local.inner.lock().done + self.standbys.inner.lock().done
    }

    /// Returns once everything committed before the call would survive a crash of the server.
    pub(crate) fn wait_local(&self, front: &Front) -> Answer<()> {
        self.local.wait(front)
    }

    /// Returns once it would survive the loss of the server, as far as its configuration names standbys.
    pub(crate) fn wait_standbys(&self, front: &Front) -> Answer<()> {
        // Noted before the message is sent: what is known by then is committed.
        let known = front.times.known();
        self.standbys.wait(front)?;
        if front.times.hear_durable(known) {
            front.follower.ask();
        }
        Ok(())
    }

    /// Returns once so many members, the server itself among them, have everything committed before the call.
    pub(crate) fn wait_members(&self, front: &Front, members: usize) -> Answer<()> {
        self.local.wait(front)?;
        let rows = front.ask(|lent| lent.one(&front.statements.log_end, &[]))?;
        let end = rows.first().map_or(0, |row| row.int(0));
        loop {
            let rows = front.ask(|lent| lent.one(&front.statements.members_at, &[Param::Int(end)]))?;
            let row = rows.first().ok_or_else(|| Failure::Lost("no answer".to_string()))?;
            if row.int(0) as usize >= members {
                return Ok(());
            }
            std::thread::sleep(ASK);
        }
    }
}

impl Barrier {
    fn wait(&self, front: &Front) -> Answer<()> {
        let mut inner = self.inner.lock();
        let wanted = inner.begun + 1;
        while inner.under_way && inner.done < wanted {
            self.passed.wait(&mut inner);
        }
        if inner.done >= wanted {
            return Ok(());
        }
        inner.begun += 1;
        inner.under_way = true;
        let number = inner.begun;
        drop(inner);
        let answer = front.ask_on(&self.pool, |lent| {
            lent.call(&front.statements.begin_write, &[])?;
            lent.call(&self.message, &[])?;
            lent.call(&front.statements.commit, &[])?;
            lent.flush()?;
            lent.answer()?;
            // "Already committed locally": somebody has ended the wait, and no standby has confirmed.
            match lent.take_warning() {
                Some(warning) => Err(Failure::Lost(warning)),
                None => Ok(()),
            }
        });
        let mut inner = self.inner.lock();
        inner.under_way = false;
        if answer.is_ok() {
            inner.done = inner.done.max(number);
        }
        drop(inner);
        self.passed.notify_all();
        answer
    }
}
