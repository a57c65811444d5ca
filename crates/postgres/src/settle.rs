//! What a front does when it meets another life of the server, and how it learns what became of a commit whose
//! answer was lost.
//!
//! In another life the last moments of the one before may be missing: numbers that were handed out, the front's own
//! lease, the clock. So before it commits anything there, a front gives up what numbers it holds, lets the clock go
//! on to the latest time that it has told anybody, and makes sure of its own number.

use crate::commit::{Attempt, Done};
use crate::connection::Param;
use crate::entry::Entry;
use crate::failure::{Answer, Failure, go_on, lock};
use crate::front::Front;
use crate::lives::{Lives, replaced};
use crate::times::{signed, time_in};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// For how long an answer is looked for.
const LOOKED_FOR: Duration = Duration::from_secs(10);

/// How often meanwhile.
const LOOK: Duration = Duration::from_millis(50);

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
                    std::thread::sleep(LOOK);
                }
                Err(error) => {
                    log::warn!("what became of a commit can't be found out: {error:?}");
                    return Err(failure.clone());
                }
            }
        }
    }
}
