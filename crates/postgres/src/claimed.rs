//! The commit of a transaction of many statements, with all that it has claimed.

use crate::change::{Step, steps};
use crate::commit::{Attempt, Besides, failed, locked_by_another};
use crate::connection::Param;
use crate::failure::Answer;
use crate::keys::{ident, stored};
use crate::session::end;
use crate::state::PostgresStore;
use std::collections::HashSet;
use storage::store::{Change, Outcome, Owner, Refusal};
use storage::{Error, Result};

impl PostgresStore {
    /// Commits a transaction with all that it has claimed.
    pub(crate) fn commit_claimed(&self, owner: Owner, change: Change, besides: &Besides) -> Result<Outcome> {
        let Some(open) = self.claims.get(owner) else { return Ok(Err((Refusal::Changed, change))) };
        let committed = open.session.with(|lent| {
            let front = &self.front;
            let claimed = open.claimed.lock();
            let mut applied: Answer<()> = lent.batch("set local lock_timeout = '10s'");
            let mut written = HashSet::new();
            let steps = steps(change.batch.clone());
            for step in &steps {
                if let Step::Writes(writes) = step {
                    written
                        .extend(writes.iter().filter(|(_, value)| value.is_some()).map(|(at, _)| at.clone()));
                }
            }
            applied = applied.and_then(|()| front.apply_steps(lent, steps, &[], besides, true));
            let left: Vec<_> = claimed.keys.iter().filter(|at| !written.contains(*at)).collect();
            if !left.is_empty() && applied.is_ok() {
                let idents: Vec<i64> = left.iter().map(|(tree, _)| ident(*tree)).collect();
                let keys: Vec<_> = left.iter().map(|(_, key)| stored(key)).collect();
                let keys: Vec<Option<&[u8]>> = keys.iter().map(|key| Some(&**key)).collect();
                applied = lent
                    .one(&front.statements.unclaimed, &[Param::Ints(&idents), Param::Many(&keys)])
                    .map(drop);
            }
            let finished = front.finish(lent, applied, front.entry(&change).as_ref());
            if finished.is_err() {
                end(lent, &front.statements.rollback);
            }
            finished
        });
        match committed {
            None => Ok(Err((Refusal::Changed, change))),
            Some(Err(failure)) => Err(failed(failure)),
            Some(Ok(Attempt::Done(done))) => Ok(Ok(self.committed(change, done))),
            // It can't be committed again: what it had claimed isn't its own any more.
            Some(Ok(Attempt::Undone)) => Err(Error::WriteConflict),
            Some(Ok(_)) => Ok(Err((locked_by_another(), change))),
        }
    }
}
