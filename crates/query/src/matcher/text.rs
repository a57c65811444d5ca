//! `$text`: a search by a text index. Evaluation against a document only reports whether the index has found it.
//!
//! ```text
//! {$text: {$search: <string>, $language: <string>, $caseSensitive: <boolean>, $diacriticSensitive: <boolean>}}
//! ```

use super::Matcher;
use super::node::Node;
use super::parse::Parser;
use crate::text::TextQuery;
use base::bson::Element;
use base::{Result, bail, err};
use std::sync::Arc;

/// Parses `$text`.
///
/// Errors: as [`TextQuery::parse`].
pub(super) fn parse(parser: &Parser<'_>, element: &Element<'_>) -> Result<Option<Node>> {
    parser.require_top_level("$text")?;
    Ok(Some(Node::Text(Arc::new(TextQuery::parse(element)?))))
}

impl Matcher {
    /// Whether the filter contains `$text`.
    pub fn searches_text(&self) -> bool {
        self.searches_text
    }

    /// Refuses `$text` for an operation without a text index; `reason` may be empty.
    ///
    /// Errors: IndexNotFound if the filter contains `$text`; the errors of [`text`](Self::text).
    pub fn refuse_text(&self, reason: &dyn std::fmt::Display) -> Result<()> {
        match self.text()? {
            Some(_) => Err(err!(IndexNotFound, "text index required for $text query{reason}")),
            None => Ok(()),
        }
    }

    /// Returns the `$text` of the filter at any depth.
    ///
    /// Errors: BadValue for several `$text`, or for a `$text` that must not match.
    pub fn text(&self) -> Result<Option<&TextQuery>> {
        if !self.searches_text {
            return Ok(None);
        }
        let mut queries = Vec::new();
        collect(&self.root, &mut queries);
        if queries.len() > 1 {
            bail!(BadValue, "Too many text expressions");
        }
        let within = |node: &Node| node.any(&|node| matches!(node, Node::Text(_)));
        if self.root.any(&|node| matches!(node, Node::Nor(_) | Node::Not(_)) && within(node)) {
            bail!(BadValue, "text expression not allowed in nor");
        }
        Ok(queries.pop())
    }

    /// Returns the filter for documents that the text index did not find, for `$text` within `$or`.
    pub fn without_text(&self) -> Matcher {
        let (root, collation) = (self.root.clone(), self.collation.clone());
        Matcher { root, collation, searches_text: true, text_found: false }
    }
}

fn collect<'n>(node: &'n Node, queries: &mut Vec<&'n TextQuery>) {
    if let Node::Text(query) = node {
        queries.push(query);
    }
    node.children().iter().for_each(|child| collect(child, queries));
}
