//! The fields that the branches of an `$or` look at, found in one pass over the document.
//!
//! Most documents match no branch, so all branches are tried; each by itself would begin at the
//! document's front again, which for short values is most of what a branch costs.

use super::node::Node;
use base::bson::{Document, Element};

/// How many branches are looked for at once.
const MOST: usize = 8;

/// The values that branches begin with.
pub(super) struct Siblings<'a> {
    found: [Option<Element<'a>>; MOST],
    /// The branches that are conditions on fields, a bit for each.
    fields: u32,
}

impl<'a> Siblings<'a> {
    /// Finds the fields of the branches; `None` where it doesn't pay.
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
        let mut wanted = fields;
        for element in document {
            let name = element.name_bytes();
            if lengths & length_bit(name) == 0 {
                continue;
            }
            for (at, (place, sought)) in siblings.found.iter_mut().zip(names).enumerate() {
                if wanted & (1 << at) != 0 && name == sought {
                    *place = Some(element);
                    wanted &= !(1 << at);
                }
            }
            if wanted == 0 {
                break;
            }
        }
        Some(siblings)
    }

    /// What a branch's path begins with, `Some(None)` where the field is missing; `None` where the
    /// branch is no condition on a field.
    pub(super) fn of(&self, branch: usize) -> Option<Option<Element<'a>>> {
        let is_field = branch < MOST && self.fields & (1 << branch) != 0;
        is_field.then(|| self.found.get(branch).copied().flatten())
    }
}

/// A bit for the length of a name: names whose bits differ are different.
fn length_bit(name: &[u8]) -> u64 {
    1 << (name.len() % 64)
}
