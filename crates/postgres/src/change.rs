//! A change in the form that the server takes: expectations and batch, sorted into groups of rows. The groups are
//! parameters of the function `apply`, or of one statement if they are few (`direct.rs`).
//!
//! An expectation about a key that the batch changes becomes the condition of that change, so each row is touched once.
//! Rows are sorted by key, so two changes lock them in the same order. A new kind of expectation is a group in
//! [`Sorted`] and an array parameter of `apply`.

use crate::connection::Param;
use crate::keys::{self, index_key, long_key};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use storage::store::Expect;
use storage::{Ident, Key, Op, Value};

/// Number of arrays and integers that `apply` takes.
const APPLY_PARAMS: usize = 39;

/// A part of a batch that changes no whole trees: the new value of each key (`None` deletes).
pub(crate) type Writes = BTreeMap<(Ident, Key), Option<Value>>;

/// A step of a batch.
pub(crate) enum Step {
    /// Puts and deletes keys.
    Writes(Writes),
    /// Creates, removes, empties or copies a tree.
    Tree(Op),
}

/// Splits a batch at its changes of whole trees. A change of a tree moves ahead of all writes to other trees. The
/// thousand trees of a database therefore form one step.
pub(crate) fn steps(batch: storage::Batch) -> Vec<Step> {
    if !batch.is_empty() && batch.ops().iter().all(|op| matches!(op, Op::Put { .. } | Op::Delete { .. })) {
        // Faster than single inserts if the keys are many.
        let writes = batch.into_iter().filter_map(|op| match op {
            Op::Put { ident, key, value } => Some(((ident, key), Some(value))),
            Op::Delete { ident, key } => Some(((ident, key), None)),
            Op::Create(_) | Op::Drop(_) | Op::Clear(_) | Op::Fork { .. } => None,
        });
        return vec![Step::Writes(writes.collect())];
    }
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
    debug_assert!(
        !steps.iter().any(|step| matches!(step, Step::Writes(writes) if writes.is_empty())),
        "a step without writes costs a round trip"
    );
    steps
}

/// Returns true if the writes contain a key of the tree.
fn touches(writes: &Writes, tree: Ident) -> bool {
    writes.range((tree, Key::from(&[][..]))..).next().is_some_and(|((first, _), _)| *first == tree)
}

/// Side effects of `apply`.
#[derive(Clone, Default)]
pub(crate) struct Extras {
    /// Changed records of collections with an index build: the tree of the index, and the record.
    pub(crate) marks: Vec<(i64, i64)>,
    /// Changes of counts by tree: documents and bytes.
    pub(crate) counts: BTreeMap<i64, (i64, i64)>,
    /// Row of each count that is changed.
    pub(crate) slot: i64,
    /// Incarnation in which the change was planned; `None` for a change that any incarnation may apply.
    pub(crate) planned_in: Option<u64>,
}

impl Extras {
    /// Adds the changes of counts of another commit of a group.
    pub(crate) fn add(&mut self, other: &Extras) {
        debug_assert!(other.marks.is_empty(), "a commit of a group has marks");
        self.slot = other.slot;
        for (of, (records, bytes)) in &other.counts {
            let sum = self.counts.entry(*of).or_default();
            *sum = (sum.0 + records, sum.1 + bytes);
        }
    }
}

/// One group of rows: tree numbers, keys, long keys, values, digests.
#[derive(Default)]
pub(crate) struct Group<'a> {
    idents: Vec<i64>,
    keys: Vec<Cow<'a, [u8]>>,
    /// The whole key, if the index truncates it.
    long: Vec<Option<&'a [u8]>>,
    values: Vec<Option<&'a [u8]>>,
    /// SHA-256 of the expected value; `None` expects nothing about it.
    digests: Vec<Option<[u8; 32]>>,
}

impl<'a> Group<'a> {
    /// Adds a row. A long key is split into its truncated form and the whole key.
    fn add(&mut self, ident: Ident, key: &'a [u8], value: Option<&'a [u8]>, digest: Option<[u8; 32]>) {
        self.idents.push(keys::stored_ident(ident));
        self.keys.push(index_key(key));
        self.long.push(long_key(key));
        self.values.push(value);
        self.digests.push(digest);
        self.assert_valid();
    }

    /// Asserts that all columns have the same number of rows.
    fn assert_valid(&self) {
        let rows = self.idents.len();
        debug_assert!(
            self.keys.len() == rows && self.long.len() == rows,
            "{rows} trees, {} keys",
            self.keys.len()
        );
        debug_assert!(
            self.values.len() == rows && self.digests.len() == rows,
            "{rows} trees with other values"
        );
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.idents.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.idents.len()
    }

    /// Returns true if any row compares a value.
    pub(crate) fn compares(&self) -> bool {
        self.digests.iter().any(Option::is_some)
    }
}

/// The groups of a change, as `apply` in schema.sql explains them.
#[derive(Default)]
pub(crate) struct Sorted<'a> {
    /// Collections that must be unchanged: their trees and generations.
    pub(crate) generations: (Vec<i64>, Vec<i64>),
    /// Keys that must be absent, with their new values.
    pub(crate) insert: Group<'a>,
    /// Keys that get a value, absent or not.
    pub(crate) put: Group<'a>,
    /// Keys that must be absent or have this value already, such as unique keys of the own record.
    pub(crate) same: Group<'a>,
    /// Keys whose value must be as expected, and changes.
    pub(crate) update: Group<'a>,
    /// Keys whose value must be as expected, and which are deleted.
    pub(crate) delete: Group<'a>,
    /// Keys that are deleted; with a digest only if their value is as expected.
    pub(crate) remove: Group<'a>,
    /// Keys whose value must be as expected, and stays; without a digest they must be absent.
    pub(crate) value: Group<'a>,
    /// Keys that must be absent or have the expected value.
    pub(crate) none_or: Group<'a>,
    /// Prefixes under which no key may exist.
    pub(crate) prefix: Group<'a>,
}

impl<'a> Sorted<'a> {
    /// Sorts a change. `is_claimed` says that a transaction holds write intents on all keys. Such a key may exist
    /// without a value.
    pub(crate) fn new(writes: &'a Writes, expect: &'a [Expect], is_claimed: bool) -> Sorted<'a> {
        let mut sorted = Sorted::default();
        let Sorted { generations, insert, put, same, update, delete, remove, value, none_or, prefix } =
            &mut sorted;
        let mut conditions: Vec<((Ident, &'a [u8]), &'a Expect)> = Vec::with_capacity(expect.len());
        for expect in expect {
            match expect {
                Expect::Generation { ident, generation } => {
                    generations.0.push(keys::stored_ident(*ident));
                    generations.1.push(*generation as i64);
                }
                Expect::NoneUnder { ident, prefix: under } => prefix.add(*ident, under, None, None),
                Expect::Value { ident, key, .. } => {
                    conditions.push(((*ident, key), expect));
                }
                Expect::NoneOr { ident, key, value } => {
                    none_or.add(*ident, key, None, Some(digest(value)));
                    conditions.push(((*ident, key), expect));
                }
            }
        }
        conditions.sort_by_key(|(at, _)| *at);
        let mut without_write = |(ident, key): (Ident, &'a [u8]), expect: &'a Expect| {
            if let Expect::Value { value: expected, .. } = expect {
                value.add(ident, key, None, expected.as_ref().map(|expected| digest(expected)));
            }
        };
        // Conditions and writes are in the order of their keys.
        let mut conditions = conditions.into_iter().peekable();
        for ((ident, key), written) in writes {
            let at = (*ident, &**key);
            let mut condition = None;
            while let Some((other, expect)) = conditions.next_if(|(other, _)| *other <= at) {
                match other == at {
                    true => condition = Some(expect),
                    false => without_write(other, expect),
                }
            }
            let bytes = written.as_deref();
            match (condition, written) {
                (Some(Expect::Value { value: None, .. }), Some(_)) if !is_claimed => {
                    insert.add(*ident, key, bytes, None);
                }
                (Some(Expect::Value { value: Some(expected), .. }), Some(_)) => {
                    update.add(*ident, key, bytes, Some(digest(expected)));
                }
                (Some(Expect::Value { value: Some(expected), .. }), None) => {
                    delete.add(*ident, key, None, Some(digest(expected)));
                }
                (Some(Expect::NoneOr { .. }), Some(_)) => same.add(*ident, key, bytes, None),
                (Some(Expect::NoneOr { value, .. }), None) => {
                    remove.add(*ident, key, None, Some(digest(value)));
                }
                (_, Some(_)) => put.add(*ident, key, bytes, None),
                (_, None) => remove.add(*ident, key, None, None),
            }
        }
        conditions.for_each(|(at, expect)| without_write(at, expect));
        let changes = [insert, put, same, update, delete, remove];
        debug_assert_eq!(
            changes.iter().map(|group| group.idents.len()).sum::<usize>(),
            writes.len(),
            "a write is in no group, or in two"
        );
        sorted
    }

    /// Removes repeated expectations of collections.
    pub(crate) fn merge_generations(&mut self) {
        let (idents, generations) = std::mem::take(&mut self.generations);
        let expected: BTreeSet<(i64, i64)> = idents.into_iter().zip(generations).collect();
        self.generations = expected.into_iter().unzip();
    }

    /// Treats all puts as inserts of absent keys. The server refuses the statement if a key exists.
    pub(crate) fn treat_puts_as_inserts(&mut self) {
        let put = std::mem::take(&mut self.put);
        self.insert.idents.extend(put.idents);
        self.insert.keys.extend(put.keys);
        self.insert.long.extend(put.long);
        self.insert.values.extend(put.values);
        self.insert.digests.extend(put.digests);
        self.insert.assert_valid();
        debug_assert!(self.put.is_empty(), "a put is in two groups");
    }

    /// Calls `work` with the parameters of `apply`.
    pub(crate) fn apply<T>(&self, extras: &Extras, work: impl FnOnce(&[Param<'_>]) -> T) -> T {
        let Sorted { generations, insert, put, same, update, delete, remove, value, none_or, prefix } = self;
        let marks: (Vec<i64>, Vec<i64>) = extras.marks.iter().copied().unzip();
        let count_idents: Vec<i64> = extras.counts.keys().copied().collect();
        let (records, bytes): (Vec<i64>, Vec<i64>) = extras.counts.values().copied().unzip();
        let [insert, put, same] = [insert, put, same].map(View::new);
        let [update, delete, remove, value, none_or, prefix] =
            [update, delete, remove, value, none_or, prefix].map(View::new);
        let mut params = Vec::with_capacity(APPLY_PARAMS);
        params.extend([Param::Ints(&generations.0), Param::Ints(&generations.1)]);
        for view in [&insert, &put, &same] {
            params.extend([view.idents(), view.keys(), view.long(), view.values()]);
        }
        params.extend([update.idents(), update.keys(), update.values(), update.digests()]);
        for view in [&delete, &remove, &value, &none_or] {
            params.extend([view.idents(), view.keys(), view.digests()]);
        }
        params.extend([prefix.idents(), prefix.keys(), prefix.long()]);
        params.extend([Param::Ints(&marks.0), Param::Ints(&marks.1)]);
        params.push(Param::Ints(&count_idents));
        params.extend([Param::Int(extras.slot), Param::Ints(&records), Param::Ints(&bytes)]);
        work(&params)
    }
}

/// The arrays of a group, borrowed.
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

    pub(crate) fn is_empty(&self) -> bool {
        self.group.is_empty()
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

/// Returns the SHA-256 that the server compares with the stored value.
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
        let described = |step: &Step| match step {
            Step::Writes(writes) => format!("{} writes", writes.len()),
            Step::Tree(op) => format!("{op:?}"),
        };
        let described: Vec<String> = steps(batch).iter().map(described).collect();
        assert_eq!(described.len(), 1003);
        assert!(described.iter().take(1000).all(|step| step.starts_with("Drop")));
        assert_eq!(described[1000..], ["1001 writes", "Clear(Ident(5))", "1 writes"]);
    }
}
