//! A property test: updates equal those of a slow and simple model on a tree of values.

use super::{document, leads};
use crate::{Context, Update};
use base::bson::{Builder, DocumentBuf, FieldName, FieldNameBuf, Value};
use proptest::prelude::*;

/// A document as a tree that is easy to change in place.
#[derive(Debug, Clone, PartialEq)]
enum Tree {
    Leaf(i32),
    Fields(Vec<(String, Tree)>),
    Items(Vec<Tree>),
}

#[derive(Debug, Clone)]
enum Operation {
    Set(String, i32),
    Unset(String),
    Increment(String, i32),
    Push(String, i32),
}

/// A refusal of the model. Its reason is not compared.
struct Refused;

impl Tree {
    fn write(&self, name: FieldName<'_>, out: &mut Builder) {
        match self {
            Tree::Leaf(value) => {
                out.append(name, *value);
            }
            Tree::Fields(fields) => {
                out.begin_document(name);
                fields.iter().for_each(|(name, tree)| tree.write(FieldName::trusted(name), out));
                out.end();
            }
            Tree::Items(items) => {
                out.begin_array(name);
                items
                    .iter()
                    .enumerate()
                    .for_each(|(at, tree)| tree.write(FieldNameBuf::of_number(at).view(), out));
                out.end();
            }
        }
    }

    /// Returns the node of a path, created if requested; `None` if it is missing.
    fn slot(&mut self, path: &[&str], create: bool) -> Result<Option<&mut Tree>, Refused> {
        let Some((first, rest)) = path.split_first() else { return Ok(Some(self)) };
        let next = match self {
            Tree::Leaf(_) if create => return Err(Refused),
            Tree::Leaf(_) => return Ok(None),
            Tree::Fields(fields) => match fields.iter().position(|(name, _)| name == first) {
                Some(at) => &mut fields[at].1,
                None if !create => return Ok(None),
                None => {
                    fields.push(((*first).to_owned(), Tree::Fields(Vec::new())));
                    &mut fields.last_mut().unwrap().1
                }
            },
            Tree::Items(items) => match first.parse::<usize>() {
                Ok(at) if at < items.len() => &mut items[at],
                Ok(at) if create && at == items.len() => {
                    items.push(Tree::Fields(Vec::new()));
                    items.last_mut().unwrap()
                }
                _ if create => return Err(Refused),
                _ => return Ok(None),
            },
        };
        next.slot(rest, create)
    }

    fn exists(&mut self, path: &[&str]) -> bool {
        matches!(self.slot(path, false), Ok(Some(_)))
    }

    fn apply(&mut self, operation: &Operation) -> Result<(), Refused> {
        let (Operation::Set(path, _)
        | Operation::Unset(path)
        | Operation::Increment(path, _)
        | Operation::Push(path, _)) = operation;
        let path: Vec<&str> = path.split('.').collect();
        let existed = self.exists(&path);
        match operation {
            Operation::Set(_, value) => *self.slot(&path, true)?.unwrap() = Tree::Leaf(*value),
            Operation::Unset(_) if !existed => {}
            Operation::Unset(_) => self.remove(&path),
            Operation::Increment(_, by) => match (self.slot(&path, true)?.unwrap(), existed) {
                (slot, false) => *slot = Tree::Leaf(*by),
                (Tree::Leaf(value), true) => *value += by,
                _ => return Err(Refused),
            },
            Operation::Push(_, value) => match (self.slot(&path, true)?.unwrap(), existed) {
                (slot, false) => *slot = Tree::Items(vec![Tree::Leaf(*value)]),
                (Tree::Items(items), true) => items.push(Tree::Leaf(*value)),
                _ => return Err(Refused),
            },
        }
        Ok(())
    }

    fn remove(&mut self, path: &[&str]) {
        let Some((last, parents)) = path.split_last() else { return };
        match self.slot(parents, false) {
            Ok(Some(Tree::Fields(fields))) => fields.retain(|(name, _)| name != last),
            // Only documents of the model without nulls are compared.
            Ok(Some(Tree::Items(items))) => items[last.parse::<usize>().unwrap()] = Tree::Leaf(i32::MIN),
            _ => {}
        }
    }
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = (0i32..9).prop_map(Tree::Leaf);
    let nested = leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(("[ab0]", inner.clone()), 0..3).prop_map(|mut fields| {
                fields.sort_by(|a, b| a.0.cmp(&b.0));
                fields.dedup_by(|a, b| a.0 == b.0);
                Tree::Fields(fields)
            }),
            prop::collection::vec(inner, 0..3).prop_map(Tree::Items),
        ]
    });
    prop::collection::vec(nested, 3).prop_map(|children| {
        Tree::Fields(["a", "b", "c"].iter().map(|name| (*name).to_owned()).zip(children).collect())
    })
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let path = || "[a-d](\\.[ab01]){0,3}";
    let one = prop_oneof![
        (path(), 0i32..9).prop_map(|(path, value)| Operation::Set(path, value)),
        path().prop_map(Operation::Unset),
        (path(), 1i32..9).prop_map(|(path, value)| Operation::Increment(path, value)),
        (path(), 0i32..9).prop_map(|(path, value)| Operation::Push(path, value)),
    ];
    // Sorted paths make the model create fields in the order of the update.
    prop::collection::vec(one, 1..4).prop_map(|mut operations| {
        operations.sort_by_key(|operation| operation_path(operation).to_owned());
        operations
    })
}

fn operation_path(operation: &Operation) -> &str {
    match operation {
        Operation::Set(path, _)
        | Operation::Unset(path)
        | Operation::Increment(path, _)
        | Operation::Push(path, _) => path,
    }
}

fn conflict(operations: &[Operation]) -> bool {
    let paths: Vec<_> = operations
        .iter()
        .map(|operation| base::bson::Path::new(FieldName::trusted(operation_path(operation))))
        .collect();
    (0..paths.len()).any(|i| (0..paths.len()).any(|j| i != j && paths[i].starts_with(&paths[j])))
}

fn update_text(operations: &[Operation]) -> String {
    let group = |text_of: fn(&Operation) -> Option<String>| {
        operations.iter().filter_map(text_of).collect::<Vec<_>>().join(", ")
    };
    let set = group(|o| if let Operation::Set(p, v) = o { Some(format!("'{p}': {v}")) } else { None });
    let unset = group(|o| if let Operation::Unset(p) = o { Some(format!("'{p}': 1")) } else { None });
    let inc = group(|o| if let Operation::Increment(p, v) = o { Some(format!("'{p}': {v}")) } else { None });
    let push = group(|o| if let Operation::Push(p, v) = o { Some(format!("'{p}': {v}")) } else { None });
    format!("{{$set: {{{set}}}, $unset: {{{unset}}}, $inc: {{{inc}}}, $push: {{{push}}}}}")
}

fn bytes(tree: &Tree) -> DocumentBuf {
    let mut out = Builder::new();
    if let Tree::Fields(fields) = tree {
        fields.iter().for_each(|(name, tree)| tree.write(FieldName::trusted(name), &mut out));
    }
    out.finish()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn updates_agree_with_the_model(tree in tree(), operations in operations()) {
        let context = Context::for_tests();
        let update = document(&update_text(&operations));
        let parsed = Update::parse(Value::Document(update.view()), &[], &context);
        prop_assert_eq!(parsed.is_err(), conflict(&operations));
        let Ok(parsed) = parsed else { return Ok(()) };
        let before = bytes(&tree);
        let mut model = tree.clone();
        let refused = operations.iter().try_for_each(|operation| model.apply(operation)).is_err();
        let found = parsed.apply(before.view(), None, false, &context);
        if let Ok(Some(after)) = &found {
            let diff = parsed.diff(before.view(), after.view(), None, &context).unwrap();
            prop_assert!(diff.is_some());
            leads(before.view(), after.view(), diff.as_ref(), false);
        }
        prop_assume!(!format!("{model:?}").contains("-2147483648"));
        match found {
            // The model does not pad arrays with nulls. It refuses too much only for that reason.
            Ok(Some(after)) if refused => prop_assert!(after.to_string().contains("null")),
            Ok(after) => {
                prop_assert!(!refused);
                let after = after.unwrap_or_else(|| before.clone());
                prop_assert_eq!(after.to_string(), bytes(&model).to_string());
            }
            Err(_) => prop_assert!(refused),
        }
    }
}
