//! The fence: an advisory lock that the commits of all fronts hold shared. A change of the catalog holds it
//! exclusively.

use crate::change::steps;
use crate::commit::{Attempt, failed, locked_by_another};
use crate::connection::Param;
use crate::failure::{Failure, PgResult};
use crate::incarnations::replaced;
use crate::keys::stored_ident;
use crate::session::{PostgresSnapshot, Session, end};
use crate::state::PostgresStore;
use std::sync::Arc;
use storage::store::{Change, CommitError, CommitResult, Exclusive, ReadView, TransactionId};
use storage::{Ident, Result};

/// The fence, held exclusively, and the transaction that changes the catalog.
pub(crate) struct CatalogLock<'a> {
    store: &'a PostgresStore,
    session: Arc<Session>,
    /// Generation of the catalog when the fence was taken.
    generation: u64,
}

impl<'a> CatalogLock<'a> {
    /// Takes the fence exclusively. Returns `None` if `should_continue` returned false first.
    pub(crate) fn take(
        store: &'a PostgresStore,
        should_continue: &mut dyn FnMut() -> bool,
    ) -> PgResult<Option<CatalogLock<'a>>> {
        let front = &store.front;
        loop {
            let mut conn = front.changes.take(&|| {})?;
            front.confirm_incarnation()?;
            conn.call(&front.statements.begin_write, &[])?;
            conn.call(&front.statements.lock_fence, &[])?;
            conn.call(&front.statements.generation, &[])?;
            conn.flush()?;
            match conn.results() {
                Ok(mut answers) => {
                    let rows = answers.pop().unwrap_or_default();
                    let generation = rows.first().map_or(0, |row| row.int(0) as u64);
                    front.observe(generation);
                    store.builds.read_reports(front, &mut conn)?;
                    let session = Arc::new(Session::of(&front.statements, &front.known, conn));
                    return Ok(Some(CatalogLock { store, session, generation }));
                }
                Err(failure) if failure.is_conflict() => end(&mut conn, &front.statements.rollback),
                Err(failure) if failure.ends_connection() && !conn.is_new => front.changes.clear(),
                Err(failure) => return Err(failure),
            }
            drop(conn);
            if !should_continue() {
                return Ok(None);
            }
        }
    }

    /// Applies a change in the transaction that holds the fence, and returns the new generation of the catalog.
    fn apply(&self, change: &Change, changes_catalog: bool) -> PgResult<(Attempt, u64)> {
        let front = &self.store.front;
        if let Some(owner) = change.owner {
            let Some(open) = self.store.open_transactions.get(owner) else {
                return Ok((Attempt::Locked, self.generation));
            };
            // A reply proves that the intents have lasted until now.
            match open.session.run(&front.statements.generation, &[]) {
                Ok(_) => {}
                Err(failure @ Failure::Interrupted(_)) => return Err(failure),
                Err(_) => return Ok((Attempt::Locked, self.generation)),
            }
            // No other commit runs, so the keys of the intents stay unchanged.
            self.store.open_transactions.release(owner);
        }
        let Some(mut conn) = self.session.take_connection(&front.reads) else {
            return Err(Failure::Unavailable("the fence is lost".to_string()));
        };
        let side_effect_rows = self.store.side_effect_rows(&change.side_effects);
        let applied = front.apply_steps(
            &mut conn,
            steps(change.batch.clone()),
            &change.expect,
            &side_effect_rows,
            change.owner.is_some(),
        );
        let mut generation = self.generation;
        let applied = applied.and_then(|()| {
            if changes_catalog {
                let rows = conn.query(&front.statements.next_generation, &[])?;
                generation = rows.first().map_or(generation, |row| row.int(0) as u64);
            }
            Ok(())
        });
        Ok((front.finish(&mut conn, applied, front.entry(change).as_ref())?, generation))
    }
}

impl Exclusive for CatalogLock<'_> {
    fn read_view(&self) -> ReadView {
        let statements = self.store.front.statements.clone();
        let snapshot = PostgresSnapshot { statements, session: self.session.clone() };
        ReadView { snapshot: Arc::new(snapshot), generation: self.generation }
    }

    fn transaction_relying_on(&self, ident: Ident, except: Option<TransactionId>) -> Option<TransactionId> {
        if except.is_some_and(|except| self.store.open_transactions.holds(except, ident)) {
            return None;
        }
        let rows = self.session.run(&self.store.front.statements.is_held, &[Param::Int(stored_ident(ident))]);
        // If the check fails, the connection is lost, and so is the change.
        let is_relied_on =
            rows.ok().and_then(|rows| rows.first().map(|row| row.int(0) != 0)).unwrap_or(false);
        is_relied_on.then_some(TransactionId(0))
    }

    /// The schema already has the counts.
    fn set_generation(&mut self, _: Option<Ident>, _: u64) {}

    /// The schema has its own sequence.
    fn reserve(&mut self, _: Ident) {}

    fn commit(
        self: Box<Self>,
        change: Change,
        changes_catalog: bool,
        applied: &mut dyn FnMut(u64),
    ) -> Result<CommitResult> {
        for side_effect in &change.side_effects {
            if let storage::store::SideEffect::Generation(ident, _) = side_effect
                && let Some(owner) = self.transaction_relying_on(*ident, change.owner)
            {
                return Ok(Err(CommitError::IntentConflict(owner)));
            }
        }
        match self.apply(&change, changes_catalog).map_err(failed)? {
            (Attempt::Done(done), generation) => {
                self.store.front.observe(generation);
                applied(generation);
                Ok(Ok(self.store.committed(&change, done)))
            }
            // The intents of a transaction are released already. Other changes are planned again.
            (Attempt::Undone, _) if change.owner.is_some() => Err(failed(replaced())),
            (Attempt::Undone, _) => Ok(Err(CommitError::Changed)),
            (Attempt::Locked, _) => Ok(Err(locked_by_another())),
            (Attempt::Refused, _) => {
                let refusal = self.store.front.refusal(&change)?;
                Ok(Err(refusal.unwrap_or(CommitError::Changed)))
            }
        }
    }
}
