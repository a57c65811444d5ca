//! The tree of a projection: the treatment of each named field, nested like the paths.

use crate::Expression;
use crate::Matcher;
use base::bson::{FieldName, FieldNameBuf};
use base::{Result, bail};
use std::collections::HashMap;
use std::sync::Arc;

/// Number of children up to which linear search is faster than hashing.
const FEW: usize = 16;

/// The treatment of one field.
#[derive(Debug, Clone)]
pub(super) enum Node {
    /// The field is included or excluded: the leaf of `a: 1` and `a: 0`.
    Listed,
    /// The tree applies to the fields below.
    Below(Tree),
    /// The field is computed.
    Computed(Expression),
    /// The part of an array that find's `$slice` selects.
    Slice(Slice),
    /// The first element of an array that find's `$elemMatch` matches.
    ElemMatch(Arc<Matcher>),
}

/// The bounds of find's `$slice`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slice {
    /// Elements to skip; negative values count from the end.
    pub(super) skip: i64,
    /// Elements to keep.
    pub(super) limit: i64,
}

/// The named fields of one level, in the order of the specification.
#[derive(Debug, Clone, Default)]
pub(super) struct Tree {
    pub(super) children: Vec<(FieldNameBuf, Node)>,
    /// The position of each child; empty while they are few.
    positions: HashMap<FieldNameBuf, usize>,
    /// Whether a field here or below is computed, so missing fields may appear.
    pub(super) computes: bool,
}

impl Tree {
    /// The position of a child by name.
    #[inline]
    pub(super) fn find(&self, name: &[u8]) -> Option<usize> {
        if self.children.len() > FEW {
            return self.find_hashed(name);
        }
        self.children.iter().position(|(child, _)| child.as_bytes() == name)
    }

    #[cold]
    fn find_hashed(&self, name: &[u8]) -> Option<usize> {
        self.positions.get(std::str::from_utf8(name).ok()?).copied()
    }

    /// Appends a child.
    fn push(&mut self, name: FieldName<'_>, node: Node) {
        if self.children.len() >= FEW {
            if self.positions.is_empty() {
                let position =
                    |(position, (name, _)): (usize, &(FieldNameBuf, Node))| (name.clone(), position);
                self.positions = self.children.iter().enumerate().map(position).collect();
            }
            self.positions.insert(name.to_owned(), self.children.len());
        }
        self.children.push((name.to_owned(), node));
    }

    /// Prepends a child.
    pub(super) fn push_front(&mut self, name: FieldName<'_>, node: Node) {
        let behind = std::mem::take(&mut self.children);
        self.positions.clear();
        self.push(name, node);
        behind.into_iter().for_each(|(name, node)| self.push(name.view(), node));
    }

    /// Adds a node at a path.
    ///
    /// Errors: 31249 and 31250 if a node is at, above or below the path.
    pub(super) fn add(&mut self, path: &str, node: Node) -> Result<()> {
        let computes = matches!(node, Node::Computed(_) | Node::ElemMatch(_));
        let mut tree = self;
        let mut rest = path;
        while let Some((first, below)) = rest.split_once('.') {
            tree.computes |= computes;
            let at = match tree.find(first.as_bytes()) {
                Some(at) => at,
                None => {
                    tree.push(FieldName::new(first)?, Node::Below(Tree::default()));
                    tree.children.len() - 1
                }
            };
            let Some((_, Node::Below(inner))) = tree.children.get_mut(at) else {
                bail!(31249, "Path collision at {path} remaining portion {below}");
            };
            (tree, rest) = (inner, below);
        }
        tree.computes |= computes;
        if tree.find(rest.as_bytes()).is_some() {
            bail!(31250, "Path collision at {path}");
        }
        tree.push(FieldName::new(rest)?, node);
        Ok(())
    }
}
