//! Waiting until commits would survive a crash: one commit that waits stands for all before it.
//!
//! Commits don't wait for the write-ahead log to be synced. Whoever has to know that his would survive commits
//! an empty message that does wait: the log's order covers everything earlier. Those who come while one such
//! message is under way share the next.

use crate::failure::Answer;
use crate::front::Front;
use parking_lot::{Condvar, Mutex};

/// The barrier that a front's waits share.
#[derive(Default)]
pub(crate) struct Barrier {
    inner: Mutex<Inner>,
    passed: Condvar,
}

#[derive(Default)]
struct Inner {
    /// How many messages have been begun, and whether one is under way.
    begun: u64,
    under_way: bool,
    /// The number of the last message that came through.
    done: u64,
}

impl Barrier {
    /// How many messages came through.
    pub(crate) fn passed(&self) -> u64 {
        self.inner.lock().done
    }

    /// Returns once everything committed before the call would survive a crash of the server.
    pub(crate) fn wait(&self, front: &Front) -> Answer<()> {
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
        let answer = front.ask(|lent| {
            lent.call(&front.statements.begin_write, &[])?;
            lent.call(&front.statements.barrier_local, &[])?;
            lent.call(&front.statements.commit, &[])?;
            lent.flush()?;
            lent.answer().map(drop)
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
