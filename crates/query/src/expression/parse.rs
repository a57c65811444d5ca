//! Parser of expressions: separates literals, paths, variables and operators.

use super::node::{Bindings, CallNode, FieldNode, Node, Source};
use super::table::{self, Arity, Operator};
use super::{literal, named, reference};
use crate::Context;
use crate::field_path::checked_path;
use base::bson::{Array, Document, FieldName, Path, Value};
use base::{Result, bail, err};
use foldhash::{HashMap, HashMapExt};

/// The parser, with the names of the currently bound variables.
pub(crate) struct Parser<'c> {
    pub(super) context: &'c Context,
    /// The slots of each name, innermost last.
    bound: HashMap<Box<str>, Vec<usize>>,
    slots: usize,
    redact: bool,
}

impl<'c> Parser<'c> {
    /// Creates a parser with the variables of the context.
    pub(crate) fn new(context: &'c Context) -> Parser<'c> {
        Parser { context, bound: HashMap::new(), slots: 0, redact: false }
    }

    /// Allows the variables of `$redact`.
    pub(crate) fn allow_redact(mut self) -> Parser<'c> {
        self.redact = true;
        self
    }

    /// Parses any operand. The validated BSON bounds the nesting.
    pub(crate) fn operand(&mut self, value: Value<'_>) -> Result<Node> {
        self.context.steps(1)?;
        match value {
            Value::String(text) if text.starts_with('$') => self.field(text),
            Value::Document(document) => self.document(document),
            Value::Array(array) => Ok(Node::Array(self.operands(array)?)),
            other => Ok(Node::Constant(Some(other.to_owned()))),
        }
    }

    /// Parses the elements of an array as operands.
    pub(crate) fn operands(&mut self, array: Array<'_>) -> Result<Vec<Node>> {
        array.iter().map(|value| self.operand(value)).collect()
    }

    /// Parses a document: a call if the first name starts with a dollar sign, otherwise an object literal. Errors:
    /// 15983 for a call with further fields.
    fn document(&mut self, document: Document<'_>) -> Result<Node> {
        match document.first() {
            Some(first) if first.name_bytes().first() == Some(&b'$') => {
                if document.iter().count() != 1 {
                    bail!(
                        15983,
                        "An object representing an expression must have exactly one field: {document}"
                    );
                }
                self.call(first.name(), first.value())
            }
            _ => literal::parse_document(self, document),
        }
    }

    /// Parses a call of an operator. Errors: InvalidPipelineOperator for an unknown operator.
    fn call(&mut self, name: &str, argument: Value<'_>) -> Result<Node> {
        // MongoDB reports it under its newer name.
        let name = if name == "$substr" { "$substrBytes" } else { name };
        let operator = table::find(name)
            .ok_or_else(|| err!(InvalidPipelineOperator, "Unrecognized expression '{name}'"))?;
        match operator.arity {
            Arity::Named(declared) => named::parse(self, operator, declared, argument),
            Arity::Own(parse) => parse(self, operator, argument),
            _ => self.positional(operator, argument),
        }
    }

    /// Parses an array of arguments or a single argument, and checks their number.
    pub(crate) fn positional(&mut self, operator: &'static Operator, argument: Value<'_>) -> Result<Node> {
        let operands = match argument {
            Value::Array(array) => self.operands(array)?,
            single => vec![self.operand(single)?],
        };
        operator.check_count(operands.len())?;
        Ok(Node::call(operator, operands))
    }

    /// Parses `"$path"` or `"$$variable.path"`.
    pub(crate) fn field(&mut self, text: &str) -> Result<Node> {
        let path = text.get(1..).unwrap_or_default();
        if path.is_empty() {
            bail!(16872, "'$' by itself is not a valid FieldPath");
        }
        let Some(variable) = path.strip_prefix('$') else {
            let path = Some(checked_path(path)?);
            // `$let` may rebind CURRENT, which plain paths then read.
            let source = self.slot("CURRENT").map_or(Source::Root, Source::Slot);
            return Ok(Node::Field(FieldNode { source, path, name: "".into() }));
        };
        let (name, rest) = match variable.split_once('.') {
            Some((name, rest)) => (name, Some(rest)),
            None => (variable, None),
        };
        reference::check_name_for_reading(name)?;
        checked_path(variable)?;
        let rest = rest.map(FieldName::new).transpose()?;
        self.variable(name, rest.map(Path::new))
    }

    /// Parses `$$name`. Bound variables hide system variables, which hide the variables of the command's `let`.
    fn variable(&mut self, name: &str, path: Option<Path>) -> Result<Node> {
        let source = match (self.slot(name), name) {
            (Some(slot), _) => Source::Slot(slot),
            (None, "ROOT") if self.redact => Source::Whole,
            (None, "ROOT" | "CURRENT") => Source::Root,
            (None, "USER_ROLES") => Source::UserRoles,
            (None, "REMOVE") => return Ok(Node::Constant(None)),
            (None, "NOW") => Source::Now,
            (None, "CLUSTER_TIME") => Source::ClusterTime,
            (None, "DESCEND" | "PRUNE" | "KEEP") if self.redact => {
                let action = name.to_ascii_lowercase();
                return Ok(Node::Constant(Some(Value::String(&action).to_owned())));
            }
            (None, _) => Source::Let(self.context.variable(name)?),
        };
        Ok(Node::Field(FieldNode { source, path, name: name.into() }))
    }

    /// Returns the slot of a variable bound within the expression; the innermost with this name.
    fn slot(&self, name: &str) -> Option<usize> {
        self.bound.get(name)?.last().copied()
    }

    /// Binds variables while `body` parses the operands that see them.
    pub(crate) fn binding<T>(
        &mut self,
        names: &[&str],
        body: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<(Bindings, T)> {
        let first = self.slots;
        let names: Vec<Box<str>> = names.iter().map(|name| Box::from(*name)).collect();
        for (slot, name) in (first..).zip(&names) {
            self.bound.entry(name.clone()).or_default().push(slot);
        }
        self.slots += names.len();
        let parsed = body(self);
        self.slots = first;
        for name in &names {
            self.bound.get_mut(name).and_then(Vec::pop);
        }
        Ok((Bindings { first, names }, parsed?))
    }

    /// Builds a call that binds variables.
    pub(crate) fn binding_call(operator: &'static Operator, operands: Vec<Node>, bindings: Bindings) -> Node {
        Node::Call(CallNode { operator, operands, bindings, members: None })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_parse_error};

    #[test]
    fn forms_of_operands() {
        check("{$add: 5}", "{}", "5");
        check("['$a', {b: '$a'}, 'text', 1.5]", "{a: 1}", "[1, {b: 1}, 'text', 1.5]");
        check("{}", "{}", "{}");
        check_parse_error("{$nothing: 1}", 168);
        check_parse_error("{$add: [1], $subtract: [1, 2]}", 15983);
        check_parse_error("{a: {$add: 1, b: 2}}", 15983);
    }

    #[test]
    fn syntax_errors_precede_errors_of_constants() {
        check_parse_error("[{$divide: [1, 0]}, {$nothing: 1}]", 168);
        check_parse_error("[{$divide: [1, 0]}, '$a']", 2);
    }

    #[test]
    fn deep_nesting_is_no_danger() {
        let levels = 85;
        let nots = format!("{}'$a'{}", "{$not: [".repeat(levels), "]}".repeat(levels));
        check(&nots, "{a: 1}", "false");
        let lets = "{$let: {vars: {x: '$a'}, in: ".repeat(80) + "'$$x'" + &"}}".repeat(80);
        check(&lets, "{a: 7}", "7");
    }
}
