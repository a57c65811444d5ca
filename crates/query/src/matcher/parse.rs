//! Parser of filters: separates operators from values.

use super::node::Node;
use super::operators::{self, FieldArgument};
use super::{comparison, near, regex_match};
use crate::Context;
use base::bson::{Document, MAX_DEPTH, Path, Value};
use base::{Result, bail, err};

/// Number of conditions parsed between two interruption checks.
const POSITIONS_PER_CHECK: usize = 16;

/// State of the parser.
#[derive(Clone, Copy)]
pub(super) struct Parser<'c> {
    pub(super) context: &'c Context,
    depth: usize,
    inside_elem_match: bool,
}

impl<'c> Parser<'c> {
    pub(super) fn new(context: &'c Context) -> Parser<'c> {
        Parser { context, depth: 0, inside_elem_match: false }
    }

    /// Returns the parser for nested conditions. Documents from clients have a depth limit already; this limits trees
    /// from all other sources.
    pub(super) fn deeper(self) -> Result<Parser<'c>> {
        if self.depth >= MAX_DEPTH {
            bail!(Overflow, "exceeded depth limit of {MAX_DEPTH} when parsing the filter");
        }
        Ok(Parser { depth: self.depth + 1, ..self })
    }

    /// Checks for interruption at some positions of a list.
    pub(super) fn check_at_intervals(&self, position: usize) -> Result<()> {
        match position % POSITIONS_PER_CHECK {
            0 if position > 0 => self.context.interrupt.check(),
            _ => Ok(()),
        }
    }

    /// Returns the parser for the content of an `$elemMatch`.
    pub(super) fn inside(self) -> Parser<'c> {
        Parser { inside_elem_match: true, ..self }
    }

    /// Refuses an operator on the whole document if only a part of the document is available.
    pub(super) fn require_top_level(&self, name: &str) -> Result<()> {
        if self.inside_elem_match {
            bail!(BadValue, "{name} can only be applied to the top-level document");
        }
        Ok(())
    }

    /// Parses a whole filter into one `And` of its conditions.
    pub(super) fn filter(&self, filter: Document<'_>) -> Result<Node> {
        let mut children = Vec::new();
        for (position, element) in filter.iter().enumerate() {
            self.check_at_intervals(position)?;
            let name = element.name();
            if name.starts_with('$') {
                let parsed = operators::parse_top(self, &element).ok_or_else(|| {
                    let hint = "If you have a field name that starts with a '$' symbol, \
                                consider using $getField or $setField.";
                    err!(BadValue, "unknown top level operator: {name}. {hint}")
                })?;
                children.extend(parsed?);
            } else {
                self.field(&Path::new(element.field_name()), element.value(), &mut children)?;
            }
        }
        Ok(Node::And(children))
    }

    /// Parses `path: value`: operators, a pattern, or an equality.
    fn field(&self, path: &Path, value: Value<'_>, children: &mut Vec<Node>) -> Result<()> {
        match value {
            Value::Document(inner) if is_operator_document(inner) => {
                children.extend(self.field_operators(path, inner)?);
            }
            Value::Regex { pattern, options } => children.push(regex_match::field(path, &pattern, &options)?),
            _ => children.push(comparison::field(path, comparison::ComparisonOp::Eq, value)?),
        }
        Ok(())
    }

    /// Parses the operators on one path into one condition each.
    pub(super) fn field_operators(&self, path: &Path, operators: Document<'_>) -> Result<Vec<Node>> {
        if let Some(near) = near::parse_all(path, operators) {
            return Ok(vec![near?]);
        }
        let mut children = Vec::new();
        for element in operators {
            let argument = FieldArgument { path, element, siblings: operators };
            let parsed = operators::parse_field(self, &argument).ok_or_else(|| match element.name() {
                "$where" => err!(BadValue, "$where cannot be applied to a field"),
                name => err!(BadValue, "unknown operator: {name}"),
            })?;
            children.extend(parsed?);
        }
        Ok(children)
    }
}

/// Whether a document contains operators rather than a value. The first name decides, except for database references.
pub(super) fn is_operator_document(document: Document<'_>) -> bool {
    let starts_so = document.first().is_some_and(|element| element.name_bytes().starts_with(b"$"));
    starts_so && !(document.find("$ref").is_some() && document.find("$id").is_some())
}

/// Whether a document has any part of a database reference.
pub(super) fn is_database_reference(document: Document<'_>) -> bool {
    ["$ref", "$id", "$db"].iter().any(|name| document.find(name).is_some())
}
