//! Finds the fields of all branches of an `$or` in one pass over the document.
//!
//! Most documents match no branch, so all branches are evaluated. A separate search for each branch would start at the
//! front of the document again. For short values this is most of a branch's cost.

use super::node::Node;
use base::bson::{Document, Element};

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

/// Returns a bit for the length of a name. Names with different bits differ.
fn length_bit(name: &[u8]) -> u64 {
    1 << (name.len() % 64)
}
