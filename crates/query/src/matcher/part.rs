//! Conditions of a filter's outermost `$and`: a subset that an index has not decided, and the equalities that an upsert
//! puts into its new document.

use super::comparison::ComparisonOp;
use super::evaluate::{Evaluation, Subject};
use super::node::{Node, Predicate};
use super::{Matcher, describe};
use crate::Context;
use crate::field_path::PathConflicts;
use base::bson::{Builder, Document, DocumentBuf, Path, Value};
use base::{Result, bail};
use std::sync::Arc;

/// A filter, or some of its conditions.
#[derive(Clone, Debug)]
pub struct Part {
    matcher: Arc<Matcher>,
    /// The conditions in use; `None` means all.
    selected: Option<Vec<bool>>,
}

impl Matcher {
    /// The conditions of the outermost `$and`. Any other filter is its only condition.
    pub fn members(&self) -> &[Node] {
        match &*self.root {
            Node::And(children) => children.as_slice(),
            single => std::slice::from_ref(single),
        }
    }
}

impl Part {
    /// All conditions.
    pub fn all(matcher: Arc<Matcher>) -> Part {
        Part { matcher, selected: None }
    }

    /// Selects the conditions for which `selected` is true.
    pub fn of(matcher: &Arc<Matcher>, selected: Vec<bool>) -> Part {
        Part { matcher: matcher.clone(), selected: Some(selected) }
    }

    /// Whether a document satisfies all selected conditions.
    ///
    /// Errors: as [`Matcher::matches`].
    #[inline]
    pub fn matches(&self, document: Document<'_>, context: &Context) -> Result<bool> {
        if self.selected.is_none() {
            return self.matcher.matches(document, context);
        }
        for member in self.members() {
            let mut evaluation = Evaluation::new(&self.matcher, context);
            if !evaluation.matches(member, Subject::Document(document))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The conditions in the form that explain prints.
    pub fn describe(&self) -> DocumentBuf {
        if self.selected.is_none() {
            return self.matcher.describe();
        }
        let members: Vec<&Node> = self.members().collect();
        let mut out = Builder::new();
        match members.as_slice() {
            [only] => describe::describe(only, &mut out),
            several => {
                out.begin_array(c"$and");
                for member in several {
                    out.push_document();
                    describe::describe(member, &mut out);
                    out.end();
                }
                out.end();
            }
        }
        out.finish()
    }

    /// Iterates over the selected conditions.
    fn members(&self) -> impl Iterator<Item = &Node> {
        let selected = self.selected.as_deref();
        let is_selected =
            move |at: usize| selected.is_none_or(|selected| selected.get(at).copied().unwrap_or(false));
        self.matcher
            .members()
            .iter()
            .enumerate()
            .filter(move |(at, _)| is_selected(*at))
            .map(|(_, member)| member)
    }
}

/// Start of the message of NotSingleValueField.
const NOT_INFERRED: &str = "cannot infer query fields to set";

/// Number of equalities up to which each one is compared with all before it.
const FEW: usize = 16;

/// Returns the equalities at the top of the tree or within `$and`.
///
/// Errors: NotSingleValueField if two of them name one path, or a path and a path below it.
pub(super) fn equalities(root: &Node) -> Result<Vec<(&Path, Value<'_>)>> {
    let equalities: Vec<_> = all_equalities(root).collect();
    check_conflicts(&equalities)?;
    Ok(equalities)
}

/// Returns the operand of the equality of `_id` at the top of the tree or within `$and`.
///
/// Errors: NotExactValueField for an equality below `_id`; NotSingleValueField for two equalities.
pub(super) fn id_equality(root: &Node) -> Result<Option<Value<'_>>> {
    let mut id = None;
    for (path, value) in all_equalities(root).filter(|(path, _)| path.first() == "_id") {
        if path.as_str() != "_id" {
            bail!(
                NotExactValueField,
                "field at '_id' must be exactly specified, field at sub-path '{path}'found"
            );
        }
        if id.replace(value).is_some() {
            bail!(NotSingleValueField, "{NOT_INFERRED}, path '_id' is matched twice");
        }
    }
    Ok(id)
}

fn all_equalities(root: &Node) -> impl Iterator<Item = (&Path, Value<'_>)> {
    let children =
        if let Node::And(children) = root { children.as_slice() } else { std::slice::from_ref(root) };
    children.iter().filter_map(|child| match child {
        Node::Field { path, predicate: Predicate::Compare(comparison) }
            if comparison.op == ComparisonOp::Eq =>
        {
            Some((path, comparison.operand.view()))
        }
        _ => None,
    })
}

/// Refuses two equalities whose paths are equal or nested. Errors: NotSingleValueField for the first of them.
fn check_conflicts(equalities: &[(&Path, Value<'_>)]) -> Result<()> {
    let mut known = PathConflicts::default();
    for (at, (path, _)) in equalities.iter().enumerate() {
        if equalities.len() <= FEW || known.add(path.as_str()) {
            equalities.iter().take(at).try_for_each(|(other, _)| check_conflict(other, path))?;
        }
    }
    Ok(())
}

/// Refuses two paths that are equal or nested. Errors: NotSingleValueField.
fn check_conflict(a: &Path, b: &Path) -> Result<()> {
    if a == b {
        bail!(NotSingleValueField, "{NOT_INFERRED}, path '{a}' is matched twice");
    }
    if a.starts_with(b) || b.starts_with(a) {
        let (shorter, longer) = if a.starts_with(b) { (b, a) } else { (a, b) };
        bail!(NotSingleValueField, "{NOT_INFERRED}, both paths '{longer}' and '{shorter}' are matched");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json::parse;

    #[test]
    fn a_part_matches_only_its_members() {
        let context = Context::for_tests();
        let filter = parse("{a: 1, b: {$gt: 2}, c: 3}").unwrap();
        let matcher = Arc::new(Matcher::parse(filter.view(), &context).unwrap());
        let matches = |part: &Part, text: &str| part.matches(parse(text).unwrap().view(), &context).unwrap();
        // Equalities precede other conditions in the order of MongoDB's explain.
        let part = Part::of(&matcher, vec![false, true, true]);
        assert!(matches(&part, "{b: 3, c: 3}") && !matches(&part, "{a: 1, b: 3}"));
        assert_eq!(part.describe(), parse("{$and: [{c: {$eq: 3}}, {b: {$gt: 2}}]}").unwrap());
        assert_eq!(Part::of(&matcher, vec![false, true, false]).describe(), parse("{c: {$eq: 3}}").unwrap());
        assert!(!matches(&Part::all(matcher), "{b: 3, c: 3}"));
    }
}
