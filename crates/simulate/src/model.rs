//! The expected data after each commit, and the checks of replies.
//!
//! The simulation sees each commit of the engine and knows which client's request makes it. The model applies the
//! request at this point. A reply is correct if it is the answer at the request's commit. A request without a commit
//! must have an answer that was true at some point between its start and its reply.

use crate::action::{Action, BUILT, Change, LIFETIME_MILLIS, Outcome, State, apply, check_unique, duplicate};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Data after a commit.
#[derive(Clone)]
pub(crate) struct Version {
    pub(crate) position: u64,
    pub(crate) state: State,
    /// Events of the commit, in order.
    pub(crate) events: Vec<Event>,
    /// Collections that the commit created, replaced or removed.
    replaced: Vec<&'static str>,
    /// Collections whose indexes the commit changed.
    indexed: Vec<&'static str>,
    /// True if a single statement replaced or removed a document.
    has_replaced: bool,
}

/// Least number of bytes that the history counts for a replaced document.
const REPLACED_MIN: u64 = 128;

impl Version {
    fn new(position: u64, state: State) -> Version {
        let (events, replaced, indexed) = Default::default();
        Version { position, state, events, replaced, indexed, has_replaced: false }
    }
}

/// A changed document, as change streams show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: &'static str,
    pub(crate) collection: &'static str,
    pub(crate) id: i64,
    /// Number of the operation in the new document.
    pub(crate) w: Option<i64>,
}

/// The versions since the first.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) versions: Vec<Version>,
    /// Position that no crash may lose: the latest one that a reply promised.
    pub(crate) promised: u64,
    /// Position of the latest reply.
    pub(crate) answered: u64,
    /// Cluster times of commits, by position.
    pub(crate) times: BTreeMap<u64, u64>,
    /// Position of the latest commit that loaded entries of an index build.
    loaded: u64,
}

/// A transaction as its client sees it: possible read views, each with the transaction's own changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Views {
    pub(crate) views: Vec<(usize, State)>,
    pub(crate) changes: Vec<Change>,
}

impl Model {
    /// Begins with this state, which no crash may lose.
    pub(crate) fn new(position: u64, state: State) -> Model {
        let (promised, answered) = (position, position);
        Model { versions: vec![Version::new(position, state)], promised, answered, ..Model::default() }
    }

    /// Returns the number of the latest version.
    pub(crate) fn latest(&self) -> usize {
        self.versions.len() - 1
    }

    pub(crate) fn state(&self) -> &State {
        &self.versions[self.latest()].state
    }

    /// Adds the version of a commit. Errors: two documents have the same unique key.
    fn push(
        &mut self,
        position: u64,
        mut state: State,
        (changes, replaced): (&[Change], Vec<&'static str>),
    ) -> Result<(), String> {
        let mut events = Vec::new();
        for change in changes {
            let (collection, id, doc) = *change;
            let is_there = state.get(collection).is_some_and(|docs| docs.contains_key(&id));
            let kind = match (is_there, doc) {
                (false, _) => "insert",
                (true, Some(_)) => "update",
                (true, None) => "delete",
            };
            events.push(Event { kind, collection, id, w: doc.map(|doc| doc.w) });
            apply(&mut state, std::slice::from_ref(change));
        }
        check_unique(&state)?;
        self.versions.push(Version { events, replaced, ..Version::new(position, state) });
        Ok(())
    }

    /// Applies a single statement at its commit. Returns its answer, or `None` if it changes nothing here.
    pub(crate) fn commit_statement(
        &mut self,
        (action, collection, w): (&Action, &'static str, i64),
        position: u64,
    ) -> Result<Option<Outcome>, String> {
        let mut state = self.state().clone();
        let (outcome, changes) = action.evaluate(&state, collection, w);
        let replaced = match action.change_catalog(&mut state, collection) {
            true => action.replaces(collection),
            false if changes.is_empty() => return Ok(None),
            false => Vec::new(),
        };
        self.push(position, state, (&changes, replaced))?;
        if let Some(version) = self.versions.last_mut() {
            version.has_replaced = version.events.iter().any(|event| event.kind != "insert");
        }
        Ok(Some(outcome))
    }

    /// Creates the collection of an insert, which is a commit before the insert's.
    pub(crate) fn create(&mut self, collection: &'static str, position: u64) {
        let mut state = self.state().clone();
        if Action::Create.change_catalog(&mut state, collection) {
            self.versions.push(Version { replaced: vec![collection], ..Version::new(position, state) });
        }
    }

    /// Records a commit that changes indexes.
    pub(crate) fn change_indexes(&mut self, collection: &'static str, position: u64) {
        let Some(last) = self.versions.last_mut() else { return };
        if last.position == position {
            return last.indexed.push(collection);
        }
        let state = last.state.clone();
        self.versions.push(Version { indexed: vec![collection], ..Version::new(position, state) });
    }

    /// Records a commit that loads entries of an index build. No client sees it.
    pub(crate) fn load_index(&mut self, position: u64) {
        self.loaded = position;
    }

    /// Returns true if a transaction whose read view is a version or a later one may meet a write conflict with an
    /// earlier commit.
    pub(crate) fn has_committed_since(&self, from: usize) -> bool {
        self.latest() > from || self.versions.get(from).is_some_and(|version| version.position < self.loaded)
    }

    /// Removes expired documents from `t`. Errors: one has not expired.
    pub(crate) fn expire(&mut self, ids: &[i64], position: u64, now_millis: i64) -> Result<(), String> {
        let changes: Vec<Change> = ids.iter().map(|id| ("t", *id, None)).collect();
        let docs = self.state().get("t").cloned().unwrap_or_default();
        if let Some(doc) =
            ids.iter().filter_map(|id| docs.get(id)).find(|doc| doc.u + LIFETIME_MILLIS > now_millis)
        {
            return Err(format!("{doc:?} expired at {now_millis}"));
        }
        self.push(position, self.state().clone(), (&changes, Vec::new()))
    }

    /// Applies a transaction at its commit.
    ///
    /// Errors: another commit has changed one of its documents since its read view.
    pub(crate) fn commit_transaction(&mut self, views: &Views, position: u64) -> Result<(), String> {
        let touched: Vec<_> = views.changes.iter().map(|(collection, id, _)| (*collection, *id)).collect();
        let is_unchanged = |view: usize| {
            let later = self.versions.get(view + 1..).unwrap_or_default();
            let mut changed = later.iter().flat_map(|version| &version.events);
            !changed.any(|event| touched.contains(&(event.collection, event.id)))
        };
        if !views.views.iter().any(|(view, _)| is_unchanged(*view)) {
            return Err(format!("a transaction overwrites newer changes: {:?}", views.changes));
        }
        let mut created: Vec<&'static str> =
            views.changes.iter().map(|(collection, ..)| *collection).collect();
        created.retain(|collection| !self.state().contains_key(collection));
        self.push(position, self.state().clone(), (&views.changes, created))
    }

    /// Checks a reply without an effect. Returns the position of the earliest version among some that explains it.
    pub(crate) fn explain(
        &self,
        (action, collection, w): (&Action, &'static str, i64),
        (from, until): (usize, usize),
        outcome: &Outcome,
    ) -> Option<u64> {
        let versions = self.versions.get(from.min(until)..=until).unwrap_or_default();
        let found = versions.iter().find(|version| {
            let mut state = version.state.clone();
            let (expected, changes) = action.evaluate(&state, collection, w);
            expected.is_like(outcome) && changes.is_empty() && !action.change_catalog(&mut state, collection)
        });
        found.map(|version| version.position)
    }

    /// Returns true if the collection was created, replaced or dropped since a version.
    pub(crate) fn has_catalog_changed(&self, from: usize, collection: &str) -> bool {
        let mut later = self.versions.iter().skip(from + 1);
        later.any(|version| version.replaced.contains(&collection))
    }

    /// Takes over which of the unique indexes exist after a commit. Errors: one has duplicates.
    pub(crate) fn set_built(&mut self, built: &[(&'static str, bool)], position: u64) -> Result<(), String> {
        let mut state = self.state().clone();
        let mut changes = false;
        for (collection, exists) in built {
            let Some((_, entry)) = BUILT.iter().find(|(of, _)| of == collection) else { continue };
            changes |= match exists {
                true => state.insert(entry, Rc::default()).is_none(),
                false => state.remove(entry).is_some(),
            };
        }
        if !changes {
            return Ok(());
        }
        check_unique(&state)?;
        let indexed = built.iter().map(|(collection, _)| *collection).collect();
        self.versions.push(Version { indexed, ..Version::new(position, state) });
        Ok(())
    }

    /// Returns true if two committed documents of a collection had the same key at some time since a version.
    pub(crate) fn had_duplicate(&self, from: usize, collection: &str) -> bool {
        self.versions.iter().skip(from).any(|version| duplicate(&version.state, collection).is_some())
    }

    /// Returns true if the collection or its indexes have changed since a version.
    pub(crate) fn has_generation_changed(&self, from: usize, collection: &str) -> bool {
        let mut later = self.versions.iter().skip(from + 1);
        later.any(|version| version.replaced.contains(&collection) || version.indexed.contains(&collection))
    }

    /// Returns the least number of bytes that commits after one version, up to another, have replaced.
    pub(crate) fn least_replaced(&self, from: usize, until: usize) -> u64 {
        let later = self.versions.get(from + 1..=until).unwrap_or_default();
        REPLACED_MIN * later.iter().filter(|version| version.has_replaced).count() as u64
    }

    /// Returns true if a version is the state at a cluster time.
    pub(crate) fn is_at(&self, version: usize, time: u64) -> bool {
        let time_of = |version: &Version| self.times.get(&version.position).copied();
        let begin = self.versions.get(version).and_then(time_of).unwrap_or(0);
        let end = self.versions.get(version + 1).and_then(time_of).unwrap_or(u64::MAX);
        begin <= time && time < end
    }

    /// Returns the documents' ids of `t`.
    pub(crate) fn expiring(&self) -> Vec<i64> {
        self.state().get("t").map_or_else(Vec::new, |docs| docs.keys().copied().collect())
    }

    /// Begins a transaction whose read view is one of the versions since `from`.
    pub(crate) fn views(&self, from: usize) -> Views {
        let versions = self.versions.iter().enumerate().skip(from);
        Views {
            views: versions.map(|(at, version)| (at, version.state.clone())).collect(),
            changes: Vec::new(),
        }
    }

    /// Drops the versions after a position: the crash has undone them.
    pub(crate) fn recover(&mut self, position: u64) {
        while self.versions.len() > 1 && self.versions[self.latest()].position > position {
            self.versions.pop();
        }
        self.answered = self.answered.min(position);
        self.loaded = self.loaded.min(position);
    }

    /// Records a reply that shows the commit of a position.
    pub(crate) fn answer(&mut self, position: u64, is_durable: bool) {
        self.answered = self.answered.max(position);
        if is_durable {
            self.promised = self.promised.max(position);
        }
    }
}

impl Views {
    /// Checks the reply of a statement, and applies it. Returns false if no view explains it.
    pub(crate) fn statement(&mut self, statement: (&Action, &'static str, i64), outcome: &Outcome) -> bool {
        let (action, collection, w) = statement;
        let mut made = Vec::new();
        self.views.retain_mut(|(_, state)| {
            let (expected, changes) = action.evaluate(state, collection, w);
            let fits = expected.is_like(outcome);
            if fits {
                apply(state, &changes);
                made = changes;
            }
            fits
        });
        self.changes.extend(made);
        !self.views.is_empty()
    }
}
