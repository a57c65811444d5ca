//! A change as the server takes it: its expectations and its batch, sorted into groups, which are parameters of
//! the function `apply`, or of one statement where there are few (`direct.rs`).
//!
//! An expectation about a key that the batch changes becomes the condition of that very change, so that a
//! row is touched once. Rows are sorted by their keys, so that two changes lock them in the same order.

use crate::connection::Param;
use crate::keys::{self, beside, stored};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::BTreeMap;
use storage::store::Expect;
use storage::{Ident, Key, Op, Value};

/// How many arrays and numbers `apply` takes.
const PARAMS: usize = 38;

/// A part of a batch without changes of whole trees: what becomes of each key.
pub(crate) type Writes = BTreeMap<(Ident, Key), Option<Value>>;

/// A step of a batch.
pub(crate) enum Step {
    /// Keys put and deleted.
    Writes(Writes),
    /// A tree made, removed, emptied or copied.
    Tree(Op),
}

/// Splits a batch where it changes whole trees. A change of a tree goes before all writes that don't touch it, so that
/// those of a database's thousand trees are one step between two.
pub(crate) fn steps(batch: storage::Batch) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut writes = Writes::new();
    for op in batch {
        match op {
            Op::Put { ident, key, value } => _ = writes.insert((ident, key), Some(value)),
            Op::Delete { ident, key } => _ = writes.insert((ident, key), None),
            Op::Create(tree) | Op::Drop(tree) | Op::Clear(tree) => {
                if touches(&writes, tree) {
                    steps.push(Step::Writes(std::mem::take(&mut writes)));
                }
                steps.push(Step::Tree(op));
            }
            Op::Fork { from, to } => {
                if touches(&writes, from) || touches(&writes, to) {
                    steps.push(Step::Writes(std::mem::take(&mut writes)));
                }
                steps.push(Step::Tree(op));
            }
        }
    }
    if !writes.is_empty() {
        steps.push(Step::Writes(writes));
    }
    steps
}

/// Whether there is any key of a tree among them.
fn touches(writes: &Writes, tree: Ident) -> bool {
    writes.range((tree, Key::from(&[][..]))..).next().is_some_and(|((first, _), _)| *first == tree)
}

/// What else `apply` does.
#[derive(Default)]
pub(crate) struct Extras {
    /// Records changed in collections with an index being built, by the index's tree.
    pub(crate) marks: Vec<(i64, i64)>,
    /// How counts change, by tree: documents and bytes.
    pub(crate) counts: BTreeMap<i64, (i64, i64)>,
    /// Which of a count's rows is changed.
    pub(crate) slot: i64,
}

/// One group of rows: numbers of trees, keys, long keys, values, digests.
#[derive(Default)]
pub(crate) struct Group<'a> {
    idents: Vec<i64>,
    keys: Vec<Cow<'a, [u8]>>,
    long: Vec<Option<&'a [u8]>>,
    values: Vec<Option<&'a [u8]>>,
    digests: Vec<Option<[u8; 32]>>,
}

impl<'a> Group<'a> {
    fn add(&mut self, ident: Ident, key: &'a [u8], value: Option<&'a [u8]>, digest: Option<[u8; 32]>) {
        self.idents.push(keys::ident(ident));
        self.keys.push(stored(key));
        self.long.push(beside(key));
        self.values.push(value);
        self.digests.push(digest);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.idents.is_empty()
    }

    /// Whether any of its rows has a value to be compared.
    pub(crate) fn compares(&self) -> bool {
        self.digests.iter().any(Option::is_some)
    }
}

/// The groups of a change, each as `apply` in schema.sql explains it.
#[derive(Default)]
pub(crate) struct Sorted<'a> {
    /// The collections that are to be as they were: their trees and generations.
    pub(crate) generations: (Vec<i64>, Vec<i64>),
    pub(crate) free: Group<'a>,
    pub(crate) put: Group<'a>,
    pub(crate) own: Group<'a>,
    pub(crate) update: Group<'a>,
    pub(crate) delete: Group<'a>,
    pub(crate) remove: Group<'a>,
    pub(crate) value: Group<'a>,
    pub(crate) none_or: Group<'a>,
    pub(crate) under: Group<'a>,
}

impl<'a> Sorted<'a> {
    /// Sorts a change. `is_claimed` says that a transaction has claimed all keys, which therefore may be there with
    /// nothing in them.
    pub(crate) fn new(writes: &'a Writes, expect: &'a [Expect], is_claimed: bool) -> Sorted<'a> {
        let mut sorted = Sorted::default();
        let Sorted { generations, free, put, own, update, delete, remove, value, none_or, under } =
            &mut sorted;
        let mut conditions: BTreeMap<(Ident, &[u8]), &Expect> = BTreeMap::new();
        for expect in expect {
            match expect {
                Expect::Generation { ident, generation } => {
                    generations.0.push(keys::ident(*ident));
                    generations.1.push(*generation as i64);
                }
                Expect::NoneUnder { ident, prefix } => under.add(*ident, prefix, None, None),
                Expect::Value { ident, key, value: there } => {
                    if !writes.contains_key(&(*ident, key.clone())) {
                        value.add(*ident, key, None, there.as_ref().map(|there| digest(there)));
                    }
                    conditions.insert((*ident, key), expect);
                }
                Expect::NoneOr { ident, key, value } => {
                    none_or.add(*ident, key, None, Some(digest(value)));
                    conditions.insert((*ident, key), expect);
                }
            }
        }
        for ((ident, key), written) in writes {
            let condition = conditions.get(&(*ident, &**key));
            let bytes = written.as_deref();
            match (condition, written) {
                (Some(Expect::Value { value: None, .. }), Some(_)) if !is_claimed => {
                    free.add(*ident, key, bytes, None);
                }
                (Some(Expect::Value { value: Some(there), .. }), Some(_)) => {
                    update.add(*ident, key, bytes, Some(digest(there)));
                }
                (Some(Expect::Value { value: Some(there), .. }), None) => {
                    delete.add(*ident, key, None, Some(digest(there)));
                }
                (Some(Expect::NoneOr { .. }), Some(_)) => own.add(*ident, key, bytes, None),
                (Some(Expect::NoneOr { value, .. }), None) => {
                    remove.add(*ident, key, None, Some(digest(value)));
                }
                (_, Some(_)) => put.add(*ident, key, bytes, None),
                (_, None) => remove.add(*ident, key, None, None),
            }
        }
        sorted
    }

    /// Takes the keys that get values, free or not, for ones that are free. Where they aren't, the server says so.
    pub(crate) fn take_all_for_free(&mut self) {
        let put = std::mem::take(&mut self.put);
        self.free.idents.extend(put.idents);
        self.free.keys.extend(put.keys);
        self.free.long.extend(put.long);
        self.free.values.extend(put.values);
        self.free.digests.extend(put.digests);
    }

    /// Runs something with the parameters of `apply`.
    pub(crate) fn apply<T>(&self, extras: &Extras, work: impl FnOnce(&[Param<'_>]) -> T) -> T {
        let Sorted { generations, free, put, own, update, delete, remove, value, none_or, under } = self;
        let marks: (Vec<i64>, Vec<i64>) = extras.marks.iter().copied().unzip();
        let count_idents: Vec<i64> = extras.counts.keys().copied().collect();
        let (records, bytes): (Vec<i64>, Vec<i64>) = extras.counts.values().copied().unzip();
        let [free, put, own] = [free, put, own].map(View::new);
        let [update, delete, remove, value, none_or, under] =
            [update, delete, remove, value, none_or, under].map(View::new);
        let mut params = Vec::with_capacity(PARAMS);
        params.extend([Param::Ints(&generations.0), Param::Ints(&generations.1)]);
        for view in [&free, &put, &own] {
            params.extend([view.idents(), view.keys(), view.long(), view.values()]);
        }
        params.extend([update.idents(), update.keys(), update.values(), update.digests()]);
        for view in [&delete, &remove, &value, &none_or] {
            params.extend([view.idents(), view.keys(), view.digests()]);
        }
        params.extend([under.idents(), under.keys(), Param::Ints(&marks.0), Param::Ints(&marks.1)]);
        params.push(Param::Ints(&count_idents));
        params.extend([Param::Int(extras.slot), Param::Ints(&records), Param::Ints(&bytes)]);
        work(&params)
    }
}

/// A group's arrays, borrowed.
pub(crate) struct View<'a> {
    group: &'a Group<'a>,
    keys: Vec<Option<&'a [u8]>>,
    digests: Vec<Option<&'a [u8]>>,
}

impl<'a> View<'a> {
    pub(crate) fn new(group: &'a Group<'a>) -> View<'a> {
        View {
            keys: group.keys.iter().map(|key| Some(&**key)).collect(),
            digests: group.digests.iter().map(|digest| digest.as_ref().map(|digest| &digest[..])).collect(),
            group,
        }
    }

    pub(crate) fn idents(&self) -> Param<'_> {
        Param::Ints(&self.group.idents)
    }

    pub(crate) fn keys(&self) -> Param<'_> {
        Param::Many(&self.keys)
    }

    pub(crate) fn long(&self) -> Param<'_> {
        Param::Many(&self.group.long)
    }

    pub(crate) fn values(&self) -> Param<'_> {
        Param::Many(&self.group.values)
    }

    pub(crate) fn digests(&self) -> Param<'_> {
        Param::Many(&self.digests)
    }
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_change_together_where_no_write_is_in_between() {
        let (catalog, key) = (Ident(1), |name: &str| Key::from(name.as_bytes()));
        let mut batch = storage::Batch::new();
        for number in 10..1010 {
            batch.delete(catalog, key(&number.to_string()));
            batch.drop_ident(Ident(number));
        }
        batch.put(Ident(5), key("a"), Value::from(&b"1"[..]));
        batch.clear(Ident(5));
        batch.put(Ident(5), key("b"), Value::from(&b"2"[..]));
        let told = |step: &Step| match step {
            Step::Writes(writes) => format!("{} writes", writes.len()),
            Step::Tree(op) => format!("{op:?}"),
        };
        let told: Vec<String> = steps(batch).iter().map(told).collect();
        assert_eq!(told.len(), 1003);
        assert!(told.iter().take(1000).all(|step| step.starts_with("Drop")));
        assert_eq!(told[1000..], ["1001 writes", "Clear(Ident(5))", "1 writes"]);
    }
}
