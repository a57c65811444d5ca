//! The states after each recorded batch, and their invariants. No two documents share an `_id` or a
//! key of a unique index. No new duplicates appear in a prepared index. The number of index entries
//! equals the number of the documents' keys.

use super::documents::{Doc, Docs, Field};
use super::recorder::Entry;
use base::bson::Document;
use database::keys::CATALOG;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use storage::Op;

/// All trees of an engine.
pub(crate) type Trees = BTreeMap<u64, BTreeMap<Vec<u8>, Vec<u8>>>;

/// An index that plans may use.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    pub(crate) name: String,
    pub(crate) ident: u64,
    pub(crate) unique: bool,
    pub(crate) prepared: bool,
}

/// A collection in some state.
#[derive(Clone, Debug)]
pub(crate) struct Collection {
    pub(crate) ident: u64,
    pub(crate) indexes: Rc<Vec<Index>>,
    pub(crate) docs: Rc<Docs>,
}

/// All collections in some state, by name.
pub(crate) type State = BTreeMap<String, Collection>;

/// Changes of one commit in a tree of documents: for each `_id`, before and after.
#[derive(Clone, Debug)]
pub(crate) struct Diff {
    pub(crate) namespace: String,
    pub(crate) changes: Vec<(i64, Option<Doc>, Option<Doc>)>,
}

/// A history in the engine.
pub(crate) struct Replay {
    pub(crate) entries: Vec<Entry>,
    /// The states before the first batch, and after each.
    pub(crate) states: Vec<Rc<State>>,
    /// The changes of each batch.
    pub(crate) diffs: Vec<Vec<Diff>>,
    /// The names whose catalog entry a batch wrote, for each batch.
    pub(crate) catalog: Vec<BTreeSet<String>>,
    /// Violated invariants.
    pub(crate) broken: Vec<String>,
}

impl Collection {
    /// Returns the fields that no two documents may share, including fields of prepared indexes.
    pub(crate) fn unique(&self) -> BTreeSet<Field> {
        let kept_apart = self.indexes.iter().filter(|index| index.unique || index.prepared);
        let names: BTreeSet<&str> = kept_apart.map(|index| index.name.as_str()).collect();
        Field::ALL.into_iter().filter(|field| names.contains(field.name())).collect()
    }
}

impl Replay {
    /// Replays the batches. Violated invariants are recorded with their batch.
    pub(crate) fn of(entries: Vec<Entry>) -> Result<Replay, String> {
        let mut trees = Trees::new();
        let mut states = vec![Rc::new(State::new())];
        let (mut diffs, mut catalog) = (Vec::new(), Vec::new());
        // The documents of each tree by record, so that only changes are decoded.
        let mut records: HashMap<u64, BTreeMap<Vec<u8>, Doc>> = HashMap::new();
        let (mut latest, mut broken) = (0, Vec::new());
        for (number, entry) in entries.iter().enumerate() {
            if entry.time != 0 {
                if entry.time <= latest {
                    return Err(format!("commit {number} has the time {} after {latest}", entry.time));
                }
                latest = entry.time;
            }
            let mut touched: BTreeMap<u64, Vec<&Op>> = BTreeMap::new();
            for op in &entry.ops {
                apply(&mut trees, op);
                touched.entry(ident_of(op)).or_default().push(op);
            }
            let before = states[number].clone();
            let mut names = BTreeSet::new();
            let mut state = State::clone(&before);
            for op in touched.get(&CATALOG.0).into_iter().flatten() {
                note_catalog(op, &before, &mut state, &mut names);
            }
            for (name, collection) in &mut state {
                let is_new = !records.contains_key(&collection.ident);
                let changed = touched.get(&collection.ident).map(Vec::as_slice).unwrap_or_default();
                if is_new || !changed.is_empty() {
                    let tree = trees.get(&collection.ident);
                    let known = records.entry(collection.ident).or_default();
                    read(known, tree, changed, is_new).map_err(|message| format!("{name}: {message}"))?;
                    collection.docs = Rc::new(by_id(known).map_err(|message| format!("{name}: {message}"))?);
                }
            }
            let changed = diff(&before, &state);
            let checked = check(&state, &changed, &trees);
            broken.extend(checked.err().map(|message| format!("after commit {number}: {message}")));
            diffs.push(changed);
            catalog.push(names);
            states.push(Rc::new(state));
        }
        Ok(Replay { entries, states, diffs, catalog, broken })
    }

    /// Prints the changes of each commit.
    pub(crate) fn show(&self) {
        for (number, (entry, diffs)) in self.entries.iter().zip(&self.diffs).enumerate() {
            let catalog = &self.catalog[number];
            eprintln!("commit {number} at {}: {} ops {catalog:?} {diffs:?}", entry.time, entry.ops.len());
        }
    }

    /// Returns the number of commits up to this time.
    pub(crate) fn up_to(&self, time: u64) -> usize {
        self.entries.iter().take_while(|entry| entry.time <= time).count()
    }

    /// Returns the number of the commit with this time, counted from zero.
    pub(crate) fn at(&self, time: u64) -> Option<usize> {
        self.entries.iter().position(|entry| entry.time == time)
    }

    /// Returns the documents of a collection after this number of commits.
    pub(crate) fn docs(&self, commits: usize, namespace: &str) -> Rc<Docs> {
        let collection = self.states[commits].get(namespace);
        collection.map_or_else(Rc::default, |collection| collection.docs.clone())
    }

    /// Returns the fields that no two documents of a collection may share after this number of
    /// commits.
    pub(crate) fn unique(&self, commits: usize, namespace: &str) -> BTreeSet<Field> {
        self.states[commits].get(namespace).map(Collection::unique).unwrap_or_default()
    }
}

/// Returns the tree that an operation changes.
pub(crate) fn ident_of(op: &Op) -> u64 {
    match op {
        Op::Put { ident, .. } | Op::Delete { ident, .. } => ident.0,
        Op::Create(ident) | Op::Drop(ident) | Op::Clear(ident) => ident.0,
        Op::Fork { to, .. } => to.0,
    }
}

/// Applies an operation to the trees, like an engine.
pub(crate) fn apply(trees: &mut Trees, op: &Op) {
    match op {
        Op::Put { ident, key, value } => {
            trees.entry(ident.0).or_default().insert(key.to_vec(), value.to_vec());
        }
        Op::Delete { ident, key } => {
            trees.entry(ident.0).or_default().remove(&**key);
        }
        Op::Create(ident) | Op::Clear(ident) => _ = trees.insert(ident.0, BTreeMap::new()),
        Op::Drop(ident) => _ = trees.remove(&ident.0),
        Op::Fork { from, to } => {
            let copy = trees.get(&from.0).cloned().unwrap_or_default();
            trees.insert(to.0, copy);
        }
    }
}

fn note_catalog(op: &Op, before: &State, state: &mut State, names: &mut BTreeSet<String>) {
    let (key, value) = match op {
        Op::Put { key, value, .. } => (key, Some(value)),
        Op::Delete { key, .. } => (key, None),
        _ => return,
    };
    let name = String::from_utf8_lossy(key).into_owned();
    names.insert(name.clone());
    let Some(value) = value else {
        state.remove(&name);
        return;
    };
    let entry = Document::from_valid(value);
    let ident = |of: Document<'_>| of.get("ident").and_then(|ident| ident.as_i64()).unwrap_or(-1) as u64;
    let index = |stored: Document<'_>| {
        let spec = stored.get("spec")?.as_document()?;
        let has = |option: &str| spec.get(option).is_some_and(|value| value.is_truthy());
        Some(Index {
            name: spec.get("name")?.as_str()?.to_string(),
            ident: ident(stored),
            unique: has("unique"),
            prepared: has("prepareUnique"),
        })
    };
    let indexes = entry.get("indexes").and_then(|indexes| indexes.as_array());
    let indexes = indexes.into_iter().flat_map(|indexes| indexes.iter());
    let indexes = indexes.filter_map(|stored| index(stored.as_document()?)).collect();
    // A renamed collection keeps its documents.
    let same = before.values().find(|other| other.ident == ident(entry));
    let docs = same.map_or_else(Rc::default, |same| same.docs.clone());
    state.insert(name, Collection { ident: ident(entry), indexes: Rc::new(indexes), docs });
}

/// Updates the documents of a tree.
fn read(
    known: &mut BTreeMap<Vec<u8>, Doc>,
    tree: Option<&BTreeMap<Vec<u8>, Vec<u8>>>,
    changed: &[&Op],
    is_new: bool,
) -> Result<(), String> {
    let tree = tree.ok_or("its tree is gone")?;
    let rereads_all = is_new || changed.iter().any(|op| !matches!(op, Op::Put { .. } | Op::Delete { .. }));
    let doc = |value: &[u8]| {
        Doc::from_bson(Document::from_valid(value)).ok_or_else(|| "a document of another kind".to_string())
    };
    if rereads_all {
        known.clear();
        for (record, value) in tree {
            known.insert(record.clone(), doc(value)?);
        }
        return Ok(());
    }
    for op in changed {
        match op {
            Op::Put { key, value, .. } => _ = known.insert(key.to_vec(), doc(value)?),
            Op::Delete { key, .. } => _ = known.remove(&**key),
            _ => {}
        }
    }
    Ok(())
}

fn by_id(records: &BTreeMap<Vec<u8>, Doc>) -> Result<Docs, String> {
    let mut docs = Docs::new();
    for doc in records.values() {
        if docs.insert(doc.id, doc.clone()).is_some() {
            return Err(format!("two documents have the _id {}", doc.id));
        }
    }
    Ok(docs)
}

/// Returns the changes by tree. A rename changes nothing.
fn diff(before: &State, after: &State) -> Vec<Diff> {
    let mut diffs = Vec::new();
    for (name, collection) in after {
        let old = before.values().find(|old| old.ident == collection.ident);
        let old = old.map_or_else(Rc::default, |old| old.docs.clone());
        if Rc::ptr_eq(&old, &collection.docs) {
            continue;
        }
        let ids: BTreeSet<i64> = old.keys().chain(collection.docs.keys()).copied().collect();
        let change = |id: i64| (id, old.get(&id).cloned(), collection.docs.get(&id).cloned());
        let changes: Vec<_> = ids.into_iter().map(change).filter(|(_, old, new)| old != new).collect();
        if !changes.is_empty() {
            diffs.push(Diff { namespace: name.clone(), changes });
        }
    }
    diffs
}

fn check(state: &State, changed: &[Diff], trees: &Trees) -> Result<(), String> {
    for (name, collection) in state {
        for index in collection.indexes.iter() {
            let keys = |doc: &Doc| match index.name.as_str() {
                "k" => doc.k.iter().collect::<BTreeSet<_>>().len(),
                _ => 1,
            };
            let expected: usize = collection.docs.values().map(keys).sum();
            let found = trees.get(&index.ident).map(BTreeMap::len);
            if found != Some(expected) {
                return Err(format!("{name} has {expected} keys in {}, and entries {found:?}", index.name));
            }
        }
    }
    for diff in changed {
        let Some(collection) = state.get(&diff.namespace) else { continue };
        let unique = collection.unique();
        for (_, before, after) in &diff.changes {
            if let Some(after) = after
                && super::statements::collides(
                    &without(&collection.docs, after.id),
                    before.as_ref(),
                    after,
                    &unique,
                )
            {
                return Err(format!("{}: {after:?} has a key of another document", diff.namespace));
            }
        }
    }
    Ok(())
}

fn without(docs: &Docs, id: i64) -> Docs {
    docs.iter().filter(|(other, _)| **other != id).map(|(id, doc)| (*id, doc.clone())).collect()
}
