//! Finds the fields of all branches of an `$or` in one pass over the document.
//!
//! Most documents match no branch, so all branches are evaluated. A separate search for each branch would start at the
//! front of the document again. For short values this is most of a branch's cost.
//!
//! Many conditions use an index of the document's fields, and of the elements of an array.

use super::comparison::{ComparisonOp, order};
use super::node::{Node, Predicate};
use super::walk::{Found, nested};
use crate::interrupt_check::sort_in_runs;
use crate::{Collation, Context};
use base::Result;
use base::bson::{Document, Element, Path, Type};
use foldhash::HashMap;

/// Maximum number of branches in one pass.
const MOST: usize = 8;

/// The values at the first path components of the branches.
pub(super) struct Siblings<'a> {
    found: [Option<Element<'a>>; MOST],
    /// Bit set of the branches that are conditions on fields.
    fields: u32,
}

impl<'a> Siblings<'a> {
    /// Finds the fields of the branches; `None` if separate searches are cheaper.
    pub(super) fn find(branches: &[Node], document: Document<'a>) -> Option<Siblings<'a>> {
        if branches.len() < 2 || branches.len() > MOST {
            return None;
        }
        let mut names: [&[u8]; MOST] = [&[]; MOST];
        let (mut fields, mut lengths) = (0u32, 0u64);
        for (at, (branch, place)) in branches.iter().zip(&mut names).enumerate() {
            if let Node::Field { path, .. } = branch {
                *place = path.first().as_bytes();
                fields |= 1 << at;
                lengths |= length_bit(place);
            }
        }
        if fields.count_ones() < 2 {
            return None;
        }
        let mut siblings = Siblings { found: [None; MOST], fields };
        let mut remaining = fields;
        for element in document {
            let name = element.name_bytes();
            if lengths & length_bit(name) == 0 {
                continue;
            }
            for (at, (place, sibling)) in siblings.found.iter_mut().zip(names).enumerate() {
                if remaining & (1 << at) != 0 && name == sibling {
                    *place = Some(element);
                    remaining &= !(1 << at);
                }
            }
            if remaining == 0 {
                break;
            }
        }
        Some(siblings)
    }

    /// Returns the value at the start of a branch's path: `Some(None)` if the field is missing, `None` if the branch is
    /// not a condition on a field.
    pub(super) fn of(&self, branch: usize) -> Option<Option<Element<'a>>> {
        let is_field = branch < MOST && self.fields & (1 << branch) != 0;
        is_field.then(|| self.found.get(branch).copied().flatten())
    }
}

/// Number of siblings that search separately before the others use an index.
pub(super) const MANY: usize = 32;

/// Returns the fields by name. As in a search, the first of several equal names counts.
pub(crate) fn fields_by_name(document: Document<'_>) -> HashMap<&[u8], Element<'_>> {
    let mut fields = HashMap::default();
    for element in document {
        fields.entry(element.name_bytes()).or_insert(element);
    }
    fields
}

/// The fields of a document by name, and the elements of one of its arrays in order.
pub(super) struct FieldIndex<'a, 'n> {
    fields: HashMap<&'a [u8], Element<'a>>,
    array: Option<(&'n Path, Vec<Element<'a>>)>,
}

impl<'a, 'n> FieldIndex<'a, 'n> {
    /// Builds the index.
    pub(super) fn new(document: Document<'a>) -> FieldIndex<'a, 'n> {
        FieldIndex { fields: fields_by_name(document), array: None }
    }

    /// Returns the value at the start of a path.
    pub(super) fn find(&self, path: &Path) -> Option<Element<'a>> {
        self.fields.get(path.first().as_bytes()).copied()
    }

    /// Finds what an equality with an element of an array finds, if `before`, an earlier sibling, has the same path
    /// (`$all` of many values). The outer `None` means that the index does not apply.
    pub(super) fn find_in_array(
        &mut self,
        node: &'n Node,
        before: Option<&Node>,
        array: Element<'a>,
        context: &Context,
        collation: &Collation,
    ) -> Result<Option<Option<Found<'a>>>> {
        let Node::Field { path, predicate: Predicate::Compare(equality) } = node else { return Ok(None) };
        let applies = equality.op == ComparisonOp::Eq
            && array.kind() == Type::Array
            && path.components().len() == 1
            && before.and_then(Node::path) == Some(path);
        if !applies {
            return Ok(None);
        }
        if self.array.as_ref().is_none_or(|(known, _)| *known != path) {
            let mut elements: Vec<_> = nested(array).iter().collect();
            sort_in_runs(&mut elements, &*context.interrupt, |a, b| collation.compare(a.value(), b.value()))?;
            self.array = Some((path, elements));
        }
        let elements = self.array.as_ref().map_or(&[][..], |(_, elements)| elements);
        let at = elements.partition_point(|element| order(element, &equality.operand, collation).is_lt());
        let found = elements.get(at).filter(|element| equality.test(Some(element), collation));
        Ok(Some(match found {
            Some(element) => Some(Found { element: Some(*element), position: Some(element.name_bytes()) }),
            None => equality
                .test(Some(&array), collation)
                .then_some(Found { element: Some(array), position: None }),
        }))
    }
}

/// Returns a bit for the length of a name. Names with different bits differ.
fn length_bit(name: &[u8]) -> u64 {
    1 << (name.len() % 64)
}
