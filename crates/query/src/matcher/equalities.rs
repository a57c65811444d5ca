//! Equalities of a filter, whose fields an upsert puts into its new document.

use super::comparison::ComparisonOp;
use super::node::{Node, Predicate};
use crate::field_path::PathConflicts;
use base::bson::{Path, Value};
use base::{Result, bail};

/// Number of equalities up to which each one is compared with all before it.
const FEW: usize = 16;

/// Returns the equalities at the top of the tree or within `$and`.
///
/// Errors: NotSingleValueField if two of them name one path, or a path and a path below it.
pub(super) fn equalities(root: &Node) -> Result<Vec<(&Path, Value<'_>)>> {
    let mut equalities: Vec<(&Path, Value<'_>)> = Vec::new();
    let children =
        if let Node::And(children) = root { children.as_slice() } else { std::slice::from_ref(root) };
    for child in children {
        let Node::Field { path, predicate: Predicate::Compare(comparison) } = child else { continue };
        if comparison.op == ComparisonOp::Eq {
            equalities.push((path, comparison.operand.view()));
        }
    }
    check_conflicts(&equalities)?;
    Ok(equalities)
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
    const WHY: &str = "cannot infer query fields to set";
    if a == b {
        bail!(NotSingleValueField, "{WHY}, path '{a}' is matched twice");
    }
    if a.starts_with(b) || b.starts_with(a) {
        let (shorter, longer) = if a.starts_with(b) { (b, a) } else { (a, b) };
        bail!(NotSingleValueField, "{WHY}, both paths '{longer}' and '{shorter}' are matched");
    }
    Ok(())
}
