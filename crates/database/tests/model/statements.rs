//! Random statements of the histories, and their effects on the model's documents.

use super::documents::{Doc, Docs, Field};
use super::random::Random;
use std::collections::BTreeSet;

/// Number of different `_id` values.
const IDS: u64 = 7;
/// Number of values of uniquely indexed fields: more than documents, so that statements can
/// succeed.
const VALUES: u64 = 11;
/// Number of values of the field whose index is unique only at times: fewer.
const FEW: u64 = 6;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Filter {
    All,
    Id(i64),
    /// Served by the regular index.
    K(i64),
    /// Served by an index that is built and dropped.
    QAtLeast(i64),
    U(i64),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// Adds one to the counter.
    Inc,
    Set(Field, i64),
    SetK(Vec<i64>),
    /// Does not write the statement's number, so that two of them restore the same bytes.
    Toggle,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Stmt {
    Insert(Doc),
    /// Inserts in one commit or several, up to the first error.
    InsertMany(Vec<Doc>),
    Update {
        filter: Filter,
        change: Change,
        multi: bool,
    },
    /// Increments one document, or inserts it.
    Upsert(Doc),
    FindAndModify {
        filter: Filter,
        change: Option<Change>,
        new: bool,
    },
    Delete {
        filter: Filter,
        multi: bool,
    },
    Find(Filter),
    /// Number of documents, and the sum of their counters.
    Sum(Filter),
}

/// Changes of collections and indexes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ddl {
    /// Creates the initial indexes of the collections.
    Ensure,
    Build {
        unique: bool,
    },
    DropIndex,
    /// Makes the index on `p` unique, and reverts it.
    Convert,
    Drop,
    Reset,
    /// Renames the collection to another name, within the database or to another database, and
    /// back.
    Rename {
        to: usize,
    },
}

/// Effects of a statement.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Effects {
    /// Number of documents matched, deleted or inserted.
    pub(crate) n: u64,
    pub(crate) inserted: bool,
    /// Result of a findAndModify or of a read.
    pub(crate) docs: Vec<Doc>,
    /// Sum of the counters.
    pub(crate) sum: i64,
}

/// A document would duplicate a key in a unique or prepared index.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Duplicate;

impl Filter {
    pub(crate) fn matches(&self, doc: &Doc) -> bool {
        match self {
            Filter::All => true,
            Filter::Id(id) => doc.id == *id,
            Filter::K(k) => doc.k.contains(k),
            Filter::QAtLeast(q) => doc.q >= *q,
            Filter::U(u) => doc.u == *u,
        }
    }

    fn draw(random: &Random) -> Filter {
        match random.below(10) {
            0 => Filter::All,
            1..6 => Filter::Id(random.below(IDS) as i64),
            6..8 => Filter::K(random.below(3) as i64),
            8 => Filter::QAtLeast(random.below(FEW) as i64),
            _ => Filter::U(random.below(VALUES) as i64),
        }
    }
}

impl Change {
    pub(crate) fn apply(&self, doc: &Doc, number: i64) -> Doc {
        let mut doc = Doc { w: number, ..doc.clone() };
        match self {
            Change::Inc => doc.n += 1,
            Change::Set(field, value) => field.set(&mut doc, *value),
            Change::SetK(k) => doc.k = k.clone(),
            Change::Toggle => doc.t = 1 - doc.t,
        }
        doc
    }

    /// Returns true if it writes the statement's number.
    pub(crate) fn signs(&self) -> bool {
        !matches!(self, Change::Toggle)
    }

    fn transform(&self, before: &Doc, number: i64) -> Doc {
        let after = self.apply(before, number);
        match self.signs() {
            true => after,
            false => Doc { w: before.w, ..after },
        }
    }

    fn draw(random: &Random) -> Change {
        match random.below(12) {
            0..4 => Change::Inc,
            4..6 => Change::Toggle,
            6..8 => Change::Set(Field::U, random.below(VALUES) as i64),
            8 => Change::Set(Field::P, random.below(VALUES) as i64),
            9 => Change::Set(Field::Q, random.below(FEW) as i64),
            _ => Change::SetK(draw_k(random)),
        }
    }
}

fn draw_k(random: &Random) -> Vec<i64> {
    match random.below(4) {
        0 => vec![0, 2],
        1 => vec![2, 1],
        k => vec![k as i64 - 2],
    }
}

fn draw_doc(random: &Random, number: i64) -> Doc {
    let value = || random.below(VALUES) as i64;
    Doc {
        u: value(),
        p: value(),
        q: random.below(FEW) as i64,
        id: random.below(IDS) as i64,
        k: draw_k(random),
        t: 0,
        n: 0,
        w: number,
    }
}

impl Stmt {
    /// Returns a random statement. In a transaction, changes of one of several documents are
    /// excluded, because their choice is unknown.
    pub(crate) fn draw(random: &Random, number: i64, in_transaction: bool) -> Stmt {
        let one = |random: &Random| match in_transaction {
            true => Filter::Id(random.below(IDS) as i64),
            false => Filter::draw(random),
        };
        match random.below(20) {
            0..3 => Stmt::Insert(draw_doc(random, number)),
            3 => Stmt::InsertMany((0..2 + random.below(2)).map(|_| draw_doc(random, number)).collect()),
            4..8 => Stmt::Update { filter: one(random), change: Change::draw(random), multi: false },
            8 => {
                let change = if random.percent(70) { Change::Inc } else { Change::Toggle };
                Stmt::Update { filter: Filter::draw(random), change, multi: true }
            }
            9 => Stmt::Upsert(Doc { n: 1, ..draw_doc(random, number) }),
            10 => {
                let change = random.percent(70).then(|| Change::draw(random));
                Stmt::FindAndModify { filter: one(random), change, new: random.percent(50) }
            }
            11..13 => Stmt::Delete { filter: one(random), multi: false },
            13 if random.percent(40) => Stmt::Delete { filter: Filter::draw(random), multi: true },
            13..18 => Stmt::Find(Filter::draw(random)),
            _ => Stmt::Sum(Filter::draw(random)),
        }
    }

    pub(crate) fn is_read(&self) -> bool {
        matches!(self, Stmt::Find(_) | Stmt::Sum(_))
    }

    /// Returns the filter of the statement.
    pub(crate) fn filter(&self) -> Filter {
        match self {
            Stmt::Insert(doc) | Stmt::Upsert(doc) => Filter::Id(doc.id),
            Stmt::InsertMany(_) => Filter::All,
            Stmt::Update { filter, .. }
            | Stmt::FindAndModify { filter, .. }
            | Stmt::Delete { filter, .. }
            | Stmt::Find(filter)
            | Stmt::Sum(filter) => filter.clone(),
        }
    }

    pub(crate) fn is_multi(&self) -> bool {
        matches!(
            self,
            Stmt::InsertMany(_) | Stmt::Update { multi: true, .. } | Stmt::Delete { multi: true, .. }
        )
    }

    /// Returns the new version of a found document; `None` if it is deleted.
    pub(crate) fn transform(&self, before: &Doc, number: i64) -> Option<Doc> {
        match self {
            Stmt::Update { change, .. } | Stmt::FindAndModify { change: Some(change), .. } => {
                Some(change.transform(before, number))
            }
            Stmt::Upsert(_) => Some(Change::Inc.transform(before, number)),
            Stmt::Delete { .. } | Stmt::FindAndModify { change: None, .. } => None,
            Stmt::Insert(_) | Stmt::InsertMany(_) | Stmt::Find(_) | Stmt::Sum(_) => Some(before.clone()),
        }
    }

    /// Runs the statement on the documents visible to a transaction.
    pub(crate) fn run(
        &self,
        docs: &mut Docs,
        number: i64,
        unique: &BTreeSet<Field>,
    ) -> Result<Effects, Duplicate> {
        let found: Vec<Doc> = docs.values().filter(|doc| self.filter().matches(doc)).cloned().collect();
        let n = found.len() as u64;
        match self {
            Stmt::Find(_) => return Ok(Effects { n, docs: found, ..Effects::default() }),
            Stmt::Sum(_) => {
                let sum = found.iter().map(|doc| doc.n).sum();
                return Ok(Effects { n, sum, ..Effects::default() });
            }
            Stmt::Insert(doc) => {
                put(docs, None, doc.clone(), unique)?;
                return Ok(Effects { n: 1, inserted: true, ..Effects::default() });
            }
            Stmt::InsertMany(several) => {
                for doc in several {
                    put(docs, None, doc.clone(), unique)?;
                }
                return Ok(Effects { n: several.len() as u64, inserted: true, ..Effects::default() });
            }
            Stmt::Upsert(doc) if found.is_empty() => {
                put(docs, None, doc.clone(), unique)?;
                return Ok(Effects { inserted: true, ..Effects::default() });
            }
            _ => {}
        }
        let mut effects = Effects { n, ..Effects::default() };
        for before in &found {
            let after = self.transform(before, number);
            match &after {
                Some(after) => put(docs, Some(before), after.clone(), unique)?,
                None => _ = docs.remove(&before.id),
            }
            if let Stmt::FindAndModify { new, .. } = self {
                effects.docs.push(if *new { after.unwrap_or(before.clone()) } else { before.clone() });
            }
        }
        Ok(effects)
    }

    /// Returns the documents that it would write, with their old versions, even if they conflict
    /// with other documents.
    pub(crate) fn aims(&self, docs: &Docs, number: i64) -> Vec<(Option<Doc>, Doc)> {
        let found = docs.values().filter(|doc| self.filter().matches(doc));
        match self {
            Stmt::Insert(doc) => vec![(None, doc.clone())],
            Stmt::InsertMany(several) => several.iter().map(|doc| (None, doc.clone())).collect(),
            Stmt::Upsert(doc) if found.clone().next().is_none() => vec![(None, doc.clone())],
            _ => found.filter_map(|doc| Some((Some(doc.clone()), self.transform(doc, number)?))).collect(),
        }
    }
}

/// Returns true if a document conflicts with another one in a value that differs from its old
/// version.
pub(crate) fn collides(docs: &Docs, before: Option<&Doc>, doc: &Doc, unique: &BTreeSet<Field>) -> bool {
    let is_new = |field: &&Field| before.is_none_or(|before| field.of(before) != field.of(doc));
    let fields: Vec<Field> = unique.iter().filter(is_new).copied().collect();
    let mut others = docs.values().filter(|other| other.id != doc.id);
    before.is_none() && docs.contains_key(&doc.id)
        || others.any(|other| fields.iter().any(|field| field.of(other) == field.of(doc)))
}

fn put(docs: &mut Docs, before: Option<&Doc>, doc: Doc, unique: &BTreeSet<Field>) -> Result<(), Duplicate> {
    if collides(docs, before, &doc, unique) {
        return Err(Duplicate);
    }
    docs.insert(doc.id, doc);
    Ok(())
}

impl Ddl {
    pub(crate) fn draw(random: &Random) -> Ddl {
        match random.below(14) {
            0 => Ddl::Ensure,
            1..3 => Ddl::Build { unique: false },
            3..7 => Ddl::Build { unique: true },
            7..9 => Ddl::DropIndex,
            9..11 => Ddl::Convert,
            11 => Ddl::Drop,
            12 => Ddl::Reset,
            _ => Ddl::Rename { to: random.below(super::history::NAMESPACES.len() as u64) as usize },
        }
    }
}
