//! The expected data after each commit, and the checks of replies.
//!
//! The simulation sees each commit of the engine and knows which client's request makes it. The model applies the
//! request at this point. A reply is correct if it is the answer at the request's commit. A request without a commit
//! must have an answer that was true at some point between its start and its reply.

use crate::action::{Action, Change, Outcome, State, apply};
use std::collections::BTreeSet;

/// Data after a commit.
#[derive(Clone)]
pub(crate) struct Version {
    pub(crate) position: u64,
    pub(crate) state: State,
    /// Documents that the commit changed.
    changed: Vec<(&'static str, i64)>,
}

/// The versions since the first.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) versions: Vec<Version>,
    /// Position that no crash may lose: the latest one that a reply promised.
    pub(crate) promised: u64,
    /// Position of the latest reply.
    pub(crate) answered: u64,
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
        let version = Version { position, state, changed: Vec::new() };
        Model { versions: vec![version], promised: position, answered: position }
    }

    /// Returns the number of the latest version.
    pub(crate) fn latest(&self) -> usize {
        self.versions.len() - 1
    }

    pub(crate) fn state(&self) -> &State {
        &self.versions[self.latest()].state
    }

    /// Adds a version. Errors: two documents have the same unique key.
    fn push(&mut self, position: u64, state: State, changed: Vec<(&'static str, i64)>) -> Result<(), String> {
        let mut keys = BTreeSet::new();
        for doc in state.get("a").into_iter().flat_map(|docs| docs.values()) {
            if !keys.insert(doc.u) {
                return Err(format!("two documents have the unique key {}", doc.u));
            }
        }
        self.versions.push(Version { position, state, changed });
        Ok(())
    }

    /// Applies a single statement at its commit. Returns its answer, or `None` if it changes nothing here.
    pub(crate) fn commit_statement(
        &mut self,
        (action, place, w): (&Action, &'static str, i64),
        position: u64,
    ) -> Result<Option<Outcome>, String> {
        let mut state = self.state().clone();
        let (outcome, changes) = action.evaluate(&state, place, w);
        apply(&mut state, &changes);
        if changes.is_empty() && !action.change_catalog(&mut state, place) {
            return Ok(None);
        }
        self.push(position, state, touched(&changes))?;
        Ok(Some(outcome))
    }

    /// Applies a transaction at its commit.
    ///
    /// Errors: another commit has changed one of its documents since its read view.
    pub(crate) fn commit_transaction(&mut self, views: &Views, position: u64) -> Result<(), String> {
        let touched = touched(&views.changes);
        let is_unchanged = |view: usize| {
            let later = self.versions.get(view + 1..).unwrap_or_default();
            !later.iter().flat_map(|version| &version.changed).any(|place| touched.contains(place))
        };
        if !views.views.iter().any(|(view, _)| is_unchanged(*view)) {
            return Err(format!("a transaction overwrites newer changes: {:?}", views.changes));
        }
        let mut state = self.state().clone();
        apply(&mut state, &views.changes);
        self.push(position, state, touched)
    }

    /// Checks a reply without an effect. Returns the position of the earliest version that explains it.
    pub(crate) fn explain(
        &self,
        (action, place, w): (&Action, &'static str, i64),
        from: usize,
        outcome: &Outcome,
    ) -> Option<u64> {
        let from = from.min(self.latest());
        let versions = self.versions.get(from..).unwrap_or_default();
        let found = versions.iter().find(|version| {
            let mut state = version.state.clone();
            let (expected, changes) = action.evaluate(&state, place, w);
            expected.is_like(outcome) && changes.is_empty() && !action.change_catalog(&mut state, place)
        });
        found.map(|version| version.position)
    }

    /// Returns true if the collection was created or dropped since a version.
    pub(crate) fn has_catalog_changed(&self, from: usize, place: &str) -> bool {
        let versions = self.versions.get(from.min(self.latest())..).unwrap_or_default();
        versions.windows(2).any(|pair| pair[0].state.contains_key(place) != pair[1].state.contains_key(place))
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
        let (action, place, w) = statement;
        let mut made = Vec::new();
        self.views.retain_mut(|(_, state)| {
            let (expected, changes) = action.evaluate(state, place, w);
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

fn touched(changes: &[Change]) -> Vec<(&'static str, i64)> {
    changes.iter().map(|(place, id, _)| (*place, *id)).collect()
}
