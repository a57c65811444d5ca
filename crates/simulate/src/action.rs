//! What clients do with documents, and what a correct server answers.

use base::bson::{Document, Value};
use base::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The collections. `a` has a unique index on `u`, `p` an index with `prepareUnique`. Clients create, drop, rename and
/// index `b` and `d`. `t` has a TTL index. `s` is in a database that clients reset, save, restore and fork. `f` is in
/// the fork. `k` is capped.
pub(crate) const COLLECTIONS: [&str; 9] = ["a", "b", "c", "d", "f", "k", "p", "s", "t"];
/// Greatest number of documents of `k`.
pub(crate) const CAPPED_MAX: usize = 3;
/// The documents of `k` by the number of their insert, in the order of the inserts.
const CAPPED_ORDER: &str = "k.order";
/// The users, by number.
pub(crate) const USERS: &str = "users";
/// Least number of a user that a client creates by the localhost exception. The others may read.
pub(crate) const FIRST_USER: i64 = 10;
/// The value MinKey of the unique field.
pub(crate) const MIN_KEY: i64 = i64::MIN;
/// The saved contents of `s`.
const SAVED: &str = "saved";
/// Lifetime of documents of `t`.
pub(crate) const LIFETIME_MILLIS: i64 = 20_000;
/// Places of single statements, with their weights.
const PLACES: &[&str] = &["a", "a", "a", "a", "b", "b", "c", "c", "d", "f", "k", "p", "s", "t"];
/// Places of transactions.
const TRANSACTION_PLACES: &[&str] = &["a", "a", "b", "c", "d", "p"];

const USER_NOT_FOUND: i32 = 11;
const UNAUTHORIZED: i32 = 13;
const NAMESPACE_NOT_FOUND: i32 = 26;
const INDEX_NOT_FOUND: i32 = 27;
const NAMESPACE_EXISTS: i32 = 48;
const INDEX_BUILD_ABORTED: i32 = 276;
const DUPLICATE_KEY: i32 = 11_000;
const USER_EXISTS: i32 = 51_003;

/// Returns a value of the unique field as extended JSON.
fn key_text(u: i64) -> String {
    if u == MIN_KEY { "{$minKey: 1}".to_string() } else { u.to_string() }
}

/// Returns the name of a user.
pub(crate) fn user_name(user: i64) -> String {
    format!("user{user}")
}

/// Returns the database and the name of a collection.
pub(crate) fn namespace(collection: &str) -> (&'static str, &str) {
    match collection {
        "f" => ("fork", "s"),
        "s" => ("slate", "s"),
        other => ("test", other),
    }
}

/// What the statements of a run use. Each seed draws its own, since few documents in few collections bring conflicts
/// that many documents never bring (swarm testing).
#[derive(Clone, Debug)]
pub(crate) struct Mix {
    /// Number of different ids.
    ids: u64,
    /// Number of different values of the unique field.
    unique: u64,
    collections: &'static [&'static str],
    transaction_collections: &'static [&'static str],
    /// Statements that change a catalog, in percent of all statements of a collection with such statements.
    catalog_percent: u64,
    /// True if these only build and drop the unique index.
    only_indexes: bool,
    /// True if the statements insert and delete documents, and change their unique field.
    only_keys: bool,
    /// True if every second client has no transactions, and deletes the document that it has inserted. A key then has
    /// the same value again that an open transaction has read.
    pub(crate) returns_keys: bool,
    /// One statement of so many begins a transaction, and one of so many in a transaction ends it.
    pub(crate) begins: u64,
    pub(crate) ends: u64,
    /// While a cursor is open, so many of four statements fetch its next batch.
    pub(crate) batches: u64,
    /// Commits before which other clients run, in percent, and the greatest number of their steps.
    pub(crate) pause: (u64, u64),
    /// Limit of the history in bytes.
    pub(crate) history: Option<u64>,
    /// True if some documents have MinKey in their unique field, and finds compare it with MinKey.
    has_min_keys: bool,
    /// True if clients build and drop a text index.
    has_text: bool,
}

impl Mix {
    /// Draws a mix. `extra` is a second source of random numbers, so that the first keeps its order.
    pub(crate) fn new(random: &Random, extra: &Random) -> Mix {
        let ids = [2, 3, 8, 8][random.index(4)];
        let kind = random.below(10);
        let (collections, transaction_collections): (&[&str], &[&str]) = match kind {
            0 => (&["a"], &["a"]),
            1 => (&["p"], &["p"]),
            2 | 3 => (&["b"], &["b"]),
            4 => (&["b", "d"], &["b", "d"]),
            5 => (&["c", "k"], &["c"]),
            _ => (PLACES, TRANSACTION_PLACES),
        };
        let pauses = [(25, 6), (25, 6), (60, 6), (90, 12)];
        let mix = Mix {
            ids,
            unique: [ids + ids / 2, ids + ids / 2, 2][random.index(3)],
            collections,
            transaction_collections,
            catalog_percent: [10, 20, 40][random.index(3)],
            only_indexes: kind == 2,
            only_keys: kind == 1,
            returns_keys: false,
            begins: [2, 5, 5][random.index(3)],
            ends: [3, 3, 6][random.index(3)],
            batches: [1, 3, 3][random.index(3)],
            pause: pauses[random.index(4)],
            history: (random.below(4) == 0).then(|| 100 + random.below(900)),
            has_min_keys: extra.below(4) == 0 && kind != 2,
            has_text: extra.below(4) == 0,
        };
        match kind {
            1 if random.below(2) == 0 => {
                Mix { ids: 1, unique: 1, returns_keys: true, begins: 1, ends: 3, pause: pauses[0], ..mix }
            }
            // A key is free, a transaction takes it, and another client takes it too, or has taken and freed it.
            1 => Mix { ids: 3, unique: 3, begins: 2, pause: pauses[3], ..mix },
            // Index builds need several statements of others in a short time.
            2 => Mix { ids: 3, unique: 2, begins: 50, pause: pauses[3], ..mix },
            _ => mix,
        }
    }
}

/// The collections whose unique index clients build and drop, each with the entry of the state that stands for the
/// index.
pub(crate) const BUILT: [(&str, &str); 2] = [("b", "b.v"), ("d", "d.v")];

fn built(collection: &str) -> Option<&'static str> {
    BUILT.iter().find(|(of, _)| *of == collection).map(|(_, entry)| *entry)
}

/// Returns true if an index refuses two documents with equal `u`.
fn is_unique(state: &State, collection: &str) -> bool {
    matches!(collection, "a" | "p") || built(collection).is_some_and(|entry| state.contains_key(entry))
}

/// Returns a value of `u` that two documents of a collection have.
pub(crate) fn duplicate(state: &State, collection: &str) -> Option<i64> {
    let mut keys = BTreeSet::new();
    state.get(collection)?.values().map(|doc| doc.u).find(|u| !keys.insert(*u))
}

/// Checks all unique indexes. Errors: two documents have the same key.
pub(crate) fn check_unique(state: &State) -> Result<(), String> {
    match COLLECTIONS.iter().find_map(|collection| {
        Some((collection, duplicate(state, collection).filter(|_| is_unique(state, collection))?))
    }) {
        Some((collection, key)) => Err(format!("two documents of {collection} have the unique key {key}")),
        None => Ok(()),
    }
}

/// A document: an id, a count of increments, a unique number (in `t` the time), and the number of the latest operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Doc {
    pub(crate) id: i64,
    pub(crate) n: i64,
    pub(crate) u: i64,
    pub(crate) w: i64,
}

/// Documents by id, by collection. A missing collection has no entry.
pub(crate) type State = BTreeMap<&'static str, Rc<BTreeMap<i64, Doc>>>;

/// A changed document: its new content, `None` if it is removed.
pub(crate) type Change = (&'static str, i64, Option<Doc>);

/// One statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Insert(Doc),
    Increment(Filter),
    SetUnique(i64, i64),
    Delete(Filter),
    /// An increment that returns the document before or after.
    FindAndModify {
        id: i64,
        new: bool,
    },
    FindAndRemove(i64),
    Find(Option<i64>),
    /// A find by an operator that compares `u` with MinKey.
    Compare(&'static str),
    /// A find in several batches.
    Scan,
    Count,
    Drop,
    Create,
    Rename(&'static str),
    /// Builds the index `n`, the unique index `v`, or the text index `x`, which has an expiry time without an effect.
    Index(&'static str),
    DropIndex(&'static str),
    Reset,
    Save,
    Restore,
    Fork,
    CreateUser(i64),
    DropUser(i64),
}

/// A filter that matches at most one document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    Id(i64),
    /// By the unique index.
    Unique(i64),
    /// By id and number of increments, so that another increment makes the document match no more.
    Version(i64, i64),
}

/// The part of a reply that depends on data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Number of changed documents.
    Changed(i64),
    Value(Option<Doc>),
    Docs(Vec<Doc>),
    Count(i64),
    Done,
    Error(i32, String),
}

impl Outcome {
    fn error(code: i32) -> Outcome {
        Outcome::Error(code, String::new())
    }

    /// Compares two outcomes without the texts of errors.
    pub(crate) fn is_like(&self, other: &Outcome) -> bool {
        match (self, other) {
            (Outcome::Error(code, _), Outcome::Error(other, _)) => code == other,
            _ => self == other,
        }
    }
}

impl Filter {
    fn matches(&self, doc: &Doc) -> bool {
        match *self {
            Filter::Id(id) => doc.id == id,
            Filter::Unique(u) => doc.u == u,
            Filter::Version(id, n) => (doc.id, doc.n) == (id, n),
        }
    }

    fn text(&self) -> String {
        match self {
            Filter::Id(id) => format!("{{_id: {id}}}"),
            Filter::Unique(u) => format!("{{u: {}}}", key_text(*u)),
            Filter::Version(id, n) => format!("{{_id: {id}, n: {n}}}"),
        }
    }
}

impl Action {
    /// Draws a statement and its collection. Statements of transactions leave the catalog alone.
    pub(crate) fn draw(
        (random, mix): (&Random, &Mix),
        in_transaction: bool,
        (w, now_millis): (i64, i64),
    ) -> (Action, &'static str) {
        let id = random.below(mix.ids) as i64;
        let collections = if in_transaction { mix.transaction_collections } else { mix.collections };
        let collection = collections[random.index(collections.len())];
        let u = if collection == "t" { now_millis } else { random.below(mix.unique) as i64 };
        let filter = match random.below(3) {
            // Elsewhere several documents may match.
            0 if matches!(collection, "a" | "p") => Filter::Unique(u),
            1 => Filter::Version(id, random.below(3) as i64),
            _ => Filter::Id(id),
        };
        let has_catalog = matches!(collection, "b" | "d" | "s") && !in_transaction;
        let kind = match has_catalog && random.below(100) < mix.catalog_percent {
            true if mix.only_indexes => [23, 25, 25][random.index(3)],
            true => 20 + random.below(6),
            // A read takes the read view, an insert then meets a key that has returned.
            false if mix.returns_keys => [0, 16][random.index(2)],
            false if mix.only_keys => [0, 9, 11][random.index(3)],
            false => random.below(20),
        };
        let action = match (kind, collection) {
            (0..=5, _) | (6..=12, "k") => Action::Insert(Doc { id, n: 0, u, w }),
            (13..=18, "k") => Action::Find(None),
            (6..=8, _) | (9..=10, "t") => Action::Increment(filter),
            (9..=10, _) => Action::SetUnique(id, u),
            (11..=12, _) => Action::Delete(filter),
            (13..=14, _) => Action::FindAndModify { id, new: random.below(2) == 0 },
            (15, _) => Action::FindAndRemove(id),
            (16, _) => Action::Find(Some(id)),
            (17..=18, _) if !in_transaction => Action::Scan,
            (19, _) if !in_transaction => Action::Count,
            (17..=19, _) => Action::Find(None),
            (20, "s") => Action::Reset,
            (21, "s") => Action::Save,
            (22..=23, "s") => Action::Restore,
            (_, "s") => Action::Fork,
            (20, _) => Action::Drop,
            (21, _) => Action::Create,
            (22, "b") => Action::Rename("d"),
            (22, _) => Action::Rename("b"),
            (23, _) if mix.only_indexes => Action::DropIndex("v"),
            (23, _) => Action::DropIndex(["n", "v"][random.index(2)]),
            (24, _) => Action::Index("n"),
            _ => Action::Index("v"),
        };
        (action.draw_variant((random, mix), collection), collection)
    }

    /// Replaces some statements by others.
    fn draw_variant(self, (random, mix): (&Random, &Mix), collection: &str) -> Action {
        let has_min_keys = mix.has_min_keys && collection != "t";
        match self {
            Action::Insert(doc) if has_min_keys && random.below(3) == 0 => {
                Action::Insert(Doc { u: MIN_KEY, ..doc })
            }
            Action::SetUnique(id, _) if has_min_keys && random.below(3) == 0 => {
                Action::SetUnique(id, MIN_KEY)
            }
            Action::Delete(Filter::Unique(_)) if has_min_keys && random.below(3) == 0 => {
                Action::Delete(Filter::Unique(MIN_KEY))
            }
            Action::Find(_) if has_min_keys && random.below(2) == 0 => {
                Action::Compare(["$lt", "$lt", "$lte", "$gt", "$gte"][random.index(5)])
            }
            Action::Index("n") if mix.has_text && random.below(2) == 0 => Action::Index("x"),
            Action::DropIndex("n") if mix.has_text && random.below(2) == 0 => Action::DropIndex("x"),
            other => other,
        }
    }

    /// Draws an insert into `p`, or the deletion of the document that the last insert had.
    pub(crate) fn draw_return((random, mix): (&Random, &Mix), w: i64, inserted: &mut Option<i64>) -> Action {
        if let Some(id) = inserted.take() {
            return Action::Delete(Filter::Id(id));
        }
        let (id, u) = (random.below(mix.ids) as i64, random.below(mix.unique) as i64);
        *inserted = Some(id);
        Action::Insert(Doc { id, n: 0, u, w })
    }

    /// Returns true if a driver repeats the statement with a transaction number.
    pub(crate) fn is_retryable(&self) -> bool {
        match self {
            Action::CreateUser(_) => false,
            _ => self.stores() || matches!(self, Action::Delete(_) | Action::FindAndRemove(_)),
        }
    }

    pub(crate) fn is_read(&self) -> bool {
        matches!(self, Action::Find(_) | Action::Compare(_) | Action::Scan | Action::Count)
    }

    /// Returns the collections that the statement creates, replaces or removes.
    pub(crate) fn replaces(&self, collection: &'static str) -> Vec<&'static str> {
        match *self {
            Action::Drop | Action::Create | Action::Index(_) | Action::Reset | Action::Restore => {
                vec![collection]
            }
            Action::Rename(to) => vec![collection, to],
            Action::Fork => vec!["f"],
            _ => Vec::new(),
        }
    }

    /// Returns true if a commit of the statement stores a document with its number.
    pub(crate) fn stores(&self) -> bool {
        matches!(
            self,
            Action::Insert(_)
                | Action::Increment(_)
                | Action::SetUnique(..)
                | Action::FindAndModify { .. }
                | Action::CreateUser(_)
        )
    }

    /// Returns the beginning of the command.
    pub(crate) fn command(&self, collection: &str, w: i64) -> String {
        let increment = format!("{{$inc: {{n: 1}}, $set: {{w: {w}}}}}");
        let (database, name) = namespace(collection);
        let mut on = database;
        let mut administer = |text: String| {
            on = "admin";
            text
        };
        let text = match self {
            Action::Insert(Doc { id, n, u, w }) => {
                let at = format!(", at: {{$date: {{$numberLong: '{u}'}}}}");
                let at = if collection == "t" { at.as_str() } else { "" };
                let u = key_text(*u);
                format!("insert: '{name}', documents: [{{_id: {id}, n: {n}, u: {u}, w: {w}{at}}}]")
            }
            Action::Increment(filter) => {
                format!("update: '{name}', updates: [{{q: {}, u: {increment}}}]", filter.text())
            }
            Action::SetUnique(id, u) => {
                let u = key_text(*u);
                format!("update: '{name}', updates: [{{q: {{_id: {id}}}, u: {{$set: {{u: {u}, w: {w}}}}}}}]")
            }
            Action::Delete(filter) => {
                format!("delete: '{name}', deletes: [{{q: {}, limit: 1}}]", filter.text())
            }
            Action::FindAndModify { id, new } => {
                format!("findAndModify: '{name}', query: {{_id: {id}}}, update: {increment}, new: {new}")
            }
            Action::FindAndRemove(id) => {
                format!("findAndModify: '{name}', query: {{_id: {id}}}, remove: true")
            }
            Action::Find(Some(id)) => format!("find: '{name}', filter: {{_id: {id}}}"),
            Action::Find(None) => format!("find: '{name}', filter: {{}}"),
            Action::Compare(operator) => {
                format!("find: '{name}', filter: {{u: {{{operator}: {}}}}}", key_text(MIN_KEY))
            }
            Action::Scan => format!("find: '{name}', filter: {{}}, batchSize: 2"),
            Action::Count => format!("count: '{name}', query: {{}}"),
            Action::Drop => format!("drop: '{name}'"),
            Action::Create => format!("create: '{name}'"),
            Action::Rename(to) => administer(format!("renameCollection: 'test.{name}', to: 'test.{to}'")),
            Action::Index("v") => {
                format!("createIndexes: '{name}', indexes: [{{key: {{u: 1}}, name: 'v', unique: true}}]")
            }
            Action::Index("x") => {
                let options = "name: 'x', expireAfterSeconds: 20";
                format!("createIndexes: '{name}', indexes: [{{key: {{x: 'text'}}, {options}}}]")
            }
            Action::Index(index) => {
                format!("createIndexes: '{name}', indexes: [{{key: {{n: 1}}, name: '{index}'}}]")
            }
            Action::DropIndex(index) => format!("dropIndexes: '{name}', index: '{index}'"),
            Action::CreateUser(user) => {
                let roles = if *user >= FIRST_USER { "'root'" } else { "{role: 'read', db: 'test'}" };
                let name = user_name(*user);
                let options = "mechanisms: ['SCRAM-SHA-1']";
                administer(format!(
                    "createUser: '{name}', pwd: '{name}', roles: [{roles}], {options}, customData: {{w: {w}}}"
                ))
            }
            Action::DropUser(user) => administer(format!("dropUser: '{}'", user_name(*user))),
            Action::Reset => administer(format!("resetDatabase: '{database}'")),
            Action::Save => administer(format!("snapshotDatabase: '{database}', name: 'x', replace: true")),
            Action::Restore => administer(format!("restoreDatabase: '{database}', name: 'x'")),
            Action::Fork => administer(format!("forkDatabase: '{database}', to: 'fork', replace: true")),
        };
        format!("{text}, $db: '{on}'")
    }

    /// Returns the answer of a correct server in this state, and the changes.
    pub(crate) fn evaluate(&self, state: &State, collection: &'static str, w: i64) -> (Outcome, Vec<Change>) {
        let docs = state.get(collection);
        let empty = BTreeMap::new();
        let docs_or_none = docs.map_or(&empty, |docs| docs);
        let one = |filter: &Filter| docs_or_none.values().find(|doc| filter.matches(doc)).copied();
        let is_taken = |doc: &Doc| {
            is_unique(state, collection)
                && docs_or_none.values().any(|other| other.u == doc.u && other.id != doc.id)
        };
        let put = |outcome: Outcome, doc: Doc| (outcome, vec![(collection, doc.id, Some(doc))]);
        let remove = |outcome: Outcome, id: i64| (outcome, vec![(collection, id, None)]);
        let increment = |doc: Doc| Doc { n: doc.n + 1, w, ..doc };
        match self {
            Action::Insert(doc) if docs_or_none.contains_key(&doc.id) || is_taken(doc) => {
                (Outcome::error(DUPLICATE_KEY), Vec::new())
            }
            Action::Insert(doc) if collection == "k" && docs_or_none.len() == CAPPED_MAX => {
                let oldest = state.get(CAPPED_ORDER).and_then(|order| Some(order.first_key_value()?.1.id));
                let oldest = oldest.map(|id| (collection, id, None));
                (Outcome::Changed(1), oldest.into_iter().chain([(collection, doc.id, Some(*doc))]).collect())
            }
            Action::Insert(doc) => put(Outcome::Changed(1), *doc),
            Action::Increment(filter) => match one(filter) {
                Some(doc) => put(Outcome::Changed(1), increment(doc)),
                None => (Outcome::Changed(0), Vec::new()),
            },
            Action::SetUnique(id, u) => match one(&Filter::Id(*id)).map(|doc| Doc { u: *u, w, ..doc }) {
                Some(doc) if is_taken(&doc) => (Outcome::error(DUPLICATE_KEY), Vec::new()),
                Some(doc) => put(Outcome::Changed(1), doc),
                None => (Outcome::Changed(0), Vec::new()),
            },
            Action::Delete(filter) => match one(filter) {
                Some(doc) => remove(Outcome::Changed(1), doc.id),
                None => (Outcome::Changed(0), Vec::new()),
            },
            Action::FindAndModify { id, new } => match one(&Filter::Id(*id)) {
                Some(doc) => {
                    put(Outcome::Value(Some(if *new { increment(doc) } else { doc })), increment(doc))
                }
                None => (Outcome::Value(None), Vec::new()),
            },
            Action::FindAndRemove(id) => match one(&Filter::Id(*id)) {
                Some(doc) => remove(Outcome::Value(Some(doc)), doc.id),
                None => (Outcome::Value(None), Vec::new()),
            },
            Action::Find(Some(id)) => {
                (Outcome::Docs(one(&Filter::Id(*id)).into_iter().collect()), Vec::new())
            }
            Action::Find(None) | Action::Scan => {
                (Outcome::Docs(docs_or_none.values().copied().collect()), Vec::new())
            }
            Action::Compare(operator) => {
                let matches = |doc: &&Doc| match *operator {
                    "$lt" => false,
                    "$lte" => doc.u == MIN_KEY,
                    "$gt" => doc.u != MIN_KEY,
                    _ => true,
                };
                (Outcome::Docs(docs_or_none.values().filter(matches).copied().collect()), Vec::new())
            }
            Action::Count => (Outcome::Count(docs_or_none.len() as i64), Vec::new()),
            // MongoDB drops a missing collection, and creates an existing one with equal options, without an error.
            Action::Rename(_) if docs.is_none() => (Outcome::error(NAMESPACE_NOT_FOUND), Vec::new()),
            Action::Rename(to) if state.contains_key(to) => (Outcome::error(NAMESPACE_EXISTS), Vec::new()),
            Action::Restore if !state.contains_key(SAVED) => {
                (Outcome::error(NAMESPACE_NOT_FOUND), Vec::new())
            }
            Action::CreateUser(user) if *user >= FIRST_USER && !docs_or_none.is_empty() => {
                (Outcome::error(UNAUTHORIZED), Vec::new())
            }
            Action::CreateUser(user) if docs_or_none.contains_key(user) => {
                (Outcome::error(USER_EXISTS), Vec::new())
            }
            Action::CreateUser(user) => put(Outcome::Done, Doc { id: *user, n: 0, u: 0, w }),
            Action::DropUser(user) if docs_or_none.contains_key(user) => remove(Outcome::Done, *user),
            Action::DropUser(_) => (Outcome::error(USER_NOT_FOUND), Vec::new()),
            Action::Reset => (Outcome::Changed(docs_or_none.len() as i64), Vec::new()),
            _ => (Outcome::Done, Vec::new()),
        }
    }

    /// Applies changes of the catalog. Returns true if there are any.
    pub(crate) fn change_catalog(&self, state: &mut State, collection: &'static str) -> bool {
        let docs = state.get(collection).cloned();
        match (self, docs) {
            (Action::Drop, Some(_)) => {
                state.remove(collection);
                built(collection).and_then(|entry| state.remove(entry));
            }
            (Action::Create | Action::Index(_), None) => _ = state.insert(collection, Rc::default()),
            (Action::Rename(to), Some(docs)) if !state.contains_key(to) => {
                state.remove(collection);
                state.insert(to, docs);
                if let (Some(from), Some(to)) = (built(collection), built(to))
                    && let Some(entry) = state.remove(from)
                {
                    state.insert(to, entry);
                }
            }
            (Action::Reset, Some(docs)) if !docs.is_empty() => _ = state.insert(collection, Rc::default()),
            (Action::Save, Some(docs)) => _ = state.insert(SAVED, docs),
            (Action::Restore, _) => match state.get(SAVED).cloned() {
                Some(saved) => _ = state.insert(collection, saved),
                None => return false,
            },
            (Action::Fork, Some(docs)) => _ = state.insert("f", docs),
            _ => return false,
        }
        true
    }

    /// Reads the outcome from a reply.
    pub(crate) fn outcome(&self, reply: Document<'_>) -> Result<Outcome, String> {
        match (self, failure(reply)) {
            // The model has only unique indexes, which it reads from the commits.
            (Action::DropIndex(_), Some(Outcome::Error(INDEX_NOT_FOUND | NAMESPACE_NOT_FOUND, _)))
            | (Action::Index(_), Some(Outcome::Error(INDEX_BUILD_ABORTED, _))) => return Ok(Outcome::Done),
            (_, Some(error)) => return Ok(error),
            (_, None) => {}
        }
        if reply.get("writeConcernError").is_some() {
            return Err("a write concern was not met".to_string());
        }
        let number = |name: &str| integer(reply, name);
        Ok(match self {
            Action::Insert(_) | Action::Delete(_) => Outcome::Changed(number("n")?),
            Action::Increment(_) | Action::SetUnique(..) => match number("n")? == number("nModified")? {
                true => Outcome::Changed(number("n")?),
                false => return Err("n differs from nModified".to_string()),
            },
            Action::FindAndModify { .. } | Action::FindAndRemove(_) => {
                Outcome::Value(reply.get("value").and_then(|value| value.as_document()).map(doc).transpose()?)
            }
            Action::Find(_) | Action::Compare(_) | Action::Scan => {
                let mut docs = batch(reply)?.1;
                docs.sort_by_key(|doc| doc.id);
                Outcome::Docs(docs)
            }
            Action::Count => Outcome::Count(number("n")?),
            Action::Reset => Outcome::Changed(number("n")?),
            _ => Outcome::Done,
        })
    }
}

/// Applies changes of documents.
pub(crate) fn apply(state: &mut State, changes: &[Change]) {
    for (collection, id, doc) in changes {
        let docs = Rc::make_mut(state.entry(collection).or_default());
        match doc {
            Some(doc) => _ = docs.insert(*id, *doc),
            None => _ = docs.remove(id),
        }
        if *collection == "k" {
            let order = Rc::make_mut(state.entry(CAPPED_ORDER).or_default());
            match doc {
                Some(doc) => _ = order.insert(order.last_key_value().map_or(0, |(last, _)| last + 1), *doc),
                None => order.retain(|_, doc| doc.id != *id),
            }
        }
    }
}

/// Returns the error of a reply: of the command or of its first statement.
pub(crate) fn failure(reply: Document<'_>) -> Option<Outcome> {
    let errors = reply.get("writeErrors").and_then(|errors| errors.as_array());
    let first = errors.and_then(|errors| errors.iter().next()).and_then(|error| error.as_document());
    let failed = first.or((integer(reply, "ok") != Ok(1)).then_some(reply))?;
    let message = failed.get("errmsg").and_then(|message| message.as_str()).unwrap_or_default();
    Some(Outcome::Error(integer(failed, "code").unwrap_or_default() as i32, message.to_string()))
}

/// Returns the cursor's id and the documents of a reply, in order.
pub(crate) fn batch(reply: Document<'_>) -> Result<(i64, Vec<Doc>), String> {
    let (id, docs) = cursor(reply)?;
    Ok((id, docs.into_iter().map(doc).collect::<Result<_, _>>()?))
}

/// Returns the cursor's id and the batch of a reply.
pub(crate) fn cursor(reply: Document<'_>) -> Result<(i64, Vec<Document<'_>>), String> {
    let cursor = reply.get("cursor").and_then(|cursor| cursor.as_document()).ok_or("no cursor")?;
    let batch = cursor.get("firstBatch").or_else(|| cursor.get("nextBatch"));
    let batch = batch.and_then(|batch| batch.as_array()).ok_or("no batch")?;
    let docs = batch.iter().map(|value| value.as_document().ok_or("no document"));
    Ok((integer(cursor, "id")?, docs.collect::<Result<_, _>>()?))
}

pub(crate) fn integer(document: Document<'_>, name: &str) -> Result<i64, String> {
    let value = document.get(name).and_then(|value| value.as_number()).map(|number| number.to_i64_clamped());
    value.ok_or_else(|| format!("no number {name}"))
}

/// Reads a document of a collection.
pub(crate) fn doc(document: Document<'_>) -> Result<Doc, String> {
    let field = |name: &str| match document.get(name) {
        Some(Value::Int32(number)) => Ok(i64::from(number)),
        Some(Value::Int64(number)) => Ok(number),
        Some(Value::MinKey) if name == "u" => Ok(MIN_KEY),
        other => Err(format!("{name} is {other:?}")),
    };
    Ok(Doc { id: field("_id")?, n: field("n")?, u: field("u")?, w: field("w")? })
}
