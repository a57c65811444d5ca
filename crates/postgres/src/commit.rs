//! Commits. One call of the server checks and applies a change, in one round trip if it changes only keys.

use crate::change::{Extras, Sorted, Step, Writes, steps};
use crate::connection::{Param, Row, Statement};
use crate::failure::{Failure, PgResult};
use crate::front::Front;
use crate::group::{Admission, Done, GroupFailure, GroupResult, GroupedCommit, Running, bytes_of};
use crate::keys::stored_ident;
use crate::pool::PooledConnection;
use crate::session::end;
use crate::times::{Entry, ShortEntry, time_in};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::Ordering;
use storage::store::{Change, CommitError, Expect, SideEffect};
use storage::{Batch, Error, Ident, Op, Result, Value};

/// Maximum number of queued calls before their replies are read. The limit prevents a deadlock of two full socket
/// buffers.
const QUEUED_MAX: usize = 128;

/// Number of rows of each count that commits change. Several rows reduce lock contention. Each transaction inserts
/// another row, and `merge_counts` adds its numbers to the row after these.
const SLOTS: u64 = 8;

/// Result of a commit attempt.
pub(crate) enum Attempt {
    /// The change is applied.
    Done(Done),
    /// The change was not and never will be applied: the reply was lost, or the change is outdated.
    Undone,
    /// An expectation failed, or a key exists.
    Refused,
    /// A lock of another transaction is in the way.
    Locked,
}

/// Result of a commit that has tried to join a group.
enum Joined<'a> {
    /// The commit has ended.
    Ended(Attempt),
    /// The commit must run alone. It holds its place among the running commits, if it has one.
    Alone(Option<Running<'a>>),
}

impl Attempt {
    /// Converts the result of a statement into the result of an attempt.
    pub(crate) fn of<T>(answer: PgResult<T>) -> PgResult<Attempt> {
        match answer {
            Ok(_) => Ok(Attempt::Done(Done::default())),
            Err(failure) if failure.is_refusal() => Ok(Attempt::Refused),
            Err(failure) if failure.is_conflict() => Ok(Attempt::Locked),
            Err(failure) => Err(failure),
        }
    }
}

/// The parts of a change outside its batch, as rows.
pub(crate) struct SideEffectRows {
    pub(crate) extras: Extras,
    /// New generations of collections; `None` removes a dropped collection's.
    generations: Vec<(Ident, Option<u64>)>,
}

impl SideEffectRows {
    /// Collects the rows. `count_ident` and `build_ident` return the tree of a count or a build of this process.
    pub(crate) fn new(
        side_effects: &[SideEffect],
        slot: u64,
        count_ident: &dyn Fn(&SideEffect) -> Option<Ident>,
        build_ident: &dyn Fn(&SideEffect) -> Option<Ident>,
    ) -> SideEffectRows {
        let mut extras = Extras { slot: (slot % SLOTS) as i64, ..Extras::default() };
        let mut generations = Vec::new();
        for side_effect in side_effects {
            match side_effect {
                SideEffect::Count { records, bytes, .. } => {
                    let Some(ident) = count_ident(side_effect) else { continue };
                    let sum: &mut (i64, i64) = extras.counts.entry(stored_ident(ident)).or_default();
                    *sum = (sum.0 + records, sum.1 + bytes);
                }
                SideEffect::Mark(_, record) => {
                    extras
                        .marks
                        .extend(build_ident(side_effect).map(|ident| (stored_ident(ident), *record as i64)));
                }
                // -1 stands for all records: no record has this number.
                SideEffect::MarkAll(_) => {
                    extras.marks.extend(build_ident(side_effect).map(|ident| (stored_ident(ident), -1)))
                }
                SideEffect::Generation(ident, generation) => generations.push((*ident, *generation)),
            }
        }
        extras.counts.retain(|_, sum| *sum != (0, 0));
        SideEffectRows { extras, generations }
    }

    /// Returns true if the change sets or removes no generation.
    fn is_plain(&self) -> bool {
        self.generations.is_empty()
    }
}

impl Front {
    /// Applies a change in a transaction of its own. With `directly`, the attempt is also refused if an unconditional
    /// put finds an existing key.
    pub(crate) fn commit_change(
        &self,
        batch: Batch,
        (expect, side_effect_rows): (&[Expect], &SideEffectRows),
        entry: Option<&Entry<'_>>,
        directly: bool,
    ) -> PgResult<Attempt> {
        let mut steps = steps(batch);
        let single = match steps.as_mut_slice() {
            [] => Some(Writes::new()),
            [Step::Writes(writes)] => Some(std::mem::take(writes)),
            _ => None,
        };
        let mut alone = None;
        if directly
            && let Some(writes) = &single
            && side_effect_rows.is_plain()
            && GroupedCommit::fits(writes, expect, &side_effect_rows.extras, entry)
        {
            let extras = &side_effect_rows.extras;
            let commit = || (GroupedCommit::new(writes, expect, extras, entry), bytes_of(writes, entry));
            let keys = self.groups.hashes(writes.keys());
            match self.join_group(&keys, entry, commit)? {
                Joined::Ended(attempt) => return Ok(attempt),
                Joined::Alone(running) => alone = Some((keys, running)),
            }
        }
        let mut conn = self.commits.take(&|| {})?;
        self.confirm_incarnation()?;
        if self.is_outdated(&side_effect_rows.extras) {
            return Ok(Attempt::Undone);
        }
        if let Some(writes) = single
            && side_effect_rows.is_plain()
        {
            let mut sorted = Box::new(Sorted::new(&writes, expect, false));
            if directly {
                let direct = &self.statements.direct;
                let mut is_fenced = false;
                let sent = direct.with(sorted, &side_effect_rows.extras, entry, |statement, params| {
                    if !std::mem::replace(&mut is_fenced, true) {
                        match entry {
                            Some(entry) => {
                                let entry = [Param::Int(entry.body)];
                                conn.call(&self.statements.share_fence_and_entry, &entry)?;
                            }
                            None => conn.call(&self.statements.share_fence, &[])?,
                        }
                    }
                    conn.call(statement, params)
                });
                match sent {
                    Ok(sent) => {
                        let answers = sent.and_then(|()| conn.flush()).and_then(|()| conn.results());
                        let keys = alone.map(|(keys, _)| keys);
                        let attempt = self.attempt_of(&conn, answers, entry, 0)?;
                        if let (Attempt::Locked, Some(keys)) = (&attempt, keys) {
                            self.groups.avoid(keys);
                        }
                        return Ok(attempt);
                    }
                    Err(other) => sorted = other,
                }
            }
            sorted.apply(&side_effect_rows.extras, |params| conn.call(&self.statements.apply, params))?;
            return self.finish_with(&mut conn, entry, None);
        }
        conn.call(&self.statements.begin_write, &[])?;
        let applied = self.apply_steps(&mut conn, steps, expect, side_effect_rows, false);
        self.finish(&mut conn, applied, entry)
    }

    /// Returns true if a change was planned in an earlier incarnation. The present one may lack multikey bits that the
    /// change relies on.
    pub(crate) fn is_outdated(&self, extras: &Extras) -> bool {
        let confirmed = self.confirmed_incarnation.load(Ordering::Acquire);
        extras.planned_in.is_some_and(|planned_in| planned_in != confirmed)
    }

    /// Commits in a group, if the commit may join one.
    fn join_group(
        &self,
        keys: &[u64],
        entry: Option<&Entry<'_>>,
        commit: impl FnOnce() -> (GroupedCommit, usize),
    ) -> PgResult<Joined<'_>> {
        self.confirm_incarnation()?;
        let result = match self.groups.admit(keys, commit)? {
            Admission::Alone(running) => return Ok(Joined::Alone(running)),
            Admission::Leads(running, commits) => self.lead_group(running, commits),
            Admission::Ended(result) => result,
        };
        match (result, entry) {
            (Ok(Some(done)), _) => Ok(Joined::Ended(Attempt::Done(done))),
            (Ok(None), _) => Ok(Joined::Alone(None)),
            (Err(GroupFailure::Unknown(failure)), Some(entry)) => {
                self.resolve_commit(entry, &failure).map(Joined::Ended)
            }
            (Err(GroupFailure::Unknown(failure) | GroupFailure::Unsent(failure)), _) => Err(failure),
        }
    }

    /// Runs a group, and returns the result of its first commit.
    fn lead_group(&self, running: Running<'_>, commits: Vec<GroupedCommit>) -> GroupResult {
        let count = commits.len();
        let take = || -> PgResult<PooledConnection> {
            let conn = self.commits.take(&|| {})?;
            self.confirm_incarnation().map(|()| conn)
        };
        let done = match take() {
            // Each commit then finds out alone that it is outdated.
            Ok(_) if commits.iter().any(|commit| self.is_outdated(&commit.extras)) => {
                return running.end(vec![Ok(None); count], false);
            }
            Ok(conn) => self.commit_group(conn, commits).map_err(GroupFailure::Unknown),
            Err(failure) => Err(GroupFailure::Unsent(failure)),
        };
        let is_refused = matches!(&done, Err(GroupFailure::Unknown(failure)) if failure.is_refusal());
        let results = match done {
            Ok(done) => done.into_iter().map(|done| Ok(Some(done))).collect(),
            Err(failure) if failure.ends_connection() => vec![Err(failure); count],
            Err(_) => vec![Ok(None); count],
        };
        running.end(results, is_refused)
    }

    /// Applies the commits of a group in one transaction.
    fn commit_group(&self, conn: PooledConnection, commits: Vec<GroupedCommit>) -> PgResult<Vec<Done>> {
        let mut conn = conn;
        let (mut writes, mut expect, mut extras) = (Writes::new(), Vec::new(), Extras::default());
        let mut entries = Vec::with_capacity(commits.len());
        for mut commit in commits {
            debug_assert!(
                commit.writes.keys().all(|key| !writes.contains_key(key)),
                "two commits of a group change a key"
            );
            writes.append(&mut commit.writes);
            expect.append(&mut commit.expect);
            extras.add(&commit.extras);
            entries.push(commit.entry);
        }
        let sorted = Sorted::new(&writes, &expect, false);
        let logged: Vec<&ShortEntry> = entries.iter().flatten().collect();
        let bodies: Vec<i64> = logged.iter().map(|entry| entry.body).collect();
        conn.call(&self.statements.share_fence_and_entries, &[Param::Ints(&bodies)])?;
        self.statements
            .direct
            .with_group(sorted, &extras, &logged, |statement, params| conn.call(statement, params))?;
        conn.flush()?;
        let rows = conn.results()?.pop().unwrap_or_default();
        let mut times = rows.iter().map(|row| time_in(std::slice::from_ref(row)));
        let incarnation = conn.incarnation;
        let done = |entry: Option<ShortEntry>| Done { time: entry.and_then(|_| times.next()?), incarnation };
        Ok(entries.into_iter().map(done).collect())
    }

    /// Ends the open transaction. Commits it if every step succeeded, with the log entry last.
    pub(crate) fn finish(
        &self,
        conn: &mut PooledConnection,
        applied: PgResult<()>,
        entry: Option<&Entry<'_>>,
    ) -> PgResult<Attempt> {
        if applied.as_ref().is_err_and(Failure::ends_connection) {
            // The commit was not requested yet.
            return Ok(Attempt::Undone);
        }
        let attempt = match Attempt::of(applied)? {
            Attempt::Done(_) => self.finish_with(conn, entry, Some(&self.statements.commit))?,
            other => other,
        };
        end(conn, &self.statements.rollback);
        Ok(attempt)
    }

    /// Sends the queued calls, then the log entry and the end of the transaction, and waits for the reply. The lock
    /// that orders log entries is therefore never held while the server waits for this process.
    fn finish_with(
        &self,
        conn: &mut PooledConnection,
        entry: Option<&Entry<'_>>,
        commit: Option<&Statement>,
    ) -> PgResult<Attempt> {
        if let Some(entry) = entry {
            entry.call(conn, &self.statements.record)?;
        }
        if let Some(commit) = commit {
            conn.call(commit, &[])?;
        }
        self.send_and_wait(conn, entry, usize::from(commit.is_some()))
    }

    /// Sends the queued calls and waits for the reply. The time of the entry is the result of the call that `following`
    /// calls follow.
    fn send_and_wait(
        &self,
        conn: &mut PooledConnection,
        entry: Option<&Entry<'_>>,
        following: usize,
    ) -> PgResult<Attempt> {
        let answers = conn.flush().and_then(|()| conn.results());
        self.attempt_of(conn, answers, entry, following)
    }

    /// Returns the attempt with these results. After a lost connection, it looks for the log entry.
    fn attempt_of(
        &self,
        conn: &PooledConnection,
        answers: PgResult<Vec<Vec<Row>>>,
        entry: Option<&Entry<'_>>,
        following: usize,
    ) -> PgResult<Attempt> {
        if let (Err(failure), Some(entry)) = (&answers, entry)
            && failure.ends_connection()
        {
            return self.resolve_commit(entry, failure);
        }
        let time = entry.and_then(|_| {
            let answers = answers.as_ref().ok()?;
            time_in(answers.get(answers.len().checked_sub(1 + following)?)?)
        });
        match Attempt::of(answers)? {
            Attempt::Done(_) => Ok(Attempt::Done(Done { time, incarnation: conn.incarnation })),
            other => Ok(other),
        }
    }

    /// Applies a change in the open transaction.
    pub(crate) fn apply_steps(
        &self,
        conn: &mut PooledConnection,
        steps: Vec<Step>,
        expect: &[Expect],
        side_effect_rows: &SideEffectRows,
        is_claimed: bool,
    ) -> PgResult<()> {
        let mut conditions = Some((expect, &side_effect_rows.extras));
        let nothing = Extras::default();
        for step in steps {
            match step {
                Step::Writes(writes) => {
                    let (expect, extras) = conditions.take().unwrap_or((&[], &nothing));
                    self.apply(conn, &writes, expect, extras, is_claimed)?;
                }
                Step::Tree(op) => {
                    // Expectations refer to the state before the change.
                    if let Some((expect, extras)) = conditions.take() {
                        self.apply(conn, &Writes::new(), expect, extras, is_claimed)?;
                    }
                    self.change_tree(conn, &op)?;
                }
            }
        }
        if let Some((expect, extras)) = conditions {
            self.apply(conn, &Writes::new(), expect, extras, is_claimed)?;
        }
        // A renamed collection exists under its new name, so sets come last.
        let set: HashSet<Ident> = side_effect_rows
            .generations
            .iter()
            .filter(|(_, set)| set.is_some())
            .map(|(ident, _)| *ident)
            .collect();
        for (ident, generation) in &side_effect_rows.generations {
            if generation.is_none() && !set.contains(ident) {
                let params = [Param::Int(stored_ident(*ident))];
                conn.call(&self.statements.drop_generation, &params)?;
                conn.call(&self.statements.drop_counts, &params)?;
                drain_when_full(conn)?;
            }
        }
        for (ident, generation) in &side_effect_rows.generations {
            if let Some(generation) = generation {
                let params = [Param::Int(stored_ident(*ident)), Param::Int(*generation as i64)];
                conn.call(&self.statements.set_generation, &params)?;
                drain_when_full(conn)?;
            }
        }
        conn.flush()?;
        conn.results().map(drop)
    }

    /// Calls `apply` and waits for its reply.
    pub(crate) fn apply(
        &self,
        conn: &mut PooledConnection,
        writes: &Writes,
        expect: &[Expect],
        extras: &Extras,
        is_claimed: bool,
    ) -> PgResult<()> {
        let sorted = Sorted::new(writes, expect, is_claimed);
        sorted.apply(extras, |params| conn.call(&self.statements.apply, params))?;
        conn.flush()?;
        conn.results().map(drop)
    }

    /// Queues the call for one operation on a whole tree.
    fn change_tree(&self, conn: &mut PooledConnection, op: &Op) -> PgResult<()> {
        let statements = &self.statements;
        match op {
            Op::Create(tree) => conn.call(&statements.create_tree, &[Param::Int(stored_ident(*tree))])?,
            Op::Drop(tree) => conn.call(&statements.drop_tree, &[Param::Int(stored_ident(*tree))])?,
            Op::Clear(tree) => conn.call(&statements.clear, &[Param::Int(stored_ident(*tree))])?,
            Op::Fork { from, to } => {
                conn.call(&statements.create_tree, &[Param::Int(stored_ident(*to))])?;
                let params = [Param::Int(stored_ident(*from)), Param::Int(stored_ident(*to))];
                conn.call(&statements.fork, &params)?;
                conn.call(&statements.fork_counts, &params)?;
            }
            Op::Put { .. } | Op::Delete { .. } => {}
        }
        drain_when_full(conn)
    }

    /// Returns the index of the first expectation that fails in the present state; `None` if all hold.
    pub(crate) fn first_violated(&self, expect: &[Expect]) -> Result<Option<usize>> {
        let snapshot = self.snapshot();
        let mut keys: BTreeMap<Ident, Vec<&[u8]>> = BTreeMap::new();
        for expect in expect {
            if let Expect::Value { ident, key, .. } | Expect::NoneOr { ident, key, .. } = expect {
                keys.entry(*ident).or_default().push(key);
            }
        }
        let mut present: HashMap<(Ident, &[u8]), Value> = HashMap::new();
        for (tree, keys) in &keys {
            let values = snapshot.get_many(*tree, keys)?;
            present.extend(keys.iter().zip(values).filter_map(|(key, value)| Some(((*tree, *key), value?))));
        }
        for (number, expect) in expect.iter().enumerate() {
            let holds = match expect {
                Expect::Value { ident, key, value } => present.get(&(*ident, &**key)) == value.as_ref(),
                Expect::NoneOr { ident, key, value } => {
                    present.get(&(*ident, &**key)).is_none_or(|stored| stored == value)
                }
                Expect::NoneUnder { .. } => expect.holds(&snapshot)?,
                Expect::Generation { ident, generation } => {
                    let params = [Param::Int(stored_ident(*ident)), Param::Int(*generation as i64)];
                    let rows = snapshot.session.run(&self.statements.is_generation, &params);
                    !rows.map_err(Error::from)?.is_empty()
                }
            };
            if !holds {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// Returns the reason of a refused change; `None` if nothing is in its way any more.
    pub(crate) fn refusal(&self, change: &Change) -> Result<Option<CommitError>> {
        Ok(self.first_violated(&change.expect)?.map(CommitError::Expectation))
    }
}

/// Reads replies once many calls are queued.
fn drain_when_full(conn: &mut PooledConnection) -> PgResult<()> {
    if conn.queued() < QUEUED_MAX {
        return Ok(());
    }
    conn.flush()?;
    conn.results().map(drop)
}

/// Returns a refusal for a lock whose owner is unknown in this process.
pub(crate) fn locked_by_another() -> CommitError {
    CommitError::IntentConflict(storage::store::TransactionId(0))
}

/// Converts a failure into the error of the store.
pub(crate) fn failed(failure: Failure) -> Error {
    failure.into()
}
